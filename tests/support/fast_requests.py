"""Requests for the fast engine, the parts that it may have, and what the plain one gives."""

import contextlib
import functools
import itertools

import torch
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.request import RequestError, SamplingParams
from paged_attention.tiny_qwen3.tasks import encode

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALL_PARTS = [
    FastParts(*chosen)
    for chosen in itertools.product((True, False), repeat=6)
    if not chosen[5] or (chosen[2] and chosen[4])
]
PROMPTS = ["?ab>", "a1b2?a>", "a1b2c3d4?c>", "a1b2c3d4?b>", "C", "a1b2c3d4e5f6?e>"]

actions = st.one_of(
    st.tuples(st.just("add"), st.integers(0, len(PROMPTS) - 1), st.integers(0, 11)),
    st.tuples(st.just("answers"), st.integers(0, len(PROMPTS) - 1), st.integers(0, 11)),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("preempt"), st.integers(0, 2)),
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


def nothing_is_lost(engine) -> bool:
    pool = engine.manager.block_manager
    kept = engine.prefix_cache.num_evictable()
    return pool.get_num_free_blocks() + kept == engine.manager.kv_cache.shape[2]


def play(engine, trace, request_of) -> list:
    """Does what a trace says, and returns the requests that were accepted.

    request_of: gives the prompt and the parameters for a number.
    """
    accepted = []
    for number, (action, *details) in enumerate(trace):
        if action == "step":
            for _ in range(details[0]):
                engine.step()
        elif action == "preempt":
            for request in engine.scheduler.running[details[0] : details[0] + 1]:
                engine.scheduler.preempt(request)
        elif action == "cancel":
            if details[0] < len(accepted) and accepted[details[0]].reason is None:
                engine.cancel(accepted[details[0]].id)
        else:
            first = details[0] + len(PROMPTS) * details[1]
            places = range(3 if action == "answers" else 1)
            ids = [(number, place) for place in places]
            params = [request_of(first + len(PROMPTS) * place)[1] for place in places]
            with contextlib.suppress(RequestError):
                accepted += engine.add_answers(ids, request_of(first)[0], params)
    engine.run()
    return accepted
