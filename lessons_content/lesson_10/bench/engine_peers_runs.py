"""Runs of the benchmark of peers, in files and as tables."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lessons_content.bench_records.percentiles import Percentiles
from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned
from lessons_content.lesson_10.bench.host_calls import CallRow

ALONE = ("vLLM", "serve")  # a run beside one of these has no other peer
TIMES = ("first token", "between tokens")


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
class Latency:
    """Times in seconds, (p50, p99), of all requests together.

    first: until the first token, since the request was due. between: between two tokens.
    rate: new tokens a second, until the last one.
    """

    first: Percentiles
    between: Percentiles
    rate: float

    @property
    def times(self) -> tuple[Percentiles, Percentiles]:
        return self.first, self.between


@dataclass(frozen=True)
class ArrivalRow:
    """Requests that came one after another, at the same times for both engines.

    share: of the slower engine's own rate; None if all came at once.
    rate: requests a second; 0 if all came at once.
    passes: how often they came.
    reason: why there are no passes.
    """

    trace: str
    peer: str
    share: float | None
    rate: float = 0.0
    passes: int = 0
    ours: Latency | None = None
    theirs: Latency | None = None
    reason: str = ""

    @property
    def load(self) -> str:
        return (
            "all at once"
            if self.share is None
            else f"{100 * self.share:.0f} % of the slower's rate"
        )


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
    arrivals: tuple[ArrivalRow, ...] = ()
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    note: str = ""

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(row.peer for row in (*self.rows, *self.arrivals)))

    @property
    def is_beside_small_engines(self) -> bool:
        return not {*ALONE} & {*self.peers}

    @property
    def file_name(self) -> str:
        """`nvidia-h200-vllm-8b.json`, with the traces if they were chosen."""
        if self.is_beside_small_engines:
            return super().file_name
        chosen = self.command.partition("--traces ")[2].split()
        parts = [Path(super().file_name).stem, *self.peers, self.size, *chosen]
        return f"{'-'.join(parts).lower()}.json"


def recorded(folder: Path | None = None) -> list[Run]:
    """The runs beside small engines."""
    return [run for run in Run.recorded(folder) if run.is_beside_small_engines]


def recorded_beside(peer: str, folder: Path | None = None) -> list[Run]:
    """The runs beside vLLM, or beside `serve`."""
    return [run for run in Run.recorded(folder) if peer in run.peers]


def table(run: Run) -> str:
    """All results, as text."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    where = f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}"
    parts = [f"{where}\n{versions}\n{run.command_today}\n{run.model}"]
    parts += [
        _trace_table(run, trace) for trace in dict.fromkeys(row.trace for row in run.rows)
    ]
    parts += [_arrivals_table(run), _calls_table(run)]
    every = (*run.rows, *run.arrivals)
    reasons = dict.fromkeys(f"! {row.peer}: {row.reason}" for row in every if row.reason)
    parts.append("\n".join(reasons))
    parts.append(run.note)
    for traces, settings in run.conditions.items():
        lines = [f"  {name}: {value}" for name, value in settings.items()]
        parts.append("\n".join([f"{traces}:", *lines]))
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
    notes = []
    for row in run.rows:
        if row.trace == trace and row.cached:
            all_tokens, ours, theirs = (f"{count:,}" for count in row.cached)
            notes.append(
                f"tokens of prompts {all_tokens}; cached: ours {ours}, {row.peer} {theirs}"
            )
    title = f"{trace}, tokens/s (slowest–fastest turn)"
    return "\n".join([title, aligned(lines), *notes])


def _arrivals_table(run: Run) -> str:
    texts = []
    for row in run.arrivals:
        lines = [["ms, p50 / p99", "first token", "between tokens", "tokens/s"]]
        if row.reason:
            lines.append([row.peer, "– !", "–", "–"])
        for name, found in (("ours", row.ours), (row.peer, row.theirs)):
            if found:
                pairs = (" / ".join(f"{1000 * t:,.1f}" for t in pair) for pair in found.times)
                lines.append([name, *pairs, f"{found.rate:,.0f}"])
        title = f"{row.trace}, {row.load}, {row.rate:.1f} requests/s, passes: {row.passes}"
        texts.append(f"{title}\n{aligned(lines)}")
    return "\n\n".join(texts)


def ratios(runs: Sequence[Run], peer: str = "vLLM") -> str:
    """Our figures, × the peer's, by trace and size: a table for each card and day."""
    texts = []
    for where in dict.fromkeys((run.card, run.date) for run in runs):
        those = [run for run in runs if (run.card, run.date) == where]
        sizes = list(dict.fromkeys(run.size for run in those))
        cells = {
            (title, run.size): ratio for run in those for title, ratio in _ratios(run, peer)
        }
        lines = [[f"ours, × {peer}'s", *sizes]]
        for title in dict.fromkeys(title for title, _ in cells):
            lines.append([title, *(cells.get((title, size), "–") for size in sizes)])
        if cells:
            texts.append(f"{', '.join(where)}\n{aligned(lines)}")
    return "\n\n".join(texts)


def _ratios(run: Run, peer: str) -> Iterator[tuple[str, str]]:
    """Titles and ratios: of tokens a second, and of times, at p50 / p99."""
    for row in run.rows:
        if row.peer == peer and not row.reason:
            yield f"{row.trace}: tokens/s", f"{row.ratio:.3f}"
    for come in run.arrivals:
        if come.peer != peer or not (come.ours and come.theirs):
            continue
        for what, ours, theirs in zip(TIMES, come.ours.times, come.theirs.times, strict=True):
            pairs = zip(ours, theirs, strict=True)
            text = " / ".join(f"{a / b:.2f}" if b else "–" for a, b in pairs)
            yield f"{come.trace}, {come.load}: {what}", text


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
