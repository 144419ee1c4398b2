"""Counts the host's work in a step of the engine: `python -m tools.bench host_steps`.

It compares a small engine with engines that have ten times the pool, the cached blocks, the
waiting requests or the running requests. There is no model, so only the host's part is left.
The count is of function calls, including calls of C functions and comparisons of requests. It
is the same on each machine. Seconds are printed too. Exits with 1 if a step costs more than
MOST times as many calls for each of its requests, because something is larger that the step
does not use.
"""

import datetime
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from lessons_content.bench_records.command import Command
from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.request import Request, SamplingParams

BLOCK_SIZE, STEPS = 16, 24
MOST = 1.3


@dataclass(frozen=True)
class Sizes:
    """num_blocks: of the pool. cached: how many of them ended requests have left in it."""

    num_blocks: int = 1000
    cached: int = 300
    waiting: int = 100
    running: int = 8


BASE = Sizes()
LARGER = {
    "as it is": BASE,
    "pool × 10": replace(BASE, num_blocks=10 * BASE.num_blocks),
    "pool and cached × 10": replace(BASE, num_blocks=10_000, cached=10 * BASE.cached),
    "a full pool": replace(BASE, cached=BASE.num_blocks),
    "a full pool × 10": replace(BASE, num_blocks=10_000, cached=10_000),
    "waiting × 10": replace(BASE, waiting=10 * BASE.waiting),
    "running × 10": replace(BASE, running=10 * BASE.running),
}


@dataclass(frozen=True)
class Row:
    """The cost of a step for each of its requests, on average over STEPS steps."""

    name: str
    sizes: Sizes
    calls: float
    microseconds: float


@dataclass(frozen=True)
class Run(Record, kept_in="host_steps"):
    """The results of one call of the benchmark. card: the processor's kind."""

    card: str
    device: str
    python: str
    torch: str
    date: str
    command: str
    rows: tuple[Row, ...]


class SeenRequest(Request):
    """A request whose comparisons are calls, so that they are counted."""

    def __eq__(self, other):
        return self is other

    __hash__ = Request.__hash__


def engine_of(model, sizes: Sizes) -> Engine:
    """An engine with pool and queues of these sizes, filled."""
    engine = Engine(
        model,
        num_blocks=sizes.num_blocks,
        block_size=BLOCK_SIZE,
        token_budget=8192,
        max_num_seqs=sizes.running,
        path="batched",
    )
    logits = torch.zeros(max(64, sizes.running), model.config.vocab_size)
    engine.runner.run = lambda scheduled: logits[: len(scheduled)]  # type: ignore[method-assign]
    one = SamplingParams(max_new_tokens=1)
    number = 0
    while len(engine.prefix_cache.blocks) < sizes.cached:
        wanted = min(30, sizes.cached - len(engine.prefix_cache.blocks))
        engine.generate([own_prompt(number, wanted * BLOCK_SIZE + 1)], one)
        if engine.manager.block_manager.get_num_free_blocks() < 31:
            break  # no more blocks can be cached
        number += 1
    for place in range(sizes.running + sizes.waiting):
        params = SamplingParams(max_new_tokens=8 + 5 * place % 24, ignore_end=True)
        request = SeenRequest(place, own_prompt(10_000 + place, 20 + 7 * place % 40), params)
        engine.requests[place] = request
        engine.scheduler.waiting.append(request)
    return engine


def own_prompt(number: int, length: int) -> list[int]:
    """A prompt that differs from those with other numbers from its first block on."""
    digits = [number // 30**place % 30 for place in range(4)]
    return (digits + [7] * length)[:length]


def measure(model, name: str, sizes: Sizes) -> Row:
    """Counts calls in one engine and times another, because counting takes time itself."""
    calls = scheduled = 0
    engine = engine_of(model, sizes)

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    for _ in range(STEPS):
        sys.setprofile(count)
        try:
            scheduled += len(engine.step())
        finally:
            sys.setprofile(before)
    engine = engine_of(model, sizes)
    start = time.process_time()
    for _ in range(STEPS):
        engine.step()
    seconds = time.process_time() - start
    return Row(name, sizes, calls / scheduled, 1e6 * seconds / scheduled)


def table(run: Run) -> str:
    lines = [["", "blocks", "cached", "waiting", "running", "calls", "of the first", "µs"]]
    for row in run.rows:
        each = row.sizes
        counts = [each.num_blocks, each.cached, each.waiting, each.running]
        numbers = [f"{count:,}" for count in counts]
        share = row.calls / run.rows[0].calls
        numbers += [f"{row.calls:.1f}", f"{share:.2f}", f"{row.microseconds:.1f}"]
        lines.append([row.name, *numbers])
    return (
        f"{run.card}, Python {run.python}, PyTorch {run.torch}, {run.date}\n"
        f"{run.command_today}\n"
        f"for each request of a step, over {STEPS} steps\n\n{aligned(lines)}"
    )


def main(words: Sequence[str] | None = None) -> int:
    command = Command("host_steps", "Counts what the host does in a step.", Run, table)
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    model = load_model()
    run = Run(
        card=platform.machine(),
        device="cpu",
        python=platform.python_version(),
        torch=torch.__version__,
        date=datetime.date.today().isoformat(),
        command=command.line(arguments),
        rows=tuple(measure(model, name, sizes) for name, sizes in LARGER.items()),
    )
    costly = [row.name for row in run.rows if row.calls > MOST * run.rows[0].calls]
    fault = f"a step costs more with {', '.join(costly)}" if costly else ""
    return command.keep(run, arguments, fault)


if __name__ == "__main__":
    sys.exit(main())
