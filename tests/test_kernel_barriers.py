"""Every barrier of our kernels is needed: without it, checked mode finds a race on every schedule."""

import re

import pytest
import torch

from lessons_lib.bug_hunt import HuntCase, build_hunted
from lessons_lib.cuda import KernelError, build_cuda
from lessons_lib.inline import read_kernel
from lessons_lib.paged_kernel import KERNEL_FILES, attn_paged_cuda
from lessons_lib.paths import KERNELS, SOLUTIONS

BARRIER = re.compile(r"__sync(threads|warp)\([^)]*\);")
TEXTS = {path.name: read_kernel(path.name) for path in sorted(KERNELS.glob("*.cu*"))}
BARRIERS = [(name, number) for name, text in TEXTS.items() for number in range(len(BARRIER.findall(text)))]
BATCH = HuntCase("more tokens than threads, and fewer", (300, 5), num_q_heads=2, block_size=16)
SEEDS = range(4)


def run_paged_attention(texts):
    library = build_cuda(*(texts[name] for name in KERNEL_FILES), names=KERNEL_FILES, target="checked", name="barriers")
    return library, lambda: attn_paged_cuda(**BATCH.tensors(), library=library)


def run_reductions(texts):
    """Several in a row, which the paged kernel does not do."""
    wrapper = (SOLUTIONS / "checks/lesson_06/reduce_check.cu").read_text()
    library = build_cuda(texts["block_reduce.cuh"], wrapper, target="checked", name="barriers")
    values = torch.arange(2 * 3 * 128.0).view(2, 3, 128)
    return library, lambda: library.reduce(values, torch.empty_like(values), torch.empty_like(values), *values.shape)


def run_hunted(texts):
    library = build_hunted(texts["bug_hunt.cu"])
    return library, lambda: attn_paged_cuda(**BATCH.tensors(), library=library)


RUNS = dict.fromkeys(KERNEL_FILES, run_paged_attention) | {"block_reduce.cuh": run_reductions, "bug_hunt.cu": run_hunted}


def without_barrier(name, number):
    match = list(BARRIER.finditer(TEXTS[name]))[number]
    return TEXTS | {name: TEXTS[name][: match.start()] + TEXTS[name][match.end():]}


@pytest.mark.parametrize("name, number", BARRIERS)
def test_a_barrier_that_is_missing_is_found_on_every_schedule(name, number):
    assert name in RUNS, f"kernels/{name} has a barrier: give this test a way to run it"
    library, run = RUNS[name](without_barrier(name, number))
    for seed in SEEDS:
        library.options(seed=seed)
        with pytest.raises(KernelError) as caught:
            run()
        assert caught.value.kind in ("race", "missing-syncwarp", "shared-uninitialised"), caught.value


@pytest.mark.parametrize("name", sorted({name for name, _ in BARRIERS}))
def test_with_all_of_them_there_is_silence(name):
    library, run = RUNS[name](TEXTS)
    for seed in SEEDS:
        library.options(seed=seed)
        run()
