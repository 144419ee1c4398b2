"""The pictures of lesson 04: one decode step, its parts, and the bytes that it moves."""

from torch import Tensor

from lessons_content.lesson_04.pictures import decode
from lessons_lib.drawing import Picture, show

# The blocks of the lesson's three requests.
TABLES = [[5, 0, 7], [2], [6, 1]]


def opening() -> Picture:
    """A decode step for three requests: blocks, queries, parts, answers."""
    return show(
        decode.decode_step(TABLES, num_blocks=8),
        alt=(
            "A pool of eight blocks. The first request has blocks 5, 0 and 7, the second"
            " block 2, the third 6 and 1. Below each block is its request's query. Each pair"
            " gives a part o, m, l. The parts of a request, and the new token itself, lead to"
            " one answer."
        ),
    )


def queries_above_blocks(rows: dict[str, list[int]]) -> Picture:
    """Each row of queries above the blocks of the three requests.

    rows: a title, and the request of each query, in order.
    """
    return show(
        decode.queries_above_blocks(TABLES, rows),
        alt=(
            "Two rows of queries above the blocks 5, 0, 7, 2, 6, 1. The dispatch gives q1,"
            " q1, q1, q2, q3, q3, and each fits its block. Repeat gives q1, q2, q3, q1, q2,"
            " q3, and four of them are above another request's block."
        ),
    )


def block_scores(scores: Tensor, block_ids: Tensor, num_valid: Tensor) -> Picture:
    """The first request's scores, a row for each of its blocks.

    scores: (num_blocks, block_size).
    block_ids, num_valid: (num_blocks,).
    """
    title = "First request, query head 0"
    return show(
        decode.block_scores(scores, block_ids.tolist(), num_valid.tolist(), title),
        alt=(
            "A table of scores with a row for each of the blocks 5, 0 and 7, and a column"
            " for each of four slots. Ten slots hold a score. The last two slots of block 7"
            " are hatched: they hold no token."
        ),
    )


def adding_up(block_ids: Tensor, shares: Tensor, parts: Tensor, answer: Tensor) -> Picture:
    """How one number of the answer adds up from the blocks.

    block_ids, shares: (num_blocks,).
    parts: (num_blocks,), this number in each block's part.
    answer: this number in attention over all keys at once.
    """
    names = [f"block {block_id}" for block_id in block_ids.tolist()]
    return show(
        decode.adding_up(names, shares.tolist(), parts.tolist(), answer.item()),
        alt=(
            "Left, three bars: the share of the answer that blocks 5, 0 and 7 have. Right,"
            " three steps from 0, one for each block, as large as its share times its own"
            " answer. They end on the dashed line of attention over all keys."
        ),
    )


def bytes_per_step(gather: float, paged: float) -> Picture:
    """The MiB that gather-then-attend and paged attention move for one new token."""
    copied = (gather - paged) / 2  # each byte is read once and written once
    bars = {
        "gather-then-attend": {
            "read the blocks": copied,
            "write a copy": copied,
            "read the copy": paged,
        },
        "paged": {"read the blocks": paged},
    }
    return show(
        decode.bytes_per_step(bars, "One new token, 36 layers, 1,024 tokens of context"),
        alt=(
            "Two bars of bytes for each new token. Gather-then-attend: 144 MiB read from the"
            " blocks, 144 written to a copy, 144 read from the copy. Paged: 144 MiB read from"
            " the blocks."
        ),
    )
