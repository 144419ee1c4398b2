"""Batches, and the three lists that an answer makes of one, for 8.2."""

import operator
from collections.abc import Iterator, Mapping, Set

from lessons_content.exercises.kit import Text, counted
from paged_attention.engine.request import Request

NAMES = ("tokens", "positions", "last")


class Parts(tuple):
    """The three lists, each with its name in a message."""

    def __repr__(self):
        return "; ".join(
            f"{name} {list(part)}" for name, part in zip(NAMES, self, strict=True)
        )


NUM_TOKENS = 10  # different ones of a request; then they come again, as real tokens do


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
