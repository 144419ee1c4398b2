"""Exercise 10.7: the late end.

Which requests of the step does `_complete` get? Ask `self.still_runs` about each of them,
before anything else.

The tokens come in the order of `scheduled`. If the first request has ended, whose token is the
first one? So you need the places of those that still run.

A tensor takes a list of places in square brackets: `tensor[[0, 2]]` has its rows 0 and 2. And
when no request is left, what is there to wait for?
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import Text, counted, exercise
from lessons_content.lesson_08.bare_engine import WithoutModel
from lessons_content.lesson_08.scheduling import NotPairs, Scenario, pairs
from lessons_content.lesson_10 import parts
from lessons_content.lesson_10.parts import Part, again, chunk, decode, random_part
from paged_attention.engine.fast.ahead import AheadEngine
from paged_attention.engine.fast.sampler import NOT_FINITE
from paged_attention.engine.request import Request

END = 99
POOL = Scenario((), num_blocks=64, block_size=4, max_num_seqs=12, sharing=True)
# What has happened to a request since the step was launched, and the words for it.
FATES = {
    "": "",
    "end": " and has ended with an end token",
    "not finite": " and has ended: its logits were not finite",
    "cancelled": " and was cancelled",
    "preempted": " and was preempted",
    "both": " and was preempted, and then cancelled",
    "id again": " and was cancelled, and a new request with its id runs",
}


@dataclass(frozen=True)
class Case:
    """fates: one of FATES for each request."""

    parts: tuple[Part, ...]
    tokens: tuple[int, ...]
    fates: tuple[str, ...]


def case(*entries) -> Case:
    """Of (part, the step's token, fate)."""
    return Case(*(tuple(zip(*entries)) or ((), (), ())))


def in_place(gone: str, fate: str) -> Case:
    """Requests that decode. "-x" is one that runs, and one with this fate."""
    fates = [fate if letter == "x" else "" for letter in gone]
    return case(*((decode(3, 1), *both) for both in zip((73, 70, 75, 71), fates)))


def cases():
    yield case()
    yield from (in_place("-", ""), in_place("--", ""))
    yield case((chunk(7, 0, 4), 71, ""))
    yield case((chunk(7, 4, 3), 71, ""))
    yield case((again(3, 2, 0, 4), 71, ""))
    yield case((decode(3, 2), END, ""))
    yield case((decode(3, 2, most=3), 71, ""))
    yield case((decode(3, 2), NOT_FINITE, ""))
    yield case((chunk(7, 0, 4), NOT_FINITE, ""))
    for fate in FATES:
        if fate:
            yield from (in_place(gone, fate) for gone in ("x", "x-", "-x"))
    for gone in ("x--", "-x-", "--x", "xx-", "-xx", "xx", "-xx-", "x-x-"):
        yield from (in_place(gone, fate) for fate in ("end", "preempted"))
    yield case((decode(3, 1), 71, "preempted"), (decode(2, 2), 72, "end"))
    yield case((chunk(9, 0, 5), 71, "cancelled"), (chunk(9, 4, 2), 72, ""))
    yield case(
        (chunk(9, 0, 5), 71, ""), (decode(2, 2), 72, "preempted"), (decode(2, 1), 73, "")
    )
    yield case(
        (decode(3, 1), 71, "end"), (decode(3, 3, most=4), 72, ""), (decode(2, 1), 73, "")
    )
    yield case((decode(3, 1), END, "preempted"), (decode(3, 1), END, ""))
    yield case((decode(3, 1), NOT_FINITE, "cancelled"), (decode(3, 1), 72, ""))
    yield case(
        (decode(3, 1), NOT_FINITE, ""), (decode(3, 1), 72, "end"), (decode(3, 1), 73, "")
    )


def hidden(chance):
    """Up to six requests."""
    for number in range(24):
        size = number // 4 + (number % 4 > 0)
        tokens = [chance.choice((END, NOT_FINITE, *range(70, 78))) for _ in range(size)]
        fates = [chance.choice(("", "", "", "", *FATES)) for _ in range(size)]
        if number % 4 == 1:
            fates = chance.choices([fate for fate in FATES if fate], k=size)
        yield case(*((random_part(chance), *both) for both in zip(tokens, fates)))


class Arriving:
    """Tokens on their way, which note whether they were waited for."""

    def __init__(self, tokens):
        self.tokens, self.was_waited_for = torch.tensor(tokens, dtype=torch.int64), False

    def wait(self):
        self.was_waited_for = True
        return self.tokens.clone()


class BareEngine(WithoutModel, AheadEngine):
    """An engine without a model. It completes no step that it could not complete."""

    def __init__(self):
        super().__init__(POOL, {END})
        self.sample = lambda token, params, position: int(token)
        self.are_finite = lambda tokens: (tokens != NOT_FINITE).tolist()

    def launch(self, request: Request, computed: int, num_tokens: int):
        """Takes a request in as it is when a step with it is launched."""
        self.begin(request)
        self.scheduler.make_room(request, computed + num_tokens)
        self.prefix_cache.insert(request, computed)

    def meet(self, request: Request, fate: str):
        """Lets a request meet one of FATES."""
        if fate == "end" and request.output:
            request.tokens[-1] = END
        if fate in ("end", "not finite"):
            self._end(request, fate)
        if fate in ("preempted", "both"):
            self.scheduler.preempt(request)
        if fate in ("cancelled", "both", "id again"):
            self.cancel(request.id)
        if fate == "id again":
            self.launch(Request(request.id, [60, 61]), 0, 2)

    def _complete(self, scheduled, tokens):
        try:
            requests = [request for request, _ in pairs(scheduled)]
        except NotPairs as error:
            raise TypeError(f"_complete takes a list of pairs, and got {error}") from None
        for request in requests:
            if not self.still_runs(request):
                has = "has ended" if request.reason else "has given its blocks back"
                raise ValueError(f"_complete got {request.id}, which {has}")
        if not hasattr(tokens, "tolist"):
            kind = type(tokens).__name__
            raise TypeError(f"_complete takes a tensor of tokens, and got {kind}")
        if tuple(tokens.shape) != (len(requests),):
            words = f"{counted(len(requests), 'request')}, and tokens of shape"
            raise ValueError(f"_complete got {words} {list(tokens.shape)}")
        return super()._complete(scheduled, tokens)


BareEngine.__name__ = BareEngine.__qualname__ = "AheadEngine"  # as messages name it


def observe(answer, case):
    engine = BareEngine()
    requests = [part.request(number) for number, part in enumerate(case.parts)]
    scheduled = [(request, part.num_tokens) for request, part in zip(requests, case.parts)]
    for request, num_tokens in scheduled:
        engine.launch(request, request.num_computed, num_tokens)
    for request, fate in zip(requests, case.fates):
        engine.meet(request, fate)
    next_ones = [(request, 1) for request in engine.scheduler.running]
    engine.in_flight = next_ones, Arriving([50] * len(next_ones))
    as_it_came, tokens = list(scheduled), Arriving(case.tokens)
    result = answer(engine, scheduled, tokens)
    seen = {}
    for request in requests:
        seen[f"{request.id}'s tokens"] = [Text(token) for token in request.tokens]
        for name in ("num_computed", "reason", "num_inserted", "num_preempted"):
            seen[f"{request.id}'s {name}"] = Text(getattr(request, name))
    for name in ("running", "waiting"):
        those = getattr(engine.scheduler, name)
        seen[f"in scheduler.{name}"] = [request.id for request in those]
    seen["in engine.requests"] = list(engine.requests)
    seen["free blocks"] = engine.manager.block_manager.get_num_free_blocks()
    for name, each in (("tokens", tokens), ("the next step's tokens", engine.in_flight[1])):
        seen[name] = Text("waited for" if each.was_waited_for else "not waited for")
    seen["the list `scheduled`"] = Text("as it was" if scheduled == as_it_came else "changed")
    try:
        seen["returned"] = [(request.id, token) for request, token in pairs(result)]
    except NotPairs as error:
        seen["returned"] = Text(error)
    return seen


def describe(case):
    each = [
        f"{part.in_words(number)}, next token {token},{FATES[fate] or ' and runs'}"
        for number, (part, token, fate) in enumerate(zip(case.parts, case.tokens, case.fates))
    ]
    return "; ".join(each) or "an empty step"


def show(expected, actual):
    if not isinstance(actual, dict):
        return "no error", str(actual)
    differing = [part for part in expected if expected[part] != actual.get(part)]
    parts = differing[:2] or ["returned"]
    both = (expected, actual)
    return tuple("; ".join(f"{part}: {seen.get(part)}" for part in parts) for seen in both)


EXERCISE = exercise(
    globals(),
    reference=AheadEngine.complete_late,
    # An empty step shows little. A case of two requests is easier to follow.
    size=lambda case: parts.size(case.parts) if case.parts else (3, 0, 0),
)
