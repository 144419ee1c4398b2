"""Exercise 8.7: draw a token.

Begin with temperature 0: one line, and the division below is safe.

Sort the logits once, the largest first, and keep the order that the sort gives: top_k and
top_p both cut off the end. `stable=True` leaves equal ones as they are.

For top_p, ask of each token: do those before it reach top_p already? Then it is not needed.
The running sum is `cumsum`.

Imagine the probabilities that are left as pieces of a line, side by side. The random number,
times the length of the line, is a point on it. In which piece does it lie? How many running
sums are below it?
"""

import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from lessons_content.exercises.kit import Raised, Text, differences, exercise
from lessons_content.lesson_08 import draws
from lessons_content.lesson_08.draws import MANY, RARE
from paged_attention.engine.draws import draw_number
from paged_attention.engine.request import SamplingParams

SEEDS = (0, 1, 7, 2**40 + 3, 2**63 + 5, -2)
POSITIONS = range(1, 9)
# What an error is about, whatever words an answer's own way gives it. A generator is what the
# third argument of `sample` once was.
ABOUT = ("generator", "NoneType")


@dataclass(frozen=True)
class Case:
    """A row of logits, how to choose, and at which seeds and positions."""

    logits: tuple[float, ...]
    params: SamplingParams
    draws: tuple[tuple[int, int], ...]


def case_of(*logits, seeds=SEEDS, **params) -> Case:
    """A case at temperature 1 with all seeds, at those positions where no answer is unsure."""
    own = SamplingParams(**{"temperature": 1.0} | params)
    _, sums = draws.running_sums(logits, own)

    def is_safe(number: float) -> bool:
        return all(abs(number - limit / sums[-1]) > draws.MARGIN for limit in sums)

    pairs = itertools.product(seeds, POSITIONS)
    return Case(logits, own, tuple(pair for pair in pairs if is_safe(draw_number(*pair))))


def reference(logits, params, position):
    """The right token, by another way than our answer."""
    return draws.token_at(draw_number(params.seed, position), logits.tolist(), params)


RARE_TOKENS = tuple((token - 20) / 100 for token in range(40))
# Each case has many seeds and positions, so that each part of the probabilities decides some
# of its tokens. No random number is close to a limit between two tokens, and top_p is close to
# no sum (see draws.py).
#
# Each token that may be drawn has a probability of 0.17 or more, and comes up. Those that may
# not would come up as well. In one case, 40 tokens are rare and together would not be, if the
# draws were more even. Of many equal logits, PyTorch's plain sort keeps the order on some
# processors and not on others. So no case has more than three.
CASES = [
    case_of(0.5, 1.0, 0.0, temperature=0.0),
    case_of(-1.2, -1.0, -1.5, temperature=0.0),
    case_of(0.5, 0.50001, 0.5, temperature=0.0),
    case_of(1.0, 3.0, 2.5, 0.0, temperature=0.0, top_k=2, top_p=0.5),
    case_of(0.0, 0.0, top_p=0.5),
    case_of(0.3, 0.8, 0.8),
    case_of(0.1, 0.3, 0.0, 0.2, -0.1),
    case_of(RARE, 1.2, RARE, 0.7, 0.3, RARE),
    case_of(4.0, 0.0, 4 * RARE, 1.0, temperature=4.0),
    case_of(-3.0, -1.8, -2.5, -1.6, -1.9, -2.3, -3.5, -2.7, -2.2, -3.2, top_p=0.3),
    case_of(-1.6, -2.3, -0.9, -1.2, top_p=0.01),
    case_of(1.5, 2.0, 1.1, 1.7, 1.4, 1.9, 1.3, 1.2, top_k=2, top_p=0.99),
    case_of(0.4, 0.2, 0.6, top_k=1),
    case_of(0.4, 1.0, 0.3, RARE, top_k=9),
    case_of(-2.3, -1.4, -2.7, -1.8, -1.6, -2.2, -2.5, -3.2, top_k=3, top_p=0.7),
    case_of(-1.97, -3.1, -1.08, -3.0, -2.3, -1.2, -3.2, -2.12, top_k=5, top_p=0.5),
    case_of(4.5, 6.0, 3.0, 4.8, temperature=3.0, top_p=0.8),
    case_of(-math.inf, 0.3, 0.0, -math.inf, RARE / 2, temperature=0.5),
    case_of(30.0, 60.0, 59.6, 0.0, temperature=0.01),
    case_of(-900.5, -900.0, -900.4, temperature=0.01),
    case_of(900.0, 900.5, 900.25, 899.0, temperature=0.9),
    case_of(*RARE_TOKENS[:25], 6.0, *RARE_TOKENS[25:]),
    case_of(*MANY, temperature=2.0, top_k=4, top_p=0.7),
]


def hidden(chance):
    """The same in another order, with other seeds, and all a little higher or lower."""
    for known in CASES:
        shift = chance.choice((-1, 1)) * chance.randint(1, 25) / 100
        logits = chance.sample(known.logits, len(known.logits))
        seeds = tuple(chance.randrange(2**64) for _ in SEEDS)
        own = {name: getattr(known.params, name) for name in ("temperature", "top_k", "top_p")}
        yield case_of(*(round(logit + shift, 5) for logit in logits), seeds=seeds, **own)


def observe(answer, case):
    for seeding in (torch.manual_seed, random.seed, np.random.seed):
        seeding(1)  # an answer that uses them gives the same result at each check
    logits = torch.tensor(case.logits)
    kinds, changed = set(), False

    def choose(seed, position):
        nonlocal changed
        given = logits.clone()
        token = answer(given, replace(case.params, seed=seed), position)
        kinds.add(type(token).__name__)
        changed = changed or not torch.equal(given, logits)
        return int(token)

    tokens, again = ({pair: choose(*pair) for pair in case.draws} for _ in range(2))
    return {
        "tokens": _pattern(tokens) if tokens == again else Text("other ones each time"),
        "type of a token": Text(" or ".join(sorted(kinds))),
        "logits afterwards": Text("changed" if changed else "as before"),
    }


def _pattern(tokens):
    """The tokens, or what does not play a part in them, whichever tokens they are."""
    if len(set(tokens.values())) > 1:
        if _depends_on_one(tokens, 0):
            return Text("for each seed, the same one at all positions")
        if _depends_on_one(tokens, 1):
            return Text("for each position, the same one with all seeds")
    return tokens


def _depends_on_one(tokens, which) -> bool:
    groups: dict[int, set[int]] = {}
    for pair, token in tokens.items():
        groups.setdefault(pair[which], set()).add(token)
    return all(len(group) == 1 for group in groups.values())


def same(expected, actual):
    if isinstance(expected, Raised) and isinstance(actual, Raised):
        return draws.about(expected, *ABOUT) == draws.about(actual, *ABOUT)
    return expected == actual


def describe(case):
    own = case.params
    top_k = "" if own.top_k is None else f", top_k={own.top_k}"
    top_p = "" if own.top_p == 1 else f", top_p={own.top_p}"
    words = f"logits {draws.in_words(case.logits)}, temperature={own.temperature:g}"
    return f"{words}{top_k}{top_p}"


def show(expected, actual):
    if not isinstance(actual, dict):
        return _in_words("tokens", expected["tokens"]), str(actual)
    part = differences.first_part(expected, actual) or "tokens"
    ours, theirs = expected[part], actual[part]
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return _in_words(part, ours), _in_words(part, theirs)
    pair = differences.first_part(ours, theirs)
    where = "with seed {} at position {}".format(*pair)
    if len(set(ours.values())) > 1:
        where += f", where draw_number gives {draw_number(*pair):.3f}"
    return f"token {ours[pair]} {where}", f"token {theirs[pair]} {where}"


def _in_words(part, value):
    if not isinstance(value, dict):
        return f"{part}: {value}"
    first = [f"{token} at position {place}" for (_, place), token in value.items()][:3]
    (seed, _), *_ = value
    return f"tokens with seed {seed}: {', '.join(first)}, …"


EXERCISE = exercise(
    globals(),
    answer_name="sample",
    size=lambda case: len(case.logits),
)
