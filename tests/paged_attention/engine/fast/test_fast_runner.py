"""`FastRunner`: which steps are replayed, what is made on which device, and what is said."""

import functools
from types import SimpleNamespace

import pytest
import torch
from test_fast_engine import ALL_PARTS, PROMPTS, alone, params_of
from torch._subclasses.fake_tensor import FakeTensorMode

from paged_attention.engine.attention import PagedStep
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.fast import FastParts, fast_engine, runner
from paged_attention.engine.fast.graph import GraphError, StepGraph
from paged_attention.engine.fast.layers import FusedModel
from paged_attention.engine.fast.runner import FastRunner
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

SMALL = dict(num_blocks=40, block_size=4, max_num_seqs=4)
CPU, META, GPU = map(torch.device, ("cpu", "meta", "cuda"))


pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def model(dtype=torch.float32):
    return load_model(dtype=dtype)


def engine_of(**parts):
    own = FastParts(**{"ahead": False} | parts)
    return fast_engine(model(), own, **SMALL)


# ---- Tokens


SOME_PARTS = [
    FastParts(),
    FastParts.none(),
    FastParts(ahead=False),
    FastParts(layers=False),
    FastParts(state=False, ahead=False),
    FastParts(sampling=False, ahead=False),
    FastParts(layers=False, sampling=False, ahead=False),
    FastParts(graphs=False, plan=False),
]


@pytest.mark.parametrize("parts", SOME_PARTS, ids=str)
def test_requests_together_get_the_tokens_that_they_get_alone(parts):
    engine = fast_engine(model(), parts, **SMALL, token_budget=9)
    prompts = [encode(text) for text in PROMPTS]
    for result in engine.generate(prompts, [params_of(n) for n in range(len(prompts))]):
        assert result.output == alone(tuple(result.prompt), result.params)


# ---- Which steps are replayed


class Counted:
    """A recorded step that counts how often it is replayed."""

    def __init__(self, graph):
        self.graph, self.count = graph, 0

    def replay(self):
        self.count += 1
        return self.graph.replay()


def test_a_step_of_decodes_is_one_replay_of_the_smallest_size_with_room():
    engine = engine_of()
    graphs = {size: Counted(graph) for size, graph in engine.runner.graphs.items()}
    assert sorted(graphs) == [1, 2, 4]
    engine.runner.graphs = graphs
    endless = SamplingParams(max_new_tokens=30, ignore_end=True)
    counts = []
    for number in range(3):
        engine.add(number, [8, 9, 10], endless)
        engine.step()  # with a prompt: nothing is replayed
        counts.append({size: graph.count for size, graph in graphs.items()})
        engine.step()
    assert counts == [{1: 0, 2: 0, 4: 0}, {1: 1, 2: 0, 4: 0}, {1: 1, 2: 1, 4: 0}]
    assert {size: graph.count for size, graph in graphs.items()} == {1: 1, 2: 1, 4: 1}


def test_the_last_chunk_of_a_prompt_is_no_decode_though_it_is_one_token():
    """The device does not know a token of the prompt."""
    engine = engine_of()
    engine.runner.graphs = {size: None for size in engine.runner.graphs}
    engine.scheduler.token_budget = 2
    prompt, params = (8, 9, 10), SamplingParams(max_new_tokens=3, ignore_end=True)
    request = engine.add("a", list(prompt), params)
    engine.run()
    assert request.output == alone(prompt, params)


class FailsLate:
    """A recorded step that fails when it has run."""

    def __init__(self, graph):
        self.graph = graph

    def replay(self):
        self.graph.replay()
        raise RuntimeError("out of memory")


@pytest.mark.parametrize("parts", [each for each in ALL_PARTS if each.graphs and each.state])
def test_a_step_that_fails_after_it_has_moved_the_state_on_is_forgotten(parts):
    """Afterwards the second request finds the first one's blocks, and is where it was before
    the failure, in its old row. The device has its state from after the failure.
    """
    engine = fast_engine(model(), parts, **SMALL, prefix_sharing=True)
    params = SamplingParams(max_new_tokens=8, ignore_end=True)
    prompt = encode(PROMPTS[2])
    requests = [engine.add(number, prompt, params) for number in range(2)]
    while len(requests[0].tokens) % SMALL["block_size"] != 1:
        engine.step()
    graphs = engine.runner.graphs
    engine.runner.graphs = {size: FailsLate(graph) for size, graph in graphs.items()}
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    engine.runner.graphs = graphs
    engine.scheduler.token_budget = len(requests[0].tokens)  # one after the other
    engine.run()
    assert [each.output for each in requests] == [alone(tuple(prompt), params)] * 2


# ---- Recorded steps


def test_all_recorded_steps_write_their_logits_into_one_tensor():
    own = engine_of().runner
    for size, graph in own.graphs.items():
        assert isinstance(graph, StepGraph)
        logits, tokens = graph.result
        assert logits.data_ptr() == own.logits.data_ptr() and len(logits) == size
        assert len(tokens) == size
    assert own.graph_bytes == 0  # of a GPU's memory


def bare_runner(device) -> FastRunner:
    own = object.__new__(FastRunner)
    own.device, own.graphs, own.reasons, own.graph_bytes = device, {}, {}, 0
    own._decode = lambda size: size
    return own


def test_on_a_gpu_the_largest_step_is_recorded_first_and_all_share_its_memory(monkeypatch):
    seen, reserved = [], [100, 130]
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "a pool")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved.pop(0))
    monkeypatch.setattr(
        runner, "capture", lambda step, device, pool: seen.append((step(), device, pool))
    )
    own = bare_runner(GPU)
    own._capture([2, 8, 1])
    assert seen == [(size, GPU, "a pool") for size in (8, 2, 1)]
    assert sorted(own.graphs) == [1, 2, 8] and own.graph_bytes == 30 and not own.reasons


def test_on_the_cpu_a_recorded_step_has_no_pool_of_its_own(monkeypatch):
    seen = []
    monkeypatch.setattr(
        runner, "capture", lambda step, device, pool: seen.append((step(), device, pool))
    )
    own = bare_runner(CPU)
    own._capture([1, 2])
    assert seen == [(2, CPU, None), (1, CPU, None)] and own.graph_bytes == 0


@pytest.mark.parametrize("error", [GraphError, torch.OutOfMemoryError])
def test_why_a_step_is_not_recorded_is_said_in_a_line_and_the_larger_ones_stay(
    monkeypatch, error
):
    def capture(step, device, pool):
        if step() == 1:
            raise error("no memory left\nsee the notes")
        return "recorded"

    monkeypatch.setattr(runner, "capture", capture)
    own = bare_runner(CPU)
    own._capture([1, 4, 2])
    assert own.graphs == {4: "recorded", 2: "recorded"}
    assert own.reasons == {"graphs": "no memory left"}


# ---- What is made, and where


class Manager(SimpleNamespace):
    """What a runner needs of a pool."""


def made(device, monkeypatch, parts=FastParts.none()) -> tuple[FastRunner, list]:
    """A runner over a pool on some device, and the targets that its parts were made for."""
    targets = []

    def state(table, block_size, target):
        targets.append(("state", target))
        return table

    def decode(manager, heads, dtype, target, plan):
        targets.append(("decode", target))
        return None, ""

    def layers(own, kv_cache, longest, target):
        targets.append(("layers", target, longest))

    def chunks(number, shape, target):
        targets.append(("chunks", number, shape, target))

    monkeypatch.setattr(runner, "StepState", state)
    monkeypatch.setattr(runner, "decode_attention", decode)
    monkeypatch.setattr(runner, "FusedModel", layers)
    monkeypatch.setattr(runner, "chunk_kernel", lambda own: (4, "a shape"))
    monkeypatch.setattr(runner, "prefill_library", chunks)
    manager = Manager(
        kv_cache=torch.empty(1, 2, 5, 4, 2, 8, device=device),
        table=SimpleNamespace(cpu=torch.zeros(3, 7)),
        block_size=4,
        max_blocks_per_seq=7,
    )
    config = SimpleNamespace(num_attention_heads=4, vocab_size=11)
    own = SimpleNamespace(config=config, dtype=torch.float16)
    before = SimpleNamespace(model=own, manager=manager, forward=None)
    return FastRunner(before, parts, []), targets


def test_what_a_step_reads_and_writes_is_where_the_pool_is(monkeypatch):
    own, _ = made(META, monkeypatch)
    assert own.logits.shape == (3, 11) and own.logits.dtype == torch.float16
    assert own.logits.device == META
    assert own.manager.block_table is own.manager.table.on_device
    assert own.manager.block_table.device == META and own.state is own.manager.block_table


@pytest.mark.parametrize(("device", "target"), [(CPU, "fast"), (GPU, "gpu")], ids=str)
def test_all_parts_are_made_for_where_the_pool_is(monkeypatch, device, target):
    """The kernel of chunks too: it is compiled now, not in a step."""
    with FakeTensorMode():
        _, targets = made(device, monkeypatch, FastParts(graphs=False, ahead=False))
    assert sorted(targets) == [
        ("chunks", 4, "a shape", target),
        ("decode", target),
        ("layers", target, 7 * 4),
        ("state", target),
    ]


def test_layers_are_fused_only_where_that_part_is_in():
    assert isinstance(engine_of(graphs=False).runner.fused, FusedModel)
    assert engine_of(graphs=False, layers=False).runner.fused is None


def test_a_part_that_is_missing_has_a_reason():
    """Rung 9 takes no heads of 32."""
    reasons = engine_of(graphs=False).runner.reasons
    assert set(reasons) == {"plan"} and "for rung 9" in reasons["plan"]
    assert engine_of(graphs=False, plan=False).runner.reasons == {}


def test_positions_reach_as_far_as_a_request_may_grow():
    engine = engine_of(graphs=False)
    longest = engine.manager.max_blocks_per_seq * SMALL["block_size"]
    assert len(engine.runner.fused.turns) == longest == 160


def test_a_model_that_is_converted_later_changes_no_kernel():
    own = load_model(dtype=torch.float16)
    engine = fast_engine(own, FastParts(graphs=False), **SMALL)
    own.to(torch.float64)
    assert engine.runner.dtype == torch.float16


def test_attention_of_single_tokens_makes_a_result_like_its_queries_if_there_is_none():
    def decode(q, k_cache, v_cache, block_table, out):
        seen.append(out)

    seen = []
    own = object.__new__(FastRunner)
    own.decode = decode
    q = torch.empty(2, 4, 8, dtype=torch.float16, device=META)
    made_now = own.attend_single(q, None, None, None)
    assert seen == [made_now] and made_now is not q
    assert (made_now.shape, made_now.dtype, made_now.device) == (q.shape, q.dtype, META)
    there = torch.empty_like(q)
    assert own.attend_single(q, None, None, None, out=there) is there and seen[1] is there


# ---- The layers of transformers


@torch.inference_mode()
def unfused_logits(engine, **others):
    tokens = torch.tensor([8, 9, 10])
    return engine.runner.forward(
        tokens, tokens - 8, tokens, lambda q, k_cache, v_cache: q, **others
    )


def test_without_fused_layers_no_keys_are_kept_twice(monkeypatch):
    engine, kept = engine_of(layers=False, graphs=False), []
    forward = type(model()).forward

    def noted(self, *arguments, **named):
        result = forward(self, *arguments, **named)
        kept.append(result.past_key_values)
        return result

    monkeypatch.setattr(type(model()), "forward", noted)
    unfused_logits(engine)
    assert kept == [None]


def test_logits_of_all_tokens_or_of_the_last_ones_and_into_a_tensor():
    engine = engine_of(layers=False, graphs=False)
    of_all = unfused_logits(engine)
    assert of_all.shape == (3, model().config.vocab_size)
    some = unfused_logits(engine, last=torch.tensor([2, 0]))
    torch.testing.assert_close(some, of_all[[2, 0]])
    out = torch.zeros_like(of_all)
    assert unfused_logits(engine, out=out) is out
    torch.testing.assert_close(out, of_all)


def test_an_error_in_the_model_comes_through_and_leaves_its_attention_as_it_was():
    engine = engine_of(layers=False, graphs=False)
    before = model().config._attn_implementation

    def fails(q, k_cache, v_cache):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch.inference_mode():
        engine.runner.forward(*[torch.tensor([8])] * 3, fails)
    assert model().config._attn_implementation == before


@pytest.mark.parametrize(
    ("slots", "written"),
    [
        ([5, 0, -1], [5, 0, 5]),
        ([0, 7, -1], [0, 7, 0]),
        ([1, 2, 3], [1, 2, 3]),
        ([-1, -1, -1], [0, 0, 0]),  # a step that is only recorded; a pool has a slot 0
    ],
    ids=str,
)
def test_padding_writes_what_the_first_sequence_writes_into_the_same_slot(slots, written):
    seen = {}

    def forward(module, query, key, value, paged):
        seen.update(key=key, value=value, paged=paged)
        return query

    key, value = torch.randn(2, 1, 2, 3, 4)
    paged = PagedStep("the pool", torch.tensor(slots), "attend")
    query = object()
    found = runner._forward_with_padding(
        "module", query, key, value, paged=paged, forward=forward, other=1
    )
    assert found is query and seen["paged"].slot_mapping.tolist() == written
    assert (seen["paged"].kv_cache, seen["paged"].attend) == ("the pool", "attend")
    places = [0 if slot < 0 else place for place, slot in enumerate(slots)]
    assert torch.equal(seen["key"], key[:, :, places])
    assert torch.equal(seen["value"], value[:, :, places])
