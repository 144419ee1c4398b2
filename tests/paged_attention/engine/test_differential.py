"""Random scenarios on all engines, against transformers with its own cache.

An engine has random sizes and one of many paths or sets of fast parts. Requests come at random
steps, some as several answers to one prompt, greedy and drawn. They are cancelled, and made to
give their blocks back. Each token must be the one that transformers' logits give.

SCENARIOS says how many there are, and SEED which ones. A failure prints its number:
`FIRST=number SCENARIOS=1` runs it alone.
"""

import functools
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from echo import assert_nothing_is_lost
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample
from paged_attention.tiny_qwen3.tasks import encode, recall

pytestmark = [pytest.mark.usefixtures("one_thread")]
SEED = int(os.environ.get("SEED", "0"))
FIRST = int(os.environ.get("FIRST", "0"))
NUM_SCENARIOS = int(os.environ.get("SCENARIOS", "0"))
PARTS = 16  # of the many scenarios, for as many processors
MOST = 12  # tokens of an answer
LONG, _ = recall(np.random.default_rng(3), 1.0, 230)
TEXTS = (
    LONG,
    "C",
    "Cab>",
    "Szebra>",
    "Ka17..q42......z93?zq>",
    "Ka17..q42......z93?qa>",
    "?ab>a1",
)
PARAMS = [
    SamplingParams(MOST, ignore_end=True),
    SamplingParams(MOST),
    *(SamplingParams(MOST, 2.5, top_k=9, seed=seed, ignore_end=True) for seed in range(4)),
    SamplingParams(MOST, 1.5, top_p=0.95, seed=7),
]
FAST = [
    None,
    FastParts(),
    FastParts.none(),
    replace(FastParts.none(), state=True, sampling=True, ahead=True),
    replace(FastParts(), ahead=False),
    replace(FastParts(), graphs=False),
]


@functools.cache
def model():
    return load_model()


@functools.cache
def expected(text: str, index: int) -> tuple[list[int], str]:
    """What transformers gives, with its own cache: MOST tokens or fewer, and why it ended."""
    tokens, past, params = encode(text), None, PARAMS[index]
    feed, output = tokens, []
    while len(output) < MOST:
        with torch.inference_mode():
            result = model()(torch.tensor([feed]), past_key_values=past, use_cache=True)
        past = result.past_key_values
        output.append(sample(result.logits[0, -1], params, len(tokens) + len(output)))
        feed = output[-1:]
        if feed[0] == model().config.eos_token_id and not params.ignore_end:
            return output, "end"
    return output, "length"


def engine_for(chance: random.Random) -> Engine:
    block_size = chance.choice((1, 2, 4, 8, 16))
    longest = max(map(len, map(encode, TEXTS))) + MOST
    options = dict(
        block_size=block_size,
        num_blocks=-(-longest // block_size) + chance.randint(0, 60 // block_size),
        token_budget=chance.choice((1, 3, 7, 16, 40)),
        max_num_seqs=chance.randint(1, 6),
        prefix_sharing=chance.random() < 0.6,
    )
    parts = chance.choice(FAST)
    if parts is None:
        path = chance.choice(("gather", "paged_torch", "blockwise", "batched", "in_place"))
        return Engine(model(), path=path, **options)
    return fast_engine(
        model(), parts, sizes=[chance.randint(1, options["max_num_seqs"])], **options
    )


def run_scenario(number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    engine, asked = engine_for(chance), []  # (request, text, index of its parameters)

    def add(name: int) -> None:
        text = chance.choice(TEXTS)
        indices = chance.choices(range(len(PARAMS)), k=chance.choice((1, 1, 2, 4)))
        own = [replace(PARAMS[i], max_new_tokens=chance.randint(1, MOST)) for i in indices]
        ids = [(name, place) for place in range(len(own))]
        for request, index in zip(engine.add_answers(ids, encode(text), own), indices):
            asked.append((request, text, index))

    def step() -> None:
        for _ in range(chance.randint(1, 4)):
            engine.step()

    def cancel() -> None:
        if engine.requests:
            engine.cancel(chance.choice(list(engine.requests)))

    def preempt() -> None:
        if engine.scheduler.running:
            engine.scheduler.preempt(chance.choice(engine.scheduler.running))

    for name in range(chance.randint(2, 9)):
        chance.choice((lambda name=name: add(name), step, step, cancel, preempt))()
        add(name + 100) if chance.random() < 0.3 else None
    engine.run()
    for request, text, index in asked:
        tokens, reason = expected(text, index)
        most = request.params.max_new_tokens
        assert request.output == tokens[: len(request.output)]
        if request.reason != "cancelled":
            assert len(request.output) == min(most, len(tokens))
            assert request.reason == (reason if len(tokens) <= most else "length") or (
                reason == "end" and len(tokens) == most
            )
    assert_nothing_is_lost(engine)


def run_all(first: int, count: int) -> None:
    for number in range(first, first + count):
        try:
            run_scenario(number)
        except Exception as error:
            error.add_note(f"SEED={SEED} FIRST={number} SCENARIOS=1 runs this scenario alone")
            raise


def test_a_few_scenarios_are_as_in_transformers():
    run_all(FIRST, min(NUM_SCENARIOS, 4) or 4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_scenarios_are_as_in_transformers(part):
    count = NUM_SCENARIOS or 500
    first, end = (count * edge // PARTS for edge in (part, part + 1))
    run_all(FIRST + first, end - first)
