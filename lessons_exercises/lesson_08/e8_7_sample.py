"""Exercise 8.7: from a row of logits to a token.

Which token a seed draws is free: answers differ in the order of the tokens and in how they
    draw. So a check looks at many
draws: which tokens ever come, how often, and where the randomness comes from.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch

from lessons_exercises.lesson_08 import samplers
from lessons_exercises.lesson_08.samplers import (
    weights_with,
    with_draw,
    with_weights,
    wrong_sampler,
)
from lessons_lib.checks import Exercise, Mistake, Raised, Text
from paged_attention.engine.request import SamplingParams

NUM_GENERATORS, NUM_DRAWS = 4, 24  # from each
# of a token's part of the draws; more than five standard deviations of 96 draws
TOLERANCE = 0.27
SEEN = 0.15  # a token with this probability comes up in 96 draws
# the logit of a token that hardly ever does; for its sake the others' sum is below 1 in
# float32 as well
RARE = -12.0
ALWAYS_ONE = Text("the same token at each draw from a generator")
ALWAYS_LIKELIEST = Text("always the likeliest token")
NOT_ALWAYS_LIKELIEST = Text("not always the likeliest token")
NOT_ALWAYS_ONE = Text("not always the same token")


@dataclass(frozen=True)
class Case:
    """The draws of a case, and what is seen of them.

    about_randomness: the result does not name the tokens that were drawn, and says where the
        randomness comes from.
    known: whether one token alone may be drawn, and the likeliest, as far as it has been found
        out.
    """

    logits: tuple[float, ...]
    params: SamplingParams = SamplingParams(temperature=1.0)
    about_randomness: bool = False
    known: tuple[bool, int] | None = None


def params(temperature=1.0, **more):
    return SamplingParams(temperature=temperature, **more)


# Each token that may be drawn has a probability of 0.17 or more. Those that may not would be
# seen as well. In one case, 40 tokens are rare and together would not be, if the draws were
# more even.
CASES = [
    Case((0.5, 1.0, 0.0), params(0.0)),
    Case((-1.5, -1.0, -1.2), params(0.0)),
    Case((1.0, 3.0, 2.5, 0.0), params(0.0, top_k=2, top_p=0.5)),
    Case((0.1, 0.3, 0.0, 0.2, -0.1), about_randomness=True),
    Case((RARE, 1.2, RARE, 0.7, 0.3, RARE)),
    Case((4.0, 0.0, 4 * RARE, 1.0), params(4.0)),
    Case((-3.0, -1.8, -2.5, -1.6, -1.9, -2.3, -3.5, -2.7, -2.2, -3.2), params(top_p=0.3)),
    Case((-1.6, -2.3, -0.9, -1.2), params(top_p=0.01)),
    Case((1.5, 2.0, 1.1, 1.7, 1.4, 1.9, 1.3, 1.2), params(top_k=2, top_p=0.99)),
    Case((0.4, 0.2, 0.6), params(top_k=1)),
    Case((0.4, 1.0, 0.3, RARE), params(top_k=9)),
    Case((-2.3, -1.4, -2.7, -1.8, -1.6, -2.2, -2.5, -3.2), params(top_k=3, top_p=0.7)),
    Case((-1.97, -3.1, -1.08, -3.0, -2.3, -1.2, -3.2, -2.12), params(top_k=5, top_p=0.5)),
    Case((4.5, 6.0, 3.0, 4.8), params(3.0, top_p=0.8)),
    Case((-math.inf, 0.3, 0.0, -math.inf, RARE / 2), params(0.5)),
    Case((30.0, 60.0, 59.6, 0.0), params(0.01)),
    Case((-900.0, -900.5, -900.4), params(0.01)),
    Case((0.0,) * 25 + (6.0,) + (0.0,) * 15),
    Case(
        tuple(
            {97: 1.0, 256: 0.9, 411: 1.2, 512: 0.8}.get(token, RARE - token / 1_000)
            for token in range(600)
        ),
        params(2.0, top_k=4, top_p=0.7),
    ),
]


def hidden(seed):
    """The same with the tokens in another order and other logits.

    Their differences are those that tell mistakes apart.
    """
    chance = random.Random(seed)
    for case in CASES:
        shift = chance.choice((-1, 1)) * chance.randint(1, 25) / 100
        yield replace(
            case,
            logits=tuple(
                round(logit + shift, 4)
                for logit in chance.sample(case.logits, len(case.logits))
            ),
        )


def exact(case):
    """The reference: what many draws tend to, {token: its part of them}."""
    logits, own = case.logits, case.params
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    if own.temperature == 0:
        return {order[0]: 1.0}
    order = order[: own.top_k]
    weights = [
        math.exp((logits[token] - logits[order[0]]) / own.temperature) for token in order
    ]
    shares, reached = {}, 0.0
    for token, weight in zip(order, weights, strict=True):
        if reached < own.top_p and weight > 1e-9:
            shares[token] = weight / sum(weights)
            reached += shares[token]
    return {token: shares[token] / reached for token in sorted(shares)}


samplers.MODELS[exact] = samplers.Model(
    lambda logits, params: exact(Case(tuple(logits.tolist()), params))
)


def is_certain(shares):
    return max(shares.values()) > 0.999


def arrange(case):
    """The case, with what `observe` asks our answer."""
    shares = exact(case)
    return replace(case, known=(is_certain(shares), max(shares, key=shares.get)))


def observe(answer, case):
    """What many draws give. The reference and the bank's mistakes need none."""
    case = case if case.known else arrange(case)
    if model := _model(answer):
        return _from_model(model, case)
    for seeding in (torch.manual_seed, random.seed, np.random.seed):
        seeding(1)  # an answer that uses them gives the same result at each check
    before = torch.get_rng_state()
    runs = [
        _run(answer, case, 1_000 + number, number)
        for number in range(1 if case.known[0] else NUM_GENERATORS)
    ]
    uses_global = not torch.equal(before, torch.get_rng_state())
    again, other = (
        _run(answer, case, seed, 0)[0] if case.about_randomness else None
        for seed in (1_000, 2_000)
    )
    tokens, kinds, changed, advanced = zip(*runs, strict=True)
    counts = Counter(token for run in tokens for token in run)
    drawn = {token: count / counts.total() for token, count in sorted(counts.items())}
    return _seen(
        case,
        drawn,
        all(len(set(run)) == 1 for run in tokens),
        again == tokens[0],
        other == tokens[0],
        uses_global,
        " or ".join(sorted(set().union(*kinds))),
        any(changed),
        any(advanced),
    )


def _model(answer):
    """What is known of a function of ours without a draw.

    Where only answers of others are tried, none of ours is there.
    """
    try:
        from lessons_exercises.lesson_08.samplers import MODELS
    except ImportError:
        return None
    return MODELS.get(answer)


def _from_model(model, case):
    logits = torch.tensor(case.logits)
    shares = model.tokens(given := logits.clone(), case.params)
    always_one = model.always_one or is_certain(shares)
    return _seen(
        case,
        shares,
        always_one,
        model.repeats or always_one,
        always_one and not model.follows_the_generator,
        model.uses_global,
        model.kind if case.params.temperature else model.kind_at_zero,
        not torch.equal(given, logits),
        model.uses_generator_at_zero,
    )


def _run(answer, case, seed, own_seed):
    """The tokens of one generator's draws, and their types.

    Also whether the logits and the generator have changed.
    """
    logits = torch.tensor(case.logits)
    generator = torch.Generator().manual_seed(seed)
    own, state = replace(case.params, seed=own_seed), generator.get_state()
    tokens = []
    kinds = set()
    changed = False
    for _ in range(16 if case.known[0] else NUM_DRAWS):
        token = answer(given := logits.clone(), own, generator)
        kinds.add(type(token).__name__)
        tokens.append(int(token))
        changed = changed or not torch.equal(given, logits)
    return tokens, kinds, changed, not torch.equal(state, generator.get_state())


def _seen(
    case,
    shares,
    always_one,
    repeats,
    same_with_other_seed,
    uses_global,
    kind,
    changed,
    advanced,
):
    """A result.

    Where one token alone is right, and where one alone was drawn, it says less: the rest is
    chance.
    """
    is_only, likeliest = case.known
    if is_only:
        drawn = shares if always_one else NOT_ALWAYS_ONE
    elif always_one:
        drawn = (
            ALWAYS_LIKELIEST
            if case.about_randomness and set(shares) == {likeliest}
            else ALWAYS_ONE
        )
    else:
        drawn = NOT_ALWAYS_LIKELIEST if case.about_randomness else shares
    seen = {
        "drawn": drawn,
        "type of a token": Text(kind),
        "logits afterwards": Text("changed" if changed else "as before"),
    }
    if case.params.temperature == 0:
        seen["generator afterwards"] = Text("advanced" if advanced else "as before")
    elif not is_only:
        seen["torch's global generator"] = Text("used" if uses_global else "not used")
    if case.about_randomness:
        seen["drawn again with the same seed"] = Text(
            "the same tokens" if repeats else "other tokens"
        )
        seen["drawn with another seed"] = Text(
            "the same tokens" if same_with_other_seed else "other tokens"
        )
    return seen


def same(expected, actual):
    """Whether `actual`, which may have been drawn, agrees with what is expected.

    Of errors the type counts, since the text differs with the way of drawing.
    """
    if isinstance(expected, Raised) and isinstance(actual, Raised):
        return expected.split(":")[0] == actual.split(":")[0]
    if not (isinstance(expected, dict) and isinstance(actual, dict)):
        return False
    return all(_agree(ours, actual[part]) for part, ours in expected.items())


def _agree(ours, theirs):
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return ours == theirs
    return theirs.keys() <= ours.keys() and all(
        abs(share - theirs[token]) <= TOLERANCE if token in theirs else share < SEEN
        for token, share in ours.items()
    )


def describe(case):
    logits = case.logits if len(case.logits) <= 12 else case.logits[:4]
    rest = f", …] ({len(case.logits)} of them)" if len(case.logits) > 12 else "]"
    own = case.params
    more = [
        f"{name}={getattr(own, name)}"
        for name in ("top_k", "top_p")
        if getattr(own, name) not in (None, 1.0)
    ]
    how_often = "" if is_certain(exact(case)) else f"; {NUM_GENERATORS * NUM_DRAWS} draws"
    sampling = ", ".join([f"temperature={own.temperature:g}", *more])
    return (
        f"logits [{', '.join(f'{logit:g}' for logit in logits)}{rest}, {sampling}{how_often}"
    )


def show(expected, actual):
    if not isinstance(actual, dict):
        return _in_words("drawn", expected["drawn"]), str(actual)
    part = next(
        (part for part in expected if not _agree(expected[part], actual[part])), "drawn"
    )
    return _in_words(part, expected[part]), _in_words(part, actual[part])


def _in_words(part, value):
    if not isinstance(value, dict):
        return f"{part}: {value}"
    likely = {token: share for token, share in value.items() if share > 0.001}
    return f"{part}: {', '.join(f'token {t} ({share:.0%})' for t, share in likely.items())}"


EXERCISE = Exercise(
    id="8.7",
    title="draw a token",
    answer_name="sample",
    reference=exact,
    cases=lambda: CASES,
    size=lambda case: len(case.logits),
    hidden=hidden,
    arrange=arrange,
    observe=observe,
    describe=describe,
    same=same,
    show=show,
    mistakes=(
        Mistake(
            "division-by-zero",
            "Temperature 0 went into a division. "
            "It stands for something simpler: the likeliest token.",
            wrong_sampler(weights_with(), greedy=False),
            also=(
                wrong_sampler(
                    weights_with(),
                    samplers.of_a_running_sum,
                    samplers.shares_of_a_running_sum,
                    greedy=False,
                ),
                wrong_sampler(weights_with(scale=samplers.divided_by_python), greedy=False),
                wrong_sampler(
                    weights_with(kept=samplers.all_of_them, num_kept=lambda k: None),
                    greedy=False,
                ),
                wrong_sampler(weights_with(kept=samplers.all_of_them), greedy=False),
                wrong_sampler(weights_with(num_kept=lambda k: None), greedy=False),
            ),
        ),
        Mistake(
            "draws-at-temperature-zero",
            "At temperature 0 there is nothing to draw: the token is the likeliest one, "
            "and the generator stays as it is.",
            wrong_sampler(samplers.drawn_at_zero(1.0), greedy=False),
            also=(
                wrong_sampler(samplers.drawn_at_zero(1e-5), greedy=False),
                wrong_sampler(samplers.drawn_from_all_at_zero, greedy=False),
            ),
        ),
        Mistake(
            "least-likely-at-zero",
            "At temperature 0 you take the least likely token.",
            wrong_sampler(weights_with(), at_zero=torch.argmin),
        ),
        Mistake(
            "logit-for-token",
            "At temperature 0 you return the largest logit. Which token has it?",
            wrong_sampler(weights_with(), at_zero=torch.max),
        ),
        Mistake(
            "always-the-likeliest",
            "The token is always the likeliest one. Above temperature 0 it is drawn.",
            wrong_sampler(samplers.only_the_likeliest),
        ),
        Mistake(
            "temperature-multiplied",
            "A high temperature should make the choice more even, and a low one less. "
            "Yours does the opposite.",
            with_weights(scale=lambda logits, t: logits * t),
        ),
        Mistake(
            "temperature-ignored",
            "The temperature has no effect above 0.",
            with_weights(scale=lambda logits, t: logits),
            also=(
                with_weights(
                    scale=lambda logits, t: logits,
                    kept=samplers.all_of_them,
                    num_kept=lambda k: None,
                ),
            ),
        ),
        Mistake(
            "probabilities-divided",
            "The temperature divides the probabilities, and a token that is twice as likely "
            "as another stays so. It has to come before the softmax.",
            wrong_sampler(samplers.probabilities_divided(False)),
            also=(wrong_sampler(samplers.probabilities_divided(True)),),
        ),
        Mistake(
            "position-for-token",
            "You return where the token stands among the sorted ones. "
            "Which token stands there, the sort tells as well.",
            with_draw(token=lambda tokens, position: position),
            also=(with_draw(token=lambda tokens, position: tokens.argsort()[position]),),
        ),
        Mistake(
            "no-softmax",
            "The logits were taken for probabilities. "
            "They may be negative, and the softmax makes probabilities of them.",
            with_weights(soft=lambda logits: logits),
            also=(
                wrong_sampler(
                    samplers.then(
                        weights_with(soft=lambda logits: logits), samplers.normalised
                    )
                ),
                with_weights(soft=lambda logits: samplers.normalised(logits.clamp(min=0))),
                with_weights(soft=lambda logits: torch.log_softmax(logits, -1)),
                wrong_sampler(
                    samplers.then(
                        weights_with(soft=lambda logits: torch.log_softmax(logits, -1)),
                        samplers.normalised,
                    )
                ),
            ),
        ),
        Mistake(
            "sum-is-not-1",
            "What you add up for top_p does not add up to 1: "
            "e to the power of each logit is not a probability yet.",
            with_weights(soft=lambda logits: (logits - logits.max()).exp()),
            also=(with_weights(soft=torch.exp),),
        ),
        Mistake(
            "softmax-twice",
            "The draws are far too even. Did probabilities go through a softmax "
            "as if they were logits, or is each token that stays as likely as any other?",
            with_weights(soft=lambda logits: torch.softmax(samplers.softmax(logits), dim=-1)),
            also=(
                with_weights(scale=lambda logits, t: samplers.softmax(logits) / t),
                wrong_sampler(samplers.then(weights_with(), samplers.softmax)),
                wrong_sampler(samplers.then(weights_with(), samplers.softmax_of_those_kept)),
                wrong_sampler(samplers.then(weights_with(), samplers.even)),
            ),
        ),
        Mistake(
            "crossing-token-left-out",
            "The token with which the sum reaches top_p is missing. "
            "Without it, the others do not reach top_p.",
            with_weights(kept=samplers.up_to),
            also=(
                with_weights(kept=samplers.below),
                with_weights(kept=samplers.with_the_first(samplers.up_to)),
                with_weights(kept=samplers.with_the_first(samplers.below)),
            ),
        ),
        Mistake(
            "one-token-too-many",
            "One token more than top_p asks for may be drawn: "
            "the others reach it without that one.",
            with_weights(kept=samplers.one_more),
        ),
        Mistake(
            "least-likely-first",
            "You cut off from the wrong end: the sum for top_p begins "
            "with the likeliest token, and top_k keeps the likeliest.",
            with_weights(kept=samplers.likeliest_last),
            also=(wrong_sampler(samplers.ascending),),
        ),
        Mistake(
            "the-rest-kept",
            "The tokens that should go have stayed, and those that should stay have gone.",
            with_weights(kept=lambda p, top_p: ~samplers.enough(p, top_p)),
            also=(with_weights(kept=lambda p, top_p: ~samplers.below(p, top_p)),),
        ),
        Mistake(
            "top-p-as-a-threshold",
            "The probability of each token alone was compared. "
            "top_p is about a sum: that of a token and of all the likelier ones.",
            with_weights(kept=lambda p, top_p: p >= top_p),
            also=(
                with_weights(kept=lambda p, top_p: p >= 1 - top_p),
                with_weights(kept=lambda p, top_p: p >= top_p * p.max()),
                with_weights(kept=lambda p, top_p: p > 1 - top_p),
            ),
        ),
        Mistake(
            "top-p-of-their-number",
            "top_p was taken for a part of the number of tokens. "
            "It is a part of the probability.",
            with_weights(kept=samplers.number_of_tokens),
        ),
        Mistake(
            "sum-never-reached",
            "Your loop looks for top_p behind the last token: "
            "rounded, all probabilities together may stay a little below 1.",
            wrong_sampler(samplers.summed_until_reached),
        ),
        Mistake(
            "top-p-ignored",
            "top_p has no effect.",
            with_weights(kept=samplers.all_of_them),
            also=(with_weights(kept=samplers.all_of_them, num_kept=lambda k: None),),
        ),
        Mistake(
            "top-p-of-all-tokens",
            "Your sum for top_p uses the probabilities from before top_k. "
            "What top_k leaves is a distribution of its own, whose probabilities add up to 1.",
            wrong_sampler(samplers.top_p_of_all_tokens),
        ),
        Mistake(
            "top-p-before-temperature",
            "The temperature changes how many tokens it takes to reach top_p, "
            "so it comes first.",
            wrong_sampler(samplers.top_p_before_temperature),
        ),
        Mistake(
            "top-k-off-by-one",
            "top_k is the number of tokens that stay. Yours keeps one more or one less.",
            with_weights(num_kept=lambda k: k + 1),
            also=(with_weights(num_kept=lambda k: k - 1),),
        ),
        Mistake(
            "top-k-ignored", "top_k has no effect.", with_weights(num_kept=lambda k: None)
        ),
        Mistake(
            "top-k-or-top-p",
            "A request may ask for both top_k and top_p, and only one of them has an effect. "
            "First top_k, then top_p of what is left.",
            wrong_sampler(samplers.one_of_the_two(True)),
            also=(wrong_sampler(samplers.one_of_the_two(False)),),
        ),
        Mistake(
            "top-k-none",
            "Without a top_k, it is None, and all tokens stay.",
            wrong_sampler(samplers.top_k_is_a_number(weights_with())),
            also=(wrong_sampler(samplers.top_k_is_a_number(samplers.through_topk)),),
        ),
        Mistake(
            "masked-with-zero",
            "A logit of 0 was to take a token away, and e to the power of 0 is 1. "
            "Which logit gives the probability 0?",
            wrong_sampler(samplers.masked_with_zero),
            also=(wrong_sampler(samplers.masked_with_zero_before_the_sort),),
        ),
        Mistake(
            "top-k-beyond-the-vocabulary",
            "top_k may be larger than the vocabulary. Then every token stays.",
            wrong_sampler(samplers.through_topk),
        ),
        Mistake(
            "not-renormalised",
            "The probabilities of the tokens that stay add up to less than 1, "
            "and you draw as if it were 1: the rest goes to one token, or nowhere.",
            with_draw(samplers.rest_to_the_last, samplers.shares_with_the_rest_at_the_last),
            also=(
                with_draw(samplers.below_a_running_sum, samplers.shares_below_a_running_sum),
                with_draw(
                    samplers.rest_to_the_very_last,
                    samplers.shares_with_the_rest_at_the_very_last,
                ),
                wrong_sampler(
                    samplers.top_p_of_all_tokens,
                    samplers.rest_to_the_last,
                    samplers.shares_with_the_rest_at_the_last,
                ),
            ),
        ),
        Mistake(
            "generator-ignored",
            "The randomness does not come from `generator`. "
            "The request's tokens would depend on whatever else is drawn in this process.",
            with_draw(samplers.by_torch, repeats=False, uses_global=True),
            also=(
                with_draw(samplers.by_numpy, repeats=False),
                with_draw(samplers.by_random, repeats=False),
                *(
                    wrong_sampler(
                        weights_with(**parts),
                        samplers.by_torch,
                        repeats=False,
                        uses_global=True,
                    )
                    for parts in (
                        {"kept": samplers.all_of_them},
                        {"kept": samplers.all_of_them, "num_kept": lambda k: None},
                        {"scale": lambda logits, t: logits},
                    )
                ),
            ),
        ),
        Mistake(
            "seeded-at-each-draw",
            "Every draw begins at the seed again, so that the same number comes each time. "
            "The generator was seeded when the request came; it remembers where it is.",
            with_draw(samplers.seeded_each_time, always_one=True),
            also=(
                with_draw(samplers.new_generator_each_time, always_one=True),
                samplers.seeded_first,
                with_draw(
                    samplers.generator_begun_again, always_one=True, follows_the_generator=True
                ),
                with_draw(samplers.all_seeded_each_time, always_one=True, uses_global=True),
            ),
        ),
        Mistake(
            "overflow",
            "At a low temperature the logits become large, and e to the power "
            "of them infinite, or 0 for all of them. The softmax subtracts the largest first.",
            with_weights(soft=samplers.largest_not_subtracted),
            also=(
                with_weights(soft=samplers.softmax_by_python),
                wrong_sampler(
                    weights_with(soft=samplers.largest_not_subtracted),
                    samplers.of_a_running_sum,
                    samplers.shares_of_a_running_sum,
                ),
            ),
        ),
        Mistake(
            "half-precision",
            "With 16 bits, a logit divided by a low temperature can be too large "
            "to be represented: it becomes infinite. Keep to 32 bits.",
            with_weights(dtype=torch.float16),
        ),
        Mistake(
            "logits-changed",
            "The logits are not the same after the call. They belong to the caller.",
            wrong_sampler(samplers.divided_in_place),
            also=(wrong_sampler(samplers.masked_in_place),),
        ),
        Mistake(
            "tensor-returned",
            "The token is a tensor, or another number than an int. "
            "It should be one, as the tokens of the prompt are.",
            with_draw(kind=lambda token: token),
            also=(
                wrong_sampler(weights_with(), kind_at_zero=lambda token: token),
                with_draw(kind=lambda token: token, kind_at_zero=int),
                with_draw(kind=float, kind_at_zero=int),
                with_draw(kind=float),
                with_draw(kind=lambda token: np.int64(int(token)), kind_at_zero=int),
                with_draw(kind=lambda token: np.int64(int(token))),
            ),
        ),
    ),
    hints=(
        "Begin with temperature 0: one line, and the division below is safe.",
        (
            "Sort the logits once, the largest first, "
            "and keep the order that the sort gives: top_k and top_p both cut off the end."
        ),
        (
            "For top_p, ask of each token: do those before it reach top_p already? "
            "Then it is not needed. The running sum is `cumsum`."
        ),
        (
            "`torch.multinomial(p, 1, generator=generator)` draws a position, "
            "and p need not add up to 1."
        ),
    ),
)
