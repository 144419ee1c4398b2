"""Exercise 4.3: the parts of one attention put together."""

import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_04.inputs import (
    call,
    drawn_parts,
    in_double,
    names_of_empty,
    parts,
    with_zeros_of_l,
)
from lessons_lib.checks import Exercise, Mistake
from paged_attention import decode
from paged_attention.softmax_state import NO_KEY, finite


def _guarded(l):
    return l.masked_fill(l == 0, 1.0)


def weighted_without_exp(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    weight = (m - finite(m_all)) * l / _guarded(l_all)
    return (weight[..., None] * o).sum(0), m_all, l_all


def summed_without_exp(o, m, l):
    m_all = m.amax(0)
    weight = (m - m_all) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / l_all[..., None], m_all, l_all


def summed_without_exp_guarded(o, m, l):
    m_all = m.amax(0)
    weight = (m - finite(m_all)) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def summed_without_exp_positive(o, m, l):
    """These weights are never above 0, and the guard asks for more than 0."""
    _, m_all, l_all = summed_without_exp_guarded(o, m, l)
    return torch.zeros_like(o[0]), m_all, l_all


def _differences(clean, count, guard):
    """m - m_all itself as weights.

    `clean` is applied to m, `count` to l, `guard` to the sum that divides.
    """

    def wrong(o, m, l):
        m_all = m.amax(0)
        weight = (clean(m) - finite(m_all)) * count(l)
        total = weight.sum(0)
        return (weight[..., None] * o).sum(0) / guard(total)[..., None], m_all, total

    return wrong


def differences_alone(o, m, l):
    """Without l, and without a guard where nothing was seen."""
    m_all = m.amax(0)
    weight = m - m_all
    total = weight.sum(0)
    return (weight[..., None] * o).sum(0) / total[..., None], m_all, total


DIFFERENCES = (differences_alone,) + tuple(
    _differences(clean, count, guard)
    for clean in (lambda m: m, finite)
    for count in (lambda l: l, torch.ones_like)
    for guard in (
        lambda total: total,
        _guarded,
        lambda total: torch.where(total > 0, total, 1.0),
    )
)


def _finite_on_all(guard):
    """A part without a key gets a factor as if its largest score had been 0."""

    def wrong(o, m, l):
        m_all = m.amax(0)
        weight = torch.exp(finite(m) - finite(m_all)) * l
        l_all = weight.sum(0)
        return (weight[..., None] * o).sum(0) / guard(l_all)[..., None], m_all, l_all

    return wrong


FINITE_ON_ALL = tuple(
    map(
        _finite_on_all,
        (_guarded, lambda l: torch.where(l > 0, l, 1.0), lambda l: l.clamp_min(1e-9)),
    )
)


def divided_by_plain_l(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    weight = torch.exp(m - finite(m_all)) * l
    return (weight[..., None] * o).sum(0) / _guarded(l.sum(0))[..., None], m_all, l_all


def divided_by_plain_l_which_is_returned(o, m, l):
    return *divided_by_plain_l(o, m, l)[:2], l.sum(0)


def _softmax_times_l(clean):
    """Right shares: the softmax over the maxima, times l.

    Their sum is not the l that was asked for.
    """

    def wrong(o, m, l):
        weight = clean(torch.softmax(m, 0)) * l
        total = weight.sum(0)
        return (weight[..., None] * o).sum(0) / _guarded(total)[..., None], m.amax(0), total

    return wrong


SOFTMAX_TIMES_L = tuple(map(_softmax_times_l, (torch.nan_to_num, lambda weight: weight)))


def output_alone(o, m, l):
    return decode.combine_result(o, m, l)[0]


def as_in_the_source_text(o, m, l):
    """The fault of the text that the course began from; it has no part without a key."""
    m_all = m.amax(0)
    l_all = (torch.exp(m - m_all) * l).sum(0)
    return ((m - m_all)[..., None] * (l / l_all)[..., None] * o).sum(0), m_all, l_all


def weighted_without_l(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(m - finite(m_all))
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def softmax_of_the_maxima(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    weight = torch.exp(m - finite(m_all))
    return (weight[..., None] * o).sum(0) / _guarded(weight.sum(0))[..., None], m_all, l_all


def _softmax_of_the_maxima(sum_of, clean):
    def wrong(o, m, l):
        weight = clean(torch.softmax(m, 0))
        return (weight[..., None] * o).sum(0), m.amax(0), sum_of(weight, l)

    return wrong


SOFTMAX_OF_THE_MAXIMA = tuple(
    _softmax_of_the_maxima(sum_of, clean)
    for clean in (torch.nan_to_num, lambda weight: weight)
    for sum_of in (
        lambda weight, l: (weight * l).sum(0),
        lambda weight, l: l.sum(0),
        lambda weight, l: weight.sum(0),
    )
)


def walking_without_l(o, m, l):
    """Part by part, with finished outputs: each counts by its factor alone."""
    o_all = o[0]
    m_all = m[0]
    l_all = l[0]
    for part in range(1, len(m)):
        m_new = torch.maximum(m_all, m[part])
        old = torch.exp(m_all - finite(m_new))
        new = torch.exp(m[part] - finite(m_new))
        l_all = old * l_all + new * l[part]
        o_all = old[..., None] * o_all + new[..., None] * o[part]
        o_all = o_all / _guarded(l_all)[..., None]
        m_all = m_new
    return o_all, m_all, l_all


def taken_as_undivided(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    return (
        (torch.exp(m - finite(m_all))[..., None] * o).sum(0) / _guarded(l_all)[..., None],
        m_all,
        l_all,
    )


def weighted_by_l_alone(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    return (l[..., None] * o).sum(0) / _guarded(l.sum(0))[..., None], m_all, l_all


def plain_average(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    return o.mean(0), m_all, l_all


def plain_average_and_sum(o, m, l):
    return o.mean(0), m.amax(0), l.sum(0)


def plain_average_and_count(o, m, l):
    """Each part has the weight 1."""
    return o.mean(0), m.amax(0), torch.ones_like(l).sum(0)


def _averaged(total):
    """The weighted outputs divided by the number of parts.

    They are divided by `total` of the weights as well.
    """

    def wrong(o, m, l):
        m_all = m.amax(0)
        weight = torch.exp(m - finite(m_all)) * l
        l_all = weight.sum(0)
        return (weight[..., None] * o).mean(0) / total(l_all)[..., None], m_all, l_all

    return wrong


AVERAGED = tuple(map(_averaged, (torch.ones_like, _guarded, lambda l: l)))


def _largest_l(divides):
    def wrong(o, m, l):
        o_all, m_all, l_all = decode.combine_result(o, m, l)
        largest = l.amax(0)
        return (
            o_all * (l_all / _guarded(largest))[..., None] if divides else o_all,
            m_all,
            largest,
        )

    return wrong


LARGEST_L = tuple(map(_largest_l, (False, True)))


def _largest_part(l_summed):
    def wrong(o, m, l):
        _, m_all, l_all = decode.combine_result(o, m, l)
        largest = m.argmax(0, keepdim=True)
        return (
            o.take_along_dim(largest[..., None], 0)[0],
            m_all,
            l_all if l_summed else l.take_along_dim(largest, 0)[0],
        )

    return wrong


LARGEST_PART = tuple(map(_largest_part, (False, True)))


def _taken_for_shares(l_of):
    """Weights that are used as if they added up to 1."""

    def wrong(o, m, l):
        o_all, m_all, l_all = decode.combine_result(o, m, l)
        return o_all * l_all[..., None], m_all, l_of(l_all)

    return wrong


TAKEN_FOR_SHARES = tuple(
    map(_taken_for_shares, (torch.ones_like, lambda l: (l > 0).to(l.dtype)))
)


def _maximum_over(dim, keepdim):
    """The maximum over a dimension that does not count parts."""

    def wrong(o, m, l):
        m_all = m.amax(dim, keepdim=keepdim)
        weight = torch.exp(m - finite(m_all)) * l
        l_all = weight.sum(0)
        return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all

    return wrong


MAXIMUM_OVER_HEADS = tuple(
    _maximum_over(dim, keepdim) for dim in (-1, 1) for keepdim in (True, False)
)


def smallest_maximum(o, m, l):
    m_all = m.amin(0)
    weight = torch.exp(m - finite(m_all)) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def smallest_maximum_unguarded(o, m, l):
    m_all = m.amin(0)
    weight = torch.exp(m - m_all) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def _one_part_left(*kept):
    """The result with the dimension of the parts still there in some of o, m and l."""

    def wrong(o, m, l):
        result = decode.combine_result(o, m, l)
        return tuple(
            value[None] if keep else value for value, keep in zip(result, kept, strict=True)
        )

    return wrong


ONE_PART_LEFT = tuple(
    _one_part_left(*kept)
    for kept in (
        (True, True, True),
        (False, True, True),
        (False, True, False),
        (False, False, True),
        (True, False, False),
    )
)


def logarithm_for_m(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, m_all + l_all.log(), l_all


def logarithm_for_m_and_one_for_l(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, m_all + l_all.log(), torch.ones_like(l_all)


def weighted_by_l_alone_and_summed(o, m, l):
    o_all, m_all, _ = weighted_by_l_alone(o, m, l)
    return o_all, m_all, l.sum(0)


def not_normalised(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all * l_all[..., None], m_all, l_all


def without_the_maximum(o, m, l):
    weight = torch.exp(m) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m.amax(0), l_all


def maximum_divided_out_at_the_end(o, m, l):
    """exp(m) first, and the largest one out of the sum: too late for large maxima."""
    weight = torch.exp(m) * l
    l_all, m_all = weight.sum(0), m.amax(0)
    o_all = torch.where(
        l_all[..., None] > 0, (weight[..., None] * o).sum(0) / l_all[..., None], 0.0
    )
    return o_all, m_all, torch.where(l_all > 0, l_all / torch.exp(m_all), 0.0)


def _without_a_dimension(weighted, divided):
    def wrong(o, m, l):
        m_all = m.amax(0)
        weight = torch.exp(m - finite(m_all)) * l
        l_all = weight.sum(0)
        return divided(weighted(weight, o).sum(0), l_all), m_all, l_all

    return wrong


WITHOUT_A_DIMENSION = tuple(
    _without_a_dimension(weighted, divided)
    for weighted in (
        lambda weight, o: weight * o,
        lambda weight, o: o * weight,
        lambda weight, o: weight[..., None] * o,
    )
    for divided in (
        lambda total, l: total / l,
        lambda total, l: total / _guarded(l),
        lambda total, l: torch.where(l > 0, total / l, 0.0),
    )
)


def empty_in_one_row_dropped(o, m, l):
    """A part counts in no row when it saw no key in one of them."""
    kept = (l > 0).flatten(1).all(1)
    if not kept.any():
        return torch.zeros_like(o[0]), torch.full_like(m[0], NO_KEY), torch.zeros_like(l[0])
    return decode.combine_result(o[kept], m[kept], l[kept])


def overwrites_l(o, m, l):
    result = decode.combine_result(o, m, l)
    l *= torch.exp(m - finite(result[1]))
    return result


def overwrites_m_by_its_exponentials(o, m, l):
    result = decode.combine_result(o, m, l)
    m.sub_(finite(result[1])).exp_()
    return result


def overwrites_m(o, m, l):
    result = decode.combine_result(o, m, l)
    m -= finite(result[1])
    return result


def nan_without_a_key(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(m - m_all) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / l_all[..., None], m_all, l_all


def zero_divided_by_zero(o, m, l):
    _, m_all, l_all = decode.combine_result(o, m, l)
    return (
        ((torch.exp(m - finite(m_all)) * l)[..., None] * o).sum(0) / l_all[..., None],
        m_all,
        l_all,
    )


def l_added_as_it_is(o, m, l):
    o_all, m_all, _ = decode.combine_result(o, m, l)
    return o_all, m_all, l.sum(0)


def upside_down(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(m_all - m) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / l_all[..., None], m_all, l_all


def upside_down_guarded(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(finite(m_all) - m) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def upside_down_nan_set_to_zero(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(finite(m_all) - m) * l
    l_all = weight.sum(0)
    return ((weight[..., None] * o).sum(0) / l_all[..., None]).nan_to_num(0.0), m_all, l_all


def upside_down_finite(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(finite(m_all) - finite(m)) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


def _running(o, m, l, *, l_rescaled):
    m_all = m[0]
    l_all = torch.zeros_like(l[0])
    total = torch.zeros_like(o[0])
    for part in range(len(m)):
        m_new = torch.maximum(m_all, m[part])
        weight = torch.exp(m[part] - finite(m_new)) * l[part]
        if l_rescaled:
            l_all = l_all * torch.exp(m_all - finite(m_new))
        l_all = l_all + weight
        total = total + weight[..., None] * o[part]
        m_all = m_new
    return total / _guarded(l_all)[..., None], m_all, l_all


def running_not_rescaled(o, m, l):
    return _running(o, m, l, l_rescaled=False)


def running_output_not_rescaled(o, m, l):
    return _running(o, m, l, l_rescaled=True)


def l_is_one(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, m_all, torch.ones_like(l_all)


def l_is_one_or_zero(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, m_all, (l_all > 0).to(l_all.dtype)


def l_kept_from_zero(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, m_all, l_all.clamp(min=1e-6)


def finite_maximum_returned(o, m, l):
    o_all, m_all, l_all = decode.combine_result(o, m, l)
    return o_all, finite(m_all), l_all


def nan_in_l_alone(o, m, l):
    """The division is guarded, and exp(-inf - (-inf)) is in l all the same."""
    o_all, m_all, _ = decode.combine_result(o, m, l)
    return o_all, m_all, nan_without_a_key(o, m, l)[2]


def one_maximum_for_all(o, m, l):
    m_all = m.max()
    weight = torch.exp(m - finite(m_all)) * l
    l_all = weight.sum(0)
    return (
        (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None],
        m_all.expand(l_all.shape),
        l_all,
    )


def one_maximum_for_all_unguarded(o, m, l):
    m_all = m.max()
    weight = torch.exp(m - finite(m_all)) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / l_all[..., None], m_all.expand(l_all.shape), l_all


def starts_at_zero(o, m, l):
    m_all = m.amax(0).clamp(min=0.0)
    weight = torch.exp(m - m_all) * l
    l_all = weight.sum(0)
    return (weight[..., None] * o).sum(0) / _guarded(l_all)[..., None], m_all, l_all


# Levels of 500: exp(500) overflows, exp(-500) is 0, and float32 is exact enough for a detour
# over the logarithm of l. (shape of m, head size, level of the maxima, their spread, the parts
# that saw no key, seed)
CASES = [
    ((1, 1), 2, 0.0, 1.0, (), 0),
    ((2, 1), 2, 0.0, 0.0, (), 1),
    ((2, 1), 2, 0.0, 1.0, (), 2),
    ((3, 2), 2, 0.0, 2.0, (), 3),
    ((2, 1), 2, -3.0, 1.0, (), 4),
    ((2, 1), 2, 0.0, 1.0, (1,), 5),
    ((3, 2), 4, 0.0, 1.0, (0,), 6),
    ((1, 1), 2, 0.0, 1.0, (0,), 7),
    ((2, 2), 2, 0.0, 1.0, (0, 1), 8),
    ((2, 1), 2, 500.0, 1.0, (), 9),
    ((2, 2), 2, -500.0, 1.0, (), 10),
    ((4, 3), 4, 0.0, 300.0, (2,), 11),
    ((9, 7), 16, 1.0, 3.0, (), 12),
    ((2, 5, 6), 64, 0.0, 2.0, (), 13),
    ((40, 3), 16, -2.0, 2.0, (3, 17), 14),
    ((2, 3), 4, 0.0, 1.0, ((0, 1),), 15),
    ((2, 2), 2, -500.0, 1.0, (0,), 16),
]


def hidden(seed):
    chance = random.Random(seed)
    for num_parts in (1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 12, 30):
        shape = (
            (num_parts, chance.randint(1, 6))
            if num_parts % 3
            else (num_parts, 2, chance.randint(1, 5))
        )
        yield shape, *drawn_parts(chance, num_parts)
    num_parts = chance.randint(2, 9)
    yield (
        (num_parts, 2),
        chance.randint(3, 9),
        0.0,
        1.0,
        tuple(range(num_parts)),
        chance.randrange(2**31),
    )
    part_and_head = chance.randrange(num_parts), chance.randrange(3)
    yield (
        (num_parts, 3),
        chance.randint(3, 9),
        0.0,
        1.0,
        (part_and_head,),
        chance.randrange(2**31),
    )


def observe(answer, case):
    o, m, l = parts(*case)
    return with_zeros_of_l(call(answer, ("o", "m", "l"), o=o, m=m, l=l))


def describe(case):
    shape, head_size, level, spread, empty, _ = case
    words = (
        f"{shape[0]} part{'s' * (shape[0] > 1)}: "
        f"o of shape {(*shape, head_size)}, m and l of shape {shape}"
    )
    if level or spread > 10:
        words += f", m near {level:,.0f}" + (
            f" give or take {spread:,.0f}" if spread > 10 else ""
        )
    return words + names_of_empty(empty, "part")


EXERCISE = Exercise(
    id="4.3",
    title="combine the parts",
    answer_name="combine_result",
    reference=in_double(decode.combine_result),
    cases=lambda: CASES,
    size=lambda case: (math.prod(case[0]) * case[1], len(case[4])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "combine-missing-exp",
            "The parts are weighted by m - m_all itself. "
            "The part with the largest maximum then weighs 0, and the others less than 0. "
            "What turns a difference of scores into a ratio of weights?",
            weighted_without_exp,
            also=(
                as_in_the_source_text,
                summed_without_exp,
                summed_without_exp_guarded,
                summed_without_exp_positive,
                *DIFFERENCES,
            ),
        ),
        Mistake(
            "combine-missing-l",
            "The weight of a part looks at its largest score only. "
            "A block of sixteen equal keys weighs sixteen times as much as a block of one: "
            "the parts are divided by l already, so l has to come back in.",
            weighted_without_l,
            also=(softmax_of_the_maxima, walking_without_l, *SOFTMAX_OF_THE_MAXIMA),
        ),
        Mistake(
            "o-taken-as-undivided",
            "You add the parts as if they were sums that still had to be divided. "
            "Each of them is divided by its own l already.",
            taken_as_undivided,
        ),
        Mistake(
            "weights-missing-m",
            "The outputs are weighted by l alone. Each l was counted from its own maximum; "
            "they can be compared once they refer to the same one.",
            weighted_by_l_alone,
            also=(weighted_by_l_alone_and_summed,),
        ),
        Mistake(
            "plain-average",
            "o is the plain average of the parts, as if all of them mattered alike. "
            "A block with higher scores, or with more tokens, has a larger share.",
            plain_average,
            also=(plain_average_and_sum, plain_average_and_count),
        ),
        Mistake(
            "averaged-over-parts",
            "The weighted outputs are divided by the number of parts; `mean` over the parts "
            "does that too. The sum of the weights is what divides them, and nothing else.",
            AVERAGED[0],
            also=AVERAGED[1:],
        ),
        Mistake(
            "largest-part-alone",
            "o is the output of the part with the largest m, as if the others did not count. "
            "They weigh less, and they still have a share.",
            LARGEST_PART[0],
            also=LARGEST_PART[1:],
        ),
        Mistake(
            "smallest-maximum",
            "You take the smallest of the parts' maxima. "
            "The result's m is the largest, so that no weight overflows.",
            smallest_maximum,
            also=(smallest_maximum_unguarded,),
        ),
        Mistake(
            "maximum-over-heads",
            "Your maximum runs over the heads of a part. It has to run over the parts, "
            "for each head by itself. Which dimension of m counts the parts?",
            MAXIMUM_OVER_HEADS[0],
            also=MAXIMUM_OVER_HEADS[1:],
        ),
        Mistake(
            "one-part-left",
            "The numbers are right, "
            "and the dimension that counts parts is still there, with size 1. "
            "The result is one part: its m and l have the shape of m[0], its o that of o[0].",
            ONE_PART_LEFT[0],
            also=ONE_PART_LEFT[1:],
        ),
        Mistake(
            "m-as-logarithm",
            "In place of m you return m + log(l). Some programs keep that one number "
            "for both. Here m is the largest maximum, and l is counted from it.",
            logarithm_for_m,
            also=(logarithm_for_m_and_one_for_l,),
        ),
        Mistake(
            "weights-taken-for-shares",
            "You use the weights as if they added up to 1: l is 1, "
            "and o is not divided by their sum. What is the sum of exp(m - m_all) * l?",
            TAKEN_FOR_SHARES[0],
            also=TAKEN_FOR_SHARES[1:],
        ),
        Mistake(
            "sum-not-normalised",
            "o is the weighted sum of the parts, "
            "and it is not divided by the sum of the weights.",
            not_normalised,
        ),
        Mistake(
            "max-not-subtracted",
            "The weights are exp(m) * l, without subtracting the largest m. "
            "l is then not what was asked for, and large maxima overflow.",
            without_the_maximum,
            also=(maximum_divided_out_at_the_end,),
        ),
        Mistake(
            "weight-without-dimension",
            "A weight, or the sum of them, has one number for each row, "
            "and o has head_size numbers there. As they are, they do not fit, or one row's "
            "number meets another row. The number has to stand against all of head_size.",
            WITHOUT_A_DIMENSION[0],
            also=WITHOUT_A_DIMENSION[1:],
        ),
        Mistake(
            "one-empty-row-drops-the-part",
            "One head of a part saw no key, and the part counts in none of them. "
            "Its other heads have seen keys.",
            empty_in_one_row_dropped,
        ),
        Mistake(
            "inputs-changed",
            "Your function changes o, m or l, which belong to its caller. "
            "Operators like `*=` work in place, and so does a name that ends in `_`.",
            overwrites_m,
            also=(overwrites_m_by_its_exponentials, overwrites_l),
        ),
        Mistake(
            "max-starts-at-zero",
            "Your maximum never falls below 0. When all scores are far below 0, "
            "every weight underflows to 0, and the output with it.",
            starts_at_zero,
        ),
        Mistake(
            "nan-on-empty-part",
            "When no part has seen a key, the largest m is -inf, and -inf - (-inf) is NaN. "
            "`finite(m_all)` of lesson 03 helps where it is subtracted, "
            "and the sum of the weights is 0.",
            nan_without_a_key,
            also=(nan_in_l_alone,),
        ),
        Mistake(
            "zero-divided-by-zero",
            "When no part has seen a key, the weights add up to 0, and you divide by that: "
            "0 / 0 is NaN. o is 0 there.",
            zero_divided_by_zero,
        ),
        Mistake(
            "l-not-rescaled",
            "o is right, and l is the plain sum of the parts' l. Each was counted "
            "from its own maximum, and the result's l is counted from the largest.",
            l_added_as_it_is,
        ),
        Mistake(
            "largest-l",
            "l is the largest of the parts' l. Every part adds to it: "
            "the result's l is the sum of all weights, counted from the largest m.",
            LARGEST_L[0],
            also=LARGEST_L[1:],
        ),
        Mistake(
            "l-of-a-softmax-of-m",
            "o is right, and l is not counted from m: the softmax over the maxima "
            "has divided the weights. The result's l is a sum of exponentials counted "
            "from m, so that it can be combined further.",
            SOFTMAX_TIMES_L[0],
            also=SOFTMAX_TIMES_L[1:],
        ),
        Mistake(
            "divided-by-plain-l",
            "The parts are brought to the largest maximum, and what you divide "
            "by is the plain sum of their l. Each l was counted from its own maximum.",
            divided_by_plain_l,
            also=(divided_by_plain_l_which_is_returned,),
        ),
        Mistake(
            "finite-on-all",
            "A part that saw no key should get the factor exp(-inf), which is 0. "
            "With `finite()` on its own m too, the factor is infinite "
            "where the other scores lie far below 0, and infinity times 0 is NaN.",
            FINITE_ON_ALL[0],
            also=FINITE_ON_ALL[1:],
        ),
        Mistake(
            "output-alone",
            "Only o is returned. "
            "The result is a triple (o, m, l) again, so that it can be combined further.",
            output_alone,
        ),
        Mistake(
            "weights-upside-down",
            "The sign of the exponent is turned round: "
            "the part with the lowest scores weighs most.",
            upside_down,
            also=(upside_down_guarded, upside_down_finite, upside_down_nan_set_to_zero),
        ),
        Mistake(
            "one-max-for-all",
            "You take one maximum over everything. Each head has its own: "
            "where another head's scores are much larger, all weights underflow.",
            one_maximum_for_all,
            also=(one_maximum_for_all_unguarded,),
        ),
        Mistake(
            "running-sum-not-rescaled",
            "You go through the parts with a maximum that grows, and what was summed "
            "before is still counted from the old one. Lesson 03 rescales it at each step.",
            running_not_rescaled,
            also=(running_output_not_rescaled,),
        ),
        Mistake(
            "l-of-softmax",
            "o and m are right, and l is 1: the sum of shares that are divided already. "
            "The result's l is the sum of the weights, so that it can be combined further.",
            l_is_one,
            also=(l_is_one_or_zero,),
        ),
        Mistake(
            "l-kept-from-zero",
            "Where no part saw a key, l is 0, and you return a small number in its place. "
            "Guard the division, and return l as it is.",
            l_kept_from_zero,
        ),
        Mistake(
            "finite-m-returned",
            "Where no part saw a key, you return m = 0. "
            "`finite` is for the subtraction alone; the m that you return stays -inf.",
            finite_maximum_returned,
        ),
    ),
    hints=(
        (
            "What would l be if a block had been counted from a larger maximum? "
            "Lesson 03's `merge` did this for two states."
        ),
        (
            "Three steps: the largest m over the parts; "
            "the weight of each part, counted from that; the weighted mean of o."
        ),
        (
            "The result's l is the sum of the weights. "
            "`weight[..., None]` lets a weight multiply all head_size numbers of o."
        ),
        (
            "If no part has seen a key, the largest m is -inf "
            "and the sum of the weights is 0. Use `finite`, and do not divide."
        ),
    ),
)
