"""The command: `python -m lessons_grading SUBMISSIONS`.

Two more are for a teacher's own mistakes: `draft RESULTS GROUP FOLDER` and `mistakes FOLDER`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tqdm import tqdm

from lessons_content.mistakes import teachers_mistakes
from lessons_grading import draft, sandbox
from lessons_grading.arguments import read_arguments
from lessons_grading.deduplicate import Deduplicated
from lessons_grading.grading_server import GRADER
from lessons_grading.local_workers import Grading, local_workers, twice_if_needed
from lessons_grading.report import write_report
from lessons_grading.submissions import text_of


def main(words: Sequence[str] | None = None, grader: str = GRADER) -> int:
    """Returns 0 if each submission has a grade, of whatever kind.

    Returns 1 if the results cannot be written, and 130 after Ctrl-C. Exits with 2 for bad
    arguments.

    grader: what grades, as in grading_server.Order.
    """
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["draft"]:
        return draft.main(words[1:])
    if words[:1] == ["mistakes"]:
        return teachers_mistakes.main(words[1:])
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
    with arguments.store as store:
        print(
            f"Hidden cases of seed {store.seed}, which is kept in {text_of(str(store.file))}.",
            flush=True,
        )
        unseen = str(arguments.folder), str(arguments.results)
        limits = replace(arguments.limits, unseen=unseen)
        limited_by = {sandbox.limited_by(limits)}
        once = Deduplicated(store, look_back=not arguments.again)
        to_grade = once.to_grade(arguments.submissions)
        with tqdm(total=len(arguments.submissions), desc="grading", unit="notebook") as bar:
            if first := next(to_grade, None):
                if arguments.scheduler:
                    from lessons_grading.dask_workers import dask_workers

                    limited_by.clear()
                    found = dask_workers(arguments.scheduler, limits, _say, limited_by)
                else:
                    found = local_workers(arguments.workers, limits.total_seconds)
                grading = Grading(store.seed, limits, grader)
                with found as workers:
                    for each in twice_if_needed(chain([first], to_grade), workers, grading):
                        once.give(*each)
                        bar.update(once.found + once.saved - bar.n)
            bar.update(once.found + once.saved - bar.n)
        return _report(arguments, once, limited_by)


def _say(words: str):
    tqdm.write(words, file=sys.stderr)


def _report(arguments: argparse.Namespace, once: Deduplicated, limited_by: set[str]) -> int:
    store, kept_by = once.store, "; ".join(sorted(limited_by))
    numbers = write_report(
        arguments.results, store.grades(), store.seed, arguments.limits.sandboxed, kept_by
    )
    seconds = time.monotonic() - arguments.started
    print(
        f"Graded: {numbers.submissions}, {once.found} of them in an earlier run. "
        f"Students: {len(numbers.rows)}. Time: {seconds:.0f} s."
    )
    if once.saved:
        print(f"Notebooks a minute in this run: {60 * once.saved / seconds:.1f}.")
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
