"""The pictures of lesson 03: prompts in blocks, masks, and the online softmax in steps."""

from torch import Tensor

from lessons_content.lesson_03.pictures import attention
from lessons_lib.drawing import Picture, show


def opening() -> Picture:
    """Three prompts of 6, 4 and 9 tokens in blocks of 4, one after the other."""
    return show(
        attention.requests_in_blocks([6, 4, 9], block_size=4),
        alt=(
            "A row of six blocks of four slots. Request 0 has six tokens in two blocks,"
            " request 1 four tokens in one, request 2 nine tokens in three. Five slots are"
            " hatched: they hold no token."
        ),
    )


def visible_keys(length: int, block_size: int) -> Picture:
    """Which query of one request sees which key."""
    return show(
        attention.visible_keys(length, block_size),
        alt=(
            "A square of eight by eight slots, queries down, keys across. Each of six"
            " queries sees the keys up to itself. The future is empty, the slots past the end"
            " are hatched."
        ),
    )


def online_softmax(
    steps: list[tuple[float, float, float]], goal: tuple[float, float, float]
) -> Picture:
    """m, l and the output after each part of a row, and for the whole row."""
    return show(
        attention.recurrence(steps, goal),
        alt=(
            "Three plots of m, l and o after one, two and three parts. Each ends exactly on"
            " a dashed line, which is the softmax over the whole row."
        ),
    )


def tiles(num_blocks: int) -> Picture:
    """The pairs of blocks of one request, in the order in which they are computed."""
    return show(
        attention.tiles(num_blocks),
        alt=(
            "Four by four pairs of blocks. Below the diagonal six pairs are fully visible."
            " The four on the diagonal are masked inside. The six above it are never"
            " computed."
        ),
    )


def into_the_pool(block_ids: list[list[int]], num_blocks: int) -> Picture:
    """The place of each block of x in the pool.

    block_ids: for each request, the ids of its blocks.
    num_blocks: of the pool.
    """
    return show(
        attention.into_the_pool(block_ids, num_blocks),
        alt=(
            "Above, the six blocks of x, side by side. An arrow leads from each to a block"
            " of the pool below, out of order, with free blocks between them."
        ),
    )


def changed_tokens(
    change: Tensor,
    lengths: list[int],
    request_num_blocks: list[int],
    touched: tuple[int, int],
) -> Picture:
    """The places where the output differs after one token of x was changed.

    change: bool (total_blocks, block_size).
    touched: the block and slot of x that was changed.
    """
    return show(
        attention.changed_tokens(change, lengths, request_num_blocks, touched),
        alt=(
            "Two rows of slots, input and output. In the input one slot of request 1 is"
            " marked. In the output that slot and the two after it in the same request"
            " differ, and no other."
        ),
    )
