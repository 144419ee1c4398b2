"""Exercise 7.3: the state of the online softmax takes in more tokens."""

import itertools
import math
import random
import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import Found, result_of, show
from lessons_exercises.lesson_07.native import SHAPES, build, group_lanes, per_load, places
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
from paged_attention.ladder import Shape

NEVER = float("-inf")
BEHIND = 1e4  # what lies after a lane's state
ROWS = 4  # that a group takes in at once


@dataclass(frozen=True)
class Case:
    """there: how many of its tokens each round has, for group 0.

    The other groups have one less.

    level, rise: what the scores are near in the first round, and how much higher in each
        further one.
    """

    shape: str
    there: tuple[int, ...]
    level: float = 0.0
    rise: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Rounds:
    shape: Shape
    scores: Tensor  # (rounds, groups, ROWS), -inf for a token that does not exist
    values: Tensor  # (rounds, groups, ROWS, head_size), zeros for such a token


def made(case: Case) -> Rounds:
    shape = SHAPES[case.shape]
    generator = torch.Generator().manual_seed(case.seed)
    rounds, groups = len(case.there), 32 // group_lanes(shape)
    scores = torch.randn(rounds, groups, ROWS, generator=generator) + case.level
    scores += case.rise * torch.arange(rounds)[:, None, None]
    values = torch.randn(rounds, groups, ROWS, shape.head_size, generator=generator)
    values = values.to(shape.dtype)
    for number, there in enumerate(case.there):
        for group in range(groups):
            missing = slice(max(0, there - (group > 0)), ROWS)
            scores[number, group, missing], values[number, group, missing] = NEVER, 0
    return Rounds(shape, scores, values)


def greatest(m, scores):
    return torch.maximum(m, scores.amax(-1))


def weights_of(scores, old, m):
    return torch.exp(scores - m[:, None])


def rescale_of(old, m):
    return torch.exp(old - m)


def states(
    m_of=greatest,
    weights=weights_of,
    rescale=rescale_of,
    l_of=lambda l, factor, weights: factor * l + weights.sum(-1),
    acc_of=lambda acc, factor, sums: factor * acc + sums,
    new_m=lambda m, old: m,
    guarded=True,
    sums_of=lambda weights, values: (weights[:, None] @ values)[:, 0],
    acc_at_last=lambda l, acc: acc,
    shares=lambda weights, scores: weights,
    comes_in=lambda scores: torch.ones(len(scores), dtype=torch.bool),
):
    """(m, l, acc) after all rounds, with some parts replaced.

    guarded: while no token is there, nothing is done.
    shares(weights, scores): the values' factors in acc.
    comes_in(scores): whether anything is done with these tokens at all, by group.
    """

    def wrong(rounds: Rounds):
        groups, head_size = rounds.scores.shape[1], rounds.values.shape[-1]
        m = torch.full((groups,), NEVER, dtype=torch.float64)
        l = torch.zeros(groups, dtype=torch.float64)
        acc = torch.zeros(groups, head_size, dtype=torch.float64)
        for scores, values in zip(rounds.scores.double(), rounds.values.double(), strict=True):
            largest = m_of(m, scores)
            p, factor = weights(scores, m, largest), rescale(m, largest)
            new_l = l_of(l, factor, p)
            new_acc = acc_of(acc, factor[:, None], sums_of(shares(p, scores), values))
            new_acc = acc_at_last(new_l[:, None], new_acc)
            some = ((largest != NEVER) | (not guarded)) & comes_in(scores)
            m = torch.where(some, new_m(largest, m), m)
            l = torch.where(some, new_l, l)
            acc = torch.where(some[:, None], new_acc, acc)
        lanes = group_lanes(rounds.shape)
        return tuple(
            part.float()
            for part in (m[:, None].expand(-1, lanes), l[:, None].expand(-1, lanes), acc)
        )

    return wrong


def in_float(function):
    """Where it matters that exp() of a large number does not fit into a float."""
    return lambda *numbers: function(*(number.float() for number in numbers)).double()


def rescaled_each_time(scores, old, m):
    """A token's weight, multiplied by the factor once for each token after it."""
    times = torch.arange(ROWS - 1, -1, -1)
    return weights_of(scores, old, m) * rescale_of(old, m)[:, None] ** times


def from_a_growing_maximum(scores, old, m):
    """Each token's weight from the largest score up to it."""
    return torch.exp(scores - torch.maximum(old[:, None], scores.cummax(-1).values))


def finite_at_first(number):
    """m is `number` as long as there is no score above it."""
    return states(m_of=lambda m, scores: greatest(m, scores).clamp(min=number), guarded=False)


def zero_for_no_token(m, scores):
    largest = greatest(m, scores)
    return torch.where(largest == NEVER, 0.0, largest)


def some_token(scores):
    return scores.amax(-1) > NEVER


def records_alone(scores, old, m):
    """A token has no weight where a score before it was as large."""
    before = torch.cat(
        [old[:, None], torch.maximum(old[:, None], scores.cummax(-1).values)[:, :-1]], -1
    )
    return torch.where(scores > before, weights_of(scores, old, m), 0.0)


def quotients(scores, old, m):
    return torch.exp(scores) / torch.exp(m)[:, None]


def powers_of_two(scores, old, m):
    return torch.exp2(scores - m[:, None])


def negative_without_weight(scores, old, m):
    return torch.where(scores < 0, 0.0, weights_of(scores, old, m))


def negative_left_out(rounds: Rounds):
    return states()(
        replace(rounds, scores=torch.where(rounds.scores < 0, NEVER, rounds.scores))
    )


def thrown_away(rounds: Rounds):
    """A group's state is as if nothing had come before its last round without a token."""
    some = (rounds.scores.amax(-1) > NEVER).int()
    kept = some.flip(0).cummin(0).values.flip(0).bool()
    return states()(replace(rounds, scores=torch.where(kept[..., None], rounds.scores, NEVER)))


def of_first_value(weights, values):
    return weights.sum(-1, keepdim=True) * values[:, 0]


def one_not_rescaled(which):
    """Token by token, where l (1) or acc (2) counts each from the largest so far."""

    def wrong(rounds: Rounds):
        parts = list(states()(rounds))
        parts[which] = states(
            weights=from_a_growing_maximum, rescale=lambda old, m: torch.ones_like(m)
        )(rounds)[which]
        return tuple(parts)

    return wrong


def acc_divided(**parts):
    """acc is divided by l after each round, and multiplied by it before the next.

    parts: what else is replaced in acc.
    """

    def wrong(rounds: Rounds):
        m, l, _ = states()(rounds)
        return m, l, torch.where(l[:, :1] == 0, 0.0, states(**parts)(rounds)[2] / l[:, :1])

    return wrong


def in_16_bits(dtype, one_by_one):
    """weights() of states() in this dtype.

    The weights may be counted from the largest score up to each token.
    """

    def weights(scores, old, m):
        if not one_by_one:
            return weights_of(scores, old, m).to(dtype).double()
        most = torch.maximum(old[:, None], scores.cummax(-1).values)
        return torch.exp(scores - most).to(dtype).double() * torch.exp(most - m[:, None])

    return weights


def weights_in_16_bits(dtype=None, one_by_one=False, in_l=True):
    """dtype: None is that of the caches. in_l: whether l gets these weights too."""

    def wrong(rounds: Rounds):
        m, l, acc = states(weights=in_16_bits(dtype or rounds.shape.cache_dtype, one_by_one))(
            rounds
        )
        return m, l if in_l else states()(rounds)[1], acc

    return wrong


def of_the_warp(m, scores):
    largest = greatest(m, scores)
    return largest.amax().expand_as(largest)


def weights_without(token):
    def weights(scores, old, m):
        return weights_of(scores, old, m).index_fill(-1, torch.tensor([token % ROWS]), 0.0)

    return weights


def left_out(token, in_maximum=False, in_l=True, in_acc=True):
    """This one of ROWS tokens is missing in the sums, in l or acc alone.

    It may be missing in the maximum as well.
    """

    def wrong(rounds: Rounds):
        if in_maximum:
            scores = rounds.scores.clone()
            scores[..., token] = NEVER
            return states()(replace(rounds, scores=scores))
        m, l, acc = states()(rounds)
        _, short_l, short_acc = states(weights=weights_without(token))(rounds)
        return m, short_l if in_l else l, short_acc if in_acc else acc

    return wrong


def maximum_without(token):
    def m_of(m, scores):
        return greatest(m, scores.index_fill(-1, torch.tensor([token % ROWS]), NEVER))

    return states(m_of=m_of, weights=in_float(weights_of))


def recognise(answer):
    """In these, what is read or written is whatever lies past the end of an array."""
    text = re.sub(r"//.*|/\*[\s\S]*?\*/", "", answer)
    if re.search(r"\bstate\s*\.\s*acc\s*\[\s*place\s*\(\s*\w+\s*\)\s*\]", text):
        return "place-in-the-part"
    ends = {}
    for name, end in re.findall(r"\b(\w+)\s*=\s*0\s*;\s*\1\s*<\s*(\w+)", text):
        ends.setdefault(name, set()).add(end)
    for token, number in re.findall(
        r"\bnumber\s*\(\s*values\s*\[\s*(\w+)\s*\]\s*,\s*(\w+)\s*\)", text
    ):
        if ends.get(token) == {"lane_numbers"} and ends.get(number, {None}) <= {
            "rows_at_once",
            str(ROWS),
        }:
            return "token-and-number-swapped"
    return None


def acc_over_lanes(rounds: Rounds):
    place, values = places(rounds.shape), rounds.values.float()
    summed = torch.empty_like(values)
    summed[..., place] = (
        values[..., place].sum(-2, keepdim=True).expand(*values.shape[:-1], *place.shape)
    )
    return states()(replace(rounds, values=summed))


def kept_from_the_first(m, scores):
    return torch.where(m == NEVER, scores.amax(-1), m)


def scores_of_tokens(scores):
    return torch.where(scores == NEVER, 0.0, scores)


def scores_rescaled_each_time(rounds: Rounds):
    """Scores as weights, token by token.

    A larger score rescales those before it, as it should a weight.
    """
    m, l, acc = states()(rounds)
    of_group = torch.full((rounds.scores.shape[1],), NEVER, dtype=torch.float64)
    total = torch.zeros(acc.shape, dtype=torch.float64)
    for scores, values in zip(rounds.scores.double(), rounds.values.double(), strict=True):
        for token in range(ROWS):
            largest = torch.maximum(of_group, scores[:, token])
            factor = torch.where(largest == NEVER, 1.0, rescale_of(of_group, largest))
            total = (
                factor[:, None] * total
                + scores_of_tokens(scores[:, token])[:, None] * values[:, token]
            )
            of_group = largest
    return m, l, total.float()


def l_times(count, everywhere=False):
    """l, or l and acc, grow by count(shape) times the weights."""

    def wrong(rounds: Rounds):
        times = count(rounds.shape)
        if everywhere:
            return states(weights=lambda *numbers: times * weights_of(*numbers))(rounds)
        return states(l_of=lambda l, factor, weights: factor * l + times * weights.sum(-1))(
            rounds
        )

    return wrong


def numbers_of_a_lane(shape):
    return places(shape).shape[1]


def found_by_place(rounds: Rounds):
    """What each lane finds as number(values[token], place(i)).

    It is a number of a later token, or NaN after the last.
    """
    place, values = places(rounds.shape), rounds.values
    lane, numbers = torch.arange(len(place))[:, None], ROWS * place.shape[1]
    # (rounds, groups, lanes, numbers of all rows)
    parts = values[..., place].transpose(2, 3).flatten(3)
    index = torch.arange(ROWS)[:, None, None] * place.shape[1] + place
    found = torch.full_like(values, math.nan)
    found[..., place] = torch.where(
        index < numbers, parts[:, :, lane, index.clamp(max=numbers - 1)], math.nan
    )
    return replace(rounds, values=found)


def numbers_by_place(rounds: Rounds):
    return states()(found_by_place(rounds))


def numbers_by_place_of_tokens(rounds: Rounds):
    """Of tokens that exist, alone."""

    def sums(weights, values):
        return (weights[:, None] @ torch.where(weights[..., None] == 0, 0.0, values))[:, 0]

    return states(sums_of=sums)(found_by_place(rounds))


def numbers_by_place_in_each_group(rounds: Rounds):
    """Also in those without a token."""
    m, l, acc = numbers_by_place(rounds)
    acc[:, per_load(rounds.shape) :] = math.nan
    return m, l, acc


def numbers_by_place_in_several_groups(rounds: Rounds):
    """All are spoiled where there is a next group.

    With a single group, what lies there may be a number.
    """
    m, l, acc = numbers_by_place(rounds)
    return (m, l, acc) if len(acc) == 1 else numbers_by_place_in_each_group(rounds)


def first_load_alone(rounds: Rounds):
    m, l, acc = states()(rounds)
    acc[:, group_lanes(rounds.shape) * per_load(rounds.shape) :] = 0
    return m, l, acc


def unweighted(weights, values):
    return values.sum(-2)


def last_only(weights):
    """Each token's part written over the one before."""
    return torch.cat([torch.zeros_like(weights[:, :-1]), weights[:, -1:]], -1)


def last_sums(weights, values):
    return (last_only(weights)[:, None] @ values)[:, 0]


class WrittenBehind(Found):
    def __init__(self):
        super().__init__("behind-the-state")

    def __str__(self):
        return "Numbers were written past a lane's state: acc has lane_numbers numbers."


def one_number_more(rounds: Rounds):
    if (rounds.scores == NEVER).all():
        return states()(rounds)
    raise WrittenBehind


def eight_numbers(rounds: Rounds):
    """lane_numbers is 8, but for small heads of floats."""
    return states()(rounds) if places(rounds.shape).shape[1] == 8 else one_number_more(rounds)


def prepare(answer):
    before = (
        "numbers.cuh",
        "paged_params.cuh",
        "paged_address.cuh",
        "ladder/shape.cuh",
        "ladder/launch.cuh",
        "ladder/wide_row.cuh",
        "ladder/wide_score.cuh",
    )
    shapes = {SHAPES[case.shape] for case in cases()}
    libraries = {
        shape: build(answer, shape, before, "online_softmax_check.cu") for shape in shapes
    }

    def native(rounds: Rounds):
        groups, head_size = rounds.scores.shape[1], rounds.values.shape[-1]
        lanes = group_lanes(rounds.shape)
        out_m = torch.empty(groups, lanes)
        out_l = torch.empty(groups, lanes)
        out_acc = torch.empty(groups, head_size)
        out_behind = torch.empty(groups * lanes, 8)
        libraries[rounds.shape].take_in_all(
            rounds.scores, rounds.values, out_m, out_l, out_acc, out_behind, len(rounds.scores)
        )
        if not (out_behind == BEHIND).all():
            raise WrittenBehind
        return out_m, out_l, out_acc

    return native


def cases():
    yield from (
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
    )


def hidden(seed):
    """Rounds of any numbers of tokens, with scores that go up or down from any level.

    One round has no token.
    """
    chance = random.Random(seed)
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


def observe(subject, case):
    return result_of(
        lambda: subject(made(case)),
        (),
        ("m by (group, lane)", "l by (group, lane)", "acc by (group, dim)"),
    )


def describe(case):
    shape = SHAPES[case.shape]
    numbers = " and then ".join(map(str, case.there))
    more = f", scores near {case.level:g}" if case.level else ""
    if case.rise:
        more += (
            ", from one round "
            f"to the next about {abs(case.rise):g} {'higher' if case.rise > 0 else 'lower'}"
        )
    return (
        f"{counted(len(case.there), 'round')} of up to {ROWS} tokens (in group 0: "
        f"{numbers}), {shape.head_size} dims in {case.shape.split(',')[0]}, "
        f"{counted(32 // group_lanes(shape), 'group')} of lanes in the warp{more}"
    )


GUARD = "  if (m == -INFINITY) return;\n"
RESCALE_ACC = "  for (float& sum : state.acc) sum *= rescale;\n"
RESCALE_L = "  state.l *= rescale;\n"
RESCALE = "float rescale = __expf(state.m - m);"
WEIGHT = "float weight = __expf(scores[token] - m);"
ADD = "state.acc[i] += weight * number(values[token], i);"

EXERCISE = Exercise(
    id="7.3",
    title="the online softmax, token by token",
    answer_name="softmax_state",
    language="cuda",
    reference=states(),
    prepare=prepare,
    cases=cases,
    size=lambda case: (len(case.there), sum(case.there), SHAPES[case.shape].head_size),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show,
    recognise=recognise,
    points=2,
    mistakes=(
        Mistake(
            "acc-not-rescaled",
            "What acc held before still counts from the old maximum. When the maximum grows, "
            "the values summed so far have to be brought to the new one.",
            states(acc_of=lambda acc, factor, sums: acc + sums),
            ((RESCALE_ACC, ""),),
            also=(one_not_rescaled(2),),
        ),
        Mistake(
            "l-not-rescaled",
            "What l held before still counts from the old maximum. When the maximum grows, "
            "the sum of the exponentials has to be brought to the new one.",
            states(l_of=lambda l, factor, weights: l + weights.sum(-1)),
            ((RESCALE_L, ""),),
            also=(one_not_rescaled(1),),
        ),
        Mistake(
            "old-sums-forgotten",
            "Only the tokens that came last are in l, or in acc. "
            "What was summed before has to be brought to the new maximum and kept.",
            states(l_of=lambda l, factor, weights: weights.sum(-1)),
            ((RESCALE_L, "  state.l = 0.0f;\n"),),
            also=(
                states(acc_of=lambda acc, factor, sums: sums),
                states(
                    l_of=lambda l, factor, weights: weights.sum(-1),
                    acc_of=lambda acc, factor, sums: sums,
                ),
                states(l_of=lambda l, factor, weights: weights.sum(-1), comes_in=some_token),
                states(acc_of=lambda acc, factor, sums: sums, comes_in=some_token),
                states(
                    l_of=lambda l, factor, weights: weights.sum(-1),
                    acc_of=lambda acc, factor, sums: sums,
                    comes_in=some_token,
                ),
            ),
        ),
        Mistake(
            "nothing-rescaled",
            "Both l and acc still count from the old maximum. "
            "Perhaps nothing brings them to the new one. "
            "Or the old maximum was overwritten before it was compared with the new one.",
            states(rescale=lambda old, m: torch.ones_like(m)),
            ((RESCALE, "state.m = m;\n  " + RESCALE),),
            also=(
                states(
                    weights=from_a_growing_maximum, rescale=lambda old, m: torch.ones_like(m)
                ),
            ),
        ),
        Mistake(
            "rescaled-too-late",
            "The new tokens are added first, and then everything is rescaled, "
            "the new tokens too. But their weights are already right. "
            "Before the first token the factor is exp(-inf - m) = 0. What has to come first?",
            states(
                l_of=lambda l, factor, weights: factor * (l + weights.sum(-1)),
                acc_of=lambda acc, factor, sums: factor * (acc + sums),
            ),
            (
                (RESCALE_L + RESCALE_ACC, ""),
                (f"{ADD}\n  }}\n", f"{ADD}\n  }}\n{RESCALE_L}{RESCALE_ACC}"),
            ),
        ),
        Mistake(
            "rescaled-for-each-token",
            "Old sums are rescaled once for each token, and so are the tokens that were just "
            "added. The factor is for the step from the old maximum to the new one, "
            "and that step is taken once. Before the first token the factor is exp(-inf - m) "
            "= 0.",
            states(
                weights=rescaled_each_time, rescale=lambda old, m: rescale_of(old, m) ** ROWS
            ),
            (
                (RESCALE_L + RESCALE_ACC, ""),
                ("state.l += weight;", "state.l = rescale * state.l + weight;"),
                (ADD, ADD.replace("+=", "= rescale * state.acc[i] +")),
            ),
        ),
        Mistake(
            "rescale-upside-down",
            "The factor for the old sums is upside down. When the maximum grows, "
            "old sums become smaller. Before the first token the factor is exp(-inf - m) = 0.",
            states(rescale=lambda old, m: torch.exp(m - old)),
            ((RESCALE, "float rescale = __expf(m - state.m);"),),
        ),
        Mistake(
            "old-maximum-in-weights",
            "The new tokens' weights are counted from the maximum before them. "
            "So they do not fit the rescaled sums. "
            "And before the first token that maximum is -inf.",
            states(
                weights=in_float(lambda scores, old, m: torch.exp(scores - old[:, None])),
                rescale=in_float(rescale_of),
            ),
            (
                ("  state.m = m;\n", ""),
                (WEIGHT, WEIGHT.replace("- m", "- state.m")),
                (f"{ADD}\n  }}\n", f"{ADD}\n  }}\n  state.m = m;\n"),
            ),
        ),
        Mistake(
            "maximum-not-kept",
            "m stays what it was, so the next tokens are compared with an old maximum.",
            states(new_m=lambda m, old: old),
            (("  state.m = m;\n", ""),),
        ),
        Mistake(
            "maximum-of-the-last-tokens",
            "m is the largest score of the tokens that came last. "
            "It should be the largest of all so far.",
            states(m_of=lambda m, scores: scores.amax(-1)),
            (("float m = state.m;", "float m = -INFINITY;"),),
            also=(states(m_of=lambda m, scores: scores.amax(-1), guarded=False),),
        ),
        Mistake(
            "maximum-of-the-first-tokens",
            "m is the largest score of the first tokens that came, and it stays that. "
            "Later scores may be larger.",
            states(m_of=kept_from_the_first, weights=in_float(weights_of)),
            (
                (
                    "  for (float score : scores)",
                    "  if (m == -INFINITY) for (float score : scores)",
                ),
            ),
        ),
        Mistake(
            "first-score-only",
            "The new maximum takes only the first of the scores into account. "
            "Any of them may be the largest.",
            states(m_of=lambda m, scores: torch.maximum(m, scores[:, 0])),
            (
                (
                    "  for (float score : scores) m = fmaxf(m, score);",
                    "  m = fmaxf(m, scores[0]);",
                ),
            ),
        ),
        Mistake(
            "max-starts-at-zero",
            "m never falls below 0, but all scores may be far below. "
            "Then each weight comes out as 0.",
            states(m_of=lambda m, scores: greatest(m, scores).clamp(min=0.0)),
            (("float m = state.m;", "float m = fmaxf(state.m, 0.0f);"),),
            also=(states(m_of=lambda m, scores: scores.amax(-1).clamp(min=0.0)),),
        ),
        Mistake(
            "empty-state-not-infinite",
            "As long as no token has come, m has to stay -INFINITY, "
            "but yours is another number by then. Such a number may be used in the exponent, "
            "but not kept in the state.",
            states(m_of=zero_for_no_token),
            ((GUARD, "  if (m == -INFINITY) m = 0.0f;\n"),),
            also=tuple(
                map(
                    finite_at_first,
                    (-3.4028235e38, -1e38, -1e30, -1e20, -1e10, -1e9, -1e6, -1e5, -1e4),
                )
            ),
        ),
        Mistake(
            "max-not-subtracted",
            "You sum exp(score), but the exercise asks for exp(score - m). "
            "Large scores give inf: exp() of a score above 88 does not fit into a float. "
            "The largest score so far has to be subtracted first.",
            states(weights=in_float(lambda scores, old, m: torch.exp(scores))),
            ((WEIGHT, "float weight = __expf(scores[token]);"),),
            also=(
                states(
                    weights=in_float(lambda scores, old, m: torch.exp(scores)),
                    new_m=lambda m, old: old,
                    rescale=lambda old, m: torch.ones_like(m),
                ),
            ),
        ),
        Mistake(
            "quotient-of-exponentials",
            "You divide one exponential by another. That is right on paper. But in a float, "
            "exp() of a score above 88 is inf, and exp() of a score far below 0 is 0. "
            "Subtract first. How large is the difference at most?",
            states(
                weights=in_float(quotients),
                rescale=in_float(lambda old, m: torch.exp(old) / torch.exp(m)),
            ),
            (
                (RESCALE, "float rescale = __expf(state.m) / __expf(m);"),
                (WEIGHT, "float weight = __expf(scores[token]) / __expf(m);"),
            ),
        ),
        Mistake(
            "powers-of-two",
            "Your weights are powers of 2, but a softmax has powers of e.",
            states(weights=powers_of_two, rescale=lambda old, m: torch.exp2(old - m)),
            (
                (RESCALE, RESCALE.replace("__expf", "exp2f")),
                (WEIGHT, WEIGHT.replace("__expf", "exp2f")),
            ),
        ),
        Mistake(
            "smaller-scores-left-out",
            "A token is taken in only if its score is larger than all before it. "
            "A smaller score does not change the maximum, "
            "but its token has a weight nevertheless.",
            states(weights=records_alone),
            (
                ("  state.m = m;\n", "  float before = state.m;\n  state.m = m;\n"),
                (
                    WEIGHT,
                    (
                        "if (scores[token] <= before) continue;\n"
                        "    before = scores[token];\n"
                        f"    {WEIGHT}"
                    ),
                ),
            ),
        ),
        Mistake(
            "weight-without-exp",
            "The weights are differences of scores. "
            "What makes a positive number of each difference?",
            states(weights=lambda scores, old, m: scores - m[:, None]),
            ((WEIGHT, "float weight = scores[token] - m;"),),
        ),
        Mistake(
            "scores-as-weights",
            "The values are multiplied by their scores. "
            "The weight of a value is the exponential of its score, counted from the maximum.",
            states(shares=lambda weights, scores: scores),
            ((ADD, ADD.replace("weight *", "scores[token] *")),),
            also=(
                states(shares=lambda weights, scores: scores_of_tokens(scores)),
                scores_rescaled_each_time,
            ),
        ),
        Mistake(
            "l-counted-for-each-number",
            "l grows several times for each token: once for each number of its value. "
            "But a token has one weight.",
            l_times(numbers_of_a_lane),
            (
                ("    state.l += weight;\n", ""),
                (ADD, ADD.replace(";", ", state.l += weight;")),
            ),
        ),
        Mistake(
            "l-summed-over-lanes",
            "l is too large by the number of lanes in a group, or by a power of that number. "
            "All lanes of a group have the same scores, "
            "so each of them has the whole l without a shuffle.",
            l_times(group_lanes),
            (
                (
                    "    state.l += weight;\n",
                    (
                        "    float sum = weight;\n"
                        "    for (int distance = group_lanes / 2; distance > 0; "
                        "distance /= 2) {\n"
                        "      sum += __shfl_xor_sync(0xffffffff, sum, distance);\n"
                        "    }\n"
                        "    state.l += sum;\n"
                    ),
                ),
            ),
            also=(
                l_times(group_lanes, everywhere=True),
                lambda rounds: states(
                    l_of=lambda l, factor, weights: (
                        group_lanes(rounds.shape) * (factor * l + weights.sum(-1))
                    )
                )(rounds),
            ),
        ),
        Mistake(
            "acc-summed-over-lanes",
            "What is added to acc is summed over the lanes of a group. "
            "But each lane has other dims of the value, and keeps them apart from the dims "
            "of the others.",
            acc_over_lanes,
            (
                (
                    ADD,
                    (
                        "{\n"
                        "      float sum = weight * number(values[token], i);\n"
                        "      for (int distance = group_lanes / 2; distance > 0; "
                        "distance /= 2) {\n"
                        "        sum += __shfl_xor_sync(0xffffffff, sum, distance);\n"
                        "      }\n"
                        "      state.acc[i] += sum;\n"
                        "    }"
                    ),
                ),
            ),
        ),
        Mistake(
            "l-not-updated",
            "l does not grow with the new tokens. "
            "It is the sum that acc is divided by at the end.",
            states(l_of=lambda l, factor, weights: factor * l),
            (("    state.l += weight;\n", ""),),
        ),
        Mistake(
            "nothing-taken-in",
            "The state is what it was at first, whatever came: m = -inf, l = 0. "
            "Perhaps the function works on a copy of the state. "
            "Or it returns before the first token is taken in. "
            "Which m is -inf at that moment, the old one or the new one?",
            states(comes_in=lambda scores: torch.zeros(len(scores), dtype=torch.bool)),
            (("if (m == -INFINITY)", "if (state.m == -INFINITY)"),),
        ),
        Mistake(
            "stops-at-a-missing-token",
            "If one token does not exist, the others are not taken in either. "
            "Only if none of them exists is there nothing to do.",
            states(comes_in=lambda scores: scores.amin(-1) > NEVER),
            ((GUARD, "  for (float score : scores) if (score == -INFINITY) return;\n"),),
        ),
        Mistake(
            "sums-overwritten",
            "Each token of a round replaces the one before it, in l or in acc, "
            "so only the last one remains. Both are sums over all tokens.",
            states(
                l_of=lambda l, factor, weights: weights[:, -1],
                sums_of=last_sums,
                acc_of=lambda acc, factor, sums: sums,
            ),
            (("state.l += weight", "state.l = weight"), (ADD, ADD.replace("+=", "="))),
            also=(
                states(l_of=lambda l, factor, weights: weights[:, -1]),
                states(sums_of=last_sums, acc_of=lambda acc, factor, sums: sums),
            ),
        ),
        Mistake(
            "divided-too-early",
            "acc is already divided by l. More tokens may come, "
            "and until the last one acc has to be the sum. The kernel divides at its end.",
            states(acc_at_last=lambda l, acc: acc / l),
            (
                (
                    f"{ADD}\n  }}\n",
                    f"{ADD}\n  }}\n  for (float& sum : state.acc) sum /= state.l;\n",
                ),
            ),
            also=(
                acc_divided(),
                acc_divided(acc_of=lambda acc, factor, sums: factor**2 * acc + sums),
            ),
        ),
        Mistake(
            "first-value-for-all",
            "All four weights go to the first value. Each token has its own value.",
            states(sums_of=of_first_value),
            ((ADD, ADD.replace("values[token]", "values[0]")),),
        ),
        Mistake(
            "writes-behind-the-state",
            "Your code writes past the end of acc, or reads past the end of the lane's part "
            "of a value. Both have lane_numbers numbers, and the first is number 0. "
            "What lies after them belongs to something else.",
            one_number_more,
            (("i < lane_numbers;", "i <= lane_numbers;"),),
        ),
        Mistake(
            "numbers-counted-by-hand",
            "It is right where a lane has 8 numbers. For small heads of floats a lane has 4. "
            "lane_numbers says how many.",
            eight_numbers,
            (("i < lane_numbers;", "i < 8;"),),
        ),
        Mistake(
            "first-load-only",
            "It is right where a lane has one load. "
            "For large heads of floats a lane has two. "
            "lane_numbers says how many numbers they hold together.",
            first_load_alone,
            (("i < lane_numbers;", "i < per_load;"),),
        ),
        Mistake(
            "place-in-the-part",
            "place(i) says where in the whole row a number is. "
            "But state.acc and number(values[token], …) count within the lane's part.",
            numbers_by_place,
            ((ADD, ADD.replace("token], i", "token], place(i)")),),
            also=(
                numbers_by_place_of_tokens,
                numbers_by_place_in_each_group,
                numbers_by_place_in_several_groups,
            ),
        ),
        Mistake(
            "tokens-counted",
            "l counts tokens. It should be the sum of their weights.",
            states(l_of=lambda l, factor, weights: factor * l + ROWS),
            (("state.l += weight;", "state.l += 1.0f;"),),
            also=(states(l_of=lambda l, factor, weights: factor * l + (weights > 0).sum(-1)),),
        ),
        Mistake(
            "values-unweighted",
            "The values are added up without their weights.",
            states(sums_of=unweighted),
            ((ADD, "state.acc[i] += number(values[token], i);"),),
        ),
        Mistake(
            "negative-scores-left-out",
            "Tokens with a score below 0 are left out. A score can be any number. "
            "Only -INFINITY says that there is no token.",
            states(weights=negative_without_weight),
            ((WEIGHT, f"if (scores[token] < 0.0f) continue;\n    {WEIGHT}"),),
            also=(negative_left_out,),
        ),
        Mistake(
            "state-thrown-away",
            "In a round without a token the group's state is reset. "
            "What came in the rounds before is lost. Such a round should change nothing.",
            thrown_away,
            (
                (
                    "  float m = state.m;\n",
                    (
                        "  if (scores[0] == -INFINITY) state = no_tokens();\n"
                        "  float m = state.m;\n"
                    ),
                ),
            ),
        ),
        Mistake(
            "nan-before-the-first-token",
            "As long as a group has had no token, its maximum is -inf, "
            "and the new scores may be -inf too. The difference of two such numbers is NaN, "
            "and NaN never goes away again.",
            states(guarded=False),
            ((GUARD, ""),),
        ),
        Mistake(
            "token-and-number-swapped",
            "The two indices have changed places. values[…] takes a token. "
            "The second argument of number() is the place in the lane's part.",
            None,
            ((ADD, ADD.replace("values[token], i", "values[i], token")),),
        ),
        Mistake(
            "weights-in-16-bits",
            "The weights are rounded to 16 bits before they are summed, "
            "and lose about half of their digits. Kernels compute in float, "
            "whatever type is stored.",
            weights_in_16_bits(),
            (
                (
                    WEIGHT,
                    (
                        "float weight = "
                        "to_float(from_float<KvNumber>(__expf(scores[token] - m)));"
                    ),
                ),
            ),
            also=tuple(
                weights_in_16_bits(*how)
                for how in itertools.product(
                    (None, torch.float16, torch.bfloat16), (False, True), (True, False)
                )
            )[1:],
        ),
        Mistake(
            "maximum-of-the-warp",
            "m is the largest score of all groups of the warp. "
            "But each group has its own tokens, and so its own maximum. "
            "All lanes of a group already have the same scores.",
            states(m_of=of_the_warp),
            (
                (
                    GUARD,
                    "  for (int lanes = 16; lanes > 0; lanes /= 2) {\n"
                    "    m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, lanes));\n"
                    "  }\n" + GUARD,
                ),
            ),
        ),
        Mistake(
            "token-left-out",
            "One of the tokens that come together is left out of a loop: "
            "the first or the last one. There are rows_at_once tokens, "
            "and the first is number 0.",
            left_out(-1),
            (("token < rows_at_once", "token < rows_at_once - 1"),),
            also=tuple(
                left_out(token, **where)
                for token in (-1, 0)
                for where in ({}, {"in_maximum": True}, {"in_l": False}, {"in_acc": False})
            )[1:]
            + (maximum_without(-1), maximum_without(0)),
        ),
    ),
    hints=(
        (
            "This is update() of lesson 03's SoftmaxState, for one row and four keys: "
            "the new maximum, a factor for what was summed before, the new weights."
        ),
        (
            "What was summed before counts from the old maximum, "
            "and what is added now counts from the new one. The factor needs both. "
            "Is the old one still there when you compute the factor?"
        ),
        (
            "Which of the steps go wrong when no token has come yet? "
            "What should the state be in that case?"
        ),
    ),
)
