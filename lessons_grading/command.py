"""The command: `python -m lessons_grading SUBMISSIONS`."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from tqdm import tqdm

from lessons_grading import sandbox
from lessons_grading.arguments import read_arguments
from lessons_grading.dask_workers import dask_workers
from lessons_grading.deduplicate import grade_once
from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.grading_server import GRADER
from lessons_grading.local_workers import Outcomes, local_workers
from lessons_grading.report import write_report
from lessons_grading.store import FILE, GradeStore
from lessons_grading.submissions import Submission, text_of


def main(words: Sequence[str] | None = None, grader: str = GRADER) -> int:
    """Returns 0 if each submission has a grade, of whatever kind.

    Returns 1 if the results cannot be written, and 130 after Ctrl-C. Exits with 2 for bad
    arguments.

    grader: what grades, as in grading_server.Order.
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


def _run(arguments: argparse.Namespace, grader: str) -> int:
    with arguments.lock:
        seed, limits = arguments.seed, arguments.limits
        print(
            f"Hidden cases of seed {seed}, "
            f"which is kept in {text_of(str(arguments.results / 'seed'))}.",
            flush=True,
        )
        terms = f"{seed} {limits} {course_digest()} {mistakes_digest()}"
        unseen = str(arguments.folder), str(arguments.results)
        limits = replace(limits, unseen=unseen)
        with GradeStore(arguments.results / FILE, terms, arguments.folder) as store:
            rest = _to_grade(arguments, store)
            limited_by = {sandbox.limited_by(limits)}
            if not rest:
                return _report(arguments, store, 0, limited_by)
            if arguments.scheduler:
                limited_by.clear()
                workers = dask_workers(
                    arguments.scheduler, seed, limits, _say, limited_by, grader
                )
            else:
                workers = local_workers(arguments.workers, seed, limits, grader)
            with workers as outcomes:
                _grade(arguments, store, rest, outcomes)
            return _report(arguments, store, len(rest), limited_by)


def _say(words: str):
    tqdm.write(words, file=sys.stderr)


def _to_grade(arguments: argparse.Namespace, store: GradeStore) -> list[Submission]:
    """The submissions without a final grade."""
    if arguments.again:
        return arguments.submissions
    with store.at_once():
        return [each for each in arguments.submissions if each.problem or not store.find(each)]


class Bar(tqdm):
    """By a clock that is never set: with the machine's, it stops when that is set back."""

    _time = property(lambda self: time.monotonic, lambda self, clock: None)


def _grade(
    arguments: argparse.Namespace,
    store: GradeStore,
    rest: list[Submission],
    outcomes: Outcomes,
):
    total = len(arguments.submissions)
    with (
        Bar(total=total, initial=total - len(rest), desc="grading", unit="notebook") as bar,
        closing(grade_once(rest, outcomes, store, not arguments.again)) as judged,
    ):
        for _ in judged:
            bar.update()


def _report(
    arguments: argparse.Namespace, store: GradeStore, num_new: int, limited_by: set[str]
) -> int:
    kept_by = "; ".join(sorted(limited_by))
    with closing(store.grades()) as grades:
        numbers = write_report(
            arguments.results, grades, arguments.seed, arguments.limits.sandboxed, kept_by
        )
    seconds = time.monotonic() - arguments.started
    before = len(arguments.submissions) - num_new
    print(
        f"Graded: {numbers.submissions}, {before} of them in an earlier run. "
        f"Students: {len(numbers.rows)}. Time: {seconds:.0f} s."
    )
    if num_new:
        print(f"Notebooks a minute in this run: {60 * num_new / seconds:.1f}.")
    if kept_by:
        print(f"Limits on memory and processes were kept by {kept_by}.")
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
