"""Exercise 7.5: combine the parts in a kernel.

Each thread does the whole of lesson 04's combine_result for one number of the output: the
largest m over the parts, their weights, the weighted mean. All threads of a block compute the
same weights.

There are gridDim.x * gridDim.y rows. This block's row has the number blockIdx.x * gridDim.y +
blockIdx.y. Part `split` of that row has the number split * rows + row among all parts.

A part without a token has m = -INFINITY. Its weight is 0. Make sure that it is, even if the
largest m is -INFINITY too. And make sure that you do not divide by a sum of weights that is 0.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise, listed
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


CASES = [
    Case(1, 1, 1),
    Case(2, 1, 1, spread=0.0),
    Case(2, 1, 1, seed=2),
    Case(3, 1, 1, level=-3.0, seed=3),
    Case(3, 1, 2, seed=4),
    Case(2, 2, 3, seed=5),
    Case(2, 1, 1, empty=(1,), seed=6),
    Case(3, 1, 2, empty=(1,), seed=17),
    Case(3, 1, 2, empty=(0,), seed=7),
    Case(2, 1, 1, empty=(0, 1), seed=8),
    Case(2, 1, 1, level=500.0, seed=9),
    Case(2, 1, 2, level=-150.0, seed=10),
    Case(2, 1, 2, level=-500.0, seed=14),
    Case(3, 2, 2, spread=60.0, empty=((2, 1, 0), (0, 0, 1)), seed=11),
    Case(9, 3, 4, spread=3.0, seed=12),
    Case(4, 2, 3, empty=((0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)), seed=13),
    Case(1, 2, 1, seed=15, dtype=torch.bfloat16),
    Case(3, 2, 3, seed=16, dtype=torch.bfloat16),
    OneLongPart(61, 1, 1, level=1.0, spread=0.0, seed=18, dtype=torch.bfloat16),
]


# levels and spreads of hidden cases
NEAR = ((0.0, 1.0), (-3.0, 2.0), (500.0, 1.0), (-150.0, 1.0), (-400.0, 1.0), (0.0, 60.0))


def hidden(chance):
    """Parts near 0 and far from it, some without a token; whole splits, and all of a row."""
    for number in range(14):
        shape = chance.randint(2, 7), chance.randint(1, 3), chance.randint(1, 4)
        level, spread = chance.choice(NEAR)
        num_empty = chance.choice((0, 0, 1, 2))
        places = [tuple(map(chance.randrange, shape)) for _ in range(num_empty)]
        empty = tuple(dict.fromkeys(places))
        if number == 12:
            empty = tuple(sorted(chance.sample(range(shape[0]), shape[0] - 1)))
        elif number == 13:
            empty = tuple((split, shape[1] - 1, shape[2] - 1) for split in range(shape[0]))
        dtype = torch.bfloat16 if number % 4 == 3 else torch.half
        yield Case(*shape, level, spread, empty, chance.randrange(2**31), dtype)
    num_splits, drawn = chance.randint(60, 64), chance.randrange(2**31)
    yield OneLongPart(num_splits, 1, 1, spread=0.0, seed=drawn, dtype=torch.bfloat16)


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


EXERCISE = exercise(
    globals(),
    kernels,
    answer_name="combine_parts",
    observe=kernels.observing("out", "part_o"),
    size=lambda case: (case.num_splits * case.num_seqs * case.num_q_heads, len(case.empty)),
    points=2,
)
