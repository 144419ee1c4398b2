"""Requests for the fast engine, the parts that it may have, and what the plain one gives."""

import functools
import itertools

import torch
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import encode
from traces import actions

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALL_PARTS = [
    FastParts(*chosen)
    for chosen in itertools.product((True, False), repeat=6)
    if not chosen[5] or (chosen[2] and chosen[4])
]
PROMPTS = ["?ab>", "a1b2?a>", "a1b2c3d4?c>", "a1b2c3d4?b>", "C", "a1b2c3d4e5f6?e>"]

all_sizes = st.fixed_dictionaries(
    {
        "block_size": st.just(4),
        "num_blocks": st.integers(9, 16),
        "token_budget": st.integers(3, 40),
        "max_num_seqs": st.integers(1, 5),
        "prefix_sharing": st.booleans(),
    }
)


@functools.cache
def model(device: str = "cpu"):
    return load_model(device=device)


def prompts() -> list[list[int]]:
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


def some_traces(prompts: list[list[int]]):
    params = st.integers(0, 11).map(params_of)
    return st.lists(actions(st.sampled_from(prompts), params), min_size=3, max_size=16)


@functools.cache
def alone(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    """What the plain engine gives when nothing else runs."""
    engine = Engine(model(), num_blocks=40, block_size=4, path="batched")
    return engine.generate([list(prompt)], params)[0].output


def assert_as_alone(requests) -> None:
    for request in requests:
        expected = alone(tuple(request.prompt), request.params)
        if request.reason == "cancelled":
            expected = expected[: len(request.output)]
        assert request.output == expected
