"""The pictures of lesson 00: one block table, and the memory of five requests."""

import matplotlib.pyplot as plt

from lessons_content.lesson_00.pictures import conversation, reserving
from lessons_lib.drawing import (
    FREE,
    GREEN,
    USED,
    WASTED,
    Picture,
    draw_arrow,
    draw_block,
    show,
)
from lessons_lib.drawing.player import Player


def opening() -> Picture:
    """Two requests' words, their block tables, and their blocks in one pool."""
    return show(
        _tables_and_pool(
            {"A": ["The cat sat on", "the mat and", "slept"], "B": ["Once upon a", "time"]},
            {"A": [5, 0, 7], "B": [2, 6]},
            num_blocks=8,
        ),
        alt=(
            "Above, the words of two requests, cut into pieces of a few words: three of A, two"
            " of B. In the middle a table for each request: 5, 0, 7 for A, and 2, 6 for B."
            " Below, a pool of eight blocks. An arrow leads from each entry of a table to the"
            " block with that number. Blocks 1, 3 and 4 are free."
        ),
    )


def at_the_end() -> Picture:
    """Three people who ask the engine of lesson 08 at once."""
    return conversation.recorded()


def contiguous_and_paged() -> Player:
    """The same requests in pieces of the longest length and in blocks, step by step."""
    return reserving.recorded()


def one_piece_each(lengths: dict[str, int], limit: int) -> Picture:
    """The memory that each request reserves if it gets one piece of `limit` tokens.

    lengths: the number of tokens of each request, by its name.
    """
    return show(
        _bars(lengths, dict.fromkeys(lengths, limit), limit, "One piece for each request"),
        alt=(
            "Five bars of 512 tokens each, one for each request. Only a part of each bar,"
            " between 24 and 310 tokens, is in use; the rest is reserved and empty."
        ),
    )


def blocks_of_16(lengths: dict[str, int], reserved: dict[str, int], limit: int) -> Picture:
    """The memory that each request reserves if it gets blocks.

    lengths: the number of tokens of each request, by its name.
    reserved: the number of slots in each request's blocks, by its name.
    """
    return show(
        _bars(lengths, reserved, limit, "Blocks of 16 tokens"),
        alt=(
            "Five bars, one for each request, each hardly longer than its tokens: less than"
            " one block of 16 tokens is empty in each."
        ),
    )


def _tables_and_pool(words: dict, tables: dict, num_blocks: int):
    """words: the text in each block of a request. tables: its block ids. Both by its name."""
    figure, axes = plt.subplots(figsize=(8.6, 2.9), layout="constrained")
    colours = dict(zip(tables, (USED, GREEN)))
    owner = {block_id: name for name, ids in tables.items() for block_id in ids}
    contents = {
        block_id: text
        for name, ids in tables.items()
        for block_id, text in zip(ids, words[name], strict=True)
    }
    left = 0.0
    for name, ids in tables.items():
        axes.text(left, 5.55, f"request {name}", fontsize=10)
        for block_id in ids:
            draw_block(axes, left, 4.4, contents[block_id], colours[name], width=1.9)
            draw_block(axes, left + 0.6, 2.7, str(block_id), FREE, width=0.7)
            draw_arrow(axes, (left + 0.95, 4.4), (left + 0.95, 3.75))
            draw_arrow(axes, (left + 0.95, 2.7), (1.5 * block_id + 0.7, 1.05))
            left += 1.9
        left += 1.1
    for block_id in range(num_blocks):
        colour = colours.get(owner.get(block_id), FREE)
        text = owner.get(block_id, "free")
        draw_block(axes, 1.5 * block_id, 0, text, colour, width=1.4, below=f"block {block_id}")
    for y, label in ((4.9, "what is said"), (3.2, "block tables"), (0.5, "memory")):
        axes.text(-0.4, y, label, ha="right", va="center", fontsize=10)
    axes.set(xlim=(-2.4, 12.1), ylim=(-0.6, 6.0))
    axes.axis("off")
    return figure


def _bars(lengths: dict[str, int], reserved: dict[str, int], limit: int, title: str):
    figure, axes = plt.subplots(figsize=(7.5, 2.7), layout="constrained")
    axes.barh(
        list(lengths),
        [reserved[name] for name in lengths],
        color=WASTED,
        hatch="///",
        edgecolor="white",
        label="reserved and empty",
    )
    axes.barh(list(lengths), list(lengths.values()), color=USED, label="holds a token")
    axes.set(xlim=(0, limit), xlabel="tokens", ylabel="request")
    axes.invert_yaxis()
    axes.set_title(title, loc="left", fontsize=11)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
