"""A process beside a Dask worker: it grades the submissions that remote.py hands to it."""

import importlib
import json
import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from lessons_grading import sandbox
from lessons_grading.classroom import end_this_process, tidy_up_at_the_end
from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.notebook import Cell, Notebook
from lessons_grading.remote import IDLE_LIMIT, LARGEST_REPLY
from lessons_grading.sandbox import Limits
from lessons_grading.try_answer import remember_answers
from lessons_lib import checks
from lessons_lib.checks import MistakesError
from lessons_processes import isolation


def serve():
    """Says what is here, then grades until there is no more work for a while.

    For each order it sends {} before a step, then {"grade": …},
    {"failed": why} for a fault of the grader, or {"lost": why}.
    """
    pipe = Connection(int(sys.argv[1]))
    tidy_up_at_the_end()
    remember_answers()
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send_bytes(json.dumps(about()).encode())
        while pipe.poll(IDLE_LIMIT):
            order = json.loads(pipe.recv_bytes())
            reply = json.dumps(_graded(order, lambda: pipe.send_bytes(b"{}"))).encode()
            if len(reply) > LARGEST_REPLY:
                size = f"its grade has {len(reply) >> 20} MB"
                reply = json.dumps({"lost": size}).encode()
            pipe.send_bytes(reply)


def about() -> dict:
    """What decides whether this machine may grade: the course, its mistakes, its sandbox."""
    mistakes, problem = "", ""
    try:
        checks.read_mistakes(checks.lessons())
        mistakes = mistakes_digest()
    except (MistakesError, OSError) as error:
        problem = str(error)
    return {
        "course": course_digest(),
        "mistakes": mistakes,
        "problem": problem,
        "sandbox": sandbox.missing(),
        "limited_by": sandbox.limited_by(Limits()),
    }


def order_of(
    notebook: Notebook, name: str, student: str, seed: int, limits: dict, grader: str
) -> dict:
    """What `_graded` needs, as JSON.

    grader: "module:function" with the arguments of judge.grade_read.
    """
    return {
        "notebook": [
            notebook.digest,
            notebook.lesson,
            [[cell.number, cell.source] for cell in notebook.cells],
            notebook.problem,
        ],
        "name": name,
        "student": student,
        "seed": seed,
        "limits": limits,
        "grader": grader,
    }


def _graded(order: dict, progress) -> dict:
    digest, lesson, cells, problem = order["notebook"]
    notebook = Notebook(digest, lesson, tuple(Cell(*cell) for cell in cells), problem)
    limits = Limits(**order["limits"] | {"unseen": tuple(order["limits"]["unseen"])})
    module, _, function = order["grader"].partition(":")
    try:
        grade = getattr(importlib.import_module(module), function)
        result = grade(
            notebook,
            order["name"],
            order["student"],
            seed=order["seed"],
            limits=limits,
            progress=progress,
        )
        return {"grade": result.to_json()}
    except Exception as error:
        return {"failed": isolation.describe_error(error)}


def _end_with_the_worker():
    """What the worker holds of our standard input ends when it does, however that is."""
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    end_this_process()
