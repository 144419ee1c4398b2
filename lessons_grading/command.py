"""The command: `python -m lessons_grading SUBMISSIONS`."""

import argparse
import functools
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from lessons_grading import sandbox
from lessons_grading.arguments import read_arguments
from lessons_grading.classroom import Grader, Judged, grade_all, twice_if_needed
from lessons_grading.cluster import Cluster
from lessons_grading.judge import grade_notebook
from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.deduplicate import grade_once
from lessons_grading.report import write_report
from lessons_grading.sandbox import Limits
from lessons_grading.store import FILE, GradeStore
from lessons_grading.submissions import Submission, text_of
from lessons_grading.try_answer import RUN_FACTOR
from lessons_lib import checks
from lessons_processes.isolation import BUSY

OF_THE_JUDGE = 600.0  # seconds for its work between two runs in the sandbox, which takes a few


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
            judges = (
                _Cluster(arguments)
                if arguments.scheduler
                else _Here(arguments, grader, scratch)
            )
            return _grade(arguments, store, judges)


class _Judges(ABC):
    """Who grades.

    limits: of each submission.
    """

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        unseen = str(arguments.folder), str(arguments.results)
        self.limits = replace(arguments.limits, unseen=unseen)

    @abstractmethod
    def grade(self, submissions: list[Submission]) -> Judged:
        """Yields each submission with its grade."""

    def limited_by(self) -> str:
        """What kept the limits, in words."""
        return sandbox.limited_by(self.limits)


class _Here(_Judges):
    """Processes on this machine."""

    def __init__(self, arguments: argparse.Namespace, grader: Grader, scratch: Path):
        super().__init__(arguments)
        self._scratch = scratch
        self._grade = functools.partial(grader, seed=arguments.seed, limits=self.limits)

    def grade(self, submissions: list[Submission]) -> Judged:
        workers, time_limit = self.arguments.workers, patience(self.limits)
        return grade_all(submissions, self._grade, workers, time_limit, self._scratch)


class _Cluster(_Judges):
    """The workers of a Dask scheduler."""

    _limited_by: tuple[str, ...] = ()

    def grade(self, submissions: list[Submission]) -> Judged:
        if not submissions:
            return
        with Cluster(
            self.arguments.scheduler,
            self.arguments.seed,
            self.limits,
            patience(self.limits),
            lambda words: tqdm.write(words, file=sys.stderr),
        ) as cluster:
            yield from twice_if_needed(submissions, cluster.outcomes)
            self._limited_by = tuple(sorted(cluster.limited_by))

    def limited_by(self) -> str:
        return "; ".join(self._limited_by)


class Bar(tqdm):
    """By a clock that is never set: with the machine's, it stops when that is set back."""

    _time = property(lambda self: time.monotonic, lambda self, clock: None)


def _grade(arguments: argparse.Namespace, store: GradeStore, judges: _Judges) -> int:
    started = time.monotonic()
    rest = [*arguments.submissions]
    if not arguments.again:
        with store.at_once():
            rest = [each for each in rest if each.problem or not store.find(each)]
    before = len(arguments.submissions) - len(rest)
    with (
        Bar(
            total=len(arguments.submissions), initial=before, desc="grading", unit="notebook"
        ) as bar,
        closing(grade_once(rest, judges.grade, store, not arguments.again)) as judged,
    ):
        for _ in judged:
            bar.update()
    minutes = (time.monotonic() - started) / 60
    limited_by = judges.limited_by()
    with closing(store.grades()) as grades:
        numbers = write_report(
            arguments.results, grades, arguments.seed, arguments.limits.sandboxed, limited_by
        )
    print(
        f"Graded: {numbers.submissions}, {before} of them in an earlier run. "
        f"Students: {len(numbers.rows)}. Time: {time.monotonic() - started:.0f} s."
    )
    if rest:
        print(f"Notebooks a minute in this run: {len(rest) / minutes:.1f}.")
    if limited_by:
        print(f"Limits on memory and processes were kept by {limited_by}.")
    if numbers.repeats or numbers.repeated:
        print(
            f"Not run again: {numbers.repeats} notebooks with the same code as another one, "
            f"and {numbers.repeated} of {numbers.repeated + numbers.tried} answers."
        )
    if numbers.looked_at:
        print(
            "Notebooks to look at, stopped at a limit or not to be read: "
            f"{len(numbers.looked_at)}."
        )
    if numbers.open:
        print(f"Without a final grade: {numbers.open}. The same command tries them again.")
    print(f"Open {text_of(str(arguments.results / 'class.html'))}")
    return 0


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
