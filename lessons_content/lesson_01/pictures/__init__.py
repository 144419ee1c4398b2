"""The pictures of lesson 01: a pool of blocks, one row after each step.

steps: for each row what was done, the reference count of each block, and perhaps the texts of
    the blocks.
"""

from lessons_content.lesson_01.pictures.live_pool import LivePool
from lessons_lib.drawing import Picture, pool_steps, show

__all__ = ["LivePool", "copy_on_write", "opening"]


def opening() -> Picture:
    """Two sequences come, the first is forked, the second leaves."""
    return show(
        pool_steps(
            [
                (
                    "Two sequences have come: one took three blocks, one took two",
                    [1, 1, 1, 1, 1, 0, 0, 0],
                ),
                (
                    "The first was forked: two sequences now share its three blocks",
                    [2, 2, 2, 1, 1, 0, 0, 0],
                ),
                (
                    "The second sequence has left: its two blocks are free again",
                    [2, 2, 2, 0, 0, 0, 0, 0],
                ),
            ]
        ),
        alt=(
            "A pool of eight blocks in three rows. First blocks 0 to 4 are used once. Then"
            " blocks 0 to 2 are used twice. Then blocks 3 and 4 are free again."
        ),
    )


def copy_on_write(steps: list[tuple]) -> Picture:
    """Two sequences share their letters, and then continue differently."""
    return show(
        pool_steps(steps),
        alt=(
            "Six blocks in four rows. The text fills three blocks. After the fork each has two"
            " users. After our write a fourth block holds a copy of the last one with the"
            " letter t added. After their write the old last block holds their ending."
        ),
    )
