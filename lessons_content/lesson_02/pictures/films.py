"""Block tables and their pool, step by step, for the player."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lessons_lib.drawing.player import Cell, Cells, Numbers, Player, Recording, Row, View
from paged_attention.pool.block_table import BlockTable


@dataclass(frozen=True)
class Filled:
    """A row of a block table. `length` is its sequence's length in tokens."""

    name: str
    length: int
    blocks: list[int]


@dataclass
class Film:
    """Moments of a block table and its pool. Its player is the last line of a cell.

    still: the moment to show first, and where no script runs.
    """

    still: int = -1
    moments: list[tuple[str, dict[int, Filled]]] = field(default_factory=list)

    def add(self, manager, title: str) -> None:
        """Takes a picture of a PagedAttentionManager as it is now."""
        rows = rows_of(manager)
        self._add(title, manager.table, rows, manager.kv_cache.shape[2], manager.block_size)

    def add_table(
        self,
        table: BlockTable,
        title: str,
        lengths: Mapping[int, int],
        num_blocks: int = 8,
        block_size: int = 4,
    ) -> None:
        """Takes a picture of a table that is filled by hand.

        lengths: for each row in use, the length of its sequence in tokens.
        """
        rows = {
            row: Filled(f"row {row}", length, [n for n in table.cpu[row].tolist() if n >= 0])
            for row, length in lengths.items()
        }
        self._add(title, table, rows, num_blocks, block_size)

    def _add(self, title: str, table, rows: dict, num_blocks: int, block_size: int) -> None:
        self.shape = num_blocks, block_size, *table.cpu.shape
        self.moments.append((title, rows))

    def player(self) -> Player:
        tables = Tables(*self.shape)
        names = dict.fromkeys(row.name for _, rows in self.moments for row in rows.values())
        recording = tables.recording("A block table and its pool", [*names])
        for title, rows in self.moments:
            recording.step(title, *tables.states(rows))
        title, rows = self.moments[self.still]
        return recording.player(f"{title}. {in_words(rows, tables.num_blocks)}", self.still)

    def _repr_html_(self) -> str:
        return self.player()._repr_html_()

    def __repr__(self):
        return repr(self.player())


@dataclass(frozen=True)
class Tables:
    """The panels of a block table with this many rows, and of its pool."""

    num_blocks: int
    block_size: int
    num_rows: int
    row_length: int

    def recording(self, title: str, names: Sequence[str]) -> Recording:
        views = [View("", [self.table]), View("", [self.pool, self.numbers])]
        return Recording(title, views, names, pace=2200)

    @property
    def table(self) -> Cells:
        places = range(self.row_length)
        return Cells(
            "table",
            "block table",
            [Row(row, [(row, n) for n in places], True) for row in range(self.num_rows)],
            noun="entry",
            points="pool",
            blank="−1",
            ids=False,
        )

    @property
    def pool(self) -> Cells:
        rows = [Row("", range(self.num_blocks))]
        return Cells("pool", "pool", rows, self.block_size, columns=4)

    @property
    def numbers(self) -> Numbers:
        return Numbers("numbers", {"free": f"of {self.num_blocks} blocks are free"})

    def states(self, rows: Mapping[int, Filled]) -> list[dict]:
        blocks = in_blocks(rows.values(), self.block_size)
        entries = {
            (row, place): Cell([filled.name], shows=str(block_id))
            for row, filled in rows.items()
            for place, block_id in enumerate(filled.blocks)
        }
        heads = dict.fromkeys(range(self.num_rows), "free")
        heads |= {row: f"{each.name}: {each.length} tokens" for row, each in rows.items()}
        free = str(self.num_blocks - len(blocks))
        return [
            self.table.at(entries, heads),
            self.pool.at(blocks),
            self.numbers.at(free=free),
        ]


def rows_of(manager) -> dict[int, Filled]:
    """The rows that a PagedAttentionManager has in use."""
    return {
        sequence.row: Filled(f"seq {seq_id}", sequence.length, manager.blocks_of(seq_id))
        for seq_id, sequence in manager.sequences.items()
    }


def in_blocks(rows, block_size: int) -> dict[int, Cell]:
    """The content of each block that has a user."""
    users: dict[int, list[str]] = {}
    tokens: dict[int, int] = {}
    for row in rows:
        for place, block_id in enumerate(row.blocks):
            users.setdefault(block_id, []).append(row.name)
            filled = min(block_size, row.length - place * block_size)
            tokens[block_id] = max(tokens.get(block_id, 0), filled)
    return {block_id: Cell(users[block_id], tokens[block_id]) for block_id in users}


def in_words(rows: Mapping[int, Filled], num_blocks: int) -> str:
    """The rows and the number of free blocks, in words."""
    each = rows.values()
    sentences = [f"{row.name}: {row.length} tokens in blocks {row.blocks}." for row in each]
    num_used = len({block_id for row in each for block_id in row.blocks})
    return " ".join([*sentences, f"{num_blocks - num_used} of {num_blocks} blocks are free."])
