"""A learner's dot product by a group of lanes, as a function of tensors, for 7.2."""

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import drawn, kernels
from lessons_content.exercises.kit import Text
from lessons_content.lesson_06.batches import POISON
from lessons_content.lesson_07.shapes import SHAPES, group_lanes, loads_of

WARP = 32
BEFORE = "numbers paged_params paged_address ladder/shape ladder/launch ladder/wide_row"
PAST_A_ROW = 64  # numbers, all of them poison: other heads' keys
WIDE = Text("the scores, in loads of 16 bytes")
NARROW = Text("the scores, in loads of few bytes")
MORE = Text("the scores, with more bytes read than the keys have")


@dataclass(frozen=True)
class Case:
    """shape: a key of SHAPES."""

    shape: str
    num_keys: int
    seed: int = 0

    def inputs(self) -> tuple[Tensor, Tensor, float]:
        """q (head_size,), keys (num_keys, head_size) and the scale.

        From one row of the keys to the next it is further than head_size.
        """
        shape = SHAPES[self.shape]
        head_size = shape.head_size
        generator = torch.Generator().manual_seed(self.seed)
        memory = torch.full((self.num_keys, head_size + PAST_A_ROW), POISON)
        memory[:, :head_size] = drawn.normal(self.num_keys, head_size, generator=generator)
        q = drawn.normal(head_size, generator=generator).to(shape.dtype)
        return q, memory.to(shape.dtype)[:, :head_size], 1 / math.sqrt(head_size)


def reference(case: Case, q: Tensor, keys: Tensor, scale: float) -> tuple[Tensor, Text]:
    """What each lane gets, (num_keys, group_lanes), and by which loads."""
    products = keys.double() @ q.double()
    lanes = group_lanes(SHAPES[case.shape])
    return (scale * products).float()[:, None].repeat(1, lanes), WIDE


def recognise(answer: str) -> str | None:
    """A sum without a start, or a part whose second load has no value."""
    text = kernels.without_comments(answer)
    if re.search(r"\bfloat\s+(\w+)\s*;(?:(?!\b\1\b)[\s\S])*\b\1\s*\+=", text):
        return "sum-without-a-start"
    return "first-load-only" if first_load_alone_is_set(text) else None


def first_load_alone_is_set(text: str) -> bool:
    """Whether a WideRow without a start is returned, after nothing but `loads[0] =`."""
    part = re.search(r"\bWideRow\s+(\w+)\s*;([\s\S]*?)\breturn\s+\1\s*;", text)
    if part is None:
        return False
    rest, count = re.subn(rf"\b{part[1]}\s*\.\s*loads\s*\[\s*0\s*\]\s*=(?!=)", "", part[2])
    return count > 0 and not re.search(rf"\b{part[1]}\b", rest)


def prepare(answer):
    libraries = kernels.build_all(answer, BEFORE, "wide_score_check.cu", SHAPES.values())

    def native(case: Case, q: Tensor, keys: Tensor, scale: float):
        shape = SHAPES[case.shape]
        num_keys, lanes = len(keys), group_lanes(shape)
        out = torch.empty(num_keys, lanes)
        with libraries[shape].count("keys") as counts:
            libraries[shape].wide_scores(q, keys, out, num_keys, keys.stride(0), scale)
        if counts.bytes_read > keys.numel() * keys.element_size():
            return out, MORE
        warps = -(-num_keys * lanes // WARP)
        most = split * warps * loads_of(shape)
        return out, WIDE if counts.load_instructions <= most else NARROW

    keys, out = torch.zeros(WARP, 4), torch.zeros(WARP, 4)
    with libraries[SHAPES["float"]].count("keys") as counts:
        libraries[SHAPES["float"]].one_load(keys, out)
    split = counts.load_instructions  # a compiler may split a load of 16 bytes into four
    return native


def observe(subject, case):
    """The scores, and by which loads; or what was found."""
    how = WIDE

    def call():
        nonlocal how
        out, how = subject(case, *case.inputs())
        return (out,)

    result = kernels.result_of(call, ("keys",), ("score by (key, lane)",))
    return result if isinstance(result, kernels.Finding) else (*result, how)
