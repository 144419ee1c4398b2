"""Runs of path B, attention in one call of FlashInfer: results, place and date, as text."""

from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned


@dataclass(frozen=True)
class BatchRow:
    """One batch, or many random ones.

    sequences: (cached, new) tokens of each; not kept for random batches.
    difference: the largest difference of a number of attn_paged_fused() from
        attn_paged_torch(), in the batch's dtype.
    error, error_of_torch: the largest distance of each from attn_paged_torch() in float64.
    same_when_poisoned: whether no bit changes if slots without a token of the batch hold NaN,
        infinity or the largest number.
    """

    name: str
    dtype: str
    head_size: int
    block_sizes: tuple[int, ...]
    num_batches: int
    sequences: tuple[tuple[int, int], ...]
    difference: float
    error: float
    error_of_torch: float
    same_when_poisoned: bool


@dataclass(frozen=True)
class PathRow:
    """An engine's answers on one path.

    texts: the answer to each prompt when all arrive together.
    same: for each way to arrive, whether all tokens are those of transformers.
    """

    path: str
    texts: tuple[str, ...]
    same: dict[str, bool]


@dataclass(frozen=True)
class PathBRun(Record, kept_in="path_b"):
    """The results of one call of `python -m tools.bench path_b`.

    lead: how far the likeliest token was ahead at the closest choice, in float32.
    margin: the same lead, divided at each choice by the largest change of a logit there that
        computing in `dtype` made. Above 2, rounding cannot have chosen. None if not measured.
    """

    card: str
    driver: str
    cuda: str
    torch: str
    flashinfer: str
    transformers: str
    date: str
    command: str
    model: str
    dtype: str
    num_tokens: int
    lead: float
    margin: float | None
    expected: tuple[str, ...]
    batches: tuple[BatchRow, ...]
    paths: tuple[PathRow, ...]

    def problems(self) -> list[str]:
        """The faults that it found, in words."""
        found = [
            f"{row.name} in {row.dtype}: {distance:.1e} away from {what}"
            for row in self.batches
            for distance, limits, what in (
                (row.difference, LARGEST_DIFFERENCE, "attn_paged_torch"),
                (row.error, LARGEST_ERROR, "float64"),
            )
            if not distance <= limits[row.dtype]
        ]
        found += [
            f"{row.name} in {row.dtype}: unused slots reach the result"
            for row in self.batches
            if not row.same_when_poisoned
        ]
        if self.margin is not None and not self.margin > 2:
            found.append(f"a choice leads by {self.margin:.1f} times its rounding only")
        found += [
            f"path {row.path}, {way}: other tokens"
            for row in self.paths
            for way, same in row.same.items()
            if not same
        ]
        return found


# A result of up to 8 is rounded to 11 bits, or to 8. The loop also rounds its scores and
# weights.
LARGEST_ERROR = {"float16": 4e-3, "bfloat16": 3.2e-2}
LARGEST_DIFFERENCE = {"float16": 8e-3, "bfloat16": 6.4e-2}


recorded = PathBRun.recorded


def origin(run: PathBRun) -> str:
    """The place, the date and the versions of the run, in two lines."""
    return (
        f"{run.card}, {run.date}, by {run.command_today}\nFlashInfer {run.flashinfer}, "
        f"PyTorch {run.torch}, CUDA {run.cuda}, driver {run.driver}"
    )


def batches_table(run: PathBRun) -> str:
    """The batches, each with its largest differences."""
    lines = [
        [
            "batch",
            "dtype",
            "head size",
            "block size",
            "from the loop",
            "from float64",
            "the loop's",
        ]
    ]
    for row in run.batches:
        sizes = " to ".join(map(str, sorted({min(row.block_sizes), max(row.block_sizes)})))
        lines.append(
            [
                row.name,
                row.dtype,
                str(row.head_size),
                sizes,
                *(
                    f"{number:.5f}"
                    for number in (row.difference, row.error, row.error_of_torch)
                ),
            ]
        )
    return aligned(lines)


def paths_table(run: PathBRun) -> str:
    """The paths, and whether the tokens of each are those of transformers."""
    ways = list(run.paths[0].same)
    lines = [["", *ways]] + [
        [row.path, *("the same" if row.same[way] else "NOT THE SAME" for way in ways)]
        for row in run.paths
    ]
    return aligned(lines)


def table(run: PathBRun) -> str:
    """All results, as text."""
    return "\n\n".join([origin(run), batches_table(run), paths_table(run), *run.problems()])
