"""Exercise 7.2: wide loads.

load_row: look at the row as a row of uint4, 16 bytes each. Lane 0 of the group takes number 0,
and lane 1 takes number 1. If each lane has two loads, the group begins again where it stopped.

threadIdx.x % group_lanes says which lane of its group a thread is.

wide_score: first comes what the lane can do alone, with number(key, i) and query[i]. Then come
shuffles, as in block_max of lesson 06. But here they end at the group, not at the warp.
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_07 import wide_scores
from lessons_content.lesson_07.shapes import SHAPES, group_lanes, loads_of
from lessons_content.lesson_07.wide_scores import Case

CASES = [
    Case("half", 1),
    Case("half", 2),
    Case("half", 5, 1),
    Case("bfloat16", 1, 2),
    Case("bfloat16", 3, 3),
    Case("bfloat16", 9, 4),
    Case("float", 1, 5),
    Case("float", 3, 6),
    Case("half", 11, 7),
    Case("float, small heads", 1, 8),
    Case("float, small heads", 4, 9),
]


def hidden(chance):
    """Of each shape some keys that do not fill a block of threads, and some that are more."""
    for few, most in ((1, 3), (5, 12)):
        yield from (
            Case(shape, chance.randint(few, most), chance.randrange(2**31)) for shape in SHAPES
        )


def describe(case):
    shape = SHAPES[case.shape]
    return (
        f"{counted(case.num_keys, 'key')} of {shape.head_size} numbers "
        f"in {case.shape.split(',')[0]}, so groups of {group_lanes(shape)} lanes "
        f"with {counted(loads_of(shape), 'load')} each"
    )


EXERCISE = exercise(
    globals(),
    wide_scores,
    kernels,
    answer_name="wide_score",
    size=lambda case: (case.num_keys, SHAPES[case.shape].head_size),
    points=2,
)
