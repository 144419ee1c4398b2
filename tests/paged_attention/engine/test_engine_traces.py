"""Engines on random traces: each request gets its own tokens, whatever else happens.

That of lesson 08, and the one whose host is a step ahead. Requests come, alone or as several
answers to one prompt, are cancelled, and give their blocks back because somebody says so.
"""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from echo import (
    END,
    VOCAB_SIZE,
    ahead_engine,
    assert_nothing_is_lost,
    assert_right,
    continuation,
    engine_with,
)
from examples import few
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.history import History
from paged_attention.engine.request import (
    DuplicateRequestError,
    RequestError,
    SamplingParams,
    UnknownTokenError,
)
from traces import actions, play

ENGINES = pytest.mark.parametrize("make", [engine_with, ahead_engine])
prompts = st.one_of(
    st.lists(st.integers(0, 2), max_size=20),
    st.integers(0, 20).map(lambda length: ([1, 2, 3, 4, 5] * 4)[:length]),
)
params = st.builds(
    SamplingParams,
    max_new_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 30),
)


@ENGINES
@few(70, drawn_anew=200)
@given(
    trace=st.lists(actions(prompts, params), max_size=30),
    block_size=st.integers(1, 5),
    num_blocks=st.integers(1, 14),
    token_budget=st.integers(1, 24),
    max_num_seqs=st.integers(1, 6),
    prefix_sharing=st.booleans(),
)
def test_every_request_gets_its_own_tokens_and_no_block_is_lost(make, trace, **sizes):
    engine = make(**sizes)

    def after_step(accepted):
        assert len(engine.scheduler.running) <= sizes["max_num_seqs"]
        assert not any(PENDING in request.tokens for request in accepted)

    accepted = play(engine, trace, after_step)
    for request in accepted:
        alone = continuation(request.prompt, request.params)
        if request.reason == "cancelled":
            assert request.output == alone[: len(request.output)]
        else:
            assert request.output == alone
            assert request.reason == ("end" if alone[-1] == END else "length")
    event(f"preempted: {any(request.num_preempted for request in accepted)}")
    event(f"forked: {any(request.fork_of for request in accepted)}")
    assert_nothing_is_lost(engine)


def answers(engine, prompt: list[int], count: int, most: int = 4):
    """Several answers that draw."""
    seeds = range(count)
    params = [SamplingParams(most, 2.0, seed=seed, ignore_end=True) for seed in seeds]
    return engine.add_answers([f"answer {seed}" for seed in seeds], prompt, params)


@ENGINES
@pytest.mark.parametrize("prefix_sharing", [True, False])
def test_answers_share_the_blocks_of_a_prompt_that_is_computed_once(make, prefix_sharing):
    history = History()
    engine = make(
        num_blocks=30, token_budget=6, history=history, prefix_sharing=prefix_sharing
    )
    requests = answers(engine, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1], 3)
    engine.run()
    assert_right(requests)
    assert len({tuple(request.output) for request in requests}) == 3
    computed = [[count for count, _ in record.scheduled.values()] for record in history]
    # two chunks; with the last one, two answers are forked
    assert computed == [[6], [4, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    in_use = [(record.alone + record.shared, record.unshared) for record in history]
    # The prompt has two full blocks and a part of one, of which two answers get copies.
    assert in_use[:3] == [(2, 2), (3, 9), (5, 9)]
    assert (history[1].alone, history[1].shared) == (0, 3)
    assert_nothing_is_lost(engine)


@ENGINES
def test_answers_without_a_place_wait_and_then_share_as_well(make):
    engine = make(num_blocks=30, max_num_seqs=2, prefix_sharing=False)
    requests = answers(engine, [1, 2, 3, 4, 5], 5)
    engine.step()
    other = engine.add("other", [3], SamplingParams(max_new_tokens=2, ignore_end=True))
    assert engine.scheduler.running == requests[:2]
    assert list(engine.scheduler.waiting) == [requests[2], other]  # others wait for the third
    engine.run()
    assert_right([*requests, other])
    assert_nothing_is_lost(engine)


def test_answers_are_all_refused_or_none():
    engine, params = engine_with(), SamplingParams(max_new_tokens=3)
    long = SamplingParams(max_new_tokens=40)
    with pytest.raises(RequestError, match="'b' may grow to 2 \\+ 40 tokens"):
        engine.add_answers(["a", "b"], [1, 2], [params, long])
    with pytest.raises(UnknownTokenError):
        engine.add_answers(["a", "b"], [1, VOCAB_SIZE], [params] * 2)
    with pytest.raises(DuplicateRequestError, match="each answer needs its own id"):
        engine.add_answers(["a", "a"], [1, 2], [params] * 2)
    with pytest.raises(ValueError, match="zip"):
        engine.add_answers(["a", "b"], [1, 2], [params])
    assert engine.add_answers([], [1, 2], []) == []
    assert not engine.requests and not engine.scheduler.has_work()
