"""What a right and each wrong answer to exercise 1.3 does, as Python classes."""

import threading

from lessons_lib.checks import Crash
from paged_attention.block_manager import BlockNotAllocatedError, DoubleFreeError, OutOfBlocksError, PythonBlockManager
from solutions.checks.lesson_01.native import METHODS, PATIENCE_ALONE

NO_PATIENCE = 0.05  # seconds of its own after which a call counts as stuck, for models that do get stuck


class ThreadSafeBlockManager(PythonBlockManager):
    """The model of a right answer; the mistakes below override what they get wrong."""

    unlocked: tuple[str, ...] = ()
    stress = staticmethod(lambda: "holds")
    patience = PATIENCE_ALONE

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.mutex = threading.Lock()
        self.at_the_door = 0  # how many calls have come as far as the mutex

    def lock(self):
        return self.mutex.acquire()

    def unlock(self):
        self.mutex.release()

    def is_locked(self):
        return self.mutex.locked()

    def keeps_lock_during(self, method, *arguments):
        return method not in self.unlocked

    def enter(self):
        """The mutex, for a `with` statement, after saying that one more call has come to it."""
        self.at_the_door += 1
        return self.mutex


def _locked(name):
    def call(self, *arguments):
        if name in self.unlocked:
            return getattr(PythonBlockManager, name)(self, *arguments)
        with self.enter():
            return getattr(PythonBlockManager, name)(self, *arguments)
    return call


for _name in METHODS:
    setattr(ThreadSafeBlockManager, _name, _locked(_name))


class NeverLocked(ThreadSafeBlockManager):
    unlocked = METHODS
    stress = staticmethod(lambda: "breaks")


class NoMutex(NeverLocked):
    def lock(self):
        return False

    def keeps_lock_during(self, method, *arguments):
        return True  # there is none to look at


class ReadsWithoutLock(ThreadSafeBlockManager):
    unlocked = ("get_ref_count", "get_num_free_blocks")


class NumFreeWithoutLock(ThreadSafeBlockManager):
    unlocked = ("get_num_free_blocks",)


class IncreaseWithoutLock(ThreadSafeBlockManager):
    unlocked = ("increase_ref_count",)


class FreeWithoutLock(ThreadSafeBlockManager):
    unlocked = ("free",)


class AllocateWithoutLock(ThreadSafeBlockManager):
    unlocked = ("allocate",)


class CountWithoutLock(ThreadSafeBlockManager):
    unlocked = ("get_ref_count",)


class OnlyAllocateLocks(ThreadSafeBlockManager):
    unlocked = ("increase_ref_count", "free", "get_ref_count", "get_num_free_blocks")


class OnlyFreeListLocked(ThreadSafeBlockManager):
    unlocked = ("increase_ref_count", "get_ref_count", "get_num_free_blocks")


class CountsAndReadsUnlocked(ThreadSafeBlockManager):
    unlocked = ("increase_ref_count", "get_ref_count")


class FreeLocksPushOnly(ThreadSafeBlockManager):
    """Looks at the count and lowers it without the lock, and takes it for the free list alone."""

    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            with self.enter():
                self.free_blocks.append(block_id)


class FreeCountsOutside(ThreadSafeBlockManager):
    """Lowers the count, then waits for the lock and looks at the count again."""

    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] -= 1
        with self.enter():
            if self.ref_counts[block_id] == 0:
                self.free_blocks.append(block_id)


class FreeChecksOutside(ThreadSafeBlockManager):
    def free(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        with self.enter():
            self.ref_counts[block_id] -= 1
            if self.ref_counts[block_id] == 0:
                self.free_blocks.append(block_id)


class AllocateChecksOutside(ThreadSafeBlockManager):
    def allocate(self):
        if not self.free_blocks:
            raise OutOfBlocksError(f"no block is free: {len(self.ref_counts)} of {len(self.ref_counts)} are in use")
        with self.enter():
            if not self.free_blocks:
                self.crashed = True
                raise Crash
            return PythonBlockManager.allocate(self)


class KeepsLockAfterError(ThreadSafeBlockManager):
    patience = NO_PATIENCE

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
    return type("KeepsLockAfterErrors", (ThreadSafeBlockManager,), {"patience": NO_PATIENCE, **changes})


def never_unlocks(*methods):
    """Locks by hand in `methods`, and leaves it locked."""
    def by_hand(name):
        def call(self, *arguments):
            self.enter().acquire()
            return getattr(PythonBlockManager, name)(self, *arguments)
        return call

    return type("NeverUnlocks", (ThreadSafeBlockManager,), {"patience": NO_PATIENCE} | {name: by_hand(name) for name in methods})


class LocksTwice(ThreadSafeBlockManager):
    patience = NO_PATIENCE

    def allocate(self):
        with self.enter():
            return PythonBlockManager.allocate(self) if self.get_num_free_blocks() else None


class FreeLocksTwice(ThreadSafeBlockManager):
    patience = NO_PATIENCE

    def free(self, block_id):
        with self.enter():
            self.get_ref_count(block_id)
            PythonBlockManager.free(self, block_id)


class FreeLocksTwiceAtItsEnd(ThreadSafeBlockManager):
    patience = NO_PATIENCE

    def free(self, block_id):
        with self.enter():
            PythonBlockManager.free(self, block_id)
            self.get_ref_count(block_id)


class CheckIndexLocksToo(ThreadSafeBlockManager):
    patience = NO_PATIENCE

    def check_index(self, block_id):
        with self.enter():
            return PythonBlockManager.check_index(self, block_id)


class IncreaseChecksOutside(ThreadSafeBlockManager):
    """Looks at the count before it waits, so that a block may have been freed meanwhile."""

    def increase_ref_count(self, block_id):
        self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise BlockNotAllocatedError(f"block {block_id} is free, so it cannot be shared")
        with self.enter():
            self.ref_counts[block_id] += 1


class GuardDiesInAllocate(ThreadSafeBlockManager):
    def keeps_lock_during(self, method, *arguments):
        return method != "allocate"


class GuardDiesInFree(ThreadSafeBlockManager):
    def keeps_lock_during(self, method, *arguments):
        return method != "free"


class GuardDiesAtOnce(ThreadSafeBlockManager):
    """Waits for the lock and lets go of it at once."""

    def keeps_lock_during(self, method, *arguments):
        return False
