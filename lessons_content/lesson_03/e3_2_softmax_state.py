"""Exercise 3.2: the online softmax.

Three numbers for each row. Before the first key: which maximum loses against every score, and
what do two empty sums hold?

In update(): first the new maximum, then the factor exp(old maximum - new maximum), then the
new exponentials. Only then may `self.m` change.

Wherever you subtract the new maximum, subtract `finite(...)` of it. Then a row without keys
gets exp(-inf) = 0 and not NaN.

Shapes: `m` and `l` are (...,), scores (..., num_keys), `acc` (..., head_size). `m[..., None]`
fits a row's number to its keys. (p[..., None] * values).sum(-2) is a weighted sum.
"""

import math
import re

import torch

from lessons_content.exercises.kit import Raised, Text, counted, exercise, listed, tensors
from lessons_content.lesson_03.requests import FEW, InputsChanged, in_digits, simple, tens
from paged_attention.attention import softmax_state
from paged_attention.attention.softmax_state import NO_KEY, finite


class InDouble(softmax_state.SoftmaxState):
    """Ours, accumulated in float64."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=torch.float64)

    def update(self, scores, values):
        super().update(scores.double(), values.double())


FLOAT, DOUBLE = torch.float32, torch.float64

# (rows, keys of each part, head size, centre of the scores, their spread, masked parts, is
# finish() called after each part, seed, dtype). A masked part is (part, row): every score of
# that row in it is -inf; row None is all rows.
CASES = [
    ((1,), (1,), 1, 0.5, 0.1, (), False, 1, FLOAT),
    ((1,), (2,), 1, -300.0, 1.0, (), False, 2, FLOAT),
    ((1,), (2, 1), 1, 0.0, 1.0, (), False, 3, FLOAT),
    ((1,), (1, 2), 2, 0.0, 1.0, (), False, 4, FLOAT),
    ((1,), (2, 2), 2, -250.0, 5.0, (), False, 5, FLOAT),
    ((1,), (1, 1), 2, 0.0, 1.0, ((1, None),), False, 6, FLOAT),
    ((1,), (1, 1), 2, 0.0, 1.0, ((0, None),), False, 7, FLOAT),
    ((1,), (2,), 2, 0.0, 1.0, ((0, None),), False, 8, FLOAT),
    ((1,), (), 2, 0.0, 1.0, (), False, 13, FLOAT),
    ((3,), (2, 2), 4, 1000.0, 3.0, (), True, 9, FLOAT),
    ((3,), (4, 3, 1), 4, 0.0, 3.0, ((0, 1), (1, 0), (2, 2)), True, 10, FLOAT),
    ((2, 3), (), 4, 0.0, 1.0, (), False, 14, FLOAT),
    ((2, 3), (4, 4, 4, 2), 4, 0.0, 30.0, ((0, 0), (3, 1)), True, 11, FLOAT),
    ((7, 4), (16, 16, 5), 16, 0.0, 4.0, ((0, 3), (1, 3), (2, 3)), False, 12, FLOAT),
    ((1,), (2, 2), 2, 1e6, 3.0, (), False, 15, DOUBLE),
    ((3,), (2, 4), 4, 0.0, 0.0, (), True, 16, DOUBLE),
    ((3,), (4, 3, 1), 4, 0.0, 3.0, ((0, 1), (1, 0), (2, 2)), True, 17, DOUBLE),
    ((2,), (), 2, 0.0, 1.0, (), False, 18, DOUBLE),
]
# where all scores are equal, the values are this high and this low by turns: float32 loses
# what is between
HIGH = 1e7


def hidden(chance):
    """Up to four parts, of each of which a row may be masked; then no part, and float64."""
    for number in range(12):
        rows = chance.choice(((1,), (3,), (4,), (2, 3), (5, 2)))
        sizes = tuple(chance.choices(range(1, 7), k=1 + number // 3))
        masked = {
            part: chance.choice((None, *range(rows[-1])))
            for part in range(len(sizes))
            if chance.random() < 0.4
        }
        head_size, centre = chance.randint(1, 8), chance.choice((0.0, 0.0, -300.0, 250.0))
        about = head_size, centre, chance.choice((1.0, 3.0, 20.0)), tuple(masked.items())
        yield rows, sizes, *about, chance.random() < 0.5, chance.randrange(2**31), FLOAT
    rows, about = (chance.randint(2, 6), 3), (chance.randint(2, 8), 0.0, 1.0, (), False)
    yield rows, (), *about, chance.randrange(2**31), FLOAT
    yield (chance.randint(2, 6),), (), 3, 0.0, 1.0, (), False, chance.randrange(2**31), DOUBLE
    sizes, about = (chance.randint(2, 5), 3), (2, 1e6, 3.0, (), False)
    yield (1,), sizes, *about, chance.randrange(2**31), DOUBLE
    sizes, about = (2, 2 * chance.randint(1, 3)), (5, 0.0, 0.0, (), True)
    yield (2,), sizes, *about, chance.randrange(2**31), DOUBLE


def parts(case):
    """The scores and values of each part. Rows share the values along a second dimension."""
    rows, sizes, head_size, centre, spread, masked, _, seed, dtype = case
    generator = torch.Generator().manual_seed(seed)
    shared = (*rows[:-1], 1) if len(rows) > 1 else rows
    for part, size in enumerate(sizes):
        shape, of_values = (*rows, size), (*shared, size, head_size)
        if is_small(case):
            scores, values = simple(shape, generator), tens(of_values, sum(sizes[:part]))
        else:
            scores, values = (
                torch.randn(each, generator=generator, dtype=dtype)
                for each in (shape, of_values)
            )
        scores = centre + spread * scores
        for row in (row for masked_part, row in masked if masked_part == part):
            scores[..., slice(None) if row is None else row, :] = NO_KEY
        if spread == 0:
            values += HIGH * (1 - 2 * (torch.arange(size) % 2))[:, None]
        yield scores, values


def is_small(case):
    """Whether its numbers are simple, and a message shows them."""
    rows, sizes, head_size, *_, dtype = case
    count = math.prod(rows) * sum(sizes) * (1 + head_size)
    return 0 < count <= FEW and dtype == FLOAT


def observe(answer, case):
    rows, sizes, head_size, *_, often, _, dtype = case
    state = answer(*rows, head_size=head_size, dtype=dtype)
    if not sizes:
        return before_the_first_part(state, dtype)
    results = []
    for number, (scores, values) in enumerate(parts(case), 1):
        given = scores.clone(), values.clone()
        state.update(*given)
        if not (torch.equal(given[0], scores) and torch.equal(given[1], values)):
            return InputsChanged("update() has changed the tensors that it was given")
        if often or number == len(sizes):
            names = [f"{name} after part {number}" if often else name for name in "oml"]
            results.append(tensors.values(state.finish(), *names))
    return tuple(results) if often else results[0]


def before_the_first_part(state, dtype):
    names = [f"{name} before the first part" for name in "oml"]
    result = tensors.values(state.finish(), *names)
    if dtype == FLOAT or isinstance(result, Text):
        return result
    kinds = [tensors.name_of(part.tensor.dtype) for part in result]
    words = "o, m and l have one dtype"
    if len(set(kinds)) > 1:
        words = listed(f"{name} is {kind}" for name, kind in zip("oml", kinds, strict=True))
    return *result, Text(f"{words} before the first part")


def same(expected, actual):
    """The name of the learner's class makes no difference in Python's words on arguments."""
    return tensors.same(*map(_without_class, (expected, actual)))


def _without_class(result):
    if not isinstance(result, Raised):
        return result
    return Raised(re.sub(r"^TypeError: \S+\.__init__\(\)", "TypeError:", result))


def describe(case):
    rows, sizes, head_size, centre, spread, masked, often, _, dtype = case
    row_words = "one row" if rows == (1,) else f"rows {rows}"
    of = f"{len(sizes)} parts" if len(sizes) > 1 else "one part" if sizes else "no part yet"
    if sizes and not is_small(case):
        of = f"parts of {listed(sizes)} keys"
        if len(sizes) == 1:
            of = f"one part of {counted(sizes[0], 'key')}"
    words = f"{row_words}, {of}, head_size {head_size}, {tensors.name_of(dtype)}"
    if not sizes:
        return words
    if is_small(case):
        for number, (scores, values) in enumerate(parts(case), 1):
            words += f"; part {number}: " if len(sizes) > 1 else "; "
            words += f"scores {in_digits(scores)}, values {in_digits(values)}"
    else:
        words += f", scores {'around' if spread else 'all'} {centre:g}"
        if spread == 0:
            words += f", values around {HIGH:g} and {-HIGH:g} by turns"
        rows_of = [("all" if row is None else f"row {row}", part + 1) for part, row in masked]
        if hidden := ", ".join(f"{row} of part {part}" for row, part in rows_of):
            words += f" (-inf in {hidden})"
    return f"{words}; finish() {'after each part' if often else 'at the end'}"


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="SoftmaxState",
    reference=InDouble,
    size=lambda case: (
        math.prod(case[0]) * sum(case[1]) * case[2],
        len(case[1]),
        len(case[5]),
    ),
    # mistakes keep their names before the first part, and in float64
    chancy=lambda case: not case[1] or case[-1] == DOUBLE,
    points=2,
)
