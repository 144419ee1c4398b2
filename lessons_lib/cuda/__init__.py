"""C++ and CUDA that a lesson builds inline: the compiler, the builds, and the calls."""


def __getattr__(name: str):
    if name == "build_cuda":  # imports PyTorch, which takes seconds
        from lessons_lib.cuda.library import build_cuda

        return build_cuda
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
