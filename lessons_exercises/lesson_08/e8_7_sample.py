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


def is_certain(shares):
    return max(shares.values()) > 0.999


def arrange(case):
    """The case, with what `observe` asks our answer."""
    shares = exact(case)
    return replace(case, known=(is_certain(shares), max(shares, key=shares.get)))


def observe(answer, case):
    """What many draws give. The reference needs none."""
    case = case if case.known else arrange(case)
    if answer is exact:
        return _exactly(exact(case), case)
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


def _exactly(shares, case):
    return _seen(
        case,
        shares,
        always_one=is_certain(shares),
        repeats=True,
        same_with_other_seed=is_certain(shares),
        uses_global=False,
        kind="int",
        changed=False,
        advanced=False,
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
    num_draws = RECORDED_DRAWS if records.recording else NUM_DRAWS
    for _ in range(16 if case.known[0] else num_draws):
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
    if records.recording:
        seen[RECORDED] = True
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
    unseen = UNSEEN if RECORDED in expected else 0.0
    return all(
        _agree(ours, actual[part], unseen)
        for part, ours in expected.items()
        if part != RECORDED
    )


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
    mistakes=Bank("8.7", "sample", __file__, globals()),
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
