"""Explains why a name is missing: an answer's name is misspelt, or a cell has not run.

A kernel that was restarted knows nothing of the cells that ran before.
"""

import difflib
import sys

from lessons_guide import restart
from lessons_lib import checks
from lessons_lib.display import show


def watch(lesson: str) -> None:
    """From now on, a NameError in the lesson says which name is like it, or what to run."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.set_custom_exc(
            (NameError,), lambda *error, **rest: _show(lesson, *error, **rest)
        )


def _show(lesson: str, shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    explain(shell, error, lesson)


def explain(shell, error: NameError, lesson: str | None) -> None:
    """Shows what can be said of the error, if anything.

    lesson: its number, if it is known.
    """
    answers = {exercise.answer_name for exercise in checks.exercises_of(lesson or "")}
    if error.name in answers and (name := _like(error.name, shell.user_ns)):
        print(f"You have written `{name}`, and the check looks for `{error.name}`.")
    elif card := restart.explain(
        error.name or "", shell.user_ns.get("In", [""])[-1], lesson, shell.user_ns
    ):
        show(card)


def _like(name: str, names) -> str | None:
    return next(iter(difflib.get_close_matches(name, set(names) - {name}, n=1)), None)
