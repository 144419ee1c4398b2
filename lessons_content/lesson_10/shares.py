"""Batches in rows of tiles, and the share of each block, for 10.4."""

from dataclasses import dataclass

import numpy as np
import torch

from lessons_content.exercises.kernels import NO_FAULT, Finding, KernelError, build, kind_of
from lessons_content.exercises.kit import Alike, Text, counted, listed

MOST_ROWS = 14  # that a description lists


@dataclass(frozen=True)
class Case:
    """A batch and how it is divided. rows_each, pieces: see Division.

    tiles: of each sequence, for one group.
    asked: the blocks that look for their share; all, if there are none here.
    """

    tiles: tuple[int, ...]
    num_blocks: int
    groups: int = 1
    rows_each: int = 0
    pieces: int = 0
    asked: tuple[int, ...] = ()

    @property
    def rows(self) -> list[int]:
        """The tiles of each row."""
        return [tiles for tiles in self.tiles for _ in range(self.groups)]

    @property
    def blocks(self) -> tuple[int, ...]:
        return self.asked or tuple(range(self.num_blocks))


def in_rows(tiles: tuple[int, ...], rows_each: int, groups: int = 1) -> Case:
    """rows_each whole rows to each block."""
    return Case(tiles, len(tiles) * groups // rows_each, groups, rows_each, 1)


def in_pieces(tiles: tuple[int, ...], pieces: int, groups: int = 1) -> Case:
    """Each row to as many blocks."""
    return Case(tiles, len(tiles) * groups * pieces, groups, 1, pieces)


def owners(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The row and the block of each tile, in the order of the tiles."""
    rows = case.rows
    row_of = np.repeat(np.arange(len(rows)), rows)
    if case.rows_each == 0:
        ends = sum(rows) * np.arange(1, case.num_blocks + 1) // case.num_blocks
        return row_of, np.searchsorted(ends, np.arange(sum(rows)), side="right")
    block_of = []
    for row, tiles in enumerate(rows):
        used = min(tiles, case.pieces)
        for piece in range(used):
            length = tiles * (piece + 1) // used - tiles * piece // used
            block_of += [row // case.rows_each * case.pieces + piece] * length
    return row_of, np.array(block_of)


def shares(case: Case) -> list[list[int]]:
    """For each block the numbers of its Share, num_parts(), num_items() and its items' rows.

    It looks at each tile.
    """
    row_of, block_of = owners(case)

    def is_cut(row: int) -> bool:
        blocks = block_of[row_of == row]
        return blocks.min() != blocks.max()

    def share(block: int) -> list[int]:
        mine = np.flatnonzero(block_of == block)
        if not len(mine):
            before = np.count_nonzero(block_of < block)
            return [before, before, 0, 0, 0, 0, 0, 0]
        first, last = row_of[mine[0]], row_of[mine[-1]]
        cut = [row for row in dict.fromkeys((first, last)) if is_cut(row)]
        whole = [row for row in range(first, last + 1) if row not in cut]
        flags = first in cut, last in cut and last != first
        rows = [*cut, *whole]
        return [mine[0], mine[-1] + 1, first, last, *flags, len(cut), len(rows), *rows]

    return [list(map(int, share(block))) for block in case.blocks]


def describe(case):
    rows = list(map(str, case.rows))
    shown = listed(rows) if len(rows) <= MOST_ROWS else f"{', '.join(rows[:MOST_ROWS])}, …"
    tiles = "tile" if shown == "1" else "tiles"
    words = f"{counted(len(rows), 'row')} of {shown} {tiles}"
    if case.groups > 1:
        words += f" ({counted(len(case.tiles), 'sequence')}, groups {case.groups})"
    if case.rows_each == 0:
        how = "cut anywhere"
    else:
        how = f"{counted(case.rows_each, 'row')} to each block"
        how = f"each row to {case.pieces} blocks" if case.pieces > 1 else how
    about = f"num_blocks {case.num_blocks}, rows_each {case.rows_each}, pieces {case.pieces}"
    asked = f"; blocks {listed(case.asked)} are asked" if case.asked else ""
    return f"{words}, {how} ({about}){asked}"


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
