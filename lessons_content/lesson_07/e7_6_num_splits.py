"""Exercise 7.6: how many splits.

Write the time as a function of the number of splits first: how many waves, and how long is
each?

-(-a // b) is a / b rounded up, in whole numbers.

Then try every number from 1 to num_tiles. `min(numbers, key=function)` returns the first of
those for which the function is least.
"""

from lessons_content.exercises.kit import calls, counted, exercise, outcomes
from paged_attention.ladder.splits import choose_num_splits

# Rows, tiles and multiprocessors: up to real sizes, but not so large that an answer which
# makes each block takes seconds. Then contexts of one tile, where a loop that ends too soon
# tries nothing.
CASES = calls.numbers("""
    1 2 1, 1 2 4, 2 9 4, 3 10 2, 1 12 4, 4 16 4, 5 12 4, 3 20 4, 1 30 10, 5 27 4, 5 30 8,
    9 40 8, 7 33 8, 3 100 10, 6 100 16, 20 100 16, 1 300 132, 8 64 132, 8 1024 132,
    40 256 132, 100 256 132, 133 128 132, 512 100 132, 12 700 108, 1 1200 132, 65 300 144,
    1 1 1, 1 1 4
""")


def hidden(chance):
    """Few rows and few multiprocessors, then real sizes, then contexts of one tile."""
    yield from (
        (chance.randint(1, 9), chance.randint(5, 99), chance.randint(3, 16)) for _ in range(10)
    )
    yield from (
        (chance.randint(1, 60), chance.randint(50, 500), chance.choice((78, 108, 132, 144)))
        for _ in range(8)
    )
    yield chance.randint(1, 3), 1, chance.randint(5, 132)


def show(expected, actual):
    if type(actual) is int:
        return repr(expected), repr(actual)
    words = outcomes.show_no_result(actual) or f"{actual!r}, which is not an int"
    return repr(expected), words


def describe(case):
    rows, tiles, multiprocessors = case
    return (
        f"{counted(rows, 'row')} "
        f"of {counted(tiles, 'tile')}, {counted(multiprocessors, 'multiprocessor')}"
    )


EXERCISE = exercise(
    globals(),
    calls.taking(choose_num_splits, tuple),
    size=lambda case: (case[0] * case[1], case[2]),
    # A single tile says little of what went wrong, and different errors come from it.
    chancy=lambda case: case[1] == 1,
)
