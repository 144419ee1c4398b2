"""A learner's kernel that combines parts, as a function of tensors, for 7.5."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, listed
from lessons_content.lesson_06.batches import DTYPES
from paged_attention.ladder.decode import Shape

# one for each type of numbers
SHAPES = {
    dtype: Shape(dtype, head_size, 4, 16)
    for dtype, head_size in ((torch.half, 128), (torch.bfloat16, 64))
}


@dataclass(frozen=True)
class Case:
    """level: what the maxima are near.

    empty: the splits that hold no token, of every row; or (split, seq, head).
    """

    num_splits: int
    num_seqs: int
    num_q_heads: int
    level: float = 0.0
    spread: float = 1.0
    empty: tuple = ()
    seed: int = 0
    dtype: torch.dtype = torch.half  # of the output

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """o (num_splits, num_seqs, num_q_heads, head_size); m and l without the last."""
        generator = torch.Generator().manual_seed(self.seed)
        shape = self.num_splits, self.num_seqs, self.num_q_heads
        o = torch.randn(*shape, SHAPES[self.dtype].head_size, generator=generator)
        m = self.level + self.spread * torch.randn(shape, generator=generator)
        l = 1 + 30 * torch.rand(shape, generator=generator)
        if isinstance(self, OneLongPart):
            first = 1 + 0.1 * torch.rand(o[:1].shape, generator=generator)
            o = torch.cat([first, 2 + o[1:] / 32])
            m[0] += 7.0
            l[:] = 1.0
        for part in self.empty:
            o[part], m[part], l[part] = 0.0, -math.inf, 0.0
        return o, m, l


@dataclass(frozen=True)
class OneLongPart(Case):
    """Of many parts the first, with o near 1, weighs 1,100 times each other one, near 2."""


def reference(case: Case, o: Tensor, m: Tensor, l: Tensor) -> Tensor:
    """The output: zeros where no part has a token."""
    o, m, l = o.double(), m.double(), l.double()
    weights = torch.where(l == 0, 0.0, torch.exp(m - m.amax(0)) * l)[..., None]
    total = weights.sum(0)
    return torch.where(total == 0, 0.0, (weights * o).sum(0) / total).to(case.dtype)


def prepare(answer):
    libraries = kernels.build_all(
        answer, "numbers paged_params", "combine_check.cu", SHAPES.values()
    )

    def native(case: Case, o: Tensor, m: Tensor, l: Tensor):
        num_splits, num_seqs, num_q_heads, head_size = o.shape
        out = torch.empty(num_seqs, num_q_heads, head_size, dtype=case.dtype)
        fields = kernels.paged_params(
            out=out,
            num_seqs=num_seqs,
            num_q_heads=num_q_heads,
            head_size=head_size,
            dtype=DTYPES.index(case.dtype),
        )
        parts = {"part_o": o, "part_m": m, "part_l": l}
        libraries[SHAPES[case.dtype]].combine(**fields, **parts, num_splits=num_splits)
        return out

    return native


def describe(case):
    words = (
        f"{counted(case.num_splits, 'split')} of {counted(case.num_seqs, 'sequence')} "
        f"with {counted(case.num_q_heads, 'query head')}, "
        f"head size {SHAPES[case.dtype].head_size}, "
        f"Number = {'__half' if case.dtype == torch.half else '__nv_bfloat16'}"
    )
    if case.level or case.spread > 10:
        words += f", m near {case.level:g}"
    if case.spread > 10:
        words += f" give or take {case.spread:g}"
    if isinstance(case, OneLongPart):
        words += "; the first one has nearly all of the weight"
    if case.empty:
        kind = "split" if isinstance(case.empty[0], int) else "(split, sequence, head)"
        words += f"; {kind} {listed(case.empty)} without a token (o = 0, m = -inf, l = 0)"
    return f"{words}; the output for each (sequence, head, element)"
