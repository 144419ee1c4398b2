"""Engines without a model, and what is seen of one when it completes a step: 8.8 and 10.7."""

import torch

from lessons_content.exercises.naming_words import Alike
from lessons_content.lesson_08.scheduling import Scenario, make_scheduler
from lessons_lib.checks import Text
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import Request

VOCAB_SIZE, END, OTHER_END = 16, 1, 13


class WithoutModel:
    """What an engine has besides its model: a class of engines is derived from this first."""

    def __init__(self, pool: Scenario, end_tokens):
        self.scheduler = make_scheduler(pool)
        self.manager, self.prefix_cache = self.scheduler.manager, self.scheduler.prefix_cache
        self.end_tokens, self.history, self.requests = frozenset(end_tokens), None, {}

    def begin(self, request: Request):
        """Lets a request run. It has no room yet."""
        self.requests[request.id] = request
        self.manager.start(request.id, 0, [])
        self.scheduler.running.append(request)


class SamplingEngine(WithoutModel, Engine):
    """An engine that notes what its `sample` is given."""

    vocab_size = VOCAB_SIZE

    def watch_samples(self, logits, owners):
        """From now on self.sample notes what it is given.

        logits: a step's. A constant may be added to a row.
        owners: the requests' ids, by their params.
        """
        rows = logits.double().log_softmax(-1)
        self.rows_given, self.sampled = Text("as they came"), []

        def sample(row, params, position):
            is_float = isinstance(row, torch.Tensor) and row.is_floating_point()
            if is_float and row.shape == rows[0].shape:
                distances = (row.double().log_softmax(-1) - rows).abs().amax(1)
                if not (distances < 1e-3).any():
                    is_softmax = bool((row >= 0).all()) and abs(float(row.sum()) - 1) < 1e-3
                    self.rows_given = Text("probabilities" if is_softmax else "other numbers")
            token = Engine.sample(row, params, position)
            self.sampled.append(f"params of {owners.get(params, '?')}, position {position}")
            return token

        # the name that a learner reads where it gets too few arguments
        sample.__qualname__ = "sample"
        self.sample = sample


SamplingEngine.__name__ = "Engine"  # as messages name it


class OtherReason(Alike):
    """A reason that is neither of the two; whichever it is, it is the same mistake."""


def after_step(engine: Engine, requests: list[Request], result) -> dict:
    """What can be seen of a step that has been completed.

    requests: those of the step and others.
    result: what postprocess() returned.
    """
    running, waiting = engine.scheduler.running, engine.scheduler.waiting
    ended = [request for request in requests if request.reason is not None]
    return {
        "returned": _pairs(result),
        "outputs": {request.id: _plain(request.output) for request in requests},
        "prompts": {request.id: _plain(request.prompt) for request in requests},
        "why it ended": {request.id: _reason(request) for request in ended},
        "running": [request.id for request in running],
        "waiting": [request.id for request in waiting],
        "in engine.requests": list(engine.requests),
        "num_computed": {request.id: request.num_computed for request in running},
        "free blocks": engine.manager.block_manager.get_num_free_blocks(),
    }


def _pairs(result):
    if not isinstance(result, list | tuple):
        return Text(f"{type(result).__name__} instead of a list")
    for pair in result:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], Request):
            return Text(f"a list of {type(result[0]).__name__} instead of (request, token)")
    return [(request.id, _plain([token])[0]) for request, token in result]


def _plain(tokens):
    return [int(token) if hasattr(token, "__index__") else Text(token) for token in tokens]


def _reason(request):
    """Where both reasons hold, either is right."""
    is_end = request.tokens[-1] in (END, OTHER_END) and not request.params.ignore_end
    is_last = len(request.output) == request.params.max_new_tokens
    if request.reason not in ("end", "length"):
        return OtherReason(request.reason)
    return Text("end or length" if is_end and is_last else request.reason)
