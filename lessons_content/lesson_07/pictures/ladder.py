"""Pictures of lesson 07: the rungs' speed and the card's limit, blocks on multiprocessors."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lessons_content.lesson_07.bench.ladder_runs import LAST_RUNG, Row, Run
from lessons_content.lesson_07.bench.workloads import TITLES
from lessons_lib.drawing import EDGE, FREE, SEVERAL, SHARED, USED, WASTED
from paged_attention.ladder.splits import SPLIT_COST, cut_evenly

HATCH = "///"
ROOM_FOR_TEXT = 1.16  # the axis ends at this multiple of the limit


def ladder(run: Run, workload: str, up_to: int | None = None, others: bool = True):
    """A bar for each rung, and a line for the card's limit.

    up_to: the last rung's number; None takes all.
    others: whether other backends that were measured have bars too.
    Raises ValueError if the run has no time of a rung for this workload.
    """
    rows = _ladder_rows(run, workload, up_to, others)
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) + 1.5), layout="constrained")
    _draw_ladder(axes, run, rows)
    axes.set_title(
        f"{TITLES.get(workload, workload)}, on one {run.card} ({run.date})",
        loc="left",
        fontsize=10,
    )
    return figure


def workloads(run: Run):
    """For each workload: rung 7, the fastest of FlashInfer's ways, and the limit.

    Raises ValueError if the run has no time of rung 7.
    """
    names = _names_of_last_rung(run)
    figure, axes = plt.subplots(figsize=(9, 0.85 * len(names) + 1.5), layout="constrained")
    _draw_workloads(axes, run, names)
    axes.set_title(f"Rung 7 on one {run.card} ({run.date})", loc="left", fontsize=10)
    return figure


def overview(run: Run):
    """The ladder on the first measured workload, above rung 7 on all workloads.

    A part is left out if the run has no results for it.
    """
    first = next((name for name in run.workloads if run.rungs(name) or run.others(name)), None)
    if first is None:
        raise ValueError(f"this run on {run.card} has no times to draw")
    rows = [*run.rungs(first), *run.others(first)]
    names = [
        name
        for name in run.workloads
        if any(row.backend == LAST_RUNG for row in run.rungs(name))
    ]
    heights = [0.42 * len(rows) + 1.2] + [0.85 * len(names) + 1.2] * bool(names)
    figure, panels = plt.subplots(
        len(heights),
        1,
        figsize=(9, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    _draw_ladder(panels[0, 0], run, rows)
    panels[0, 0].set_title(
        f"{TITLES.get(first, first)}, on one {run.card} ({run.date})", loc="left", fontsize=10
    )
    if names:
        _draw_workloads(panels[1, 0], run, names)
        panels[1, 0].set_title("Rung 7 on each workload", loc="left", fontsize=10)
    return figure


def waves(
    num_rows: int,
    num_tiles: int,
    num_multiprocessors: int,
    splits: tuple[int, ...] = (1, 2, 4),
):
    """The blocks of rung 6 on the multiprocessors over time, for several numbers of splits.

    Time is in the units of `choose_num_splits`.

    num_rows: sequences × KV heads.
    num_tiles: of each row.
    """
    figure, panels = plt.subplots(
        len(splits),
        1,
        sharex=True,
        squeeze=False,
        layout="constrained",
        figsize=(9, (0.18 * num_multiprocessors + 0.5) * len(splits) + 0.8),
    )
    longest = 0
    for axes, num_splits in zip(panels[:, 0], splits, strict=True):
        each = -(-num_tiles // num_splits)  # tiles of each split except the last
        num_blocks, wave = num_rows * num_splits, each + SPLIT_COST
        num_waves = -(-num_blocks // num_multiprocessors)
        for block in range(num_blocks):
            row, split = divmod(block, num_splits)
            tiles = max(0, min(each, num_tiles - split * each))
            _draw_block(
                axes,
                block % num_multiprocessors,
                block // num_multiprocessors * wave,
                [(row, tiles)],
            )
        time = num_waves * wave
        longest = max(longest, time)
        of_tiles = num_rows * num_tiles / (num_multiprocessors * time)
        axes.set_title(
            f"{_count(num_splits, 'split')}: "
            f"{_count(num_blocks, 'block')} in {_count(num_waves, 'wave')}, "
            f"{time} units of time, {of_tiles:.0%} of it for tiles",
            loc="left",
            fontsize=10,
        )
        axes.axvline(time, color="black", linestyle="--", linewidth=1.2)
        _finish(axes, num_multiprocessors)
    _time_axis(figure, panels[-1, 0], longest)
    return figure


def balanced(num_tiles: list[int], num_multiprocessors: int):
    """The blocks of rung 7: one for each multiprocessor, with equal shares of all tiles.

    num_tiles: of each row.
    """
    figure, axes = plt.subplots(
        figsize=(9, 0.26 * num_multiprocessors + 1.7), layout="constrained"
    )
    shares = cut_evenly(num_tiles, num_multiprocessors)
    for block, pieces in enumerate(shares):
        _draw_block(axes, block, 0, [(row, end - first) for row, first, end in pieces])
    time = max(sum(end - first for _, first, end in pieces) for pieces in shares) + SPLIT_COST
    of_tiles = sum(num_tiles) / (num_multiprocessors * time)
    axes.set_title(
        f"Equal shares: {_count(num_multiprocessors, 'block')}, {time} units of time, "
        f"{of_tiles:.0%} of it for tiles",
        loc="left",
        fontsize=10,
    )
    axes.axvline(time, color="black", linestyle="--", linewidth=1.2)
    _finish(axes, num_multiprocessors)
    _time_axis(figure, axes, time)
    return figure


def _ladder_rows(run: Run, workload: str, up_to: int | None, others: bool) -> list[Row]:
    rungs = [row for row in run.rungs(workload) if up_to is None or row.rung <= up_to]
    if not rungs:
        raise ValueError(
            f"this run on {run.card} has no rung "
            f"{'' if up_to is None else f'up to {up_to} '}with a time for {workload}; "
            f"its workloads are {', '.join(run.workloads)}"
        )
    return rungs + list(run.others(workload)) * others


def _names_of_last_rung(run: Run) -> list[str]:
    names = [
        name
        for name in run.workloads
        if any(row.backend == LAST_RUNG for row in run.rungs(name))
    ]
    if not names:
        raise ValueError(f"this run on {run.card} has no time of {LAST_RUNG}")
    return names


def _draw_ladder(axes, run: Run, rows: list[Row]) -> None:
    for place, row in enumerate(rows):
        _draw_rate(axes, run, place, row, 0.72)
    labels = [
        (
            f"{row.backend}: {row.title}"
            if row.rung is not None
            else _with_version(row.backend, run)
        )
        for row in rows
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    _limit(axes, run, rows)


def _with_version(backend: str, run: Run) -> str:
    """A backend's name with its library's version."""
    name, _, way = backend.partition(" ")
    return (
        " ".join(filter(None, (name, run.flashinfer, way)))
        if name == "FlashInfer"
        else backend
    )


def _draw_workloads(axes, run: Run, names: list[str]) -> None:
    ours = [run.row(name, LAST_RUNG) for name in names]
    theirs = [run.flashinfer_row(name) for name in names]
    for place, (rung, other) in enumerate(zip(ours, theirs, strict=True)):
        _draw_rate(axes, run, place - 0.19, rung, 0.36)
        if other:
            _draw_rate(axes, run, place + 0.19, other, 0.36)
    axes.set_yticks(
        range(len(names)),
        [TITLES.get(name, name).replace(", ", ",\n") for name in names],
        fontsize=9,
    )
    _limit(axes, run, [*ours, *filter(None, theirs)])
    kinds = [
        Patch(facecolor=USED, edgecolor=EDGE, label=LAST_RUNG),
        Patch(
            facecolor=SHARED,
            edgecolor=EDGE,
            hatch=HATCH,
            label=f"{_with_version('FlashInfer', run)}, the fastest of its ways",
        ),
    ]
    axes.legend(
        handles=kinds[: 1 + any(theirs)],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        borderaxespad=0.2,
        ncols=2,
        fontsize=9,
        frameon=False,
    )


def _draw_rate(axes, run: Run, place: float, row: Row, height: float) -> None:
    """A bar with its time and share of the limit: inside a long bar, after a short one."""
    ours = row.rung is not None
    axes.barh(
        place,
        row.gb_per_s,
        height,
        color=USED if ours else SHARED,
        edgecolor=EDGE,
        hatch=None if ours else HATCH,
    )
    inside = row.gb_per_s > 0.6 * run.read_limit_gb_per_s
    time = f"{row.milliseconds:.3g}" if row.milliseconds < 1000 else f"{row.milliseconds:.0f}"
    axes.annotate(
        f"{time} ms, {row.share_of_limit:.0%}" + " (wrong result)" * bool(row.reason),
        (row.gb_per_s, place),
        xytext=(-5 if inside else 5, 0),
        textcoords="offset points",
        va="center",
        ha="right" if inside else "left",
        fontsize=9,
        bbox=(
            {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            if inside and not ours
            else None
        ),
    )


def _limit(axes, run: Run, rows: list[Row]) -> None:
    limit = run.read_limit_gb_per_s
    axes.axvline(limit, color="black", linestyle="--", linewidth=1.4)
    axes.annotate(
        f"the limit:\n{limit:,.0f} GB/s",
        (limit, 0),
        xytext=(5, 0),
        textcoords="offset points",
        fontsize=9,
        va="center",
    )
    axes.set_xlim(0, ROOM_FOR_TEXT * max(limit, *(row.gb_per_s for row in rows)))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#dddddd")
    axes.invert_yaxis()
    axes.set_xlabel(
        "GB/s of keys and values, each byte counted once\n"
        "at each bar: the time of a step, and its share of the limit"
    )


def _draw_block(
    axes, multiprocessor: int, start: float, pieces: list[tuple[int, int]]
) -> None:
    """A block of threads: the tiles of its rows, then its other costs."""
    for row, tiles in pieces:
        axes.barh(
            multiprocessor,
            tiles,
            0.86,
            left=start,
            color=SEVERAL[row % len(SEVERAL)],
            edgecolor=EDGE,
            linewidth=0.8,
        )
        if tiles > 1:
            axes.text(
                start + tiles / 2,
                multiprocessor,
                str(row),
                ha="center",
                va="center",
                fontsize=9,
            )
        start += tiles
    axes.barh(
        multiprocessor,
        SPLIT_COST,
        0.86,
        left=start,
        color=WASTED,
        edgecolor=EDGE,
        linewidth=0.8,
        hatch=HATCH,
    )


def _finish(axes, num_multiprocessors: int) -> None:
    axes.set_ylim(num_multiprocessors - 0.4, -0.6)
    step = 1 if num_multiprocessors <= 8 else 4
    axes.set_yticks(range(0, num_multiprocessors, step))
    axes.tick_params(axis="y", labelsize=9)
    axes.set_ylabel("multiprocessor", fontsize=9)
    axes.set_facecolor(FREE)


def _time_axis(figure, axes, time: float) -> None:
    axes.set_xlim(0, time * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("time, in units (the time of a tile)")
    kinds = [
        Patch(facecolor=USED, edgecolor=EDGE, label="tiles, with the row's number"),
        Patch(facecolor=WASTED, edgecolor=EDGE, hatch=HATCH, label="cost of a block"),
        Patch(facecolor=FREE, edgecolor=EDGE, label="idle"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
