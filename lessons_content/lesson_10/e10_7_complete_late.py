"""Exercise 10.7: the late end.

Which requests of the step does `_complete` get? Ask `self.still_runs` about each of them,
before anything else.

The tokens come in the order of `scheduled`. If the first request has ended, whose token is the
first one? So you need the places of those that still run.

A tensor takes a list of places in square brackets: `tensor[[0, 2]]` has its rows 0 and 2. And
when no request is left, what is there to wait for?
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_08.scheduling import pairs
from lessons_content.lesson_10 import late_steps, parts
from lessons_content.lesson_10.late_steps import END, FATES
from lessons_content.lesson_10.parts import Part, again, chunk, decode, random_part
from paged_attention.engine.fast.ahead import AheadEngine
from paged_attention.engine.fast.sampler import NOT_FINITE


@dataclass(frozen=True)
class Case:
    """fates: one of FATES for each request."""

    parts: tuple[Part, ...]
    tokens: tuple[int, ...]
    fates: tuple[str, ...]


def case(*entries) -> Case:
    """Of (part, the step's token, fate)."""
    return Case(*(tuple(zip(*entries)) or ((), (), ())))


def in_place(gone: str, fate: str) -> Case:
    """Requests that decode. "-x" is one that runs, and one with this fate."""
    fates = [fate if letter == "x" else "" for letter in gone]
    return case(*((decode(3, 1), *both) for both in zip((73, 70, 75, 71), fates)))


def cases():
    yield case()
    yield from (in_place("-", ""), in_place("--", ""))
    yield case((chunk(7, 0, 4), 71, ""))
    yield case((chunk(7, 4, 3), 71, ""))
    yield case((again(3, 2, 0, 4), 71, ""))
    yield case((decode(3, 2), END, ""))
    yield case((decode(3, 2, most=3), 71, ""))
    yield case((decode(3, 2), NOT_FINITE, ""))
    yield case((chunk(7, 0, 4), NOT_FINITE, ""))
    for fate in FATES:
        if fate:
            yield from (in_place(gone, fate) for gone in ("x", "x-", "-x"))
    for gone in ("x--", "-x-", "--x", "xx-", "-xx", "xx", "-xx-", "x-x-"):
        yield from (in_place(gone, fate) for fate in ("end", "preempted"))
    yield case((decode(3, 1), 71, "preempted"), (decode(2, 2), 72, "end"))
    yield case((chunk(9, 0, 5), 71, "cancelled"), (chunk(9, 4, 2), 72, ""))
    yield case(
        (chunk(9, 0, 5), 71, ""), (decode(2, 2), 72, "preempted"), (decode(2, 1), 73, "")
    )
    yield case(
        (decode(3, 1), 71, "end"), (decode(3, 3, most=4), 72, ""), (decode(2, 1), 73, "")
    )
    yield case((decode(3, 1), END, "preempted"), (decode(3, 1), END, ""))
    yield case((decode(3, 1), NOT_FINITE, "cancelled"), (decode(3, 1), 72, ""))
    yield case(
        (decode(3, 1), NOT_FINITE, ""), (decode(3, 1), 72, "end"), (decode(3, 1), 73, "")
    )


def hidden(chance):
    """Up to six requests."""
    for number in range(24):
        size = number // 4 + (number % 4 > 0)
        tokens = [chance.choice((END, NOT_FINITE, *range(70, 78))) for _ in range(size)]
        fates = [chance.choice(("", "", "", "", *FATES)) for _ in range(size)]
        if number % 4 == 1:
            fates = chance.choices([fate for fate in FATES if fate], k=size)
        yield case(*((random_part(chance), *both) for both in zip(tokens, fates)))


EXERCISE = exercise(
    globals(),
    late_steps,
    reference=AheadEngine.complete_late,
    # An empty step shows little. A case of two requests is easier to follow.
    size=lambda case: parts.size(case.parts) if case.parts else (3, 0, 0),
)
