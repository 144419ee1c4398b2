"""Follows a manager of sequences: its block table and its pool."""

from typing import Any

from lessons_content.lesson_02.pictures.films import Tables, rows_of
from lessons_lib.drawing.live.view import Control, LiveView

NAMES = [f"seq {number}" for number in range(100)]
SIZES = {"num_kv_heads": 1, "head_size": 2, "max_num_seqs": 4, "max_blocks_per_seq": 4}


class LiveTables(LiveView):
    """Sequences that come, grow, are forked and end by calls of a PagedAttentionManager.

    manager_class, block_manager: the learner's.
    `manager`: the object that is shown. A change of sizes makes a new one.
    """

    lesson = "02"
    alt = "A block table with some sequences, and a pool with their blocks."
    controls = (
        Control("number", "num_blocks", "Number of blocks", 8, begins=True),
        Control("number", "block_size", "Block size", 4, begins=True),
        Control("number", "sequence", "Sequence", 0),
        Control("number", "tokens", "Tokens", 6),
        Control("button", "add_sequence", "add_sequence(sequence, tokens)"),
        Control("button", "append_token", "append_token(sequence)"),
        Control("button", "fork_sequence", "fork_sequence(sequence, new one)"),
        Control("button", "free_sequence", "free_sequence(sequence)"),
    )

    def __init__(self, manager_class: type, block_manager: type, **sizes: int):
        self.manager_class, self.block_manager = _watched(manager_class), block_manager
        super().__init__(**sizes)

    def begin(self, num_blocks: int, block_size: int, **values: Any) -> None:
        manager = self.manager_class(
            num_blocks, block_size, **SIZES, block_manager=self.block_manager
        )
        manager.tell = self._tell
        self.manager = manager
        self.tables = Tables(num_blocks, block_size, *manager.table.cpu.shape)
        recording = self.tables.recording("Your block table and its pool", NAMES)
        self.restart(recording, "A new manager: the pool is empty.", *self.tables.states({}))

    def add_sequence(self, sequence: int, tokens: int, **values: Any) -> None:
        self.manager.add_sequence(sequence, tokens)

    def append_token(self, sequence: int, **values: Any) -> None:
        self.manager.append_token(sequence)

    def fork_sequence(self, sequence: int, **values: Any) -> None:
        new = max(self.manager.sequences, default=-1) + 1
        self.manager.fork_sequence(sequence, new)
        self.values["sequence"] = new

    def free_sequence(self, sequence: int, **values: Any) -> None:
        self.manager.free_sequence(sequence)

    def _tell(self, manager, say: str) -> None:
        if manager is self.manager:
            self.step(say, *self.tables.states(rows_of(manager)))


def _watched(manager_class: type) -> type:
    """A subclass whose objects report the result of each call."""

    class Watched(manager_class):
        tell: Any = None

    for name in (
        "add_sequence",
        "append_token",
        "append_tokens",
        "fork_sequence",
        "free_sequence",
    ):
        setattr(Watched, name, _told(manager_class, name))
    Watched.__name__ = Watched.__qualname__ = manager_class.__name__
    return Watched


def _told(manager_class: type, name: str):
    def call(manager, *arguments, **named):
        tell, manager.tell = manager.tell, None  # calls within this call are not reported
        before = _blocks(manager)
        try:
            result = getattr(manager_class, name)(manager, *arguments, **named)
        finally:
            manager.tell = tell
        if tell:
            given = ", ".join(map(str, [*arguments, *named.values()]))
            tell(manager, f"{name}({given}): {_in_words(before, _blocks(manager))}.")
        return result

    return call


def _blocks(manager) -> dict:
    return {seq_id: manager.blocks_of(seq_id) for seq_id in manager.sequences}


def _in_words(before: dict, after: dict) -> str:
    """Says how the sequences' blocks have changed."""
    said = [f"sequence {ended} has ended" for ended in before.keys() - after.keys()]
    for seq_id, blocks in after.items():
        old = before.get(seq_id, [])
        copied = [pair for pair in zip(old, blocks) if pair[0] != pair[1]]
        new = blocks[len(old) :]
        if seq_id not in before:
            shared = blocks and any(set(blocks) <= {*others} for others in before.values())
            said.append(f"sequence {seq_id} {'shares' if shared else 'has'} blocks {blocks}")
        elif copied:
            said += [
                f"block {from_} is shared, so it is copied to {to}" for from_, to in copied
            ]
        elif new:
            said.append(f"the token begins block {', '.join(map(str, new))}")
    return "; ".join(said) or "there is room in the last block"
