"""Times lesson 07's ladder on a GPU: `python -m lessons_bench.ladder`.

What else is installed is timed as well.

Each backend computes the same batches, and each result is compared with float64. A launch is
the replay of a CUDA graph. The caches take turns, so that none is still in the L2 when it is
read again. The backends take turns too, so that a drifting clock slows all of them alike.
"""

import argparse
import dataclasses
import datetime
import importlib.util
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from lessons_bench.backends import BACKENDS, Backend, Gpu, make_batch
from lessons_bench.build_ahead import build_ahead
from lessons_bench.compare import compare
from lessons_bench.ladder_runs import (
    FLASHINFER,
    LAST_RUNG,
    Row,
    Run,
    file_of,
    geometric_mean,
    recorded,
    table,
)
from lessons_bench.workloads import VARIANTS, WORKLOADS, Workload
from lessons_lib.cuda_builds import choose_target

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
    command: str = "lessons_bench.ladder.measure",
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Times backends on this GPU.

    workloads: workloads or names from WORKLOADS; None takes all.
    only: names of backends, or how they begin ("rung" takes all rungs); None takes all.
    variants: whether to time rung 7 and FlashInfer on VARIANTS too.
    quick: fewer repetitions.
    machine: what prepares and times functions; None takes the GPU.
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
    """Compiles what the backends need, several at once, other backends' large files first."""
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
    """The GPU. Raises RuntimeError, with what is missing."""
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


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m lessons_bench.ladder",
        description=(
            "Times lesson 07's kernels on this GPU, "
            "beside the GPU's limit and what else is installed."
        ),
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the run to FILE")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        help="draw the ladder, and rung 7 on each workload",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="these backends, or those that begin so: "
        + ", ".join(backend.name for backend in BACKENDS),
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        metavar="NAME",
        help=", ".join(workload.name for workload in WORKLOADS),
    )
    parser.add_argument(
        "--variants",
        action="store_true",
        help="time rung 7 on other dtypes, sizes and batches too",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer repetitions: for trying out, not for quoting",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the run with the course, in lessons_bench/measured",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="print the runs that are kept, and measure nothing",
    )
    arguments = parser.parse_args(words)
    try:
        _backends(arguments.only)
        for name in arguments.workloads or ():
            _workload(name)
    except ValueError as error:
        parser.error(str(error))
    for path in filter(None, (arguments.json, arguments.plot)):
        if not path.absolute().parent.is_dir():
            parser.error(f"{path}: there is no folder {path.absolute().parent}")
    if arguments.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib, which is not installed")
    if arguments.plot and arguments.plot.suffix != ".png":
        parser.error(
            f"--plot writes a PNG, so its file ends in .png; {arguments.plot} does not"
        )
    if arguments.record and (
        arguments.only or arguments.workloads or arguments.quick or arguments.recorded
    ):
        parser.error(
            "--record keeps a whole run: "
            "leave --only, --workloads, --quick and --recorded away"
        )
    return arguments


def main(words: Sequence[str] | None = None, machine=None) -> int:
    """Returns 0; 1 if a rung fails or is wrong, or nothing is recorded; 2 if it cannot run."""
    arguments = _arguments(words)
    if arguments.recorded:
        runs = recorded()
        print(
            "\n\n\n".join(map(table, runs))
            or "No run is recorded. On a machine with a GPU, --record keeps one."
        )
        if not runs:
            return 1
        _keep(runs[0], arguments)
        return 0
    try:
        machine = machine or _gpu()
    except RuntimeError as error:
        print(
            f"Nothing can be measured: {error}\n"
            "The command with --recorded prints what was measured on other machines.",
            file=sys.stderr,
        )
        return 2
    run = measure(
        arguments.workloads,
        arguments.only,
        arguments.variants,
        arguments.quick,
        machine,
        _command(arguments),
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(table(run))
    wrong = run.wrong_rungs()
    if arguments.record and not wrong:
        run.save(file_of(run.card))
        print(f"\nRecorded in {file_of(run.card)}")
    elif arguments.record:
        print("\nNot recorded: a rung is wrong.", file=sys.stderr)
    _keep(run, arguments)
    return 1 if wrong else 0


def _command(arguments: argparse.Namespace) -> str:
    """The command that was measured, without the place of its results."""
    words = [f"--{name}" for name in ("variants", "quick") if getattr(arguments, name)]
    for name in ("only", "workloads"):
        words += [f"--{name}", *getattr(arguments, name)] if getattr(arguments, name) else []
    return shlex.join(["python", "-m", "lessons_bench.ladder", *words])


def _keep(run: Run, arguments: argparse.Namespace) -> None:
    if arguments.json:
        run.save(arguments.json)
    if arguments.plot:
        from lessons_draw.ladder import overview

        overview(run).savefig(arguments.plot, dpi=100, facecolor="white")


if __name__ == "__main__":
    sys.exit(main())
