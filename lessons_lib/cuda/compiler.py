"""Finds the compilers of this machine and calls them, from any folder and in any locale."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.processes import linux

# With C++17 and -Og, pybind11 compiles in 60 % of the time that it takes with PyTorch's own
# C++20 and -O1. Calls are nearly as quick.
QUICK = ("-std=c++17", "-Og")
# compiles for this machine's processor
NATIVE = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
_FOR_GPUS = ("-Xcompiler", "-fPIC", "--expt-relaxed-constexpr")


@dataclass(frozen=True)
class Recipe:
    """How to build a library from a text.

    flags, link: for the compiler (nvcc if `cuda`), and for the linker.
    include: folders of headers.
    also: further text that changes the result, such as included files.
    """

    flags: tuple[str, ...] = QUICK
    cuda: bool = False
    include: tuple[Path, ...] = ()
    link: tuple[str, ...] = ()
    also: str = ""


def processor_features() -> str:
    """The features of this processor. Code that was compiled with NATIVE depends on them."""
    return linux.about_processor("flags", "Features") or platform.processor()


def compiler() -> list[str]:
    """The C++ compiler: what CXX names, perhaps with arguments, or else c++."""
    chosen = os.environ.get("CXX", "").strip()
    try:
        words = [chosen] if shutil.which(chosen) else shlex.split(chosen)
    except ValueError:  # CXX has a quote that does not end
        words = [chosen]
    return words or ["c++"]


def compile_file(source: str, module: str, folder: Path, recipe: Recipe) -> Path:
    """Compiles `folder`/`source` to a library in `folder`, and returns the library's path.

    The compiler works in `folder`, and its temporary files are there too. So no other path
    than those of headers is in the command.
    Raises RuntimeError with the compiler's output if it refuses the text.
    Raises OSError if there is no compiler.
    """
    first, library = _nvcc() if recipe.cuda else compiler(), f"{module}.so"
    position = _FOR_GPUS if recipe.cuda else ("-fPIC",)
    loose = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    _run([*first, *position, *given(module, recipe), "-c", source, "-o", "main.o"], folder)
    _run([*first, "-shared", "main.o", "-o", library, *_torch(), *loose, *recipe.link], folder)
    return folder / library


def _run(command: list[str], folder: Path):
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"LC_ALL": "C", "TMPDIR": "."},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise RuntimeError(done.stdout.strip() or f"{command[0]} ended with {done.returncode}")


def given(module: str, recipe: Recipe) -> list[str]:
    """The compiler's options for names, flags and headers, as PyTorch's builder gives them."""
    from torch.utils import cpp_extension

    system = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    is_dated = any(flag.startswith("-std=") for flag in recipe.flags)
    return [
        *(() if is_dated else ("-std=c++20",)),
        f"-DTORCH_EXTENSION_NAME={module}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *recipe.flags,
        *(f"-I{folder}" for folder in recipe.include),
        *(word for folder in system for word in ("-isystem", folder)),
    ]


def _torch() -> list[str]:
    """PyTorch's libraries, for a text that calls its C++ functions."""
    from torch.utils import cpp_extension

    names = ("c10", "torch_cpu", "torch", "torch_python")
    folders = cpp_extension.library_paths()
    return [*(f"-L{folder}" for folder in folders), *(f"-l{name}" for name in names)]


def _nvcc() -> list[str]:
    from torch.utils import cpp_extension

    host = ["-ccbin", os.environ["CC"]] if os.environ.get("CC") else []
    program = Path(cpp_extension.CUDA_HOME or "", "bin", "nvcc")
    return [str(program), *host, "-cudart=shared"]
