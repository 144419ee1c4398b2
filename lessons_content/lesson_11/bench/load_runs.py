"""Runs of the load's benchmark, in files and as tables."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class LoadRow:
    """The clients' results at one load.

    per_second: requests that arrive in a second on average; None if all came at once.
    refused: requests that a full server told to come again later.
    lost: other requests without a whole answer. `reasons` says why, without repeats.
    right: answers that solve the task.
    most_open: the largest number of requests that were open at the same time.
    seconds: from the first request to the last answer.
    first: seconds to the first token, (p50, p99).
    between: seconds between tokens, (p50, p99).
    """

    per_second: float | None
    requests: int
    refused: int
    lost: int
    right: int
    most_open: int
    tokens: int
    seconds: float
    first: tuple[float, float] | None
    between: tuple[float, float] | None
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "all at once" if self.per_second is None else f"{self.per_second:g} a second"


@dataclass(frozen=True)
class LoadRun(Record, kept_in="load"):
    """The results of one call of the benchmark.

    card: the GPU's name, or the processor's.
    cores: that server and clients share.
    """

    card: str
    device: str
    cores: int
    python: str
    torch: str
    tornado: str
    date: str
    command: str
    model: str
    rows: tuple[LoadRow, ...]


def _row(content: dict) -> LoadRow:
    pairs = {name: content[name] and tuple(content[name]) for name in ("first", "between")}
    return LoadRow(**content | pairs | {"reasons": tuple(content["reasons"])})


recorded = LoadRun.recorded


def table(run: LoadRun) -> str:
    """All results, as text; times in milliseconds."""
    lines = [
        [
            *("arrivals", "requests", "refused", "lost", "right", "open", "tokens/s"),
            *("first p50", "first p99", "between p50", "between p99"),
        ]
    ]
    for row in run.rows:
        pairs = [*(row.first or (None, None)), *(row.between or (None, None))]
        counts = map(str, (row.requests, row.refused, row.lost, row.right, row.most_open))
        times = ("–" if each is None else f"{1000 * each:,.1f}" for each in pairs)
        lines.append([row.name, *counts, f"{row.tokens / row.seconds:,.0f}", *times])
    reasons = [f"! {row.name}: {reason}" for row in run.rows for reason in row.reasons]
    where = (
        f"{run.card}, {run.cores} cores, Python {run.python}, PyTorch {run.torch}, "
        f"tornado {run.tornado}, {run.date}\n{run.command_today}\n{run.model}"
    )
    return "\n\n".join(filter(None, (where, aligned(lines), "\n".join(reasons))))
