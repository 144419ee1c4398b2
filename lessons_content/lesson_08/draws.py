"""The token that a row of logits and a number at random give, by another way than our answers.

Answers round in their own ways. So no number is closer than MARGIN to a limit between two
tokens, except where every answer computes exactly.
"""

import math

from lessons_content.exercises.naming_words import SLIPS
from lessons_lib.checks import Raised

MARGIN = 1e-4  # float32 needs less
RARE = -12.0  # the logit of a token that hardly ever comes
_LIKELY = {97: 1.0, 256: 0.9, 411: 1.2, 512: 0.8}
MANY = tuple(_LIKELY.get(token, RARE - token / 1_000) for token in range(600))


def weights_of(logits, params) -> tuple[list[int], list[float]]:
    """The tokens that top_k leaves, the likeliest first, and their weights."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    if params.temperature == 0:
        return order[:1], [1.0]
    order = order[: params.top_k]
    highest = logits[order[0]]
    return order, [math.exp((logits[token] - highest) / params.temperature) for token in order]


def running_sums(logits, params) -> tuple[list[int], list[float]]:
    """The tokens that may be drawn, the likeliest first, and running sums of their weights."""
    order, weights = weights_of(logits, params)
    sums: list[float] = []
    for weight in weights:
        before = sums[-1] if sums else 0.0
        if before >= params.top_p * math.fsum(weights):
            break
        sums.append(before + weight)
    return order[: len(sums)], sums


def token_at(number: float, logits, params) -> int:
    tokens, sums = running_sums(logits, params)
    return tokens[next(i for i, reached in enumerate(sums) if reached >= number * sums[-1])]


def about(error: Raised, *words: str) -> str:
    """What an error is about: one of these words, or its type; of a slip all that it says."""
    kind = error.split(":")[0]
    own = str(error) if kind in SLIPS else kind
    return next((word for word in words if word in error), own)


def in_words(logits) -> str:
    """ "[0.5, -1, 2]", or the first of many."""
    numbers = ", ".join(f"{logit:g}" for logit in logits[: 4 if len(logits) > 12 else 12])
    return f"[{numbers}, …] ({len(logits)} of them)" if len(logits) > 12 else f"[{numbers}]"
