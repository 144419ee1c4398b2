"""Exercise 1.7: a test of your own.

Which calls bring a block to two users, and back to one? What should `get_ref_count()` say
then?

A wrong call belongs into `try`. `except RuntimeError` is the good end. After `else:` comes
what happens if nothing was raised, and that is where your test raises.

A manager may refuse a call and still have changed something. So look at the count once more,
after the call was refused.
"""

from lessons_content.exercises.kit import Alike, Raised, Text, counted, exercise, retold
from lessons_content.lesson_01.managers import BlockManager
from lessons_lib.checks import NoEnd
from paged_attention.pool.block_manager import BlockNotAllocatedError, PythonBlockManager


def test_manager(manager):
    """Raises an error, of any kind, if a block manager breaks one of the promises above.

    manager: a new BlockManager, with two free blocks or more.
    """
    # BEGIN SOLUTION 1.7
    shared, free = manager.allocate(), manager.allocate()
    manager.increase_ref_count(shared)
    manager.free(shared)
    assert manager.get_ref_count(shared) == 1, "one of two users should be left"
    manager.free(free)
    for wrong_call in (manager.free, manager.increase_ref_count):
        try:
            wrong_call(free)
        except RuntimeError:
            pass
        else:
            raise AssertionError("a wrong call was not refused")
        assert manager.get_ref_count(free) == 0, "a refused call has changed a count"
    # END SOLUTION


PROMISES = {
    "sharing": "that takes all users away when one of them frees a block",
    "double free": "that lets a free block be freed",
    "half done": "that counts a user of a free block before it refuses",
}
NO_ERROR, AN_ERROR = Text("no error"), Text("an error")
THOUGH_SHOWN = Text("no error, though your test has made the call that shows it")
SAID_FALSE = Text("no error; your test returned False")


class RefusesRight(Alike, Raised):
    """The result of a test that raises for a right manager."""


def silent(method):
    def refuses(block_id):
        try:
            method(block_id)
        except RuntimeError:
            raise RuntimeError from None

    return refuses


class Manager(PythonBlockManager):
    """A manager that may break a promise.

    order: how it hands out its blocks. SILENT: its errors have no words.
    `shown`: whether a call has come that shows what is wrong.
    """

    def __init__(self, num_blocks, order, broken=None):
        super().__init__(num_blocks)
        self.order, self.broken, self.shown = order, broken, False
        if order == "highest first":
            self.free_blocks.reverse()

    def free(self, block_id):
        users = self.get_ref_count(block_id)
        if self.broken == "double free" and not users and self.order == "highest first":
            self.shown = True
            return  # it has changed nothing, and says nothing
        if {"sharing": users > 1, "double free": users == 0}.get(self.broken):
            self.shown, self.ref_counts[block_id] = True, 1
        super().free(block_id)
        if self.order == "longest free first" and not self.ref_counts[block_id]:
            self.free_blocks.insert(0, self.free_blocks.pop())

    def increase_ref_count(self, block_id):
        if self.broken == "half done" and self.get_ref_count(block_id) == 0:
            self.shown, self.ref_counts[block_id] = True, 1
            raise BlockNotAllocatedError(f"block {block_id} is free, so it cannot be shared")
        super().increase_ref_count(block_id)

    def as_compiled(self):
        """The five methods and no more."""
        manager = BlockManager(self)
        if self.order == SILENT:
            for name in ("free", "increase_ref_count"):
                setattr(manager, name, silent(getattr(self, name)))
        return manager


# (order, number of blocks, which promise is broken)
ORDERS = "lowest first", "longest free first", "highest first"
SILENT = "lowest first, and its errors have no words"
CASES = [
    *zip((*ORDERS, ORDERS[0]), (2, 3, 4, 8), [None] * 4),
    (SILENT, 5, None),
    *((order, size, broken) for broken in PROMISES for order, size in zip(ORDERS, (2, 3, 5))),
]


def hidden(chance):
    for least, most in (2, 3), (4, 60), (4, 60), (4, 60):
        for broken in (None, *PROMISES):
            yield chance.choice(ORDERS), chance.randint(least, most), broken


def observe(answer, case):
    """What a test does with a wrong manager, if it does nothing with a right one."""
    order, num_blocks, broken = case
    try:
        answer(Manager(num_blocks, order).as_compiled())
    except (NotImplementedError, SystemExit, NoEnd):
        raise
    except BaseException as error:  # as pytest's failures are
        return retold(error, ", for a right manager", RefusesRight)
    if broken is None:
        return NO_ERROR
    wrong = Manager(num_blocks, order, broken)
    try:
        returned = answer(wrong.as_compiled())
    except (SystemExit, NoEnd):
        raise
    except BaseException:
        return AN_ERROR
    return SAID_FALSE if returned is False else THOUGH_SHOWN if wrong.shown else NO_ERROR


def describe(case):
    order, num_blocks, broken = case
    kind = f"a manager {PROMISES[broken]}" if broken else "a right manager"
    return f"{kind}; {counted(num_blocks, 'block')}, handed out {order}"


EXERCISE = exercise(
    globals(),
    answer_name="test_manager",
    size=lambda case: ([None, *PROMISES].index(case[2]), case[1]),
)
