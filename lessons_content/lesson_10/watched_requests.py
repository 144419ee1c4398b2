"""Requests before and after an answer says what they will be, for 10.6."""

import copy

from lessons_content.exercises.kit import Text
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.request import Request

COPY, EARLY = "into a copy", "asked before the count"


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
