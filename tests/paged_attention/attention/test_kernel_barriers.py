"""Every barrier of our kernels is needed: without it, checked mode finds a race on every
schedule.
"""

import re

import pytest
import torch

from int32 import integers
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import KernelError, build_cuda
from lessons_lib.paths import KERNELS, ROOT
from paged_attention.attention.bug_hunt import HuntCase, build_hunted
from paged_attention.attention.paged_kernel import KERNEL_FILES, attn_paged_cuda
from paged_attention.ladder.decode import RUNGS, PagedDecode, Shape, shape_text
from paged_attention.prefill.rungs import PREFILL_RUNGS
from paged_batch import Batch, PrefillBatch, planned

BARRIER = re.compile(r"__sync(threads|warp)\([^)]*\);")
FILES = sorted(str(path.relative_to(KERNELS)) for path in KERNELS.rglob("*.cu*"))
TEXTS = {name: read_kernel(name) for name in FILES}
# Seen by compute-sanitizer's racecheck alone (tests/gpu.sh). On a GPU a lane loads the row
# whose address it brings; on the CPU it loads what it gets, and overwrites no more than that.
# And on the CPU all threads go step by step, where a GPU's wait for a barrier in memory.
ONLY_ON_A_GPU = {
    ("prefill/attend.cuh", "no lane's row of queries is still being loaded"),
    ("prefill/5_hopper.cu", "the barriers can be used"),
    ("prefill/box_copier.cuh", "all lanes have written their zeros"),
}
BARRIERS = [
    (name, number)
    for name, text in TEXTS.items()
    for number, barrier in enumerate(BARRIER.finditer(text))
    if (name, text[barrier.end() :].split("\n")[0].strip(" /")) not in ONLY_ON_A_GPU
]
BATCH = HuntCase("more tokens than threads, and fewer", (300, 5), num_q_heads=2, block_size=16)
SEEDS = range(4)


def built(texts, files):
    """A library of these files, in checked mode."""
    texts = [texts[name] for name in files]
    return build_cuda(*texts, names=tuple(files), target="checked", name="barriers")


def run_paged_attention(texts):
    library = built(texts, KERNEL_FILES)
    return library, lambda: attn_paged_cuda(**BATCH.tensors(), library=library)


def run_reductions(texts):
    """Several in a row, which the paged kernel does not do."""
    wrapper = (ROOT / "lessons_content/lesson_06/reduce_check.cu").read_text()
    library = build_cuda(texts["block_reduce.cuh"], wrapper, target="checked", name="barriers")
    values = torch.arange(2 * 3 * 128.0).view(2, 3, 128)
    return library, lambda: library.reduce(
        values, torch.empty_like(values), torch.empty_like(values), *values.shape
    )


def run_hunted(texts):
    library = build_hunted(texts["bug_hunt.cu"])
    return library, lambda: attn_paged_cuda(**BATCH.tensors(), library=library)


def run_rung(number):
    """A rung of the ladder on a batch whose blocks have several tiles.

    In rung 7 they also have several rows. There is little shared memory, so that stages are
    soon used again.
    """
    batch = Batch((500, 5, 400, 64), 4, 2, 64, 16, torch.float16)
    how = {
        6: {"num_splits": 2},
        7: {"num_blocks": 3, "heads_at_once": 2},
        9: {"num_blocks": 3},
    }.get(number, {})

    def run(texts):
        texts = texts | {
            "ladder/shape.cuh": shape_text(
                Shape(torch.float16, 64, 2, 16, shared_bytes=100_000)
            )
        }
        library = built(texts, RUNGS[number].files)
        tensors = batch.tensors()
        context_lens = tensors.pop("context_lens")

        def plan_and_call():  # rung 9 plans with a kernel, which has barriers too
            decode = PagedDecode(number, context_lens, **batch.model | how, library=library)
            decode(**tensors)

        return library, plan_and_call

    return run


def run_prefill_rung(number):
    """A rung of the prefill ladder, with many rows and with few; both have several tiles."""
    batch = PrefillBatch(((70, 200), (1, 300)), 4, 2, 64)

    def run(texts):
        shape = Shape(torch.float16, 64, 2, 16)
        texts = texts | {"ladder/shape.cuh": shape_text(shape)}
        library = built(texts, PREFILL_RUNGS[number].files)
        *tensors, metadata = batch.tensors()
        prefill = planned(number, batch, metadata, "checked", library=library)
        return library, lambda: prefill(*tensors, metadata.block_table)

    return run


STAGED_SUM = """
__global__ void staged_sum_kernel(float* out, const float* tiles, int num_tiles) {
  __shared__ Stage stages[num_stages];
  out[threadIdx.x] = staged_sum(stages, tiles, num_tiles);
}
extern "C" int sum(float* out, const float* tiles, int num_tiles, cudaStream_t stream) {
  staged_sum_kernel<<<1, 32, 0, stream>>>(out, tiles, num_tiles);
  return cudaGetLastError();
}
"""


def run_staged_sum(texts):
    files = ("ladder/async_copy.cuh", "ladder/staged_tile.cuh", "ladder/staged_sum.cuh")
    library = build_cuda(
        *(texts[name] for name in files), STAGED_SUM, target="checked", name="barriers"
    )
    return library, lambda: library.sum(torch.empty(32), torch.ones(9, 8, 32), 9)


def run_advance(texts):
    """A batch with a sequence of two blocks and with padding."""
    library = build_cuda(texts["engine/advance.cu"], target="checked", name="barriers")

    def run():
        library.advance(
            last_tokens=torch.tensor([7, 8]),
            lengths=integers(3, 5),
            block_table=integers(0, 1, 2, 3).view(2, 2),
            rows=integers(1, -1, 0),
            **{name: torch.zeros(3).long() for name in ("tokens", "positions", "slots")},
            context_lens=integers(0, 0, 0),
            batch_table=integers(*[0] * 6).view(3, 2),
            num_seqs=3,
            max_blocks_per_seq=2,
            block_size=4,
        )

    return library, run


# The last rung that includes a file of the ladder runs it. (Rung 8 is rung 7 on other caches.
# Rung 9 is rung 7 with another plan, and runs only its own files.)
RUNS = {
    file: run_rung(rung.number)
    for rung in (RUNGS[9], *RUNGS[:8])
    for file in rung.files
    if file.startswith("ladder/")
}
RUNS |= {
    file: run_prefill_rung(rung.number)
    for rung in (PREFILL_RUNGS[5], *PREFILL_RUNGS[:5])
    for file in rung.files
    if file.startswith("prefill/")
}
RUNS |= dict.fromkeys(KERNEL_FILES, run_paged_attention)
RUNS |= {
    "block_reduce.cuh": run_reductions,
    "bug_hunt.cu": run_hunted,
    "engine/advance.cu": run_advance,
    "ladder/staged_sum.cuh": run_staged_sum,
}


def without_barrier(name, number):
    match = list(BARRIER.finditer(TEXTS[name]))[number]
    return TEXTS | {name: TEXTS[name][: match.start()] + TEXTS[name][match.end() :]}


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("name, number", BARRIERS)
def test_a_barrier_that_is_missing_is_found_on_every_schedule(name, number):
    assert name in RUNS, f"kernels/{name} has a barrier: give this test a way to run it"
    library, run = RUNS[name](without_barrier(name, number))
    for seed in SEEDS:
        library.options(seed=seed)
        with pytest.raises(KernelError) as caught:
            run()
        assert caught.value.kind in (
            "race",
            "missing-syncwarp",
            "race-between-blocks",
            "shared-uninitialised",
        ), caught.value


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted({name for name, _ in BARRIERS}))
def test_with_all_of_them_there_is_silence(name):
    library, run = RUNS[name](TEXTS)
    for seed in SEEDS:
        library.options(seed=seed)
        run()
