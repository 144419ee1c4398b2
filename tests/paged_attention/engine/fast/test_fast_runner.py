"""`FastRunner`: what a step computes, which steps are replayed, and what is written."""

import pytest
import torch

from fast_requests import ALL_PARTS, PROMPTS, alone, assert_as_alone, model
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

SMALL = dict(num_blocks=40, block_size=4, max_num_seqs=4)
ENDLESS = SamplingParams(max_new_tokens=8, ignore_end=True)
LOGITS = FastParts(sampling=False, ahead=False)  # a step gives logits
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("layers", [True, False])
def test_each_chunk_attends_to_its_own_sequence(layers):
    """Chunks in the middle and at the end of a prompt, and single tokens, in any order."""
    engine = fast_engine(model(), FastParts(layers, sampling=False, ahead=False), **SMALL)
    engine.manager.kv_cache.fill_(torch.nan)
    texts = "a1b2c3d4?c>", "C", "a1b2c3d4e5f6?e>", "?ab>"
    # of each: how many tokens have been computed, and how many the step computes
    parts = [(3, 5), (5, 1), (0, 7), (3, 1)]
    requests = []
    for number, (text, (before, count)) in enumerate(zip(texts, parts)):
        prompt = (encode(text) + [8] * 9)[: before + count]
        requests.append(engine.add(number, prompt, ENDLESS))
        engine.manager.add_sequence(number, 0)
        if before:
            engine.manager.append_tokens([(number, before)])
            engine.runner.run([(requests[number], before)])
            requests[number].num_computed = before
    for request, (_, count) in zip(requests, parts):
        engine.manager.append_tokens([(request.id, count)])
    logits = engine.runner.run([(each, count) for each, (_, count) in zip(requests, parts)])
    for request, row in zip(requests, logits):
        with torch.inference_mode():
            expected = model()(torch.tensor([request.tokens])).logits[0, -1]
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-4)


class Counted:
    """A recorded step that counts how often it is replayed. It may fail when it has run."""

    def __init__(self, graph, fails=False):
        self.graph, self.fails, self.count = graph, fails, 0

    def replay(self):
        result = self.graph.replay()
        self.count += 1
        if self.fails:
            raise RuntimeError("out of memory")
        return result


def test_a_step_of_decodes_is_one_replay_of_the_smallest_size_with_room():
    engine = fast_engine(model(), FastParts(ahead=False), **SMALL)
    graphs = {size: Counted(graph) for size, graph in engine.runner.graphs.items()}
    assert sorted(graphs) == [1, 2, 4]
    engine.runner.graphs, counts = graphs, []
    for number in range(3):
        engine.add(number, [8, 9, 10], ENDLESS)
        engine.step()  # with a prompt: nothing is replayed
        engine.step()
        counts.append([graph.count for _, graph in sorted(graphs.items())])
    assert counts == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("budget", [1, 2])
def test_the_last_chunk_of_a_prompt_is_no_decode_though_it_is_one_token(budget):
    """The device does not know a token of the prompt."""
    engine = fast_engine(model(), FastParts(ahead=False), **SMALL, token_budget=budget)
    assert_as_alone(engine.generate([[8, 9, 10]], ENDLESS))


def test_a_prompt_may_hold_token_0_beside_tokens_that_only_the_device_knows():
    engine = fast_engine(model(), **SMALL, token_budget=3)
    requests = [engine.add("decodes", [8, 9], ENDLESS)]
    engine.step()
    requests.append(engine.add("prompt", [0, 9, 0, 0, 8, 0, 0], ENDLESS))
    engine.run()
    assert_as_alone(requests)


@pytest.mark.parametrize("parts", [each for each in ALL_PARTS if each.graphs and each.state])
def test_a_step_that_fails_after_it_has_moved_the_state_on_is_forgotten(parts):
    """Afterwards the second request finds the first one's blocks, and is where it was before
    the failure, in its old row. The device has its state from after the failure.
    """
    engine = fast_engine(model(), parts, **SMALL, prefix_sharing=True)
    prompt = encode(PROMPTS[2])
    requests = [engine.add(number, prompt, ENDLESS) for number in range(2)]
    while len(requests[0].tokens) % SMALL["block_size"] != 1:
        engine.step()
    graphs = engine.runner.graphs
    engine.runner.graphs = {size: Counted(graph, True) for size, graph in graphs.items()}
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    engine.runner.graphs = graphs
    engine.scheduler.token_budget = len(requests[0].tokens)  # one after the other
    engine.run()
    assert [each.output for each in requests] == [alone(tuple(prompt), ENDLESS)] * 2


@pytest.mark.parametrize("layers", [True, False])
def test_padding_writes_into_no_block(layers):
    engine = fast_engine(model(), FastParts(layers), **SMALL, sizes=[4])
    engine.manager.kv_cache.fill_(7.0)
    engine.add("a", [8, 9, 10], ENDLESS)
    for _ in range(5):
        engine.step()
    used, caches = engine.manager.blocks_of("a"), engine.manager.kv_cache
    others = [block for block in range(SMALL["num_blocks"]) if block not in used]
    assert (caches[:, :, others] == 7).all() and (caches[:, :, used] != 7).any()


def test_a_request_may_grow_to_the_end_of_the_pool():
    """Its positions reach as far."""
    prompt, sizes = [8 + place % 20 for place in range(150)], SMALL | {"max_num_seqs": 1}
    params = SamplingParams(max_new_tokens=10, ignore_end=True)
    plain, fast = Engine(model(), path="batched", **sizes), fast_engine(model(), **sizes)
    one, other = (engine.generate([prompt], params)[0].output for engine in (plain, fast))
    assert one == other and len(one) == 10


class Reading(torch.nn.Module):
    """A layer that looks at its numbers on the host."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) if x.isfinite().all().item() else x


def test_a_model_that_cannot_be_recorded_says_why_and_runs():
    own = load_model()
    own.model.norm = Reading(own.model.norm)
    engine = fast_engine(own, FastParts(layers=False, plan=False), num_blocks=20)
    assert [*engine.runner.reasons] == ["graphs"] and not engine.runner.graphs
    reason = engine.runner.reasons["graphs"]
    assert "reads a number on the host" in reason and "\n" not in reason
    requests = engine.generate(list(map(encode, PROMPTS)), SamplingParams(max_new_tokens=5))
    assert_as_alone(requests)


def test_without_fused_layers_no_keys_are_kept_twice():
    own, kept = load_model(), []
    own.register_forward_hook(lambda module, given, out: kept.append(out.past_key_values))
    parts = FastParts(layers=False, graphs=False)
    fast_engine(own, parts, **SMALL).generate([[8, 9]], ENDLESS)
    assert len(kept) > 1 and not any(kept)
