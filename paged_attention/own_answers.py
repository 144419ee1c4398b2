"""The learner's own answers, checked once more before a later lesson builds on them.

Where an answer is missing, the course's is used.
"""

import functools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tqdm import tqdm

from lessons_lib import checks
from lessons_lib.checks.saved_answers import NoSavedAnswer, load
from lessons_lib.cuda.compiler_errors import CannotBuild
from lessons_lib.cuda.inline import build_cpp, read_kernel
from lessons_lib.processes.isolation import describe_error
from paged_attention.pool.block_manager import build_block_manager

YOURS, THE_COURSES = "yours", "the course's"

# Exercises and the files under kernels/ that their answers replace, in the order in which they
# are compiled. 1.3 is 1.2 made safe for threads. Later lessons have only one, so 1.2 will do.
BLOCK_MANAGER = {
    "1.1": "free_list.h",
    "1.3": "block_manager.h",
    "1.4": "block_manager_binding.cpp",
}
WITHOUT_MUTEX = "1.2"
# The mistake of an answer from before its exercise changed. Its message says what to do.
OUTDATED = "old-generator"

# (exercise, digest) of the saved answers that this process has checked
_passed: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Part:
    """A part of what a lesson builds.

    `whose`: "yours" or "the course's".
    `reason`: why it is the course's; "" for yours.
    """

    exercise: str
    name: str
    whose: str
    reason: str = ""


def show_parts(parts: list[Part]) -> None:
    """Prints the parts as a table."""
    rows = [
        ("exercise", "part", "whose", "why"),
        *((part.exercise, part.name, part.whose, part.reason) for part in parts),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(
                f"{text:{width}}" for text, width in zip(row, widths, strict=True)
            ).rstrip()
        )


class Answers:
    """The learner's answers to some exercises.

    `yours`: the answers that pass their checks, by exercise.
    `reasons`: for each other exercise, why its answer is missing here.
    """

    def __init__(self, exercises: list[str]):
        self.yours: dict[str, Any] = {}  # texts and functions
        self.reasons: dict[str, str] = {}
        with ThreadPoolExecutor(2) as pool:
            # To stdout: a bar on stderr leaves an empty red line in JupyterLab.
            found = tqdm(
                pool.map(_find, exercises),
                "checking your parts",
                len(exercises),
                leave=False,
                delay=3,
                file=sys.stdout,
            )
            for exercise, (answer, reason) in zip(exercises, found, strict=True):
                if reason:
                    self.reasons[exercise] = reason
                else:
                    self.yours[exercise] = answer

    def stand_in(self, exercise: str, missing: str) -> None:
        """If the answer to `exercise` passes, uses it where that to `missing` is missing."""
        answer, reason = _find(exercise)
        if not reason:
            self.yours[exercise] = answer
            del self.reasons[missing]

    def build(self, files: dict[str, str], build: Callable[[dict[str, str]], object]):
        """Builds the learner's texts, together with the course's where one is missing.

        build: called with the learner's texts by file name.
        Returns None if no text is the learner's. Returns None, too, if the texts cannot be
            built together; then all of them count as the course's.
        """
        texts = {
            file: self.yours[exercise]
            for exercise, file in files.items()
            if exercise in self.yours
        }
        try:
            return build(texts) if texts else None
        except Exception as error:
            reason = (
                f"this machine cannot build them: {error}"
                if isinstance(error, CannotBuild)
                else f"your texts cannot be built together: {describe_error(error)}"
            ).splitlines()[0]
            for exercise in [exercise for exercise in files if exercise in self.yours]:
                del self.yours[exercise]
                self.reasons[exercise] = reason
            return None

    def parts(self) -> list[Part]:
        rows = [Part(exercise, _name(exercise), YOURS) for exercise in self.yours]
        rows += [
            Part(exercise, _name(exercise), THE_COURSES, reason)
            for exercise, reason in self.reasons.items()
        ]
        return sorted(
            rows, key=lambda part: [int(number) for number in part.exercise.split(".")]
        )


def own_block_manager() -> tuple[type, list[Part]]:
    """Builds lesson 01's class from the learner's texts, and says which of them are in it.

    Returns (the class `BlockManager`, its parts).
    """
    answers = Answers([*BLOCK_MANAGER])
    module = build_own_manager(answers) or build_block_manager()
    return module.BlockManager, answers.parts()


def build_own_manager(answers: Answers) -> ModuleType | None:
    """Builds the C++ block manager from those of the answers that are the learner's.

    Returns None where none is.
    """

    def build(texts):
        files = {
            file: texts.get(file) or read_kernel(file)
            for file in ("block_errors.h", *BLOCK_MANAGER.values())
        }
        return build_cpp(*files.values(), names=tuple(files), name="block_manager")

    files = BLOCK_MANAGER
    if "1.3" in answers.reasons:
        answers.stand_in(WITHOUT_MUTEX, "1.3")
        files = {WITHOUT_MUTEX: "block_manager.h", **files}
    return answers.build(files, build)


def _find(exercise: str) -> tuple[Any, str]:
    """Returns the saved answer if it passes its check, else None and the reason."""
    try:
        saved = load(exercise)
        if (exercise, saved.digest) not in _passed:
            result = checks.run(exercise, saved.answer)
            if result.mistake == OUTDATED:
                return None, result.message.partition("\n")[0]
            if result.mistake == checks.NOT_JUDGED:
                return None, result.message.splitlines()[1]
            if not result.passed:
                return None, f"it does not pass its check now: {result.mistake}"
            _passed.add((exercise, saved.digest))
    except NoSavedAnswer as error:
        return None, str(error)
    except Exception as error:
        return None, f"its check could not be run: {describe_error(error)}"
    return (
        saved.answer if isinstance(saved.answer, str) else _signed(exercise, saved.answer)
    ), ""


def _name(exercise: str) -> str:
    return checks.find(exercise).answer_name


def _signed(exercise: str, function: Callable) -> Callable:
    """Wraps a function so that its errors say which exercise they come from.

    The notebook that held its text may be closed.
    """

    @functools.wraps(function)
    def call(*arguments, **named):
        try:
            return function(*arguments, **named)
        except Exception as error:
            error.add_note(
                f"It came out of your answer to exercise {exercise}, `{_name(exercise)}`."
            )
            raise

    return call
