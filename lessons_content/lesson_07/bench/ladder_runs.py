"""Runs of the ladder's benchmark: results, place and date, in files and as tables."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned
from lessons_content.lesson_07.bench.workloads import TITLES

LAST_RUNG, FP8_RUNG = "rung 7", "rung 8"
FLASHINFER = (
    "FlashInfer tensor cores",
    "FlashInfer CUDA cores",
    "FlashInfer XQA",
    "FlashInfer cuDNN",
)


@dataclass(frozen=True)
class Row:
    """One backend on one workload. A value that could not be measured is None.

    title: the backend's.
    kv_bytes: the fewest bytes of K and V that it must read.
    error: the largest distance of a number of the result from float64.
    reason: why there is no time, or why the result is wrong; otherwise "".
    """

    workload: str
    backend: str
    title: str
    milliseconds: float | None
    kv_bytes: int
    gb_per_s: float | None
    share_of_limit: float | None
    error: float | None
    reason: str = ""

    @property
    def rung(self) -> int | None:
        """The number of the rung; None for another library's backend."""
        return (
            int(self.backend.removeprefix("rung "))
            if self.backend.startswith("rung ")
            else None
        )


@dataclass(frozen=True)
class Run(Record, kept_in="ladder"):
    """The results of one call of the benchmark on one card.

    flashinfer, cudnn: versions, or "".
    rows: of all workloads.
    """

    card: str
    driver: str
    cuda: str
    torch: str
    flashinfer: str
    cudnn: str
    date: str
    command: str
    read_limit_gb_per_s: float
    rows: tuple[Row, ...]
    variants: tuple[Row, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """The names of the workloads that were measured, in order."""
        return tuple(dict.fromkeys(row.workload for row in self.rows))

    def row(self, workload: str, backend: str) -> Row:
        """The row of this backend.

        Raises KeyError, which lists the rows, if it was not measured.
        """
        for row in (*self.rows, *self.variants):
            if (row.workload, row.backend) == (workload, backend):
                return row
        known = {row.workload: None for row in (*self.rows, *self.variants)}
        if workload not in known:
            raise KeyError(
                f"no workload {workload!r} in this run on {self.card}; "
                f"it has {', '.join(known)}"
            )
        backends = [
            row.backend for row in (*self.rows, *self.variants) if row.workload == workload
        ]
        raise KeyError(
            f"no backend {backend!r} for {workload} in this run on {self.card}; "
            f"it has {', '.join(backends)}"
        )

    def milliseconds(self, workload: str, backend: str) -> float:
        """Raises KeyError if this run did not measure it, ValueError if the backend failed."""
        row = self.row(workload, backend)
        if row.milliseconds is None:
            raise ValueError(
                f"{backend} has no time for {workload} in this run on {self.card}: "
                f"{row.reason}"
            )
        return row.milliseconds

    def rungs(self, workload: str) -> tuple[Row, ...]:
        """The rungs that have a time for this workload, from the lowest."""
        rows = [
            row
            for row in self.rows
            if row.workload == workload and row.rung is not None and row.milliseconds
        ]
        return tuple(sorted(rows, key=lambda row: row.rung))

    def others(self, workload: str) -> tuple[Row, ...]:
        """The backends that are not rungs and have a time for this workload."""
        return tuple(
            row
            for row in self.rows
            if row.workload == workload and row.rung is None and row.milliseconds
        )

    def flashinfer_row(self, workload: str) -> Row | None:
        """The row of the fastest of FlashInfer's ways; None if none has a right result."""
        rows = [
            row
            for row in (*self.rows, *self.variants)
            if row.workload == workload
            and row.backend in FLASHINFER
            and row.milliseconds
            and not row.reason
        ]
        return min(rows, key=lambda row: row.milliseconds, default=None)

    def ratios(self) -> dict[str, float]:
        """FlashInfer's time over rung 7's, for each workload with both.

        Above 1, rung 7 is faster.
        """
        found = {}
        for workload in self.workloads:
            ours = [row for row in self.rungs(workload) if row.backend == LAST_RUNG]
            theirs = self.flashinfer_row(workload)
            if ours and theirs:
                found[workload] = theirs.milliseconds / ours[0].milliseconds
        return found

    def fp8_ratios(self) -> dict[str, float]:
        """The time of rung 8 (fp8 cache) over rung 7's, for each workload with both."""
        found = {}
        for workload in self.workloads:
            times = {row.backend: row.milliseconds for row in self.rungs(workload)}
            if LAST_RUNG in times and FP8_RUNG in times:
                found[workload] = times[FP8_RUNG] / times[LAST_RUNG]
        return found

    def wrong_rungs(self) -> tuple[Row, ...]:
        return tuple(
            row for row in (*self.rows, *self.variants) if row.rung is not None and row.reason
        )


recorded = Run.recorded


def geometric_mean(numbers: Sequence[float]) -> float:
    """Raises ValueError if there are no numbers, or one is not positive."""
    if not numbers or min(numbers) <= 0:
        raise ValueError(f"a geometric mean is of positive numbers, not of {list(numbers)}")
    return math.exp(statistics.fmean(map(math.log, numbers)))


def table(run: Run) -> str:
    """All results, as text."""
    versions = [
        f"driver {run.driver}",
        f"CUDA {run.cuda}",
        f"PyTorch {run.torch}",
        f"FlashInfer {run.flashinfer}" if run.flashinfer else "no FlashInfer",
        *([f"cuDNN {run.cudnn}"] if run.cudnn else []),
    ]
    parts = [
        f"{run.card}, {', '.join(versions)}, {run.date}\n{run.command_today}\n"
        f"Read limit: {run.read_limit_gb_per_s:,.0f} GB/s"
    ]
    if run.rows:
        parts += [_ladder_table(run), _comparison(run)]
    if run.variants:
        parts.append(_variants_table(run))
    return "\n\n".join(filter(None, [*parts, _reasons(run)]))


def _ladder_table(run: Run) -> str:
    names = run.workloads
    sizes = {
        row.workload: row.kv_bytes for row in reversed(run.rows) if row.backend != FP8_RUNG
    }
    cells = {(row.workload, row.backend): row for row in run.rows}
    backends = {
        row.backend: f"{row.backend}  {row.title}" if row.rung is not None else row.backend
        for row in run.rows
    }
    lines = [["milliseconds, share of the limit", *names]]
    if sizes.keys() >= set(names):
        lines += [
            ["bytes of K and V", *(f"{sizes[name] / 1e6:,.0f} MB" for name in names)],
            [
                "at the limit",
                *(
                    f"{_time(sizes[name] / run.read_limit_gb_per_s / 1e6)} 100 %"
                    for name in names
                ),
            ],
        ]
    lines += [
        [label, *(_cell(cells.get((name, backend))) for name in names)]
        for backend, label in backends.items()
    ]
    return aligned(lines)


def _variants_table(run: Run) -> str:
    lines = [["variant", "K and V", "rung 7", "FlashInfer", "over rung 7", "error"]]
    for row in run.variants:
        if row.backend != LAST_RUNG:
            continue
        theirs = run.flashinfer_row(row.workload)
        ratio = (
            f"{theirs.milliseconds / row.milliseconds:.2f}"
            if theirs and row.milliseconds
            else "–"
        )
        lines.append(
            [
                TITLES.get(row.workload, row.workload),
                f"{row.kv_bytes / 1e6:,.0f} MB",
                _cell(row),
                _cell(theirs),
                ratio,
                "–" if row.error is None else f"{row.error:.0e}",
            ]
        )
    return aligned(lines)


def _comparison(run: Run) -> str:
    lines = []
    if ratios := run.ratios():
        worst = min(ratios, key=ratios.get)
        lines.append(
            "FlashInfer's time (the fastest of its ways) over rung 7's: geometric mean "
            f"{geometric_mean([*ratios.values()]):.3f}, worst {ratios[worst]:.3f} ({worst})"
        )
    if ratios := run.fp8_ratios():
        lines.append(
            "Rung 8's time (fp8 cache, half the bytes) over rung 7's, workload by workload: "
            + ", ".join(f"{ratio:.2f}" for ratio in ratios.values())
        )
    if errors := [row.error for row in run.rows if row.error is not None]:
        lines.append(f"Largest distance of a number from float64: {max(errors):.1e}")
    return "\n".join(lines)


def _reasons(run: Run) -> str:
    """The failures and the wrong results, each reason once."""
    places = {}
    for row in (*run.rows, *run.variants):
        if row.reason:
            places.setdefault((row.backend, row.reason), []).append(row.workload)
    return "\n".join(
        f"! {backend} ({', '.join(workloads)}): {reason}"
        for (backend, reason), workloads in places.items()
    )


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    if row.milliseconds is None:
        return "– !"
    share = f"{row.share_of_limit:4.0%}".replace("%", " %")
    return f"{_time(row.milliseconds)} {share}" + " !" * bool(row.reason)


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.4f}" if milliseconds < 10 else f"{milliseconds:.2f}"
