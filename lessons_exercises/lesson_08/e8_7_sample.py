"""Exercise 8.7: from a row of logits to a token.

Which token a seed draws is free: answers differ in the order of the tokens and in how they
draw. So a check looks at many draws: which tokens ever come, how often, and where the
randomness comes from.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch

from lessons_exercises import records
from lessons_exercises.mistakes import Bank
from lessons_exercises.words import paragraphs
from lessons_lib.checks import Exercise, Raised, Text
from paged_attention.engine.request import SamplingParams

NUM_GENERATORS, NUM_DRAWS = 4, 24  # from each
RECORDED_DRAWS = 60  # from each, for what is known of a mistake; only likely tokens come then
# of a token's part of the draws; more than five standard deviations of 96 draws
TOLERANCE = 0.27
UNSEEN = 0.05  # the most for a token that has not come while a mistake was recorded
RECORDED = "recorded"  # marks such a result
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

    about_randomness: what counts is where it comes from, and not which tokens are drawn.
    known: whether only one token may be drawn, and the likeliest, once they are found out.
    """

    logits: tuple[float, ...]
    params: SamplingParams = SamplingParams(temperature=1.0)
    about_randomness: bool = False
    known: tuple[bool, int] | None = None


def params(temperature=1.0, **more):
    return SamplingParams(temperature=temperature, **more)


LIKELY = {97: 1.0, 256: 0.9, 411: 1.2, 512: 0.8}
MANY = tuple(LIKELY.get(token, RARE - token / 1_000) for token in range(600))
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
    Case(MANY, params(2.0, top_k=4, top_p=0.7)),
]


def hidden(seed):
    """The same in another order and all a little higher: differences tell mistakes apart."""
    chance = random.Random(seed)
    for case in CASES:
        shift = chance.choice((-1, 1)) * chance.randint(1, 25) / 100
        logits = chance.sample(case.logits, len(case.logits))
        yield replace(case, logits=tuple(round(logit + shift, 4) for logit in logits))


def exact(case):
    """The reference: what many draws tend to, {token: its part of them}."""
    logits, own = case.logits, case.params
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    if own.temperature == 0:
        return {order[0]: 1.0}
    order = order[: own.top_k]
    most = logits[order[0]]
    weights = [math.exp((logits[token] - most) / own.temperature) for token in order]
    shares, reached = {}, 0.0
    for token, weight in zip(order, weights, strict=True):
        if reached < own.top_p and weight > 1e-9:
            shares[token] = weight / sum(weights)
            reached += shares[token]
    return {token: shares[token] / reached for token in sorted(shares)}


def is_certain(shares):
    return max(shares.values()) > 0.999


def arrange(case):
    """The case, with what `observe` asks our answer."""
    shares = exact(case)
    return replace(case, known=(is_certain(shares), max(shares, key=shares.get)))


@dataclass(frozen=True)
class Draws:
    """What is seen of many draws; by default what a right answer gives.

    shares: the tokens, {token: its part of the draws}.
    always_one: whether each generator gives one token alone.
    other_seed_repeats: whether another seed gives the same tokens.
    """

    shares: dict[int, float]
    always_one: bool
    other_seed_repeats: bool
    repeats: bool = True
    uses_global: bool = False
    kind: str = "int"
    changes_logits: bool = False
    advances: bool = False


def observe(answer, case):
    """What many draws give. The reference needs none."""
    case = case if case.known else arrange(case)
    if answer is exact:
        shares = exact(case)
        return _seen(case, Draws(shares, is_certain(shares), is_certain(shares)))
    for seeding in (torch.manual_seed, random.seed, np.random.seed):
        seeding(1)  # an answer that uses them gives the same result at each check
    before = torch.get_rng_state()
    num_generators = 1 if case.known[0] else NUM_GENERATORS
    runs = [_run(answer, case, 1_000 + number, number) for number in range(num_generators)]
    uses_global = not torch.equal(before, torch.get_rng_state())
    again = other = None
    if case.about_randomness:
        again, other = (_run(answer, case, seed, 0)[0] for seed in (1_000, 2_000))
    tokens, kinds, changes, advances = zip(*runs, strict=True)
    counts = Counter(token for run in tokens for token in run)
    draws = Draws(
        {token: count / counts.total() for token, count in sorted(counts.items())},
        always_one=all(len(set(run)) == 1 for run in tokens),
        other_seed_repeats=other == tokens[0],
        repeats=again == tokens[0],
        uses_global=uses_global,
        kind=" or ".join(sorted(set().union(*kinds))),
        changes_logits=any(changes),
        advances=any(advances),
    )
    return _seen(case, draws)


def _run(answer, case, seed, own_seed):
    """One generator's tokens, their types, and whether logits and generator have changed."""
    logits = torch.tensor(case.logits)
    generator = torch.Generator().manual_seed(seed)
    own, state = replace(case.params, seed=own_seed), generator.get_state()
    tokens, kinds, changed = [], set(), False
    num_draws = RECORDED_DRAWS if records.recording else NUM_DRAWS
    for _ in range(16 if case.known[0] else num_draws):
        token = answer(given := logits.clone(), own, generator)
        kinds.add(type(token).__name__)
        tokens.append(int(token))
        changed = changed or not torch.equal(given, logits)
    return tokens, kinds, changed, not torch.equal(state, generator.get_state())


def _seen(case, draws):
    """A result. Where one token alone is right or was drawn, it leaves out what is chance."""
    is_only, likeliest = case.known
    drawn = draws.shares
    if is_only:
        drawn = drawn if draws.always_one else NOT_ALWAYS_ONE
    elif draws.always_one:
        is_likeliest = case.about_randomness and set(drawn) == {likeliest}
        drawn = ALWAYS_LIKELIEST if is_likeliest else ALWAYS_ONE
    elif case.about_randomness:
        drawn = NOT_ALWAYS_LIKELIEST
    seen = {
        "drawn": drawn,
        "type of a token": Text(draws.kind),
        "logits afterwards": Text("changed" if draws.changes_logits else "as before"),
    }
    if records.recording:
        seen[RECORDED] = True
    if case.params.temperature == 0:
        seen["generator afterwards"] = Text("advanced" if draws.advances else "as before")
    elif not is_only:
        seen["torch's global generator"] = Text("used" if draws.uses_global else "not used")
    if case.about_randomness:
        tokens = {True: Text("the same tokens"), False: Text("other tokens")}
        seen["drawn again with the same seed"] = tokens[draws.repeats]
        seen["drawn with another seed"] = tokens[draws.other_seed_repeats]
    return seen


def same(expected, actual):
    """Whether `actual`, which may have been drawn, agrees with what is expected.

    Of errors the type counts, since the text differs with the way of drawing.
    """
    if isinstance(expected, Raised) and isinstance(actual, Raised):
        return expected.split(":")[0] == actual.split(":")[0]
    if not (isinstance(expected, dict) and isinstance(actual, dict)):
        return False
    unseen = UNSEEN if RECORDED in expected else 0.0
    parts = [part for part in expected if part != RECORDED]
    return all(_agree(expected[part], actual[part], unseen) for part in parts)


def _agree(ours, theirs, unseen=0.0):
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return ours == theirs
    if any(share > unseen for token, share in theirs.items() if token not in ours):
        return False
    return all(
        abs(share - theirs[token]) <= TOLERANCE if token in theirs else share < SEEN
        for token, share in ours.items()
    )


def describe(case):
    own, num_logits = case.params, len(case.logits)
    numbers = ", ".join(f"{logit:g}" for logit in case.logits[: 4 if num_logits > 12 else 12])
    rest = f", …] ({num_logits} of them)" if num_logits > 12 else "]"
    cuts = {name: getattr(own, name) for name in ("top_k", "top_p")}
    more = [f", {name}={cut}" for name, cut in cuts.items() if cut not in (None, 1.0)]
    how_often = "" if is_certain(exact(case)) else f"; {NUM_GENERATORS * NUM_DRAWS} draws"
    return (
        f"logits [{numbers}{rest}, temperature={own.temperature:g}{''.join(more)}{how_often}"
    )


def show(expected, actual):
    if not isinstance(actual, dict):
        return _in_words("drawn", expected["drawn"]), str(actual)
    differing = (part for part in expected if not _agree(expected[part], actual[part]))
    part = next(differing, "drawn")
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
    mistakes=Bank("8.7", "sample", __file__, globals()),
    hints=paragraphs("""
        Begin with temperature 0: one line, and the division below is safe.

        Sort the logits once, the largest first, and keep the order that the sort gives: top_k
        and top_p both cut off the end.

        For top_p, ask of each token: do those before it reach top_p already? Then it is not
        needed. The running sum is `cumsum`.

        `torch.multinomial(p, 1, generator=generator)` draws a position, and p need not add up
        to 1.
    """),
)
