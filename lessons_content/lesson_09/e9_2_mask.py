"""Exercise 9.2: hide what a row does not see.

Follow one score first. Which row does scores[0][1][3] of lane 5 belong to, and which key? Take
r and s from the lane, then t, n, i and j from the comment.

How do you get the lane from threadIdx.x? A block has several warps, and each of them counts
its lanes from 0.

rows.last_key() takes a row counted in the block's tile. It gives a key counted in the
sequence. What do you have to add to the warp's own row, and to the warp's own key, before you
ask and compare?

A row's last key is needed once for each t and i: the loop over n can use it again. It is the
last key that the row sees, so that key itself is not hidden.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise, listed
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


CASES = [
    Case((1, 2), ((0, 0),), 0),  # a whole prompt's first tile
    Case((1, 2), ((0, 16),), 20, seed=1),  # a chunk after a context
    Case((1, 2), ((0, 0),), 2, heads=4, seed=2),  # packed heads
    Case((1, 2), ((0, 16),), 100, seed=3),  # all seen
    Case((1, 2), ((0, 48),), 2, seed=4),  # all hidden
    Case((1, 2), ((0, 0), (16, 0)), 0, heads=3, seed=5),
    Case((1, 2), ((0, 16), (0, 32)), 24, seed=6),  # two warps share the rows
    Case((1, 4), ((16, 32),), 30, heads=2, seed=7),
    Case((1, 4), ((0, 32), (0, 64)), 50, heads=3, seed=8),
    Case((2, 8), ((0, 0),), 0, seed=9),
    Case((2, 8), ((64, 64), (96, 64)), 35, seed=10),
    Case((2, 8), ((0, 128), (32, 128)), 120, heads=2, seed=11),
]


def hidden(chance):
    """Any place of the edge: most of them within the keys, a few before or after all."""
    for number in range(12):
        tiles = ((1, 2), (1, 4), (2, 8))[number % 3]
        num_rows, num_keys = 16 * tiles[0], 8 * tiles[1]
        row, key = chance.randint(0, 3) * num_rows, chance.randint(1, 4) * num_keys
        warps = chance.choice(
            (
                ((row, key),),
                ((row, key), (row + num_rows, key)),
                ((row, key), (row, key + num_keys)),
            )
        )
        heads = chance.choice((1, 2, 3, 4))
        edge = chance.randint(-num_keys, 2 * num_keys) if number > 9 else num_keys // 2
        last_key = max(0, key + edge - (row + num_rows // 2) // heads)
        yield Case(tiles, warps, last_key, heads, chance.randrange(2**31))


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


EXERCISE = exercise(
    globals(),
    kernels,
    answer_name="mask",
    observe=kernels.observing("last_keys"),
    size=lambda case: (len(case.warps) * case.num_rows * case.num_keys, case.heads),
)
