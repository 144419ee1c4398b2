"""The work of host and GPU in a few decode steps: two lanes for each engine, over time."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle

from lessons_content.lesson_10.bench.timeline_runs import HOST, Run, Spans, Timeline, unpack
from lessons_lib.drawing import EDGE, FREE, GREEN, PINK, SHARED, USED, WASTED, YELLOW

WORDS = {  # of the host: the legend's text, and a colour
    "schedules": ("host schedules", YELLOW),
    "launches": ("host launches", USED),
    "waits": ("host waits for the GPU", WASTED),
    "completes": ("host completes", PINK),
    "other": ("host does other things", SHARED),
}
GPU = ("GPU works", GREEN)
IDLE = ("GPU has nothing to do", FREE)
NUM_BINS = 1000  # of the axis; about a pixel each
HEIGHT = 3.0  # of an engine: a line of text, and two lanes of height 1


def host_and_gpu(
    run: Run,
    engines: Sequence[str] | None = None,
    until: float | None = None,
    names: Mapping[str, str] | None = None,
):
    """A figure of some engines over one axis of time.

    engines: their titles, in the order to draw them; None: all of the run.
    until: the end of the axis, in ms; None: when the last engine has done its steps.
    names: by an engine's title, the name in the figure; None shows its title.
    Raises KeyError for an engine that the run does not have.
    """
    by_title = {timeline.engine: timeline for timeline in run.timelines}
    chosen = [by_title[title] for title in (by_title if engines is None else engines)]
    figure, axes = plt.subplots(figsize=(9, 0.95 * len(chosen) + 1.5), layout="constrained")
    lanes(axes, chosen, until, names)
    axes.set_title(
        f"Decode steps of {run.num_seqs} sequences on one {run.card} ({run.date})",
        loc="left",
        fontsize=10,
    )
    patches = [
        Patch(facecolor=colour, edgecolor=EDGE, label=label)
        for label, colour in (*WORDS.values(), GPU, IDLE)
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def lanes(
    axes,
    timelines: Sequence[Timeline],
    until: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Draws the host's work of each engine, and the GPU's work below it.

    Where several things happen within a pixel, the height of each colour is its share of the
    time.

    until: the end of the axis, in ms; None: when the last engine has done its steps.
    names: by an engine's title, the name in the figure; None shows its title.
    """
    until = until or max(timeline.end for timeline in timelines) / 1000
    edges = np.linspace(0, 1000 * until, NUM_BINS + 1)
    ticks = {}
    for number, timeline in enumerate(timelines):
        top = HEIGHT * number
        axes.text(0, top + 0.62, heading(timeline, names), fontsize=9.5, va="bottom")
        ticks |= {top + 1.25: "host", top + 2.3: "GPU"}
        _lane(
            axes,
            top + 0.8,
            edges,
            [(unpack(timeline.host[what]), WORDS[what][1]) for what in HOST],
        )
        _lane(axes, top + 1.85, edges, [(unpack(timeline.gpu), GPU[1])])
        for low in (top + 0.8, top + 1.85):
            width = min(timeline.end / 1000, until)
            axes.add_patch(Rectangle((0, low), width, 0.9, fill=False, ec=EDGE, lw=0.8))
        for start in timeline.starts[1:]:
            if start < 1000 * until:
                axes.plot([start / 1000] * 2, [top + 0.7, top + 2.85], color=EDGE, lw=1.2)
    axes.set(xlim=(0, until), ylim=(HEIGHT * len(timelines), 0))
    axes.set_xlabel("milliseconds; a dark line is where a step begins on the host")
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "right", "top"]].set_visible(False)


def heading(timeline: Timeline, names: Mapping[str, str] | None = None) -> str:
    name = (names or {}).get(timeline.engine, timeline.engine)
    return (
        f"{name}: {timeline.profiled:.1f} ms for a step"
        f" ({timeline.step:.1f} without the profiler),"
        f" GPU busy {100 * timeline.busy:.0f} %"
    )


def _lane(axes, top: float, edges: np.ndarray, parts: list[tuple[Spans, str]]) -> None:
    """Stacks the work in each bin of time, from the lower edge of the lane."""
    low = np.full(len(edges) - 1, top + 0.9)
    for spans, colour in parts:
        high = low - 0.9 * shares(spans, edges)
        axes.stairs(
            high, edges / 1000, baseline=low, fill=True, color=colour, lw=0, antialiased=False
        )
        low = high


def shares(spans: Spans, edges: np.ndarray) -> np.ndarray:
    """The share of each bin that is in a span.

    spans: in order, without overlaps.
    edges: of the bins; one more than there are bins.
    """
    if not spans:
        return np.zeros(len(edges) - 1)
    times = np.array(spans)
    done = np.repeat(np.cumsum([0.0, *(times[:, 1] - times[:, 0])]), 2)[1:-1]
    return np.diff(np.interp(edges, times.ravel(), done)) / np.diff(edges)
