"""What the watch says of a right answer to exercise 1.3, as a Python class."""

from lessons_exercises.lesson_01.native import METHODS
from paged_attention.block_manager import PythonBlockManager

TAKES_ID = {
    "allocate": 0,
    "increase_ref_count": 1,
    "free": 1,
    "get_ref_count": 1,
    "get_num_free_blocks": 0,
}


class ThreadSafeBlockManager(PythonBlockManager):
    """Its methods hold one lock from their first line to their last."""

    has_mutex = True

    def is_locked(self):
        return False

    def record(self):
        pass

    def uses(self):
        return dict.fromkeys(METHODS, "")

    def meet(self, gap, first, second):
        return None  # there is no gap
