"""The fast engine gives the plain engine's tokens, whichever of its parts are in."""

import dataclasses
import functools
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine, graph_sizes
from paged_attention.engine.fast.layers import FusedModel, check_fused
from paged_attention.engine.request import RequestError, SamplingParams
from paged_attention.tiny_qwen3.tasks import encode
from paged_attention.tiny_qwen3.wider import with_head_size

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALL_PARTS = [
    FastParts(*chosen)
    for chosen in itertools.product((True, False), repeat=6)
    if not chosen[5] or (chosen[2] and chosen[4])
]
PROMPTS = ["?ab>", "a1b2?a>", "a1b2c3d4?c>", "a1b2c3d4?b>", "C", "a1b2c3d4e5f6?e>"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The tensors are small: threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def model(device):
    return load_model(device=device)


def prompts():
    return [encode(text) for text in PROMPTS]


def params_of(number: int, most: int = 12) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=1 + (5 * number + 6) % most,
        temperature=(0.0, 1.0, 3.0)[number % 3],
        top_k=(None, 4)[number % 2],
        top_p=(1.0, 0.9)[number // 2 % 2],
        seed=number,
        ignore_end=number % 4 == 3,
    )


@functools.cache
def alone(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    """What the plain engine gives when nothing else runs."""
    engine = Engine(model("cpu"), num_blocks=40, block_size=4, path="batched")
    return engine.generate([list(prompt)], params)[0].output


def nothing_is_lost(engine) -> bool:
    pool = engine.manager.block_manager
    kept = engine.prefix_cache.num_evictable()
    return pool.get_num_free_blocks() + kept == engine.manager.kv_cache.shape[2]


actions = st.one_of(
    st.tuples(st.just("add"), st.integers(0, len(PROMPTS) - 1), st.integers(0, 11)),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40, deadline=None)
@given(
    trace=st.lists(actions, min_size=3, max_size=16),
    parts=st.sampled_from(ALL_PARTS),
    num_blocks=st.integers(9, 16),
    token_budget=st.integers(3, 40),
    max_num_seqs=st.integers(1, 5),
    sharing=st.booleans(),
)
def test_any_parts_on_any_trace(
    device, trace, parts, num_blocks, token_budget, max_num_seqs, sharing
):
    engine = fast_engine(
        model(device),
        parts,
        num_blocks=num_blocks,
        block_size=4,
        token_budget=token_budget,
        max_num_seqs=max_num_seqs,
        prefix_sharing=sharing,
    )
    assert not engine.runner.reasons
    accepted = []
    for number, (action, *details) in enumerate(trace):
        if action == "add":
            try:
                prompt = prompts()[details[0]]
                accepted.append(engine.add(number, prompt, params_of(details[1])))
            except RequestError:
                pass
        elif action == "step":
            for _ in range(details[0]):
                engine.step()
        elif details[0] < len(accepted) and accepted[details[0]].reason is None:
            engine.cancel(accepted[details[0]].id)
    engine.run()
    for request in accepted:
        expected = alone(tuple(request.prompt), request.params)
        if request.reason == "cancelled":
            assert request.output == expected[: len(request.output)]
        else:
            assert request.output == expected
    assert nothing_is_lost(engine)


@pytest.mark.parametrize("device", DEVICES)
def test_what_lies_in_the_pool_reaches_no_result(device):
    engine = fast_engine(model(device), num_blocks=40, block_size=4, max_num_seqs=5)
    engine.manager.kv_cache.fill_(torch.nan)
    given = [params_of(number) for number in range(len(PROMPTS))]
    for request in engine.generate(prompts(), given):
        assert request.output == alone(tuple(request.prompt), request.params)


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_larger_than_any_recorded_one_runs_without_a_graph(device):
    engine = fast_engine(model(device), sizes=[1, 2], num_blocks=60, block_size=4)
    given = [params_of(number) for number in range(len(PROMPTS))]
    results = engine.generate(prompts(), given)
    assert [result.output for result in results] == [
        alone(tuple(result.prompt), result.params) for result in results
    ]
    assert sorted(engine.runner.graphs) == [1, 2]


def test_a_step_that_cannot_be_recorded_is_said_and_runs_without(monkeypatch):
    gate = FusedModel.gate
    monkeypatch.setattr(
        FusedModel, "gate", lambda self, x: gate(self, x) * (x.sum().item() < torch.inf)
    )
    engine = fast_engine(model("cpu"), num_blocks=60, block_size=4, max_num_seqs=4)
    assert "reads a number on the host" in engine.runner.reasons["graphs"]
    assert not engine.runner.graphs
    result = engine.generate([prompts()[2]], params_of(3))[0]
    assert result.output == alone(tuple(result.prompt), result.params)


def test_a_model_that_is_not_fused_says_why_and_runs_without():
    config = model("cpu").config
    other = type(config)(**config.to_dict() | {"hidden_act": "gelu"})
    with pytest.raises(ValueError, match="has the activation gelu, and fused is silu"):
        check_fused(other, torch.float32)


def test_ahead_needs_the_tokens_on_the_device():
    with pytest.raises(ValueError, match="ahead needs state and sampling"):
        FastParts(sampling=False)
    with pytest.raises(ValueError, match="ahead needs state and sampling"):
        FastParts(state=False)
    assert not any(dataclasses.astuple(FastParts.none()))


@given(most=st.integers(1, 300), num_seqs=st.integers(1, 300))
def test_a_batch_is_padded_by_seven_at_most(most, num_seqs):
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most
    if num_seqs <= most:
        assert 0 <= min(size for size in sizes if size >= num_seqs) - num_seqs <= 7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_16_bit_logits_are_within_rounding_of_the_plain_engine(device, dtype):
    """Of a model with heads of 64, so that the ladders' kernels are taken."""
    logits = {}
    for parts in (None, FastParts(sampling=False, ahead=False)):
        own = with_head_size(load_model(dtype=dtype, device=device), 64)
        options = dict(num_blocks=24, block_size=8, max_num_seqs=4, token_budget=24)
        engine = (
            Engine(own, path="gather", **options)
            if parts is None
            else fast_engine(own, parts, **options)
        )
        rows, run = [], engine.runner.run

        def noted(scheduled, run=run, rows=rows):
            rows.append(run(scheduled).clone())
            return rows[-1]

        engine.runner.run = noted
        engine.sample = lambda row, params, position: 8 + position  # both see the same tokens
        engine.generate(prompts(), SamplingParams(max_new_tokens=4, ignore_end=True))
        logits[parts] = torch.cat(rows).float()
    plain, fast = logits.values()
    tolerance = 40 * torch.finfo(dtype).eps * plain.abs().max()
    assert (plain - fast).abs().max() <= tolerance
