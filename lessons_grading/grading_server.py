"""Runs in a process that grades. Orders and replies are JSON: much in them is a student's."""

import importlib
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

from lessons_grading import sandbox
from lessons_grading.grades import SubmissionGrade
from lessons_grading.grading_process import LARGEST_REPLY
from lessons_grading.notebook import Notebook
from lessons_grading.sandbox import Limits
from lessons_grading.store import course_digest, mistakes_digest
from lessons_grading.try_answer import remember_answers
from lessons_lib import checks
from lessons_lib.checks import MistakesError
from lessons_lib.processes import isolation

GRADER = "lessons_grading.judge:grade_notebook"


class Order(msgspec.Struct, tag=True):
    """What one grading needs.

    name: of the notebook's file.
    grader: "module:function" with the arguments of judge.grade_notebook.
    """

    notebook: Notebook
    name: str
    student: str
    seed: int
    limits: Limits
    grader: str = GRADER


class Reply(msgspec.Struct):
    """A grade, or why there is none."""

    grade: SubmissionGrade | None = None
    failed: str = ""


class Question(msgspec.Struct, tag=True):
    """Asks a worker of Dask whether it may grade for a command.

    course, mistakes: digests, as the command has them.
    sandboxed: whether a sandbox is needed.
    """

    course: str
    mistakes: str
    sandboxed: bool


def serve():
    """Runs in the process, until the pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, _tidy_up)
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    remember_answers()
    with suppress(EOFError, OSError):
        while True:
            order = msgspec.json.decode(pipe.recv_bytes(), type=Order | Question)
            reply = _graded(order) if isinstance(order, Order) else _permission(order)
            text = msgspec.json.encode(reply)
            if len(text) > LARGEST_REPLY:
                size = f"its grade has {len(text) >> 20} MB"
                text = msgspec.json.encode(Reply(failed=size))
            pipe.send_bytes(text)


def _permission(question: Question) -> dict[str, str]:
    """Why this machine may not grade, or ""; and what keeps the limits here."""
    refused = question.sandboxed and sandbox.missing() or ""
    try:
        checks.read_mistakes(checks.lessons())
        if mistakes_digest() != question.mistakes:
            refused = refused or "LESSONS_MISTAKES names other mistakes there"
    except (MistakesError, OSError) as error:
        refused = str(error)
    if course_digest() != question.course:
        refused = "it has another version of the course"
    return {"refused": refused, "limited_by": sandbox.limited_by(Limits())}


def _graded(order: Order) -> Reply:
    module, _, function = order.grader.partition(":")
    try:
        grade = getattr(importlib.import_module(module), function)
        return Reply(
            grade(order.notebook, order.name, order.student, order.seed, order.limits)
        )
    except Exception as error:
        return Reply(failed=isolation.describe_error(error))


def _tidy_up(*_):
    """Makes SIGTERM an exception, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def _end_with_the_starter():
    """Ends this process when its standard input is closed: then its starter has ended."""
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    while True:  # a call that begins to wait just then does not hear it at first
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
