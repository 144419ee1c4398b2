"""Exercise 7.7: equal shares.

Where do the rows lie on the line? Row 0 begins at 0, row 1 at num_tiles[0], row 2 at
num_tiles[0] + num_tiles[1].

A block's share and a row are two stretches of the same line. What they have in common begins
at the larger of the two beginnings and ends at the smaller of the two ends; it may be nothing.

Turn that into tiles of the row by subtracting the row's beginning.
"""

from lessons_content.exercises.kit import calls, counted, exercise, outcomes
from lessons_content.lesson_07 import share_lists
from lessons_content.lesson_07.share_lists import Alike
from paged_attention.ladder.splits import cut_evenly

# The tiles of each row, and the blocks. 15 tiles in 22 shares, and others, have a border that
# floats miss.
CASES = calls.lists_and_numbers("""
    1 in 1, 2 in 1, 2 in 2, 3 in 2, 1 1 in 1, 1 1 in 2, 2 2 in 1, 3 3 in 2, 1 3 in 2,
    3 1 5 in 4, 1 in 3, 2 in 3, 1 1 in 5, 5 1 1 in 3, 7 in 5, 2 2 2 in 3, 1 1 9 1 1 in 4,
    4 11 in 4, 1 1 1 1 1 in 2, 6 1 in 11, 3 3 3 3 in 8, 15 in 22, 10 20 1 in 13,
    100 3 40 in 16, 29 in 47, 50 7 7 7 120 1 in 33, 64 64 64 64 64 64 in 132
""")


def hidden(chance):
    """Fewer tiles than blocks, as many, more, many more; then borders that floats miss."""
    for number in range(16):
        num_tiles = chance.choices((1, 1, 2, 3, *range(4, 40)), k=1 + number // 3)
        total = sum(num_tiles)
        fewer = chance.randint(2, 6), max(1, total // chance.randint(2, 4))
        yield num_tiles, (total + chance.randint(1, 20), total, *fewer)[number % 4]
    missed = ((26, 46), (29, 50), (31, 43), (47, 41), (49, 22), (52, 23))
    for total, num_blocks in chance.sample(missed, 2):
        first = chance.randint(1, total - 1)
        yield [first, total - first], num_blocks


EXERCISE = exercise(
    globals(),
    share_lists,
    calls.taking(cut_evenly, list, list, tuple),
    size=lambda case: (sum(case[0]), len(case[0]), case[1]),
    points=2,
)
