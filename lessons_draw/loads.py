"""Lesson 07's picture of one load: which bytes a warp asks for, and which memory brings."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from lessons_draw import EDGE, EMPTY, FREE, QUIET, USED, WASTED

SECTOR = 32  # bytes that memory brings at once


def loads(
    panels: list[tuple[str, list[tuple[int, int]], int]], num_tokens: int, row_bytes: int
):
    """Keys as rows of bytes, and what a warp's load does there.

    panels: (title, places, size) each. places: (token, byte of its key) where each lane begins
        to read. size: bytes that a lane reads.
    """
    figure, columns = plt.subplots(
        1, len(panels), figsize=(9, 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (title, places, size) in zip(columns[0], panels, strict=True):
        brought = {
            (token, byte // SECTOR)
            for token, first in places
            for byte in (first, first + size - 1)
        }
        for token, sector in brought:
            axes.add_patch(
                Rectangle(
                    (sector * SECTOR, token),
                    SECTOR,
                    0.9,
                    facecolor=WASTED,
                    edgecolor=QUIET,
                    linewidth=0,
                    hatch=EMPTY,
                )
            )
        for token, first in places:
            axes.add_patch(
                Rectangle((first, token), size, 0.9, facecolor=USED, edgecolor="none")
            )
        for token in range(num_tokens):
            for first in range(0, row_bytes, SECTOR):
                axes.add_patch(
                    Rectangle(
                        (first, token),
                        SECTOR,
                        0.9,
                        facecolor="none",
                        edgecolor=EDGE,
                        linewidth=0.4,
                    )
                )
        axes.set(
            xlim=(-2, row_bytes + 2),
            ylim=(num_tokens + 0.2, -0.4),
            xticks=range(0, row_bytes + 1, 2 * SECTOR),
            xlabel="byte of the key",
        )
        axes.set_title(
            f"{title}\n"
            f"{len(brought) * SECTOR:,} bytes brought, {len(places) * size:,} asked for",
            loc="left",
            fontsize=10,
        )
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
    columns[0, 0].set_ylabel("token")
    kinds = [
        Patch(facecolor=USED, edgecolor=EDGE, label="asked for"),
        Patch(facecolor=WASTED, edgecolor=EDGE, hatch=EMPTY, label="brought along"),
        Patch(facecolor=FREE, edgecolor=EDGE, label="a sector of 32 bytes, left alone"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)
    return figure
