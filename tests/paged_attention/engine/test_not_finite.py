"""A request whose logits are not finite ends there for that reason.

No other one is affected.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echo import (
    END,
    VOCAB_SIZE,
    EchoModel,
    ahead_engine,
    assert_nothing_is_lost,
    continuation,
    engine_with,
    logits_after,
)
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.history import History
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import decode, encode
from traces import actions, play

pytestmark = pytest.mark.usefixtures("one_thread")

TOO_MUCH = 9  # the token that breaks the model below
ROWS = {
    "a NaN": [0.0, math.nan],
    "inf": [math.inf, 0.0],
    "-inf and a NaN": [-math.inf, math.nan],
    "nothing but -inf": [-math.inf, -math.inf],
    "inf and -inf": [math.inf, -math.inf],
}


class OverflowingModel(EchoModel):
    """Its logits are not finite from the first TOO_MUCH on, as if a key had overflowed."""

    def __init__(self, row):
        self.row = row

    def overflows(self, tokens):
        return TOO_MUCH in tokens

    def logits_after(self, tokens):
        if self.overflows(tokens):
            return torch.tensor(self.row + [self.row[1]] * (VOCAB_SIZE - 2))
        return 50 * super().logits_after(tokens)  # so that a draw gives the likeliest


class OverflowsAtTheEnd(OverflowingModel):
    """Its keys and values are in order; only the logits after a TOO_MUCH are not."""

    def overflows(self, tokens):
        return tokens[-1] == TOO_MUCH


def fate(model, prompt, params):
    """A request's output and reason, when nothing else runs."""
    tokens = list(prompt)
    while True:
        if model.overflows(tokens):
            return tokens[len(prompt) :], "not finite"
        tokens.append(int(logits_after(tokens).argmax()))
        if tokens[-1] == END and not params.ignore_end:
            return tokens[len(prompt) :], "end"
        if len(tokens) == len(prompt) + params.max_new_tokens:
            return tokens[len(prompt) :], "length"


traces = st.lists(
    actions(
        st.one_of(
            st.lists(st.integers(0, 10), min_size=1, max_size=16),
            st.just([1, 2, 3, 4, 5, 6, 7, 8, 3]),
            st.just([1, 2, 3, 4, 5, 6, TOO_MUCH, 8]),
        ),
        st.builds(
            SamplingParams,
            max_new_tokens=st.integers(1, 8),
            temperature=st.sampled_from([0, 1]),
            ignore_end=st.booleans(),
        ),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("make", [engine_with, ahead_engine])
@settings(max_examples=60)
@given(
    trace=traces,
    kind=st.sampled_from(list(ROWS)),
    model=st.sampled_from([OverflowingModel, OverflowsAtTheEnd]),
    block_size=st.integers(1, 5),
    token_budget=st.integers(1, 24),
    num_blocks=st.integers(24, 40),
    prefix_sharing=st.booleans(),
)
def test_each_request_meets_its_own_fate(make, trace, kind, model, **sizes):
    """However its prompt is cut into chunks, and whichever request shares its prefix."""
    model = model(ROWS[kind])
    engine = make(model, history=History(), **sizes)
    for request in play(engine, trace):
        output, reason = fate(model, request.prompt, request.params)
        if request.reason == "cancelled":
            output, reason = output[: len(request.output)], "cancelled"
        assert (request.output, request.reason) == (output, reason)
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize("temperature", [0, 1])
def test_minus_infinity_rules_a_token_out_and_is_no_fault(temperature):
    class Masking(EchoModel):
        def logits_after(self, tokens):
            return super().logits_after(tokens).log()  # 0 for one token, -inf for all others

    params = SamplingParams(max_new_tokens=6, temperature=temperature, ignore_end=True)
    [request] = engine_with(Masking()).generate([[1, 2, 3]], params)
    likeliest = continuation([1, 2, 3], SamplingParams(max_new_tokens=6, ignore_end=True))
    assert request.reason == "length" and request.output == likeliest


def test_the_prefix_cache_offers_nothing_of_it():
    engine = engine_with(OverflowingModel(ROWS["inf"]), token_budget=4)
    prompt = [1, 2, 3, 4, 5, 6, 7, TOO_MUCH, 1, 2, 3]
    request = engine.add("a", prompt, SamplingParams(max_new_tokens=4))
    engine.step()
    assert list(engine.prefix_cache.blocks) == request.hashes[:1]  # so far all is well
    engine.step()
    # this block has the key of TOO_MUCH
    assert list(engine.prefix_cache.blocks) == request.hashes[:1]
    engine.step()
    assert request.reason == "not finite" and not engine.prefix_cache.blocks
    assert_nothing_is_lost(engine)


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.mark.parametrize("path", ["gather", "paged_torch"])
@pytest.mark.parametrize("number", [math.nan, math.inf, 3e38])
def test_spoiled_keys_and_values_end_those_who_share_them_and_nobody_after(
    model, path, number
):
    """A prefix's block goes bad in the pool. The requests that use it end.

    Other requests are not affected, and the next request computes it again.
    """
    document = "Ka17..q42......z93c21......k45..m60....t88..?"
    params = SamplingParams(max_new_tokens=8)
    engine = Engine(model, path=path, num_blocks=40)
    first = engine.add("first", encode(document + "az>"), params)
    engine.step()
    second = engine.add("second", encode(document + "tm>"), params)
    stranger = engine.add("stranger", encode("Cq7b4mxy>"), SamplingParams(max_new_tokens=20))
    engine.step()
    shared = engine.manager.blocks_of("first")[0]
    assert engine.manager.blocks_of("second")[0] == shared
    assert engine.prefix_cache.blocks[first.hashes[0]] == shared
    engine.manager.kv_cache[:, :, shared] = number
    late = engine.add("late", encode(document + "qk>"), params)  # it waits when the others end
    engine.scheduler.max_num_seqs = 3
    engine.step()
    assert first.reason == second.reason == "not finite"
    assert (len(first.output), len(second.output)) == (2, 1)
    engine.run()
    assert decode(stranger.output) == "q7b4mxy$" and stranger.reason == "end"
    assert decode(late.output) == "q42k45$" and late.reason == "end"
    [again] = engine.generate([first.prompt], params)
    assert decode(again.output) == "a17z93$"
