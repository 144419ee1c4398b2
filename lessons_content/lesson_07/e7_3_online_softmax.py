"""Exercise 7.3: the online softmax, token by token.

This is update() of lesson 03's SoftmaxState, for one row and four keys: the new maximum, a
factor for what was summed before, the new weights.

What was summed before counts from the old maximum, and what is added now counts from the new
one. The factor needs both. Is the old one still there when you compute the factor?

Which of the steps go wrong when no token has come yet? What should the state be in that case?
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import drawn, kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_07.shapes import SHAPES, group_lanes

BEFORE = (
    "numbers paged_params paged_address "
    "ladder/shape ladder/launch ladder/wide_row ladder/wide_score"
)
NEVER = float("-inf")
ROWS = 4  # that a group takes in at once


@dataclass(frozen=True)
class Case:
    """there: how many tokens each round has for group 0. The other groups have one less.

    level, rise: what the first round's scores are near, and how much higher each further one.
    """

    shape: str
    there: tuple[int, ...]
    level: float = 0.0
    rise: float = 0.0
    seed: int = 0

    def inputs(self) -> tuple[Tensor, Tensor]:
        """scores (rounds, groups, ROWS) and values (rounds, groups, ROWS, head_size).

        For a token that does not exist they are -inf and zeros.
        """
        shape = SHAPES[self.shape]
        generator = torch.Generator().manual_seed(self.seed)
        rounds, groups = len(self.there), 32 // group_lanes(shape)
        scores = torch.randn(rounds, groups, ROWS, generator=generator) + self.level
        scores += self.rise * torch.arange(rounds)[:, None, None]
        values = drawn.normal(rounds, groups, ROWS, shape.head_size, generator=generator)
        values = values.to(shape.dtype)
        for number, there in enumerate(self.there):
            for group in range(groups):
                missing = slice(max(0, there - (group > 0)), ROWS)
                scores[number, group, missing], values[number, group, missing] = NEVER, 0
        return scores, values


def reference(case: Case, scores: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """(m, l, acc) after all rounds: by (group, lane), and acc by (group, dim)."""
    scores, values = scores.double(), values.double()
    m = scores.amax((0, 2))
    weights = torch.where(scores == NEVER, 0.0, torch.exp(scores - m[:, None]))
    l = weights.sum((0, 2))
    acc = (weights[..., None] * values).sum((0, 2))
    lanes = group_lanes(SHAPES[case.shape])
    of_lanes = (each[:, None].expand(-1, lanes) for each in (m, l))
    return tuple(part.float() for part in (*of_lanes, acc))


def recognise(answer):
    """In these, what is read or written is whatever lies past the end of an array."""
    text = kernels.without_comments(answer)
    if re.search(r"\bstate\s*\.\s*acc\s*\[\s*place\s*\(\s*\w+\s*\)\s*\]", text):
        return "place-in-the-part"
    ends = {}
    for name, end in re.findall(r"\b(\w+)\s*=\s*0\s*;\s*\1\s*<\s*(\w+)", text):
        ends.setdefault(name, set()).add(end)
    pairs = re.findall(r"\bnumber\s*\(\s*values\s*\[\s*(\w+)\s*\]\s*,\s*(\w+)\s*\)", text)
    for token, number in pairs:
        counts_tokens = ends.get(number, {None}) <= {"rows_at_once", str(ROWS)}
        if ends.get(token) == {"lane_numbers"} and counts_tokens:
            return "token-and-number-swapped"
    return None


def prepare(answer):
    libraries = kernels.build_all(answer, BEFORE, "online_softmax_check.cu", SHAPES.values())

    def native(case: Case, scores: Tensor, values: Tensor):
        shape = SHAPES[case.shape]
        groups, lanes, head_size = scores.shape[1], group_lanes(shape), shape.head_size
        out_m, out_l = torch.empty(groups, lanes), torch.empty(groups, lanes)
        out_acc, out_past = torch.empty(groups, head_size), torch.empty(groups * lanes, 8)
        outputs = out_m, out_l, out_acc, out_past
        libraries[shape].take_in_all(scores, values, *outputs, len(scores))
        what = "Numbers were written past a lane's state: acc has lane_numbers numbers."
        kernels.check_around(out_past, what, "behind-the-state")
        return out_m, out_l, out_acc

    return native


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
    kernels,
    answer_name="softmax_state",
    observe=kernels.observing(
        parts=("m by (group, lane)", "l by (group, lane)", "acc by (group, dim)")
    ),
    size=lambda case: (len(case.there), sum(case.there), SHAPES[case.shape].head_size),
    points=2,
)
