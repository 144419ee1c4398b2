"""Processes that share the KV heads: the tokens of one, clear errors, and none left behind."""

import os
import time

import pytest
import torch

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.parallel.shards import (
    ShardError,
    choose_backend,
    run_sharded,
    serve_sharded,
)
from paged_attention.engine.request import EmptyPromptError, SamplingParams
from paged_attention.tiny_qwen3.tasks import encode
from pretended_card import pretend_gpus
from process_end import children_left

PROMPTS = [
    encode(text)
    for text in ("Cq7b4m>", "Sqxbafgm>", "Ka17..q42" + "." * 30 + "z93?zq>", "Vq7b>", "C1>")
]


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    assert not children_left()


# Loaders that the ranks call


def load_slowly(device):
    time.sleep(60)


def load_and_die_on_rank_1(device):
    if torch.distributed.get_rank() == 1:
        os._exit(3)
    return load_model(device=device)


def load_on_some_ranks_only(device):
    if torch.distributed.get_rank() == 1:
        raise FileNotFoundError("rank 1 has no weights")
    return load_model(device=device)


class WithoutText(Exception):
    """It can be sent, and not be received."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class NotSent(WithoutText):
    def __init__(self, one, two):
        super().__init__(one, two)
        self.what = lambda: one + two


def load_with_an_error_without_text(device):
    raise WithoutText(1, 2)


def load_with_an_error_that_cannot_be_sent(device):
    raise NotSent(1, 2)


def load_other_words_on_rank_1(device):
    model = load_model(device=device)
    if torch.distributed.get_rank() == 1:
        words = model.model.embed_tokens.weight
        words.data = words.data.flip(0)
    return model


def load_one_kv_head(device):
    model = load_model(device="meta")
    model.config.num_key_value_heads = 1
    return model


@pytest.mark.slow
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
    assert run.answers == expected and run.seconds > 0
    assert run.cache_bytes * 2 == engine.manager.kv_cache.nbytes


@pytest.mark.slow
def test_ranks_that_do_not_agree_are_an_error():
    """With one token each, so that no rank ends before the other."""
    params = SamplingParams(max_new_tokens=1)
    with pytest.raises(ShardError, match="the ranks gave different tokens"):
        serve_sharded(PROMPTS, params, backend="gloo", load=load_other_words_on_rank_1)


@pytest.mark.parametrize(
    "load, error, message",
    [
        (load_on_some_ranks_only, FileNotFoundError, "rank 1 has no weights"),
        pytest.param(
            load_and_die_on_rank_1,
            ShardError,
            "rank 1 ended without an answer",
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
    with pytest.raises(error, match=message) as raised:
        serve_sharded(PROMPTS, world_size=2, backend="gloo", load=load)
    if error is FileNotFoundError:
        assert raised.value.__notes__ == ["on rank 1 of 2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "load", [load_with_an_error_without_text, load_with_an_error_that_cannot_be_sent]
)
def test_an_error_that_cannot_travel_comes_as_text(load):
    with pytest.raises(ShardError, match="(WithoutText|NotSent): 1 and 2"):
        serve_sharded(PROMPTS, world_size=1, backend="gloo", load=load)


@pytest.mark.slow
def test_a_request_that_is_refused_is_an_error():
    with pytest.raises(EmptyPromptError, match="empty prompt"):
        serve_sharded([[]], world_size=1, backend="gloo")


def test_ranks_that_take_too_long_are_ended():
    with pytest.raises(ShardError, match="2 of 2 ranks have not answered after 1 s"):
        serve_sharded(PROMPTS, world_size=2, backend="gloo", load=load_slowly, time_limit=1)


@pytest.mark.parametrize(
    "world_size, backend, message",
    [
        (0, None, "world_size must be 1 or more, not 0"),
        (-2, "gloo", "must be 1 or more"),
        (3, "gloo", "must divide the model's 2 KV heads, and 3 does not"),
        (2, "mpi", "'gloo', 'nccl' or None, not 'mpi'"),
        (64, "nccl", "NCCL needs a GPU for each of the 64 ranks"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_anything_starts(
    world_size, backend, message
):
    with pytest.raises(ValueError, match=message):
        serve_sharded(PROMPTS, world_size=world_size, backend=backend)


@pytest.mark.parametrize(
    "num_gpus, world_size, backend, chosen",
    [
        (0, 1, None, "gloo"),
        (0, 2, "gloo", "gloo"),
        (1, 1, None, "nccl"),
        (2, 2, None, "nccl"),
        (2, 1, "nccl", "nccl"),
        (2, 3, None, "gloo"),
        (2, 2, "gloo", "gloo"),
    ],
)
def test_nccl_is_taken_where_each_rank_has_a_gpu(
    monkeypatch, num_gpus, world_size, backend, chosen
):
    pretend_gpus(monkeypatch, num_gpus)
    assert choose_backend(world_size, backend) == chosen
    with pytest.raises(ValueError, match=f"ranks, and PyTorch sees {num_gpus} here"):
        choose_backend(num_gpus + 1, "nccl")
