"""Pictures of how weights are read: in small batches, and over time."""

import matplotlib.pyplot as plt
import numpy as np

from lessons_content.lesson_10.bench.few_rows_runs import Reads, Run
from lessons_lib.drawing import EDGE, SEVERAL

TOGETHER = 2  # microseconds in a bar


def overview(run: Run):
    """Bars of tokens a second, and the card's reads below them."""
    figure, axes = plt.subplots(
        1 + len(run.reads),
        1,
        figsize=(9, 4.2 + 1.7 * len(run.reads)),
        height_ratios=[4.2] + [1.7] * len(run.reads),
        layout="constrained",
    )
    bars(axes[0], run)
    for below, reads in zip(axes[1:], run.reads, strict=True):
        over_time(below, run, reads)
    axes[-1].set_xlabel("microseconds")
    return figure


def rates(run: Run):
    """The bars alone."""
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    bars(axes, run)
    return figure


def reads_over_time(run: Run):
    """The card's reads alone, for each engine."""
    figure, axes = plt.subplots(
        len(run.reads), 1, figsize=(9, 1.9 * len(run.reads)), layout="constrained", sharex=True
    )
    for each, reads in zip(axes, run.reads, strict=True):
        over_time(each, run, reads)
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=len(run.reads[0].names),
        fontsize=9,
    )
    axes[-1].set_xlabel("microseconds")
    return figure


def bars(axes, run: Run) -> None:
    """The rate of reading weights of each engine, by model and batch."""
    batches = list(run.batches())
    for place, row in enumerate(batches[0]):
        engine = [rows[place] for rows in batches]
        speeds = [
            each.tokens_per_second / each.num_seqs * each.weight_bytes / 1e9 for each in engine
        ]
        at = [number + 0.26 * (place - 1) for number in range(len(batches))]
        axes.bar(at, speeds, 0.24, color=SEVERAL[place], edgecolor=EDGE, label=row.engine)
        for x, speed, each in zip(at, speeds, engine, strict=True):
            axes.annotate(
                f"{each.tokens_per_second:,.0f}",
                (x, speed),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.axhline(run.read_limit, color=EDGE, linestyle="--", linewidth=1.4)
    axes.set_ylim(0, 1.28 * run.read_limit)
    names = [
        f"{rows[0].model}\n{rows[0].num_seqs} sequence{'s' * (rows[0].num_seqs > 1)}"
        for rows in batches
    ]
    axes.set_xticks(range(len(batches)), names, fontsize=9)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("GB of weights a second")
    axes.legend(loc="upper left", ncols=3, fontsize=9)
    axes.set_title(
        f"On the bars: tokens a second. Dashed: what one {run.card} reads ({run.date})",
        loc="left",
        fontsize=10,
    )


def over_time(axes, run: Run, reads: Reads) -> None:
    """The arrival of weights over time."""
    below = np.zeros(max(map(len, reads.kilobytes)) // TOGETHER + 1)
    for place, (name, kilobytes) in enumerate(zip(reads.names, reads.kilobytes, strict=True)):
        padded = np.zeros(len(below) * TOGETHER)
        padded[: len(kilobytes)] = kilobytes
        rate = padded.reshape(-1, TOGETHER).mean(1) * 1024 / 1000  # GB/s
        starts = TOGETHER * np.arange(len(below))
        axes.bar(starts, rate, TOGETHER, below, align="edge", color=SEVERAL[place], label=name)
        below += rate
    axes.axhline(run.read_limit, color=EDGE, linestyle="--", linewidth=1.4)
    axes.set_ylim(0, 1.5 * run.read_limit)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("GB/s")
    axes.set_title(
        f"{reads.engine}: {run.reads_layers} layers of {run.reads_model}, one sequence",
        loc="left",
        fontsize=10,
    )
