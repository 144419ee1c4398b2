"""The exercises of lesson 04, one in each file, with their mistake banks."""

from lessons_exercises.lesson_04 import (
    block_attention,
    bytes_moved,
    combine_result,
    combine_segments,
    dispatch,
    forward_decoding_loop,
)

EXERCISES = (
    dispatch.EXERCISE,
    block_attention.EXERCISE,
    combine_result.EXERCISE,
    forward_decoding_loop.EXERCISE,
    combine_segments.EXERCISE,
    bytes_moved.EXERCISE,
)
