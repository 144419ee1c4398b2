"""Processes that share the KV heads: the tokens of one, clear errors, and none left behind."""

import multiprocessing
import os
import pickle
import time
from types import SimpleNamespace

import pytest
import torch

from lessons_bench import shards as command
from lessons_processes import isolation
from paged_attention.engine import shards
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import EmptyPromptError, SamplingParams
from paged_attention.engine.shards import (
    ShardError,
    choose_backend,
    run_sharded,
    serve_sharded,
)
from paged_attention.tiny_qwen3.tasks import encode

PROMPTS = [
    encode(text)
    for text in ("Cq7b4m>", "Sqxbafgm>", "Ka17..q42" + "." * 30 + "z93?zq>", "Vq7b>", "C1>")
]


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    isolation.end_waiting()
    assert not multiprocessing.active_children()


# Loaders that the ranks call


def load_slowly(device):
    time.sleep(60)


def load_and_die(device):
    os._exit(3)


def load_on_some_ranks_only(device):
    if torch.distributed.get_rank() == 1:
        raise FileNotFoundError("rank 1 has no weights")
    return load_model(device=device)


class WithoutText(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def load_with_an_error_that_cannot_travel(device):
    raise WithoutText(1, 2)


def load_one_kv_head(device):
    return SimpleNamespace(config=SimpleNamespace(num_key_value_heads=1))


def test_two_ranks_give_the_tokens_of_one():
    """In a pool so small that requests are preempted, with chunks of prompts, and some of them
    sampled.
    """
    options = dict(num_blocks=12, block_size=8, token_budget=16)
    params = [
        SamplingParams(max_new_tokens=12, temperature=index % 2, seed=index)
        for index in range(len(PROMPTS))
    ]
    engine = Engine(load_model(), **options)
    expected = [request.output for request in engine.generate(PROMPTS, params)]
    run = run_sharded(PROMPTS, params, world_size=2, backend="gloo", **options)
    assert (
        run.answers == expected
        and run.cache_bytes * 2 == engine.manager.kv_cache.nbytes
        and run.seconds > 0
    )


@pytest.mark.parametrize(
    "load, error, message",
    [
        (load_on_some_ranks_only, FileNotFoundError, "rank 1 has no weights"),
        (load_and_die, ShardError, "rank [01] ended without an answer"),
        pytest.param(
            load_with_an_error_that_cannot_travel,
            ShardError,
            "WithoutText: 1 and 2",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            load_one_kv_head,
            ValueError,
            "must divide the model's 1 KV heads",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_that_fails_is_an_error_here(load, error, message):
    with pytest.raises(error, match=message):
        serve_sharded(PROMPTS, world_size=2, backend="gloo", load=load)


def test_a_rank_that_died_is_named_before_those_that_miss_it():
    context = multiprocessing.get_context("forkserver")
    (first, sends), (second, dies) = (context.Pipe(duplex=False) for _ in range(2))
    sends.send_bytes(pickle.dumps(RuntimeError("Connection closed by peer")))
    dies.close()
    with pytest.raises(ShardError, match="rank 1 ended without an answer"):
        # Both pipes have something to say already, so nothing waits.
        shards._collect([first, second], 0.0, 60)


def test_ranks_that_take_too_long_are_ended():
    with pytest.raises(ShardError, match="2 of 2 ranks have not answered after 1 s"):
        serve_sharded(PROMPTS, world_size=2, backend="gloo", load=load_slowly, time_limit=1)


def test_a_request_that_is_refused_is_an_error():
    with pytest.raises(EmptyPromptError, match="empty prompt"):
        shards._served([EmptyPromptError("an empty prompt")])


@pytest.mark.parametrize(
    "world_size, backend, message",
    [
        (0, None, "world_size must be 1 or more, not 0"),
        (-2, "gloo", "must be 1 or more"),
        (3, "gloo", "must divide the model's 2 KV heads, and 3 does not"),
        (2, "mpi", "'gloo', 'nccl' or None, not 'mpi'"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_anything_starts(
    world_size, backend, message
):
    with pytest.raises(ValueError, match=message):
        serve_sharded(PROMPTS, world_size=world_size, backend=backend)


def test_nccl_takes_a_gpu_for_each_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (
        choose_backend(2) == "nccl"
        and choose_backend(4) == "gloo"
        and choose_backend(2, "gloo") == "gloo"
    )
    with pytest.raises(ValueError, match="a GPU for each of the 4 ranks, and PyTorch sees 2"):
        choose_backend(4, "nccl")
    with pytest.raises(TypeError):
        choose_backend(1.5)


def test_the_command_compares_one_rank_with_several(monkeypatch, capsys):
    calls = []

    def pretend(prompts, params, world_size, backend, load, turns, **options):
        calls.append((world_size, backend))
        return shards.ShardedRun([[1, 2]] * len(prompts), 0.5, 8_000_000 // world_size)

    monkeypatch.setattr(command, "run_sharded", pretend)
    assert command.main(["--world-size", "2", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert (
        calls == [(1, "gloo"), (2, "gloo")]
        and "2 ranks: 64 tokens, 128 a second, 4.0 MB of cache a rank" in shown
    )
    assert "the same tokens for 32 of 32 requests" in shown
    with pytest.raises(SystemExit):
        command.main(["--world-size", "0", "--device", "cpu"])
    assert "must be 1 or more" in capsys.readouterr().err
