"""Exercise 7.3: the online softmax, token by token.

This is update() of lesson 03's SoftmaxState, for one row and four keys: the new maximum, a
factor for what was summed before, the new weights.

What was summed before counts from the old maximum, and what is added now counts from the new
one. The factor needs both. Is the old one still there when you compute the factor?

Which of the steps go wrong when no token has come yet? What should the state be in that case?
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_07 import softmax_states
from lessons_content.lesson_07.shapes import SHAPES, group_lanes
from lessons_content.lesson_07.softmax_states import ROWS, Case

CASES = [
    Case("half", (1,)),
    Case("half", (4,)),
    Case("half", (3, 2), seed=1),
    Case("half", (4, 4), rise=-2.0, seed=2),
    Case("half", (4, 4, 4), rise=1.5, seed=3),
    Case("half", (4,), level=-60.0, seed=4),
    Case("half", (4, 3), level=150.0, rise=2.0, seed=5),
    Case("half", (0,)),
    Case("half", (0, 4, 0), seed=6),
    Case("half", (1, 0), level=-300.0, seed=7),
    Case("bfloat16", (4, 4, 1, 4), rise=0.5, seed=8),
    Case("float, small heads", (4, 2, 4), rise=-1.0, seed=9),
    Case("float, small heads", (4, 4, 4), level=-200.0, rise=150.0, seed=10),
    Case("float, small heads", (4, 3), seed=11),
    Case("float", (3, 4), seed=12),
]


def hidden(chance):
    """Scores go up or down from any level, and rounds have any number of tokens, or none."""
    for number, shape in enumerate(("half", "bfloat16", "float, small heads") * 4):
        there = chance.choices(range(ROWS + 1), k=1 + number // 3)
        yield Case(
            shape,
            (*there, chance.randint(1, ROWS)),
            chance.choice((0.0, -60.0, 150.0, -300.0)),
            chance.choice((0.0, -2.0, 1.5, 90.0)),
            chance.randrange(2**31),
        )
    yield Case("half", (0,), seed=chance.randrange(2**31))


def describe(case):
    shape = SHAPES[case.shape]
    numbers = " and then ".join(map(str, case.there))
    more = f", scores near {case.level:g}" if case.level else ""
    if case.rise:
        way = "higher" if case.rise > 0 else "lower"
        more += f", from one round to the next about {abs(case.rise):g} {way}"
    return (
        f"{counted(len(case.there), 'round')} of up to {ROWS} tokens (in group 0: "
        f"{numbers}), {shape.head_size} dims in {case.shape.split(',')[0]}, "
        f"{counted(32 // group_lanes(shape), 'group')} of lanes in the warp{more}"
    )


EXERCISE = exercise(
    globals(),
    softmax_states,
    kernels,
    answer_name="softmax_state",
    observe=kernels.observing(
        parts=("m by (group, lane)", "l by (group, lane)", "acc by (group, dim)")
    ),
    size=lambda case: (len(case.there), sum(case.there), SHAPES[case.shape].head_size),
    points=2,
)
