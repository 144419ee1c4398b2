"""Pictures of lesson 04: queries above blocks, scores of blocks, the sum of the parts."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle
from torch import Tensor

from lessons_lib.drawing import (
    EDGE,
    EMPTY,
    FREE,
    GREEN,
    QUIET,
    SEVERAL,
    SHARED,
    USED,
    WASTED,
    draw_arrow,
    draw_block,
    ink,
)

LABEL_SPACE = 3.2  # the width left of a row of blocks


def colour_of(request: int) -> str:
    return SEVERAL[request % len(SEVERAL)]


def owners_of(tables: list[list[int]]) -> list[int]:
    """The request of each block, one request after the other."""
    return [request for request, blocks in enumerate(tables) for _ in blocks]


def decode_step(tables: list[list[int]], num_blocks: int):
    """The lesson in one figure: the pool's blocks, a query and a part for each, an answer."""
    owners = owners_of(tables)
    ids = [block_id for blocks in tables for block_id in blocks]
    figure, axes = _canvas(
        max(num_blocks, len(ids)), 7.5, "One step of decoding, for three requests"
    )
    shift = (num_blocks - len(ids)) / 2
    for block_id in range(num_blocks):
        colour = colour_of(owners[ids.index(block_id)]) if block_id in ids else FREE
        draw_block(axes, block_id, 6.4, str(block_id), colour)
    for column, (owner, block_id) in enumerate(zip(owners, ids, strict=True)):
        middle = column + shift + 0.5
        draw_arrow(axes, (block_id + 0.5, 6.4), (middle, 5.4))
        draw_block(axes, column + shift, 4.4, str(block_id), colour_of(owner))
        draw_block(axes, column + shift, 3.4, f"q{owner + 1}", colour_of(owner))
        draw_arrow(axes, (middle, 3.4), (middle, 2.9))
        draw_block(axes, column + shift, 1.9, "o, m, l", colour_of(owner))
    for request in range(len(tables)):
        columns = [
            column + shift + 0.5 for column, owner in enumerate(owners) if owner == request
        ]
        for column in columns:
            draw_arrow(axes, (column, 1.9), (sum(columns) / len(columns), 1.1))
        draw_block(
            axes, sum(columns) / len(columns) - 0.5, 0.1, f"o{request + 1}", colour_of(request)
        )
    labels = {
        6.9: "the pool",
        4.9: "the blocks of each request,\nas its block table has them",
        3.9: "a query for each",
        2.4: "a part from each",
        0.6: "an answer from the parts\nand the new token itself",
    }
    for y, label in labels.items():
        axes.text(-0.3, y, label, ha="right", va="center", fontsize=10)
    return figure


def queries_above_blocks(tables: list[list[int]], rows: dict[str, list[int]]):
    """The queries of each row, above the blocks. A query in the wrong place is grey.

    rows: a title, and the request of each query, in order.
    """
    owners = owners_of(tables)
    ids = [block_id for blocks in tables for block_id in blocks]
    figure, axes = _canvas(len(ids), 1.2 * len(rows) + 1.4)
    for line, (title, queries) in enumerate(rows.items()):
        y = 1.4 + 1.2 * (len(rows) - 1 - line)
        for column, query in enumerate(queries):
            right = query == owners[column]
            draw_block(
                axes,
                column,
                y,
                f"q{query + 1}" + ("" if right else " ✗"),
                colour_of(query) if right else WASTED,
            )
        axes.text(-0.3, y + 0.5, title, ha="right", va="center", fontsize=10)
    for column, (owner, block_id) in enumerate(zip(owners, ids, strict=True)):
        draw_block(axes, column, 0.0, str(block_id), colour_of(owner))
    axes.text(-0.3, 0.5, "their blocks", ha="right", va="center", fontsize=10)
    return figure


def block_scores(scores: Tensor, block_ids: list[int], num_valid: list[int], title: str):
    """Scores, and each block's maximum. Slots without a token are hatched.

    scores: (num_blocks, block_size).
    """
    num_blocks, block_size = scores.shape
    figure, axes = plt.subplots(figsize=(7.2, 0.62 * num_blocks + 1.0), layout="constrained")
    shown = scores.clone()
    for row, count in enumerate(num_valid):
        shown[row, count:] = torch.nan
    limit = float(shown.nan_to_num(0.0).abs().max())
    image = axes.imshow(shown, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    for row, count in enumerate(num_valid):
        for slot in range(block_size):
            if slot < count:
                number = float(shown[row, slot])
                axes.text(
                    slot,
                    row,
                    f"{number:.2f}",
                    ha="center",
                    va="center",
                    fontsize=10,
                    color=ink(image.cmap(image.norm(number))),
                )
            else:
                axes.add_patch(
                    Rectangle(
                        (slot - 0.5, row - 0.5),
                        1,
                        1,
                        facecolor=FREE,
                        edgecolor=QUIET,
                        hatch=EMPTY,
                    )
                )
    axes.set_xticks(range(block_size))
    axes.set_yticks(range(num_blocks), [f"block {block_id}" for block_id in block_ids])
    axes.set_xlabel("slot in the block")
    axes.set_title(title, loc="left", fontsize=10)
    figure.colorbar(image, label="score")
    return figure


def adding_up(names: list[str], share: list[float], parts: list[float], answer: float):
    """Left: each part's share of the answer. Right: one number of the answer, part by part."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=[1, 1.5]
    )
    left.barh(names, share, color=USED, edgecolor=EDGE)
    for row, value in enumerate(share):
        left.text(value + 0.02, row, f"{100 * value:.0f} %", va="center", fontsize=10)
    left.invert_yaxis()
    left.set_xlim(0, 1)
    left.set_xlabel("share of the answer (all together: 1)")
    left.set_title("How much each part weighs", loc="left", fontsize=10)

    reached, levels = 0.0, [0.0, answer]
    for column, (weight, part) in enumerate(zip(share, parts, strict=True)):
        step = weight * part
        right.bar(
            column,
            step,
            bottom=reached,
            width=0.7,
            color=USED if step >= 0 else SHARED,
            edgecolor=EDGE,
        )
        right.plot(
            [column - 0.35, column + 1.35], [reached + step] * 2, color=EDGE, linewidth=1
        )
        above = max(reached, reached + step)
        right.annotate(
            f"{weight:.2f} × {part:+.2f}",
            (column, above),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
        reached += step
        levels.append(reached)
    right.axhline(0, color=EDGE, linewidth=0.8)
    right.axhline(
        answer,
        color="black",
        linestyle="--",
        linewidth=1.2,
        label=f"attention over all keys: {answer:.2f}",
    )
    space = max(levels) - min(levels)
    right.set_ylim(min(levels) - 0.1 * space, max(levels) + 0.3 * space)
    right.set_xlim(-0.6, len(names) - 0.1)
    right.set_xticks(range(len(names)), names)
    right.set_ylabel("value (no unit)")
    right.set_title("One number of o: blue adds, orange takes away", loc="left", fontsize=10)
    right.legend(loc="best", fontsize=9)
    return figure


def bytes_per_step(bars: dict[str, dict[str, float]], title: str):
    """A stacked bar of MiB for each way. A pass has the same colour in all bars.

    bars: for each way, the MiB of its passes.
    """
    figure, axes = plt.subplots(figsize=(8.5, 0.75 * len(bars) + 1.3), layout="constrained")
    passes = list(dict.fromkeys(name for parts in bars.values() for name in parts))
    colours = dict(zip(passes, (USED, SHARED, GREEN), strict=False))
    for row, parts in enumerate(bars.values()):
        start = 0.0
        for name, size in parts.items():
            axes.barh(row, size, left=start, color=colours[name], edgecolor=EDGE)
            axes.text(
                start + size / 2,
                row,
                f"{name}\n{size:.0f}",
                ha="center",
                va="center",
                fontsize=9,
            )
            start += size
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlabel("MiB moved in one step")
    axes.set_title(title, loc="left", fontsize=10)
    return figure


def _canvas(columns: float, height: float, title: str = ""):
    figure, axes = plt.subplots(
        figsize=(min(9.0, 0.75 * (columns + LABEL_SPACE)), 0.62 * height), layout="constrained"
    )
    axes.set_xlim(-LABEL_SPACE, columns + 0.1)
    axes.set_ylim(-0.1, height)
    axes.axis("off")
    if title:
        axes.set_title(title, loc="left", fontsize=11)
    return figure, axes
