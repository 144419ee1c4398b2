"""A learner's mask of a tile of scores, as a function of tensors, for 9.2."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, listed
from paged_attention.ladder.decode import Shape

BEFORE = "numbers ladder/shape prefill/params prefill/tile_shape"
SHAPE = Shape(torch.float16, 128, 4, 16)
HIDDEN = float("-inf")
FURTHER = 64  # rows after a warp's own, whose last keys are there to be taken by mistake


@dataclass(frozen=True)
class Case:
    """A block's warps.

    tiles: row_tiles and key_tiles of a warp.
    warps: (first_row, first_key) of each.
    last_key: of the tile's first row.
    heads: how many rows share a last key. The next rows share one that is one more.
    """

    tiles: tuple[int, int]
    warps: tuple[tuple[int, int], ...]
    last_key: int
    heads: int = 1
    seed: int = 0

    @property
    def num_rows(self) -> int:
        return 16 * self.tiles[0]

    @property
    def num_keys(self) -> int:
        return 8 * self.tiles[1]

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The scores (warps, rows, keys); the last key of each row of the block's tile; the
        first row and the first key of each warp.
        """
        generator = torch.Generator().manual_seed(self.seed)
        sizes = len(self.warps), self.num_rows, self.num_keys
        scores = torch.randn(sizes, generator=generator)
        first_rows, first_keys = torch.tensor(self.warps, dtype=torch.int32).T.contiguous()
        num_rows = int(first_rows.max()) + self.num_rows + FURTHER
        last_keys = self.last_key + torch.arange(num_rows, dtype=torch.int32) // self.heads
        return scores, last_keys, first_rows, first_keys


def reference(case: Case, scores: Tensor, last_keys, first_rows, first_keys) -> Tensor:
    rows = first_rows[:, None] + torch.arange(case.num_rows)
    keys = first_keys[:, None] + torch.arange(case.num_keys)
    is_hidden = keys[:, None, :] > last_keys[rows][:, :, None]
    return scores.masked_fill(is_hidden, HIDDEN)


def prepare(answer):
    library = kernels.build(answer, BEFORE, "mask_check.cu", SHAPE)

    def native(case: Case, scores: Tensor, *places: Tensor):
        num_warps = len(scores)
        out, around = torch.empty_like(scores), torch.empty(32 * num_warps, 64)
        library.mask_all(scores, *places, out, around, num_warps, *case.tiles)
        sizes = " × ".join(map(str, (*case.tiles, 4)))
        what = f"Numbers were written outside of scores, which has {sizes} numbers."
        kernels.check_around(around, what, "outside-the-scores")
        return out

    return native


def describe(case):
    row_tiles, key_tiles = case.tiles
    first_rows, first_keys = (
        listed(dict.fromkeys(each)) for each in zip(*case.warps, strict=True)
    )
    each = " each" if len(case.warps) > 1 else ""
    rise = "row" if case.heads == 1 else f"{case.heads} rows"
    return (
        f"{counted(len(case.warps), 'warp')} with {case.num_rows} rows (row_tiles "
        f"{row_tiles}) and {case.num_keys} keys (key_tiles {key_tiles}){each}; first_row "
        f"{first_rows}, first_key {first_keys}; last_key(0) is {case.last_key}, and one more "
        f"after each {rise}; the result for each (warp, row, key)"
    )
