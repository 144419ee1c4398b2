"""Runs of the benchmark of few rows: the speed of small batches, and the weights' arrival."""

from collections.abc import Iterator
from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class Row:
    """An engine on a batch.

    model: by the number of its weights, as in "8B".
    seconds: of each turn.
    weight_bytes: that a decode step reads.
    same_tokens: the share of tokens before an answer's first difference from the previous
        engine's answer.
    """

    model: str
    num_seqs: int
    engine: str
    tokens: int
    seconds: tuple[float, ...]
    weight_bytes: int
    same_tokens: float

    @property
    def tokens_per_second(self) -> float:
        """New tokens a second, of the median turn; of two turns, the slower one."""
        return self.tokens / sorted(self.seconds)[len(self.seconds) // 2]


@dataclass(frozen=True)
class Reads:
    """When weights arrive at the multiprocessors, in some layers.

    kilobytes: for each product of `names`, the kilobytes that arrive in each microsecond.
    """

    engine: str
    names: tuple[str, ...]
    kilobytes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Run(Record, kept_in="few_rows"):
    """The results of one call of the benchmark.

    prompt, new: tokens of each request.
    read_limit: GB/s.
    reads: in `reads_layers` layers of the model `reads_model`, with a batch of one.
    """

    card: str
    driver: str
    torch: str
    date: str
    command: str
    prompt: int
    new: int
    read_limit: float
    rows: tuple[Row, ...]
    reads_model: str
    reads_layers: int
    reads: tuple[Reads, ...]

    def batches(self) -> Iterator[tuple[Row, ...]]:
        """The rows of each model and batch."""
        keys = dict.fromkeys((row.model, row.num_seqs) for row in self.rows)
        for key in keys:
            yield tuple(row for row in self.rows if (row.model, row.num_seqs) == key)


recorded = Run.recorded


def table(run: Run) -> str:
    """All results, as text."""
    lines = [["model, sequences", "engine", "tokens/s", "times", "GB/s of weights", "same"]]
    for rows in run.batches():
        for row in rows:
            steps = row.tokens_per_second / row.num_seqs
            lines.append(
                [
                    f"{row.model}, {row.num_seqs}",
                    row.engine,
                    f"{row.tokens_per_second:,.0f}",
                    f"{row.tokens_per_second / rows[0].tokens_per_second:.2f}",
                    f"{steps * row.weight_bytes / 1e9:,.0f}",
                    f"{100 * row.same_tokens:.0f} %",
                ]
            )
    return (
        f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}\n"
        f"{run.command_today}\n"
        f"shapes of Qwen3 with random weights, bfloat16; prompts of {run.prompt} tokens and"
        f" {run.new} new ones\n\n{aligned(lines)}\n\n"
        f"GB/s of weights: over the whole time; the card reads {run.read_limit:,.0f}.\n"
        "same: tokens before the first difference from the engine before. Sums in another\n"
        "order round in other places, and random weights make no token likely."
    )
