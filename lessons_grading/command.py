"""The command: `python -m lessons_grading SUBMISSIONS`."""

import argparse
import functools
import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
from tqdm import tqdm

from lessons_grading import sandbox
from lessons_grading.claim import Claim
from lessons_grading.classroom import Grader, grade_all
from lessons_grading.judge import RUN_FACTOR, grade_notebook
from lessons_grading.kept import Kept, course_digest, write_whole
from lessons_grading.report import to_look_at, write_report
from lessons_grading.sandbox import Limits
from lessons_grading.submissions import find_submissions, text_of
from lessons_lib import checks
from lessons_processes.isolation import BUSY

# bytes for an honest notebook and its judge together, with room to spare
MEMORY_OF_A_WORKER = 2 << 30
OF_THE_JUDGE = 600.0  # seconds for its work between two runs in the sandbox, which takes a few
LARGEST_SEED = (1 << 31) - 1


def main(words: Sequence[str] | None = None, grader: Grader = grade_notebook) -> int:
    """Returns 0 if each submission has a grade, of whatever kind.

    Returns 1 if the results cannot be written, and 130 after Ctrl-C. Exits with 2 for bad
    arguments.
    """
    try:
        return _run(_arguments(words), grader)
    except KeyboardInterrupt:
        print(
            "\nStopped. What is graded so far is kept: the same command goes on from here.",
            file=sys.stderr,
        )
        return 130
    except OSError as error:
        print(
            f"\nStopped: {text_of(str(error))}. What is graded so far is kept: "
            "once this is mended, the same command goes on from here.",
            file=sys.stderr,
        )
        return 1


def _run(arguments: argparse.Namespace, grader: Grader) -> int:
    with arguments.claim as scratch:
        return _grade(arguments, grader, scratch)


def _grade(arguments: argparse.Namespace, grader: Grader, scratch: Path) -> int:
    started = time.monotonic()
    limits = arguments.limits
    seed = arguments.seed
    print(
        f"Hidden cases of seed {seed}, "
        f"which is kept in {text_of(str(arguments.results / 'seed'))}.",
        flush=True,
    )
    kept = Kept(arguments.results / "graded", f"{seed} {limits} {course_digest()}")
    limits = replace(limits, unseen=(str(arguments.folder), str(arguments.results)))
    grades = (
        {}
        if arguments.again
        else {
            each: grade
            for each in arguments.submissions
            if not each.problem and (grade := kept.find(each))
        }
    )
    before = len(grades)
    rest = [submission for submission in arguments.submissions if submission not in grades]
    judged = grade_all(
        rest,
        functools.partial(grader, seed=seed, limits=limits),
        arguments.workers,
        _patience(limits),
        scratch,
    )
    with (
        tqdm(
            total=len(arguments.submissions), initial=before, desc="grading", unit="notebook"
        ) as bar,
        closing(judged),
    ):
        for submission, grade in judged:
            if grade.is_final:
                kept.save(submission, grade)
            grades[submission] = grade
            bar.update()
    write_report(
        arguments.results, grades.values(), seed, limits.sandboxed, sandbox.limited_by(limits)
    )
    students = {grade.student for grade in grades.values()}
    print(
        f"Graded: {len(grades)}, {before} of them in an earlier run. "
        f"Students: {len(students)}. Time: {time.monotonic() - started:.0f} s."
    )
    print(f"Limits on memory and processes were kept by {sandbox.limited_by(limits)}.")
    if noted := sum(bool(to_look_at(grade)) for grade in grades.values()):
        print(f"Notebooks to look at, stopped at a limit or not to be read: {noted}.")
    if open_still := sum(not grade.is_final for grade in grades.values()):
        print(f"Without a final grade: {open_still}. The same command tries them again.")
    print(f"Open {text_of(str(arguments.results / 'class.html'))}")
    return 0


def _patience(limits: Limits) -> float:
    """Clock seconds for the longest run that the limits allow, and for the judge after it."""
    longest = max(
        limits.notebook_seconds,
        checks.BUILD_TIME_LIMIT,
        *(
            RUN_FACTOR * exercise.time_limit
            for lesson in checks.lessons()
            for exercise in checks.exercises_of(lesson)
        ),
    )
    return BUSY * longest + OF_THE_JUDGE


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    usual = Limits()
    parser = argparse.ArgumentParser(
        "python -m lessons_grading",
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
        default=_usual_workers(),
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
        "--limit-memory",
        type=float,
        metavar="GIB",
        default=usual.memory / (1 << 30),
        help="for all processes of a notebook; %(default)g",
    )
    parser.add_argument("--again", action="store_true", help="grade everything anew")
    parser.add_argument(
        "--no-sandbox",
        action="store_true",
        help="do without bubblewrap: then a submission can read and change your files",
    )
    arguments = parser.parse_args(words)
    for name in ("workers", "limit_seconds", "limit_memory"):
        if not getattr(arguments, name) > 0:
            parser.error(
                f"--{name.replace('_', '-')} must be more than 0, "
                f"not {getattr(arguments, name)}"
            )
    arguments.limits = Limits(
        cell_seconds=min(usual.cell_seconds, arguments.limit_seconds),
        notebook_seconds=arguments.limit_seconds,
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
    if arguments.limits.sandboxed and (reason := sandbox.missing()):
        raise ValueError(reason)
    arguments.submissions = find_submissions(folder)
    if not arguments.submissions:
        raise ValueError(f"there is no notebook in {folder}")
    if arguments.seed is not None and not 0 <= arguments.seed <= LARGEST_SEED:
        raise ValueError(f"--seed must be from 0 to {LARGEST_SEED}, not {arguments.seed}")
    arguments.claim = Claim(arguments.results)
    try:
        seed = arguments.results / "seed"
        arguments.seed = _kept_seed(seed) if arguments.seed is None else arguments.seed
        _keep_classes_apart(arguments.results / "submissions", folder)
        write_whole(seed, f"{arguments.seed}\n")
    except BaseException:
        arguments.claim.close()
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


def _usual_workers() -> int:
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return max(1, min(cores, psutil.virtual_memory().available // MEMORY_OF_A_WORKER))
