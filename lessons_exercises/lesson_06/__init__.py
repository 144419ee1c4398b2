"""The exercises of lesson 06, one in each file, with their mistake banks."""

from lessons_exercises.lesson_06 import (
    block_reduce,
    bug_hunt,
    launcher,
    paged_address,
    scores,
    validation,
    values,
    vector_add,
)

EXERCISES = (
    vector_add.EXERCISE,
    paged_address.EXERCISE,
    block_reduce.EXERCISE,
    scores.EXERCISE,
    values.EXERCISE,
    launcher.EXERCISE,
    validation.EXERCISE,
    bug_hunt.EXERCISE,
)
