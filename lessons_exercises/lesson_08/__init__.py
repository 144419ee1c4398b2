"""The exercises of lesson 08, one in each file, with their mistake banks."""

from lessons_exercises.lesson_08 import (
    attention,
    block_hashes,
    flatten,
    postprocess,
    preempt,
    sample,
    schedule,
    start,
)

EXERCISES = (
    attention.EXERCISE,
    flatten.EXERCISE,
    schedule.EXERCISE,
    preempt.EXERCISE,
    block_hashes.EXERCISE,
    start.EXERCISE,
    sample.EXERCISE,
    postprocess.EXERCISE,
)
