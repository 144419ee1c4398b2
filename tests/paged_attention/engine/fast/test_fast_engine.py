"""The fast engine gives the plain engine's tokens, whichever of its parts are in."""

import functools
import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ctrl_c import CtrlC
from echo import assert_nothing_is_lost
from examples import few
from fast_requests import (
    ALL_PARTS,
    DEVICES,
    PROMPTS,
    all_sizes,
    assert_as_alone,
    model,
    params_of,
    prompts,
    some_traces,
)
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.supported_models import UnsupportedModelError
from traces import play

WITH_PIECES = [parts for parts in ALL_PARTS if parts.layers and parts.graphs]
SMALL = dict(num_blocks=40, block_size=4, max_num_seqs=4)

pytestmark = pytest.mark.usefixtures("one_thread")


def generate(engine):
    return engine.generate(prompts(), [params_of(number) for number in range(len(PROMPTS))])


@pytest.mark.parametrize("device", DEVICES)
@few(12, drawn_anew=40)
@given(
    trace=some_traces(prompts()),
    parts=st.sampled_from(ALL_PARTS) | st.sampled_from(WITH_PIECES),
    sizes=all_sizes,
    piece_sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
)
def test_any_parts_on_any_trace(device, trace, parts, sizes, piece_sizes):
    """Prompts in chunks, several answers to one, requests that give way, and cancels."""
    engine = fast_engine(model(device), parts, **sizes, piece_sizes=piece_sizes)
    assert set(engine.runner.reasons) <= {"plan"}  # rung 9 takes no heads of 32
    pieces = engine.runner.pieces
    assert (pieces is not None) == (parts in WITH_PIECES)
    assert pieces is None or sorted(pieces.graphs) == sorted({*piece_sizes})
    engine.manager.kv_cache.fill_(torch.nan)  # what lies in the pool reaches no result
    assert_as_alone(play(engine, trace))
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_larger_than_any_recorded_one_runs_without_a_graph(device):
    engine = fast_engine(model(device), sizes=[1, 2], num_blocks=60, block_size=4)
    assert_as_alone(generate(engine))
    assert sorted(engine.runner.graphs) == [1, 2]


@torch.inference_mode()
def test_ctrl_c_in_the_model_leaves_its_attention_as_it_was():
    """At each instruction of a model with one layer."""
    own = load_model()
    own.model.layers, own.config.num_hidden_layers = own.model.layers[:1], 1
    forward = functools.partial(
        fast_engine(own, FastParts.none(), **SMALL).runner.forward,
        *[torch.tensor([8, 9])] * 3,
        attend=lambda q, k_cache, v_cache: q,
    )
    forward()  # what happens once has happened
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
        assert_as_alone(generate(engine))


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
    assert_as_alone(generate(engine))


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


@pytest.mark.parametrize("missing", ["state", "sampling"])
def test_ahead_needs_the_tokens_on_the_device(missing):
    with pytest.raises(ValueError, match="ahead needs state and sampling"):
        FastParts(**{missing: False})
    assert not FastParts(**{missing: False}, ahead=False).ahead
    assert not any(vars(FastParts.none()).values()) and all(vars(FastParts()).values())
