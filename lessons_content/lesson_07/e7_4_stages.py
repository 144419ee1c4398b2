"""Exercise 7.4: tiles on their way.

Before the loop: for each stage, start the copies of its first tile, and close the group. In
the loop, each turn has one tile. Wait for it, use its stage, and fill the stage again.

When tile 0 is needed, the groups of the tiles 1, 2 and 3 have been closed after its own. Those
may go on. If each turn closes exactly one group, it is the same for every tile.

There are two moments at which the lanes of the warp have to meet. The first is when their
copies are there, before any of them reads. The second is when all have read, before any of
them copies into the stage again. __syncwarp() is that meeting.

Two questions about the end. What does a turn load when no tile is left? And which group does
wait() count, if a turn closes none?
"""

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_07 import stages
from lessons_content.lesson_07.stages import TILE_SHAPE


def cases():
    """(tiles of each warp, seed)."""
    one_warp = [(count,) for count in (1, 2, 3, 4, 5, 9)]
    two_warps = [(0, 2), (8, 8), (3, 7), (6, 2), (17, 0), (12, 13)]
    yield from ((counts, seed) for seed, counts in enumerate(one_warp + two_warps))


def hidden(chance):
    for number in range(10):
        if number % 2:
            counts = (chance.randint(0, 4), chance.randint(3, 14))
        else:
            counts = (chance.randint(1, 20),)
        yield tuple(chance.sample(counts, len(counts))), chance.randrange(2**31)


def observe(subject, case):
    counts, seed = case
    generator = torch.Generator().manual_seed(seed)
    tiles = torch.randint(-8, 9, (sum(counts), *TILE_SHAPE), generator=generator).float()
    parts = (
        "sums, with copies made as late as possible:",
        "sums, with copies made as early as possible:",
        "tiles under way while one is added up, at least, for each warp:",
        "whether a tile is waited for before it is the next one, for each warp:",
    )
    return kernels.result_of(lambda: subject(tiles, counts), ("tiles",), parts)


def describe(case):
    first, *second = (counted(count, "tile") for count in case[0])
    return f"two warps, with {first} and {second[0]}" if second else f"one warp, {first}"


EXERCISE = exercise(
    globals(),
    stages,
    kernels,
    answer_name="staged_sum",
    size=lambda case: (len(case[0]), sum(case[0])),
    points=2,
)
