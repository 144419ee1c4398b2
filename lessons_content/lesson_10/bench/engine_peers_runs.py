"""Runs of the benchmark of peers, in files and as tables."""

import statistics
from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned
from lessons_content.lesson_10.bench.host_calls import CallRow


@dataclass(frozen=True)
class PeerRow:
    """A trace that our engine and a peer served in turns.

    tokens: new tokens of all requests.
    ours, theirs: seconds of each turn.
    our_ready, their_ready: seconds until the engine could take its first request.
    same_first: the share of requests whose first new token is the same in both, in all turns.
    reason: why there are no turns.
    """

    trace: str
    peer: str
    tokens: int
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    our_ready: float = 0.0
    their_ready: float = 0.0
    same_first: float = 0.0
    reason: str = ""

    @property
    def our_rate(self) -> float:
        """New tokens a second, of the median turn."""
        return self.tokens / statistics.median(self.ours)

    @property
    def their_rate(self) -> float:
        return self.tokens / statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """How many times as fast as the peer our engine is."""
        return self.our_rate / self.their_rate


@dataclass(frozen=True)
class Run(Record, kept_in="engine_peers"):
    """The results of one call of the benchmark.

    versions: of the peers and of FlashInfer.
    calls: the host's time for a call of a decode kernel, in the same run.
    """

    card: str
    driver: str
    torch: str
    date: str
    command: str
    model: str
    versions: dict[str, str]
    rows: tuple[PeerRow, ...]
    calls: tuple[CallRow, ...] = ()


recorded = Run.recorded


def table(run: Run) -> str:
    """All results, as text."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    where = f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}"
    parts = [f"{where}\n{versions}\n{run.command_today}\n{run.model}"]
    parts += [
        _trace_table(run, trace) for trace in dict.fromkeys(row.trace for row in run.rows)
    ]
    parts.append(_calls_table(run))
    parts.append("\n".join(f"! {row.peer}: {row.reason}" for row in run.rows if row.reason))
    return "\n\n".join(filter(None, parts))


def _trace_table(run: Run, trace: str) -> str:
    lines = [["beside", "theirs", "ours", "ratio", "ready in", "same first"]]
    for row in run.rows:
        if row.trace != trace:
            continue
        if row.reason:
            lines.append([row.peer, "– !", "–", "–", "–", "–"])
            continue
        lines.append(
            [
                row.peer,
                _rates(row.tokens, row.theirs),
                _rates(row.tokens, row.ours),
                f"{row.ratio:.2f}",
                f"{row.their_ready:.0f} s",
                f"{100 * row.same_first:.0f} %",
            ]
        )
    return f"{trace}, tokens/s (slowest–fastest turn)\n{aligned(lines)}"


def _calls_table(run: Run) -> str:
    if not run.calls:
        return ""
    lines = [["the host's time for a call, µs", "ours", "FlashInfer", "its plan", "its run"]]
    for row in run.calls:
        numbers = row.ours, row.plan + row.run, row.plan, row.run
        lines.append([row.workload, *(f"{number:,.0f}" for number in numbers)])
    return aligned(lines)


def _rates(tokens: int, seconds: tuple[float, ...]) -> str:
    middle = tokens / statistics.median(seconds)
    return f"{middle:,.0f} ({tokens / max(seconds):,.0f}–{tokens / min(seconds):,.0f})"
