"""The host of the fast engine waits for the GPU in one place: `Arriving.wait`."""

import functools

import pytest
import torch

from lessons_content.lesson_10.bench.timeline_runs import is_wait
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.wider import with_head_size
from tools.bench.timeline import GPU_WORK, HOST_CALLS, STEP, profiled
from watched_device import ReadOnHost, watched

# With heads of 32 float32 numbers, a step takes the slower kernels. With the others it takes
# rung 9 and the prompts' kernel.
SHAPES = {"small": (32, torch.float32), "wide": (128, torch.float16)}
shapes = pytest.mark.parametrize("shape", SHAPES)
STEPS = 8


pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def model_of(shape: str, device: str):
    head_size, dtype = SHAPES[shape]
    return with_head_size(load_model(), head_size).to(device, dtype)


def engine_of(shape: str, device: str, **parts):
    """An engine with three requests that decode. One of them is sampled."""
    options = dict(num_blocks=80, block_size=16, max_num_seqs=5, token_budget=8)
    engine = fast_engine(model_of(shape, device), FastParts(**parts), **options)
    assert set(engine.runner.reasons) == ({"plan"} if shape == "small" else set())
    for number in range(3):
        add(engine, number, 2 + number, temperature=float(number == 1), seed=number)
    while len(engine.requests[2].output) < 2:
        engine.step()
    return engine


def add(engine, id, length: int, **params):
    prompt = [1 + place % 20 for place in range(length)]
    engine.add(id, prompt, SamplingParams(max_new_tokens=40, ignore_end=True, **params))


def steps(engine, kind: str):
    """STEPS steps. In mixed ones, a prompt is computed in chunks beside the decodes, and a
    request is cancelled.
    """
    if kind == "mixed":
        add(engine, "chunks", 8 * STEPS)
    for number in range(STEPS):
        if kind == "mixed" and number == 3:
            engine.cancel(0)
        assert engine.step()
    assert kind == "decodes" or engine.requests["chunks"].num_uncomputed > 1


kinds = pytest.mark.parametrize("kind", ["decodes", "mixed"])


# On a GPU


@pytest.mark.gpu
@shapes
@kinds
def test_a_profile_has_one_wait_a_step(shape, kind):
    """A profile has each call, from any library, and each copy with its kinds of memory. So it
    has calls that PyTorch does not see.
    """
    steps(engine_of(shape, "cuda"), kind)
    engine = engine_of(shape, "cuda")
    if kind == "mixed":
        add(engine, "chunks", 8 * STEPS)
    trace = [each for each in profiled(engine) if each.get("ph") == "X"]
    marks = [each for each in trace if each["name"] == STEP]
    marks = [each for each in marks if each["cat"] == "user_annotation"]
    in_steps = [
        each["name"]
        for each in trace
        if each.get("cat") in (*HOST_CALLS, *GPU_WORK)
        and any(0 <= each["ts"] - mark["ts"] < mark["dur"] for mark in marks)
    ]
    waits = [name for name in in_steps if is_wait(name)]
    assert waits == ["cudaEventSynchronize"] * len(marks)
    assert [name for name in in_steps if "Pageable" in name] == []


# Without a GPU


@shapes
@kinds
def test_the_host_reads_only_what_has_arrived(shape, kind, monkeypatch):
    engine = engine_of(shape, "cpu")
    with watched(engine, monkeypatch):
        steps(engine, kind)


@pytest.mark.parametrize("read", [torch.Tensor.cpu, lambda x: bool(x.isfinite().all())])
def test_another_read_is_noticed(read, monkeypatch):
    engine = engine_of("small", "cpu", layers=False)
    norm = engine.runner.model.model.norm
    hook = norm.register_forward_hook(lambda module, given, x: (read(x), None)[1])
    try:
        with watched(engine, monkeypatch), pytest.raises(ReadOnHost):
            steps(engine, "mixed")
    finally:
        hook.remove()
