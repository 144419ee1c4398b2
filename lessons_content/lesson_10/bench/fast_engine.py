"""Times the engine with its fast parts: `python -m tools.bench fast_engine`, on a GPU.

The parts are added one by one, and each engine serves a trace. The first and the last engine
serve a longer trace too. All requests are there at once, and the tokens are greedy. Each
engine is warmed up first, with two new tokens for each request. At the end, two decode steps
are measured in parts.
"""

import gc
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from lessons_content.bench_records.command import Command
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_07.bench.backends import Gpu
from lessons_content.lesson_08.bench.servers import BLOCK_SIZE, random_model, random_trace
from lessons_content.lesson_08.bench.serving import MODELS
from lessons_content.lesson_10.bench.fast_engine_runs import Run, StepRow, TraceRow, table
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.request import SamplingParams
from paged_attention.ladder.rungs import FP8

TOKEN_BUDGET = 8192
ENOUGH_SECONDS = 15  # after this time, an engine gets no further turn
# In the order in which the parts are added.
ORDER = ("graphs", "state", "plan", "layers", "sampling", "ahead")
STEPS = ((64, 610), (256, 850))  # sequences, and their mean context
KINDS = {  # of kernels, by words in their names
    "attention": ("planned_kernel",),
    "products of matrices": ("few_rows", "nvjet", "gemm", "splitK", "cutlass", "xmma"),
    "norms, rotation, gate": ("add_norm", "rotate_kernel", "gate_kernel"),
    "plan and state": ("plan_kernel", "advance_kernel"),
}
OTHERS = "tokens and the rest"


@dataclass(frozen=True)
class Trace:
    """Requests that are all there at once, and the number of new tokens for each."""

    name: str
    prompts: list[list[int]]
    new_tokens: list[int]

    @property
    def num_blocks(self) -> int:
        pairs = zip(self.prompts, self.new_tokens, strict=True)
        return sum(-(-(len(prompt) + new) // BLOCK_SIZE) for prompt, new in pairs)


def traces(vocab_size: int) -> list[Trace]:
    """Lesson 08's trace of 64 requests, and a trace of 256 with all lengths, in and out."""
    short = random_trace(vocab_size)
    chance = random.Random(0)
    prompts = [
        [chance.randrange(10_000) for _ in range(chance.randint(100, 1024))]
        for _ in range(256)
    ]
    return [
        Trace(
            "64 requests, prompts of 143 to 1,013, 128 new each",
            short.prompts,
            [short.max_new_tokens] * len(short.prompts),
        ),
        Trace(
            "256 requests, 100 to 1,024 in and out",
            prompts,
            [chance.randint(100, 1024) for _ in prompts],
        ),
    ]


def engines() -> dict[str, FastParts | None]:
    """The engines by title: lesson 08's engine, and then engines with one more part each."""
    named: dict[str, FastParts | None] = {"lesson 08": None}
    parts = FastParts.none()
    for name in ORDER:
        parts = replace(parts, **{name: True})
        named[f"+ {name}"] = parts
    return named


def engine_with(model, parts: FastParts | None, **options) -> Engine:
    """An engine with these parts. None makes lesson 08's engine."""
    return Engine(model, **options) if parts is None else fast_engine(model, parts, **options)


def serve(
    model, trace: Trace, title: str, parts: FastParts | None, turns: int, expected: list | None
) -> tuple[TraceRow, list[list[int]]]:
    """Lets an engine serve a trace. Returns its row, and its answers.

    expected: the first engine's answers; None if this is the first.
    """
    torch.cuda.synchronize()
    start = time.perf_counter()
    options = dict(
        num_blocks=trace.num_blocks,
        block_size=BLOCK_SIZE,
        token_budget=TOKEN_BUDGET,
        max_num_seqs=len(trace.prompts),
        path="fast",
        prefix_sharing=False,
    )
    engine = engine_with(model, parts, **options)
    torch.cuda.synchronize()
    ready = time.perf_counter() - start
    engine.generate(trace.prompts, SamplingParams(max_new_tokens=2, ignore_end=True))
    params = [SamplingParams(max_new_tokens=n, ignore_end=True) for n in trace.new_tokens]
    seconds: list[float] = []
    while len(seconds) < turns and sum(seconds) < ENOUGH_SECONDS:
        torch.cuda.synchronize()
        start = time.perf_counter()
        results = engine.generate(trace.prompts, params)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    answers = [result.output for result in results]
    row = TraceRow(
        trace=trace.name,
        engine=title,
        parts=tuple(name for name in ORDER if parts is not None and getattr(parts, name)),
        tokens=sum(map(len, answers)),
        seconds=tuple(seconds),
        ready=ready,
        graph_bytes=getattr(engine.runner, "graph_bytes", None),
        same_tokens=same_share(answers, expected or answers),
        reason="; ".join(getattr(engine.runner, "reasons", {}).values()),
    )
    return row, answers


def same_share(answers: list[list[int]], expected: list[list[int]]) -> float:
    """The share of tokens before an answer's first difference."""
    same = 0
    for answer, other in zip(answers, expected, strict=True):
        pairs = zip(answer, other)
        same += next((i for i, (a, b) in enumerate(pairs) if a != b), len(answer))
    return same / sum(map(len, answers))


def take_apart(
    model, num_seqs: int, context: int, read_limit: float, kv_dtype: torch.dtype | None = None
) -> StepRow:
    """Measures a decode step of the complete fast engine, in parts.

    context: the mean length; the lengths are from 0.3 to 1.7 times the mean.
    read_limit: GB/s.
    kv_dtype: of the cache; None takes the model's.
    """
    engine = decoding(model, num_seqs, context, kv_dtype=kv_dtype)
    step = timed(engine)
    num_tokens = sum(len(request.tokens) for request in engine.requests.values())
    bytes_read = _bytes_of(model) + num_tokens * _bytes_of_token(engine)
    return StepRow(
        num_seqs=num_seqs,
        context=context,
        limit=bytes_read / read_limit / 1e6,
        step=step,
        graph=_replayed(engine),
        budget=_budget(engine),
        kv_bits=8 * engine.manager.kv_cache.itemsize,
    )


def decoding(
    model, num_seqs: int, context: int, parts: FastParts | None = FastParts(), **options
) -> Engine:
    """An engine whose requests have all begun to decode, each with 200 new tokens at most."""
    chance = torch.Generator().manual_seed(0)
    shortest, longest = int(context * 0.3), int(context * 1.7)
    lengths = torch.randint(shortest, longest, (num_seqs,), generator=chance).tolist()
    trace = Trace("", [[0] * length for length in lengths], [200] * num_seqs)
    engine = engine_with(
        model,
        parts,
        num_blocks=trace.num_blocks,
        token_budget=2 * TOKEN_BUDGET,
        max_num_seqs=num_seqs,
        path="fast",
        prefix_sharing=False,
        **options,
    )
    for index, prompt in enumerate(trace.prompts):
        engine.add(index, prompt, SamplingParams(max_new_tokens=200, ignore_end=True))
    while any(len(request.output) < 5 for request in engine.requests.values()):
        engine.step()
    return engine


def timed(engine, steps: int = 50) -> float:
    """Milliseconds of a step in the running engine."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(steps):
        engine.step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / steps


def _bytes_of(model) -> int:
    return sum(weight.numel() * weight.itemsize for weight in model.parameters())


def _bytes_of_token(engine) -> int:
    cache = engine.manager.kv_cache
    return cache.numel() * cache.itemsize // (cache.shape[2] * cache.shape[3])


@torch.inference_mode()
def _replayed(engine, times: int = 20) -> float:
    """Milliseconds of the recorded step, which computes the same token again and again."""
    graph = engine.runner.graphs[max(engine.runner.graphs)]
    lengths = engine.runner.state.lengths
    after, before = lengths.clone(), lengths - 1
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        lengths.copy_(before)
        graph.replay()
    end.record()
    lengths.copy_(after)
    torch.cuda.synchronize()
    return start.elapsed_time(end) / times


def _budget(engine, steps: int = 5) -> dict[str, float]:
    """The milliseconds that the kernels of a step take, by kind."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            engine.step()
        torch.cuda.synchronize()
    budget = dict.fromkeys([*KINDS, OTHERS], 0.0)
    for event in profiler.key_averages():
        kinds = (kind for kind, words in KINDS.items() if any(w in event.key for w in words))
        budget[next(kinds, OTHERS)] += event.self_device_time_total / 1000 / steps
    return {kind: round(time, 4) for kind, time in budget.items()}


def measure(turns: int, command: str, say: Callable[[str], None] = lambda line: None) -> Run:
    machine, model = Gpu(), random_model()
    limit = machine.read_limit()
    rows = []
    named = engines()
    ends = list(named)[:1] + list(named)[-1:]
    for trace, titles in zip(
        traces(model.config.vocab_size), (list(named), ends), strict=True
    ):
        expected = None
        for title in titles:
            parts = named[title]
            row, answers = serve(model, trace, title, parts, turns, expected)
            expected = expected or answers
            rows.append(row)
            say(f"{row.engine}, {row.trace}: {row.tokens_per_second:,.0f} tokens/s")
            gc.collect()
            torch.cuda.empty_cache()
    steps = []
    for (num_seqs, context), kv_dtype in itertools.product(STEPS, (None, FP8)):
        steps.append(take_apart(model, num_seqs, context, limit, kv_dtype))
        say(f"{steps[-1]}")
        gc.collect()
        torch.cuda.empty_cache()
    return Run(
        **facts_for(Run),
        command=command,
        model=MODELS["cuda"],
        read_limit=limit,
        rows=tuple(rows),
        steps=tuple(steps),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command(
        "fast_engine",
        "Times the engine on a GPU, with one of its fast parts more each time.",
        Run,
        table,
        _overview,
    )
    return command.in_turns(words, 3, measure)


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.fast_engine import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
