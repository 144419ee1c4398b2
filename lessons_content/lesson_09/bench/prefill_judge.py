"""Lesson 09's look at a rung: it is judged and counted on small batches, and timed."""

import numpy as np
import torch
from torch import Tensor

from lessons_content.lesson_09.bench import prefill
from lessons_content.lesson_09.bench.prefill import Batch
from lessons_content.lesson_09.bench.prefill_runs import Run
from lessons_content.lesson_09.bench.prefill_workloads import WORKLOADS, PrefillWorkload
from lessons_lib.cuda.builds import choose_target
from lessons_lib.cuda.library import build_cuda
from paged_attention.attention.metadata import BatchMetadata, attn_paged_torch
from paged_attention.ladder.decode import Shape
from paged_attention.prefill.kernels import PagedPrefill
from paged_attention.prefill.rungs import PREFILL_RUNGS, prefill_texts
from paged_attention.prefill.tile_counts import count_work

HEADS = {"num_q_heads": 4, "num_kv_heads": 1, "head_size": 128}
JUDGED = (70, 70), (33, 200), (1, 90), (1, 17)  # a prompt, a chunk and two decodes
MOST_ERROR = 0.004
COUNTED = {
    "a prompt of 256 tokens": [(256, 256)],
    "a chunk of 48 tokens at 304 keys, and eight decodes at 128": [(48, 304)] + [(1, 128)] * 8,
}
TIMED = (
    "1 prompt of 8,192",
    "8 chunks of 512 at 8,192",
    "mixed: 4 chunks of 512, 60 decodes",
)


def small_batch(*lens: tuple[int, int]) -> Batch:
    """Makes a batch in which 4 query heads share a KV head, with NaN in slots without a key.

    lens: each sequence's queries and keys.
    """
    workload = PrefillWorkload("small", lens, *HEADS.values(), 16, torch.float16)
    batch = prefill.make_batch(workload, "cpu")
    for blocks, (_, num_keys) in zip(batch.rows, lens, strict=True):
        for cache in (batch.k_cache, batch.v_cache):
            cache[blocks[-1], (num_keys - 1) % 16 + 1 :] = torch.nan
    return batch


def metadata_of(batch: Batch) -> BatchMetadata:
    """Lesson 05's metadata of a batch whose keys are in the caches already."""
    no_slots = torch.zeros(0, dtype=torch.int64)
    return BatchMetadata(batch.cu_seqlens_q, batch.seq_lens_kv, batch.block_table, no_slots)


def error_of(out: Tensor, batch: Batch) -> float:
    """The largest distance of a result from lesson 05's attention in float64."""
    tensors = (tensor.double() for tensor in (batch.q, batch.k_cache, batch.v_cache))
    return (out - attn_paged_torch(*tensors, metadata_of(batch))).abs().max().item()


class Ladder:
    """The rungs of the prefill ladder, in checked mode on small batches.

    `texts`: by file name, texts that replace files in kernels/.
    """

    def __init__(self):
        self.texts: dict[str, str] = {}

    def judge(self, number: int, **plan) -> None:
        """Runs a rung on a prompt, a chunk and two decodes, and compares it with float64.

        plan: as for PagedPrefill.
        Raises AssertionError for a wrong result, and KernelError for a fault in checked mode.
        """
        batch = small_batch(*JUDGED)
        error = error_of(self._launch(self._ready(number, batch, **plan), batch), batch)
        assert error < MOST_ERROR, f"rung {number} is {error} from float64"  # as for a NaN
        print(f"rung {number}: no fault found, and less than {MOST_ERROR} from float64")

    def count(self, *numbers: int) -> None:
        """Prints the rungs' loads, how often tiles meet, and which part of that is needed."""
        for title, lens in COUNTED.items():
            print(title)
            for number in numbers:
                print(f"  rung {number}: {self._counts(number, lens)}")

    def blocks_read(self, number: int, *lens: tuple[int, int]) -> np.ndarray:
        """Notes which tile of rows of a rung reads which blocks of a single sequence.

        Returns bool (tiles of rows, blocks of the context).
        """
        batch = small_batch(*lens)
        planned = self._ready(number, batch)
        assert planned.plan is not None
        with planned.library.trace("k_cache") as accesses:
            self._launch(planned, batch)
        tile_of_item = planned.plan.items[:, 1] // planned.workspace["planned_rows"]
        place = {int(block): place for place, block in enumerate(batch.rows[0])}
        read = np.zeros((tile_of_item.max() + 1, len(place)), dtype=bool)
        for access in accesses:
            read[tile_of_item[access.block[0]], place[access.index[0]]] = True
        return read

    def _ready(self, number: int, batch: Batch, **plan) -> PagedPrefill:
        files = prefill_texts(number, Shape(torch.float16, 128, 4, 16))
        files |= {name: text for name, text in self.texts.items() if name in files}
        library = build_cuda(*files.values(), names=tuple(files), target="checked")
        plan |= HEADS | {"block_size": 16, "dtype": torch.float16, "library": library}
        return PagedPrefill(number, batch.cu_seqlens_q, batch.seq_lens_kv, **plan)

    def _launch(self, planned: PagedPrefill, batch: Batch) -> Tensor:
        return planned(batch.q, batch.k_cache, batch.v_cache, batch.block_table)

    def _counts(self, number: int, lens: list[tuple[int, int]]) -> str:
        batch = small_batch(*lens)
        planned = self._ready(number, batch)
        with planned.library.count("k_cache", "v_cache") as counts:
            self._launch(planned, batch)
        least = sum(num_keys for _, num_keys in lens) * 2 * 128 * 2
        words = f"asked for {counts.bytes_read / least:7.1f} times"
        if planned.plan is None:
            return words
        operations, _ = count_work(*zip(*lens, strict=True), **HEADS, bytes_per_number=2)
        needed = operations // (4 * 128)  # pairs of a query and a key
        items, sizes = planned.plan.items, planned.workspace
        # heads that are packed share an item
        for_each = 1 if PREFILL_RUNGS[number].packs_heads else 4
        meetings = int((items[:, 3] - items[:, 2]).sum()) * for_each
        room = meetings * sizes["planned_rows"] * sizes["planned_keys"]
        return f"{words}, {meetings:5,} meetings, {needed / room:4.0%} needed"


def show_times(run: Run, number: int) -> None:
    """Prints a rung's recorded times, its gain, and, with a GPU, the times on this machine."""
    for name in TIMED:
        row = run.row(name, f"rung {number}")
        gain = ""
        if number > 0:
            ratio = run.row(name, f"rung {number - 1}").milliseconds / row.milliseconds
            gain = f", {ratio:.2f} times as fast as rung {number - 1}"
        print(f"{name:34} {row.milliseconds:7.3f} ms, {row.teraflops:3.0f} TFLOP/s{gain}")
    if choose_target(None) == "gpu":
        backends = prefill.chosen(prefill.BACKENDS, [f"rung {number}"])
        workloads = [workload for workload in WORKLOADS if workload.name in TIMED]
        here = prefill.measure(workloads, backends, quick=True)
        print(prefill.table(here))
        reasons = {row.reason for row in here.rows} - {""}
        assert all("compute capability" in reason for reason in reasons)
