"""A picture of our engine and of others that served the same requests in turns."""

import statistics

import matplotlib.pyplot as plt

from lessons_content.lesson_10.bench.engine_peers_runs import PeerRow, Run
from lessons_lib.drawing import EDGE, FREE, USED


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
