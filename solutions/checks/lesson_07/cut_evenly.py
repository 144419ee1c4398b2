"""Exercise 7.7: all tiles of a batch in equal shares."""

from lessons_lib import splits
from lessons_lib.checks import Exercise, Mistake
from solutions.checks.words import counted


def cut(borders, pieces=None):
    """cut_evenly() with other borders between the shares. borders(total, num_blocks): num_blocks + 1 places on the line."""
    def wrong(num_tiles, num_blocks):
        places = borders(sum(num_tiles), num_blocks)
        return [(pieces or pieces_between)(num_tiles, first, end) for first, end in zip(places[:-1], places[1:])]
    return wrong


def even(total, num_blocks):
    return [total * block // num_blocks for block in range(num_blocks + 1)]


def with_pieces(keep):
    return cut(even, lambda num_tiles, first, end: pieces_between(num_tiles, first, end, keep))


def pieces_between(num_tiles, first, end, keep=lambda begin, stop: begin < stop):
    """The pieces of the line's tiles first … end - 1."""
    pieces, start = [], 0
    for row, length in enumerate(num_tiles):
        begin, stop = max(first - start, 0), min(end - start, length)
        if keep(begin, stop):
            pieces.append((row, begin, stop))
        start += length
    return pieces


def changed(change):
    """cut_evenly() with each share changed: change(share, num_tiles)."""
    return lambda num_tiles, num_blocks: [change(share, num_tiles) for share in splits.cut_evenly(num_tiles, num_blocks)]


def line_start(num_tiles, row):
    return sum(num_tiles[:row])


def rounded_down(total, num_blocks):
    return [total // num_blocks * block for block in range(num_blocks + 1)]


def rest_on_the_last(total, num_blocks):
    return [*rounded_down(total, num_blocks)[:-1], total]


def rounded_up(total, num_blocks):
    return [min(total, -(-total // num_blocks) * block) for block in range(num_blocks + 1)]


def longer_first(total, num_blocks):
    return [total // num_blocks * block + min(block, total % num_blocks) for block in range(num_blocks + 1)]


def in_floats(total, num_blocks):
    return [int(total / num_blocks * block) for block in range(num_blocks + 1)]


def in_floats_nearest(total, num_blocks):
    return [round(total / num_blocks * block) for block in range(num_blocks + 1)]


def borders_rounded_up(total, num_blocks):
    return [-(-total * block // num_blocks) for block in range(num_blocks + 1)]


def whole_rows(num_tiles, num_blocks):
    """Each row to the block in whose share its first tile lies."""
    total, shares = sum(num_tiles), [[] for _ in range(num_blocks)]
    for row, length in enumerate(num_tiles):
        block = next(b for b in range(num_blocks) if line_start(num_tiles, row) < total * (b + 1) // num_blocks)
        shares[block].append((row, 0, length))
    return shares


def rows_in_turn(num_tiles, num_blocks):
    shares = [[] for _ in range(num_blocks)]
    for row, length in enumerate(num_tiles):
        shares[row % num_blocks].append((row, 0, length))
    return shares


def each_row_cut(num_tiles, num_blocks):
    return [[(row, length * block // num_blocks, length * (block + 1) // num_blocks) for row, length in enumerate(num_tiles)
             if length * block // num_blocks < length * (block + 1) // num_blocks] for block in range(num_blocks)]


def dealt(num_tiles, num_blocks):
    """A tile to each block in turn."""
    shares, number = [[] for _ in range(num_blocks)], 0
    for row, length in enumerate(num_tiles):
        for tile in range(length):
            shares[number % num_blocks].append((row, tile, tile + 1))
            number += 1
    return shares


def tile_by_tile(num_tiles, num_blocks):
    return changed(lambda share, _: [(row, tile, tile + 1) for row, begin, end in share for tile in range(begin, end)])(
        num_tiles, num_blocks)


def empty_shares_left_out(num_tiles, num_blocks):
    return [share for share in splits.cut_evenly(num_tiles, num_blocks) if share]


def fewer_blocks(num_tiles, num_blocks):
    return splits.cut_evenly(num_tiles, min(num_blocks, sum(num_tiles)))


def one_row_for_each_block(num_tiles, num_blocks):
    return changed(lambda share, _: share[:1])(num_tiles, num_blocks)


# (tiles of each row, blocks). 15 tiles in 22 shares, and others, have a border that floats miss.
CASES = [
    ([1], 1), ([2], 1), ([2], 2), ([3], 2), ([1, 1], 1), ([1, 1], 2), ([2, 2], 1), ([3, 3], 2), ([1, 3], 2), ([3, 1, 5], 4),
    ([1], 3), ([2], 3), ([1, 1], 5), ([5, 1, 1], 3), ([7], 5), ([2, 2, 2], 3), ([1, 1, 9, 1, 1], 4), ([4, 11], 4),
    ([1, 1, 1, 1, 1], 2), ([6, 1], 11), ([3, 3, 3, 3], 8), ([15], 22), ([10, 20, 1], 13), ([100, 3, 40], 16), ([29], 47),
    ([50, 7, 7, 7, 120, 1], 33), ([64] * 6, 132),
]


def observe(answer, case):
    num_tiles, num_blocks = case
    mine = list(num_tiles)
    result = answer(mine, num_blocks)
    return plain(result), "num_tiles was changed" if mine != num_tiles else ""


def plain(result):
    """Lists of tuples, whether the answer made lists or tuples of them."""
    if isinstance(result, list | tuple) and all(isinstance(share, list | tuple) for share in result):
        return [[tuple(piece) if isinstance(piece, list | tuple) else piece for piece in share] for share in result]
    return result


def show(expected, actual):
    """The first share that differs."""
    if not (isinstance(actual, tuple) and isinstance(actual[0], list)):
        return repr(expected), repr(actual)
    (ours, _), (theirs, changes) = expected, actual
    if changes:
        return "num_tiles as it was", changes
    if len(ours) != len(theirs):
        return f"{counted(len(ours), 'share')}: {ours}", f"{counted(len(theirs), 'share')}: {theirs}"
    block = next((block for block in range(len(ours)) if ours[block] != theirs[block]), 0)
    return f"block {block} has {ours[block]}", f"block {block} has {theirs[block]}"


EXERCISE = Exercise(
    id="7.7",
    title="equal shares",
    answer_name="cut_evenly",
    reference=splits.cut_evenly,
    cases=lambda: CASES,
    observe=observe,
    describe=lambda case: f"num_tiles = {case[0]}, num_blocks = {case[1]}",
    show=show,
    points=2,
    mistakes=(
        Mistake("last-tiles-lost",
                "The last tiles belong to nobody. When the total does not divide evenly, shares of total // num_blocks "
                "tiles do not reach the end of the line.",
                cut(rounded_down)),
        Mistake("rest-on-the-last-block",
                "What does not divide evenly all goes to the last block, and the others wait for it. Shares differ by one "
                "tile at most.",
                cut(rest_on_the_last)),
        Mistake("shares-rounded-up",
                "Each share is rounded up, so that the last blocks have little to do, or nothing. Shares differ by one tile "
                "at most.",
                cut(rounded_up)),
        Mistake("longer-shares-first",
                "Your shares are as even as asked for, and they are not the ones asked for: block b's begins at "
                "total * b // num_blocks.",
                cut(longer_first), also=(cut(borders_rounded_up),)),
        Mistake("borders-in-floats",
                "A border is off by one: total / num_blocks is a float, and a multiple of it may fall just below the whole "
                "number. Multiply first, and divide with //.",
                cut(in_floats), also=(cut(in_floats_nearest),)),
        Mistake("whole-rows",
                "Rows are given to the blocks as a whole. A long row then keeps one block busy while the others wait: a row "
                "may be cut.",
                whole_rows, also=(rows_in_turn,)),
        Mistake("each-row-cut",
                "Every row is cut into num_blocks pieces by itself. It is the line of all tiles that is cut.",
                each_row_cut),
        Mistake("dealt-in-turn",
                "The tiles are dealt to the blocks in turn. A block's share is a stretch of the line, so that it has few "
                "pieces and each of them is as long as can be.",
                dealt, also=(tile_by_tile,)),
        Mistake("counted-from-the-line",
                "The tiles in your pieces are counted from the beginning of the line. A piece counts from the beginning of "
                "its row.",
                changed(lambda share, num_tiles: [(row, begin + line_start(num_tiles, row), end + line_start(num_tiles, row))
                                                  for row, begin, end in share])),
        Mistake("begins-at-the-row",
                "A share that begins within a row takes the row from its first tile on. The tiles before belong to another "
                "block.",
                changed(lambda share, _: [(row, 0, end) for row, _, end in share]),
                also=(changed(lambda share, _: [(row, 0, end - begin) for row, begin, end in share]),)),
        Mistake("goes-on-to-the-end",
                "A share that ends within a row takes the row to its last tile. The tiles behind belong to another block.",
                changed(lambda share, num_tiles: [(row, begin, num_tiles[row]) for row, begin, _ in share])),
        Mistake("end-included",
                "The third number of a piece is its last tile. It is asked for as the first one that does not belong to the "
                "piece any more, as in range().",
                changed(lambda share, _: [(row, begin, end - 1) for row, begin, end in share])),
        Mistake("length-in-place-of-the-end",
                "The third number of a piece is how many tiles it has. It is asked for as the tile behind the last one.",
                changed(lambda share, _: [(row, begin, end - begin) for row, begin, end in share])),
        Mistake("pieces-without-tiles",
                "There are pieces that have no tile.",
                with_pieces(lambda begin, stop: begin <= stop), also=(with_pieces(lambda begin, stop: True),)),
        Mistake("empty-shares-left-out",
                "There are fewer lists than blocks. With fewer tiles than blocks, some blocks have an empty list.",
                empty_shares_left_out, also=(fewer_blocks,)),
        Mistake("one-piece-for-each-block",
                "Each of your blocks has one piece. When a row ends within a share, the share goes on with the next row.",
                one_row_for_each_block),
    ),
    hints=(
        "Where do the rows lie on the line? Row 0 begins at 0, row 1 at num_tiles[0], row 2 at num_tiles[0] + num_tiles[1].",
        "A block's share and a row are two stretches of the same line. What they have in common begins at the larger of the "
        "two beginnings and ends at the smaller of the two ends; it may be nothing.",
        "Turn that into tiles of the row by subtracting the row's beginning.",
    ),
)
