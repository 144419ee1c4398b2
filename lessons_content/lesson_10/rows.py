"""Rows of logits with their parameters, and the token that each must get, for 10.5.

Answers round in their own ways. So a row's number is close to no limit between two tokens, and
its top_p is close to no sum. It may be where the number was chosen. The logits there are two
or four equal ones, with which every answer computes exactly.
"""

import math
import random
from dataclasses import dataclass, replace

import torch

from lessons_content.lesson_08.draws import MARGIN, running_sums, token_at, weights_of

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
