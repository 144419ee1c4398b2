"""Batches in rows of tiles, and the share of each block, for 10.4."""

from dataclasses import dataclass

import numpy as np

from lessons_content.exercises.naming_words import counted, listed

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
