"""Lesson 11's pictures of the engine's surroundings: clients, a server, and a stream."""

import matplotlib.pyplot as plt

from lessons_content.lesson_11.pictures.ranks import RANKS, box
from lessons_lib.drawing import EDGE, FREE, GREEN, USED, WASTED, YELLOW, draw_arrow

# A stream with the stop text "4m": in each step the token, and the text that the server sends.
STREAM = (("q", "“q”"), ("7", "“7”"), ("b", "“b”"), ("4", ""), ("m", "the end"))


def around_the_engine():
    """A figure of two ranks, the engine, the server, and programs that ask."""
    figure, axes = plt.subplots(figsize=(9, 2.5), layout="constrained")
    for rank, y in enumerate((2.1, 0.5)):
        box(axes, 0, y, 3.6, 1.0, f"rank {rank}: half a layer", RANKS[rank])
        draw_arrow(axes, (5.4, 1.8), (3.6, y + 0.5))
    box(axes, 5.4, 0.9, 3.0, 1.8, "engine:\nbatch,\nblock tables", GREEN)
    draw_arrow(axes, (9.8, 1.95), (8.4, 1.95))
    draw_arrow(axes, (8.4, 1.65), (9.8, 1.65))
    box(axes, 9.8, 1.2, 2.2, 1.2, "server", YELLOW)
    for y, name in ((2.6, "a chat window"), (1.3, "a program"), (0.0, "curl")):
        box(axes, 14, y, 3.0, 1.0, name, FREE)
        draw_arrow(axes, (14, y + 0.5), (12, 1.8 + 0.15 * (y - 1.3)))
    for first, last, words in ((0, 3.6, "Part 1"), (9.8, 17, "Part 2")):
        axes.plot([first, last], [3.9, 3.9], color=EDGE, lw=1)
        axes.text((first + last) / 2, 4.0, words, ha="center", va="bottom", fontsize=10)
    axes.set(xlim=(-0.1, 17.1), ylim=(-0.1, 4.6))
    axes.axis("off")
    return figure


def stream():
    """A figure of an answer: the token of each step below, and the client's text above."""
    figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
    axes.text(-0.3, 2.45, "client", ha="right", va="center", fontsize=10)
    axes.text(-0.3, 0.45, "engine", ha="right", va="center", fontsize=10)
    box(axes, 0, 2.0, 2.6, 0.9, "“Cq7b4mxy>”,\nstop at “4m”", FREE)
    draw_arrow(axes, (1.3, 2.0), (1.3, 0.9))
    box(axes, 0, 0, 2.6, 0.9, "in the batch", WASTED)
    for step, (token, sent) in enumerate(STREAM):
        left = 3.1 + 2.5 * step
        box(axes, left, 0, 1.9, 0.9, f"token “{token}”", USED)
        if sent:
            box(axes, left, 2.0, 1.9, 0.9, sent, GREEN)
            draw_arrow(axes, (left + 0.95, 0.9), (left + 0.95, 2.0))
        else:
            axes.text(left + 0.95, 1.45, "waits", ha="center", va="center", fontsize=9.5)
    axes.set(xlim=(-1.5, 15.4), ylim=(-0.1, 3.0))
    axes.axis("off")
    return figure
