"""Times lesson 07's ladder on a GPU: `python -m tools.bench ladder`.

Other libraries are timed too if they are installed.

Each backend computes the same batches, and each result is compared with float64. A launch is
the replay of a CUDA graph. The caches take turns, so that none is still in the L2 when it is
read again. The backends take turns too, so that a drifting clock slows all of them alike.
"""

import dataclasses
import datetime
import sys
from collections.abc import Callable, Sequence

import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.lesson_07.bench.backends import BACKENDS, Backend, Gpu, make_batch
from lessons_content.lesson_07.bench.build_ahead import build_ahead
from lessons_content.lesson_07.bench.compare import compare
from lessons_content.lesson_07.bench.ladder_runs import (
    FLASHINFER,
    LAST_RUNG,
    Row,
    Run,
    geometric_mean,
    recorded,
    table,
)
from lessons_content.lesson_07.bench.workloads import VARIANTS, WORKLOADS, Workload
from lessons_lib.cuda.builds import choose_target

__all__ = [
    "VARIANTS",
    "WORKLOADS",
    "Row",
    "Run",
    "Workload",
    "geometric_mean",
    "measure",
    "read_limit",
    "recorded",
    "table",
]


def read_limit() -> float:
    """GB/s at which this GPU can read.

    Measured by a sum over 4 GiB, which reads each byte once and writes nothing.
    """
    return _gpu().read_limit()


def measure(
    workloads: Sequence[str | Workload] | None = None,
    only: Sequence[str] | None = None,
    variants: bool = False,
    quick: bool = False,
    machine=None,
    command: str = "lessons_content.lesson_07.bench.ladder.measure",
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Times backends on this GPU.

    workloads: workloads or names from WORKLOADS; None takes all.
    only: names of backends, or their beginnings ("rung" takes all rungs); None takes all.
    variants: whether to time rung 7 and FlashInfer on VARIANTS too.
    quick: whether to repeat less often.
    machine: prepares and times functions; None takes the GPU.
    say: called with a line of text for each result.
    Raises ValueError for an unknown name.
    Raises RuntimeError if there is no GPU.
    """
    chosen = [
        _workload(choice) if isinstance(choice, str) else choice
        for choice in workloads or WORKLOADS
    ]
    backends = _backends(only)
    of_variants = (
        [backend for backend in BACKENDS if backend.name in (LAST_RUNG, *FLASHINFER)]
        if variants
        else []
    )
    machine = machine or _gpu()
    facts = machine.facts()
    _build_ahead(machine, [(chosen, backends), (VARIANTS if variants else (), of_variants)])
    limit = machine.read_limit()
    say(f"read limit: {limit:,.0f} GB/s")
    rows = [
        row
        for workload in chosen
        for row in compare(machine, workload, backends, limit, quick, say)
    ]
    more = [
        row
        for workload in VARIANTS * variants
        for row in compare(machine, workload, of_variants, limit, quick, say)
    ]
    return Run(
        **facts,
        date=datetime.date.today().isoformat(),
        command=command,
        read_limit_gb_per_s=limit,
        rows=tuple(rows),
        variants=tuple(more),
    )


def _build_ahead(machine, plans: list[tuple[Sequence[Workload], list[Backend]]]) -> None:
    """Compiles the backends' kernels, several at once.

    Other libraries' large files come first.
    """
    builds = {
        (backend.name, backend.compiled_for(workload)): (
            backend.rung is not None,
            backend.name,
            workload,
        )
        for workloads, backends in plans
        for workload in workloads
        for backend in backends
        if backend.compiled_for and not backend.missing()
    }
    if machine.device == "cuda" and len(builds) > 2:
        build_ahead(
            _build, [job for _, *job in sorted(builds.values(), key=lambda build: build[0])]
        )


def _build(name: str, workload: Workload) -> None:
    backend = next(backend for backend in BACKENDS if backend.name == name)
    batch = make_batch(
        dataclasses.replace(workload, context_lens=(64, 40)), 1, "cuda", backend.fp8
    )
    backend.build(batch)[0]()
    torch.cuda.synchronize()


def _gpu() -> Gpu:
    """The GPU. Raises RuntimeError, which says what is missing."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            "the benchmark needs an NVIDIA GPU, which PyTorch does not see here, and nvcc."
        )
    choose_target("gpu")
    return Gpu()


def _workload(name: str) -> Workload:
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise ValueError(
        f"there is no workload {name!r}; "
        f"there are {', '.join(workload.name for workload in WORKLOADS)}"
    )


def _backends(only: Sequence[str] | None) -> list[Backend]:
    if only is None:
        return list(BACKENDS)
    chosen = {
        beginning: [
            backend
            for backend in BACKENDS
            if backend.name.lower().startswith(beginning.lower())
        ]
        for beginning in only
    }
    for beginning, backends in chosen.items():
        if not backends:
            names = ", ".join(backend.name for backend in BACKENDS)
            raise ValueError(
                f"there is no backend {beginning!r}; there are {names}. "
                "The beginning of a name takes all that begin so."
            )
    return [
        backend
        for backend in BACKENDS
        if any(backend in backends for backends in chosen.values())
    ]


def main(words: Sequence[str] | None = None, machine=None) -> int:
    """Returns 0; 1 if a rung fails or is wrong, or nothing is recorded."""
    command = Command(
        "ladder",
        "Times lesson 07's kernels on this GPU, "
        "beside the GPU's limit and what else is installed.",
        Run,
        table,
        _overview,
    )
    add = command.parser.add_argument
    backends = ", ".join(backend.name for backend in BACKENDS)
    workloads = ", ".join(workload.name for workload in WORKLOADS)
    add("--only", nargs="+", metavar="NAME", help=f"those that begin so: {backends}")
    add("--workloads", nargs="+", metavar="NAME", help=workloads)
    add("--variants", action="store_true", help="other dtypes, sizes and batches too")
    add("--quick", action="store_true", help="fewer repetitions: not for quoting")
    arguments = command.parse(words, partial=("only", "workloads", "quick"))
    try:
        _backends(arguments.only)
        for name in arguments.workloads or ():
            _workload(name)
    except ValueError as error:
        command.parser.error(str(error))
    if arguments.recorded:
        return command.show(arguments)
    if machine is None:
        command.needs_gpu()
    run = measure(
        arguments.workloads,
        arguments.only,
        arguments.variants,
        arguments.quick,
        machine,
        command.line(arguments, "variants", "quick", "only", "workloads"),
        say,
    )
    return command.keep(run, arguments, "a rung is wrong" if run.wrong_rungs() else "")


def _overview(run: Run):
    from lessons_content.lesson_07.pictures.ladder import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
