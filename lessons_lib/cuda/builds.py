"""How CUDA texts are compiled: with nvcc for a GPU, or with the C++ compiler for the CPU."""

import ctypes
import subprocess
import sys
from functools import cache
from pathlib import Path

from lessons_lib.cuda.compiler import NATIVE, Recipe, compiler, given
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda.here import no_gpu
from lessons_lib.cuda.inline import _compile, _load, preprocess
from lessons_lib.cuda_on_cpu import left_out, unwatched
from lessons_lib.cuda_on_cpu.rewrite import rewrite

CUDA_ON_CPU = Path(__file__).resolve().parents[1] / "cuda_on_cpu"
TARGETS = ("gpu", "fast", "checked")

_GPU_FLAGS = (
    "-std=c++17",
    "-O3",
    "-lineinfo",
    # On the CPU these headers are always included, so code that needs int64_t,
    # FLT_MAX or assert must compile on a GPU too.
    *(
        word
        for header in (
            "cassert",
            "cfloat",
            "climits",
            "cmath",
            "cstddef",
            "cstdint",
            "cstdio",
            "cstring",
        )
        for word in ("-include", header)
    ),
)
# Python asks for the last error too, in case a launcher forgets to return it.
_GPU_ERRORS = """
extern "C" int lessons_lib_last_error() { return (int)cudaGetLastError(); }
extern "C" const char* lessons_lib_error_text(int code) {
  return cudaGetErrorString((cudaError_t)code);
}
"""


def choose_target(target: str | None) -> str:
    """`target`, or the best one that this machine has.

    Raises RuntimeError if this machine does not have it, and says what is missing.
    """
    if target is None:
        return "checked" if no_gpu() else "gpu"
    if target not in TARGETS:
        raise ValueError(
            f"target is one of {', '.join(TARGETS)}, or None for the best that is here; "
            f"not {target!r}"
        )
    if target == "gpu" and (missing := no_gpu()):
        raise RuntimeError(
            'target="gpu" cannot be had here: '
            f'{missing} The targets "checked" and "fast" need no GPU.'
        )
    return target


def build_for_gpu(sources: dict[str, str], name: str, architecture: str = "") -> ctypes.CDLL:
    """The library of `sources` (name to text), with the functions of _GPU_ERRORS.

    architecture: as for `build_cuda`.
    """
    texts = {**sources, "lessons_lib": _GPU_ERRORS}
    only = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
    flags = (*_GPU_FLAGS, only if architecture else "-arch=native")  # the GPUs of this machine
    return _load(
        _compile(
            sources,
            name,
            Recipe(flags, cuda=True, also=_gpus() + repr([*sources])),
            texts,
        ),
        ctypes.CDLL,
    )


def build_for_cpu(
    sources: dict[str, str], name: str, target: str, runtime: Path
) -> ctypes.CDLL:
    """The library of `sources` for target "fast" or "checked", linked to its runtime."""
    recipe = Recipe(
        _flags(target),
        include=(CUDA_ON_CPU / "include",),
        link=(*_link_to(runtime), *_watched_copies(target)),
        # error reports name the sources
        also=_own_text() + _rules() + repr([*sources]),
    )
    rewritten = {source: rewrite(text, source) for source, text in sources.items()}

    def refuse_text(text: str, module: str):
        if preprocessed := _preprocessed(text, module, recipe):
            unwatched.refuse_text(preprocessed, sources)

    def refuse_symbols(library: Path):
        unwatched.refuse_symbols(library, runtime, sources)

    inspections = (refuse_text, refuse_symbols) if target == "checked" else ()
    try:
        return _load(_compile(sources, name, recipe, rewritten, *inspections), ctypes.CDLL)
    except CompileError as error:
        raise left_out.explain(error, sources) from error.__cause__


def _preprocessed(text: str, module: str, recipe: Recipe) -> str:
    """The preprocessor's output for `text`, with PyTorch's folders and flags.

    Empty if the preprocessor fails. Then the compiler fails too, and says why.
    """
    try:
        return preprocess(text, *given(module, recipe), "-fPIC")
    except CompileError:
        return ""


def runtime_library(checked: bool) -> Path:
    """The runtime for the CPU targets: fibers, warps and shared memory.

    checked: whether it also watches every access.
    """
    flags = (
        "-std=c++17",
        "-O2",
        "-g1",
        f"-DCHECKED={int(checked)}",
        "-fno-strict-aliasing",
        "-pthread",
        *_only_gcc("-fno-gnu-unique"),
    )
    recipe = Recipe(flags, include=(CUDA_ON_CPU,), link=_link(), also=_own_text())
    return _compile(
        {"runtime.cpp": '#include "runtime.cpp"'},
        f"cuda_on_cpu_{'checked' if checked else 'fast'}",
        recipe,
    )


def _flags(target: str) -> tuple[str, ...]:
    # Ubuntu's GCC turns memcpy and memset into functions of the C library that check for
    # overflows (FORTIFY), and our watch does not see these functions. With DWARF 5, addr2line
    # of binutils 2.40 gives our file another name. A frame has to be smaller than the guard
    # below a thread's stack (fiber.h), so that a full stack is noticed.
    common = (
        "-std=c++17",
        NATIVE,
        "-gdwarf-4",
        "-fno-strict-aliasing",
        "-fno-exceptions",
        "-Wno-unknown-pragmas",
        "-U_FORTIFY_SOURCE",
        "-Werror=frame-larger-than=40000",
        "-Werror=return-type",
        "-include",
        "cuda_runtime.h",
        *_only_gcc("-fno-gnu-unique"),
    )
    if target == "fast":
        return (*common, "-O3", "-g1")
    # Each access must call the runtime by itself. A vectorised loop would make one call for
    # several elements. A float4 that the compiler splits (tree-sra) would make several calls,
    # and then a misaligned one would not show. GCC reports no access of a small memcpy or
    # memset that it expands, so memcpy and memset have to stay calls (language.h).
    gcc = (
        "-O1",
        "-fno-tree-vectorize",
        "-fno-tree-sra",
        "--param=tsan-instrument-func-entry-exit=0",
        "-fno-builtin-memcpy",
        "-fno-builtin-memmove",
        "-fno-builtin-memset",
    )
    clang = ("-O0", "-mllvm", "-tsan-instrument-read-before-write")  # x += 1 reads too
    return (
        *common,
        "-g",
        "-fsanitize=thread",
        "-fsanitize-coverage=trace-pc",
        *(_only_gcc(*gcc) or clang),
    )


def _only_gcc(*flags: str) -> tuple[str, ...]:
    return () if _compiler_is_clang(*compiler()) else flags


@cache
def _compiler_is_clang(*compiler: str) -> bool:
    try:
        asked = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, errors="replace"
        )
        return "clang" in asked.stdout
    except OSError:
        return sys.platform == "darwin"  # without a compiler, the build fails and says so


def _link() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("-pthread", "-Wl,-install_name,@rpath/runtime.so")
    return ("-pthread", "-ldl")


def _link_to(runtime: Path) -> tuple[str, ...]:
    return (
        str(runtime),
        # -Wl,… would split a folder's name with a comma
        *("-Xlinker", "-rpath", "-Xlinker", str(runtime.parent)),
        *(("-pthread",) if sys.platform == "darwin" else _link()),
    )


def _watched_copies(target: str) -> tuple[str, ...]:
    """Flags for Clang before 15, which copies structs with memcpy; hooks.h replaces memcpy."""
    if target == "fast" or sys.platform == "darwin" or not _compiler_is_clang(*compiler()):
        return ()
    return ("-Wl,--wrap=memcpy,--wrap=memset",)


def _own_text() -> str:
    """The text of all our headers, because they are part of every build."""
    files = sorted(
        path
        for path in CUDA_ON_CPU.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".md")
    )
    return "".join(path.read_text(encoding="utf-8") for path in files)


def _rules() -> str:
    """The text of the rules in unwatched.py. A change of the rules repeats the builds."""
    return Path(unwatched.__file__).read_text(encoding="utf-8")


def _gpus() -> str:
    import torch
    from torch.utils import cpp_extension

    kinds = {
        torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())
    }
    return f"{sorted(kinds)} {torch.version.cuda} {cpp_extension.CUDA_HOME}"
