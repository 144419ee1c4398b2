"""Rows of logits with their parameters, and the token that each must get, for 10.5.

Answers round in their own ways. So a row's number is close to no limit between two tokens, and
its top_p is close to no sum. It may be where the number was chosen. The logits there are two
or four equal ones, with which every answer computes exactly.
"""

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from lessons_content.exercises.kit import (
    Raised,
    Text,
    changed,
    counted,
    differences,
    listed,
)
from lessons_content.exercises.second_device import SECOND, tensors_in
from lessons_content.exercises.tensors import name_of
from lessons_content.lesson_08 import draws
from lessons_content.lesson_08.draws import MARGIN, running_sums, token_at, weights_of
from lessons_content.lesson_10.watch import Elsewhere, HostRead, Watch

ALL = 0.999  # a top_p that keeps all tokens as 1 does, and is not what they round to


@dataclass(frozen=True)
class Row:
    """exact: whether the number was chosen, and may be at a limit."""

    logits: tuple[float, ...]
    temperature: float
    top_k: int
    top_p: float
    number: float
    exact: bool = True

    @property
    def is_good(self) -> bool:
        return math.isfinite(max(self.logits)) and not any(map(math.isnan, self.logits))


@dataclass(frozen=True)
class Case:
    """elsewhere: whether the tensors are on another device than the CPU."""

    rows: tuple[Row, ...]
    dtype: torch.dtype
    elsewhere: bool = False

    def arguments(self) -> dict[str, torch.Tensor]:
        """Those of draw_tokens(), by name."""
        return {
            name: torch.tensor([getattr(each, part) for each in self.rows], dtype=dtype)
            for name, part, dtype in (
                ("logits", "logits", self.dtype),
                ("temperature", "temperature", torch.float64),
                ("top_k", "top_k", torch.int64),
                ("top_p", "top_p", torch.float64),
                ("numbers", "number", torch.float64),
            )
        }


def row(*logits, temperature=1.0, top_k=None, top_p=1.0, number=None) -> Row:
    exact, number = number is not None, number or 0.0
    return Row(logits, temperature, top_k or len(logits), top_p, number, exact)


def batch(*rows, times=1, dtype=torch.float32, seed=0, elsewhere=False) -> Case:
    """Each row `times` times, with its own number each time."""
    chance = random.Random(f"{rows} {seed}")
    rounded = [
        replace(each, logits=tuple(torch.tensor(each.logits, dtype=dtype).tolist()))
        for _ in range(times)
        for each in rows
    ]
    safe = tuple(each if each.exact else _safe(each, chance) for each in rounded)
    return Case(safe, dtype, elsewhere)


def _safe(own: Row, chance: random.Random) -> Row:
    """The row with a number, and a top_p, that no rounding brings across a limit."""
    if not own.is_good:
        return replace(own, number=chance.random())
    _, weights = weights_of(own.logits, own)
    total, before = math.fsum(weights), 0.0
    if own.top_p == 1 and weights[-1] > 2 * (1 - ALL) * total:
        own = replace(own, top_p=ALL)
    for weight in weights:
        if before > 0 and own.top_p < 1 and abs(before - own.top_p * total) < MARGIN * total:
            return _safe(replace(own, top_p=round(own.top_p - 2 * MARGIN, 6)), chance)
        before += weight
    _, sums = running_sums(own.logits, own)
    while True:
        number = round(chance.random(), 3)
        if all(abs(number - limit / sums[-1]) > MARGIN for limit in (0.0, *sums)):
            return replace(own, number=number)


def token_of(own: Row) -> int:
    """The right token, by another way than our answer; 0 for a row that is not finite."""
    return token_at(own.number, own.logits, own) if own.is_good else 0


ANY = Text("in the vocabulary")


def reference(*arguments):
    """The right tokens, row by row."""
    columns = zip(*(given.tolist() for given in arguments))
    return torch.tensor([token_of(Row(tuple(logits), *own)) for logits, *own in columns])


def observe(answer, case):
    given, arguments = case.arguments(), case.arguments()
    if case.elsewhere:
        with Elsewhere():
            there = [tensor.to(SECOND) for tensor in arguments.values()]
            return _seen(answer(*there), case, arguments, given)
    if answer is reference:  # it reads all of them
        return _seen(answer(*arguments.values()), case, arguments, given)
    watch, before = Watch(**arguments), _random_states()
    result = watch.run(lambda: answer(*arguments.values()), may_draw=True)
    if watch.read is not None:
        return watch.read
    if watch.draws or before != _random_states():
        return Text("drawn with other random numbers")
    return _seen(result, case, arguments, given)


def _seen(result, case, arguments, given):
    names = changed(given, arguments)
    return {
        "arguments": Text(f"{listed(names)} changed" if names else "as before"),
        "result": Text(_kind(result)),
        "tokens": _tokens(result, case),
    }


def _random_states():
    return random.getstate(), np.random.get_state()[2]


def _kind(result) -> str:
    if isinstance(result, torch.Tensor):
        return f"{name_of(result.dtype)} {tuple(result.shape)}"
    kind = f"a {type(result).__name__}"
    return f"{kind} of {_kind(result[0])}" if isinstance(result, list) and result else kind


def _tokens(result, case):
    """The token of each row. Any will do for a row that is not finite.

    What is no token is not told apart: a probability is another one on each processor.
    """
    vocabulary = range(len(case.rows[0].logits))
    tokens = [
        token if isinstance(token, int) or token in vocabulary else Text("no token")
        for part in tensors_in(result)
        for token in part.flatten().tolist()
    ]
    if len(tokens) != len(case.rows):
        return Text(tokens)
    return {
        number: token if own.is_good or token not in range(len(own.logits)) else ANY
        for number, (own, token) in enumerate(zip(case.rows, tokens))
    }


def same(expected, actual):
    if isinstance(expected, Raised) and isinstance(actual, Raised):
        return _about(expected) == _about(actual)
    return type(expected) is type(actual) and expected == actual


def _about(error: Raised) -> str:
    if isinstance(error, HostRead):
        of_one = error.kind in ("number", "copy") and len(error.names) == 1
        return error.names[0] if of_one and error.names != ("logits",) else error.kind
    # from gather and from an index these are two kinds of errors, and one mistake
    return draws.about(error, "out of bounds", "number of dimensions")


def describe(case):
    where = ", on a GPU" if case.elsewhere else ""
    lines = [f"{counted(len(case.rows), 'row')} of {name_of(case.dtype)} logits{where}"]
    for number, own in enumerate(case.rows):
        lines.append(
            f"row {number}: {draws.in_words(own.logits)}, temperature={own.temperature:g}, "
            f"top_k={own.top_k}, top_p={own.top_p}, number={own.number}"
        )
    return "\n    ".join(lines)


def show(expected, actual):
    if isinstance(actual, HostRead):
        return "nothing is read on the host", str(actual)
    if not isinstance(actual, dict):
        return f"tokens {list(expected['tokens'].values())}", str(actual)
    part = differences.first_part(expected, actual) or "tokens"
    ours, theirs = expected[part], actual[part]
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return f"{part}: {ours}", f"{part}: {theirs}"
    number = differences.first_part(ours, theirs)
    return f"row {number}: token {ours[number]}", f"row {number}: token {theirs[number]}"
