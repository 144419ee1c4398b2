"""Pictures of lesson 09: the limits of a prompt, rungs in TFLOP/s, tiles of rows and keys."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle

from lessons_content.lesson_09.bench.prefill_runs import FLASHINFER, Run
from lessons_lib.drawing import (
    EDGE,
    FREE,
    GREEN,
    LINES,
    QUIET,
    SEVERAL,
    SHARED,
    USED,
    WASTED,
    ink,
)
from paged_attention.prefill.rungs import PREFILL_RUNGS

HATCH = "///"
CHOSEN_LANE = 9  # r = 2, s = 1
TITLES = {rung.number: rung.title for rung in PREFILL_RUNGS}


def intensity(lines: dict[str, tuple[list[int], list[float]]], balance: float):
    """Operations for each byte, by the number of new tokens.

    lines: for each title, the numbers of tokens and the operations for each byte.
    balance: the operations that the card can do while it reads a byte.
    """
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for (title, (tokens, numbers)), colour in zip(lines.items(), LINES[1:], strict=False):
        axes.plot(tokens, numbers, color=colour, linewidth=2)
        axes.annotate(
            title,
            (tokens[-1], numbers[-1]),
            xytext=(0, 8),
            textcoords="offset points",
            ha="right",
            color=colour,
            fontsize=9,
        )
    axes.axhline(balance, color="black", linestyle="--", linewidth=1.4)
    axes.annotate(
        f"what an H200 has time for: {balance:.0f}",
        (1, balance),
        xytext=(4, 5),
        textcoords="offset points",
        fontsize=9,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [1, 8, 64, 512, 4096]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlim(1, 2**14)
    axes.set_ylim(0.5, 2e4)
    axes.set_xlabel("new tokens of the sequence")
    axes.set_ylabel("operations for a byte")
    axes.grid(color="#dddddd")
    axes.text(
        2**13.8, 1, "below the line, memory is the limit", fontsize=9, color=QUIET, ha="right"
    )
    return figure


def ladder(run: Run, workload: str, up_to: int, limit: float):
    """A bar for each rung, and a line for the rate of arithmetic in TFLOP/s."""
    rows = [row for row in run.rows_of(workload) if row.rung is not None and row.rung <= up_to]
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(rows) + 1.4), layout="constrained")
    for place, row in enumerate(rows):
        axes.barh(place, row.teraflops, 0.72, color=USED, edgecolor=EDGE)
        _label(axes, row.teraflops, place, f"{row.milliseconds:.3g} ms, {row.teraflops:.0f}")
    axes.set_yticks(
        range(len(rows)), [f"{row.backend}: {TITLES[row.rung]}" for row in rows], fontsize=9
    )
    axes.axvline(limit, color="black", linestyle="--", linewidth=1.4)
    axes.set_xlim(0, 1.05 * limit)
    axes.set_xlabel("TFLOP/s; at the dashed line the card multiplies large matrices")
    axes.set_title(f"{workload}, on one {run.card} ({run.date})", loc="left", fontsize=10)
    axes.invert_yaxis()
    return figure


def batches(run: Run, workloads: tuple[str, ...] | None = None):
    """For each workload: the last rungs and other libraries."""
    names = workloads or run.workloads
    shades = dict(
        zip(
            ("rung 4", "rung 5", "PyTorch flash", *FLASHINFER),
            (FREE, USED, WASTED, SHARED, GREEN),
            strict=True,
        )
    )
    figure, axes = plt.subplots(figsize=(9, 1.15 * len(names) + 1.2), layout="constrained")
    for place, workload in enumerate(names):
        rows = [row for row in run.rows_of(workload) if row.backend in shades]
        for number, row in enumerate(rows):
            y = place + (number - (len(rows) - 1) / 2) * 0.18
            hatch = None if row.rung is not None else HATCH
            axes.barh(
                y, row.teraflops, 0.17, color=shades[row.backend], edgecolor=EDGE, hatch=hatch
            )
            _label(axes, row.teraflops, y, f"{row.teraflops:.0f}", size=8)
    axes.set_yticks(
        range(len(names)), [name.replace(": ", ":\n") for name in names], fontsize=9
    )
    axes.set_xlabel("TFLOP/s")
    axes.invert_yaxis()
    version = run.flashinfer or ""
    kinds = [
        Patch(
            facecolor=shade,
            edgecolor=EDGE,
            hatch=None if name.startswith("rung") else HATCH,
            label=name.replace("FlashInfer", f"FlashInfer {version}"),
        )
        for name, shade in shades.items()
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)
    axes.set_title(f"One {run.card} ({run.date})", loc="left", fontsize=10)
    return figure


def overview(run: Run):
    """All backends on each workload."""
    return batches(run)


def lanes():
    """Which lane has which score of 16 rows and 8 keys. One lane's row is marked."""
    figure, axes = plt.subplots(figsize=(5.2, 4.8), layout="constrained")
    for row in range(16):
        for pair in range(4):
            lane = row % 8 * 4 + pair
            mine, shares = lane == CHOSEN_LANE, lane // 4 == CHOSEN_LANE // 4
            colour = SHARED if mine else USED if shares else FREE
            axes.add_patch(
                Rectangle((2 * pair, row), 2, 1, facecolor=colour, edgecolor="#999999")
            )
            axes.text(
                2 * pair + 1,
                row + 0.5,
                lane,
                ha="center",
                va="center",
                fontsize=8.5,
                weight="bold" if mine else "normal",
            )
    axes.set_xlim(-0.1, 8.1)
    axes.set_ylim(16.1, -0.1)
    axes.set_xticks([i + 0.5 for i in range(8)], range(8), fontsize=8.5)
    axes.set_yticks([i + 0.5 for i in range(16)], range(16), fontsize=8.5)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("key (column of the product)")
    axes.set_ylabel("row")
    axes.tick_params(length=0)
    return figure


def rows(tiles: list[list[tuple[int, int]]], panels: list[str]):
    """The rows of a tile, with query and head; places without a row are grey.

    tiles: the rows of each panel's tile; None for a place without one.
    """
    figure, all_axes = plt.subplots(
        1, len(tiles), figsize=(1.85 * len(tiles), 3.9), layout="constrained", squeeze=False
    )
    for axes, title, tile in zip(all_axes[0], panels, tiles, strict=True):
        for place, row in enumerate(tile):
            colour = WASTED if row is None else SEVERAL[row[0] % len(SEVERAL)]
            axes.add_patch(Rectangle((0, place), 1, 1, facecolor=colour, edgecolor=EDGE))
            text = "" if row is None else f"query {row[0]}, head {row[1]}"
            axes.text(0.5, place + 0.5, text, ha="center", va="center", fontsize=8)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(len(tile) + 0.05, -0.05)
        axes.axis("off")
        axes.set_title(title, fontsize=10)
    return figure


def tiles_met(met: np.ndarray, needed: np.ndarray, blocks: list[int], titles: list[str]):
    """The tiles of rows that read each block of keys.

    met: bool (num_panels, tiles of rows, blocks of the context).
    needed: bool (tiles of rows, blocks), whether a row of the tile sees a key of the block.
    blocks: the block's ids in the pool, by their place in the context.
    """
    figure, panels = plt.subplots(
        1,
        len(met),
        figsize=(9, 0.26 * met.shape[1] + 1.9),
        layout="constrained",
        squeeze=False,
    )
    for axes, read, title in zip(panels[0], met, titles, strict=True):
        for (tile, block), is_read in np.ndenumerate(read):
            colour = FREE
            if is_read:
                colour = USED if needed[tile, block] else WASTED
            axes.add_patch(
                Rectangle((block, tile), 1, 1, facecolor=colour, edgecolor="#999999")
            )
        axes.set_xlim(-0.1, len(blocks) + 0.1)
        axes.set_ylim(met.shape[1] + 0.1, -0.1)
        places = [i + 0.5 for i in range(len(blocks))]
        axes.set_xticks(places, blocks, fontsize=8, rotation=90)
        axes.set_yticks(
            [i + 0.5 for i in range(met.shape[1])], range(met.shape[1]), fontsize=8
        )
        axes.tick_params(length=0)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("blocks of the context, with their ids in the pool", fontsize=9)
        axes.set_ylabel("tile of rows", fontsize=9)
    kinds = [
        Patch(facecolor=USED, edgecolor=EDGE, label="read, and some row sees a key"),
        Patch(facecolor=WASTED, edgecolor=EDGE, label="read, and no row sees a key"),
        Patch(facecolor=FREE, edgecolor=EDGE, label="not read"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def order(panels: dict[str, list[tuple[int, int, int]]], times: list[int], num_slots: int):
    """The time and the place of each item. panels: for each title, (item, slot, begin)."""
    figure, all_axes = plt.subplots(
        len(panels),
        1,
        sharex=True,
        squeeze=False,
        layout="constrained",
        figsize=(9, (0.24 * num_slots + 0.6) * len(panels) + 0.6),
    )
    last = 0
    for axes, (title, begun) in zip(all_axes[:, 0], panels.items(), strict=True):
        end = max(begin + times[item] for item, _, begin in begun)
        last = max(last, end)
        for item, slot, begin in begun:
            colour = SEVERAL[item % len(SEVERAL)]
            axes.barh(slot, times[item], 0.86, left=begin, color=colour, edgecolor=EDGE)
            if times[item] > 1:
                axes.text(
                    begin + times[item] / 2,
                    slot,
                    item,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ink(colour),
                )
        axes.axvline(end, color="black", linestyle="--", linewidth=1.2)
        axes.set_title(f"{title}: {end} units of time", loc="left", fontsize=10)
        axes.set_ylim(num_slots - 0.4, -0.6)
        axes.set_yticks(range(num_slots), range(num_slots), fontsize=8)
        axes.set_ylabel("slot", fontsize=9)
    all_axes[-1, 0].set_xlim(0, last * 1.02)
    all_axes[-1, 0].set_xlabel("time, in units (the time of a tile of keys)")
    return figure


def _label(axes, width: float, place: float, text: str, size: int = 9) -> None:
    axes.annotate(
        text,
        (width, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=size,
    )
