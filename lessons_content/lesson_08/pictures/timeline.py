"""Pictures of lesson 08 that show an engine's work: its requests, its pool, its faults."""

import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from lessons_lib.drawing import EDGE, LINES, PINK, QUIET, SHARED, USED, WASTED, ink

# For each state of a request: a colour, and a hatch for people who cannot tell colours apart.
STATES = {
    "waits": (WASTED, ".."),
    "prefills": (SHARED, ""),
    "decodes": (USED, ""),
    "preempted, waits again": (PINK, "xx"),
}
MOST_COLUMNS_WITH_NUMBERS = 50


def timeline(history: list, title: str):
    """A row for each request, a column for each step. A prefill shows its number of tokens.

    history: a list of StepRecord.
    """
    states, numbers = states_of(history)
    ids = list(states)
    figure, axes = plt.subplots(figsize=(9, 0.27 * len(ids) + 1.6), layout="constrained")
    for line, id in enumerate(ids):
        for step, state in states[id].items():
            colour, hatch = STATES[state]
            axes.add_patch(
                Rectangle(
                    (step, line + 0.06),
                    1,
                    0.88,
                    facecolor=colour,
                    hatch=hatch,
                    edgecolor=EDGE,
                    linewidth=0.4,
                )
            )
            if state == "prefills" and len(history) <= MOST_COLUMNS_WITH_NUMBERS:
                axes.text(
                    step + 0.5,
                    line + 0.5,
                    numbers[id, step],
                    ha="center",
                    va="center",
                    fontsize=8,
                )
    axes.set(
        xlim=(0, len(history)),
        ylim=(len(ids), 0),
        xlabel="step",
        ylabel="request",
        yticks=[line + 0.5 for line in range(len(ids))],
        yticklabels=ids,
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8)
    axes.set_title(title, loc="left", fontsize=10)
    figure.legend(
        handles=[
            Patch(facecolor=colour, hatch=hatch, edgecolor=EDGE, label=state)
            for state, (colour, hatch) in STATES.items()
        ],
        loc="outside lower center",
        ncols=4,
        fontsize=9,
        frameon=False,
    )
    return figure


def states_of(history: list) -> tuple[dict, dict]:
    """The state of each request in each step, {id: {step: state}}, in order of arrival.

    Also the number of tokens for each (id, step) of a prefill.
    """
    states, numbers = {}, {}
    for step, record in enumerate(history):
        for id in (*record.lengths, *record.preempted, *record.waiting):
            states.setdefault(id, {})
        for id in record.waiting:
            states[id][step] = "waits"
        for id in record.preempted:
            states[id][step] = "preempted, waits again"
        for id, (num_tokens, phase) in record.scheduled.items():
            states[id][step] = phase
            numbers[id, step] = num_tokens
    return states, numbers


def pool(histories: dict[str, list], num_blocks: int):
    """A panel for each history: the pool's blocks in each step, stacked by their requests."""
    parts = {
        "one request": ("alone", USED, ""),
        "several requests": ("shared", SHARED, "//"),
        "only the prefix cache": ("kept", WASTED, ".."),
    }
    figure, panels = plt.subplots(
        len(histories),
        1,
        figsize=(8.8, 2.2 * len(histories) + 0.5),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for axes, (title, history) in zip(panels[:, 0], histories.items(), strict=True):
        bottom = [0] * len(history)
        for label, (name, colour, hatch) in parts.items():
            heights = [getattr(record, name) for record in history]
            axes.bar(
                range(len(history)),
                heights,
                bottom=bottom,
                width=1.0,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor=EDGE,
                linewidth=0.3,
                label=label,
            )
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.axhline(num_blocks, color=EDGE, linestyle="--", linewidth=1)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(ylabel="blocks", ylim=(0, num_blocks * 1.08))
        axes.set_xlim(0, max(map(len, histories.values())))
    panels[-1, 0].set_xlabel("step")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        fontsize=9,
        frameon=False,
        title="blocks used by (no colour: free; dashed: the pool's size)",
        title_fontsize=9,
    )
    return figure


def memory(history: list, block_size: int, reserved: dict[str, list[int]]):
    """Slots over time: those that contiguous caches would reserve, and those in used blocks.

    reserved: for each way, the slots that are reserved in each step.
    """
    figure, axes = plt.subplots(figsize=(8.8, 3.6), layout="constrained")
    blocks = [(record.alone + record.shared) * block_size for record in history]
    lines = {**reserved, "blocks in use": blocks}
    styles = ((LINES[0], ":"), (LINES[1], "--"), (LINES[2], "-"))
    for (name, slots), (colour, style) in zip(lines.items(), styles, strict=True):
        axes.step(
            range(len(slots)),
            slots,
            where="post",
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=name,
        )
    axes.fill_between(
        range(len(history)),
        [sum(record.lengths.values()) for record in history],
        step="post",
        facecolor=WASTED,
        edgecolor=QUIET,
        hatch="..",
        linewidth=0,
        label="tokens of the running requests",
    )
    axes.set(
        xlabel="step",
        ylabel="slots (one token each)",
        title="What the same trace needs",
        xlim=(0, len(history) - 1),
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def differences(by_layer: Tensor):
    """A heat map of the distance between two engines.

    by_layer: (num_layers, num_tokens).
    """
    num_layers, num_tokens = by_layer.shape
    figure, axes = plt.subplots(figsize=(8.8, 0.3 * num_layers + 1.3), layout="constrained")
    image = axes.imshow(
        by_layer.clamp(min=1e-7),
        norm=LogNorm(1e-7, 100),
        cmap="cividis",
        origin="lower",
        aspect="auto",
    )
    axes.set(
        xlabel="token",
        ylabel="layer",
        yticks=range(num_layers),
        xticks=range(0, num_tokens, 8),
        title="How far the outputs of attention are apart",
    )
    figure.colorbar(image, ax=axes, label="largest difference")
    return figure


def accuracy(table: dict[str, dict[str, float]]):
    """A row for each fault, a column for each task: the share of right answers.

    Low is dark.
    """
    tasks = list(next(iter(table.values())))
    figure, axes = plt.subplots(figsize=(7.6, 0.4 * len(table) + 1.1), layout="constrained")
    shares = [[row[task] for task in tasks] for row in table.values()]
    image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for line, row in enumerate(shares):
        for column, share in enumerate(row):
            axes.text(
                column,
                line,
                f"{100 * share:.0f} %",
                ha="center",
                va="center",
                fontsize=9.5,
                color=ink(image.cmap(image.norm(share))),
            )
    axes.set_xticks(range(len(tasks)), tasks)
    axes.set_yticks(range(len(table)), list(table))
    axes.xaxis.tick_top()
    axes.set_title("Right answers", fontsize=10)
    return figure
