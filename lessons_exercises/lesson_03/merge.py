"""Exercise 3.3: two states of the same rows become one."""

import copy
import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
from paged_attention.softmax_state import NO_KEY, SoftmaxState, finite


def merge_in_double(self, other):
    m = torch.maximum(self.m, other.m)
    mine, theirs = (torch.exp((state.m - finite(m)).double()) for state in (self, other))
    self.l = mine * self.l + theirs * other.l
    self.acc = mine[..., None] * self.acc + theirs[..., None] * other.acc
    self.m = m


def put_together(self, other, mine=None, theirs=None):
    """merge() with other factors."""
    m = torch.maximum(self.m, other.m)
    mine = torch.exp(self.m - finite(m)) if mine is None else mine
    theirs = torch.exp(other.m - finite(m)) if theirs is None else theirs
    self.l = mine * self.l + theirs * other.l
    self.acc = mine[..., None] * self.acc + theirs[..., None] * other.acc
    self.m = m


def factors(self, other, of=torch.exp):
    m = finite(torch.maximum(self.m, other.m))
    return of(self.m - m), of(other.m - m)


def missing_exp(self, other):
    put_together(self, other, *factors(self, other, of=lambda difference: difference))


def upside_down(self, other):
    put_together(
        self, other, *factors(self, other, of=lambda difference: torch.exp(-difference))
    )


def upside_down_finite(self, other):
    m = finite(torch.maximum(self.m, other.m))
    put_together(self, other, torch.exp(m - finite(self.m)), torch.exp(m - finite(other.m)))


def finite_on_all(self, other):
    """A side without a key gets a factor as if its largest score had been 0."""
    m = finite(torch.maximum(self.m, other.m))
    put_together(self, other, torch.exp(finite(self.m) - m), torch.exp(finite(other.m) - m))


def maximum_stays_mine(self, other):
    theirs = torch.exp(other.m - finite(self.m))
    self.l = self.l + theirs * other.l
    self.acc = self.acc + theirs[..., None] * other.acc


def one_maximum_for_all(self, other):
    m = torch.maximum(self.m.max(), other.m.max()).expand(self.m.shape)
    put_together(self, other, torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m)))
    self.m = m


def _returns_where(skips):
    def wrong(self, other):
        if not skips(self, other):
            put_together(self, other)

    return wrong


SKIPPING = tuple(
    map(
        _returns_where,
        (
            lambda self, other: (other.m == NO_KEY).any(),
            lambda self, other: (other.m == NO_KEY).any() or (self.m == NO_KEY).any(),
        ),
    )
)


def l_counts_one_key(self, other):
    """The other's sum goes in as if it were the value of one key with the score m."""
    _, theirs = factors(self, other)
    mine = factors(self, other)[0] * self.l
    put_together(self, other)
    self.l = mine + theirs


def output_as_one_key(self, other):
    self.update(other.m[..., None], other.finish()[0][..., None, :])


def _without_a_dimension(times):
    def wrong(self, other):
        m = torch.maximum(self.m, other.m)
        mine, theirs = factors(self, other)
        self.l = mine * self.l + theirs * other.l
        self.acc = times(mine, self.acc) + times(theirs, other.acc)
        self.m = m

    return wrong


WITHOUT_A_DIMENSION = tuple(
    map(
        _without_a_dimension,
        (lambda factor, acc: factor * acc, lambda factor, acc: acc * factor),
    )
)


def _takes_over(merge):
    """A state without a key becomes the other.

    It holds the same tensors then, and the next merge writes into them.
    """

    def wrong(self, other):
        if (self.m == NO_KEY).all():
            self.m = other.m
            self.l = other.l
            self.acc = other.acc
        else:
            merge(self, other)

    return wrong


def _merge_in_place(self, other):
    merged = copy.copy(self)
    put_together(merged, other)
    for mine, new in ((self.m, merged.m), (self.l, merged.l), (self.acc, merged.acc)):
        mine.copy_(new)


def _merge_sums_in_place(self, other):
    merged = copy.copy(self)
    put_together(merged, other)
    self.l.copy_(merged.l)
    self.acc.copy_(merged.acc)
    self.m = merged.m


def swapped(self, other):
    put_together(self, other, *reversed(factors(self, other)))


def nothing_rescaled(self, other):
    put_together(self, other, torch.ones_like(self.m), torch.ones_like(self.m))


def mine_not_rescaled(self, other):
    put_together(self, other, mine=torch.ones_like(self.m))


def theirs_not_rescaled(self, other):
    put_together(self, other, theirs=torch.ones_like(self.m))


def sum_not_rescaled(self, other):
    l = self.l + other.l
    put_together(self, other)
    self.l = l


def accumulator_not_rescaled(self, other):
    acc = self.acc + other.acc
    put_together(self, other)
    self.acc = acc


def nan_when_empty(self, other):
    m = torch.maximum(self.m, other.m)
    put_together(self, other, torch.exp(self.m - m), torch.exp(other.m - m))


def other_changed(self, other):
    put_together(self, other)
    theirs = torch.exp(other.m - finite(self.m))
    other.l *= theirs
    other.acc *= theirs[..., None]


def self_unchanged(self, other):
    merged = SoftmaxState(*self.m.shape, head_size=self.acc.shape[-1])
    put_together(merged, self)
    put_together(merged, other)
    return merged


def max_not_updated(self, other):
    m = self.m
    put_together(self, other)
    self.m = m


def sum_forgotten(self, other):
    l = self.l
    put_together(self, other)
    self.l = l


def accumulator_forgotten(self, other):
    acc = self.acc
    put_together(self, other)
    self.acc = acc


def others_accumulator_forgotten(self, other):
    acc = factors(self, other)[0][..., None] * self.acc
    put_together(self, other)
    self.acc = acc


def _with_accumulator(acc_of):
    """`acc_of(state)` in place of the state's acc, for the other state or for both."""

    def wrong(both):
        def merge(self, other):
            mine, theirs = factors(self, other)
            acc = mine[..., None] * (acc_of(self) if both else self.acc)
            acc = acc + theirs[..., None] * acc_of(other)
            put_together(self, other)
            self.acc = acc

        return merge

    return wrong(False), wrong(True)


other_output_for_acc, _ = _with_accumulator(lambda state: state.finish()[0])
ACC_TIMES_L = _with_accumulator(lambda state: state.l[..., None] * state.acc)


def divided(self, other):
    put_together(self, other)
    self.acc = self.acc / self.l[..., None]


def divided_and_guarded(self, other):
    put_together(self, other)
    self.acc = self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None]


def _one_comparison(which):
    """The smaller side is rescaled, and which side that is, is asked once for all rows."""

    def wrong(self, other):
        if which(other.m > self.m):
            mine = torch.exp(self.m - finite(other.m))
            self.l = mine * self.l + other.l
            self.acc = mine[..., None] * self.acc + other.acc
            self.m = other.m.clone()
        else:
            theirs = torch.exp(other.m - finite(self.m))
            self.l = self.l + theirs * other.l
            self.acc = self.acc + theirs[..., None] * other.acc

    return wrong


def other_ignored(self, other):
    put_together(self, other, theirs=torch.zeros_like(self.m))


def maxima_added(self, other):
    put_together(self, other)
    self.m = self.m + other.m


def logarithm_for_the_maximum(self, other):
    m = torch.logaddexp(self.m, other.m)
    put_together(self, other)
    self.m = m


def counted_from_the_logarithm(self, other):
    m = torch.logaddexp(self.m, other.m)
    put_together(self, other, torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m)))
    self.m = m


def outputs_averaged(self, other):
    o = (self.finish()[0] + other.finish()[0]) / 2
    put_together(self, other)
    self.acc = o * self.l[..., None]


def outputs_added(self, other):
    o = self.finish()[0] + other.finish()[0]
    put_together(self, other)
    self.acc = o


def finite_stored(self, other):
    put_together(self, other)
    self.m = finite(self.m)


def outputs_rescaled(self, other, make_acc):
    """The finished outputs are merged with the factors of the maxima.

    A side's `l` plays no part in its weight.
    """
    mine, theirs = factors(self, other)
    outputs = mine[..., None] * self.finish()[0] + theirs[..., None] * other.finish()[0]
    put_together(self, other)
    self.acc = make_acc(outputs, (mine + theirs)[..., None], self.l[..., None])


def missing_l(self, other):
    outputs_rescaled(self, other, lambda outputs, factors, l: outputs)


def missing_l_divided(self, other):
    outputs_rescaled(
        self,
        other,
        lambda outputs, factors, l: outputs / factors.masked_fill(factors == 0, 1.0),
    )


def missing_l_multiplied(self, other):
    outputs_rescaled(self, other, lambda outputs, factors, l: outputs * l)


def missing_l_divided_and_multiplied(self, other):
    outputs_rescaled(
        self,
        other,
        lambda outputs, factors, l: outputs / factors.masked_fill(factors == 0, 1.0) * l,
    )


# marks the case in which a third state is merged after the second, and the second is looked at
TWICE = "twice"

# (rows, keys that the first has seen, keys that the second has seen, head size, centre of the
# second's scores, seed). Where there are more than two rows, the last row of the first state
# and the first row of the second have seen no key.
CASES = [
    ((1,), 1, 1, 1, 1.0, 1),
    ((1,), 1, 1, 1, -1.0, 2),
    ((1,), 2, 1, 2, 2.0, 3),
    ((1,), 1, 3, 2, -2.0, 4),
    ((1,), 0, 2, 2, 0.0, 5),
    ((1,), 2, 0, 2, 0.0, 6),
    ((1,), 0, 0, 2, 0.0, 7),
    ((3,), 4, 4, 4, 0.0, 8),
    ((4,), 3, 5, 8, 200.0, 9),
    ((4,), 3, 5, 8, -200.0, 10),
    ((7, 4), 16, 5, 16, 1.0, 11),
    ((1,), 0, 2, 2, 0.0, 12, TWICE),
]


def hidden(seed):
    chance = random.Random(seed)
    for number, rows in enumerate(
        ((1,), (1,), (1,), (3,), (5,), (6,), (2, 4), (4, 3), (3, 5), (2, 2, 3))
    ):
        keys = chance.randint(1, 6), chance.randint(1, 6)
        num_keys, num_others = {0: (0, keys[0]), 1: (keys[0], 0), 2: (0, 0)}.get(number, keys)
        yield (
            rows,
            num_keys,
            num_others,
            chance.randint(1, 9),
            chance.choice((-200.0, -2.0, 0.0, 2.0, 200.0)),
            chance.randrange(2**31),
        )
    yield (
        (chance.randint(1, 5),),
        0,
        chance.randint(1, 6),
        chance.randint(1, 9),
        0.0,
        chance.randrange(2**31),
        TWICE,
    )


def two_states(case):
    rows, num_keys, num_others, head_size, centre, seed = case[:6]
    generator = torch.Generator().manual_seed(seed)
    for size, middle, masked in ((num_keys, 0.0, -1), (num_others, centre, 0)):
        state = SoftmaxState(*rows, head_size=head_size)
        if size:
            scores = middle + torch.randn(*rows, size, generator=generator)
            if rows[-1] > 2:
                scores[..., masked, :] = NO_KEY
            state.update(scores, torch.randn(*rows, size, head_size, generator=generator))
        yield state


def third(case):
    """The case whose first state is the one to be merged last."""
    rows, _, num_others, head_size, centre, seed = case[:6]
    return rows, num_others, 0, head_size, centre, seed + 1


def observe(answer, case):
    mine, other = two_states(case)
    answer(mine, other)
    if case[6:] == (TWICE,):
        answer(mine, next(two_states(third(case))))
    result = (*mine.finish(), other.m, other.l, other.acc)
    return tensors.values(result, "o", "m", "l", "other.m", "other.l", "other.acc")


def describe(case):
    rows, num_keys, num_others, head_size, centre, _ = case[:6]
    rows_words = (
        "one row" if rows == (1,) else f"rows {rows} (one of each state has seen no key)"
    )
    self_words, other_words = (
        f"{counted(size, 'key')} with scores around {middle:g}" if size else "no key"
        for size, middle in ((num_keys, 0.0), (num_others, centre))
    )
    after = (
        f"; then a third state with {counted(num_others, 'key')} is merged into self"
        if case[6:] == (TWICE,)
        else ""
    )
    return (
        f"{rows_words}; self has seen {self_words}, other {other_words}; "
        f"head_size {head_size}{after}"
    )


EXERCISE = Exercise(
    id="3.3",
    title="merge two states",
    answer_name="merge",
    reference=merge_in_double,
    cases=lambda: CASES,
    size=lambda case: (math.prod(case[0]) * sum(case[1:3]) * case[3], len(case)),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake(
            "combine-missing-exp",
            "The sums are multiplied by a difference of maxima. "
            "The maxima stand in an exponent, so their difference does too: "
            "with the larger maximum the factor is 1, and yours is 0.",
            missing_exp,
        ),
        Mistake(
            "rescale-upside-down",
            "The factors are the wrong way round: the side with the smaller maximum grows. "
            "It has to shrink, because its exponentials are now counted from a larger number.",
            upside_down,
            also=(upside_down_finite,),
        ),
        Mistake(
            "weights-swapped",
            "Each side is rescaled with the other's factor. "
            "A side's factor comes from that side's own maximum.",
            swapped,
        ),
        Mistake(
            "nothing-rescaled",
            "The sums are added as they are, though they are counted from different maxima. "
            "If there are factors in your code: which maximum do they start from?",
            nothing_rescaled,
        ),
        Mistake(
            "mine-not-rescaled",
            "The other's sums are brought to the new maximum, your own are not. If there "
            "is a factor in your code: has `self.m` still its old value when you compute it?",
            mine_not_rescaled,
        ),
        Mistake(
            "theirs-not-rescaled",
            "Your own sums are brought to the new maximum, the other's are not. "
            "The other may have the smaller maximum.",
            theirs_not_rescaled,
        ),
        Mistake(
            "sum-not-rescaled",
            "`acc` is right, and the two `l` are added although they are counted "
            "from different maxima. They need the same factors.",
            sum_not_rescaled,
        ),
        Mistake(
            "accumulator-not-rescaled",
            "`l` is right, and the two `acc` are added although they are counted "
            "from different maxima. They need the same factors.",
            accumulator_not_rescaled,
        ),
        Mistake(
            "maximum-stays-mine",
            "Everything is counted from your own maximum, and `m` stays what it was. "
            "Where the other has seen a larger score, its factor is larger than 1, "
            "and may be too large for a float.",
            maximum_stays_mine,
        ),
        Mistake(
            "one-maximum-for-all-rows",
            "All rows share one maximum. A row whose scores lie far below it is rounded "
            "to 0, and `m` is one number for each row.",
            one_maximum_for_all,
        ),
        Mistake(
            "finite-on-all",
            "A side without a key should get the factor exp(-inf), which is 0. "
            "With `finite()` on its own maximum too, it counts as if its largest score had "
            "been 0: the factor may be infinite, and infinity times 0 is NaN.",
            finite_on_all,
        ),
        Mistake(
            "row-number-without-dimension",
            "With one row it works, with more it raises, or takes one row's number "
            "for another. A factor has one number for each row, and `acc` "
            "has head_size numbers there. The factor has to stand against all of them.",
            WITHOUT_A_DIMENSION[0],
            also=WITHOUT_A_DIMENSION[1:],
        ),
        Mistake(
            "one-empty-row-skips-all",
            "One row of a state has seen no key, and nothing is merged in the others. "
            "Each row has a state of its own.",
            SKIPPING[0],
            also=SKIPPING[1:],
        ),
        Mistake(
            "nan-when-both-are-empty",
            "When neither side has seen a key, both maxima are -inf, "
            "and -inf - (-inf) is NaN. `finite()` is for this.",
            nan_when_empty,
        ),
        Mistake(
            "finite-stored",
            "Where neither side has seen a key, `self.m` is 0 now: "
            "the result of `finite()` is kept. It is only there to be subtracted. "
            "The largest of no scores is still -inf.",
            finite_stored,
        ),
        Mistake(
            "combine-missing-l",
            "You merge finished outputs by the maxima alone. "
            "Each was divided by its own `l`, and how much weight a side has collected "
            "stands in that `l`. Merge the sums from before the division: `acc` and `l`.",
            missing_l,
            also=(
                missing_l_divided,
                missing_l_multiplied,
                missing_l_divided_and_multiplied,
                output_as_one_key,
            ),
        ),
        Mistake(
            "l-counts-one-key",
            "`acc` is right, and `l` counts all the other's keys as a single one. "
            "How much weight they have stands in the other's `l`.",
            l_counts_one_key,
        ),
        Mistake(
            "other-changed",
            "Your merge is right, but it has changed the other state, "
            "which its owner may still need. Operators like `*=` work in place.",
            other_changed,
        ),
        Mistake(
            "tensors-shared",
            "A state without a key takes over the other's own tensors. "
            "Then both hold the same ones, "
            "and what the next merge writes into them changes the other as well.",
            _takes_over(_merge_in_place),
            also=(_takes_over(_merge_sums_in_place),),
        ),
        Mistake(
            "self-unchanged",
            "Nothing has arrived in `self`. The function takes the other's keys "
            "into this state; nobody looks at what it returns.",
            self_unchanged,
        ),
        Mistake(
            "max-not-updated",
            "The sums are counted from the larger maximum now, and `self.m` does not say so. "
            "The next update would rescale them wrongly.",
            max_not_updated,
        ),
        Mistake(
            "sum-forgotten",
            "`l` is what it was before. The other's weights are part of the sum now.",
            sum_forgotten,
        ),
        Mistake(
            "accumulator-forgotten",
            "The other's values are not in `acc`. They are part of the sum now.",
            accumulator_forgotten,
            also=(others_accumulator_forgotten,),
        ),
        Mistake(
            "outputs-for-acc",
            "The other's finished output is added in place of its `acc`. "
            "It has been divided by `l` already.",
            other_output_for_acc,
        ),
        Mistake(
            "acc-times-l",
            "`acc` is multiplied by `l`. "
            "It is a weighted sum already, and only has to be counted from the new maximum.",
            ACC_TIMES_L[1],
            also=ACC_TIMES_L[:1],
        ),
        Mistake(
            "divided-in-merge",
            "`acc` is divided by `l` here, and finish() divides once more. "
            "More keys may follow: `acc` stays a sum.",
            divided,
            also=(divided_and_guarded,),
        ),
        Mistake(
            "one-comparison-for-all-rows",
            "Which side has the larger maximum is asked once, for all rows together. "
            "Each row has a state of its own.",
            _one_comparison(torch.all),
            also=(_one_comparison(torch.any),),
        ),
        Mistake(
            "other-ignored",
            "Your state is brought to the new maximum, "
            "and the other's sums are not added to it.",
            other_ignored,
        ),
        Mistake(
            "maxima-added",
            "`m` is the sum of the two maxima. "
            "It is the largest score of all: the larger of the two.",
            maxima_added,
        ),
        Mistake(
            "logarithm-for-the-maximum",
            "`m` is the logarithm of a sum, log(exp(m1) + exp(m2)), which is more than both. "
            "It is the largest score of all: the larger of the two.",
            logarithm_for_the_maximum,
            also=(counted_from_the_logarithm,),
        ),
        Mistake(
            "outputs-averaged",
            "The two outputs count half each. But one side may have seen a hundred keys "
            "and the other a single one: each counts by the weight that it has collected.",
            outputs_averaged,
        ),
        Mistake(
            "outputs-added",
            "You have added finished outputs, each divided by its own `l`. "
            "The sums before the division can be added: `acc`, once it is rescaled.",
            outputs_added,
        ),
    ),
    hints=(
        (
            "An update rescales one side, because the other is counted "
            "from the new maximum already. Here both sides may need it."
        ),
        (
            "Each side has its own factor, exp(its maximum - the new maximum), "
            "and one of the two is 1. `l` and `acc` of a side take the same factor."
        ),
        "Assign to `self.m` last, and use `finite()` where you subtract the new maximum.",
    ),
)
