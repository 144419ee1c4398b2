"""The functions that run on a submission in the sandbox, each in a separate process.

controller.py starts them. Only their reports come out: see sandbox_messages.py.
"""

import base64
import ctypes
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from lessons_grading import sandbox_messages
from lessons_grading.sandbox_messages import Packed, plain
from lessons_lib import checks
from lessons_lib.checks import result_codec
from lessons_lib.paths import ROOT
from lessons_lib.processes import added_methods, isolation, pickles
from lessons_lib.processes.cpu_time import own_clock

LARGEST_ANSWER = 10 << 20  # bytes
_NONE = object()  # where there is no answer
Report = Callable[[sandbox_messages.Report], None]  # sends it to the judge


def run(function: str, arguments: list, pipe: Connection, answers: int):
    """Calls a function, and reports how it has ended.

    answers: the descriptor that gets a byte when a report was read.
    """
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)

    def report(message):
        pipe.send_bytes(msgspec.json.encode(message))
        os.read(answers, 1)

    functions: dict[str, Callable] = {"run_cells": run_cells, "observe": observe}
    os.chdir(os.environ["LESSONS_GRADE_FOLDER"])
    code = None
    try:
        code = functions[function](*arguments, report)
        finished = sandbox_messages.Finished("returned")
    except SystemExit as stop:
        finished = sandbox_messages.Finished("exited", plain(f"exit({stop.code!r:.80})"))
    except BaseException as error:
        finished = sandbox_messages.Finished("raised", _words_of(error)[:20_000])
    with suppress(Exception):
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # flushes what C++ printed
    report(finished)
    os._exit(code or 0)  # at once, even if the answer left threads running


def _words_of(error: BaseException) -> str:
    return plain(isolation.describe_error(error))


def run_cells(
    files: dict[str, str],
    cells: list,
    exercises: dict[str, list],
    wanted: list[str],
    seconds: float,
    report: Report,
) -> int | None:
    """Runs `cells` as a notebook does, and reports what happens: Begun before each cell,
    CellFailed, and an Answer for each value that one gets.

    files: the files that were handed in with the notebook.
    cells: (number, source) each.
    exercises: all exercises by id: [name of the answer, language, whether it is a class].
    wanted: the exercises whose answers are reported.
    seconds: for each cell.
    Returns STOPPED if a cell took longer.
    """
    code = None
    _place(files)
    shell = _shell()
    known = {exercise: _bare(exercise, *about) for exercise, about in exercises.items()}
    # lesson 08 looks up the names of answers
    checks.find = lambda exercise_id: known[str(exercise_id)]
    answers = _Answers([known[exercise] for exercise in wanted], shell.user_ns, report)
    _silence_verbs(answers)
    for number, source in cells:
        report(sandbox_messages.Begun(number))
        error = _run_cell(shell, source, seconds)
        answers.look()
        if isinstance(error, CellTooSlow):
            code = sandbox_messages.STOPPED
            report(sandbox_messages.CellFailed(number, f"was stopped after {seconds:g} s"))
        elif isinstance(error, MemoryError):
            raise error  # some of it may be in use, so another process runs the rest
        elif error is not None:
            report(sandbox_messages.CellFailed(number, f"raised {_words_of(error)[:300]}"))
    answers.look(again=True)  # functions that they call may have changed
    return code


class CellTooSlow(BaseException):
    """A cell has taken longer than it may."""


def _run_cell(shell, source: str, seconds: float) -> BaseException | None:
    end = own_clock() + seconds

    def stop_cell(*_):
        if own_clock() >= end:  # else other processes had the processor
            raise CellTooSlow

    try:
        signal.signal(signal.SIGALRM, stop_cell)
        # again, in case the cell catches it
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
        result = shell.run_cell(source)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result.error_before_exec or result.error_in_exec
    except CellTooSlow as stopped:  # it came between the cell and us
        return stopped
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def _shell():
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):
            """For %matplotlib. Nothing is displayed here."""

    HistoryManager.enabled = False  # type: ignore[assignment]  # hides the trait, for all
    return Shell.instance()


def _silence_verbs(answers: "_Answers"):
    import lessons_lib
    from lessons_lib import notebook_api

    def silence(*arguments, **named):
        pass

    verbs = {"check": answers.checked}
    verbs |= dict.fromkeys(("hint", "solution", "progress_bar"), silence)
    for module in (lessons_lib, notebook_api):
        vars(module).update(verbs)


class _Answers:
    """Reports each new value of an answer, so that it counts whatever later cells do."""

    def __init__(self, wanted: list[checks.Exercise], namespace: dict, report: Report):
        self.wanted = {exercise.id: exercise for exercise in wanted}
        self.namespace, self.report = namespace, report
        self.seen: dict[str, object] = {}
        self.sent: set[tuple[str, int]] = set()

    def look(self, again: bool = False):
        """Hands in what is new, or all of it again."""
        for exercise in self.wanted.values():
            answer = self.namespace.get(exercise.answer_name, _NONE)
            before = self.seen.get(exercise.id, _NONE)
            if answer is not _NONE and (again or answer is not before):
                self.hand_in(exercise, answer)

    def checked(self, exercise_id, answer: object):
        """Takes an answer that was handed to a check, whatever its name.

        It does not count if there is an answer of the right name: lesson 00 checks a wrong
        answer to show what a check does.
        """
        exercise = self.wanted.get(str(exercise_id))
        if exercise and self.namespace.get(exercise.answer_name, answer) is answer:
            self.hand_in(exercise, answer)

    def hand_in(self, exercise: checks.Exercise, answer: object):
        self.seen[exercise.id] = answer
        packed = _pack(exercise, answer)
        key = exercise.id, hash(json.dumps(packed))
        if key not in self.sent:
            self.sent.add(key)
            self.report(sandbox_messages.Answer(exercise.id, packed))


def _bare(id: str, answer_name: str, language: str, is_class: bool) -> checks.Exercise:
    """An exercise that only knows what kind of thing its answer is."""
    kind, gone = type if is_class else None, result_codec.gone
    return checks.Exercise(
        id, "", answer_name, kind, tuple, gone, gone, mistakes=(), hints=(), language=language
    )


def _pack(exercise: checks.Exercise, answer) -> Packed:
    refused = checks.refuse(exercise, answer)
    if refused and refused.mistake == "not-an-answer":
        return {"refused": (str(refused.mistake), plain(refused.message))}
    if isinstance(answer, str) and len(answer) <= LARGEST_ANSWER:
        return {"text": plain(str(answer))}
    module = sys.modules.get(getattr(answer, "__module__", None) or "")
    if module and Path(getattr(module, "__file__", None) or "/").is_relative_to(ROOT):
        ours = f"`{exercise.answer_name}` is the course's own, from {module.__name__}."
        return {"refused": ("missing", ours)}
    try:
        data = pickles.dumps(added_methods.carried(answer))
        if len(data) > LARGEST_ANSWER:
            raise ValueError(f"it and what it uses have {len(data) >> 20} MB")
    except Exception as error:
        words = f"This cannot be sent to another process: {error}"
        refused = checks.not_sendable(exercise, TypeError(words[:300]))
        return {"refused": (str(refused.mistake), plain(refused.message))}
    return {"pickle": base64.b64encode(data).decode()}


def observe(
    tryout: str, packed: Packed, files: dict[str, str], ended: list[int], report: Report
):
    """Reports Ready, and then a Case for each case; or Refused.

    tryout: from course.pack().
    files: the files that were handed in with the notebook. An answer may use them.
    ended: the numbers of cases that are not tried again.
    """
    import torch

    torch.set_num_threads(1)
    exercise, cases = _loaded(tryout)  # before any code of the submission is here
    _place(files)
    answer = packed["text"] if "text" in packed else _loaded(packed["pickle"])
    if refused := checks.refuse(exercise, answer):
        report(sandbox_messages.Refused(str(refused.mistake), plain(refused.message)))
        return
    subject = exercise.prepare(answer)
    report(sandbox_messages.Ready())
    for number, case in enumerate(cases):
        if number in ended:
            continue
        result = result_codec.encode(checks.attempt(exercise, subject, case))
        report(sandbox_messages.Case(number, json.dumps(result)))


def _place(files: dict[str, str]):
    """Writes the files that were handed in, and lets code import them."""
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    sys.path.append("")


def _loaded(text: str):
    return pickle.loads(base64.b64decode(text))
