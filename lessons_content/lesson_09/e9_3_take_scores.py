"""Exercise 9.3: the softmax of a tile.

This is take_in() of lesson 07 once more: the new maximum, the factor for what was summed
before, the new weights. Begin with one row, so with one t and one i.

Which lanes have the other scores of your row? Their numbers differ from yours in the last two
bits. Two calls of __shfl_xor_sync() are enough for the maximum, and every lane of the warp has
to come to both.

l needs no shuffle: it is the sum of this lane's weights. All four lanes multiply their l by
the same number, so the four sums can wait until the end.

A row that has seen no key yet has the maximum -INFINITY. What is -INFINITY minus -INFINITY?
Choose another number to subtract in that case, but let state.m stay what it is.

state.acc[t][d] has four numbers: two of row r and two of row r + 8. So there are two factors,
one for each i. d counts tiles of eight dims, and there are head_size / 8.
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_09 import tile_softmax
from lessons_content.lesson_09.tile_softmax import ALL, EDGE, NONE, SHAPES, SOME, Case

CASES = [
    Case((ALL,)),
    Case((EDGE,), seed=1),
    Case((NONE,)),
    Case((ALL,), factor=0.5, seed=2),
    Case((ALL,), level=1600.0, seed=3),
    Case((ALL,), level=-1600.0, seed=4),
    Case((EDGE,), factor=0.25, level=-1e6, seed=14),  # 0.25 rounds nothing
    Case((ALL, ALL), rise=10.0, seed=5),
    Case((ALL, ALL), rise=-10.0, seed=6),
    Case((SOME, ALL), seed=7),
    Case((NONE, EDGE, ALL), level=-1200.0, seed=8),
    Case((ALL, NONE, ALL), level=1200.0, rise=4.0, seed=9),
    Case((EDGE, ALL), 0.1275, 0.0, 6.0, (1, 4), 128, seed=10),
    Case((EDGE, SOME), 0.1275, 900.0, -5.0, (1, 4), 64, 2, seed=11),
    Case((ALL, EDGE), 0.09, 0.0, 5.0, (2, 8), 128, seed=12),
    Case((SOME, ALL), 0.18, -900.0, 3.0, (2, 8), 64, seed=13),
]


def hidden(chance):
    """Scores go up or down from any level, and some of the rows see no key for a while."""
    for number in range(12):
        seen = chance.choices((ALL, EDGE, SOME, NONE), (4, 2, 2, 1), k=number % 3)
        yield Case(
            (*seen, chance.choice((ALL, EDGE))),
            chance.choice((0.09, 0.1275, 0.18, 0.25, 0.5)),
            chance.choice((0.0, 300.0, 700.0, -700.0)),
            chance.choice((-12.0, -4.0, 4.0, 12.0)),
            ((1, 2), (1, 4), (2, 8))[number % 3],
            chance.choice([*SHAPES]),
            1 + number % 2,
            chance.randrange(2**31),
        )


EXERCISE = exercise(
    globals(),
    tile_softmax,
    kernels,
    answer_name="take_scores",
    size=lambda case: (
        len(case.seen),
        case.num_warps * case.tiles[0] * case.tiles[1],
        case.head_size,
    ),
    points=2,
)
