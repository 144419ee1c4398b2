"""The fast engine gives the plain engine's tokens, whichever of its parts are in."""

import contextlib
import dataclasses
import functools
import gc
import itertools
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrl_c import CtrlC
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine, graph_sizes
from paged_attention.engine.fast.layers import FusedModel
from paged_attention.engine.request import RequestError, SamplingParams
from paged_attention.engine.served import UnsupportedModelError
from paged_attention.tiny_qwen3.tasks import encode
from paged_attention.tiny_qwen3.wider import with_head_size

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALL_PARTS = [
    FastParts(*chosen)
    for chosen in itertools.product((True, False), repeat=6)
    if not chosen[5] or (chosen[2] and chosen[4])
]
PROMPTS = ["?ab>", "a1b2?a>", "a1b2c3d4?c>", "a1b2c3d4?b>", "C", "a1b2c3d4e5f6?e>"]


pytestmark = pytest.mark.usefixtures("one_thread")


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
    st.tuples(st.just("answers"), st.integers(0, len(PROMPTS) - 1), st.integers(0, 11)),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("preempt"), st.integers(0, 2)),
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
    assert set(engine.runner.reasons) <= {"plan"}  # rung 9 takes no heads of 32
    accepted = []
    for number, (action, *details) in enumerate(trace):
        if action == "add":
            with contextlib.suppress(RequestError):
                prompt = prompts()[details[0]]
                accepted.append(engine.add(number, prompt, params_of(details[1])))
        elif action == "answers":
            with contextlib.suppress(RequestError):
                prompt, ids = prompts()[details[0]], [(number, index) for index in range(3)]
                own = [params_of(details[1] + index) for index in range(3)]
                accepted += engine.add_answers(ids, prompt, own)
        elif action == "step":
            for _ in range(details[0]):
                engine.step()
        elif action == "preempt":
            for request in engine.scheduler.running[details[0] : details[0] + 1]:
                engine.scheduler.preempt(request)
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


SMALL = dict(num_blocks=40, block_size=4, max_num_seqs=4)


def assert_as_alone(engine):
    results = engine.generate(prompts(), [params_of(number) for number in range(len(PROMPTS))])
    for result in results:
        assert result.output == alone(tuple(result.prompt), result.params)


@torch.inference_mode()
def test_ctrl_c_in_the_model_leaves_its_attention_as_it_was():
    own = model("cpu")
    forward = functools.partial(
        fast_engine(own, FastParts.none(), **SMALL).runner.forward,
        *[torch.tensor([8, 9])] * 3,
        attend=lambda q, k_cache, v_cache: q,
    )
    before, clock = own.config._attn_implementation, CtrlC()
    with clock.watching():
        forward()
    for place in range(clock.count):
        with pytest.raises(KeyboardInterrupt), CtrlC(place).watching():
            forward()
        assert own.config._attn_implementation == before


def test_two_engines_share_one_copy_of_the_weights_and_the_model_works_on():
    own = load_model()
    engines = [fast_engine(own, **SMALL) for _ in range(2)]
    first, second = (engine.runner.fused.layers[0] for engine in engines)
    weight = own.model.layers[0].self_attn.q_proj.weight
    assert first.w_qkv.data_ptr() == second.w_qkv.data_ptr() == weight.data_ptr()
    for engine in (*engines, Engine(own, path="batched", **SMALL), engines[0]):
        assert_as_alone(engine)


def test_the_model_can_be_saved_and_new_weights_can_be_loaded(tmp_path):
    own, other = load_model(), load_model()
    engine = fast_engine(own, **SMALL)
    own.save_pretrained(tmp_path)
    saved = load_model(tmp_path).state_dict()
    assert all(torch.equal(saved[name], each) for name, each in other.state_dict().items())
    own.load_state_dict({name: each.flip(0) for name, each in saved.items()})
    plain = Engine(own, path="batched", **SMALL)
    one, two = (each.generate(prompts(), params_of(3)) for each in (engine, plain))
    assert [each.output for each in one] == [each.output for each in two]


@pytest.mark.parametrize("device", DEVICES)
def test_an_engine_keeps_the_weights_that_it_began_with(device):
    """model.to() gives the model other tensors. The kernels have the old ones' addresses."""
    own = load_model(device=device)
    engine = fast_engine(own, **SMALL)
    own.to("cpu", torch.float64)
    assert_as_alone(engine)


@pytest.mark.parametrize("parts", [FastParts(), FastParts(layers=False), FastParts.none()])
def test_an_engine_that_is_dropped_gives_its_pool_back_at_once(parts):
    engine = fast_engine(model("cpu"), parts, **SMALL)
    engine.generate(prompts()[:2], params_of(3))
    pool = weakref.ref(engine.manager.kv_cache)
    gc.disable()
    try:
        del engine
        assert pool() is None
    finally:
        gc.enable()


class Adapted(torch.nn.Linear):
    def forward(self, x):
        return 1.5 * super().forward(x)


def test_a_layer_that_is_more_than_a_linear_is_not_fused():
    own = load_model()
    own.model.layers[1].mlp.up_proj.__class__ = Adapted
    engine = fast_engine(own, **SMALL)
    assert "Adapted; only torch.nn.Linear is fused" in engine.runner.reasons["layers"]
    plain = Engine(own, path="batched", **SMALL)
    one, two = (each.generate(prompts(), params_of(3)) for each in (engine, plain))
    assert [each.output for each in one] == [each.output for each in two]


def test_a_shape_that_rung_9_does_not_take_is_said():
    engine = fast_engine(load_model(dtype=torch.float16), **SMALL, sizes=[])
    assert "for rung 9, not 32" in engine.runner.reasons["plan"]
    without = fast_engine(model("cpu"), FastParts(plan=False), **SMALL, sizes=[])
    assert not without.runner.reasons


@pytest.mark.parametrize("size", [0, 5, -1])
def test_a_batch_size_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match="sizes must be 1 to 4 .*not .*" + str(size)):
        fast_engine(model("cpu"), **SMALL, sizes=[2, size])


def test_numbers_that_no_kernel_takes_are_refused():
    with pytest.raises(UnsupportedModelError, match="float64; the fast engine runs"):
        fast_engine(load_model(dtype=torch.float64), **SMALL)


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
    tolerance = 8 * torch.finfo(dtype).eps * plain.abs().max()
    assert (plain - fast).abs().max() <= tolerance
