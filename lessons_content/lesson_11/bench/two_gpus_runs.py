"""Runs of the benchmark of two GPUs, in files and as a table."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class Row:
    """Decode steps of a batch on some GPUs.

    num_gpus: one for each rank.
    num_seqs, context: the sequences, and their tokens before the first step.
    step: milliseconds from one step to the next.
    collectives: the part of them in which the GPU of rank 0 ran the ranks' common operations.
        Waiting for the other rank counts.
    weights, pool, most: GiB on each GPU: its weights, its part of the pool, and the most that
        PyTorch had allocated at once.
    reason: why it could not run, or "".
    """

    num_gpus: int
    num_seqs: int
    context: int
    step: float | None = None
    collectives: float | None = None
    weights: float | None = None
    pool: float | None = None
    most: float | None = None
    reason: str = ""

    @property
    def rate(self) -> float:
        """Tokens per second."""
        assert self.step is not None
        return 1000 * self.num_seqs / self.step


@dataclass(frozen=True)
class Run(Record, kept_in="two_gpus"):
    """The results of one call of the benchmark.

    same_tokens: whether the small model gave the same tokens in float32 on one GPU and on two.
    cap: GiB of each GPU that the engines of `capped` may use.
    capped: the rows of engines with this limit.
    """

    card: str
    driver: str
    torch: str
    date: str
    command: str
    model: str
    same_tokens: bool
    rows: tuple[Row, ...]
    cap: float
    capped: tuple[Row, ...]

    def row(self, num_gpus: int, context: int) -> Row:
        """A row. Raises KeyError, which lists the rows, if there is none like this."""
        for row in self.rows:
            if (row.num_gpus, row.context) == (num_gpus, context):
                return row
        there = ", ".join(f"{row.num_gpus} × {row.context}" for row in self.rows)
        raise KeyError(f"no row of {num_gpus} GPUs at {context} tokens; there are {there}")

    def gain(self, context: int) -> float:
        """The tokens per second of two GPUs, as a multiple of one GPU's."""
        return self.row(2, context).rate / self.row(1, context).rate


recorded = Run.recorded


def table(run: Run) -> str:
    lines = [
        f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}",
        f"{run.model}; the same tokens in float32: {'yes' if run.same_tokens else 'NO'}",
    ]
    cells = [["GPUs", "batch", "step", "together", "tokens/s", "weights", "pool", "most"]]
    cells += [_cells(row) for row in run.rows]
    lines.append(aligned(cells))
    for context in sorted({row.context for row in run.rows}):
        if all(run.row(n, context).step for n in (1, 2)):
            lines.append(
                f"{context:,} tokens each: {run.gain(context):.2f} times one GPU's rate"
            )
    lines.append(f"With at most {run.cap:g} GiB on each GPU:")
    lines.append(aligned([_cells(row) for row in run.capped]))
    lines += [
        f"! {row.num_gpus} × {row.context}: {row.reason}"
        for row in (*run.rows, *run.capped)
        if row.reason
    ]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    batch = f"{row.num_seqs} × {row.context:,}"
    if row.step is None:
        return [str(row.num_gpus), batch, *["–"] * 6]
    sizes = (f"{size:.1f} GiB" for size in (row.weights, row.pool, row.most))
    times = f"{row.step:.2f} ms", f"{row.collectives:.2f} ms"
    return [str(row.num_gpus), batch, *times, f"{row.rate:,.0f}", *sizes]
