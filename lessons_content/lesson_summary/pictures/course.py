"""The picture of the summary: one sequence's way through everything that the lessons build."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from lessons_lib.drawing import EDGE, EMPTY, FREE, GREEN, SHARED, USED, draw_arrow

BLOCK_SIZE = 4


def whole(block_ids: list[int], num_tokens: int, num_blocks: int):
    """Sequence A's tokens, its block table, the pool, each block's part, and the next token.

    Blocks that are not A's belong to a sequence B (ids 1, 2, 4, …) or are free (ids 3, 6, …).
    """
    figure, axes = plt.subplots(figsize=(8.8, 4.5), layout="constrained")
    _tokens(axes, num_tokens, len(block_ids))
    for index, block_id in enumerate([*block_ids, -1]):
        _cell(
            axes,
            2.1 * index,
            4.6,
            1.9,
            0.6,
            str(block_id).replace("-", "−"),
            FREE if block_id < 0 else USED,
        )
    for block_id in range(num_blocks):
        if block_id in block_ids:
            whose, colour = "A", USED
        elif block_id % 3:
            whose, colour = "B", GREEN
        else:
            whose, colour = "free", FREE
        _cell(axes, 1.3 * block_id, 2.9, 1.2, 0.7, f"block {block_id}\n{whose}", colour)
    for index, block_id in enumerate(block_ids):
        draw_arrow(axes, (2.1 * index + 0.95, 4.6), (1.3 * block_id + 0.6, 3.6))
    for index, block_id in enumerate(sorted(block_ids)):
        draw_arrow(axes, (1.3 * block_id + 0.6, 2.9), (1.3 * block_id + 0.6, 2.3))
        _box(axes, 1.3 * block_id, 1.75, 1.2, 0.55, "(o, m, l)", SHARED)
        draw_arrow(axes, (1.3 * block_id + 0.6, 1.75), (3.6 + 0.4 * index, 1.1))
    _box(axes, 2.6, 0.5, 2.9, 0.6, "combine_result", SHARED)
    draw_arrow(axes, (5.5, 0.8), (6.3, 0.8))
    _box(axes, 6.3, 0.5, 3.0, 0.6, "the rest of the model", FREE)
    draw_arrow(axes, (9.3, 0.8), (10.6, 0.8))
    axes.text(10.7, 0.8, "next token", fontsize=9.5, va="center", weight="bold")
    _labels(axes)
    axes.set(xlim=(-3.6, 13.2), ylim=(0.3, 6.5))
    axes.axis("off")
    return figure


def _tokens(axes, num_tokens: int, num_logical_blocks: int) -> None:
    """The slots of the sequence in order, with gaps between blocks. Empty ones are hatched."""
    for position in range(num_logical_blocks * BLOCK_SIZE):
        x = 2.1 * (position // BLOCK_SIZE) + 0.475 * (position % BLOCK_SIZE)
        taken = position < num_tokens
        axes.add_patch(
            Rectangle(
                (x, 5.75),
                0.475,
                0.5,
                facecolor=USED if taken else FREE,
                edgecolor=EDGE,
                linewidth=0.8,
                hatch=None if taken else EMPTY,
            )
        )
        if taken:
            axes.text(x + 0.24, 6.0, position, ha="center", va="center", fontsize=8)
    for index in range(num_logical_blocks):
        draw_arrow(axes, (2.1 * index + 0.95, 5.75), (2.1 * index + 0.95, 5.2))


def _labels(axes) -> None:
    """Each row's name, and the lessons that build it, at its left."""
    for y, name, lessons in (
        (6.0, "tokens of A", "lesson 00"),
        (4.9, "block table", "lessons 02, 05"),
        (3.25, "the pool", "lessons 01, 02"),
        (2.02, "a part for each block", "lessons 03, 04, 06"),
        (0.8, "one output", "lessons 04, 07, 08"),
    ):
        axes.text(-3.5, y + 0.13, name, fontsize=10, va="center", weight="bold")
        axes.text(-3.5, y - 0.2, lessons, fontsize=8.5, va="center")


def _cell(
    axes, x: float, y: float, width: float, height: float, text: str, colour: str
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=EDGE))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


def _box(
    axes, x: float, y: float, width: float, height: float, text: str, colour: str
) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=colour,
            edgecolor=EDGE,
        )
    )
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)
