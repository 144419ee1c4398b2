"""Runs of the benchmark of peers, in files and as tables."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned
from lessons_content.lesson_10.bench.host_calls import CallRow

ALONE = ("vLLM", "serve")  # a run beside one of these has no other peer
Waits = tuple[tuple[float, float], tuple[float, float]]
WAITS = ("first token", "between tokens")


@dataclass(frozen=True)
class PeerRow:
    """A trace that our engine and a peer served in turns.

    tokens: new tokens of all requests.
    ours, theirs: seconds of each turn.
    our_ready, their_ready: seconds until the engine could take its first request.
    same_first: the share of requests whose first new token is the same in both, in all turns.
    reason: why there are no turns.
    cached: the prompts' tokens in the last turn, and how many of them our prefix cache had and
        the peer's; None if neither had any.
    per_second: requests that came in a second; 0 if all were there at the start.
    our_waits, their_waits: seconds until the first token, since the request was due, and
        between tokens, each (p50, p99); None if they were not measured.
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
    cached: tuple[int, int, int] | None = None
    per_second: float = 0.0
    our_waits: Waits | None = None
    their_waits: Waits | None = None

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

    versions: of the peers, and of packages that they use.
    calls: the host's time for a call of a decode kernel, in the same run.
    size: of the model. processor: the host's.
    conditions: by the traces that were served with them, the settings of both engines.
    note: why something is missing.
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
    size: str = "0.6B"
    processor: str = ""
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    note: str = ""

    @property
    def alone(self) -> list[str]:
        """vLLM or `serve`, if this is a run beside it."""
        return [peer for peer in ALONE if any(row.peer == peer for row in self.rows)]

    @property
    def file_name(self) -> str:
        """`nvidia-h200-vllm-8b.json`, with the traces if they were chosen."""
        if not self.alone:
            return super().file_name
        chosen = self.command.partition("--traces ")[2].split()
        parts = [Path(super().file_name).stem, *self.alone, self.size, *chosen]
        return f"{'-'.join(parts).lower()}.json"


def recorded(folder: Path | None = None) -> list[Run]:
    """The runs beside small engines."""
    return [run for run in Run.recorded(folder) if not run.alone]


def beside(peer: str, arrivals: bool = False) -> list[Run]:
    """The runs beside vLLM or `serve`, the smallest model first.

    arrivals: whether requests came one after another; else all were there at the start.
    """
    runs = [run for run in Run.recorded() if run.alone == [peer]]
    return [run for run in runs if any(row.per_second for row in run.rows) == arrivals]


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
    parts.append(run.note)
    parts.append(conditions(run))
    return "\n\n".join(filter(None, parts))


def conditions(run: Run) -> str:
    """The settings of both engines, by traces."""
    return "\n\n".join(
        "\n  ".join([f"{traces}:", *map(": ".join, settings.items())])
        for traces, settings in run.conditions.items()
    )


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
                "–" if row.our_waits else f"{100 * row.same_first:.0f} %",
            ]
        )
    notes = [note for row in run.rows if row.trace == trace for note in _notes(row)]
    return "\n".join([f"{trace}, tokens/s (slowest–fastest turn)", aligned(lines), *notes])


def _notes(row: PeerRow) -> Iterator[str]:
    """The lines about a row's prefix cache, and about its arrivals, if it has these."""
    if row.cached:
        tokens, ours, theirs = row.cached
        yield f"tokens of prompts {tokens:,}; cached: ours {ours:,}, {row.peer} {theirs:,}"
    if row.our_waits and row.their_waits:
        yield waits(row)


def waits(row: PeerRow) -> str:
    """How long the requests of a row waited that came one after another."""
    lines = [[f"{row.per_second:.1f} requests/s; ms, p50 / p99", *WAITS]]
    for name, seconds in (("ours", row.our_waits), (row.peer, row.their_waits)):
        texts = (f"{1000 * p50:,.1f} / {1000 * p99:,.1f}" for p50, p99 in seconds or ())
        lines.append([name, *texts])
    return aligned(lines)


def steadiness(run: Run) -> str:
    """How far the turns of a trace differ at most, and how often the first tokens agree."""
    theirs, ours = (
        max(max(seconds) / min(seconds) - 1 for seconds in turns)
        for turns in ([row.theirs for row in run.rows], [row.ours for row in run.rows])
    )
    same = [100 * row.same_first for row in run.rows]
    return (
        f"{run.size}: turns differ by up to {100 * theirs:.0f} % ({run.rows[0].peer}) and "
        f"{100 * ours:.0f} % (ours); the first new token is the same in "
        f"{min(same):.0f} to {max(same):.0f} %"
    )


def ratios(runs: Sequence[Run], peer: str) -> str:
    """Our figures, × the peer's, by trace and size: a table for each card and day."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for run in runs:
        for row in run.rows:
            if row.peer == peer and not row.reason:
                lines = tables.setdefault(f"{run.card}, {run.date}", {})
                for title, ratio in _ratios(row):
                    lines.setdefault(title, {})[run.size] = ratio
    texts = []
    for where, lines in tables.items():
        sizes = list(dict.fromkeys(size for cells in lines.values() for size in cells))
        cells = [[t, *(line.get(size, "–") for size in sizes)] for t, line in lines.items()]
        texts.append(f"{where}\n" + aligned([[f"ours / {peer}'s", *sizes], *cells]))
    return "\n\n".join(texts)


def _ratios(row: PeerRow) -> Iterator[tuple[str, str]]:
    yield f"{row.trace}: tokens/s", f"{row.ratio:.3f}"
    for what, ours, theirs in zip(WAITS, row.our_waits or (), row.their_waits or ()):
        texts = (f"{a / b:.2f}" if b else "–" for a, b in zip(ours, theirs))
        yield f"{row.trace}: {what}", " / ".join(texts)


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
