"""A learner's state of the online softmax, as a function of tensors, for 7.3."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import drawn, kernels
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
