"""Times CUDA on the CPU: building a paged kernel, load_inline's default headers, and a run.

    make bench NAME=cuda_builds    about a minute, best on an otherwise idle machine

Prints seconds, milliseconds and ratios. Exits with 1 if a kernel's build takes more than a
fifth of the default's time.
"""

import atexit
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

MOST = 0.2
DEFAULT = """
torch::Tensor twice(torch::Tensor x) { return x + x; }
"""


def main(words: Sequence[str] | None = None) -> int:
    folder = tempfile.mkdtemp(prefix="bench-cuda-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["LESSONS_BUILD_DIR"] = folder
    import torch

    from lessons_lib.cuda.builds import runtime_library
    from paged_attention.attention.paged_kernel import paged_attention_library

    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}"
    )
    libraries, seconds = {}, {}
    for target in ("fast", "checked"):
        timed(
            f"the runtime, once for {target}",
            lambda target=target: runtime_library(checked=target == "checked"),
        )
        seconds[target], libraries[target] = timed(
            f"a paged kernel, {target}", lambda target=target: paged_attention_library(target)
        )
    default, _ = timed(
        "load_inline, default headers", lambda: build_default(os.path.join(folder, "default"))
    )
    for target in ("fast", "checked"):
        print(
            f"build for {target}: "
            f"{seconds[target] / default:.2f} of the default's time (at most {MOST})"
        )

    for target, library in libraries.items():
        print(
            f"8 sequences × 8 heads × 512 tokens × 128, {target}: "
            f"{median_milliseconds(library):.1f} ms"
        )
    return 0 if max(seconds.values()) <= MOST * default else 1


def build_default(folder):
    from torch.utils.cpp_extension import load_inline

    os.mkdir(folder)
    return load_inline(
        "default_headers", cpp_sources=DEFAULT, functions=["twice"], build_directory=folder
    )


def median_milliseconds(library, runs: int = 11) -> float:
    """One call of the paged kernel: fp16, 2 KV heads, blocks of 16 in a shuffled order."""
    import torch

    from paged_attention.attention.paged_kernel import attn_paged_cuda

    generator = torch.Generator().manual_seed(0)
    q = torch.randn(8, 8, 128, generator=generator).half()
    k_cache, v_cache = (
        torch.randn(259, 16, 2, 128, generator=generator).half() for _ in range(2)
    )
    block_table = torch.randperm(259, generator=generator)[:256].view(8, 32).int()
    context_lens = torch.full((8,), 512, dtype=torch.int32)
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        attn_paged_cuda(q, k_cache, v_cache, block_table, context_lens, library=library)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def timed(name: str, build):
    started = time.perf_counter()
    result = build()
    seconds = time.perf_counter() - started
    print(f"{name:30} {seconds:7.2f} s", flush=True)
    return seconds, result


if __name__ == "__main__":
    sys.exit(main())
