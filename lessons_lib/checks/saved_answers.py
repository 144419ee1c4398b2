"""Saves the learner's answers that pass. Lesson 08 builds an engine from them.

Each exercise has a file: a line of JSON about the answer, then the answer. An answer in C++
or CUDA is saved as text. A function or class is saved as a pickle, with its code and the
definitions of the notebook that it uses, such as the learner's earlier functions.
"""

import base64
import hashlib
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.checks import progress, solution_cells
from lessons_lib.paths import progress_folder
from lessons_lib.processes import added_methods, pickles
from lessons_lib.whole_files import write_whole

PYTHON = "{}.{}".format(*sys.version_info)

_in_solutions: dict[str, str] = {}  # answers of a solution notebook; they end with its kernel


class NoSavedAnswer(Exception):
    """Says in plain words why there is no saved answer."""


@dataclass(frozen=True)
class SavedAnswer:
    """A saved answer. Answers with the same content have the same digest."""

    answer: str | Callable
    digest: str


def save(exercise_id: str, answer: object) -> None:
    """Saves an answer that has passed. A full or read-only disk does not break a lesson."""
    try:
        text = _pack(exercise_id, answer)
    except BaseException:  # pickling or writing failed; pickling may even raise SystemExit
        return
    if solution_cells.are_at_home():
        _in_solutions[exercise_id] = text  # our own answers are not the learner's
        return
    try:
        path = _file(exercise_id)
        write_whole(path, text, mode=0o600)
    except OSError:
        pass


def load(exercise_id: str) -> SavedAnswer:
    """The newest answer to an exercise that passed. Raises NoSavedAnswer if none did."""
    text = _read(exercise_id)
    try:
        header, _, payload = text.partition("\n")
        about = json.loads(header)
        exercise, form, python, digest = (
            str(about[name]) for name in ("exercise", "form", "python", "sha256")
        )
    except (ValueError, KeyError, TypeError):
        raise NoSavedAnswer("its file cannot be read") from None
    if exercise != exercise_id:
        raise NoSavedAnswer(f"its file holds an answer to exercise {exercise}")
    if digest != _digest(payload):
        raise NoSavedAnswer("its file has changed since it was saved")
    if form == "text":
        return SavedAnswer(payload, digest)
    if python != PYTHON:
        raise NoSavedAnswer(f"saved with Python {python}, and this is Python {PYTHON}")
    try:
        return SavedAnswer(pickle.loads(base64.b64decode(payload)), digest)
    except BaseException as error:  # unpickling may raise anything, even SystemExit
        raise NoSavedAnswer(
            f"it cannot be loaded ({type(error).__name__}: {error})".replace("\n", " ")
        ) from None


def _pack(exercise_id: str, answer: object) -> str:
    payload = (
        answer
        if isinstance(answer, str)
        else base64.b64encode(pickles.dumps(added_methods.carried(answer))).decode()
    )
    about = {
        "exercise": exercise_id,
        "form": "text" if isinstance(answer, str) else "pickle",
        "python": PYTHON,
        "sha256": _digest(payload),
    }
    return f"{json.dumps(about)}\n{payload}"


def _digest(payload: str) -> str:
    return hashlib.sha256(payload.encode()).hexdigest()


def _read(exercise_id: str) -> str:
    try:
        if solution_cells.are_at_home():
            return _in_solutions[exercise_id]
        return _file(exercise_id).read_bytes().decode("utf-8")
    except (FileNotFoundError, KeyError):
        passed = progress.load().get(exercise_id, {}).get("passed")
        raise NoSavedAnswer(
            "passed, but not saved: run its check once more" if passed else "not passed yet"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise NoSavedAnswer("its file cannot be read") from None


def _file(exercise_id: str) -> Path:
    return progress_folder() / "parts" / exercise_id
