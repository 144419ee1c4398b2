"""The exercises of lesson 05, one in each file, with their mistake banks."""

from lessons_exercises.lesson_05 import (
    append_tokens,
    build_metadata,
    bytes_gathered,
    cumulative_lengths,
    first_divergence,
    merge_heads,
    paged_attention,
    visible_keys,
)

EXERCISES = (
    cumulative_lengths.EXERCISE,
    append_tokens.EXERCISE,
    build_metadata.EXERCISE,
    visible_keys.EXERCISE,
    paged_attention.EXERCISE,
    bytes_gathered.EXERCISE,
    first_divergence.EXERCISE,
    merge_heads.EXERCISE,
)
