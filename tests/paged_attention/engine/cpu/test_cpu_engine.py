"""The engine for a CPU gives the plain engine's tokens, whichever of its parts are in."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from echo import assert_nothing_is_lost
from examples import few
from fast_requests import all_sizes, assert_as_alone, model, prompts, some_traces
from paged_attention.engine.attention import paged_attention_forward
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.cpu.engine import cpu_engine
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.cpu.runner import CpuRunner
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.runner import flatten_batch
from paged_attention.engine.supported_models import UnsupportedModelError
from traces import play

ALL_PARTS = [
    CpuParts(*chosen)
    for chosen in itertools.product((True, False), repeat=3)
    if chosen[0] or not chosen[2]
]

pytestmark = pytest.mark.usefixtures("one_thread")


@few(10, drawn_anew=25)
@given(trace=some_traces(prompts()), parts=st.sampled_from(ALL_PARTS), sizes=all_sizes)
def test_any_parts_on_any_trace(trace, parts, sizes):
    engine = cpu_engine(model(), parts, **sizes)
    assert not engine.runner.reasons
    engine.manager.kv_cache.fill_(torch.nan)  # what lies in the pool reaches no result
    assert_as_alone(play(engine, trace))
    assert_nothing_is_lost(engine)


def test_a_learners_own_functions_go_on_being_called():
    """Lesson 08's: what a layer calls, and what a runner has for a step's metadata."""
    called = set()

    def forward(module, query, key, value, attention_mask=None, **others):
        called.add(module.layer_idx)
        return paged_attention_forward(module, query, key, value, **others)

    def flatten(scheduled):
        called.add("8.2")
        return flatten_batch(scheduled)

    for dtype in (torch.float32, torch.bfloat16):
        own = load_model(dtype=dtype)
        sizes = {"num_blocks": 40, "block_size": 4}
        engine = Engine(own, path="paged_torch", forward=forward, **sizes)
        engine.runner.flatten_batch = flatten
        engine.runner = CpuRunner(engine.runner, CpuParts(attention=False))
        requests = engine.generate(prompts()[:4], SamplingParams(max_new_tokens=2))
        assert called == {"8.2", *range(own.config.num_hidden_layers)}
        assert_as_alone(requests)
        called.clear()


def rows_of(engine, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """The logits before each token of an answer that the engine is given."""
    rows, left = [], iter(answer)

    def take(row, params, position):
        rows.append(row.float())
        return next(left)

    engine.sample = take
    params = SamplingParams(max_new_tokens=len(answer), ignore_end=True)
    engine.generate([prompt], params)
    return torch.stack(rows)


@pytest.mark.parametrize("parts", [parts for parts in ALL_PARTS if parts.layers])
def test_in_16_bits_logits_are_no_farther_from_32_than_those_of_transformers(parts):
    """Numbers of 16 bits are read, and nothing is rounded to them between two products."""
    prompt, answer = prompts()[5], prompts()[3]
    ids = torch.tensor([prompt + answer[:-1]])
    narrow = load_model(dtype=torch.bfloat16)
    with torch.inference_mode():
        expected, theirs = (
            own(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 :].float()
            for own in (model(), narrow)
        )
    ours = rows_of(cpu_engine(narrow, parts, num_blocks=16), prompt, answer)
    assert (ours - expected).abs().mean() <= (theirs - expected).abs().mean()


def test_weights_of_8_bits_answer_too():
    parts = CpuParts(narrow_weights=True)
    engine = cpu_engine(load_model(dtype=torch.bfloat16), parts, num_blocks=64)
    params = SamplingParams(max_new_tokens=2)
    outputs = [request.output for request in engine.generate(prompts()[:4], params)]
    plain = cpu_engine(model(), num_blocks=64).generate(prompts()[:4], params)
    assert outputs == [request.output for request in plain]


@pytest.mark.parametrize(
    "parts, words",
    [
        ({"layers": False}, "few_rows needs layers"),
        ({"few_rows": False, "narrow_weights": True}, "narrow_weights needs few_rows"),
    ],
)
def test_a_part_needs_the_one_that_it_is_part_of(parts, words):
    with pytest.raises(ValueError, match=words):
        CpuParts(**parts)


def test_numbers_that_it_does_not_read_are_refused():
    with pytest.raises(UnsupportedModelError, match="not of torch.float16 on cpu"):
        cpu_engine(load_model(dtype=torch.float16))
    plain = Engine(load_model(dtype=torch.float16), path="in_place")
    with pytest.raises(TypeError, match="the pool has numbers of torch.float16"):
        plain.generate(prompts())


def test_layers_that_are_not_fused_stay_those_of_transformers():
    own = load_model()
    own.config.hidden_act = "gelu"  # what is not fused is looked for here
    engine = cpu_engine(own, num_blocks=40, block_size=4)
    assert "has the activation gelu" in engine.runner.reasons["layers"]
    assert_as_alone(engine.generate(prompts(), SamplingParams(max_new_tokens=3)))
