"""How CUDA texts are compiled: by nvcc for a GPU; for the CPU by the C++ compiler, and linked to our runtime."""

import ctypes
import os
import platform
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from lessons_lib.cuda_on_cpu import unwatched
from lessons_lib.cuda_on_cpu.rewrite import rewrite
from lessons_lib.inline import Recipe, _compile, _load

CUDA_ON_CPU = Path(__file__).resolve().parent / "cuda_on_cpu"
TARGETS = ("gpu", "fast", "checked")

# PyTorch tells nvcc to leave out operators and conversions of half types, which plain CUDA has.
_GPU_FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__",
              "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__",
              # What the stand-in has unasked: int64_t, FLT_MAX or assert needs no more on a GPU than on the CPU.
              *(word for header in ("cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstring")
                for word in ("-include", header)))
# A launcher that forgets its return value must not hide an error; so Python asks as well.
_GPU_ERRORS = '''
extern "C" int lessons_lib_last_error() { return (int)cudaGetLastError(); }
extern "C" const char* lessons_lib_error_text(int code) { return cudaGetErrorString((cudaError_t)code); }
'''


def choose_target(target: str | None) -> str:
    """`target`, or the best that this machine has. Raises RuntimeError, saying what is missing, where it cannot be had."""
    if target is None:
        return "checked" if _no_gpu() else "gpu"
    if target not in TARGETS:
        raise ValueError(f"target is one of {', '.join(TARGETS)}, or None for the best that is here; not {target!r}")
    if target == "gpu" and (missing := _no_gpu()):
        raise RuntimeError(f'target="gpu" cannot be had here: {missing} The targets "checked" and "fast" need no GPU.')
    return target


def _no_gpu() -> str:
    """What is missing for a GPU build, and how to get it; empty if nothing is."""
    import torch
    from torch.utils import cpp_extension

    if torch.version.cuda is None:
        return "this PyTorch was built without CUDA. Install one with it: https://pytorch.org/get-started/locally"
    if not torch.cuda.is_available():
        return "PyTorch sees no NVIDIA GPU. `nvidia-smi` says whether the driver does."
    if not cpp_extension.CUDA_HOME or not (Path(cpp_extension.CUDA_HOME) / "bin" / "nvcc").exists():
        return (f"nvcc is not installed. Install CUDA {torch.version.cuda} (conda: cuda-nvcc), or set CUDA_HOME to where "
                "it is.")
    return ""


def build_for_gpu(sources: dict[str, str], name: str) -> ctypes.CDLL:
    """The library of `sources` (name to text), with the functions of _GPU_ERRORS besides its own."""
    texts = {**sources, "lessons_lib": _GPU_ERRORS}
    return _load(_compile(sources, name, Recipe(_GPU_FLAGS, cuda=True, also=_gpus() + repr([*sources])), texts), ctypes.CDLL)


def build_for_cpu(sources: dict[str, str], name: str, target: str, runtime: Path) -> ctypes.CDLL:
    """The library of `sources` (name to text) for target "fast" or "checked", linked to the `runtime` of that target."""
    recipe = Recipe(_flags(target), include=(CUDA_ON_CPU / "include",), link=(*_link_to(runtime), *_watched_copies(target)),
                    also=_own_text() + _rules() + _processor() + repr([*sources]))  # reports name the sources
    rewritten = {source: rewrite(text, source) for source, text in sources.items()}

    def refuse_text(text: str, module: str):
        unwatched.refuse_text(_preprocessed(text, module, recipe), sources)

    def refuse_symbols(library: Path):
        unwatched.refuse_symbols(library, runtime, sources)

    inspections = (refuse_text, refuse_symbols) if target == "checked" else ()
    return _load(_compile(sources, name, recipe, rewritten, *inspections), ctypes.CDLL)


def _preprocessed(text: str, module: str, recipe: Recipe) -> str:
    """What the compiler sees of `text`, in the surroundings that PyTorch gives it. Where the preprocessor fails the compiler
    will too, and says why; then this is empty."""
    from torch.utils import cpp_extension

    system = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    command = [os.environ.get("CXX", "c++"), f"-DTORCH_EXTENSION_NAME={module}", "-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC",
               *recipe.flags, *(f"-I{folder}" for folder in recipe.include), *(f"-isystem{folder}" for folder in system)]
    try:
        done = subprocess.run([*command, "-E", "-x", "c++", "-"], input=text, capture_output=True, text=True, errors="replace")
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def runtime_library(checked: bool) -> Path:
    """The runtime for the CPU targets: fibers, warps, shared memory, and, if `checked`, the watch over every access."""
    flags = ("-std=c++17", "-O2", "-g1", f"-DCHECKED={int(checked)}", "-fno-strict-aliasing", "-pthread",
             *_only_gcc("-fno-gnu-unique"))
    recipe = Recipe(flags, include=(CUDA_ON_CPU,), link=_link(), also=_own_text())
    return _compile({"runtime.cpp": '#include "runtime.cpp"'}, f"cuda_on_cpu_{'checked' if checked else 'fast'}", recipe)


def _flags(target: str) -> tuple[str, ...]:
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    # Ubuntu's GCC turns memcpy and memset into functions of the C library that look for overflows, which nobody watches.
    # addr2line of binutils 2.40 calls our file by another name in DWARF 5. A thread's stack has 64 KiB (fiber.h).
    common = ("-std=c++17", native, "-gdwarf-4", "-fno-strict-aliasing", "-fno-exceptions", "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE",
              "-Werror=frame-larger-than=40000", "-Werror=return-type", "-include", "cuda_runtime.h", *_only_gcc("-fno-gnu-unique"))
    if target == "fast":
        return (*common, "-O3", "-g1")
    # Each access calls the runtime. A loop that was made of vectors would call it for several elements at once, a float4
    # that was taken apart (tree-sra) for one after the other, and one that is not aligned would not show. GCC announces none
    # of the accesses that it makes of a memcpy or memset of few bytes, so these have to stay calls (language.h).
    gcc = ("-O1", "-fno-tree-vectorize", "-fno-tree-sra", "--param=tsan-instrument-func-entry-exit=0", "-fno-builtin-memcpy",
           "-fno-builtin-memmove", "-fno-builtin-memset")
    clang = ("-O0", "-mllvm", "-tsan-instrument-read-before-write")  # which is left out otherwise, in `x += 1` too
    return (*common, "-g", "-fsanitize=thread", "-fsanitize-coverage=trace-pc", *(_only_gcc(*gcc) or clang))


def _only_gcc(*flags: str) -> tuple[str, ...]:
    return () if _compiler_is_clang(os.environ.get("CXX", "c++")) else flags


@cache
def _compiler_is_clang(compiler: str) -> bool:
    try:
        return "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return sys.platform == "darwin"  # it is missing; the build will say so


def _link() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("-pthread", "-Wl,-install_name,@rpath/runtime.so")
    return ("-pthread", "-ldl")


def _link_to(runtime: Path) -> tuple[str, ...]:
    return (str(runtime), f"-Wl,-rpath,{runtime.parent}", *(("-pthread",) if sys.platform == "darwin" else _link()))


def _watched_copies(target: str) -> tuple[str, ...]:
    """Clang before 15 copies a struct by the C library's memcpy, also where accesses are watched: hooks.h has another one."""
    if target == "fast" or sys.platform == "darwin" or not _compiler_is_clang(os.environ.get("CXX", "c++")):
        return ()
    return ("-Wl,--wrap=memcpy,--wrap=memset",)


def _own_text() -> str:
    """The text of all of our headers: they are part of what is compiled."""
    files = sorted(path for path in CUDA_ON_CPU.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".md"))
    return "".join(path.read_text(encoding="utf-8") for path in files)


def _rules() -> str:
    """What is refused: a build that was finished under other rules is done again."""
    return Path(unwatched.__file__).read_text(encoding="utf-8")


@cache
def _processor() -> str:
    """What code for this processor alone depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _gpus() -> str:
    import torch
    from torch.utils import cpp_extension

    kinds = {torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())}
    return f"{sorted(kinds)} {torch.version.cuda} {cpp_extension.CUDA_HOME}"
