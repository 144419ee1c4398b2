"""Attention's share of a decode step: the engine's steps, and all layers' attention alone."""

import copy
import statistics
import time

import numpy as np
import torch

from lessons_content.lesson_08.bench.servers import BLOCK_SIZE
from lessons_content.lesson_08.bench.serving_runs import ShareRow
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import SamplingParams

STEPS, WARM_UP = 20, 5


def attention_share(model, num_seqs: int, context: int, path: str) -> ShareRow:
    """The share in a step in which num_seqs sequences decode, each with `context` tokens.

    If measuring fails, the row has the reason.
    """
    step = attention = busy = None
    try:
        engine = decoding_engine(copy.deepcopy(model), num_seqs, context, path)
        for _ in range(WARM_UP):
            engine.step()
        step = statistics.median(_milliseconds(engine.step) for _ in range(STEPS))
        attention = _attention(engine)
        busy = _busy(engine)
    except Exception as error:  # such as too little memory, or an old version
        return ShareRow(
            num_seqs,
            context,
            step,
            attention,
            busy,
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        )
    return ShareRow(num_seqs, context, step, attention, busy)


def decoding_engine(model, num_seqs: int, context: int, path: str) -> Engine:
    """An engine whose requests are all in the middle of their answers, with a random cache."""
    num_steps = 3 * (STEPS + WARM_UP)
    engine = Engine(
        model,
        num_blocks=num_seqs * -(-(context + num_steps) // BLOCK_SIZE),
        block_size=BLOCK_SIZE,
        token_budget=num_seqs,
        max_num_seqs=num_seqs,
        path=path,
        prefix_sharing=False,
    )
    for layer in engine.manager.kv_cache:
        layer.normal_()
    random = np.random.default_rng(8)
    for index in range(num_seqs):
        prompt = random.integers(0, engine.vocab_size, context).tolist()
        request = engine.add(
            index, prompt, SamplingParams(max_new_tokens=num_steps, ignore_end=True)
        )
        engine.manager.add_sequence(index, context - 1)
        request.num_computed = context - 1
        engine.scheduler.running.append(engine.scheduler.waiting.popleft())
    return engine


def _attention(engine: Engine) -> float:
    """Milliseconds of the attention of all layers in one step, one right after the other."""
    calls, plan = [], engine.runner.plan

    def recording(metadata):
        attend = plan(metadata)

        def attend_and_keep(*tensors):
            calls.append(
                (
                    attend,
                    tuple(
                        tensor.clone() if index == 0 else tensor
                        for index, tensor in enumerate(tensors)
                    ),
                )
            )
            return attend(*tensors)

        return attend_and_keep

    engine.runner.plan = recording
    engine.step()
    engine.runner.plan = plan
    with torch.inference_mode():
        return statistics.median(
            _replayed(lambda: [attend(*tensors) for attend, tensors in calls])
            for _ in range(3)
        )


def _replayed(function) -> float:
    """Milliseconds that the function computes.

    On a GPU it is replayed as a CUDA graph, so that launches take no time. If recording the
    graph fails, the function is called instead.
    """
    if not torch.cuda.is_available():
        function()
        return statistics.median(_milliseconds(function) for _ in range(STEPS))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = function()
        run = graph.replay
    except Exception:
        torch.cuda.synchronize()
        kept, run = None, function
    run()
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(STEPS):
        run()
    end.record()
    torch.cuda.synchronize()
    del kept
    return start.elapsed_time(end) / STEPS


def _busy(engine: Engine) -> float | None:
    """Milliseconds of a step in which the GPU computes. None if the profiler cannot say."""
    if engine.manager.kv_cache.device.type != "cuda":
        return None
    try:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(WARM_UP):
                engine.step()
            torch.cuda.synchronize()
        return (
            sum(event.self_device_time_total for event in profiler.key_averages())
            / 1000
            / WARM_UP
            or None
        )
    except Exception:
        return None


def _milliseconds(function) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000
