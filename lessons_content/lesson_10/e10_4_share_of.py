"""Exercise 10.4: a block finds its share.

Begin with `begin` and `end`. Which function knows the first tile of a block? And where does a
block end, if you think of the block after it?

Which tile of the share is in its first row, and which one is in its last row? `end` is not in
the share. If there is no tile at all, no row may be asked for.

When is a row cut? Compare where the row begins with where the share begins, and where the row
ends with where the share ends. A row ends where the next one begins.

Take a share of the tiles 2 and 3 of a single row with 6 tiles. Its first row is also its last
row, and it is cut at both ends: is_first_cut is 1 and is_last_cut is 0. And if it has the
tiles 0 and 1? Both ends of that row matter for is_first_cut.
"""

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_10 import shares
from lessons_content.lesson_10.shares import Case, in_pieces, in_rows

CASES = [
    Case((1,), 1),
    Case((4,), 1),
    Case((2,), 2),  # one row, in two blocks
    Case((3,), 3),
    Case((7,), 3),  # a block in the middle of a row
    Case((1,), 2),  # more blocks than tiles
    Case((2,), 5),
    Case((2, 2), 2),  # shares that end where a row does
    Case((1, 3), 2),
    Case((3, 1), 2),
    Case((2, 3), 2),  # one tile is cut off, at either end
    Case((3, 3), 4),
    Case((5, 1), 2),
    Case((2, 1, 2), 1),
    Case((5, 1, 2, 4), 3),  # a cut row, and whole ones after it
    Case((4, 2, 1, 5), 3),  # whole rows, and a cut one after them
    Case((5, 1, 1, 5), 3),  # whole rows between two cut ones
    Case((1, 2, 1), 9),
    Case((2, 1), 2, groups=2),
    Case((2, 1), 5, groups=2),
    Case((3, 2), 4, groups=3),
    in_rows((1, 2), 1),
    in_rows((3, 1, 2), 1),
    in_rows((2, 1, 1, 3), 2),
    in_rows((2, 4), 3, groups=3),
    in_pieces((4,), 2),
    in_pieces((5, 3), 2),
    in_pieces((5, 1, 2), 3),  # fewer tiles than pieces
    in_pieces((1, 3), 4, groups=2),
    Case((9, 1, 1, 1, 14, 2, 3), 6, groups=2),
    Case((1,) * 30, 4),
    Case((40, 1, 7, 3, 3, 25), 33, groups=4),
    in_rows(tuple(range(1, 13)), 4, groups=2),
    in_pieces((13, 2, 30, 1), 8, groups=3),
    # number of tiles * number of blocks passes 2^31
    Case((20_000, 30_001), 45_000, asked=(0, 17_999, 44_999)),
]


def hidden(chance):
    """Few long rows and many short ones, divided in each of the three ways."""
    for number in range(24):
        groups = chance.choice((1, 1, 2, 3, 5))
        lengths = chance.choice(((1,), (1, 1, 2, 3), (1, 2, 5, 30), (4, 17, 60)))
        tiles = tuple(chance.choices(lengths, k=chance.randint(1, 2 + number // 2)))
        rows, total = len(tiles) * groups, sum(tiles) * groups
        if number % 3 == 0:
            divisors = [each for each in range(1, rows + 1) if rows % each == 0]
            yield in_rows(tiles, chance.choice(divisors), groups)
        elif number % 3 == 1:
            yield in_pieces(tiles, chance.randint(2, 9), groups)
        else:
            most = chance.choice((3, rows + 1, total, total + 9))
            yield Case(tiles, chance.randint(1, min(most, 400)), groups)


EXERCISE = exercise(
    globals(),
    shares,
    answer_name="share_of",
    language="cuda",
    reference=shares.shares,
    size=lambda case: (len(case.rows) + case.num_blocks, sum(case.rows)),
)
