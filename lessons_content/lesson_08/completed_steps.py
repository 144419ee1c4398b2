"""Steps that an engine without a model completes, and what is seen of them, for 8.8."""

import torch

from lessons_content.exercises.kit import Alike, Text
from lessons_content.lesson_08.scheduling import Scenario, WithoutModel
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import Request, SamplingParams

VOCAB_SIZE, END, OTHER_END = 16, 1, 13


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
    """What can be seen after a step: what postprocess() returned, and all requests."""
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


POOL = Scenario((), num_blocks=16, block_size=4, token_budget=64)
COLD = 0.01  # a temperature at which the likeliest token comes


def observe(answer, case):
    engine = SamplingEngine(POOL, case.end_tokens)
    requests = [_add(engine, case, number) for number in range(len(case.prompts))]
    owners = {request.params: request.id for request in requests}
    seen = {}
    for number, step in enumerate(case.steps, 1):
        scheduled = [(requests[index], num_tokens) for index, num_tokens, _ in step]
        as_it_came = list(scheduled)
        try:
            for request, num_tokens in scheduled:
                engine.scheduler.make_room(request, num_tokens)
        except Exception as error:
            seen[f"in step {number}, room for its tokens"] = Text(type(error).__name__)
            break
        logits = _logits(case, step)
        engine.watch_samples(logits, owners)
        result = answer(engine, scheduled, logits)
        if engine.rows_given != "as they came":
            seen["the logits that self.sample got"] = engine.rows_given
        if scheduled != as_it_came:
            seen[f"after step {number}, the list `scheduled`"] = Text("changed")
        for part, value in after_step(engine, requests, result).items():
            seen[f"after step {number}, {part}"] = value
        sampled = "; ".join(sorted(engine.sampled)) or "nothing"
        seen[f"in step {number}, self.sample got"] = Text(sampled)
    return seen


def _add(engine, case, number):
    params = SamplingParams(
        case.max_new_tokens[number],
        temperature=COLD if number in case.cold else 0.0,
        seed=number,  # so that no two have the same params
        ignore_end=number in case.ignore_end,
    )
    prompt = [2 + number] * case.prompts[number]
    if case.end_in_prompt:
        prompt[0] = END
    request = Request("ABC"[number], prompt, params)
    request.tokens += [6] * case.generated[number]
    engine.begin(request)
    return request


def _logits(case, step):
    logits = torch.linspace(-1.0, 0.0, VOCAB_SIZE).repeat(len(step), 1)
    for row, (_, _, token) in zip(logits, step, strict=True):
        row[token] = 3.0
    return logits


def describe(case):
    those = ", ".join(_request_in_words(case, number) for number in range(len(case.prompts)))
    numbered = []
    for number, step in enumerate(case.steps, 1):
        computes = [f"{'ABC'[i]} computes {num}, next token {token}" for i, num, token in step]
        numbered.append(f"step {number}: {' and '.join(computes)}")
    noun = "end token" if len(case.end_tokens) == 1 else "end tokens"
    ends = ", ".join(map(str, case.end_tokens)) or "none"
    return f"{noun} {ends}; {those}; {'; '.join(numbered)}"


def _request_in_words(case, number):
    words = f"{'ABC'[number]} (prompt of {case.prompts[number]}"
    if case.end_in_prompt:
        words += f" that begins with {END}"
    if own := case.generated[number]:
        words += f" and {own} of its own from before it was preempted"
    words += f", max_new_tokens={case.max_new_tokens[number]}"
    if number in case.ignore_end:
        words += ", ignore_end"
    if number in case.cold:
        words += f", temperature={COLD}"
    return f"{words})"
