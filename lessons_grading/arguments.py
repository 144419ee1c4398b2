"""The arguments of `python -m lessons_grading SUBMISSIONS`, completed from what is on disk."""

import argparse
import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from lessons_grading import dask_workers, sandbox
from lessons_grading.digests import write_whole
from lessons_grading.results_lock import ResultsLock
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import find_submissions
from lessons_lib import checks, whole
from lessons_lib.paths import IS_CHECKOUT

# bytes for an honest notebook and its judge together, with room to spare
MEMORY_OF_A_WORKER = 2 << 30
LARGEST_SEED = (1 << 31) - 1


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Exits with 2, and a sentence, for arguments that cannot be."""
    usual = Limits()
    parser = argparse.ArgumentParser(
        "python -m lessons_grading" if IS_CHECKOUT else f"{whole.NAME} grade",
        description=(
            "Grades notebooks: STUDENT.ipynb, STUDENT/*.ipynb, or nbgrader's "
            "STUDENT/LESSON/*.ipynb. Called again, it grades what is new or changed."
        ),
    )
    parser.add_argument(
        "submissions",
        type=Path,
        metavar="SUBMISSIONS",
        help="the folder of what was handed in",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="where the results go; `results` beside SUBMISSIONS",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        default=usual_workers(),
        help="notebooks at a time; %(default)s on this machine",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help="of the hidden cases; by chance at first, then kept",
    )
    parser.add_argument(
        "--limit-seconds",
        type=float,
        metavar="S",
        default=usual.notebook_seconds,
        help="for all cells of a notebook; %(default)g",
    )
    parser.add_argument(
        "--limit-minutes",
        type=float,
        metavar="M",
        default=usual.total_seconds / 60,
        help="by the clock, for all that is done with a notebook; %(default)g",
    )
    parser.add_argument(
        "--limit-memory",
        type=float,
        metavar="GIB",
        default=usual.memory / (1 << 30),
        help="for all processes of a notebook; %(default)g",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of Dask, such as tcp://10.0.0.1:8786: its workers grade, with a sandbox each",
    )
    parser.add_argument("--again", action="store_true", help="grade everything anew")
    parser.add_argument(
        "--no-sandbox",
        action="store_true",
        help="do without bubblewrap: then a submission can read and change your files",
    )
    arguments = parser.parse_args(words)
    arguments.started = time.monotonic()
    for name in ("workers", "limit_seconds", "limit_minutes", "limit_memory"):
        if not getattr(arguments, name) > 0:
            parser.error(
                f"--{name.replace('_', '-')} must be more than 0, "
                f"not {getattr(arguments, name)}"
            )
    if arguments.scheduler and arguments.no_sandbox:
        parser.error("--scheduler and --no-sandbox do not go together: a worker has a sandbox")
    if arguments.scheduler and (reason := dask_workers.missing()):
        parser.error(reason)
    arguments.limits = Limits(
        cell_seconds=min(usual.cell_seconds, arguments.limit_seconds),
        notebook_seconds=arguments.limit_seconds,
        total_seconds=60 * arguments.limit_minutes,
        sandboxed=not arguments.no_sandbox,
        memory=int(arguments.limit_memory * (1 << 30)),
    )
    try:
        _look_around(arguments)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return arguments


def _look_around(arguments: argparse.Namespace):
    """Completes the arguments from what is on disk.

    Raises ValueError, with a sentence, for what is impossible.
    """
    checks.read_mistakes(checks.lessons())
    folder = arguments.folder = arguments.submissions.resolve()
    arguments.results = (arguments.results or folder.parent / "results").resolve()
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    if arguments.results.is_relative_to(folder):
        raise ValueError(
            f"the results cannot lie among the submissions, in {arguments.results}: "
            "choose another --results"
        )
    is_here = arguments.scheduler is None
    if is_here and arguments.limits.sandboxed and (reason := sandbox.missing()):
        raise ValueError(reason)
    arguments.submissions = find_submissions(folder)
    if not arguments.submissions:
        raise ValueError(f"there is no notebook in {folder}")
    if arguments.seed is not None and not 0 <= arguments.seed <= LARGEST_SEED:
        raise ValueError(f"--seed must be from 0 to {LARGEST_SEED}, not {arguments.seed}")
    arguments.lock = ResultsLock(arguments.results)
    try:
        seed = arguments.results / "seed"
        arguments.seed = _kept_seed(seed) if arguments.seed is None else arguments.seed
        _keep_classes_apart(arguments.results / "submissions", folder)
        write_whole(seed, f"{arguments.seed}\n")
    except BaseException:
        arguments.lock.close()
        raise


def _keep_classes_apart(file: Path, folder: Path):
    """Notes in `file`, among the results, where their submissions are, or refuses others."""
    own = os.path.relpath(folder, file.parent)
    if file.exists() and (noted := file.read_text(errors="replace").strip()) != own:
        raise ValueError(
            f"{file.parent} has the grades of {noted}, not of {own}: choose another "
            f"--results, or delete {file} if this is the same class under a new name"
        )
    write_whole(file, f"{own}\n")


def _kept_seed(file: Path) -> int:
    if not file.exists():
        return secrets.randbelow(LARGEST_SEED + 1)
    text = file.read_bytes().strip()
    if not re.fullmatch(rb"[0-9]{1,10}", text) or int(text) > LARGEST_SEED:
        raise ValueError(
            f"{file} holds no number from 0 to {LARGEST_SEED}: write the seed into it that "
            "results.json names, or delete it, and everything is graded anew with another"
        )
    return int(text)


def usual_workers() -> int:
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return max(1, min(cores, psutil.virtual_memory().available // MEMORY_OF_A_WORKER))
