"""Exercise 8.2: all sequences in one row.

For one request: which positions do its next num_tokens tokens have, when num_computed of them
are in the cache?

The tokens are in `request.tokens` at exactly these positions, prompt and generated ones alike.

Three lists that grow request by request. When a request's tokens have been added, where does
the last one stand?
"""

import operator
from collections.abc import Iterator, Mapping, Set

from lessons_content.exercises.kit import Text, counted, exercise
from paged_attention.engine.request import Request
from paged_attention.engine.runner import flatten_batch

NAMES = ("tokens", "positions", "last")


class Parts(tuple):
    """The three lists, each with its name in a message."""

    def __repr__(self):
        return "; ".join(
            f"{name} {list(part)}" for name, part in zip(NAMES, self, strict=True)
        )


# (tokens of the prompt, generated, computed, new ones of this step) of each request
CASES = [
    [(1, 0, 0, 1)],
    [(3, 0, 0, 3)],
    [(3, 0, 0, 2)],
    [(4, 0, 2, 2)],
    [(5, 0, 1, 2)],
    [(2, 1, 2, 1)],
    [(3, 4, 6, 1)],
    [(2, 0, 0, 2), (3, 0, 0, 3)],
    [(3, 2, 4, 1), (2, 1, 2, 1), (4, 0, 0, 4)],
    [(6, 0, 3, 2), (2, 2, 3, 1), (5, 0, 0, 1)],
    [(3, 3, 0, 6), (4, 5, 0, 7), (1, 1, 1, 1)],
    [(12, 0, 0, 12)],
    [(17, 0, 16, 1), (40, 3, 32, 8), (16, 1, 16, 1), (9, 0, 0, 4)],
]
NUM_TOKENS = 10  # different ones of a request; then they come again, as real tokens do


def hidden(chance):
    """Up to four requests: any part of their prompts, of what they generated, or of both."""
    for number in range(12):
        requests = []
        for _ in range(1 + number // 3):
            prompt = chance.randint(1, 20)
            generated = chance.choice((0, 0, 1, chance.randint(1, 9)))
            total = prompt + generated
            computed = chance.choice((0, total - 1, chance.randrange(total)))
            left = total - computed
            num_tokens = chance.choice((left, chance.randint(1, left)))
            requests.append((prompt, generated, computed, num_tokens))
        yield requests


def make_batch(case):
    """Requests with tokens that say where they come from: A's are 100, 101, …, B's 200, …"""
    scheduled = []
    for index, (prompt, generated, num_computed, num_tokens) in enumerate(case):
        first, total = 100 * (index + 1), prompt + generated
        tokens = [first + position % NUM_TOKENS for position in range(total)]
        request = Request("ABCD"[index], tokens[:prompt])
        request.tokens += tokens[prompt:]
        request.num_computed = num_computed
        scheduled.append((request, num_tokens))
    return scheduled


def observe(answer, case):
    scheduled = make_batch(case)
    handed = list(scheduled)
    try:
        result = answer(handed)
    except NotImplementedError:
        raise
    except Exception:
        if not changed(scheduled, handed, case):
            raise
    if words := changed(scheduled, handed, case):
        return words
    if not isinstance(result, tuple | list) or len(result) != 3:
        size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        return Text(f"{type(result).__name__}{size} instead of three lists")
    return Parts(map(numbers, result))


def changed(scheduled, handed, case):
    """What is not as it was in the requests or in the list of them, in words, or None."""
    before = make_batch(case)
    for name in ("num_computed", "tokens", "prompt"):
        now = [getattr(request, name) for request, _ in scheduled]
        then = [getattr(request, name) for request, _ in before]
        if now != then:
            return Text(f"the requests' {name} changed")
    return None if handed == scheduled else Text("the list `scheduled` changed")


def numbers(part):
    """A list of integers as a tuple, from any form that torch.tensor() takes; else words."""
    for kind, words in ((Iterator, "an iterator"), (Mapping, "a dictionary"), (Set, "a set")):
        if isinstance(part, kind):
            return Text(words)
    part = part.tolist() if hasattr(part, "tolist") else part
    if isinstance(part, tuple | list):
        part = [list(entry) if isinstance(entry, range | tuple) else entry for entry in part]
    try:
        return tuple(map(operator.index, part))
    except TypeError:
        return Text(part)


def show(expected, actual):
    if not (isinstance(expected, Parts) and isinstance(actual, Parts)):
        return repr(expected), repr(actual)
    name, ours, theirs = next(
        both for both in zip(NAMES, expected, actual, strict=True) if both[1] != both[2]
    )
    return tuple(
        f"{name} {part if isinstance(part, str) else list(part)}" for part in (ours, theirs)
    )


def describe(case):
    if sum(prompt + generated for prompt, generated, *_ in case) <= 12:
        return "; ".join(
            f"{request.id} has the prompt {request.prompt} and the output {request.output}, "
            f"{request.num_computed} computed, {num_tokens} to compute"
            for request, num_tokens in make_batch(case)
        )
    those, tokens = [], []
    for index, (prompt, generated, computed, number) in enumerate(case):
        name, first = "ABCD"[index], 100 * (index + 1)
        done = f"{generated} generated, {computed} computed"
        those.append(f"{number} of {name} ({counted(prompt, 'prompt token')}, {done})")
        tokens.append(f"{name}'s tokens are {first}, {first + 1}, …")
        if prompt + generated > NUM_TOKENS:
            tokens[-1] += f" {first + NUM_TOKENS - 1}, then these again"
    return f"tokens to compute: {'; '.join(those)}. {', '.join(tokens)}"


EXERCISE = exercise(
    globals(),
    answer_name="flatten_batch",
    size=lambda case: (
        sum(num_tokens for *_, num_tokens in case),
        len(case),
        sum(map(sum, case)),
    ),
)
