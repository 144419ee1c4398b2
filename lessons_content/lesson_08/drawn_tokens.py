"""Tokens that are drawn with many seeds and at many positions, for 8.7."""

import itertools
import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from lessons_content.exercises.kit import Raised, Text, differences
from lessons_content.lesson_08 import draws
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
