"""Times the build of lesson 01's block manager: ours, and load_inline with default headers.

    make bench NAME=cpp_builds     each once, in separate folders; about a minute

Prints seconds and ratios. Exits with 1 if our build takes more than a quarter of the default's
time, or if an unchanged rebuild takes 0.3 s or more.
"""

import atexit
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence

MOST = 0.25
REBUILD_LIMIT = 0.3  # seconds


def main(words: Sequence[str] | None = None) -> int:
    folder = tempfile.mkdtemp(prefix="bench-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["LESSONS_BUILD_DIR"] = folder
    import torch
    from torch.utils.cpp_extension import load_inline

    from lessons_lib import build_cpp
    from lessons_lib.cuda import inline
    from paged_attention.pool.block_manager import block_manager_sources

    sources = block_manager_sources()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}"
    )

    ours = timed("build_cpp", lambda: build_cpp(*sources))
    inline._loaded.clear()  # as in a new kernel, where nothing is loaded
    rebuild = timed("build_cpp again, unchanged", lambda: build_cpp(*sources))
    default_folder = os.path.join(folder, "default")
    os.mkdir(default_folder)
    default = timed(
        "load_inline, default headers",
        lambda: load_inline(
            "default_headers", cpp_sources="\n".join(sources), build_directory=default_folder
        ),
    )

    print(f"build_cpp takes {ours / default:.2f} of the default's time (at most {MOST})")
    return 0 if ours <= MOST * default and rebuild < REBUILD_LIMIT else 1


def timed(name: str, build) -> float:
    started = time.perf_counter()
    build()
    seconds = time.perf_counter() - started
    print(f"{name:30} {seconds:7.2f} s", flush=True)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
