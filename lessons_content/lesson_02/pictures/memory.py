"""Plots of lesson 02: the places of a view's numbers in memory, and memory use over time."""

import matplotlib.pyplot as plt
import torch

from lessons_lib.drawing import EDGE, FREE, LINES, SHARED, USED, WASTED

# percent; Kwon et al. 2023, figure 2
PAPER = {"max": 20.4, "pow2": 26.8, "oracle": 38.2, "paged": 96.3}
NAMES = {
    "max": "reserve the\nmaximum",
    "pow2": "reserve a\npower of two",
    "oracle": "reserve what\nwill be needed",
    "paged": "blocks of 16",
}
# The line style of each way, over time.
STYLES = {
    "max": (LINES[0], ":"),
    "pow2": (LINES[1], "--"),
    "oracle": (LINES[3], "-."),
    "paged": (LINES[2], "-"),
}


def draw_layouts(layouts: dict[str, tuple]):
    """A strip of memory for each layout. A block is grey; a part of it is blue, with dots.

    layouts: name to (whole tensor, the view of one block, the part of that block).
    """
    figure, rows = plt.subplots(
        len(layouts), 1, figsize=(8.6, 0.95 * len(layouts)), layout="constrained"
    )
    for axes, (name, (whole, blocks, part)) in zip(rows, layouts.items(), strict=True):
        for view, colour, hatch in ((blocks, WASTED, None), (part, USED, "..")):
            axes.broken_barh(
                _pieces(_addresses(view)),
                (0, 1),
                facecolor=colour,
                edgecolor=EDGE,
                linewidth=0.8,
                hatch=hatch,
            )
        axes.set(xlim=(0, whole.numel()), ylim=(0, 1))
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_yticks([])
        axes.set_xticks(range(0, whole.numel() + 1, 32))
        axes.tick_params(labelsize=8)
    rows[-1].set_xlabel("address, counted in numbers")
    return figure


def _addresses(view: torch.Tensor) -> torch.Tensor:
    storage = torch.arange(view.untyped_storage().nbytes() // view.element_size())
    return storage.as_strided(view.shape, view.stride(), view.storage_offset()).flatten()


def _pieces(addresses: torch.Tensor) -> list[tuple[int, int]]:
    """(start, length) of each stretch of addresses without a gap."""
    pieces = []
    for address in sorted(addresses.tolist()):
        if pieces and sum(pieces[-1]) == address:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((address, 1))
    return pieces


def draw_use(shares: dict[str, dict[str, float]]):
    """Stacked bars, in percent of the pool, for each way to give out memory, and the paper."""
    figure, axes = plt.subplots(figsize=(8.6, 3.6), layout="constrained")
    colours = {
        "tokens": USED,
        "kept for later tokens": SHARED,
        "never used": WASTED,
        "free": FREE,
    }
    hatches = {"tokens": "", "kept for later tokens": "//", "never used": "xx", "free": ""}
    for position, (name, parts) in enumerate(shares.items()):
        bottom = 0.0
        for part, share in parts.items():
            axes.bar(
                position,
                share,
                bottom=bottom,
                width=0.42,
                color=colours[part],
                hatch=hatches[part],
                edgecolor=EDGE,
                label=part if position == 0 else None,
            )
            bottom += share
        axes.plot(
            position + 0.27,
            PAPER[name],
            marker="D",
            color="black",
            linestyle="",
            label="tokens, in the paper" if position == 0 else None,
        )
        axes.text(position + 0.34, PAPER[name], f"{PAPER[name]} %", va="center", fontsize=9)
        axes.text(
            position,
            parts["tokens"] / 2,
            f"{parts['tokens']:.0f} %",
            ha="center",
            va="center",
            fontsize=10,
        )
    axes.set_xticks(range(len(shares)), [NAMES[name] for name in shares])
    axes.set_xlim(-0.5, len(shares) - 0.15)
    axes.set_ylabel("share of the pool [%]")
    axes.set_title("What the memory holds while requests are waiting")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def draw_history(histories: dict[str, list]):
    """Plots over time: how many requests run at once, and the largest hole among free slots.

    Each contiguous way has its own panel for the holes, because the lines go up and down too
    much for one panel.
    """
    contiguous = [name for name in histories if name != "paged"]
    figure, axes = plt.subplot_mosaic(
        [["running", name] for name in contiguous], figsize=(8.6, 4.2), layout="constrained"
    )
    running, last = axes["running"], axes[contiguous[-1]]
    for name, history in histories.items():
        colour, line = STYLES[name]
        label = NAMES[name].replace("\n", " ")
        running.plot(
            [step.running for step in history], color=colour, linestyle=line, label=label
        )
        if name in contiguous:
            axes[name].sharex(last)
            axes[name].fill_between(
                range(len(history)), [_usable(step) for step in history], color=colour, lw=0
            )
            axes[name].set_title(label, loc="left", fontsize=9, color=colour)
            axes[name].set(ylim=(0, 105), yticks=(0, 50, 100))
            axes[name].tick_params(labelsize=8, labelbottom=axes[name] is last)
    running.set(xlabel="step", ylabel="requests")
    running.set_title("Requests that run at once", loc="left", fontsize=10)
    running.legend(fontsize=8)
    last.set_xlabel("step")
    axes[contiguous[len(contiguous) // 2]].set_ylabel(
        "largest hole: share of the free slots [%]", fontsize=9
    )
    return figure


def _usable(step) -> float:
    """The largest hole in percent of the free slots; NaN if none is free."""
    return 100 * step.largest_hole / step.free if step.free else float("nan")
