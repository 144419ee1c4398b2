"""PyTorch's own `load_inline`, as lessons 01 and 06 call it.

What is around the call: a folder that keeps what was built, a line that says how long it
takes, and an error of one sentence where PyTorch's has pages.
"""

import hashlib
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch.utils import cpp_extension

from lessons_lib import machine
from lessons_lib.cuda.compiler_errors import explain
from lessons_lib.paths import build_folder
from lessons_lib.processes.locks import one_at_a_time
from lessons_lib.processes.waiting import waiting

# How often the build of a text has failed or was stopped in this process. PyTorch does not try
# the same text again in the same folder.
_failures: Counter[str] = Counter()


@contextmanager
def kept_build(texts: Sequence[str]) -> Iterator[str]:
    """Gives a folder of these texts' own, to be `load_inline`'s `build_directory`.

    A text that was built once is not compiled again, in another process either.

    texts: what is built, C++ and CUDA.
    Raises CompileError with the first line that the compiler refuses.
    Raises CannotBuild, with the remedy, if this machine may be at fault.
    """
    about = [*texts], torch.__version__, sys.implementation.cache_tag
    key = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
    folder = build_folder() / f"load_inline_{key}_{_failures[key]}"
    # PyTorch writes this folder into a shell's line as it is, with a space or without.
    libraries = shlex.quote(cpp_extension.TORCH_LIB_PATH)
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{path}{os.pathsep}{Path(sys.executable).parent}"  # has ninja
    try:
        folder.mkdir(exist_ok=True)
        with (
            one_at_a_time(folder.with_suffix(".lock")),
            waiting("Compiling"),
            patch.object(cpp_extension, "TORCH_LIB_PATH", libraries),
        ):
            # PyTorch waits for ever for the lock of a build that was killed.
            (folder / "lock").unlink(missing_ok=True)
            yield str(folder)
    except BaseException as error:
        _failures[key] += 1
        if not isinstance(error, OSError | RuntimeError):
            raise
        written = {
            name: (folder / name).read_text(encoding="utf-8")
            for name in ("main.cpp", "cuda.cu")
            if (folder / name).is_file()
        }
        said = str(error).replace(f"{folder}{os.sep}", "")
        raise machine.blame(explain(said, written)) from None
    finally:
        os.environ["PATH"] = path
