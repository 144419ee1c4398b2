"""Builds C++ from a notebook: it takes the learner's text and returns a module or a library.

PyTorch's `load_inline` does the same. This adds builds without implicit headers, which take
less than a quarter of the time; a folder for each source text; errors at the learner's own
line; builds that survive interruptions, failures and damaged files; and folders with any name,
in any locale.
"""

import ctypes
import hashlib
import importlib.util
import logging
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from lessons_lib import machine
from lessons_lib.cuda.compiler import (
    NATIVE,
    QUICK,
    Recipe,
    compile_file,
    compiler,
    processor_features,
)
from lessons_lib.cuda.compiler_errors import CompileError, explain
from lessons_lib.paths import KERNELS, build_folder
from lessons_lib.processes.locks import one_at_a_time
from lessons_lib.processes.waiting import waiting

FINISHED = "finished"  # the name of the file that marks a finished build
ABANDONED = 3600.0  # after this many seconds, an unfinished build counts as killed

# With a CUDA toolkit and no GPU, PyTorch would print a warning in a learner's first build.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)

_loaded: dict[Path, object] = {}


def build_cpp(
    *sources: str,
    names: tuple[str, ...] = (),
    name: str = "lesson",
    flags: tuple[str, ...] = QUICK,
) -> ModuleType:
    """Compiles C++ that defines a pybind11 module and imports it.

    sources: C++ texts, compiled as one file in this order. The last one holds
        `PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)`. The same texts compile only once.
    names: what error messages call the texts.
    Raises TypeError if a source is not text.
    Raises CompileError, with the learner's line, if the code does not compile.
    """
    texts = _check_sources(sources, names)
    if not any("PYBIND11_MODULE" in text for text in texts.values()):
        raise CompileError(
            "No source has PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { ... "
            "}, so Python could not import the result. Pass the binding as the last argument."
        )
    return _load(_compile(texts, name, Recipe(tuple(flags))), _import)


def build_library(
    *sources: str,
    names: tuple[str, ...] = (),
    name: str = "library",
    flags: tuple[str, ...] = QUICK,
    link: tuple[str, ...] = (),
) -> ctypes.CDLL:
    """Compiles C++ with `extern "C"` functions, to be called through ctypes.

    Without pybind11 a build takes about a second instead of ten. The arguments are those of
    `build_cpp`; `link` has flags for the linker.
    """
    return _load(
        _compile(_check_sources(sources, names), name, Recipe(tuple(flags), link=tuple(link))),
        ctypes.CDLL,
    )


def preprocess(text: str, *options: str) -> str:
    """The text with all files that it includes, as the compiler reads it.

    options: for the compiler.
    Raises CompileError if the preprocessor refuses the text.
    Raises CannotBuild, with the remedy, if this machine may be at fault.
    """
    words = [*compiler(), *options, "-E", "-x", "c++", "-"]
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise machine.blame(_explain_load(error)) from None
    if done.returncode:
        raise machine.blame(explain(done.stderr, {"<stdin>": text}))
    return done.stdout


def read_kernel(file_name: str) -> str:
    """The text of a file in `kernels/`, without solution markers and local includes."""
    lines = (KERNELS / file_name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not re.match(r'\s*(// (BEGIN|END) SOLUTION|#pragma once|#include ")', line)
    )


def show_lines(file_name: str, first: str, last: str) -> None:
    """Prints a file of `kernels/`, from the line with `first` to the next line with `last`."""
    lines = read_kernel(file_name).split("\n")
    begin = next(number for number, line in enumerate(lines) if first in line)
    end = next(number for number, line in enumerate(lines) if last in line and number > begin)
    print("\n".join(lines[begin : end + 1]))


def _check_sources(sources, names=()) -> dict[str, str]:
    """The texts, by the names that error messages give them."""
    if not sources:
        raise TypeError("There is nothing to build: pass at least one C++ source text.")
    for number, source in enumerate(sources, 1):
        if not isinstance(source, str):
            raise TypeError(
                f"C++ is built from text; source {number} "
                f"is {type(source).__name__}: {source!r:.80}"
            )
    if not names:
        names = (
            ["your code"]
            if len(sources) == 1
            else [f"source {number}" for number in range(1, len(sources) + 1)]
        )
    if len(set(names)) != len(sources) or any('"' in name for name in names):
        raise ValueError(
            f"Each of the {len(sources)} sources needs a name of its own, without quotes; "
            f"names is {names}"
        )
    return dict(zip(names, sources, strict=True))


def _compile(
    sources: dict[str, str],
    name: str,
    recipe: Recipe,
    rewritten: dict[str, str] | None = None,
    before: Callable[[str, str], None] | None = None,
    after: Callable[[Path], None] | None = None,
) -> Path:
    """The path of the shared library of `sources`. It is compiled only if no build is
    finished.

    rewritten: texts for the compiler instead of `sources`, with the same lines. Errors show
        `sources`.
    before: called with the whole text and the module's name before compilation.
    after: called with the library before it counts as finished.
    Raises CompileError if the text does not compile, or if `before` or `after` refuses it.
    Raises CannotBuild, with the remedy, if this machine may be at fault.
    """
    compiled = rewritten or sources
    try:
        return _built(compiled, name, recipe, before, after)
    except RuntimeError as error:
        raise machine.blame(explain(str(error), sources, compiled)) from None
    except OSError as error:
        raise machine.blame(_explain_load(error)) from None


def _built(compiled: dict[str, str], name: str, recipe: Recipe, before, after) -> Path:
    """Like `_compile`. Raises RuntimeError with the compiler's output, or OSError."""
    text = "".join(map(_placed, compiled, compiled.values()))
    module = f"{name}_{_fingerprint(list(compiled.values()), recipe)}"
    folder = build_folder() / module
    library = folder / f"{module}.so"
    if _is_finished(library):
        return library
    with one_at_a_time(folder.with_suffix(".lock")):
        if _is_finished(library):
            return library
        with _scratch(folder) as scratch:
            if before:
                before(text, module)
            source = scratch / ("main.cu" if recipe.cuda else "main.cpp")
            source.write_text(text, encoding="utf-8")
            with waiting("Compiling"):
                built = compile_file(source.name, module, scratch, recipe)
            if after:
                after(built)
            (scratch / FINISHED).write_text(_digest(built), encoding="utf-8")
            _put(scratch, folder)
    return library


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A new folder near `folder`, for one build. Deletes the folders of killed builds."""
    for left in folder.parent.glob(f"{folder.name}-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as parent:
        # TemporaryDirectory's own mode would lock other users out
        scratch = Path(parent, folder.name)
        scratch.mkdir()
        yield scratch


def _put(built: Path, folder: Path):
    """Moves a build to its place.

    If another process has finished the same build, that stays.
    """
    for _ in range(10):  # where there are no locks, other processes may do the same now
        with suppress(OSError):
            built.rename(folder)
            return
        if _is_finished(folder / f"{folder.name}.so"):
            return
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink(missing_ok=True)
    raise CompileError(f"{folder} is in the way of a build and cannot be deleted. Delete it.")


def _is_finished(library: Path) -> bool:
    """Whether the build is complete: the file beside it has its digest."""
    try:
        return (library.parent / FINISHED).read_bytes() == _digest(library).encode()
    except OSError:
        return False


def _digest(library: Path) -> str:
    with open(library, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _placed(name: str, text: str) -> str:
    """The text with a directive that keeps its own name and line numbers.

    `extern "C" {}` at its end adds nothing. But if a brace or a semicolon is missing, the
    error appears there, and not in the next text.
    """
    lines = len(text.split("\n"))
    return f'#line 1 "{name}"\n{text}\n#line {lines + 1} "{name}"\nextern "C" {{}}\n'


def _fingerprint(texts: list[str], recipe: Recipe) -> str:
    """Sixteen characters that change with the texts, the recipe, the tools and the machine."""
    import torch

    machine = (
        torch.__version__,
        sys.implementation.cache_tag,
        platform.machine(),
        compiler(),
        processor_features() if NATIVE in recipe.flags else "",
    )
    return hashlib.sha256(repr((texts, recipe, machine)).encode()).hexdigest()[:16]


def _explain_load(error: Exception) -> CompileError:
    """Explains why a library does not load: nearly always, a function is undefined."""
    if isinstance(error, OSError) and error.strerror:
        return CompileError(f"It could not be built here: {error}")
    reason = str(error)
    match = re.search(r"undefined symbol: (\w+)", reason)
    if not match:
        return CompileError(f"The code compiled but cannot be loaded: {reason}")
    symbol = match[1]
    if shutil.which("c++filt"):
        symbol = (
            subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip()
            or symbol
        )
    return CompileError(
        f"`{symbol}` is declared but never defined.", reason=f"undefined symbol {symbol}"
    )


def _load(library: Path, loader):
    if library not in _loaded:
        try:
            _loaded[library] = loader(library)
        except (ImportError, OSError) as error:
            shutil.rmtree(library.parent, ignore_errors=True)
            raise machine.blame(_explain_load(error)) from None
    return _loaded[library]


def _import(library: Path) -> ModuleType:
    """The Python module in `library`. It is not put into `sys.modules`."""
    spec = importlib.util.spec_from_file_location(library.stem, library)
    assert spec is not None and spec.loader is not None  # its name ends in .so
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
