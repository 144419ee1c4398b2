"""The command: `python -m lessons_grading SUBMISSIONS`.

Two more are for a teacher's own mistakes: `draft RESULTS GROUP FOLDER` and `mistakes FOLDER`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

from lessons_content.mistakes import teachers_mistakes
from lessons_grading import draft, sandbox
from lessons_grading.deduplicate import Deduplicated
from lessons_grading.grading_server import GRADER
from lessons_grading.local_workers import Grading, local_workers, twice_if_needed
from lessons_grading.pages import write_report
from lessons_grading.sandbox import Limits
from lessons_grading.store import LARGEST_SEED, GradeStore, course_digest, mistakes_digest
from lessons_grading.submissions import find_submissions, text_of
from lessons_lib import checks, installation
from lessons_lib.cuda.calls import processors
from lessons_lib.paths import IS_CHECKOUT

# bytes for an honest notebook and its judge together, with room to spare
MEMORY_OF_A_WORKER = 2 << 30
GIB = 1 << 30
INSTALL_DASK = (
    "--scheduler needs Dask: install the course with its extra `cluster`, such as "
    "pip install -e '.[cluster]' -c constraints.txt"
)


def main(words: Sequence[str] | None = None, grader: str = GRADER) -> int:
    """Returns 0 if each submission has a grade, final or not.

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


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, completed from the disk. Exits with 2, and a sentence, for bad ones."""
    parser = _parser()
    arguments = parser.parse_args(words)
    arguments.started = time.monotonic()
    arguments.limits = Limits(
        cell_seconds=min(Limits.cell_seconds, arguments.limit_seconds),
        notebook_seconds=arguments.limit_seconds,
        total_seconds=60 * arguments.limit_minutes,
        sandboxed=not arguments.no_sandbox,
        memory=int(arguments.limit_memory * GIB),
    )
    try:
        _look_around(arguments)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m lessons_grading" if IS_CHECKOUT else f"{installation.NAME} grade",
        description=(
            "Grades notebooks: STUDENT.ipynb, STUDENT/*.ipynb, or nbgrader's "
            "STUDENT/LESSON/*.ipynb. Called again, it grades what is new or changed."
        ),
    )
    add = parser.add_argument
    whole_number, number = _more_than_0(int), _more_than_0(float)
    add(
        "submissions",
        type=Path,
        metavar="SUBMISSIONS",
        help="the folder of what was handed in",
    )
    place = "where the results go; `results` beside SUBMISSIONS"
    add("--results", type=Path, metavar="DIR", help=place)
    usual = "notebooks at a time; %(default)s on this machine"
    add("--workers", type=whole_number, metavar="N", default=usual_workers(), help=usual)
    add(
        "--seed",
        type=_seed,
        metavar="S",
        help="of the hidden cases; by chance at first, then kept",
    )
    for name, metavar, default, what in (
        ("seconds", "S", Limits.notebook_seconds, "for all cells of a notebook"),
        (
            "minutes",
            "M",
            Limits.total_seconds / 60,
            "by the clock, for all that is done with a notebook",
        ),
        ("memory", "GIB", Limits.memory / GIB, "for all processes of a notebook"),
    ):
        usual = f"{what}; {default:g}"
        add(f"--limit-{name}", type=number, metavar=metavar, default=default, help=usual)
    where = "of Dask, such as tcp://10.0.0.1:8786: its workers grade, with a sandbox each"
    add("--scheduler", metavar="ADDRESS", help=where)
    add("--again", action="store_true", help="grade everything anew")
    danger = "do without bubblewrap: then a submission can read and change your files"
    add("--no-sandbox", action="store_true", help=danger)
    return parser


def _more_than_0(kind: type) -> Callable[[str], Any]:
    def read(text: str):
        if (value := kind(text)) > 0:
            return value
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")

    read.__name__ = kind.__name__  # argparse names it when a text is no number
    return read


def _seed(text: str) -> int:
    if 0 <= (seed := int(text)) <= LARGEST_SEED:
        return seed
    raise argparse.ArgumentTypeError(f"must be from 0 to {LARGEST_SEED}, not {text}")


def _look_around(arguments: argparse.Namespace):
    """Completes the arguments from what is on disk.

    Raises ValueError, with a sentence, for what is impossible.
    """
    checks.read_mistakes(checks.lessons())
    folder = arguments.folder = arguments.submissions.resolve()
    results = arguments.results = (arguments.results or folder.parent / "results").resolve()
    if arguments.scheduler and arguments.no_sandbox:
        raise ValueError(
            "--scheduler and --no-sandbox do not go together: a worker has a sandbox"
        )
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder")
    if results.is_relative_to(folder):
        raise ValueError(
            f"the results cannot lie among the submissions, in {results}: choose another "
            "--results"
        )
    if reason := (
        _missing_dask()
        if arguments.scheduler
        else not arguments.no_sandbox and sandbox.missing()
    ):
        raise ValueError(reason)
    arguments.submissions = find_submissions(folder)
    if not arguments.submissions:
        raise ValueError(f"there is no notebook in {folder}")
    terms = f"{arguments.limits} {course_digest()} {mistakes_digest()}"
    arguments.store = GradeStore(results, folder, arguments.seed, terms)


def _missing_dask() -> str:
    """Why Dask cannot be used here, or ""."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        return INSTALL_DASK
    return ""


def usual_workers() -> int:
    room = psutil.virtual_memory().available // MEMORY_OF_A_WORKER
    return max(1, min(processors(), room))


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
