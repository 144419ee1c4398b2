"""What a right and each wrong answer to exercise 1.3 does, as Python classes."""

import itertools

from lessons_exercises.lesson_01.e1_2_reference_counts import perform
from lessons_exercises.lesson_01.native import METHODS, USES, NeverComesBack
from lessons_lib.checks import Crash
from paged_attention.block_manager import (
    BlockNotAllocatedError,
    DoubleFreeError,
    OutOfBlocksError,
    PythonBlockManager,
)

COVERED, SHARED, LOOKS_BEFORE, CHANGES_BEFORE, AFTER, ANOTHER, WITHOUT = USES


TAKES_ID = {
    "allocate": 0,
    "increase_ref_count": 1,
    "free": 1,
    "get_ref_count": 1,
    "get_num_free_blocks": 0,
}


class Lock:
    """A lock of one thread. The thread waits forever if it takes the lock twice."""

    held = False

    def acquire(self):
        if self.held:
            raise NeverComesBack("it waits forever")
        self.held = True

    def release(self):
        self.held = False

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class ThreadSafeBlockManager(PythonBlockManager):
    """The model of a right answer; the mistakes below override what they get wrong.

    misused: for each method that uses the lock wrongly, how it does.
    """

    misused: dict[str, str] = {}
    has_mutex = True

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.mutex = Lock()

    def is_locked(self):
        return self.mutex.held

    def record(self):
        pass

    def uses(self):
        return dict.fromkeys(METHODS, COVERED) | self.misused

    def meet(self, gap, first, second):
        return None  # there is no gap

    def enter(self):
        return self.mutex


def _locked(name):
    def call(self, *arguments):
        if self.misused.get(name) in (WITHOUT, LOOKS_BEFORE, CHANGES_BEFORE):
            return getattr(PythonBlockManager, name)(self, *arguments)
        with self.enter():
            return getattr(PythonBlockManager, name)(self, *arguments)

    return call


for _name in METHODS:
    setattr(ThreadSafeBlockManager, _name, _locked(_name))


def misusing(use, *methods):
    """A manager in which `methods` use the lock in this way, one of USES."""
    return type(
        "MisusesTheLock", (ThreadSafeBlockManager,), {"misused": dict.fromkeys(methods, use)}
    )


class NoMutex(misusing(WITHOUT, *METHODS)):
    has_mutex = False


def subsets(*sizes):
    return [methods for size in sizes for methods in itertools.combinations(METHODS, size)]


class KeepsLockAfterError(ThreadSafeBlockManager):
    def free(self, block_id):
        self.enter().acquire()
        PythonBlockManager.free(self, block_id)
        self.mutex.release()


def keeps_lock_after_error(*methods):
    """Locks by hand in `methods`, and unlocks at the end only."""

    def by_hand(name):
        def call(self, *arguments):
            self.enter().acquire()
            result = getattr(PythonBlockManager, name)(self, *arguments)
            self.mutex.release()
            return result

        return call

    changes = {name: by_hand(name) for name in methods}
    return type("KeepsLockAfterErrors", (ThreadSafeBlockManager,), changes)


def never_unlocks(*methods):
    """Locks by hand in `methods`, and leaves it locked."""

    def by_hand(name):
        def call(self, *arguments):
            self.enter().acquire()
            return getattr(PythonBlockManager, name)(self, *arguments)

        return call

    return type(
        "NeverUnlocks", (ThreadSafeBlockManager,), {name: by_hand(name) for name in methods}
    )


def lets_go_or_keeps_it(method):
    """Locks by hand, looks at the id, unlocks, and only then works.

    After an error the lock stays taken.
    """
    return type(
        "LetsGoOrKeepsIt", (keeps_lock_after_error(method),), {"misused": {method: AFTER}}
    )


class LocksTwice(ThreadSafeBlockManager):
    def allocate(self):
        with self.enter():
            return PythonBlockManager.allocate(self) if self.get_num_free_blocks() else None


class FreeLocksTwice(ThreadSafeBlockManager):
    def free(self, block_id):
        with self.enter():
            self.get_ref_count(block_id)
            PythonBlockManager.free(self, block_id)


class FreeLocksTwiceAtItsEnd(ThreadSafeBlockManager):
    def free(self, block_id):
        with self.enter():
            PythonBlockManager.free(self, block_id)
            self.get_ref_count(block_id)


class FreeLocksTwiceInTheMiddle(ThreadSafeBlockManager):
    """The count is lowered, and the block is not yet in the free list."""

    def free(self, block_id):
        with self.enter():
            if PythonBlockManager.get_ref_count(self, block_id) == 0:
                return PythonBlockManager.free(self, block_id)
            self.ref_counts[block_id] -= 1
            self.get_ref_count(block_id)


class CheckIndexLocksToo(ThreadSafeBlockManager):
    def check_index(self, block_id):
        with self.enter():
            return PythonBlockManager.check_index(self, block_id)


class InTwoSteps(ThreadSafeBlockManager):
    """Gives the lock back between look() and act() of `method`, and takes it again."""

    method = ""

    def meet(self, gap, first, second):
        if gap or first[0] != self.method:
            return None
        try:
            self.look(first[1])
        except Exception:
            return None
        between = perform(self, second[: 1 + TAKES_ID[second[0]]])
        return self.act(first[1]), between


class AllocatesInTwoSteps(InTwoSteps):
    method = "allocate"

    def look(self, _):
        if not self.free_blocks:
            raise OutOfBlocksError

    def act(self, _):
        if not self.free_blocks:
            raise Crash
        return perform(self, ("allocate",))


class SharesInTwoSteps(InTwoSteps):
    method = "increase_ref_count"

    def look(self, block_id):
        if self.ref_counts[block_id] == 0:
            raise BlockNotAllocatedError

    def act(self, block_id):
        self.ref_counts[block_id] += 1
        return "no error"


class FreesInTwoSteps(InTwoSteps):
    method = "free"

    def look(self, block_id):
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError

    def act(self, block_id):
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)
        return "no error"
