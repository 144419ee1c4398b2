"""Follows a block manager: which blocks are free, and how many users each other block has."""

from typing import Any

from lessons_lib.drawing.live.view import Control, LiveView
from lessons_lib.drawing.player import Cell, Cells, Numbers, Recording, Row, View

USERS = ["one user", "a second", *(f"a {number}th" for number in range(4, 12))]
USERS.insert(2, "a third")


class LivePool(LiveView):
    """A pool whose blocks are taken, shared and given back by calls of a BlockManager.

    manager_class: the learner's.
    `manager`: the object that is shown. A change of size makes a new one.
    """

    lesson = "01"
    alt = "A pool of blocks, some free, some with one user and some with several."
    controls = (
        Control("number", "num_blocks", "Number of blocks", 8, begins=True),
        Control("button", "allocate", "allocate()"),
        Control("number", "block", "Block"),
        Control("button", "increase_ref_count", "increase_ref_count(block)"),
        Control("button", "free", "free(block)"),
    )

    def __init__(self, manager_class: type, num_blocks: int = 8):
        self.manager_class = _watched(manager_class)
        super().__init__(num_blocks=num_blocks)

    def begin(self, num_blocks: int, **values: Any) -> None:
        manager = self.manager_class(num_blocks)
        manager.tell = self._tell
        self.pool = Cells("pool", "pool", [Row("", range(num_blocks))], columns=8)
        self.numbers = Numbers("numbers", {"free": f"of {num_blocks} blocks are free"})
        panels = [self.pool, self.numbers]
        recording = Recording("Your block manager", [View("", panels)], USERS)
        states = self._states(manager)
        self.manager = manager
        self.restart(recording, f"A new manager: all {num_blocks} blocks are free.", *states)

    def allocate(self, **values: Any) -> None:
        self.values["block"] = self.manager.allocate()

    def increase_ref_count(self, block: int, **values: Any) -> None:
        self.manager.increase_ref_count(block)

    def free(self, block: int, **values: Any) -> None:
        self.manager.free(block)

    def _tell(self, manager, say: str) -> None:
        if manager is self.manager:
            self.step(say, *self._states(manager))

    def _states(self, manager) -> list[dict]:
        cells = {}
        (row,) = self.pool.rows
        for block in row.cells:
            if count := manager.get_ref_count(block):
                cells[block] = Cell(USERS[:count], shows=f"×{count}")
        return [self.pool.at(cells), self.numbers.at(free=str(manager.get_num_free_blocks()))]


def _users(count: int) -> str:
    return "one user" if count == 1 else f"{count} users"


def _watched(manager_class: type) -> type:
    """A subclass whose objects report the result of each call."""

    class Watched(manager_class):
        def allocate(self):
            block = super().allocate()
            self.tell(self, f"allocate() gives block {block}.")
            return block

        def increase_ref_count(self, block_id):
            super().increase_ref_count(block_id)
            count = self.get_ref_count(block_id)
            self.tell(self, f"increase_ref_count({block_id}): it has {_users(count)} now.")

        def free(self, block_id):
            super().free(block_id)
            count = self.get_ref_count(block_id)
            left = f"it has {_users(count)} left" if count else "it is free again"
            self.tell(self, f"free({block_id}): {left}.")

    Watched.__name__ = Watched.__qualname__ = manager_class.__name__
    return Watched
