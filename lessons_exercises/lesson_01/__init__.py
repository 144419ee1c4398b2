"""The exercises of lesson 01, one in each file, with their mistake banks."""

from lessons_exercises.lesson_01 import (
    copy_on_write,
    fork,
    free_list,
    python_errors,
    reference_counts,
    thread_safety,
)

EXERCISES = (
    free_list.EXERCISE,
    reference_counts.EXERCISE,
    thread_safety.EXERCISE,
    python_errors.EXERCISE,
    fork.EXERCISE,
    copy_on_write.EXERCISE,
)
