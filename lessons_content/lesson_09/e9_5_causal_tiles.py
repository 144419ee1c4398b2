"""Exercise 9.5: the tiles of keys that a tile of queries meets."""

from lessons_content.exercises import outcomes
from lessons_content.exercises.exercise import exercise
from paged_attention.prefill.tile_counts import causal_tiles

# The first and the last query, the queries and the keys of the sequence, the keys of a tile.
# First single queries, at the ends of tiles and between them. Then whole prompts, chunks with
# keys before them, tiles that are longer than the context, and real sizes.
SIZES = """
    0 0 1 1 1, 0 0 1 1 4, 0 0 1 3 4, 0 0 1 4 4, 0 0 1 5 4, 0 0 1 8 4, 0 0 1 9 2, 0 0 1 7 1,
    0 1 2 2 1, 0 1 2 2 2, 0 3 4 4 4, 0 1 4 4 2, 2 3 4 4 2, 1 2 4 4 2, 1 3 5 5 8,
    0 3 8 8 4, 4 7 8 8 4, 3 6 8 8 4, 3 4 9 9 3,
    0 3 4 12 4, 0 3 4 10 4, 0 2 3 11 4, 4 7 8 16 4, 2 5 6 17 4, 0 4 9 15 3, 5 8 9 15 3,
    0 2 3 7 64, 6 8 9 40 4, 7 11 20 45 6, 12 15 16 64 8,
    0 63 512 512 64, 448 511 512 4608 64, 100 115 300 1000 48, 64 127 200 4296 32
"""
CASES = [tuple(map(int, case.split())) for case in SIZES.split(",")]


def hidden(chance):
    """Whole prompts, chunks and single queries, first small and then large."""
    for number in range(24):
        scale = 1 + number // 8 * 5
        num_queries = (1, chance.randint(2, 9 * scale))[number % 4 > 0]
        num_keys = num_queries + (0, chance.randint(1, 30 * scale))[number % 3 > 0]
        tile_keys = chance.choice((2, 3, 4, 5, 8, 16, 64))
        first = chance.randrange(num_queries)
        last = chance.randint(first, num_queries - 1)
        yield first, last, num_queries, num_keys, tile_keys


def observe(answer, case):
    return outcomes.plain(answer(*case), tuple)


def same(expected, actual):
    """Ints only: 1.0 equals 1 in Python."""
    are_tuples = isinstance(expected, tuple) and isinstance(actual, tuple)
    of_one_kind = not are_tuples or [*map(type, expected)] == [*map(type, actual)]
    return of_one_kind and outcomes.same(expected, actual)


def describe(case):
    names = "first_query", "last_query", "num_queries", "num_keys", "tile_keys"
    return ", ".join(f"{name} = {number}" for name, number in zip(names, case, strict=True))


EXERCISE = exercise(
    globals(),
    outcomes,
    title="the causal edge",
    answer_name="causal_tiles",
    size=lambda case: (case[3], case[2], case[1] - case[0], case[4], case[0]),
    hints="""
        Which is the last key that query i sees? And how many keys does it see?

        Of all queries in the tile, one sees the fewest keys. Which one is it? The tiles that
        it sees whole are seen whole by the others too.

        Another one sees the most keys. In which tile is the last key that it sees? `end` is
        the tile after that one.

        A query that sees n keys sees n // tile_keys tiles whole. Key k is in tile
        k // tile_keys.
    """,
)
