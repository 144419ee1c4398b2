"""Pictures of a warp at work in lesson 07: a matrix product's lanes, stages, and banks."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from lessons_lib.drawing import EDGE, FREE, SEVERAL, SHARED, USED

SMALL = "₀₁₂₃"  # a register's number, next to the chosen lane
CHOSEN_LANE = 9  # r = 2, s = 1


def lanes():
    """Which lane holds which numbers of a tensor core's matrices. One lane is marked."""
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    # (lane, register) to the row and column of its first number. The second number is to its
    # right; in b it is below it.
    a = {
        (lane, i): (lane // 4 + i % 2 * 8, lane % 4 * 2 + i // 2 * 8)
        for lane in range(32)
        for i in range(4)
    }
    b = {(lane, i): (lane % 4 * 2 + i * 8, lane // 4) for lane in range(32) for i in range(2)}
    c = {(lane, i): (lane // 4 + i * 8, lane % 4 * 2) for lane in range(32) for i in range(2)}
    for left, title, pairs, across in (
        (0, "a: 16 tokens × 16 dims", a, True),
        (19, "b: 16 dims × 8 queries", b, False),
        (30, "c: 16 tokens × 8 queries", c, True),
    ):
        axes.text(left, -0.8, title, fontsize=10)
        width, height = (2, 1) if across else (1, 2)
        for (lane, register), (row, column) in pairs.items():
            mine = lane == CHOSEN_LANE
            axes.add_patch(
                Rectangle(
                    (left + column, row),
                    width,
                    height,
                    edgecolor="#999999",
                    linewidth=0.6,
                    facecolor=SEVERAL[register] if mine else FREE,
                )
            )
            text = f"{lane}{SMALL[register]}" if mine else lane
            axes.text(
                left + column + width / 2,
                row + height / 2,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color="black" if mine else "#555555",
                weight="bold" if mine else "normal",
            )
    axes.text(17.5, 8, "×", ha="center", va="center", fontsize=16)
    axes.text(28.5, 8, "→", ha="center", va="center", fontsize=16)
    kinds = [
        Patch(
            facecolor=SEVERAL[i],
            edgecolor=EDGE,
            label=f"{CHOSEN_LANE}{SMALL[i]}: lane {CHOSEN_LANE}'s register {i}",
        )
        for i in range(4)
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=4, fontsize=9)
    _bare(axes, 38.2, 16.2, top=-1.9)
    return figure


def stages(num_stages: int, num_tiles: int, latency: int = 3):
    """Which tile is on its way into which stage, and when each stage is used.

    latency: of a copy, in rounds of the loop.
    """
    figure, axes = plt.subplots(figsize=(9, 0.55 * num_stages + 1.5), layout="constrained")
    for tile in range(num_tiles):
        stage = tile % num_stages
        asked = max(0, tile - num_stages) + (tile >= num_stages)
        used = tile
        if tile < num_stages:
            asked = -latency
        there = min(used, asked + latency)
        _stretch(axes, stage, asked, there, SHARED, f"{tile}", "///")
        _stretch(axes, stage, there, used, FREE, "", None)
        _stretch(axes, stage, used, used + 1, USED, f"{tile}", None)
    axes.set_yticks(
        [stage + 0.5 for stage in range(num_stages)],
        [f"stage {stage}" for stage in range(num_stages)],
    )
    axes.set_ylim(num_stages, 0)
    axes.set_xlim(-latency, num_tiles)
    axes.set_xticks(
        range(-latency, num_tiles + 1),
        [str(turn) if turn >= 0 else "" for turn in range(-latency, num_tiles + 1)],
    )
    axes.set_xlabel("time, in turns of the loop; before 0 nothing can be used yet")
    axes.spines[["top", "right"]].set_visible(False)
    kinds = [
        Patch(facecolor=SHARED, edgecolor=EDGE, hatch="///", label="on its way"),
        Patch(facecolor=FREE, edgecolor=EDGE, label="there, waiting"),
        Patch(facecolor=USED, edgecolor=EDGE, label="used"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def banks(panels: list[tuple[str, list[int]]]):
    """Which of the eight groups of banks each lane uses.

    panels: (title, the place of each of eight lanes) each.
    """
    figure, plots = plt.subplots(
        1, len(panels), figsize=(9, 3.2), layout="constrained", squeeze=False
    )
    for axes, (title, places) in zip(plots[0], panels, strict=True):
        groups = [place % 8 for place in places]
        for lane, group in enumerate(groups):
            for column in range(8):
                alone = groups.count(group) == 1
                colour = FREE if column != group else USED if alone else SHARED
                axes.add_patch(
                    Rectangle(
                        (column, lane),
                        1,
                        1,
                        facecolor=colour,
                        edgecolor="#999999",
                        linewidth=0.6,
                        hatch="///" if column == group and not alone else None,
                    )
                )
        rounds = max(map(groups.count, groups))
        axes.set_title(f"{title}: {rounds} round{'s' * (rounds > 1)}", fontsize=10)
        axes.set_xticks([i + 0.5 for i in range(8)], range(8))
        axes.set_yticks([i + 0.5 for i in range(8)], range(8))
        axes.set_xlabel("group of four banks (16 bytes)", fontsize=9)
        axes.set_ylabel("lane", fontsize=9)
        axes.set_xlim(0, 8)
        axes.set_ylim(8, 0)
        axes.tick_params(length=0)
        axes.set_aspect("equal")
    return figure


def _stretch(
    axes, stage: int, start: float, end: float, colour: str, text: str, hatch: str | None
) -> None:
    if end <= start:
        return
    axes.add_patch(
        Rectangle(
            (start, stage + 0.1),
            end - start,
            0.8,
            facecolor=colour,
            edgecolor=EDGE,
            hatch=hatch,
        )
    )
    if text:
        axes.text(
            (start + end) / 2,
            stage + 0.5,
            text,
            ha="center",
            va="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0} if hatch else None,
        )


def _bare(axes, right: float, bottom: float, top: float) -> None:
    axes.set_xlim(-0.2, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.axis("off")
