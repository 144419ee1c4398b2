"""`pieces`: a step with prompts replays what is recorded between its attentions."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fast_requests import (
    assert_as_alone,
    model,
    prompts,
)
from lessons_content.lesson_08.bench.servers import random_model
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.graph import StartCounter
from paged_attention.engine.fast.graph_sizes import sizes_of_pieces
from paged_attention.engine.request import SamplingParams
from paged_attention.ladder.rungs import FP8
from paged_attention.tiny_qwen3.tasks import TASKS, encode
from paged_attention.tiny_qwen3.wider import with_head_size

SMALL = dict(num_blocks=40, block_size=4, max_num_seqs=4)
ENDLESS = SamplingParams(max_new_tokens=8, ignore_end=True)
WITHOUT = replace(FastParts(), pieces=False)
pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def wide(dtype):
    """The small model with heads that the kernels for prompts and rung 9 take."""
    return with_head_size(load_model(dtype=dtype), 128)


def counted(engine) -> dict[int, int]:
    """From now on, how many pieces of each size have been replayed."""
    counts = dict.fromkeys(engine.runner.pieces.graphs, 0)

    class Counted:
        def __init__(self, size, graph):
            self.size, self.graph = size, graph

        def replay(self):
            counts[self.size] += 1
            return self.graph.replay()

    engine.runner.pieces.graphs = {
        size: [Counted(size, graph) for graph in graphs]
        for size, graphs in engine.runner.pieces.graphs.items()
    }
    return counts


# ---- The same tokens


@pytest.mark.parametrize(
    "dtype, kv_dtype",
    [(torch.float32, None), (torch.float32, FP8), (torch.bfloat16, None)],
    ids=str,
)
def test_the_tokens_are_those_of_an_engine_without_pieces(dtype, kv_dtype):
    """Of questions that have one answer: with padding, a product may round in another way."""
    random, answers = np.random.default_rng(5), []
    asked = [encode(task(random, 0.1)[0]) for task in TASKS.values()]
    for parts in (FastParts(), WITHOUT):
        options = dict(token_budget=30, num_blocks=60, block_size=8, max_num_seqs=3, sizes=[3])
        engine = fast_engine(wide(dtype), parts, kv_dtype=kv_dtype, **options)
        assert set(engine.runner.reasons) <= {"plan"}  # rung 9 takes no float32
        assert (engine.runner.pieces is not None) == parts.pieces
        engine.manager.kv_cache.fill_(torch.nan)  # what lies in the pool reaches no result
        answers.append([each.output for each in engine.generate(asked)])
    assert answers[0] == answers[1]


def test_a_step_that_fails_between_two_pieces_is_computed_again():
    engine = fast_engine(model(), **SMALL)
    graphs = engine.runner.pieces.graphs

    class Failing:
        def replay(self):
            raise RuntimeError("out of memory")

    requests = [engine.add(number, prompt, ENDLESS) for number, prompt in enumerate(prompts())]
    engine.runner.pieces.graphs = {
        size: [*pieces[:2], Failing(), *pieces[3:]] for size, pieces in graphs.items()
    }
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    engine.runner.pieces.graphs = graphs
    engine.run()
    assert_as_alone(requests)


@pytest.mark.gpu
@pytest.mark.parametrize("length", [5, 50])
def test_pieces_whose_kernels_begin_early_compute_the_same_bits(length):
    """One that did not wait for the kernel before would read what is not there yet. With 5
    tokens, each product has the kernel of few rows.
    """
    sizes = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2)
    own = random_model(2, intermediate_size=384, vocab_size=512, **sizes)

    def keys_and_values(parts):
        engine = fast_engine(own, parts, num_blocks=40, block_size=16, max_num_seqs=2)
        assert engine.runner.reasons == {}
        counts = counted(engine)
        engine.generate([[number] * length for number in (7, 8, 9)], ENDLESS)
        assert sum(counts.values()) > 0
        return engine.manager.kv_cache

    in_order = keys_and_values(replace(FastParts(), early=False))
    for _ in range(20):
        assert torch.equal(keys_and_values(FastParts()), in_order)


# ---- What is replayed, and what is written


def test_a_step_with_a_prompt_replays_the_pieces_of_the_smallest_size_with_room():
    engine = fast_engine(model(), FastParts(ahead=False), **SMALL, piece_sizes=[4, 8])
    counts, seen = counted(engine), []
    for number, length in enumerate((3, 4, 11)):  # one more that decodes each time
        engine.add(number, [8] * length, ENDLESS)
        engine.step()  # with 3 tokens, then 5, then 13
        engine.step()  # decodes: no piece
        seen.append([counts[4], counts[8]])
    pieces = model().config.num_hidden_layers + 1
    assert seen == [[pieces, 0], [pieces, pieces], [pieces, pieces]]
    engine.run()
    assert counts == {4: pieces, 8: pieces}


def test_padding_writes_into_no_block():
    engine = fast_engine(model(), **SMALL, piece_sizes=[16])
    engine.manager.kv_cache.fill_(7.0)
    counts = counted(engine)
    engine.add("long", [8] * 15, ENDLESS)  # its places are padding in the next step
    engine.step()
    engine.add("short", [9, 10], ENDLESS)
    for _ in range(3):
        engine.step()
    assert counts[16] == 2 * len(engine.runner.pieces.graphs[16])
    caches = engine.manager.kv_cache
    used = engine.manager.blocks_of("long") + engine.manager.blocks_of("short")
    others = [block for block in range(SMALL["num_blocks"]) if block not in used]
    assert (caches[:, :, others] == 7).all() and (caches[:, :, used] != 7).any()


def test_recording_writes_into_no_block():
    empty = fast_engine(model(), WITHOUT, **SMALL).manager.kv_cache
    assert torch.equal(fast_engine(model(), **SMALL).manager.kv_cache, empty)


def test_the_host_starts_one_thing_between_two_attentions():
    """Where there were two norms, four products, the gate and the rotation."""
    counts = []
    for parts in (FastParts(), WITHOUT):
        options = dict(num_blocks=40, block_size=16, max_num_seqs=2)
        engine = fast_engine(wide(torch.bfloat16), parts, **options)
        engine.add("decodes", [8, 9], ENDLESS)
        engine.step()
        engine.add("prompt", [8] * 20, ENDLESS)
        with StartCounter() as counter:
            engine.step()
        counts.append(counter.count)
    assert counts[1] - counts[0] >= 7 * wide(torch.bfloat16).config.num_hidden_layers


# ---- Which sizes, and where there are none


class FullWhileRecording:
    """Two ranks, of which this one has all of the model. While it records, there is room for
    a few rows only.
    """

    size, recording = 2, True

    def sum(self, x):
        if self.recording and len(x) > 4:
            raise RuntimeError("no room\nfor these rows")


def test_where_they_cannot_be_recorded_is_said_and_steps_run_without():
    own = load_model()
    own.ranks = FullWhileRecording()
    engine = fast_engine(own, **SMALL)
    own.ranks.recording = False
    assert engine.runner.reasons["pieces"] == "the step cannot be recorded: no room"
    assert sorted(engine.runner.graphs) == [1, 2, 4] and not engine.runner.pieces.graphs
    assert_as_alone(engine.generate(prompts(), ENDLESS))


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_that_no_step_can_have_is_refused(size):
    with pytest.raises(ValueError, match="piece_sizes must be 1 or more, not .*" + str(size)):
        fast_engine(model(), **SMALL, piece_sizes=[2, size])


@given(budget=st.integers(1, 10_000))
def test_little_is_padding_and_there_are_few_sizes(budget):
    sizes, most = sizes_of_pieces(budget), min(budget, 2048)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most and len(sizes) <= 22
    for before, size in zip([0, *sizes], sizes):
        padding = size - before - 1  # at most
        assert padding < max(64, size / 8)
