"""Runs of the prefill benchmark: results, place and date, in files and as tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned

FLASHINFER = ("FlashInfer FA2", "FlashInfer FA3")


@dataclass(frozen=True)
class Row:
    """A backend on a workload.

    milliseconds, teraflops: None if it failed; then `reason` says why.
    error: the largest distance of a number of the result from float64.
    """

    workload: str
    backend: str
    milliseconds: float | None = None
    teraflops: float | None = None
    error: float | None = None
    reason: str = ""

    @property
    def rung(self) -> int | None:
        """The number of the rung; None for another library's backend."""
        name, _, number = self.backend.partition(" ")
        return int(number) if name == "rung" else None

    def __str__(self):
        figures = ""
        if self.milliseconds:
            figures = f"{self.milliseconds:9.3f} ms {self.teraflops:6.0f} TFLOP/s"
        error = "" if self.error is None else f"error {self.error:.1e}"
        return f"{self.workload:36} {self.backend:16}{figures} {error} {self.reason}".rstrip()


@dataclass(frozen=True)
class Run(Record, kept_in="prefill"):
    """The results of one call of `python -m tools.bench prefill` on one card.

    flashinfer, cudnn: versions, or "".
    multiply_limit_teraflops: the rate of a large product of matrices; None if it was not
        measured.
    """

    card: str
    driver: str
    cuda: str
    torch: str
    flashinfer: str
    cudnn: str
    date: str
    command: str
    multiply_limit_teraflops: float | None
    rows: tuple[Row, ...]

    @property
    def file_name(self) -> str:
        """The file's name. A card has one run with FlashInfer and one without."""
        name = super().file_name
        return name.replace(".json", "-flashinfer.json") if self.flashinfer else name

    @property
    def workloads(self) -> tuple[str, ...]:
        """The names of the workloads that were measured, in order."""
        return tuple(dict.fromkeys(row.workload for row in self.rows))

    def rows_of(self, workload: str) -> tuple[Row, ...]:
        """The rows of this workload that have a time.

        Raises KeyError, which lists the workloads, if it was not measured.
        """
        if workload not in self.workloads:
            raise KeyError(
                f"no workload {workload!r} in this run on {self.card}; "
                f"it has {', '.join(self.workloads)}"
            )
        return tuple(row for row in self.rows if row.workload == workload and row.milliseconds)

    def row(self, workload: str, backend: str) -> Row:
        """A backend's row.

        Raises KeyError, which lists the rows, if this run has no time of it.
        """
        rows = self.rows_of(workload)
        for row in rows:
            if row.backend == backend:
                return row
        raise KeyError(
            f"no time of {backend!r} for {workload} in this run on {self.card}; "
            f"it has {', '.join(row.backend for row in rows)}"
        )


recorded = Run.recorded


def of_the_ladder(runs: Sequence[Run]) -> Run:
    """The newest run that has all rungs. Raises LookupError if there is none."""
    return _newest(runs, lambda run: any(row.rung == 0 for row in run.rows), "rung 0")


def of_the_peers(runs: Sequence[Run]) -> Run:
    """The newest run with FlashInfer. Raises LookupError if there is none."""
    return _newest(runs, lambda run: run.flashinfer, "FlashInfer")


def _newest(runs, has, what: str) -> Run:
    found = [run for run in runs if has(run)]
    if not found:
        raise LookupError(f"none of the {len(runs)} recorded runs has {what}")
    return max(found, key=lambda run: run.date)


def table(run: Run) -> str:
    """TFLOP/s, a line for each workload, and the place of the run."""
    names = list(dict.fromkeys(row.backend for row in run.rows))
    lines = [["TFLOP/s", *names]]
    for workload in run.workloads:
        figures = {row.backend: row for row in run.rows if row.workload == workload}
        cells = [
            "–"
            if name not in figures or figures[name].teraflops is None
            else f"{figures[name].teraflops:.0f}" + " !" * bool(figures[name].reason)
            for name in names
        ]
        lines.append([workload, *cells])
    versions = [f"driver {run.driver}", f"CUDA {run.cuda}", f"PyTorch {run.torch}"]
    versions += [f"FlashInfer {run.flashinfer}"] * bool(run.flashinfer)
    parts = [f"{run.card}, {', '.join(versions)}, {run.date}\n{run.command_today}"]
    if run.multiply_limit_teraflops:
        parts.append(
            f"A large product of matrices: {run.multiply_limit_teraflops:.0f} TFLOP/s"
        )
    reasons = {
        f"! {row.backend}, {row.workload}: {row.reason}" for row in run.rows if row.reason
    }
    return "\n".join([*parts, aligned(lines), *sorted(reasons)])
