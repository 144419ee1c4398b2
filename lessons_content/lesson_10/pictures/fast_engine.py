"""Pictures of the fast engine: its parts added one by one, and the parts of a step's time."""

import matplotlib.pyplot as plt

from lessons_content.lesson_10.bench.fast_engine_runs import Run, StepRow
from lessons_lib.drawing import EDGE, SEVERAL, USED, WASTED

VISIBLE = 0.004  # of the longest bar: about three pixels


def overview(run: Run):
    """The first trace, with one more part in each row, and the decode steps below it."""
    rows = [row for row in run.rows if row.trace == run.rows[0].trace and row.seconds]
    heights = [0.38 * len(rows) + 0.9, 0.5 * len(run.steps) + 1.3]
    figure, (above, below) = plt.subplots(
        2,
        1,
        figsize=(9, sum(heights) + 0.6),
        height_ratios=heights,
        layout="constrained",
    )
    ladder(above, run, rows)
    budget(below, run.steps)
    figure.legend(
        *below.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9
    )
    return figure


def ladder(axes, run: Run, rows) -> None:
    """A bar for the tokens a second of each engine."""
    rates = [row.tokens_per_second for row in rows]
    for place, rate in enumerate(rates):
        axes.barh(place, rate, 0.7, color=USED, edgecolor=EDGE)
        axes.annotate(
            f"{rate:,.0f}",
            (rate, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(rows)), [row.engine for row in rows], fontsize=9)
    axes.set_xlim(0, 1.12 * max(rates))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.invert_yaxis()
    axes.set_xlabel("tokens a second")
    axes.set_title(f"{rows[0].trace}\non one {run.card} ({run.date})", loc="left", fontsize=10)


def budget(axes, steps: tuple[StepRow, ...]) -> None:
    """A bar for each step, divided by kinds of kernels, and its limit as a line."""
    kinds = list(dict.fromkeys(kind for step in steps for kind in step.budget))
    longest = max(max(step.step, sum(step.budget.values())) for step in steps)
    for place, step in enumerate(steps):
        parts = [(kind, step.budget.get(kind, 0.0)) for kind in kinds]
        rest = max(0.0, step.step - sum(step.budget.values()))
        colours = [*(SEVERAL[number % len(SEVERAL)] for number in range(len(kinds))), WASTED]
        begin = 0.0
        for (kind, time), colour in zip([*parts, ("between kernels", rest)], colours):
            label = _label(kind, steps, longest) if place == 0 else None
            axes.barh(place, time, 0.6, begin, color=colour, edgecolor=EDGE, label=label)
            begin += time
        axes.plot([step.limit] * 2, [place - 0.42, place + 0.42], "k--", linewidth=1.6)
    names = [
        f"{step.num_seqs} sequences of\n{step.context} tokens"
        + ", 8 bits" * (step.kv_bits == 8)
        for step in steps
    ]
    axes.set_yticks(range(len(steps)), names, fontsize=9)
    axes.set_xlim(0, 1.05 * longest)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds; at the dashed lines all bytes would be read once")
    axes.set_title("A decode step", loc="left", fontsize=10)


def _label(kind: str, steps: tuple[StepRow, ...], longest: float) -> str:
    """A kind's name in the legend, with its time if it is too short to be seen."""
    most = max(step.budget.get(kind, longest) for step in steps)
    if most > VISIBLE * longest:
        return kind
    return f"{kind} (at most {most:.2f} ms: too thin to see)"
