"""Three people who ask at once: their answers, and the blocks that hold them."""

import html
import textwrap

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from lessons_content.lesson_08.bench.conversation_runs import in_a_line, summary
from lessons_content.lesson_08.bench.conversation_runs import recorded as runs
from lessons_lib.drawing import (
    EDGE,
    GREEN,
    PINK,
    QUIET,
    SHARED,
    USED,
    Picture,
    draw_block,
    show,
)

COLUMN = 10.0  # in units of the axes; 32 characters fit
OWN = (USED, GREEN, PINK)
TINT = "#f2f2f2"


def recorded(run=None) -> Picture:
    """A recorded conversation. Without a run, the one that comes with the course."""
    run = run or runs()[0]
    said = " ".join(
        f"{each.name} asks: {each.question} The answer: {each.answer}" for each in run.answers
    )
    shared = ", ".join(map(str, sorted(run.shared)))
    return show(
        _figure(run),
        alt=(
            f"Three columns. {said} Below each, the blocks of this request. All three begin "
            f"with blocks {shared}, which are drawn in another colour: most of the system "
            "prompt lies in them, once."
        ),
    )


def _figure(run):
    figure, axes = plt.subplots(figsize=(9.2, 3.2), layout="constrained")
    for column, (answer, colour) in enumerate(zip(run.answers, OWN)):
        left = column * (COLUMN + 0.6)
        axes.text(left, 8.6, answer.name, fontsize=11, fontweight="bold", va="center")
        _bubble(axes, left, 6.6, 1.3, answer.question, TINT)
        _bubble(axes, left, 3.2, 2.9, answer.answer, "white")
        for place, block in enumerate(answer.blocks):
            own = SHARED if block in run.shared else colour
            draw_block(axes, left + 1.25 * place, 1.4, str(block), own, width=1.1)
    words = f"{run.model}: {summary(run)}"
    axes.text(0, 0.5, words, fontsize=9.5, color=QUIET, va="center")
    labels = ((7.25, "asked"), (4.65, "told"), (1.9, "blocks"))
    for y, label in labels:
        axes.text(-0.5, y, label, ha="right", va="center", fontsize=10)
    axes.set(xlim=(-2.2, 3 * COLUMN + 1.4), ylim=(0.1, 9.0))
    axes.axis("off")
    return figure


def _bubble(axes, left: float, bottom: float, height: float, text: str, colour: str) -> None:
    style = "round,pad=0,rounding_size=0.35"
    box = (left, bottom), COLUMN, height
    axes.add_patch(FancyBboxPatch(*box, boxstyle=style, facecolor=colour, edgecolor=EDGE))
    words = textwrap.fill(text, 32)
    axes.text(left + 0.35, bottom + height / 2, words, fontsize=10, va="center")


class Columns:
    """A conversation side by side, as HTML, while its answers grow."""

    def __init__(self, talk):
        self.talk = talk

    def _repr_html_(self) -> str:
        columns = "".join(
            '<div style="flex:1; min-width:0"><b>{}</b><br><i>{}</i><p>{}</p></div>'.format(
                *map(html.escape, (name, self.talk.questions[name], answer))
            )
            for name, answer in self.talk.answers.items()
        )
        return f'<div style="display:flex; gap:1.5em">{columns}</div><p>{self._line()}</p>'

    def __repr__(self) -> str:
        said = (f"{name}: {answer}" for name, answer in self.talk.answers.items())
        return "\n".join([*said, self._line()])

    def _line(self) -> str:
        return in_a_line(*self.talk.blocks, self.talk.tokens_per_second)
