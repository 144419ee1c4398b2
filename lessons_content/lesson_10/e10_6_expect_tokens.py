"""Exercise 10.6: what is not there yet.

When this step is complete, how many of a request's tokens are computed? Count that first.
Everything else is asked about the request as it is then.

`request.num_uncomputed` says how many tokens are left to compute. In which case does the
model's answer give a new token, and in which is the next one known already?

Take a request with max_new_tokens=3 and two tokens in its `output`. Will it go on after the
token that it gets in this step? And how do you ask that of any request?

A next token is appended to `request.tokens`. There are two conditions: nothing is left to
compute, and `len(request.output)`, with the new token, is not the most that it may have.
"""

import copy

from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_10.parts import again, chunk, decode, in_words, random_part, size
from paged_attention.engine.fast.ahead import PENDING, expect_tokens
from paged_attention.engine.request import Request

COPY, EARLY = "into a copy", "asked before the count"
CASES = [
    (),
    (decode(2, 1),),
    (decode(1, 1),),
    (decode(3, 2),),
    (chunk(1, 0, 1),),
    (chunk(3, 0, 3),),
    (chunk(4, 0, 2),),
    (chunk(4, 0, 3),),
    (chunk(5, 0, 1),),
    (chunk(5, 2, 2),),
    (chunk(5, 2, 3),),
    (chunk(5, 4, 1),),
    (again(2, 3, 0, 5),),
    (again(2, 3, 0, 2),),
    (again(2, 3, 0, 3),),
    (again(2, 3, 2, 2),),
    (again(2, 3, 3, 2),),
    (again(2, 4, 3, 2),),
    (chunk(3, 0, 3, most=1),),
    (chunk(3, 0, 1, most=1),),
    (chunk(3, 0, 3, most=2),),
    (chunk(3, 0, 3, most=3),),
    (chunk(4, 2, 2, most=2),),
    (chunk(3, 0, 3, most=4),),
    (chunk(8, 0, 8, most=6),),
    (decode(3, 2, most=3),),
    (decode(3, 2, most=4),),
    (decode(3, 2, most=5),),
    (decode(3, 2, most=6),),
    (again(2, 3, 0, 5, most=4),),
    (again(2, 3, 0, 4, most=4),),
    (again(2, 3, 0, 5, most=5),),
    (decode(2, 1, ignore_end=True),),
    (decode(2, 2, most=3, ignore_end=True),),
    (decode(2, 2, most=4, ignore_end=True),),
    (decode(2, 1), decode(3, 2)),
    (chunk(5, 0, 2), decode(2, 1)),
    (decode(2, 1, most=2), decode(2, 1)),
    (decode(2, 1), decode(2, 1, most=2)),
    (decode(2, 1), chunk(5, 2, 2), chunk(3, 1, 2), again(1, 3, 0, 4, most=4), decode(4, 1)),
]


def hidden(chance):
    """One to five requests."""
    for number in range(20):
        yield tuple(random_part(chance) for _ in range(1 + number // 4))


class WatchedRequest(Request):
    """A request that notes how a slip came about. That gives it its name, and refuses none."""

    def watch(self):
        self.at_first, self.outputs, self.was_asked_early = copy.deepcopy(self), [], False

    @property
    def output(self):
        self.outputs.append(self.tokens[len(self.prompt) :])
        return self.outputs[-1]

    @property
    def num_uncomputed(self):
        self.was_asked_early |= self.num_computed == self.at_first.num_computed
        return len(self.tokens) - self.num_computed

    def note(self):
        """Why it has the tokens that it had."""
        if self.tokens != self.at_first.tokens:
            return ""
        if any(PENDING in output for output in self.outputs):
            return COPY
        is_counted = self.num_computed != self.at_first.num_computed
        return EARLY if self.was_asked_early and is_counted else ""


WatchedRequest.__name__ = WatchedRequest.__qualname__ = "Request"  # as messages name it


def observe(answer, case):
    requests = [part.request(number, WatchedRequest) for number, part in enumerate(case)]
    for request in requests:
        request.watch()
    scheduled = [(request, part.num_tokens) for request, part in zip(requests, case)]
    as_it_came = list(scheduled)
    answer(scheduled)
    seen = {}
    for request in requests:
        seen[f"{request.id}'s num_computed"] = _integer(request.num_computed)
        seen[f"{request.id}'s prompt"] = _tokens(request.prompt)
        seen[f"{request.id}'s tokens"] = _tokens(request.tokens)
        for name in ("id", "params", "reason", "hashes", "num_inserted", "num_preempted"):
            value = getattr(request, name)
            if value != getattr(request.at_first, name):
                seen[f"{request.id}'s {name}"] = Text(value)
    seen["the list `scheduled`"] = Text("as it was" if scheduled == as_it_came else "changed")
    notes = {request.note() for request in requests}
    seen["note"] = notes.pop() if len(notes) == 1 else ""
    return seen


def _integer(number):
    return int(number) if hasattr(number, "__index__") else Text(number)


def _tokens(tokens):
    if not isinstance(tokens, list):
        return Text(f"{tokens} ({type(tokens).__name__})")
    return [_integer(token) for token in tokens]


def same(expected, actual):
    """expected: ours, without a note, or a mistake's. A note there has to be in `actual`."""
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return expected == actual
    return actual | {"note": ""} == expected | {"note": ""} and (
        expected["note"] in ("", actual["note"])
    )


def show(expected, actual):
    if not isinstance(actual, dict):
        return "no error", str(actual)
    for part, theirs in actual.items():
        if theirs != expected.get(part):
            return f"{part}: {expected.get(part, 'as it was')}", f"{part}: {theirs}"
    return repr(expected), repr(actual)


EXERCISE = exercise(
    globals(),
    answer_name="expect_tokens",
    describe=in_words,
)
