"""The library that lessons import: checks, inline C++ and CUDA. It hides no idea of a lesson.

Each name is imported when it is first used. So a process that needs one part of this room does
not wait for the other parts.
"""

import importlib

from lessons_lib import rooms

_HOME = {
    "CheckFailed": "notebook_api",
    "CompileError": "cuda.compiler_errors",
    "KernelError": "cuda_on_cpu.reports",
    "NotAttempted": "notebook_api",
    "build_cpp": "cuda.inline",
    "build_cuda": "cuda.library",
    "build_library": "cuda.inline",
    "check": "notebook_api",
    "hint": "notebook_api",
    "open_lesson": "notebook_api",
    "progress_bar": "notebook_api",
    "run_isolated": "processes.isolation",
    "show_progress": "notebook_api",
    "solution": "notebook_api",
}
__all__ = [*_HOME]

rooms.map_earlier_names()


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
