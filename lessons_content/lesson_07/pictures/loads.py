"""Lesson 07's picture of one load: the bytes that a warp asks for, and those that arrive."""

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from lessons_lib.drawing import EDGE, EMPTY, FREE, QUIET, USED, WASTED

SECTOR = 32  # bytes that memory brings at once
# If a lane's bytes are a smaller part of a sector than this, they are also shown magnified.
SMALL = 8
MAGNIFIED = 3  # tokens


def loads(
    panels: list[tuple[str, list[tuple[int, int]], int]], num_tokens: int, row_bytes: int
):
    """Keys as rows of bytes, and a warp's load of them.

    panels: (title, places, size) each. places: (token, byte of its key) where each lane begins
        to read. size: bytes that a lane reads.
    """
    figure, columns = plt.subplots(
        1, len(panels), figsize=(9, 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (title, places, size) in zip(columns[0], panels, strict=True):
        num_brought = len(_brought(places, size)) * SECTOR
        _draw_rows(axes, places, size, num_tokens, row_bytes)
        axes.set(
            xlim=(-2, row_bytes + 2),
            ylim=(num_tokens + 0.2, -0.4),
            xticks=range(0, row_bytes + 1, 2 * SECTOR),
            xlabel="byte of the key",
        )
        axes.set_title(
            f"{title}\n{num_brought:,} bytes brought, {len(places) * size:,} asked for",
            loc="left",
            fontsize=10,
        )
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        if size < SMALL:
            _magnify(axes, places, size)
    columns[0, 0].set_ylabel("token")
    kinds = [
        Patch(facecolor=USED, edgecolor=EDGE, label="asked for"),
        Patch(facecolor=WASTED, edgecolor=EDGE, hatch=EMPTY, label="brought along"),
        Patch(facecolor=FREE, edgecolor=EDGE, label="a sector of 32 bytes, left alone"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _brought(places: list[tuple[int, int]], size: int) -> set[tuple[int, int]]:
    """(token, number of the sector in its row) of each sector that memory brings."""
    return {
        (token, byte // SECTOR)
        for token, first in places
        for byte in (first, first + size - 1)
    }


def _draw_rows(axes, places, size: int, num_tokens: int, row_bytes: int) -> None:
    """Sectors brought, the bytes asked for, and thin lines around every sector."""
    for token, sector in _brought(places, size):
        style = {"facecolor": WASTED, "edgecolor": QUIET, "linewidth": 0, "hatch": EMPTY}
        axes.add_patch(Rectangle((sector * SECTOR, token), SECTOR, 0.9, **style))
    for token, first in places:
        axes.add_patch(Rectangle((first, token), size, 0.9, facecolor=USED, edgecolor="none"))
    for token in range(num_tokens):
        for first in range(0, row_bytes, SECTOR):
            style = {"facecolor": "none", "edgecolor": EDGE, "linewidth": 0.4}
            axes.add_patch(Rectangle((first, token), SECTOR, 0.9, **style))


def _magnify(axes, places, size: int) -> None:
    """The first sector of the first tokens again, wide enough to see a lane's bytes."""
    first = [(token, byte) for token, byte in places if token < MAGNIFIED and byte < SECTOR]
    axes.add_patch(
        Rectangle(
            (0.2, 0.32), 0.77, 0.5, transform=axes.transAxes, facecolor=FREE, edgecolor=EDGE
        )
    )
    inset = axes.inset_axes((0.28, 0.4, 0.64, 0.27))
    _draw_rows(inset, first, size, MAGNIFIED, SECTOR)
    inset.set(
        xlim=(-0.3, SECTOR + 0.3),
        ylim=(MAGNIFIED, -0.1),
        xticks=range(0, SECTOR + 1, 8),
        yticks=[token + 0.45 for token in range(MAGNIFIED)],
        yticklabels=range(MAGNIFIED),
    )
    inset.tick_params(labelsize=8)
    inset.set_title(
        f"one sector, magnified:\n{size} bytes asked for, {SECTOR - size} brought along",
        loc="left",
        fontsize=9,
    )
