"""Lesson 11's pictures: a layer over two ranks, and the cost of an exchange."""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from lessons_lib.drawing import EDGE, FREE, GREEN, LINES, QUIET, SHARED, USED, WASTED, YELLOW

RANKS = (USED, SHARED)
ADDED = YELLOW
# Each step of a layer on a rank: its text, and whether the ranks then add up.
STEPS = (
    ("q, k, v: some of the rows", False),
    ("attention, pool: some heads", False),
    ("o: some of the columns", True),
    ("gate, up: some of the rows", False),
    ("down: some of the columns", True),
)


def layer_over_ranks():
    """A figure of one layer: a column of boxes for each rank, and a bar where they add up."""
    figure, axes = plt.subplots(figsize=(8.2, 3.7), layout="constrained")
    top, width = 7.4, 4.5
    for rank in range(len(RANKS)):
        middle = rank * (width + 0.3) + width / 2
        axes.text(middle, top + 0.25, f"rank {rank}", ha="center", fontsize=11)
    for words, adds in STEPS:
        top -= 1.05
        for rank, colour in enumerate(RANKS):
            box(axes, rank * (width + 0.3), top, width, 0.9, words, colour)
        if adds:
            top -= 1.05
            words = "add up the ranks' results (all-reduce)"
            box(axes, 0, top, 2 * width + 0.3, 0.9, words, ADDED)
    axes.text(0, top - 0.45, "… and the next layer", fontsize=9.5, color=QUIET)
    axes.set(xlim=(-0.1, 2 * width + 0.5), ylim=(-0.6, 8.2))
    axes.axis("off")
    return figure


def two_cuts():
    """A figure of a product with a weight that is cut by rows, and by columns."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 2.7), layout="constrained")
    titles = (
        "By rows: each rank gives some of the results",
        "By columns: each rank gives a part of each result",
    )
    for by_columns, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for row in range(4):
            for column in range(6):
                rank = column // 3 if by_columns else row // 2
                _square(axes, column, row, RANKS[rank])
            if by_columns:
                _square(axes, 7, row, RANKS[0])
                axes.text(8.5, row + 0.5, "+", ha="center", va="center", fontsize=12)
                _square(axes, 9, row, RANKS[1])
            else:
                _square(axes, 7, row, RANKS[row // 2])
        for column in range(6):
            _square(axes, column, -1.6, RANKS[column // 3] if by_columns else FREE)
        axes.text(3, -1.75, "input", ha="center", va="bottom", fontsize=9)
        axes.text(3, 4.15, "weight", ha="center", va="top", fontsize=9)
        axes.text(
            8.5 if by_columns else 7.5, 4.15, "result", ha="center", va="top", fontsize=9
        )
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(xlim=(-0.1, 12.5), ylim=(4.9, -2.5))
        axes.set_aspect("equal", anchor="W")
        axes.axis("off")
    kinds = [
        Patch(facecolor=colour, edgecolor=EDGE, label=label)
        for colour, label in ((FREE, "all ranks"), (RANKS[0], "rank 0"), (RANKS[1], "rank 1"))
    ]
    figure.legend(handles=kinds, loc="outside lower left", ncols=3, fontsize=9)
    return figure


def cut_layer(
    shapes: dict[str, tuple[int, int]],
    kept: Callable[[str, tuple[int, int], int, int], tuple[slice, slice]],
    world_size: int,
):
    """A figure of a layer's weights, each with the parts that the ranks keep.

    shapes: (out_features, in_features) of each weight, by name.
    kept: exercise 11.1's function.
    """
    figure, axes = plt.subplots(figsize=(9, 3.1), layout="constrained")
    largest = max(max(shape) for shape in shapes.values())
    left = 0.0
    for layer, shape in shapes.items():
        height, width = (1.0 * size / largest for size in shape)
        axes.add_patch(Rectangle((left, 0), width, height, facecolor=FREE, edgecolor=EDGE))
        for rank in range(world_size):
            parts = kept(layer, shape, rank, world_size)
            (top, bottom), (first, last) = (
                [place / largest for place in part.indices(size)[:2]]
                for part, size in zip(parts, shape, strict=True)
            )
            axes.add_patch(
                Rectangle(
                    (left + first, top),
                    last - first,
                    bottom - top,
                    facecolor=RANKS[rank],
                    edgecolor=EDGE,
                )
            )
        words = f"{layer}\n{shape[0]:,}\n× {shape[1]:,}"
        axes.text(left, -0.05, words, va="bottom", fontsize=9)
        left += max(width, 0.42) + 0.18
    axes.set(xlim=(-0.02, left), ylim=(1.02, -0.42))
    axes.set_aspect("equal", anchor="W")
    axes.axis("off")
    kinds = [
        Patch(facecolor=RANKS[rank], edgecolor=EDGE, label=f"rank {rank}")
        for rank in range(world_size)
    ]
    figure.legend(handles=kinds, loc="outside lower left", ncols=world_size, fontsize=9)
    return figure


def bytes_of_a_layer(read: dict[str, float], sent: float, title: str):
    """A figure of the megabytes that a rank reads in a layer, and that it exchanges."""
    figure, axes = plt.subplots(figsize=(9, 2.3), layout="constrained")
    left = 0.0
    for (what, size), colour in zip(read.items(), (USED, GREEN), strict=False):
        axes.barh(1, size, left=left, color=colour, edgecolor=EDGE, label=what)
        left += size
    axes.barh(0, sent, color=ADDED, edgecolor=EDGE, label="sums to exchange")
    axes.text(sent + left / 100, 0, f"{sent:.1f} MB", va="center", fontsize=9)
    axes.text(left * 1.01, 1, f"{left:,.0f} MB", va="center", fontsize=9)
    axes.set(yticks=[1, 0], yticklabels=["reads", "exchanges"], xlim=(0, left * 1.12))
    axes.set_xlabel("megabytes for each rank and layer")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["right", "top"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def gains(microseconds: Sequence[float], lines: dict[str, Sequence[float]]):
    """A figure of the gain in speed from two ranks, by the time of one sum.

    lines: for each batch, the gain at each of `microseconds`.
    """
    figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    axes.axhline(2, color=WASTED, ls="--")
    axes.text(microseconds[-1], 2.02, "twice as fast", ha="right", va="bottom", fontsize=9)
    for (name, values), colour, style in zip(
        lines.items(), LINES[1:], ("-", "--"), strict=False
    ):
        axes.plot(microseconds, values, style, color=colour, label=name)
    axes.set(xlim=(0, microseconds[-1]), ylim=(1, 2.2))
    axes.set_xlabel("microseconds for one sum over the ranks")
    axes.set_ylabel("times as fast as one")
    axes.set_title("Two GPUs, by the count above", loc="left", fontsize=10)
    axes.spines[["right", "top"]].set_visible(False)
    axes.legend(loc="lower left", fontsize=9, frameon=False)
    return figure


def _square(axes, x: float, y: float, colour) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=EDGE))


def box(axes, x: float, y: float, width: float, height: float, text: str, colour) -> None:
    """Draws a box with a text in its middle."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=EDGE))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5)
