"""Exercise 7.7: all tiles of a batch in equal shares."""

import random
from types import GeneratorType

from lessons_exercises.lesson_07 import outcomes
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention import splits


def cut(borders, pieces=None):
    """cut_evenly() with other borders between the shares.

    borders(total, num_blocks): num_blocks + 1 places on the line.
    """

    def wrong(num_tiles, num_blocks):
        places = borders(sum(num_tiles), num_blocks)
        return [
            (pieces or pieces_between)(num_tiles, first, end)
            for first, end in zip(places[:-1], places[1:])
        ]

    return wrong


def even(total, num_blocks):
    return [total * block // num_blocks for block in range(num_blocks + 1)]


def with_pieces(keep):
    return cut(even, lambda num_tiles, first, end: pieces_between(num_tiles, first, end, keep))


def begin_in_row(first, length):
    return max(first, 0)


def end_in_row(end, length):
    return min(end, length)


def pieces_between(
    num_tiles,
    first,
    end,
    keep=lambda begin, stop: begin < stop,
    begin_of=begin_in_row,
    end_of=end_in_row,
):
    """The pieces of the line's tiles first … end - 1."""
    pieces, start = [], 0
    for row, length in enumerate(num_tiles):
        begin = begin_of(first - start, length)
        stop = end_of(end - start, length)
        if keep(begin, stop):
            pieces.append((row, begin, stop))
        start += length
    return pieces


def with_places(begin_of=begin_in_row, end_of=end_in_row):
    return cut(
        even,
        lambda num_tiles, first, end: pieces_between(
            num_tiles, first, end, begin_of=begin_of, end_of=end_of
        ),
    )


def empty_within_a_row(num_tiles, first, end):
    """The pieces of the rows that begin before the share's end, and end after its start."""
    return [
        (row, max(first - start, 0), min(end - start, length))
        for row, length in enumerate(num_tiles)
        for start in [line_start(num_tiles, row)]
        if start < end and start + length > first
    ]


def one_piece(num_tiles, first, end):
    """The piece of the row in which the share begins.

    Without a tile where the share has none.
    """
    row = next(row for row in range(len(num_tiles)) if first < line_start(num_tiles, row + 1))
    start = line_start(num_tiles, row)
    return [(row, first - start, min(end - start, num_tiles[row]))]


def of_fixed_length(num_tiles, num_blocks):
    total = sum(num_tiles)
    return [
        pieces_between(num_tiles, first, first + total // num_blocks)
        for first in even(total, num_blocks)[:-1]
    ]


def counted_from_the_share(num_tiles, num_blocks):
    total, shares = sum(num_tiles), splits.cut_evenly(num_tiles, num_blocks)
    begins = even(total, num_blocks)
    return [
        [
            (row, *(line_start(num_tiles, row) + tile - begin for tile in tiles))
            for row, *tiles in share
        ]
        for begin, share in zip(begins[:-1], shares)
    ]


def next_row_for_next_block(num_tiles, num_blocks):
    """Each share begins with a row of its own.

    It has the length that it should have while there are rows.
    """
    places = even(sum(num_tiles), num_blocks)
    row = 0
    shares = []
    for first, end in zip(places[:-1], places[1:]):
        share, left = [], end - first
        while left and row < len(num_tiles):
            share.append((row, 0, min(left, num_tiles[row])))
            left, row = left - share[-1][2], row + 1
        shares.append(share)
    return shares


class Loose(list):
    """Shares of a mistake that can look in several ways.

    It is the same one wherever `seen(shares)` is the same.
    """

    def __init__(self, shares, seen):
        super().__init__(shares)
        self.seen = seen

    def fits(self, shares):
        return self.seen(shares) == self.seen(self)


def with_tiles(shares):
    return [
        [piece for piece in share if not (len(piece) == 3 and piece[1] >= piece[2])]
        for share in shares
    ]


def in_one_order(shares):
    return [sorted(share, key=repr) for share in shares]


def strewn(num_tiles, num_blocks):
    """Pieces without tiles stand among the right ones, anywhere."""
    return Loose(
        [[*share, (0, 0, 0)] for share in splits.cut_evenly(num_tiles, num_blocks)], with_tiles
    )


def out_of_order(num_tiles, num_blocks):
    return Loose(
        [share[::-1] for share in splits.cut_evenly(num_tiles, num_blocks)], in_one_order
    )


def with_rows_moved(order, named=lambda rows, place: rows[place]):
    """The line has the rows in the order that order(num_tiles) gives.

    named(rows, place): the number of a row in a piece.
    """

    def wrong(num_tiles, num_blocks):
        rows = order(num_tiles)
        shares = splits.cut_evenly([num_tiles[row] for row in rows], num_blocks)
        return Loose(
            [[(named(rows, place), *tiles) for place, *tiles in share] for share in shares],
            in_one_order,
        )

    return wrong


def shortest_first(num_tiles):
    return sorted(range(len(num_tiles)), key=lambda row: num_tiles[row])


def longest_first(num_tiles):
    return sorted(range(len(num_tiles)), key=lambda row: -num_tiles[row])


def last_first(num_tiles):
    return range(len(num_tiles))[::-1]


def shortest_last_first(num_tiles):
    """The longest first, and of equally long rows the last."""
    return shortest_first(num_tiles)[::-1]


ROWS_MOVED = [
    with_rows_moved(order, *named)
    for named in ((), (lambda rows, place: place,))
    for order in (longest_first, shortest_first, last_first, shortest_last_first)
]


def listed_by_row(named):
    """A list for each row. named(block, row): whose number stands in a piece."""

    def wrong(num_tiles, num_blocks):
        shares = splits.cut_evenly(num_tiles, num_blocks)
        return [
            [
                (named(block, row), *tiles)
                for block, share in enumerate(shares)
                for row, *tiles in share
                if row == wanted
            ]
            for wanted in range(len(num_tiles))
        ]

    return wrong


def rows_that_begin_here(num_tiles, first, end):
    return [
        piece
        for piece in pieces_between(num_tiles, first, end)
        if first <= line_start(num_tiles, piece[0])
    ]


def no_row_start(num_tiles, first, end):
    return [
        (row, first, min(end, length))
        for row, length in enumerate(num_tiles)
        if first < min(end, length)
    ]


def changed(change):
    """cut_evenly() with each share changed: change(share, num_tiles)."""
    return lambda num_tiles, num_blocks: [
        change(share, num_tiles) for share in splits.cut_evenly(num_tiles, num_blocks)
    ]


def line_start(num_tiles, row):
    return sum(num_tiles[:row])


def rounded_down(total, num_blocks):
    return [total // num_blocks * block for block in range(num_blocks + 1)]


def rest_on_the_last(total, num_blocks):
    return [*rounded_down(total, num_blocks)[:-1], total]


def rounded_up(total, num_blocks):
    return [min(total, -(-total // num_blocks) * block) for block in range(num_blocks + 1)]


def longer_first(total, num_blocks):
    return [
        total // num_blocks * block + min(block, total % num_blocks)
        for block in range(num_blocks + 1)
    ]


def in_floats(total, num_blocks):
    return [int(total / num_blocks * block) for block in range(num_blocks + 1)]


def in_floats_nearest(total, num_blocks):
    return [round(total / num_blocks * block) for block in range(num_blocks + 1)]


def in_fractions(total, num_blocks):
    return [total * block / num_blocks for block in range(num_blocks + 1)]


def quotients_first(total, num_blocks):
    return [total / num_blocks * block for block in range(num_blocks + 1)]


def nearest(total, num_blocks):
    return [round(total * block / num_blocks) for block in range(num_blocks + 1)]


def half_rounded_up(total, num_blocks):
    return [int(total * block / num_blocks + 0.5) for block in range(num_blocks + 1)]


def borders_rounded_up(total, num_blocks):
    return [-(-total * block // num_blocks) for block in range(num_blocks + 1)]


def whole_rows(num_tiles, num_blocks):
    """Each row to the block in whose share its first tile lies."""
    total, shares = sum(num_tiles), [[] for _ in range(num_blocks)]
    for row, length in enumerate(num_tiles):
        block = next(
            b
            for b in range(num_blocks)
            if line_start(num_tiles, row) < total * (b + 1) // num_blocks
        )
        shares[block].append((row, 0, length))
    return shares


def rows_in_turn(num_tiles, num_blocks):
    shares = [[] for _ in range(num_blocks)]
    for row, length in enumerate(num_tiles):
        shares[row % num_blocks].append((row, 0, length))
    return shares


def each_row_cut(num_tiles, num_blocks):
    return [
        [
            (row, length * block // num_blocks, length * (block + 1) // num_blocks)
            for row, length in enumerate(num_tiles)
            if length * block // num_blocks < length * (block + 1) // num_blocks
        ]
        for block in range(num_blocks)
    ]


def dealt(num_tiles, num_blocks):
    """A tile to each block in turn."""
    shares, number = [[] for _ in range(num_blocks)], 0
    for row, length in enumerate(num_tiles):
        for tile in range(length):
            shares[number % num_blocks].append((row, tile, tile + 1))
            number += 1
    return shares


def tile_by_tile(num_tiles, num_blocks):
    return changed(
        lambda share, _: [
            (row, tile, tile + 1) for row, begin, end in share for tile in range(begin, end)
        ]
    )(num_tiles, num_blocks)


def empty_shares_left_out(num_tiles, num_blocks):
    return [share for share in splits.cut_evenly(num_tiles, num_blocks) if share]


def fewer_blocks(num_tiles, num_blocks):
    return splits.cut_evenly(num_tiles, min(num_blocks, sum(num_tiles)))


def all_pieces(num_tiles, num_blocks):
    return [piece for share in splits.cut_evenly(num_tiles, num_blocks) for piece in share]


def grown_shares(num_tiles, num_blocks):
    """Each share with the pieces of those before it."""
    shares = splits.cut_evenly(num_tiles, num_blocks)
    return [
        [piece for share in shares[: block + 1] for piece in share]
        for block in range(num_blocks)
    ]


def by_a_walk(num_tiles, num_blocks):
    """A row is left when nothing of it is found any more: a piece without tiles."""
    total = sum(num_tiles)
    row = 0
    tile = 0
    place = 0
    shares = []
    for block in range(num_blocks):
        end, share = total * (block + 1) // num_blocks, []
        while place < end:
            step = min(end - place, num_tiles[row] - tile)
            share.append((row, tile, tile + step))
            place, tile = place + step, tile + step
            if not step:
                row, tile = row + 1, 0
        shares.append(share)
    return shares


def tiles_taken_away(num_tiles, num_blocks):
    shares = splits.cut_evenly(num_tiles, num_blocks)
    num_tiles.clear()
    return shares


def cut_rows_shortened(num_tiles, num_blocks):
    """num_tiles changes when a share ends within a row."""
    shares = splits.cut_evenly(num_tiles, num_blocks)
    for row, begin, _ in (piece for share in shares for piece in share):
        num_tiles[row] -= begin
    return shares


def yielded(num_tiles, num_blocks):
    yield from splits.cut_evenly(num_tiles, num_blocks)


def one_row_for_each_block(num_tiles, num_blocks):
    return changed(lambda share, _: share[:1])(num_tiles, num_blocks)


# (tiles of each row, blocks). 15 tiles in 22 shares, and others, have a border that floats
# miss.
CASES = [
    ([1], 1),
    ([2], 1),
    ([2], 2),
    ([3], 2),
    ([1, 1], 1),
    ([1, 1], 2),
    ([2, 2], 1),
    ([3, 3], 2),
    ([1, 3], 2),
    ([3, 1, 5], 4),
    ([1], 3),
    ([2], 3),
    ([1, 1], 5),
    ([5, 1, 1], 3),
    ([7], 5),
    ([2, 2, 2], 3),
    ([1, 1, 9, 1, 1], 4),
    ([4, 11], 4),
    ([1, 1, 1, 1, 1], 2),
    ([6, 1], 11),
    ([3, 3, 3, 3], 8),
    ([15], 22),
    ([10, 20, 1], 13),
    ([100, 3, 40], 16),
    ([29], 47),
    ([50, 7, 7, 7, 120, 1], 33),
    ([64] * 6, 132),
]


def hidden(seed):
    """Fewer tiles than blocks, as many, some more, many more.

    Then numbers whose borders floats miss.
    """
    chance = random.Random(seed)
    for number in range(16):
        num_tiles = chance.choices((1, 1, 2, 3, *range(4, 40)), k=1 + number // 3)
        total = sum(num_tiles)
        fewer = chance.randint(2, 6), max(1, total // chance.randint(2, 4))
        yield num_tiles, (total + chance.randint(1, 20), total, *fewer)[number % 4]
    for total, num_blocks in chance.sample(
        ((26, 46), (29, 50), (31, 43), (47, 41), (49, 22), (52, 23)), 2
    ):
        first = chance.randint(1, total - 1)
        yield [first, total - first], num_blocks


def observe(answer, case):
    num_tiles, num_blocks = case
    mine = list(num_tiles)
    result = answer(mine, num_blocks)
    return Changed("num_tiles was changed") if mine != num_tiles else plain(result)


class Changed(Text):
    """In place of a result, where the answer changed its argument."""


def plain(result):
    """Lists of tuples, whether the answer made lists or tuples of them.

    A list of tuples where it is one of pieces.
    """
    if isinstance(result, GeneratorType):
        return Text("a generator, which has not run yet")
    if isinstance(result, Loose):
        return result
    if not isinstance(result, list | tuple) or not all(
        isinstance(share, list | tuple) for share in result
    ):
        return result
    if result and all(share and not isinstance(share[0], list | tuple) for share in result):
        return [tuple(share) for share in result]
    return [
        [tuple(piece) if isinstance(piece, list | tuple) else piece for piece in share]
        for share in result
    ]


def same(expected, actual):
    if outcomes.is_error(actual):
        return outcomes.same_error(expected, actual)
    return (
        has_pieces(actual) and expected.fits(actual)
        if isinstance(expected, Loose)
        else expected == actual
    )


def has_pieces(result):
    shares = isinstance(result, list) and all(isinstance(share, list) for share in result)
    return shares and all(isinstance(piece, tuple) for share in result for piece in share)


def show(ours, theirs):
    """The first share that differs."""
    if isinstance(theirs, Changed):
        return "num_tiles as it was", theirs
    if not isinstance(theirs, list):
        return repr(ours), outcomes.show_no_result(theirs) or repr(theirs)
    if any(isinstance(share, tuple) for share in theirs):
        return repr(ours), repr(theirs)
    if len(ours) != len(theirs):
        return (
            f"{counted(len(ours), 'share')}: {ours}",
            f"{counted(len(theirs), 'share')}: {theirs}",
        )
    block = next((block for block in range(len(ours)) if ours[block] != theirs[block]), 0)
    return f"block {block} has {ours[block]}", f"block {block} has {theirs[block]}"


EXERCISE = Exercise(
    id="7.7",
    title="equal shares",
    answer_name="cut_evenly",
    reference=splits.cut_evenly,
    cases=lambda: CASES,
    size=lambda case: (sum(case[0]), len(case[0]), case[1]),
    hidden=hidden,
    observe=observe,
    describe=lambda case: f"num_tiles = {case[0]}, num_blocks = {case[1]}",
    same=same,
    show=show,
    points=2,
    mistakes=(
        Mistake(
            "last-tiles-lost",
            "The last tiles belong to nobody. When the total does not divide evenly, "
            "shares of total // num_blocks tiles do not reach the end of the line.",
            cut(rounded_down),
        ),
        Mistake(
            "rest-on-the-last-block",
            "What does not divide evenly all goes to the last block, "
            "and the others wait for it. Shares differ by one tile at most.",
            cut(rest_on_the_last),
        ),
        Mistake(
            "shares-rounded-up",
            "Each share is rounded up, so that the last blocks have little to do, "
            "or nothing. Shares differ by one tile at most.",
            cut(rounded_up),
        ),
        Mistake(
            "longer-shares-first",
            "Your shares are as even as asked for, and they are not the ones asked for. "
            "Which of them have a tile more is settled by where block b's share begins: "
            "see the docstring.",
            cut(longer_first),
            also=(cut(borders_rounded_up),),
        ),
        Mistake(
            "borders-to-the-nearest",
            "Your borders are rounded to the nearest whole number. "
            "The docstring has them rounded down.",
            cut(nearest),
            also=(cut(half_rounded_up),),
        ),
        Mistake(
            "parts-of-tiles",
            "There are pieces with parts of tiles: `/` gives a fraction. "
            "Borders are whole numbers.",
            cut(in_fractions),
            also=(cut(quotients_first),),
        ),
        Mistake(
            "borders-in-floats",
            "A border is off by one: a float such as total / num_blocks is not exact, "
            "and a multiple of it may fall just below the whole number. "
            "In which order do the numbers stay whole?",
            cut(in_floats),
            also=(cut(in_floats_nearest),),
        ),
        Mistake(
            "whole-rows",
            "Rows are given to the blocks as a whole. "
            "A long row then keeps one block busy while the others wait: a row may be cut.",
            whole_rows,
            also=(
                rows_in_turn,
                changed(
                    lambda share, num_tiles: [(row, 0, num_tiles[row]) for row, *_ in share]
                ),
            ),
        ),
        Mistake(
            "only-rows-that-begin-here",
            "A block has only pieces of rows that begin within its share. "
            "A row that began in an earlier share can go on in this one.",
            cut(even, rows_that_begin_here),
        ),
        Mistake(
            "each-row-cut",
            "Every row is cut into num_blocks pieces by itself. "
            "It is the line of all tiles that is cut.",
            each_row_cut,
        ),
        Mistake(
            "dealt-in-turn",
            "The tiles are dealt to the blocks in turn. A block's share is a stretch "
            "of the line, so that it has few pieces and each of them is as long as can be.",
            dealt,
            also=(tile_by_tile,),
        ),
        Mistake(
            "counted-from-the-line",
            "The tiles in your pieces are counted from the beginning of the line. "
            "A piece counts from the beginning of its row.",
            changed(
                lambda share, num_tiles: [
                    (row, begin + line_start(num_tiles, row), end + line_start(num_tiles, row))
                    for row, begin, end in share
                ]
            ),
        ),
        Mistake(
            "begins-at-the-row",
            "A share that begins within a row takes the row from its first tile on. "
            "The tiles before belong to another block.",
            changed(lambda share, _: [(row, 0, end) for row, _, end in share]),
            also=(
                changed(lambda share, _: [(row, 0, end - begin) for row, begin, end in share]),
            ),
        ),
        Mistake(
            "goes-on-to-the-end",
            "A share that ends within a row takes the row to its last tile. "
            "The tiles behind belong to another block.",
            changed(
                lambda share, num_tiles: [
                    (row, begin, num_tiles[row]) for row, begin, _ in share
                ]
            ),
        ),
        Mistake(
            "begin-not-cut",
            "Your pieces begin where their rows begin, even where the share begins later. "
            "Tiles before the share belong to other blocks.",
            with_places(begin_of=lambda first, length: 0),
        ),
        Mistake(
            "end-not-cut",
            "Your pieces end where their rows end, even where the share ends earlier. "
            "Tiles behind the share belong to other blocks.",
            with_places(end_of=lambda end, length: length),
        ),
        Mistake(
            "begins-before-the-row",
            "A piece begins before its row does, with a number below 0: "
            "the share begins in an earlier row.",
            with_places(begin_of=lambda first, length: first),
        ),
        Mistake(
            "ends-behind-the-row",
            "A piece goes on behind the end of its row: the share ends in a later row.",
            with_places(end_of=lambda end, length: end),
        ),
        Mistake(
            "rows-begin-at-0",
            "Every row is taken to begin at the line's beginning. "
            "Where does the second row begin?",
            cut(even, no_row_start),
        ),
        Mistake(
            "share-ends-too-late",
            "Your shares go one tile too far, so that two blocks have the same tile. "
            "A share goes up to, and without, its end.",
            cut(even, lambda num_tiles, first, end: pieces_between(num_tiles, first, end + 1)),
        ),
        Mistake(
            "end-one-too-far",
            "The third number of a piece is one too large. "
            "It is the first tile that does not belong to the piece any more, as in range().",
            changed(lambda share, _: [(row, begin, end + 1) for row, begin, end in share]),
        ),
        Mistake(
            "end-included",
            "The third number of a piece is its last tile. It is asked for as the first "
            "one that does not belong to the piece any more, as in range().",
            changed(lambda share, _: [(row, begin, end - 1) for row, begin, end in share]),
        ),
        Mistake(
            "length-in-place-of-the-end",
            "The third number of a piece is how many tiles it has. "
            "It is asked for as the tile behind the last one.",
            changed(lambda share, _: [(row, begin, end - begin) for row, begin, end in share]),
        ),
        Mistake(
            "pieces-without-tiles",
            "There are pieces that have no tile.",
            with_pieces(lambda begin, stop: begin <= stop),
            also=(
                with_pieces(lambda begin, stop: True),
                cut(even, empty_within_a_row),
                by_a_walk,
                strewn,
            ),
        ),
        Mistake(
            "rows-between-lost",
            "A share that reaches over three rows or more has lost those in between. "
            "Short rows may lie wholly within a share.",
            changed(lambda share, _: [share[0], share[-1]] if len(share) > 2 else share),
        ),
        Mistake(
            "num-tiles-changed",
            "Your function changes num_tiles. "
            "The list belongs to the caller, who still needs it.",
            tiles_taken_away,
            also=(cut_rows_shortened,),
        ),
        Mistake(
            "shares-yielded",
            "Your function yields the shares, so that a call gives a generator. "
            "A list is asked for.",
            yielded,
        ),
        Mistake(
            "empty-shares-left-out",
            "There are fewer lists than blocks. "
            "With fewer tiles than blocks, some blocks have an empty list.",
            empty_shares_left_out,
            also=(fewer_blocks,),
        ),
        Mistake(
            "none-for-an-empty-share",
            "A block without tiles has None. Its share is a list too, an empty one.",
            changed(lambda share, _: share or None),
        ),
        Mistake(
            "one-list-for-all",
            "A block has the pieces of others beside its own: the blocks share one list, as "
            "they do after `[[]] * num_blocks`, or a list is not begun anew for each block.",
            lambda num_tiles, num_blocks: [all_pieces(num_tiles, num_blocks)] * num_blocks,
            also=(grown_shares,),
        ),
        Mistake(
            "pieces-not-in-lists",
            "Your result is one list of pieces. Each block has a list of its own.",
            all_pieces,
        ),
        Mistake(
            "row-last",
            "The three numbers of a piece stand in another order than the one asked for.",
            changed(lambda share, _: [(begin, end, row) for row, begin, end in share]),
        ),
        Mistake(
            "rows-from-1",
            "Your rows are counted from 1. The first row is row 0.",
            changed(lambda share, _: [(row + 1, begin, end) for row, begin, end in share]),
        ),
        Mistake(
            "first-share-alone",
            "Only the first block has a share. Is there a `return` within the loop?",
            lambda *sizes: splits.cut_evenly(*sizes)[:1],
        ),
        Mistake(
            "one-piece-for-each-block",
            "Each of your blocks has one piece. "
            "When a row ends within a share, the share goes on with the next row.",
            one_row_for_each_block,
            also=(cut(even, one_piece),),
        ),
        Mistake(
            "end-left-out-twice",
            "Your shares end a tile too early, and that tile belongs to nobody. "
            "A slice and range() leave their end out already.",
            cut(even, lambda num_tiles, first, end: pieces_between(num_tiles, first, end - 1)),
        ),
        Mistake(
            "shares-of-one-length",
            "Your shares begin where they should, and all of them have total // num_blocks "
            "tiles. Where a share should have one more, it belongs to nobody. "
            "The docstring says where a share ends.",
            of_fixed_length,
        ),
        Mistake(
            "counted-from-the-share",
            "The tiles in your pieces are counted from the beginning of the block's share. "
            "A piece counts from the beginning of its row.",
            counted_from_the_share,
        ),
        Mistake(
            "rest-of-a-row-lost",
            "Each of your shares begins with a row of its own. "
            "When a share ends within a row, the next share goes on there.",
            next_row_for_next_block,
        ),
        Mistake(
            "listed-by-row",
            "Your result has a list for each row. A list for each block is asked for. "
            "Each piece in it names its row.",
            listed_by_row(lambda block, row: block),
            also=(listed_by_row(lambda block, row: row),),
        ),
        Mistake(
            "pieces-out-of-order",
            "Each block has the right pieces, but they stand in another order "
            "than the one asked for. What comes first on the line stands first in the list.",
            out_of_order,
        ),
        Mistake(
            "rows-moved",
            "On your line the rows lie in another order than in num_tiles. "
            "Row 0 comes first, whatever its length, and then row 1.",
            ROWS_MOVED[0],
            also=tuple(ROWS_MOVED[1:]),
        ),
        outcomes.RETURNS_NOTHING,
        outcomes.RAISES_AN_ERROR,
    ),
    hints=(
        (
            "Where do the rows lie on the line? Row 0 begins at 0, row 1 at num_tiles[0], "
            "row 2 at num_tiles[0] + num_tiles[1]."
        ),
        (
            "A block's share and a row are two stretches of the same line. "
            "What they have in common begins at the larger of the two beginnings "
            "and ends at the smaller of the two ends; it may be nothing."
        ),
        "Turn that into tiles of the row by subtracting the row's beginning.",
    ),
)
