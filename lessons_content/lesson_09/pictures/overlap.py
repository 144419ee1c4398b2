"""Work that overlaps in a kernel, as boxes over time. The lengths are not measured."""

import matplotlib.pyplot as plt

from lessons_lib.drawing import EDGE, ink

Box = tuple[float, float, str]  # start, length, text


def overlap(panels: dict[str, dict[str, list[Box]]], colours: dict[str, str]):
    """A row for each worker, in a panel for each kernel.

    panels: for each kernel's title, the boxes of each worker.
    colours: by the first word of a box's text.
    """
    sizes = [len(workers) for workers in panels.values()]
    figure, all_axes = plt.subplots(
        len(panels),
        1,
        sharex=True,
        squeeze=False,
        layout="constrained",
        figsize=(9, 0.5 * sum(sizes) + 0.55 * len(sizes) + 0.4),
        height_ratios=sizes,
    )
    ends = [
        begin + length
        for workers in panels.values()
        for boxes in workers.values()
        for begin, length, _ in boxes
    ]
    for axes, (title, workers) in zip(all_axes[:, 0], panels.items(), strict=True):
        for row, boxes in enumerate(workers.values()):
            for begin, length, what in boxes:
                colour = colours[what.split()[0]]
                axes.barh(row, length, 0.8, left=begin, color=colour, edgecolor=EDGE)
                middle = begin + length / 2
                axes.text(
                    middle, row, what, ha="center", va="center", fontsize=8, color=ink(colour)
                )
        axes.set_yticks(range(len(workers)), workers, fontsize=9)
        axes.set_ylim(len(workers) - 0.45, -0.55)
        axes.set_xlim(0, max(ends))
        axes.set_xticks([])
        axes.set_title(title, loc="left", fontsize=10)
    all_axes[-1, 0].set_xlabel("time, in principle; the lengths are not measured", fontsize=9)
    return figure
