"""The command: `python -m lessons_grading SUBMISSIONS`."""

import argparse
import functools
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from lessons_grading import sandbox
from lessons_grading.arguments import read_arguments
from lessons_grading.classroom import Grader, grade_all
from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import RUN_FACTOR, grade_notebook
from lessons_grading.kept import course_digest, mistakes_digest
from lessons_grading.report import write_report
from lessons_grading.sandbox import Limits
from lessons_grading.store import FILE, GradeStore
from lessons_grading.submissions import Submission, text_of
from lessons_lib import checks
from lessons_processes.isolation import BUSY

OF_THE_JUDGE = 600.0  # seconds for its work between two runs in the sandbox, which takes a few
Judged = Generator[tuple[Submission, SubmissionGrade], None, None]


def main(words: Sequence[str] | None = None, grader: Grader = grade_notebook) -> int:
    """Returns 0 if each submission has a grade, of whatever kind.

    Returns 1 if the results cannot be written, and 130 after Ctrl-C. Exits with 2 for bad
    arguments.
    """
    try:
        return _run(read_arguments(words), grader)
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
        seed, limits = arguments.seed, arguments.limits
        print(
            f"Hidden cases of seed {seed}, "
            f"which is kept in {text_of(str(arguments.results / 'seed'))}.",
            flush=True,
        )
        terms = f"{seed} {limits} {course_digest()} {mistakes_digest()}"
        with GradeStore(arguments.results / FILE, terms, arguments.folder) as store:
            return _grade(arguments, store, _judges_here(arguments, grader, scratch))


def _judges_here(
    arguments: argparse.Namespace, grader: Grader, scratch: Path
) -> Callable[[list[Submission]], Judged]:
    """The function that grades submissions on this machine."""
    limits = _limits(arguments)

    def judge(submissions: list[Submission]) -> Judged:
        grade = functools.partial(grader, seed=arguments.seed, limits=limits)
        return grade_all(submissions, grade, arguments.workers, patience(limits), scratch)

    return judge


def _grade(
    arguments: argparse.Namespace,
    store: GradeStore,
    judge: Callable[[list[Submission]], Judged],
) -> int:
    started = time.monotonic()
    rest = [*arguments.submissions]
    if not arguments.again:
        with store.at_once():
            rest = [each for each in rest if each.problem or not store.find(each)]
    before = len(arguments.submissions) - len(rest)
    with (
        tqdm(
            total=len(arguments.submissions), initial=before, desc="grading", unit="notebook"
        ) as bar,
        closing(judge(rest)) as judged,
    ):
        for submission, grade in judged:
            store.save(submission, grade)
            bar.update()
    limited_by = sandbox.limited_by(arguments.limits)
    with closing(store.grades()) as grades:
        numbers = write_report(
            arguments.results, grades, arguments.seed, arguments.limits.sandboxed, limited_by
        )
    print(
        f"Graded: {numbers.submissions}, {before} of them in an earlier run. "
        f"Students: {len(numbers.rows)}. Time: {time.monotonic() - started:.0f} s."
    )
    print(f"Limits on memory and processes were kept by {limited_by}.")
    if numbers.looked_at:
        print(
            "Notebooks to look at, stopped at a limit or not to be read: "
            f"{len(numbers.looked_at)}."
        )
    if numbers.open:
        print(f"Without a final grade: {numbers.open}. The same command tries them again.")
    print(f"Open {text_of(str(arguments.results / 'class.html'))}")
    return 0


def _limits(arguments: argparse.Namespace) -> Limits:
    unseen = str(arguments.folder), str(arguments.results)
    return replace(arguments.limits, unseen=unseen)


def patience(limits: Limits) -> float:
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
