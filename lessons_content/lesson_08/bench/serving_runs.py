"""Runs of the serving benchmark: results, place and date, in files and as tables."""

from dataclasses import dataclass
from pathlib import Path

from lessons_content.bench_records.recorded_runs import Record

# a longer title would make the table wider than a notebook's cell on a laptop
LONGEST_TITLE = 50


@dataclass(frozen=True)
class ServerRow:
    """One server on the trace.

    tokens_per_second: of the median turn; None if it failed, and then `reason` says why.
    seconds: of each turn.
    same_requests: how many answers are the same as the engine's.
    same_tokens: the share of tokens before an answer's first difference from the engine's.
    """

    name: str
    title: str
    tokens_per_second: float | None
    seconds: tuple[float, ...]
    same_requests: int | None
    same_tokens: float | None
    reason: str = ""


@dataclass(frozen=True)
class ShareRow:
    """Attention's share of a step in which num_seqs sequences of `context` tokens decode.

    step: milliseconds of a step, including the scheduler and the sampling.
    attention: milliseconds of all layers' attention.
    busy: milliseconds in which the GPU computes anything, or None.
    """

    num_seqs: int
    context: int
    step: float | None
    attention: float | None
    busy: float | None
    reason: str = ""


@dataclass(frozen=True)
class ServingRun(Record, kept_in="serving"):
    """The results of one call of the benchmark.

    card: the GPU's name, or the processor's.
    driver: "" on a CPU.
    """

    card: str
    device: str
    driver: str
    torch: str
    transformers: str
    threads: int
    date: str
    command: str
    model: str
    trace: str
    num_requests: int
    rows: tuple[ServerRow, ...]
    shares: tuple[ShareRow, ...] = ()

    @property
    def ours(self) -> ServerRow:
        return self.rows[0]

    def best(self, beginning: str) -> ServerRow | None:
        """The fastest server whose name begins with this; None if none has a result."""
        rows = [
            row
            for row in self.rows
            if row.name.startswith(beginning) and row.tokens_per_second
        ]
        return max(rows, key=lambda row: row.tokens_per_second, default=None)

    def ratios(self) -> dict[str, float]:
        """Our engine's tokens a second over those of each other kind of server at its best."""
        others = {
            "generate, its best batches": self.best("generate, "),
            "generate_batch": self.best("generate_batch"),
        }
        if not self.ours.tokens_per_second:
            return {}
        return {
            name: self.ours.tokens_per_second / row.tokens_per_second
            for name, row in others.items()
            if row
        }


recorded = ServingRun.recorded


def recorded_table(folder: Path | None = None) -> str:
    """All recorded runs as text."""
    return (
        "\n\n\n".join(map(table, recorded(folder)))
        or "No run is recorded. --record keeps one."
    )


def table(run: ServingRun) -> str:
    """All results, as text."""
    where = (
        f"{run.card}, driver {run.driver}"
        if run.driver
        else f"{run.card}, {run.threads} threads"
    )
    parts = [
        (
            f"{where}, PyTorch {run.torch}, transformers {run.transformers}, {run.date}\n"
            f"{run.command_today}\n{run.model}\n{run.trace}"
        ),
        _servers(run),
    ]
    if ratios := run.ratios():
        parts.append(
            "Our engine's tokens a second over those of "
            + ", of ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items())
        )
    if run.shares:
        parts.append(_shares(run))
    reasons = [f"! {row.name}: {row.reason}" for row in run.rows if row.reason]
    reasons += [
        f"! a decode step of {row.num_seqs} x {row.context}: {row.reason}"
        for row in run.shares
        if row.reason
    ]
    return "\n\n".join(filter(None, [*parts, "\n".join(reasons)]))


def _servers(run: ServingRun) -> str:
    """The servers' table. Texts that are too long for a line are below it."""
    long = [row for row in run.rows if len(row.title) > LONGEST_TITLE]
    lines = [
        ["server", "tokens/s", "slowest", "fastest turn", "same requests", "same tokens", ""]
    ]
    for row in run.rows:
        if row.tokens_per_second is None:
            lines.append(
                [
                    row.name,
                    "– !",
                    "–",
                    "–",
                    "–",
                    "–",
                    "see below" if row in long else row.title,
                ]
            )
            continue
        useful = row.tokens_per_second * sorted(row.seconds)[len(row.seconds) // 2]
        lines.append(
            [
                row.name,
                f"{row.tokens_per_second:,.0f}",
                f"{useful / max(row.seconds):,.0f}",
                f"{useful / min(row.seconds):,.0f}",
                f"{row.same_requests} of {run.num_requests}",
                f"{100 * row.same_tokens:.0f} %",
                "see below" if row in long else row.title,
            ]
        )
    return "\n\n".join([_aligned(lines), *(f"{row.name}: {row.title}" for row in long)])


def _shares(run: ServingRun) -> str:
    lines = [["a decode step", "milliseconds", "attention", "share", "the GPU computes"]]
    for row in run.shares:
        name = f"{row.num_seqs} sequences of {row.context:,} tokens"
        if row.step is None or row.attention is None:
            lines.append([name, "– !", "–", "–", "–"])
        else:
            lines.append(
                [
                    name,
                    f"{row.step:.2f}",
                    f"{row.attention:.2f}",
                    f"{100 * row.attention / row.step:.0f} %",
                    "–" if row.busy is None else f"{row.busy:.2f}",
                ]
            )
    return _aligned(lines)


def _aligned(lines: list[list[str]]) -> str:
    """The first and the seventh column aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        [line[0].ljust(widths[0]), *map(str.rjust, line[1:6], widths[1:6]), *line[6:]]
        for line in lines
    ]
    return "\n".join("  ".join(row).rstrip() for row in rows)
