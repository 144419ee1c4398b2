"""A picture of our engine and of others that served the same requests in turns."""

import statistics
from collections.abc import Sequence

import matplotlib.pyplot as plt

from lessons_content.lesson_10.bench.engine_peers_runs import PeerRow, Run
from lessons_lib.drawing import EDGE, FREE, SEVERAL, USED


def overview(run: Run):
    """A group of bars for each trace, and a pair of bars for each peer."""
    traces = list(dict.fromkeys(row.trace for row in run.rows))
    figure, all_axes = plt.subplots(
        len(traces),
        1,
        figsize=(9, 2.4 * len(traces) + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for axes, trace in zip(all_axes[:, 0], traces):
        pairs(axes, [row for row in run.rows if row.trace == trace and not row.reason])
        axes.set_title(trace, loc="left", fontsize=10)
    figure.suptitle(f"one {run.card} ({run.date})", fontsize=10)
    return figure


def ratios(runs: Sequence[Run]):
    """How many times the peer's rate ours is: by trace, a bar for each run."""
    traces = [row.trace for row in runs[0].rows]
    figure, axes = plt.subplots(figsize=(9, 0.62 * len(traces) + 0.9), layout="constrained")
    height = 0.8 / len(runs)
    for number, (run, colour) in enumerate(zip(runs, SEVERAL)):
        for place, row in enumerate(run.rows):
            y = place + (number - (len(runs) - 1) / 2) * height
            label = run.size if place == 0 else None
            axes.barh(y, row.ratio, height, color=colour, edgecolor=EDGE, label=label)
            axes.annotate(
                f"{row.ratio:.2f}",
                (row.ratio, y),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    axes.axvline(1, color=EDGE, linestyle="--", linewidth=1.4)
    axes.set_yticks(range(len(traces)), traces, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.08 * max(row.ratio for run in runs for row in run.rows))
    axes.set_xlabel(f"our tokens a second, × {runs[0].rows[0].peer}'s")
    axes.legend(loc="lower right", fontsize=9)
    axes.set_title(f"one {runs[0].card} ({runs[0].date})", loc="left", fontsize=10)
    return figure


def pairs(axes, rows: list[PeerRow]) -> None:
    """Each engine's median rate, with a line from its slowest turn to its fastest."""
    names = []
    for number, row in enumerate(rows):
        sides = ((row.peer, row.theirs, FREE), ("ours, beside it", row.ours, USED))
        for below, (name, seconds, colour) in enumerate(sides):
            rates = [row.tokens / each for each in seconds]
            place, middle = 2.4 * number + below, row.tokens / statistics.median(seconds)
            axes.barh(place, middle, 0.8, color=colour, edgecolor=EDGE)
            axes.plot([min(rates), max(rates)], [place] * 2, color=EDGE, linewidth=2)
            axes.annotate(f"{middle:,.0f}", (200, place), va="center", fontsize=9)
            names.append((place, name))
    if names:
        axes.set_yticks(*zip(*names), fontsize=9)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens a second; the line goes from the slowest turn to the fastest")
