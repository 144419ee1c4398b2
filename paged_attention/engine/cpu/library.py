"""The functions of kernels/cpu/step.cpp: they take contiguous tensors and check nothing."""

import ctypes
import functools

import torch
from torch import Tensor

from lessons_lib.cuda.compiler import NATIVE
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda.inline import build_library, read_kernel

FILES = ("numbers.h", "few_rows.h", "between.h", "attend.h", "step.cpp")
NUMBERS = (torch.float32, torch.bfloat16)  # of weights and pools


@functools.cache
def cpu_library() -> "CpuLibrary":
    """Builds the functions, once: with PyTorch's threads, or for one if OpenMP is not here.

    Clang often comes without it.
    Raises CompileError or CannotBuild if this machine cannot build them.
    """
    try:
        return CpuLibrary(_build("-fopenmp"))
    except CompileError:
        return CpuLibrary(_build())


def _build(*threads: str) -> ctypes.CDLL:
    return build_library(
        *(read_kernel(f"cpu/{file}") for file in FILES),
        names=tuple(f"cpu/{file}" for file in FILES),
        name="cpu_step",
        # GCC warns that vectors are passed in another way where AVX-512 is not there
        flags=("-std=c++17", "-O3", NATIVE, "-Wno-psabi", *threads),
        link=threads,
    )


class CpuLibrary:
    """Calls a function by its name: a tensor goes as its address, and a number as itself."""

    def __init__(self, functions: ctypes.CDLL):
        self.functions = functions

    def __call__(self, name: str, *arguments: Tensor | int | float | None) -> None:
        self.functions[name](*map(_argument, arguments))


def _argument(value: Tensor | int | float | None):
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None) if value is None else ctypes.c_int64(value)


def bits_of(tensor: Tensor) -> int:
    return 8 * tensor.dtype.itemsize
