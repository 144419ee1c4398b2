"""Runs of the benchmark of a large checkpoint, in files and as a table."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class Row:
    """A batch that was served by a warm engine.

    num_seqs: sequences.
    prompt, new: tokens of each sequence's prompt and of its answer.
    seconds: for the whole batch, the prompts included.
    apart: the largest distance of a new token's log-probability from transformers' own
        attention on the same weights, for the first sequence.
    """

    num_seqs: int
    prompt: int
    new: int
    seconds: float
    apart: float

    @property
    def rate(self) -> float:
        """New tokens per second."""
        return self.num_seqs * self.new / self.seconds


@dataclass(frozen=True)
class Run(Record, kept_in="checkpoint"):
    """The results of one call of the benchmark.

    card: the GPU, or the processor.
    files, weights_gib: number and size of the files with weights.
    load_seconds: until the model was ready. The system had been told to forget the files.
    host_gib: the process's largest memory until then. Mapped files count.
    card_gib, most_gib: the most that PyTorch had allocated on the GPU: until then, and in all.
    """

    card: str
    device: str
    driver: str
    torch: str
    transformers: str
    safetensors: str
    date: str
    command: str
    model: str
    files: int
    weights_gib: float
    load_seconds: float
    host_gib: float
    card_gib: float
    most_gib: float
    rows: tuple[Row, ...]


recorded = Run.recorded


def table(run: Run) -> str:
    driver = f", driver {run.driver}" if run.driver else ""
    cells = [["batch", "new tokens", "seconds", "tokens/s", "apart"]]
    for row in run.rows:
        batch = f"{row.num_seqs} × {row.prompt:,}"
        figures = (f"{row.seconds:.2f}", f"{row.rate:,.1f}", f"{row.apart:.4f}")
        cells.append([batch, f"{row.new:,} each", *figures])
    return "\n".join(
        [
            f"{run.card}{driver}, PyTorch {run.torch}, transformers {run.transformers}, "
            f"safetensors {run.safetensors}, {run.date}",
            f"{run.model}: {run.weights_gib:.2f} GiB in {run.files} files",
            f"Loaded in {run.load_seconds:.1f} s, with at most {run.host_gib:.1f} GiB of the "
            f"host and {run.card_gib:.1f} GiB of the GPU ({run.most_gib:.1f} with the engine)",
            aligned(cells),
        ]
    )
