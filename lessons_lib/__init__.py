"""Helps the lessons with checks, inline C++ and CUDA. No lesson's own idea is hidden here."""

import sys

from lessons_lib.compiler_errors import CompileError
from lessons_lib.cuda_on_cpu.reports import KernelError
from lessons_lib.inline import build_cpp, build_library
from lessons_lib.verbs import (
    CheckFailed,
    NotAttempted,
    check,
    hint,
    open_lesson,
    progress_bar,
    show_progress,
    solution,
)
from lessons_processes import isolation
from lessons_processes.isolation import run_isolated

__all__ = [
    "CheckFailed",
    "CompileError",
    "KernelError",
    "NotAttempted",
    "build_cpp",
    "build_cuda",
    "build_library",
    "check",
    "hint",
    "open_lesson",
    "progress_bar",
    "run_isolated",
    "show_progress",
    "solution",
]


def __getattr__(name):
    if name == "build_cuda":  # imports PyTorch, which takes seconds; nothing else here does
        from lessons_lib.cuda import build_cuda

        return build_cuda
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "ipykernel" in sys.modules:
    isolation.warm_up()  # a check will follow in a notebook, and the first one should not wait
