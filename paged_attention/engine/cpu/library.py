"""The functions of kernels/cpu/step.cpp: they take contiguous tensors and check nothing."""

import ctypes
import functools
import platform
import sys

import torch
from torch import Tensor

from lessons_lib.inline import build_library, read_kernel

FILES = ("numbers.h", "few_rows.h", "between.h", "attend.h", "step.cpp")
NUMBERS = (torch.float32, torch.bfloat16)  # of weights and pools


@functools.cache
def cpu_library() -> "CpuLibrary":
    """Builds the functions, once."""
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    # PyTorch's own threads, where the compiler has OpenMP as GCC has it; else one thread.
    threads = () if sys.platform == "darwin" else ("-fopenmp",)
    return CpuLibrary(
        build_library(
            *(read_kernel(f"cpu/{file}") for file in FILES),
            names=tuple(f"cpu/{file}" for file in FILES),
            name="cpu_step",
            flags=("-std=c++17", "-O3", native, *threads),
            link=threads,
        )
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
