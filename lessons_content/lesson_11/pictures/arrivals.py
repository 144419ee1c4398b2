"""A picture of the server under load: the clients' wait, against requests a second."""

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lessons_content.lesson_11.bench.load_runs import LoadRun
from lessons_lib.drawing import EDGE, USED


def waiting(run: LoadRun):
    """Time to the first token, and between tokens, against the load: p50 and p99.

    Raises ValueError if the run has no times at any rate of arrivals.
    """
    rows = [
        row for row in run.rows if row.per_second is not None and row.first and row.between
    ]
    if not rows:
        raise ValueError(f"this run on {run.card} has no times to draw")
    loads = [row.per_second for row in rows]
    figure, both = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axes, name, title in zip(
        both, ("first", "between"), ("To the first token", "Between tokens"), strict=True
    ):
        for index, (label, style) in enumerate({"p50": "o-", "p99": "s--"}.items()):
            times = [1000 * getattr(row, name)[index] for row in rows]
            axes.plot(loads, times, style, color=(USED, EDGE)[index], label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.set_xticks(loads)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("requests a second")
        axes.set_ylabel("milliseconds")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"{run.card}, {run.cores} cores ({run.date})", fontsize=10)
    return figure
