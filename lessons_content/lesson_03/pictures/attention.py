"""Pictures of lesson 03: requests in blocks, visible keys, and the online softmax in steps."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from lessons_lib.drawing import (
    EDGE,
    FREE,
    SEVERAL,
    SHARED,
    USED,
    WASTED,
    draw_block,
    empty_hatch,
)


def requests_in_blocks(lengths: list[int], block_size: int):
    """x as a row of blocks: a square for each slot, with its token's number, or hatched."""
    request_num_blocks = [-(-length // block_size) for length in lengths]
    figure, axes = _strip(sum(request_num_blocks), block_size)
    start = 0
    for number, (length, num_blocks) in enumerate(
        zip(lengths, request_num_blocks, strict=True)
    ):
        for slot in range(num_blocks * block_size):
            token = slot < length
            draw_block(
                axes,
                start * block_size + slot,
                0,
                str(slot) if token else "",
                SEVERAL[number % len(SEVERAL)] if token else WASTED,
            )
        _bracket(
            axes,
            start * block_size,
            num_blocks * block_size,
            f"request {number}\n"
            f"{length} tokens, {num_blocks} block{'s' if num_blocks > 1 else ''}",
        )
        start += num_blocks
    axes.set_title(
        "x: every block of every request, one after the other (hatched: no token)",
        loc="left",
        fontsize=10,
    )
    return figure


def into_the_pool(block_ids: list[list[int]], num_blocks: int):
    """x above, the pool below, and an arrow from each block of x to its block of the pool.

    block_ids: for each request, the ids of its blocks.
    """
    figure, axes = plt.subplots(figsize=(8.8, 3.1), layout="constrained")
    for block_id in {*range(num_blocks)}.difference(*block_ids):
        draw_block(axes, block_id, 0, str(block_id), FREE)
    place = left = (num_blocks - sum(map(len, block_ids))) / 2
    for number, mine in enumerate(block_ids):
        colour = SEVERAL[number % len(SEVERAL)]
        for index, block_id in enumerate(mine):
            draw_block(axes, place, 2.4, f"{number}.{index}", colour)
            draw_block(axes, block_id, 0, str(block_id), colour)
            axes.annotate(
                "",
                (block_id + 0.5, 1.05),
                (place + 0.5, 2.35),
                arrowprops={"arrowstyle": "->", "color": EDGE},
            )
            place += 1
    axes.text(left - 0.2, 2.9, "x: request.block", ha="right", va="center", fontsize=10)
    axes.text(num_blocks / 2, -0.15, "the pool: block id", ha="center", va="top", fontsize=10)
    axes.set_xlim(-0.7, num_blocks + 0.1)
    axes.set_ylim(-0.6, 3.5)
    axes.set_aspect("equal", anchor="W")
    axes.axis("off")
    axes.set_title(
        "Side by side in x, anywhere in the pool (empty: free)", loc="left", fontsize=10
    )
    return figure


def changed_tokens(
    change, lengths: list[int], request_num_blocks: list[int], touched: tuple[int, int]
):
    """Two rows of slots: where x was changed, and where the output differs.

    change: bool (total_blocks, block_size).
    touched: the block and slot of x that was changed.
    """
    total_blocks, block_size = change.shape
    figure, axes = _strip(total_blocks, block_size, rows=2)
    start = 0
    for number, (length, num_blocks) in enumerate(
        zip(lengths, request_num_blocks, strict=True)
    ):
        for slot in range(num_blocks * block_size):
            block, offset = start + slot // block_size, slot % block_size
            empty = WASTED if slot >= length else FREE
            place = start * block_size + slot
            draw_block(
                axes,
                place,
                1.4,
                "x" if (block, offset) == touched else "",
                SHARED if (block, offset) == touched else empty,
            )
            draw_block(
                axes,
                place,
                0,
                "≠" if change[block, offset] else "",
                USED if change[block, offset] else empty,
            )
        _bracket(axes, start * block_size, num_blocks * block_size, f"request {number}")
        start += num_blocks
    for y, text in ((1.9, "input"), (0.5, "output")):
        axes.text(-0.3, y, text, ha="right", va="center", fontsize=10)
    axes.set_title(
        "One token of the input is changed (x); where is the output not the same (≠)?",
        loc="left",
        fontsize=10,
    )
    return figure


def visible_keys(length: int, block_size: int):
    """The mask of one request: a row for each query slot, a column for each key slot."""
    slots = -(-length // block_size) * block_size
    figure, axes = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
    for query in range(slots):
        for key in range(slots):
            behind = query >= length or key >= length
            colour = WASTED if behind else USED if key <= query else FREE
            axes.add_patch(
                Rectangle(
                    (key, query),
                    1,
                    1,
                    facecolor=colour,
                    edgecolor="#888888",
                    linewidth=0.5,
                    hatch=empty_hatch(colour),
                )
            )
            if colour == USED:
                axes.text(key + 0.5, query + 0.5, "•", ha="center", va="center", fontsize=9)
    _blocks_on_both_axes(axes, slots, block_size)
    axes.set_xticks([slot + 0.5 for slot in range(slots)], range(slots), fontsize=8)
    axes.set_yticks([slot + 0.5 for slot in range(slots)], range(slots), fontsize=8)
    axes.set_xlabel("key (position in the request)")
    axes.set_ylabel("query (position in the request)")
    axes.set_title(
        f"Which query sees which key: {length} tokens in blocks of {block_size}",
        loc="left",
        fontsize=10,
    )
    _legend(
        axes,
        [
            (USED, "visible (•)"),
            (FREE, "hidden: the future"),
            (WASTED, "no token: past the end"),
        ],
    )
    return figure


def tiles(num_blocks: int):
    """The same mask as pairs of blocks, in the order in which the tiled backend takes them."""
    figure, axes = plt.subplots(figsize=(6.6, 3.6), layout="constrained")
    turn = 0
    for query in range(num_blocks):
        for key in range(num_blocks):
            colour = FREE if key > query else SHARED if key == query else USED
            axes.add_patch(
                Rectangle(
                    (key, query), 1, 1, facecolor=colour, edgecolor=EDGE, hatch=_hatch(colour)
                )
            )
            if key <= query:
                turn += 1
                axes.text(
                    key + 0.5,
                    query + 0.5,
                    str(turn),
                    ha="center",
                    va="center",
                    fontsize=10,
                    bbox=(
                        {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                        if key == query
                        else None
                    ),
                )
    _blocks_on_both_axes(axes, num_blocks, 1)
    axes.set_xticks([block + 0.5 for block in range(num_blocks)], range(num_blocks))
    axes.set_yticks([block + 0.5 for block in range(num_blocks)], range(num_blocks))
    axes.set_xlabel("block of keys, j")
    axes.set_ylabel("block of queries, i")
    axes.set_title(
        f"{num_blocks} blocks: {turn} pairs are computed, in this order",
        loc="left",
        fontsize=10,
    )
    _legend(
        axes,
        [
            (USED, "every key is visible"),
            (SHARED, "the diagonal: masked inside"),
            (FREE, "never computed"),
        ],
    )
    return figure


def recurrence(steps: list[tuple[float, float, float]], goal: tuple[float, float, float]):
    """m, l and the output after each part of a row.

    A dashed line is the softmax over the row.
    """
    figure, panels = plt.subplots(1, 3, figsize=(8.6, 2.9), layout="constrained")
    parts = range(1, len(steps) + 1)
    titles = (
        "m: largest score so far",
        "l: sum of exp(score − m)",
        "o: output so far, acc / l",
    )
    for axes, title, numbers, end in zip(panels, titles, zip(*steps), goal, strict=True):
        axes.axhline(
            end, color=EDGE, linestyle="--", linewidth=1, label="softmax over the whole row"
        )
        axes.plot(parts, numbers, color="#0072b2", marker="o", label="after each part")
        for part, number in zip(parts, numbers, strict=True):
            axes.annotate(
                f"{number:.2f}",
                (part, number),
                textcoords="offset points",
                xytext=(-3, 6),
                ha="right",
                fontsize=8,
            )
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xticks(parts)
        axes.set_xlabel("parts seen")
        axes.set_ylim(0, 1.3 * max(*numbers, end))
        axes.set_xlim(0.4, len(steps) + 0.4)
    panels[0].set_ylabel("value (no unit)")
    panels[0].legend(fontsize=8, loc="lower right")
    return figure


def _strip(total_blocks: int, block_size: int, rows: int = 1):
    """Axes for a row of blocks, with a thick line around each."""
    width = total_blocks * block_size
    height = 1.4 * rows - 0.4
    figure, axes = plt.subplots(
        figsize=(8.8, 8.8 * (height + 2.7) / (width + 1)), layout="constrained"
    )
    for row in range(rows):
        for block in range(total_blocks):
            axes.add_patch(
                Rectangle(
                    (block * block_size, 1.4 * row),
                    block_size,
                    1,
                    facecolor="none",
                    edgecolor=EDGE,
                    linewidth=2.5,
                    zorder=3,
                )
            )
    axes.set_xlim(-1.6 if rows > 1 else -0.1, width + 0.1)
    axes.set_ylim(-1.9 if rows == 1 else -1.3, height + 0.1)
    axes.set_aspect("equal", anchor="W")
    axes.axis("off")
    return figure, axes


def _bracket(axes, start: float, width: float, text: str) -> None:
    axes.plot(
        [start + 0.1, start + 0.1, start + width - 0.1, start + width - 0.1],
        [-0.2, -0.45, -0.45, -0.2],
        color=EDGE,
        linewidth=1,
    )
    axes.text(start + width / 2, -0.6, text, ha="center", va="top", fontsize=9)


def _blocks_on_both_axes(axes, size: int, block_size: int) -> None:
    """A square from 0 to size, rows downwards, with thick lines around pairs of blocks."""
    axes.set_xlim(0, size)
    axes.set_ylim(size, 0)
    axes.set_aspect("equal")
    for edge in range(0, size + 1, block_size):
        axes.axhline(edge, color=EDGE, linewidth=1.8)
        axes.axvline(edge, color=EDGE, linewidth=1.8)


def _hatch(colour: str) -> str | None:
    """The hatch of a pair of blocks, or of its entry in the legend.

    Pairs on the diagonal have one too.
    """
    return "\\\\" if colour == SHARED else empty_hatch(colour)


def _legend(axes, entries: list[tuple[str, str]]) -> None:
    handles = [
        Patch(facecolor=colour, edgecolor=EDGE, hatch=_hatch(colour), label=text)
        for colour, text in entries
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.03, 1.0),
        fontsize=9,
        frameon=False,
    )
