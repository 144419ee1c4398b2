"""The exercises of lesson 02, one in each file, with their mistake banks."""

from lessons_exercises.lesson_02 import (
    add_sequence,
    append_token,
    fork_sequence,
    free_sequence,
    pieces,
    slot_mapping,
    write_kv,
)

EXERCISES = (
    pieces.EXERCISE,
    slot_mapping.EXERCISE,
    write_kv.EXERCISE,
    add_sequence.EXERCISE,
    append_token.EXERCISE,
    fork_sequence.EXERCISE,
    free_sequence.EXERCISE,
)
