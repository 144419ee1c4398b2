"""Pictures of lesson 08 that explain: the engine's loop, one row, batches, drawing a token."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from lessons_lib.drawing import EDGE, FREE, QUIET, SEVERAL, USED, WASTED, draw_arrow

PART = "#eeeeee"  # for parts of the engine; no sequence has this colour


def loop():
    """The engine: requests in, schedule, run, postprocess, tokens out, and the pool."""
    figure, axes = plt.subplots(figsize=(8.8, 3.7), layout="constrained")
    boxes = {
        "schedule": (2.2, "schedule", "the next requests,\nhow many tokens each"),
        "run": (4.9, "run", "the model, once,\nover all these tokens"),
        "postprocess": (7.6, "postprocess", "the next tokens;\nwhich have ended?"),
    }
    for x, title, text in boxes.values():
        _box(axes, x, 2.2, 2.1, 1.25, PART)
        axes.text(x + 1.05, 3.17, title, ha="center", va="center", fontsize=11, weight="bold")
        axes.text(x + 1.05, 2.63, text, ha="center", va="center", fontsize=9)
    for start, end in ((4.3, 4.9), (7.0, 7.6)):
        draw_arrow(axes, (start, 2.83), (end, 2.83))
    draw_arrow(axes, (1.65, 2.83), (2.2, 2.83))
    axes.text(0.85, 2.83, "requests\nthat wait", ha="center", va="center", fontsize=9.5)
    draw_arrow(axes, (9.7, 2.83), (10.2, 2.83))
    axes.text(10.75, 2.83, "tokens,\none by one", ha="center", va="center", fontsize=9.5)
    draw_arrow(axes, (8.65, 3.48), (3.25, 3.48), curve=0.16)
    axes.text(
        5.95,
        4.33,
        "a request that has not ended goes round again",
        ha="center",
        va="center",
        fontsize=9.5,
    )
    _box(axes, 2.2, 0.1, 7.5, 0.95, FREE)
    axes.text(2.4, 0.82, "the pool of blocks", fontsize=9.5, va="center", weight="bold")
    axes.text(
        9.5, 0.82, "A to D: requests, empty: free", fontsize=8.5, va="center", ha="right"
    )
    colours = dict(zip("ABCD ", (*SEVERAL[:4], FREE), strict=True))
    for index, name in enumerate("AAB CACB  DBC "):
        axes.add_patch(
            Rectangle(
                (2.5 + 0.5 * index, 0.22),
                0.44,
                0.38,
                facecolor=colours[name],
                edgecolor=EDGE,
                linewidth=0.8,
            )
        )
        axes.text(2.72 + 0.5 * index, 0.41, name, ha="center", va="center", fontsize=8)
    for x, text in (
        (3.25, "takes blocks"),
        (5.95, "writes and reads\nkeys and values"),
        (8.65, "gives blocks back"),
    ):
        draw_arrow(axes, (x, 2.2), (x, 1.05))
        axes.text(x + 0.12, 1.62, text, ha="left", va="center", fontsize=9)
    axes.set(xlim=(0.1, 11.4), ylim=(0, 4.6))
    axes.axis("off")
    return figure


def _box(axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=colour,
            edgecolor=EDGE,
        )
    )


def row(sequences: list[tuple[str, str, int, int]]):
    """Sequences above, and their new tokens below, in one row with positions and last indices.

    sequences: (name, what it does, its tokens in the cache, its new tokens) each.
    """
    figure, axes = plt.subplots(figsize=(8.8, 4.1), layout="constrained")
    left = 0
    for line, ((name, what, num_cached, num_new), colour) in enumerate(
        zip(sequences, SEVERAL, strict=False)
    ):
        axes.text(-0.3, line + 0.45, f"{name} {what}", ha="right", va="center", fontsize=9.5)
        for position in range(num_cached + num_new):
            new = position >= num_cached
            _square(
                axes,
                position,
                line,
                f"{name}{position}",
                colour if new else FREE,
                "black" if new else QUIET,
            )
        for index in range(num_new):
            _square(axes, left + index, 4.6, f"{name}{num_cached + index}", colour, "black")
            axes.text(
                left + index + 0.5,
                5.85,
                num_cached + index,
                ha="center",
                va="center",
                fontsize=9,
            )
        axes.text(
            left + num_new - 0.5,
            6.5,
            left + num_new - 1,
            ha="center",
            va="center",
            fontsize=9,
            weight="bold",
        )
        axes.plot([left + num_new] * 2, [4.4, 6.8], color=EDGE, linewidth=0.8, linestyle=":")
        left += num_new
    for y, text in ((5.05, "tokens"), (5.85, "positions"), (6.5, "last")):
        axes.text(-0.3, y, text, ha="right", va="center", fontsize=9.5)
    longest = max(num_cached + num_new for _, _, num_cached, num_new in sequences)
    axes.text(
        0,
        -0.25,
        "In their sequences; what has no colour is in the cache already",
        fontsize=9.5,
        va="bottom",
        weight="bold",
    )
    axes.text(0, 4.4, "In the step: one row", fontsize=9.5, va="bottom", weight="bold")
    axes.set(
        xlim=(-4.2, max(longest, left) + 0.5), ylim=(6.9, -0.9), aspect="equal", anchor="W"
    )
    axes.axis("off")
    return figure


def _square(axes, x: float, y: float, text: str, colour: str, text_colour: str) -> None:
    axes.add_patch(Rectangle((x, y), 1, 0.9, facecolor=colour, edgecolor=EDGE, linewidth=0.8))
    axes.text(x + 0.5, y + 0.45, text, ha="center", va="center", fontsize=8, color=text_colour)


def batching(lengths: dict[str, int], places: int):
    """Two timelines of the same requests: in batches that wait for their longest, or one by
    one.

    lengths: the steps that each request takes, in order of arrival.
    places: how many run at once.
    """
    names = list(lengths)
    fixed = [
        (name, place, start)
        for start, batch in _batches(lengths, places)
        for place, name in enumerate(batch)
    ]
    free_at, continuous = [0] * places, []
    for name in names:
        place = free_at.index(min(free_at))
        continuous.append((name, place, free_at[place]))
        free_at[place] += lengths[name]
    end = max(start + lengths[name] for name, _, start in fixed)
    figure, panels = plt.subplots(
        2, 1, figsize=(8.8, 1.05 * places + 1.3), sharex=True, layout="constrained"
    )
    plans = {
        "A batch waits for its longest request": fixed,
        "A place is taken again as soon as it is free": continuous,
    }
    for axes, (title, plan) in zip(panels, plans.items(), strict=True):
        last = max(start + lengths[name] for name, _, start in plan)
        axes.add_patch(
            Rectangle(
                (0, 0), last, places, facecolor=WASTED, hatch="..", edgecolor=FREE, linewidth=0
            )
        )
        for name, place, start in plan:
            colour = SEVERAL[names.index(name) % len(SEVERAL)]
            axes.add_patch(
                Rectangle((start, place), lengths[name], 1, facecolor=colour, edgecolor=EDGE)
            )
            axes.text(
                start + lengths[name] / 2,
                place + 0.5,
                name,
                ha="center",
                va="center",
                fontsize=10,
            )
        axes.set_title(f"{title}: {last} steps", loc="left", fontsize=10)
        axes.set(
            xlim=(0, end),
            ylim=(places, 0),
            yticks=[place + 0.5 for place in range(places)],
            yticklabels=[f"place {place}" for place in range(places)],
        )
    panels[1].set_xlabel("step (dotted: the place is idle)")
    return figure


def _batches(lengths: dict[str, int], places: int) -> list[tuple[int, list[str]]]:
    """The beginning of each batch, and its requests."""
    names = list(lengths)
    start = 0
    batches = []
    for first in range(0, len(names), places):
        batch = names[first : first + places]
        batches.append((start, batch))
        start += max(lengths[name] for name in batch)
    return batches


def draws(panels: dict[str, dict[str, tuple[float, float]]]):
    """A panel for each way to draw a token: each token's probability (bar) and share (dot)."""
    figure, all_axes = plt.subplots(
        1, len(panels), figsize=(8.8, 2.9), sharey=True, layout="constrained"
    )
    for axes, (title, tokens) in zip(all_axes, panels.items(), strict=True):
        expected, seen = zip(*tokens.values(), strict=True)
        axes.bar(range(len(tokens)), expected, color=USED, edgecolor=EDGE, label="should be")
        axes.plot(
            range(len(tokens)),
            seen,
            marker="D",
            markersize=5,
            color="black",
            linestyle="",
            label="was drawn",
        )
        axes.set_xticks(range(len(tokens)), list(tokens))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("token")
    all_axes[0].set_ylabel("share of the draws")
    all_axes[-1].legend(fontsize=8)
    return figure
