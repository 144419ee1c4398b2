"""Pictures of lesson 06: a launch's grid, writes and reads of threads, shuffles in a warp."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from lessons_lib.drawing import EDGE, FREE, LINES, SHARED, USED, draw_block


def opening():
    """The opening picture: the grid, one block of threads, the block table and the pool."""
    figure, (grid, threads, pool) = plt.subplots(
        1, 3, figsize=(9, 2.75), width_ratios=[6.6, 9.2, 8.2], layout="constrained"
    )
    for seq in range(3):
        for head in range(6):
            chosen = (seq, head) == (1, 4)
            grid.add_patch(
                Rectangle(
                    (head + 0.08, seq + 0.08),
                    0.84,
                    0.84,
                    facecolor=SHARED if chosen else USED,
                    edgecolor=EDGE,
                    linewidth=2.6 if chosen else 1,
                )
            )
    for head in range(6):
        grid.text(head + 0.5, -0.1, head, ha="center", va="bottom", fontsize=9)
    for seq in range(3):
        grid.text(-0.15, seq + 0.5, seq, ha="right", va="center", fontsize=9)
    grid.text(-0.75, 1.5, "sequence", ha="right", va="center", rotation=90, fontsize=9)
    grid.text(3, -0.65, "query head", ha="center", va="bottom", fontsize=9)
    grid.set_title("The grid: 18 thread blocks", fontsize=10)
    grid.set(xlim=(-1.3, 6), ylim=(4.9, -1.2))
    for thread in range(128):
        threads.add_patch(
            Rectangle(
                (thread % 32 * 0.27, thread // 32 * 0.62),
                0.2,
                0.42,
                facecolor=SHARED,
                edgecolor=EDGE,
                linewidth=0.4,
            )
        )
    for warp in range(4):
        threads.text(
            -0.15, warp * 0.62 + 0.21, f"warp {warp}", ha="right", va="center", fontsize=8
        )
    draw_block(threads, 0, 3.4, "query", FREE, width=2.6)
    draw_block(threads, 2.6, 3.4, "scores", FREE, width=6.0)
    threads.text(
        4.3, 4.75, "shared memory of this thread block", ha="center", va="top", fontsize=8
    )
    threads.set_title("One of them: sequence 1, head 4, 128 threads", fontsize=10)
    threads.set(xlim=(-1.7, 8.8), ylim=(4.9, -1.2))
    _table_and_pool(pool)
    for axes in (grid, threads, pool):
        axes.axis("off")
    return figure


def _table_and_pool(axes) -> None:
    entries = [5, 2, 6, -1]
    for place, entry in enumerate(entries):
        draw_block(
            axes,
            2 + place,
            0,
            "−1" if entry < 0 else str(entry),
            FREE if entry < 0 else SHARED,
        )
    for block_id in range(8):
        draw_block(axes, block_id, 3.4, str(block_id), SHARED if block_id in entries else FREE)
    for place, entry in enumerate(entries):
        if entry >= 0:
            axes.annotate(
                "",
                (entry + 0.5, 3.35),
                (2.5 + place, 1.05),
                arrowprops={"arrowstyle": "->", "color": EDGE},
            )
    axes.text(4, 4.75, "the pool of keys and values", ha="center", va="top", fontsize=8)
    axes.text(
        4, -0.1, "sequence 1's row of the block table", ha="center", va="bottom", fontsize=8
    )
    axes.set_title("What it reads", fontsize=10)
    axes.set(xlim=(-0.1, 8.1), ylim=(4.9, -1.2))


def writers(panels: list[tuple]):
    """Which block writes which element, with a colour for each block.

    panels: (title, accesses of a one-dimensional tensor) each.
    """
    figure, rows = plt.subplots(
        len(panels),
        1,
        figsize=(8.5, 1.55 * len(panels) + 0.4),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for axes, (title, accesses) in zip(rows[:, 0], panels, strict=True):
        for block in sorted({access.block[0] for access in accesses}):
            mine = sorted(
                (access for access in accesses if access.block[0] == block),
                key=lambda access: access.index,
            )
            axes.plot(
                [access.index[0] for access in mine],
                [access.thread[0] for access in mine],
                ".",
                markersize=3,
                color=LINES[1 + block % 4],
            )
            axes.text(mine[0].index[0] + 8, 252, f"thread block {block}", fontsize=8, va="top")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(ylabel="threadIdx.x", ylim=(-14, 269), yticks=(0, 128, 255))
    rows[-1, 0].set_xlabel("element that the thread writes")
    return figure


def shuffles(values: list[float]):
    """The maximum over eight lanes in three steps: where each value goes, and the results."""
    lanes = len(values)
    figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
    _row_of_lanes(axes, 0, values)
    distance = lanes // 2
    row = 0
    known = list(values)
    while distance:
        for lane in range(lanes):
            for source, colour, style in (
                (lane, "#888888", ":"),
                (lane ^ distance, EDGE, "-"),
            ):
                axes.plot(
                    [source, lane],
                    [row + 0.28, row + 0.97],
                    color=colour,
                    linestyle=style,
                    linewidth=1,
                    zorder=0,
                )
        axes.text(
            -0.75, row + 0.62, f"distance {distance}", ha="right", va="center", fontsize=9
        )
        known = [max(known[lane], known[lane ^ distance]) for lane in range(lanes)]
        row, distance = row + 1.25, distance // 2
        _row_of_lanes(axes, row, known)
    for lane in range(lanes):
        axes.text(lane, -0.4, f"lane {lane}", ha="center", va="bottom", fontsize=8)
    axes.set_title("The maximum over eight lanes, in three shuffles", loc="left", fontsize=10)
    axes.set(xlim=(-2.3, lanes - 0.4), ylim=(row + 0.4, -0.75))
    axes.axis("off")
    return figure


def _row_of_lanes(axes, y: float, values: list[float]) -> None:
    for lane, value in enumerate(values):
        colour = SHARED if value == max(values) else FREE
        axes.add_patch(
            Rectangle((lane - 0.32, y - 0.27), 0.64, 0.54, facecolor=colour, edgecolor=EDGE)
        )
        axes.text(lane, y, f"{value:g}", ha="center", va="center", fontsize=9)
