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

import numpy as np
import torch

from lessons_content.exercises.kernels import NO_FAULT, Finding, KernelError, build, kind_of
from lessons_content.exercises.kit import Alike, Text, exercise, listed
from lessons_content.lesson_10.shares import Case, describe, in_pieces, in_rows, owners, shares

NUMBERS = (
    *("begin", "end", "first_row", "last_row", "is_first_cut", "is_last_cut"),
    *("num_parts()", "num_items()"),
)
NOT_SET = -7777  # a number that share_of() leaves as it was
NO_ITEM = -1


def prepare(answer):
    library = build(answer, "ladder/plan_rows", "share_of_check.cu")

    def share(case: Case, block: int):
        out = torch.empty(8 + len(case.rows), dtype=torch.int32)
        begins = torch.tensor([0, *case.tiles]).cumsum(0).int()
        sizes = len(case.tiles), case.groups, case.num_blocks, case.rows_each, case.pieces
        try:
            library.find_share(begins, *sizes, block, out)
        except KernelError as error:
            if kind_of(error) != "outside":
                raise
            return Finding(error, ("begins",))
        numbers = out.tolist()
        return numbers[:8] + [row for row in numbers[8:] if row != NO_ITEM]

    return lambda case: [share(case, block) for block in case.blocks]


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


class NotSet(Alike):
    """A share that is not set in whole."""


class WorkForNone(Alike):
    """A share without tiles that names a row or a flag, or asks for them."""


def observe(subject, case):
    """For each block its number and what it found.

    The numbers of a share follow from each other. If the tiles are wrong, its rows do not
    count, and if the rows are wrong, its flags do not.
    """
    row_of, block_of = owners(case)

    def seen(block: int, found):
        begin, end = np.searchsorted(block_of, [block, block + 1]).tolist()
        if isinstance(found, Finding):
            return WorkForNone(repr(found)) if begin == end else found
        if NOT_SET in found[:6]:
            return NotSet(in_words(found))
        if found[:2] != [begin, end]:
            return found[:2]
        if begin == end:
            return WorkForNone(in_words(found)) if any(found[2:6]) else found
        is_right = found[2:4] == row_of[[begin, end - 1]].tolist()
        return found if is_right else found[:4]

    try:
        return [
            (block, seen(block, found)) for block, found in zip(case.blocks, subject(case))
        ]
    except KernelError as error:
        return Finding(error)


def show(expected, actual):
    """The first block whose share is another one."""
    if not isinstance(actual, list):
        return NO_FAULT, repr(actual)
    for (block, right), (_, wrong) in zip(expected, actual, strict=True):
        if right == wrong:
            continue
        if isinstance(wrong, Finding):
            return Text(f"block {block} reads nothing outside of begins"), repr(wrong)
        if isinstance(wrong, Text):
            return tuple(Text(f"block {block}: {each}") for each in (in_words(right), wrong))
        part = slice(6, None) if right[:6] == wrong[:6] else slice(min(len(wrong), 6))
        return tuple(Text(f"block {block}: {in_words(each, part)}") for each in (right, wrong))
    return repr(expected), repr(actual)


def in_words(share: list[int], part: slice = slice(6)) -> str:
    numbers = ["not set" if number == NOT_SET else number for number in share]
    named = [f"{name} {number}" for name, number in zip(NUMBERS, numbers)]
    rows = [f"the items' rows {listed(numbers[8:])}"] if numbers[8:] else []
    return ", ".join([*named, *rows][part])


EXERCISE = exercise(
    globals(),
    answer_name="share_of",
    language="cuda",
    reference=shares,
    size=lambda case: (len(case.rows) + case.num_blocks, sum(case.rows)),
)
