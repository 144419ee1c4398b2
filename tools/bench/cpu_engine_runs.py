"""Runs of the benchmark of the engine on a CPU, in files and as a table."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class Row:
    """One way to compute the answers.

    one, three: new tokens a second with one person, and with three whose prompts differ in
        length. Prompts count in the time. The median of the rounds.
    differ: how often another token would have come next, when float32's answer is given token
        by token.
    apart: the mean distance of these logits from transformers' logits in float32.
    """

    title: str
    one: float
    three: float
    differ: int
    apart: float


@dataclass(frozen=True)
class Run(Record, kept_in="cpu_engine"):
    """The results of one call of the benchmark.

    card: the processor.
    new: tokens of each answer.
    rounds: how often all ways were measured, in turns.
    """

    card: str
    device: str
    torch: str
    transformers: str
    threads: int
    date: str
    command: str
    model: str
    new: int
    rounds: int
    rows: tuple[Row, ...]


recorded = Run.recorded


def table(run: Run) -> str:
    cells = [["", "one stream", "three", f"differ of {run.new}", "apart"]]
    for row in run.rows:
        figures = f"{row.one:.1f}", f"{row.three:.1f}", str(row.differ), f"{row.apart:.4f}"
        cells.append([row.title, *figures])
    return "\n".join(
        [
            f"{run.card}, {run.threads} threads, PyTorch {run.torch}, "
            f"transformers {run.transformers}, {run.date}",
            f"{run.model}, tokens/s; {run.new} new tokens each, {run.rounds} rounds in turns",
            aligned(cells),
        ]
    )
