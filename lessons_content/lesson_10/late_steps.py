"""Steps that are completed after the next one was launched, for 10.7."""

import torch

from lessons_content.exercises.kit import Text, counted
from lessons_content.lesson_08.scheduling import NotPairs, Scenario, WithoutModel, pairs
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
