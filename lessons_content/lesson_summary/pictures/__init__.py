"""The picture of the summary."""

from lessons_content.lesson_summary.pictures.course import whole
from lessons_lib.drawing import Picture, show


def opening() -> Picture:
    """One sequence's way through everything that the lessons build."""
    return show(
        whole([5, 0, 7], num_tokens=10, num_blocks=8),
        alt=(
            "From top to bottom. Ten tokens of A in three logical blocks of four slots, the"
            " last two slots empty. The block table with 5, 0, 7 and −1. The pool of eight"
            " blocks, to which arrows lead from the table; blocks 1, 2 and 4 are B's, 3 and 6"
            " are free. Below each of the blocks 0, 5 and 7 is its part (o, m, l). All three"
            " go into combine_result, from there through the rest of the model to the next"
            " token."
        ),
    )
