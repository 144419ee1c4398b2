"""Compares backends on one workload: each result with float64, then the times, in turns."""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lessons_content.lesson_07.bench.backends import (
    TIMES_THE_L2,
    Backend,
    Batch,
    make_batch,
    reference,
)
from lessons_content.lesson_07.bench.ladder_runs import Row
from lessons_content.lesson_07.bench.workloads import Workload
from paged_attention.ladder.decode import FP8

ROUNDS, ROUNDS_OF_SLOW = 30, 9
QUICK_ROUNDS, QUICK_ROUNDS_OF_SLOW = 9, 3
SLOW = 10.0  # milliseconds
# Results are rounded to 11 bits in float16 and to 8 in bfloat16. The weights that multiply the
# values are rounded to as many.
MOST_ERROR = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class _Entry:
    """A backend in the comparison. `runs` has one for each cache, ready to be timed."""

    backend: Backend
    kv_bytes: int
    runs: list[Callable[[], Tensor]] = field(default_factory=list)
    rounds: int = 0
    times: list[float] = field(default_factory=list)
    error: float | None = None
    reason: str = ""

    def row(self, workload: str, limit: float) -> Row:
        milliseconds = statistics.median(self.times) if self.times else None
        rate = self.kv_bytes / milliseconds / 1e6 if milliseconds else None
        return Row(
            workload,
            self.backend.name,
            self.backend.title,
            milliseconds,
            self.kv_bytes,
            rate,
            rate / limit if rate else None,
            self.error,
            self.reason,
        )


def compare(
    machine,
    workload: Workload,
    backends: Sequence[Backend],
    limit: float,
    quick: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """A row for each backend.

    If a backend fails, its row has a reason and no time. If its result is wrong, it has both.
    """
    entries = []
    for fp8 in (False, True):
        kv_bytes = workload.kv_bytes(FP8 if fp8 else None)
        group = [
            _Entry(backend, kv_bytes, reason=backend.missing())
            for backend in backends
            if backend.fp8 == fp8
        ]
        able = [entry for entry in group if not entry.reason]
        try:
            machine.clean()
            batch = expected = None
            if able:
                count = num_caches(kv_bytes, machine.l2_bytes())
                batch = make_batch(workload, count, machine.device, fp8)
                expected = reference(batch)
        except Exception as error:  # too little memory, or an earlier kernel broke the GPU
            for entry in able:
                entry.reason = f"no tensors: {_words(error)}"
        else:
            for entry in able:
                _prepare(entry, batch, expected, machine, quick)
        entries += group
    _take_turns(entries, machine)
    rows = {entry.backend.name: entry.row(workload.name, limit) for entry in entries}
    for row in rows.values():
        say(_line(row))
    return [rows[backend.name] for backend in backends]


def num_caches(kv_bytes: int, l2_bytes: int) -> int:
    """The number of caches that pushes a cache out of the L2 before it is used again."""
    return 1 + max(1, math.ceil(TIMES_THE_L2 * l2_bytes / max(1, kv_bytes)))


def _prepare(entry: _Entry, batch: Batch, expected: Tensor, machine, quick: bool) -> None:
    """Fills in runs, rounds, error and reason."""
    try:
        calls = entry.backend.build(batch)
        first = calls[0]().clone()
        runs = [machine.prepare(call) for call in calls]
        runs[0]().fill_(math.nan)  # then a replay that writes nothing is noticed
        second = runs[0]().clone()
        deviation = max(
            float((result.double() - expected).abs().max()) for result in (first, second)
        )
        if not all(result.isfinite().all() for result in (first, second)):
            entry.reason = "the result holds NaN or infinity"
        elif deviation > (allowed := MOST_ERROR[batch.workload.dtype]):
            entry.reason = (
                f"the result is {deviation:.1e} away from float64, "
                f"and {allowed:.1e} is allowed"
            )
        elif entry.backend.rung is not None and not torch.equal(first, second):
            # a rung gives the same bits every time
            difference = float((first.double() - second.double()).abs().max())
            entry.reason = f"two runs differ by {difference:.1e}"
        entry.error = deviation if math.isfinite(deviation) else None
        slow = machine.milliseconds(runs[-1]) > SLOW
        if quick:
            entry.rounds = QUICK_ROUNDS_OF_SLOW if slow else QUICK_ROUNDS
        else:
            entry.rounds = ROUNDS_OF_SLOW if slow else ROUNDS
        entry.runs = runs
    except Exception as error:
        entry.reason = _words(error)


def _take_turns(entries: list[_Entry], machine) -> None:
    """Times all backends that are ready.

    Each run reads the cache that has not been used for the longest time.
    """
    used = {False: 0, True: 0}
    for number in turns([entry.rounds for entry in entries]):
        entry = entries[number]
        cache = used[entry.backend.fp8] % len(entry.runs)
        used[entry.backend.fp8] += 1
        try:
            entry.times.append(machine.milliseconds(entry.runs[cache]))
        except Exception as error:
            entry.reason, entry.times = _words(error), []
            break  # the GPU stays broken in this process


def turns(rounds: Sequence[int]) -> Iterator[int]:
    """Whose turn it is: 0, 1, 2, 0, 1, 2, … Backends drop out after their last round."""
    for done in range(max(rounds, default=0)):
        yield from (number for number, count in enumerate(rounds) if done < count)


def _words(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = re.sub(r"\S*/\S+", "…", text)  # paths of this machine
    return text if len(text) <= 300 else f"{text[:300]} …"


def _line(row: Row) -> str:
    if row.milliseconds is None:
        result = row.reason
    else:
        reason = row.reason and f"({row.reason})"
        result = f"{row.milliseconds:.4f} ms, {row.share_of_limit:.0%} of the limit {reason}"
    return f"{row.workload:16} {row.backend:24} {result}".rstrip()
