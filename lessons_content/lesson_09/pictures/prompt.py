"""Pictures of a whole prompt: the time to its first token, and the reads of its keys."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from lessons_lib.drawing import EDGE, EMPTY, SHARED, USED, WASTED


def first_token(attention: dict[str, float], weights: float, where: str):
    """A bar of the seconds until the first token, for each way to compute attention.

    weights: the seconds of the products with the weights.
    where: the card and the day.
    """
    figure, axes = plt.subplots(figsize=(9, 2.5), layout="constrained")
    for row, seconds in enumerate(attention.values()):
        total = weights + seconds
        label = "attention" if row == 0 else None
        axes.barh(row, seconds, 0.6, left=weights, color=SHARED, edgecolor=EDGE, label=label)
        label = "products with the weights" if row == 0 else None
        axes.barh(row, weights, 0.6, color=USED, edgecolor=EDGE, label=label)
        axes.annotate(
            f"{total:.2f} s",
            (total, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(attention)), attention, fontsize=9)
    axes.set_xlim(0, 1.1 * (weights + max(attention.values())))
    axes.invert_yaxis()
    axes.set_xlabel("seconds until the first token of the answer")
    axes.set_title(
        f"A prompt of 8,192 tokens, shapes of Qwen3-8B, {where}", loc="left", fontsize=10
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


def reads(num_tokens: int, tile_tokens: int, counts: tuple[int, int]):
    """Each read of a key is a box, as high as the queries that it serves.

    counts: the reads of each panel.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
    titles = "Each query for itself", f"Tiles of {tile_tokens} queries"
    for axes, title, height, count in zip(
        panels, titles, (1, tile_tokens), counts, strict=True
    ):
        for first in range(0, num_tokens, height):
            for key in range(first + height):
                axes.add_patch(
                    Rectangle((key, first), 0.9, height - 0.1, facecolor=USED, edgecolor=EDGE)
                )
                if key > first:  # queries before the key do not see it
                    axes.add_patch(
                        Rectangle(
                            (key, first),
                            0.9,
                            key - first,
                            facecolor=WASTED,
                            edgecolor=EDGE,
                            hatch=EMPTY,
                        )
                    )
        axes.set_xlim(-0.1, num_tokens)
        axes.set_ylim(num_tokens, -0.1)
        middles = [place + 0.45 for place in range(num_tokens)]
        axes.set_xticks(middles, range(num_tokens), fontsize=9)
        axes.set_yticks(middles, range(num_tokens), fontsize=9)
        axes.tick_params(length=0)
        axes.set_aspect("equal")
        axes.set_xlabel("key")
        axes.set_ylabel("query")
        axes.set_title(f"{title}: {count} reads", loc="left", fontsize=10)
        for side in axes.spines.values():
            side.set_visible(False)
    return figure
