"""The exercises of lesson 03, one in each file, with their mistake banks."""

from lessons_exercises.lesson_03 import (
    forward_prefill,
    merge,
    plain_attention,
    softmax_state,
    tiled_attention,
)

EXERCISES = (
    plain_attention.EXERCISE,
    softmax_state.EXERCISE,
    merge.EXERCISE,
    tiled_attention.EXERCISE,
    forward_prefill.EXERCISE,
)
