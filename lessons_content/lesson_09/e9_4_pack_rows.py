"""Exercise 9.4: the queries of a KV head, with all their heads, packed into tiles."""

from lessons_content.exercises import outcomes
from lessons_content.exercises.exercise import exercise
from lessons_content.exercises.naming_words import counted, listed
from paged_attention.prefill.tile_counts import pack_rows

NAMES = "num_queries", "queries_per_kv_head", "kv_head", "tile_rows"
# Full last tiles and others, tiles that cut a query, and tiles smaller than a query's rows.
SIZES = """
    1 1 0 1, 1 1 2 1, 2 1 0 1, 2 1 0 2, 3 1 0 2, 1 2 0 2, 1 2 1 2, 2 2 1 2, 1 2 1 4, 2 3 1 3,
    2 2 1 3, 2 3 2 4, 4 2 3 4, 3 4 1 2, 1 4 2 3, 3 4 1 8, 5 3 2 1, 5 4 2 8, 7 3 4 5, 9 4 1 16,
    16 2 3 16, 6 7 5 16, 20 4 3 64, 33 1 6 16, 3 16 1 32, 0 4 0 16, 0 1 2 1
"""
CASES = [tuple(map(int, case.split())) for case in SIZES.split(",")]


def hidden(chance):
    """Tiles of whole queries, then tiles that cut a query, then no queries."""
    for number in range(14):
        group, kv_head = chance.randint(2, 8), chance.randint(1, 9)
        tile_rows = group * chance.randint(1, 4)
        if number % 2:
            tile_rows += chance.randint(1, group - 1) - chance.choice((0, group))
        yield chance.randint(3, 30), group, kv_head, max(1, tile_rows)
    yield 0, chance.randint(1, 8), chance.randint(1, 9), chance.choice((1, 3, 16))


def observe(answer, case):
    return outcomes.plain(answer(*case), list, list, tuple)


def show(ours, theirs):
    """The first row that differs, or how many rows the tiles have."""
    has_tiles = isinstance(theirs, list) and all(isinstance(tile, list) for tile in theirs)
    if not has_tiles or sum(map(len, ours + theirs)) < 9:
        return outcomes.show(ours, theirs)
    if [*map(len, ours)] != [*map(len, theirs)]:
        return f"{rows_of(ours)}: {ours}", f"{rows_of(theirs)}: {theirs}"
    pairs = zip(ours, theirs, strict=True)
    tile, (right, wrong) = next(each for each in enumerate(pairs) if each[1][0] != each[1][1])
    row = next(row for row in range(len(right)) if right[row] != wrong[row])
    return tuple(f"tile {tile}, row {row} is {rows[row]}" for rows in (right, wrong))


def rows_of(tiles):
    """ "2 tiles, of 4 and 1 rows"."""
    lengths = [len(tile) for tile in tiles]
    if len(lengths) > 9:
        lengths[8:] = ["…"]
    words = f", of {listed(lengths)} rows" if lengths else ""
    return f"{counted(len(tiles), 'tile')}{words}"


EXERCISE = exercise(
    globals(),
    outcomes,
    title="rows of a tile",
    answer_name="pack_rows",
    size=lambda case: (case[0] * case[1], case[2], case[3]),
    describe=lambda case: ", ".join(
        f"{name} = {size}" for name, size in zip(NAMES, case, strict=True)
    ),
    # Different mistakes give a tile, or an error, where there are no queries.
    chancy=lambda case: case[0] == 0,
    hints="""
        Take 2 queries, and 3 query heads for each KV head. Write down the 6 rows of KV head 1
        in their order. Which query heads are in them?

        Make one list of all rows first. Two loops do it: which of them is the outer one? Think
        of the tiles only after that.

        The heads of KV head k are k * queries_per_kv_head and those after it, as many as share
        it. The tiles are slices of the list. Where a slice reaches past the end of a list,
        Python gives what is there.
    """,
)
