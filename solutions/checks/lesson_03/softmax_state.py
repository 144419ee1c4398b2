"""Exercise 3.2: the online softmax, part by part."""

import torch

from lessons_lib import softmax_state
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.softmax_state import NO_KEY, finite
from solutions.checks import tensors
from solutions.checks.lesson_03.requests import counted


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


class RescaleUpsideDown(Varied):
    def rescale(self, m):
        return torch.exp(finite(m) - self.m)


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


# (rows, keys of each part, head size, centre of the scores, their spread, masked parts, is finish() called after each part,
# seed). A masked part is (part, row): every score of that row in it is -inf; row None stands for all.
CASES = [
    ((1,), (1,), 1, 0.5, 0.1, (), False, 1),
    ((1,), (2,), 1, -300.0, 1.0, (), False, 2),
    ((1,), (2, 1), 1, 0.0, 1.0, (), False, 3),
    ((1,), (1, 2), 2, 0.0, 1.0, (), False, 4),
    ((1,), (2, 2), 2, -250.0, 5.0, (), False, 5),
    ((1,), (1, 1), 2, 0.0, 1.0, ((1, None),), False, 6),
    ((1,), (1, 1), 2, 0.0, 1.0, ((0, None),), False, 7),
    ((1,), (2,), 2, 0.0, 1.0, ((0, None),), False, 8),
    ((3,), (2, 2), 4, 1000.0, 3.0, (), True, 9),
    ((3,), (4, 3, 1), 4, 0.0, 3.0, ((0, 1), (1, 0), (2, 2)), True, 10),
    ((2, 3), (4, 4, 4, 2), 4, 0.0, 30.0, ((0, 0), (3, 1)), True, 11),
    ((7, 4), (16, 16, 5), 16, 0.0, 4.0, ((0, 3), (1, 3), (2, 3)), False, 12),
]


def parts(case):
    """The scores and values of each part. Rows of two dimensions share the values along the second."""
    rows, sizes, head_size, centre, spread, masked, _, seed = case
    generator = torch.Generator().manual_seed(seed)
    for part, size in enumerate(sizes):
        scores = centre + spread * torch.randn(*rows, size, generator=generator)
        for masked_part, row in masked:
            if masked_part == part:
                scores[..., slice(None) if row is None else row, :] = NO_KEY
        shared = (*rows[:-1], 1) if len(rows) > 1 else rows
        yield scores, torch.randn(*shared, size, head_size, generator=generator)


def observe(answer, case):
    rows, sizes, head_size, *_, often, _ = case
    state = answer(*rows, head_size=head_size, dtype=torch.float32)
    results = []
    for number, (scores, values) in enumerate(parts(case), 1):
        given = scores.clone(), values.clone()
        state.update(*given)
        if not (torch.equal(given[0], scores) and torch.equal(given[1], values)):
            return Text("update() has changed the tensors that it was given")
        if often or number == len(sizes):
            names = [f"{name} after part {number}" if often else name for name in "oml"]
            results.append(tensors.values(state.finish(), *names))
    return tuple(results) if often else results[0]


def describe(case):
    rows, sizes, head_size, centre, _, masked, often, _ = case
    where = ", ".join(f"{'all' if row is None else f'row {row}'} of part {part + 1}" for part, row in masked)
    row_words = "one row" if rows == (1,) else f"rows {rows}"
    part_words = f"one part of {counted(sizes[0], 'key')}" if len(sizes) == 1 else f"parts of {', '.join(map(str, sizes))} keys"
    return f"{row_words}, {part_words}, head_size {head_size}, scores around {centre:g}" \
           f"{f' (-inf in {where})' if masked else ''}; finish() {'after each part' if often else 'at the end'}"


EXERCISE = Exercise(
    id="3.2",
    title="the online softmax",
    answer_name="SoftmaxState",
    reference=InDouble,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake("max-starts-at-zero",
                "The largest score so far starts at 0, and no key had that score. When all scores lie far below 0, each "
                "exponential becomes 0, and so do both sums. With which number does every score win the first comparison?",
                MaxStartsAtZero, also=(MaxStartsAtZeroAndDividesByZero,)),
        Mistake("flash-drops-accumulator",
                "The weighted sum holds the last part only: what the parts before it had collected is gone, while the sum "
                "of the weights still counts them. Look at how `acc` goes into the new `acc`.",
                DropsAccumulator),
        Mistake("sum-dropped",
                "The sum of the weights holds the last part only, while the weighted sum counts all of them. Look at "
                "how `l` goes into the new `l`.",
                DropsSum),
        Mistake("sum-not-rescaled",
                "The old `l` was counted from the old maximum, and the new exponentials from the new one. Before you "
                "add them up, bring the old sum to the new maximum.",
                SumNotRescaled),
        Mistake("accumulator-not-rescaled",
                "`l` is right. The old `acc` was counted from the old maximum, like the old `l`, and needs the same factor.",
                AccumulatorNotRescaled),
        Mistake("nothing-rescaled",
                "Old and new exponentials are added up although they are counted from different maxima. If there is a "
                "factor in your code: which maximum is in `self.m` when you compute it?",
                NothingRescaled),
        Mistake("new-part-rescaled",
                "The factor is on the wrong side. The new exponentials are counted from the new maximum already; the "
                "old sums are not.",
                NewPartRescaled),
        Mistake("rescale-upside-down",
                "The factor for the old sums is infinite before the first key, and infinity times 0 is NaN. A factor "
                "that brings sums to a larger maximum lies between 0 and 1. Which difference stands in yours, in which "
                "order, and is it in an exponent?",
                RescaleUpsideDown),
        Mistake("max-not-stored",
                "The new maximum is used and not kept: `self.m` is still -inf, and so the next update takes everything "
                "before it for nothing.",
                MaxNotStored),
        Mistake("max-not-carried",
                "`m` is the maximum of the last part, not of all keys so far. After a part of small scores the factor "
                "for the old sums is huge, and overflows.",
                MaxOfTheLastPart),
        Mistake("part-by-its-own-maximum",
                "The exponentials of the new part are counted from the part's own maximum, which may be smaller than the "
                "maximum of all. Every number in the sums has to be counted from the same one.",
                PartByItsOwnMaximum),
        Mistake("one-maximum-for-all-rows",
                "All rows share one maximum. A row whose scores lie far below it is rounded to 0, and `m` is one number for "
                "each row.",
                OneMaximumForAllRows),
        Mistake("nan-on-masked-part",
                "A row that has seen no key yet has the maximum -inf, and -inf - (-inf) is NaN. Such a row is common: "
                "the keys of its first part may all be hidden. `finite()` is for this.",
                NanOnMaskedPart),
        Mistake("overflow",
                "The exponentials are taken of the scores as they are. exp(89) is too large for float32, and exp(-104) "
                "is 0. Count the scores from their maximum.",
                NoMaximumSubtracted),
        Mistake("finish-forgets-division",
                "The output is the weighted sum as it was collected. The weights add up to `l`, and they should add up "
                "to 1.",
                NoDivision),
        Mistake("empty-row-divides-by-zero",
                "A row that has seen no key has collected nothing, and 0/0 is NaN. Its output is 0.",
                DividesByZero),
        Mistake("normalised-too-early",
                "Your `acc` is divided by `l` at each update, and the next update rescales it as if it were not. Divide "
                "once, at the end.",
                DividesAtEachUpdate),
        Mistake("divided-twice",
                "Your `acc` is divided by `l` at each update, and once more at the end. Divide once, at the end.",
                DividesAtEachUpdateAndAtTheEnd),
        Mistake("finish-changes-the-state",
                "After finish() the next update goes wrong: the division has changed `acc`. finish() reads the state "
                "and leaves it as it is.",
                FinishChangesTheState),
        Mistake("input-overwritten",
                "update() changes the scores that it was given, which belong to its caller. Operations whose name ends "
                "in `_` work in place.",
                OverwritesTheScores),
        Mistake("mean-for-sum",
                "Each part is averaged and not summed, so that a key in a small part counts more than one in a large part.",
                MeanForSum),
    ),
    hints=(
        "Three numbers for each row. Before the first key: which maximum loses against every score, and what do two "
        "empty sums hold?",
        "In update(): first the new maximum, then the factor exp(old maximum - new maximum), then the new exponentials. "
        "Only then may `self.m` change.",
        "Wherever you subtract the new maximum, subtract `finite(...)` of it. Then a row without keys gets exp(-inf) = "
        "0 and not NaN.",
        "Shapes: `m` and `l` are (...,), scores (..., num_keys), `acc` (..., head_size). `m[..., None]` fits a row's "
        "number to its keys. (p[..., None] * values).sum(-2) is a weighted sum.",
    ),
)
