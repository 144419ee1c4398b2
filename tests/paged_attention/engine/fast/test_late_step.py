"""The two functions that let the host be a step ahead: what a request is expected to be, and
what a late step still completes.
"""

import copy
from types import SimpleNamespace

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from echo import ahead_engine
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.ahead import (
    PENDING,
    AheadEngine,
    expect_tokens,
    remove_pending,
)
from paged_attention.engine.request import Request, SamplingParams

ENDLESS = SamplingParams(max_new_tokens=5, ignore_end=True)
TOKEN = 7  # the model's next one, always


@st.composite
def parts(draw):
    """A request, and how many tokens it computes in the step."""
    prompt, own = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    most = own + draw(st.integers(1, 3))
    ignore_end = draw(st.booleans())
    request = Request(0, [1] * prompt, SamplingParams(most, ignore_end=ignore_end))
    request.tokens += [2] * own
    request.num_computed = draw(st.integers(0, prompt + own - 1))
    return request, draw(st.integers(1, request.num_uncomputed))


def complete(scheduled: list) -> list[Request]:
    """The requests as lesson 08's postprocess leaves them. The token is no end token."""
    requests = [copy.deepcopy(request) for request, _ in scheduled]
    engine = SimpleNamespace(
        sample=lambda row, params, position: TOKEN,
        end_tokens={2},
        _end=lambda request, reason: setattr(request, "reason", reason),
    )
    those = [(request, count) for request, (_, count) in zip(requests, scheduled)]
    Engine.postprocess(engine, those, torch.zeros(len(those), 1))
    return requests


@given(st.lists(parts(), max_size=4))
def test_a_request_is_expected_to_be_what_it_will_be_with_a_token_that_nobody_knows(scheduled):
    """If it ends, nothing more is fed: then there is no such token."""
    completed, before = complete(scheduled), copy.deepcopy(scheduled)
    expect_tokens(scheduled)
    for (request, _), after, (was, _) in zip(scheduled, completed, before):
        assert request.num_computed == after.num_computed
        if after.reason is None:
            known = [PENDING if token == TOKEN else token for token in after.tokens]
            assert request.tokens == known
        else:
            assert request.tokens == was.tokens
        remove_pending(request)
        assert request.tokens == was.tokens
        assert (request.prompt, request.params) == (was.prompt, was.params)


FATES = st.sampled_from(["runs", "runs", "cancelled", "preempted", "replaced"])


@given(st.lists(st.tuples(FATES, st.integers(0, 6)), max_size=4))
@example([])
@example([("cancelled", 1), ("preempted", 2)])
def test_a_late_step_is_complete_for_those_that_still_run_and_is_nothing_to_the_others(those):
    engine = ahead_engine(num_blocks=40, token_budget=40)
    engine.end_tokens = frozenset()
    requests = [engine.add(id, [1, 2, id], ENDLESS) for id in range(len(those))]
    scheduled = engine.scheduler.schedule()
    for request, (fate, _) in zip(requests, those):
        if fate == "preempted":
            engine.scheduler.preempt(request)
        elif fate != "runs":
            engine.cancel(request.id)
        if fate == "replaced":
            engine.add(request.id, [3, 4], ENDLESS)
            engine.scheduler.start(engine.requests[request.id])
    waits = []
    tokens = torch.tensor([token for _, token in those], dtype=torch.int64)

    def wait():
        waits.append(True)
        return tokens

    new = AheadEngine.complete_late(engine, scheduled, SimpleNamespace(wait=wait))
    expected = []
    for request, (fate, token) in zip(requests, those):
        if fate == "runs":
            expected.append((request, token))
            assert (request.output, request.num_computed) == ([token], 3)
        else:
            assert (request.output, request.num_computed) == ([], 0)
    assert new == expected and len(waits) == (expected != [])
