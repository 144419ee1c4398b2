"""Exercise 3.2: the online softmax, part by part."""

import math
import random
import re

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_03.requests import InputsChanged
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Exercise, Mistake, Raised
from paged_attention import softmax_state
from paged_attention.softmax_state import NO_KEY, finite


class InDouble(softmax_state.SoftmaxState):
    """Ours, accumulated in float64."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=torch.float64)

    def update(self, scores, values):
        super().update(scores.double(), values.double())


class Varied:
    """Ours, in steps that a mistake can replace."""

    first_maximum = NO_KEY

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, self.first_maximum, dtype=dtype)
        self.l = torch.zeros(shape, dtype=dtype)
        self.acc = torch.zeros(*shape, head_size, dtype=dtype)

    def update(self, scores, values):
        m = self.maximum(scores)
        old, p = self.rescale(m), self.exponentials(scores, m)
        self.take(old, p.sum(-1), (p[..., None] * values).sum(-2))
        self.m = m

    def maximum(self, scores):
        return torch.maximum(self.m, scores.amax(-1))

    def rescale(self, m):
        return torch.exp(self.m - finite(m))

    def exponentials(self, scores, m):
        return torch.exp(scores - finite(m)[..., None])

    def take(self, old, l, acc):
        self.l, self.acc = old * self.l + l, old[..., None] * self.acc + acc

    def finish(self):
        return self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None], self.m, self.l


def starts_at(number):
    return type("StartsAtALargeNumber", (Varied,), {"first_maximum": number})


# What learners write for -inf.
STARTS = tuple(
    map(
        starts_at,
        (
            -1e9,
            -1e10,
            -1e30,
            -1e38,
            -1e20,
            -1e12,
            -1e8,
            -1e7,
            -1e6,
            -1e5,
            -1e4,
            -1e3,
            -9999.0,
            -99999.0,
            torch.finfo(torch.float32).min,
        ),
    )
)


class MaxStartsAtZero(Varied):
    first_maximum = 0.0


class MaxStartsAtZeroAndDividesByZero(MaxStartsAtZero):
    def finish(self):
        return self.acc / self.l[..., None], self.m, self.l


class DropsAccumulator(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = old * self.l + l, acc


class DropsSum(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = l, old[..., None] * self.acc + acc


class SumNotRescaled(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = self.l + l, old[..., None] * self.acc + acc


class AccumulatorNotRescaled(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = old * self.l + l, self.acc + acc


class NothingRescaled(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = self.l + l, self.acc + acc


class NewPartRescaled(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = self.l + old * l, self.acc + old[..., None] * acc


class EverythingRescaled(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = old * (self.l + l), old[..., None] * (self.acc + acc)


class StartsAtOne(Varied):
    """`l` starts at 1. The first factor is 0, so this is forgotten with the first part."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=dtype)
        self.l = torch.ones(shape, dtype=dtype)


class SoftmaxOfEachPart(Varied):
    def exponentials(self, scores, m):
        return torch.softmax(scores, -1)


class SoftmaxOfEachPartCleaned(Varied):
    def exponentials(self, scores, m):
        return torch.softmax(scores, -1).nan_to_num(0.0)


class SoftmaxOfEachPartWherePositive(SoftmaxOfEachPart):
    def finish(self):
        return (
            torch.where(self.l[..., None] > 0, self.acc / self.l[..., None], 0.0),
            self.m,
            self.l,
        )


class RescaleUpsideDown(Varied):
    def rescale(self, m):
        return torch.exp(finite(m) - self.m)


class RescaleUpsideDownHiddenInO(RescaleUpsideDown):
    """Where l is not above 0, and NaN is not, the output is 0."""

    def finish(self):
        return (
            torch.where(self.l[..., None] > 0, self.acc / self.l[..., None], 0.0),
            self.m,
            self.l,
        )


class FactorGrows(Varied):
    """The same factor with `finite()` on both maxima.

    So it is no infinity before the first key.
    """

    def rescale(self, m):
        return torch.exp(finite(m) - finite(self.m))


class FactorGrowsHiddenInO(FactorGrows):
    finish = RescaleUpsideDownHiddenInO.finish


class WeightsAsAMatrix(Varied):
    """`p @ values`: a row of weights meets the values of another row.

    Or it takes part as a matrix.
    """

    def update(self, scores, values):
        m = self.maximum(scores)
        old, p = self.rescale(m), self.exponentials(scores, m)
        self.take(old, p.sum(-1), p @ self.matrix(values))
        self.m = m

    def matrix(self, values):
        return values


class WeightsAsAMatrixSqueezed(WeightsAsAMatrix):
    def matrix(self, values):
        return values.squeeze(-3)


class WeightsAsAMatrixAllSqueezed(WeightsAsAMatrix):
    """With one key, or a head_size of 1, more is squeezed out than was meant."""

    def matrix(self, values):
        return values.squeeze()


class OneDimensionOfRows(Varied):
    """Rows of one dimension only; Python raises for more."""

    def __init__(self, num_rows, head_size, dtype=torch.float32):
        super().__init__(num_rows, head_size=head_size, dtype=dtype)


class OneDimensionOfRowsThenKeywords(Varied):
    def __init__(self, num_rows, *, head_size, dtype=torch.float32):
        super().__init__(num_rows, head_size=head_size, dtype=dtype)


class RowsAsATuple(Varied):
    def __init__(self, shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, NO_KEY, dtype=dtype)  # raises: `shape` is a number


class RowsAsATupleThenKeywords(Varied):
    def __init__(self, shape, *, head_size, dtype=torch.float32):
        self.m = torch.full(shape, NO_KEY, dtype=dtype)


class FactorWithoutADimension(Varied):
    """Each row's number is multiplied with `acc` as it is.

    It raises, or takes rows for numbers of a head.
    """

    def take(self, old, l, acc):
        self.l, self.acc = old * self.l + l, old * self.acc + acc


class FactorBehindWithoutADimension(Varied):
    def take(self, old, l, acc):
        self.l, self.acc = old * self.l + l, self.acc * old + acc


class MaximumWithoutADimension(Varied):
    def exponentials(self, scores, m):
        return torch.exp(scores - finite(m))


class SumWithoutADimension(Varied):
    def finish(self):
        return self.acc / self.l.masked_fill(self.l == 0, 1.0), self.m, self.l


class SumOverAllRows(Varied):
    def update(self, scores, values):
        m = self.maximum(scores)
        old, p = self.rescale(m), self.exponentials(scores, m)
        self.take(old, p.sum(), (p[..., None] * values).sum(-2))
        self.m = m


class OneHiddenRowSkipsAll(Varied):
    """A part in which one row sees no key is not taken in at all."""

    def update(self, scores, values):
        if not (scores.amax(-1) == NO_KEY).any():
            super().update(scores, values)


class ExtraDimension(Varied):
    """As rows that were kept with `keepdim=True` are returned."""

    def finish(self):
        o, m, l = super().finish()
        return o, m[..., None], l[..., None]


class SumBeforeMaximum(Varied):
    def finish(self):
        o, m, l = super().finish()
        return o, l, m


class LogarithmOfTheSum(Varied):
    def finish(self):
        o, m, l = super().finish()
        return o, m, m + l.log()


class MaxNotStored(Varied):
    def update(self, scores, values):
        super().update(scores, values)
        self.m = torch.full_like(self.m, NO_KEY)


class MaxOfTheLastPart(Varied):
    def maximum(self, scores):
        return scores.amax(-1)


class PartByItsOwnMaximum(Varied):
    def exponentials(self, scores, m):
        return torch.exp(scores - finite(scores.amax(-1))[..., None])


class OneMaximumForAllRows(Varied):
    def maximum(self, scores):
        return torch.maximum(self.m, scores.max().expand(self.m.shape))


class NanOnMaskedPart(Varied):
    def rescale(self, m):
        return torch.exp(self.m - m)

    def exponentials(self, scores, m):
        return torch.exp(scores - m[..., None])


class NanHiddenInO(NanOnMaskedPart):
    def finish(self):
        return (self.acc / self.l[..., None]).nan_to_num(), self.m, self.l


class NanHiddenInOAndL(NanOnMaskedPart):
    def finish(self):
        return (self.acc / self.l[..., None]).nan_to_num(), self.m, self.l.nan_to_num()


class NanWhereNothingWasSeenHidden(NanOnMaskedPart):
    """Where m is -inf, 0 is the output."""

    def finish(self):
        o = (self.acc / self.l[..., None]).masked_fill((self.m == NO_KEY)[..., None], 0.0)
        return o, self.m, self.l


class NanWhereNothingWasSeenHiddenInBoth(NanOnMaskedPart):
    def finish(self):
        nothing = self.m == NO_KEY
        o = (self.acc / self.l[..., None]).masked_fill(nothing[..., None], 0.0)
        return o, self.m, self.l.masked_fill(nothing, 0.0)


class NanInTheFactorOnly(Varied):
    def rescale(self, m):
        return torch.exp(self.m - m)


class NanInTheFactorHiddenInO(NanInTheFactorOnly):
    def finish(self):
        return (self.acc / self.l[..., None]).nan_to_num(), self.m, self.l


class NanInTheExponentialsOnly(Varied):
    def exponentials(self, scores, m):
        return torch.exp(scores - m[..., None])


class NanInTheExponentialsHiddenInO(NanInTheExponentialsOnly):
    def finish(self):
        return (self.acc / self.l[..., None]).nan_to_num(), self.m, self.l


class StoresTheFiniteMaximum(Varied):
    def maximum(self, scores):
        return finite(super().maximum(scores))


class FiniteOnBothMaxima(Varied):
    def rescale(self, m):
        return torch.exp(finite(self.m) - finite(m))


class FiniteOnBothMaximaHiddenInO(FiniteOnBothMaxima):
    def finish(self):
        return (self.acc / self.l[..., None]).nan_to_num(), self.m, self.l


class InFloat32(Varied):
    """Scores and values are made float32, whatever dtype was asked for."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size)

    def update(self, scores, values):
        super().update(scores.float(), values.float())


class KeptInFloat32(Varied):
    """The sums are computed in the dtype of the scores, and kept in float32."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size)

    def update(self, scores, values):
        super().update(scores, values)
        self.m, self.l, self.acc = (x.float() for x in (self.m, self.l, self.acc))


class RoundedToFloat32(KeptInFloat32):
    """The new maximum and the exponentials are rounded before they are added up."""

    def maximum(self, scores):
        return super().maximum(scores).float()

    def exponentials(self, scores, m):
        return super().exponentials(scores, m).float()

    def update(self, scores, values):
        m = self.maximum(scores)
        old, p = self.rescale(m), self.exponentials(scores, m)
        self.take(old, p.sum(-1), (p[..., None] * values.float()).sum(-2))
        self.m = m


class NoMaximumSubtracted(Varied):
    def rescale(self, m):
        return torch.ones_like(m)

    def exponentials(self, scores, m):
        return torch.exp(scores)


class NoDivision(Varied):
    def finish(self):
        return self.acc, self.m, self.l


class DividesByZero(Varied):
    def finish(self):
        return self.acc / self.l[..., None], self.m, self.l


class DividesAtEachUpdate(Varied):
    def take(self, old, l, acc):
        super().take(old, l, acc)
        self.acc = self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None]

    def finish(self):
        return self.acc, self.m, self.l


class DividesAtEachUpdateAndAtTheEnd(DividesAtEachUpdate):
    finish = Varied.finish


class FinishChangesTheState(Varied):
    def finish(self):
        self.acc = super().finish()[0]
        return self.acc, self.m, self.l


class OverwritesTheScores(Varied):
    def exponentials(self, scores, m):
        return scores.sub_(finite(m)[..., None]).exp_()


class MeanForSum(Varied):
    def update(self, scores, values):
        m = self.maximum(scores)
        p = self.exponentials(scores, m)
        self.take(self.rescale(m), p.mean(-1), (p[..., None] * values).mean(-2))
        self.m = m


FLOAT, DOUBLE = torch.float32, torch.float64

# (rows, keys of each part, head size, centre of the scores, their spread, masked parts, is
# finish() called after each part, seed, dtype). A masked part is (part, row): every score of
# that row in it is -inf; row None stands for all.
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
]
# where all scores are equal, the values are this high and this low by turns: float32 loses
# what is between
HIGH = 1e7


def hidden(seed):
    """Up to four parts, of each of which a row may be masked; then no part, and float64."""
    chance = random.Random(seed)
    for number in range(12):
        rows = chance.choice(((1,), (3,), (4,), (2, 3), (5, 2)))
        sizes = chance.choices(range(1, 7), k=1 + number // 3)
        masked = {
            part: chance.choice((None, *range(rows[-1])))
            for part in range(len(sizes))
            if chance.random() < 0.4
        }
        yield (
            rows,
            tuple(sizes),
            chance.randint(1, 8),
            chance.choice((0.0, 0.0, -300.0, 250.0)),
            chance.choice((1.0, 3.0, 20.0)),
            tuple(masked.items()),
            chance.random() < 0.5,
            chance.randrange(2**31),
            FLOAT,
        )
    yield (
        (chance.randint(2, 6), 3),
        (),
        chance.randint(2, 8),
        0.0,
        1.0,
        (),
        False,
        chance.randrange(2**31),
        FLOAT,
    )
    yield (
        (1,),
        (chance.randint(2, 5), 3),
        2,
        1e6,
        3.0,
        (),
        False,
        chance.randrange(2**31),
        DOUBLE,
    )
    yield (
        (2,),
        (2, 2 * chance.randint(1, 3)),
        5,
        0.0,
        0.0,
        (),
        True,
        chance.randrange(2**31),
        DOUBLE,
    )


def parts(case):
    """The scores and values of each part.

    Rows of two dimensions share the values along the second.
    """
    rows, sizes, head_size, centre, spread, masked, _, seed, dtype = case
    generator = torch.Generator().manual_seed(seed)
    for part, size in enumerate(sizes):
        scores = centre + spread * torch.randn(*rows, size, generator=generator, dtype=dtype)
        for masked_part, row in masked:
            if masked_part == part:
                scores[..., slice(None) if row is None else row, :] = NO_KEY
        shared = (*rows[:-1], 1) if len(rows) > 1 else rows
        values = torch.randn(*shared, size, head_size, generator=generator, dtype=dtype)
        if spread == 0:
            values += HIGH * (1 - 2 * (torch.arange(size) % 2))[:, None]
        yield scores, values


def observe(answer, case):
    rows, sizes, head_size, *_, often, _, dtype = case
    state = answer(*rows, head_size=head_size, dtype=dtype)
    results = (
        [tensors.values(state.finish(), *(f"{name} before the first part" for name in "oml"))]
        if not sizes
        else []
    )
    for number, (scores, values) in enumerate(parts(case), 1):
        given = scores.clone(), values.clone()
        state.update(*given)
        if not (torch.equal(given[0], scores) and torch.equal(given[1], values)):
            return InputsChanged("update() has changed the tensors that it was given")
        if often or number == len(sizes):
            names = [f"{name} after part {number}" if often else name for name in "oml"]
            results.append(tensors.values(state.finish(), *names))
    return tuple(results) if often else results[0]


def same(expected, actual):
    """Python's words name the learner's class where its constructor takes no such argument.

    That makes no difference.
    """
    return tensors.same(_without_class(expected), _without_class(actual))


def _without_class(result):
    return (
        Raised(re.sub(r"^TypeError: \S+\.__init__\(\)", "TypeError:", result))
        if isinstance(result, Raised)
        else result
    )


def tells_little(case):
    """For `Exercise.chancy`: mistakes keep their names in these cases.

    It makes no difference what the answer does before the first part or in float64.
    """
    return not case[1] or case[-1] == DOUBLE


def describe(case):
    rows, sizes, head_size, centre, spread, masked, often, _, dtype = case
    row_words = "one row" if rows == (1,) else f"rows {rows}"
    words = f"{row_words}, {{}}, head_size {head_size}, {str(dtype).removeprefix('torch.')}"
    if not sizes:
        return words.format("no part yet")
    hidden = ", ".join(
        f"{'all' if row is None else f'row {row}'} of part {part + 1}" for part, row in masked
    )
    part_words = (
        f"one part of {counted(sizes[0], 'key')}"
        if len(sizes) == 1
        else f"parts of {listed(sizes)} keys"
    )
    values = f", values around {HIGH:g} and {-HIGH:g} by turns" if spread == 0 else ""
    return (
        f"{words.format(part_words)}, scores {'around' if spread else 'all'} "
        f"{centre:g}{values}{f' (-inf in {hidden})' if hidden else ''}; "
        f"finish() {'after each part' if often else 'at the end'}"
    )


EXERCISE = Exercise(
    id="3.2",
    title="the online softmax",
    answer_name="SoftmaxState",
    reference=InDouble,
    cases=lambda: CASES,
    size=lambda case: (
        math.prod(case[0]) * sum(case[1]) * case[2],
        len(case[1]),
        len(case[5]),
    ),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    show=tensors.show,
    chancy=tells_little,
    points=2,
    mistakes=(
        Mistake(
            "max-starts-at-zero",
            "The largest score so far starts at 0, and no key had that score. "
            "When all scores lie far below 0, each exponential becomes 0, and so do both "
            "sums. With which number does every score win the first comparison?",
            MaxStartsAtZero,
            also=(MaxStartsAtZeroAndDividesByZero,),
        ),
        Mistake(
            "flash-drops-accumulator",
            "The weighted sum holds the last part only: "
            "what the parts before it had collected is gone, while the sum "
            "of the weights still counts them. Look at how `acc` goes into the new `acc`.",
            DropsAccumulator,
        ),
        Mistake(
            "sum-dropped",
            "The sum of the weights holds the last part only, while the weighted sum counts "
            "all of them. Look at how `l` goes into the new `l`.",
            DropsSum,
        ),
        Mistake(
            "sum-not-rescaled",
            "The old `l` was counted from the old maximum, and the new exponentials "
            "from the new one. Before you add them up, bring the old sum to the new maximum.",
            SumNotRescaled,
        ),
        Mistake(
            "accumulator-not-rescaled",
            "`l` is right. The old `acc` was counted from the old maximum, like the old `l`, "
            "and needs the same factor.",
            AccumulatorNotRescaled,
        ),
        Mistake(
            "nothing-rescaled",
            "Old and new exponentials are added up although they are counted "
            "from different maxima. If there is a factor in your code: "
            "which maximum is in `self.m` when you compute it?",
            NothingRescaled,
        ),
        Mistake(
            "new-part-rescaled",
            "The factor is on the wrong side. The new exponentials are counted "
            "from the new maximum already; the old sums are not.",
            NewPartRescaled,
        ),
        Mistake(
            "everything-rescaled",
            "The factor is applied to the old sums and to the new part. "
            "The new exponentials are counted from the new maximum already.",
            EverythingRescaled,
        ),
        Mistake(
            "softmax-of-each-part",
            "A softmax over the part has divided its exponentials already, each part's "
            "by a sum of its own. Add them up as they are, and divide once, at the end.",
            SoftmaxOfEachPart,
            also=(SoftmaxOfEachPartCleaned, SoftmaxOfEachPartWherePositive),
        ),
        Mistake(
            "l-starts-at-one",
            "Before the first part `l` is 1. "
            "It is a sum over the keys so far, and there is none yet.",
            StartsAtOne,
        ),
        Mistake(
            "rescale-upside-down",
            "The factor for the old sums is infinite before the first key, "
            "and infinity times 0 is NaN. "
            "A factor that brings sums to a larger maximum lies between 0 and 1. "
            "Which difference stands in yours, in which order, and is it in an exponent?",
            RescaleUpsideDown,
            also=(RescaleUpsideDownHiddenInO,),
        ),
        Mistake(
            "factor-grows",
            "When a larger score comes, the old sums grow. They have to shrink, "
            "because they are counted from a larger number from then on. "
            "In which order are the two maxima in your factor?",
            FactorGrows,
            also=(FactorGrowsHiddenInO,),
        ),
        Mistake(
            "weights-as-a-matrix",
            "`@` takes the last two dimensions for a matrix: "
            "your rows of weights meet all rows' values, "
            "or a dimension is missing or left over. Each row has its own num_keys weights, "
            "which need a dimension more, or a product and a sum.",
            WeightsAsAMatrix,
            also=(WeightsAsAMatrixSqueezed, WeightsAsAMatrixAllSqueezed),
        ),
        Mistake(
            "row-number-without-dimension",
            "With one row it works, with more it raises, or takes one row's number "
            "for another. `m`, `l` and the factor have one number for each row; scores "
            "and `acc` have several. The row's number has to stand against all of them.",
            FactorWithoutADimension,
            also=(
                FactorBehindWithoutADimension,
                MaximumWithoutADimension,
                SumWithoutADimension,
            ),
        ),
        Mistake(
            "sum-over-all-rows",
            "`l` has the exponentials of all rows in it. "
            "Each row has its own sum: over which dimension do you add up?",
            SumOverAllRows,
        ),
        Mistake(
            "one-hidden-row-skips-all",
            "One row of the part sees no key, and the whole part is left out. "
            "The other rows have keys in it.",
            OneHiddenRowSkipsAll,
        ),
        Mistake(
            "max-not-stored",
            "The new maximum is used and not kept: `self.m` is still -inf, "
            "and so the next update takes everything before it for nothing.",
            MaxNotStored,
        ),
        Mistake(
            "max-not-carried",
            "`m` is the maximum of the last part, not of all keys so far. "
            "After a part of small scores the factor for the old sums is huge, and overflows.",
            MaxOfTheLastPart,
        ),
        Mistake(
            "part-by-its-own-maximum",
            "The exponentials of the new part are counted from the part's own maximum, "
            "which may be smaller than the maximum of all. "
            "Every number in the sums has to be counted from the same one.",
            PartByItsOwnMaximum,
        ),
        Mistake(
            "one-maximum-for-all-rows",
            "All rows share one maximum. A row whose scores lie far below it is rounded "
            "to 0, and `m` is one number for each row.",
            OneMaximumForAllRows,
        ),
        Mistake(
            "nan-on-masked-part",
            "A row that has seen no key yet has the maximum -inf, and -inf - (-inf) is NaN. "
            "Such a row is common: the keys of its first part may all be hidden. `finite()` "
            "is for this, where you subtract the new maximum. In finish() it is too late: "
            "the sums are NaN by then, and the keys that come later are lost.",
            NanOnMaskedPart,
            also=(
                NanHiddenInO,
                NanHiddenInOAndL,
                NanWhereNothingWasSeenHidden,
                NanWhereNothingWasSeenHiddenInBoth,
                NanInTheFactorOnly,
                NanInTheFactorHiddenInO,
                NanInTheExponentialsOnly,
                NanInTheExponentialsHiddenInO,
            ),
        ),
        Mistake(
            "finite-stored",
            "A row that has seen no key has 0 as its maximum: the result of `finite()` "
            "is kept in `self.m`. It is only there to be subtracted. "
            "The next part would be compared with a 0 that was no key's score.",
            StoresTheFiniteMaximum,
        ),
        Mistake(
            "finite-on-both",
            "Before the first key the factor should be exp(-inf), which is 0. "
            "With `finite()` on the old maximum too, it is exp(0 - m), "
            "which is infinite where m lies far below 0.",
            FiniteOnBothMaxima,
            also=(FiniteOnBothMaximaHiddenInO,),
        ),
        Mistake(
            "starts-at-a-large-number",
            "`m` starts at a number, and a row that has seen no key then has that number "
            "as its largest score. There is one float that lies below every score: NO_KEY.",
            STARTS[0],
            also=STARTS[1:],
        ),
        Mistake(
            "extra-dimension",
            "The numbers are right, and `m` and `l` have a last dimension of size 1. "
            "They have one number for each row, and the shape of the rows.",
            ExtraDimension,
        ),
        Mistake(
            "l-and-m-swapped",
            "m and l are returned in each other's place. The order is o, m, l.",
            SumBeforeMaximum,
        ),
        Mistake(
            "l-as-logarithm",
            "In place of l you return m + log(l). "
            "Some programs keep that one number for both. Here l is the sum itself.",
            LogarithmOfTheSum,
        ),
        Mistake(
            "float32-inside",
            "In float64 your result is only as good as in float32: `m`, `l` "
            "and `acc` have to be of the dtype that was asked for, and no step may leave it.",
            InFloat32,
            also=(KeptInFloat32, RoundedToFloat32),
        ),
        Mistake(
            "overflow",
            "The exponentials are taken of the scores as they are. exp(89) is too large "
            "for float32, and exp(-104) is 0. Count the scores from their maximum.",
            NoMaximumSubtracted,
        ),
        Mistake(
            "finish-forgets-division",
            "The output is the weighted sum as it was collected. "
            "The weights add up to `l`, and they should add up to 1.",
            NoDivision,
        ),
        Mistake(
            "empty-row-divides-by-zero",
            "A row that has seen no key has collected nothing, and 0/0 is NaN. "
            "Its output is 0.",
            DividesByZero,
        ),
        Mistake(
            "normalised-too-early",
            "Your `acc` is divided by `l` at each update, "
            "and the next update rescales it as if it were not. Divide once, at the end.",
            DividesAtEachUpdate,
        ),
        Mistake(
            "divided-twice",
            "Your `acc` is divided by `l` at each update, and once more at the end. "
            "Divide once, at the end.",
            DividesAtEachUpdateAndAtTheEnd,
        ),
        Mistake(
            "finish-changes-the-state",
            "After finish() the next update goes wrong: the division has changed `acc`. "
            "finish() reads the state and leaves it as it is.",
            FinishChangesTheState,
        ),
        Mistake(
            "inputs-changed",
            "update() changes the scores that it was given, which belong to its caller. "
            "Operations whose name ends in `_` work in place.",
            OverwritesTheScores,
        ),
        Mistake(
            "mean-for-sum",
            "Each part is averaged and not summed, "
            "so that a key in a small part counts more than one in a large part.",
            MeanForSum,
        ),
        Mistake(
            "one-argument-for-the-rows",
            "The sizes of the rows come one by one: SoftmaxState(2, 3, head_size=4). "
            "Your constructor takes all of them as one argument. "
            "With what in front of it does a parameter take as many as there are?",
            OneDimensionOfRows,
            also=(OneDimensionOfRowsThenKeywords, RowsAsATuple, RowsAsATupleThenKeywords),
        ),
    ),
    hints=(
        (
            "Three numbers for each row. Before the first key: "
            "which maximum loses against every score, and what do two empty sums hold?"
        ),
        (
            "In update(): first the new maximum, then the factor exp(old maximum - new "
            "maximum), then the new exponentials. Only then may `self.m` change."
        ),
        (
            "Wherever you subtract the new maximum, subtract `finite(...)` of it. "
            "Then a row without keys gets exp(-inf) = 0 and not NaN."
        ),
        (
            "Shapes: `m` and `l` are (...,), scores (..., num_keys), `acc` (..., head_size). "
            "`m[..., None]` fits a row's number to its keys. "
            "(p[..., None] * values).sum(-2) is a weighted sum."
        ),
    ),
)
