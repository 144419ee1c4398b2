"""A learner's loop over tiles on their way, as a function of tensors, for 7.4."""

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import tensors
from lessons_lib.cuda.inline import read_kernel

NUM_STAGES, TILE_SHAPE = 4, (8, 32)  # of kernels/ladder/staged_tile.cuh
BEFORE = 1e4  # what the stages hold at first
# An answer runs in the two extremes that asynchronous copies allow: each copy is made when it
# is waited for, or as soon as it is asked for.
LATE, EARLY, IN_USE = "copies made late", "copies made early", ", into a stage that is in use"


def reference(tiles: Tensor, counts: tuple[int, ...]):
    """The sums of each warp, twice, how many tiles are under way at least, and whether a tile
    was waited for too early.

    tiles: (num_tiles, 8, 32), whole numbers.
    counts: the tiles of each warp.
    """
    of_warps = torch.stack([each.sum((0, 1)) for each in tiles.split([*counts])])
    under_way = torch.full((len(counts),), NUM_STAGES - 1, dtype=torch.int32)
    return of_warps, of_warps, under_way, torch.zeros(len(counts), dtype=torch.bool)


def when(late, in_use):
    return f"{LATE if late else EARLY}{IN_USE if in_use else ''}: "


def prepare(answer):
    tile = read_kernel("ladder/staged_tile.cuh").replace("float add_up(", "float column_sum(")
    texts = {
        "the check's copies": kernels.own_text("stages_copies.cuh"),
        "staged_tile.cuh": tile,
        "your code": answer,
        "the check": kernels.own_text("stages_check.cu"),
    }
    library = kernels.compiled(texts)

    def native(tiles, counts):
        num_warps = len(counts)
        ends = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)

        def run(late):
            sums = torch.empty(num_warps, 32)
            under_way, waited = torch.empty(2, num_warps, 32, dtype=torch.int32)
            try:
                library.stages(
                    sums, under_way, waited, -tiles, ends, num_warps, BEFORE, not late
                )
            except kernels.KernelError as error:
                library.stages_in_use(in_use := torch.empty(64, dtype=torch.int32))
                error.kind = when(late, bool(in_use.any())) + kernels.kind_of(error)
                raise
            return sums, under_way.amin(1), waited.amax(1).bool()

        (late, *about), (early, *_) = run(late=True), run(late=False)
        return late, early, *about

    return native


def show(expected, actual):
    """As for all kernels, and it says where a copy had not arrived."""
    texts = kernels.show(expected, actual)
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        pairs = zip(expected, actual, strict=True)
        wrong = next(
            (theirs for ours, theirs in pairs if not tensors.same(ours, theirs)), None
        )
        if wrong and (wrong.tensor.abs() > BEFORE / 2).any():
            note = f"(Until a copy arrives, each number of a stage is {BEFORE:,.0f}.)"
            return texts[0], f"{texts[1]}\n  {note}"
    return texts
