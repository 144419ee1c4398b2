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

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_09 import masks
from lessons_content.lesson_09.masks import Case

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


EXERCISE = exercise(
    globals(),
    masks,
    kernels,
    answer_name="mask",
    observe=kernels.observing("last_keys"),
    size=lambda case: (len(case.warps) * case.num_rows * case.num_keys, case.heads),
)
