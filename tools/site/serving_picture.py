"""A picture of the servers of a run: their tokens a second, from the slowest turn to the
fastest.
"""

import matplotlib.pyplot as plt

from lessons_content.lesson_08.bench.serving_runs import ServingRun
from lessons_lib.drawing import EDGE, FREE, USED, Picture, show


def servers(run: ServingRun) -> Picture:
    """A bar for each server that has a result, ours in blue."""
    rows = [row for row in run.rows if row.tokens_per_second]
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(rows) + 1.2), layout="constrained")
    for place, row in enumerate(rows):
        rate = row.tokens_per_second
        colour = USED if row is run.ours else FREE
        axes.barh(place, rate, 0.7, color=colour, edgecolor=EDGE)
        tokens = rate * sorted(row.seconds)[len(row.seconds) // 2]
        ends = [tokens / max(row.seconds), tokens / min(row.seconds)]
        axes.plot(ends, [place] * 2, color=EDGE, linewidth=2)
        axes.annotate(f"{rate:,.0f}", (0.02 * rate, place), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens a second; the line goes from the slowest turn to the fastest")
    axes.set_title(f"{run.num_requests} requests on {run.card} ({run.date})", loc="left")
    words = ", ".join(f"{row.name} {row.tokens_per_second:,.0f}" for row in rows)
    return show(figure, alt=f"A bar for each server, in tokens a second: {words}.")
