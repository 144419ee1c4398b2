"""Runs inside the sandbox: a controller that runs functions of this file, each in a process of its own.

The controller runs no code of the submission itself. It takes orders from the judge outside, one at a time, and passes on
what a run reports; the judge answers each report, with a new time limit or with null.
"""

import base64
import ctypes
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import sys
import time
import types
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle
import psutil

from lessons_lib import checks, isolation
from lessons_lib.own_time import own_clock
from lessons_lib.paths import ROOT

LARGEST_ANSWER = 10 << 20  # bytes
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36


def serve():
    """The controller: takes orders from descriptor 0 and replies to descriptor 1 until the judge is gone."""
    orders, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    _protect()
    isolation._context.set_forkserver_preload(["IPython.core.interactiveshell", *isolation._PRELOAD])
    isolation.run_isolated(os.getpid)  # now the forkserver is there, before any code of the submission
    replies.send_bytes(b'["ready"]')
    with suppress(EOFError, OSError):
        while True:
            order = json.loads(orders.recv_bytes())
            replies.send_bytes(json.dumps(["ended", _obey(order, orders, replies)]).encode())


def _protect():
    """Limits for this process and all that come from it, and none of them may look into this one."""
    os.nice(10)  # whoever watches comes first, even beside a fork bomb
    limits = json.loads(os.environ["LESSONS_GRADE_LIMITS"])
    for name, limit in limits.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    with suppress(AttributeError, OSError):  # only Linux has prctl
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_DUMPABLE, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a run leaves behind becomes our child, so that it can be found
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _obey(order: dict, orders: Connection, replies: Connection) -> dict:
    def pass_on(report):
        replies.send_bytes(json.dumps(["report", report]).encode())
        try:
            return json.loads(orders.recv_bytes())
        except EOFError:
            sys.exit()  # the judge is gone

    function = {"run_cells": run_cells, "build": build, "observe": observe}[order["function"]]
    outcome = isolation.run_isolated(function, *order["arguments"], time_limit=order["time_limit"], report=True,
                                     on_report=pass_on, output_limit=order["output_limit"])
    _end_what_is_left()
    if function is run_cells:
        _empty(os.environ["LESSONS_GRADE_FOLDER"])
    error = outcome.error and [type(outcome.error).__name__, isolation.describe_error(outcome.error)]
    return {"ending": outcome.ending, "detail": outcome.detail, "printed": outcome.printed, "error": error}


def _end_what_is_left():
    """Ends the processes that a run has left behind, whichever session they are in."""
    ours = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    for _ in range(100):
        left = [process for process in psutil.Process().children(recursive=True) if process.pid not in ours]
        if not left:
            return
        for process in left:
            with suppress(psutil.Error, OSError):
                process.kill()
                os.waitpid(process.pid, 0)
        time.sleep(0.01)
    os._exit(1)  # it starts them faster than they can be ended; with us the sandbox ends


def _empty(folder: str):
    """Deletes what the cells have written. What the sandbox itself has put there, builds of ours, cannot be deleted."""
    for entry in os.scandir(folder):
        if entry.path == util.get_temp_dir():  # the forkserver's
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry, ignore_errors=True)
        else:
            os.unlink(entry)


def run_cells(cells: list, names: dict[str, str], seconds: float, report):
    """Executes `cells`, (number, source) each, as a notebook does, and reports what becomes of them:

    ["cell", number] before each, ["error", number, text] after one that fails, ["stopped", number] for one that takes
    longer than `seconds`, and ["answer", exercise, answer] for each value that an answer gets. `names`: from exercises to
    the names of their answers.
    """
    multiprocessing.current_process()._config["daemon"] = False  # cells may run processes of their own
    os.chdir(os.environ["LESSONS_GRADE_FOLDER"])
    sys.path.insert(0, "")  # modules that they write
    shell = _shell()
    answers = _Answers(names, shell.user_ns, report)
    _silence_verbs(answers)
    for number, source in cells:
        report(["cell", number])
        error = _run_cell(shell, source, seconds)
        answers.look()
        if isinstance(error, CellTooSlow):
            report(["stopped", number])
        elif isinstance(error, MemoryError):
            raise error  # what it took may be kept by somebody: the other cells get another process
        elif error is not None:
            report(["error", number, isolation.describe_error(error)[:300]])
    answers.look(again=True)  # functions that they call may have changed since


class CellTooSlow(BaseException):
    """A cell has taken longer than it may."""


def _run_cell(shell, source: str, seconds: float) -> BaseException | None:
    end = own_clock() + seconds

    def stop_cell(*_):
        if own_clock() >= end:  # else others had the processor
            raise CellTooSlow

    try:
        signal.signal(signal.SIGALRM, stop_cell)
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)  # again and again, should the cell catch it
        result = shell.run_cell(source)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result.error_before_exec or result.error_in_exec
    except CellTooSlow as stopped:  # between the cell and us
        return stopped
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def _shell():
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):  # for %matplotlib; there is nothing to see here
            pass

    HistoryManager.enabled = False
    return Shell.instance(user_module=types.ModuleType("__main__"))


def _silence_verbs(answers: "_Answers"):
    import lessons_lib
    from lessons_lib import verbs

    for module in (lessons_lib, verbs):
        module.check = lambda exercise_id, answer: answers.checked(str(exercise_id), answer)
        module.hint = module.solution = module.progress_bar = lambda *arguments, **named: None


class _Answers:
    """Reports each new value of an answer, so that it counts whatever a later cell does."""

    def __init__(self, names: dict[str, str], namespace: dict, report):
        self.names, self.namespace, self.report = names, namespace, report
        self.seen: dict[str, object] = {}
        self.sent: set[tuple[str, int]] = set()

    def look(self, again: bool = False):
        for exercise, name in self.names.items():
            if name in self.namespace:
                answer = self.namespace[name]
                if again or exercise not in self.seen or self.seen[exercise] is not answer:
                    self.hand_in(exercise, answer)

    def checked(self, exercise: str, answer: object):
        """What was handed to a check counts under any name, but not beside an answer of the right name: lesson 00 checks
        a wrong one, to show what a check does."""
        if self.namespace.get(self.names.get(exercise), answer) is answer:
            self.hand_in(exercise, answer)

    def hand_in(self, exercise: str, answer: object):
        if exercise not in self.names:
            return
        self.seen[exercise] = answer
        packed = _pack(checks.find(exercise), answer)
        if (key := (exercise, hash(json.dumps(packed)))) not in self.sent:
            self.sent.add(key)
            self.report(["answer", exercise, packed])


def _pack(exercise: checks.Exercise, answer) -> dict:
    """An answer as JSON: {"text": …}, {"pickle": …}, or {"refused": (mistake, message)} for what is no answer."""
    refused = checks._refuse(exercise, answer)
    if refused and refused.mistake == "not-an-answer":
        return {"refused": (refused.mistake, refused.message)}
    if isinstance(answer, str) and len(answer) <= LARGEST_ANSWER:
        return {"text": str(answer)}
    module = sys.modules.get(getattr(answer, "__module__", None) or "")
    if module and Path(getattr(module, "__file__", None) or "/").is_relative_to(ROOT):
        return {"refused": ("missing", f"`{exercise.answer_name}` is the course's own, from {module.__name__}.")}
    try:
        data = cloudpickle.dumps(answer)
        if len(data) > LARGEST_ANSWER:
            raise ValueError(f"it and what it uses have {len(data) >> 20} MB")
    except Exception as error:
        refused = checks._not_sendable(exercise, TypeError(f"This cannot be sent to another process: {error}"[:300]))
        return {"refused": (refused.mistake, refused.message)}
    return {"pickle": base64.b64encode(data).decode()}


def build(exercise_id: str, packed: dict, report):
    """Builds an answer in C++ or CUDA, so that `observe` need not."""
    exercise, answer = checks.find(exercise_id), _unpack(packed)
    if not _refused(exercise, answer, report):
        exercise.prepare(answer)


def observe(exercise_id: str, packed: dict, seed: int, ended: list[int], report):
    """Reports ["case", number, result] for each case, first the visible ones, then those of `seed`; or ["refused", mistake,
    message] for an answer that need not be tried. `ended`: the numbers of cases that are not tried again."""
    import torch

    from grading.results import encode

    torch.set_num_threads(1)
    exercise = checks.find(exercise_id)
    # Before any code of the submission is here.
    cases = [*exercise.in_order(exercise.cases()), *exercise.in_order(exercise.hidden(seed))]
    answer = _unpack(packed)
    if _refused(exercise, answer, report):
        return
    subject = exercise.prepare(answer)
    for number, case in enumerate(cases):
        if number in ended:
            continue
        report(["case", number, encode(checks._attempt(exercise, subject, case))])


def _unpack(packed: dict):
    return packed["text"] if "text" in packed else pickle.loads(base64.b64decode(packed["pickle"]))


def _refused(exercise: checks.Exercise, answer, report) -> bool:
    refused = checks._refuse(exercise, answer)
    if refused:
        report(["refused", refused.mistake, refused.message])
    return refused is not None
