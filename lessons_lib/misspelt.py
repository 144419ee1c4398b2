"""Says so when a check does not find its answer because the answer's name is misspelt."""

import difflib
import sys

from lessons_lib import checks


def watch(lesson: str) -> None:
    """From now on, a NameError for an answer of the lesson names the name that is like it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return
    answers = {exercise.answer_name for exercise in checks.exercises_of(lesson)}

    def show(shell, kind, error, traceback, tb_offset=None):
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
        if error.name in answers and (name := _like(error.name, shell.user_ns)):
            print(f"You have written `{name}`, and the check looks for `{error.name}`.")

    shell.set_custom_exc((NameError,), show)


def _like(name: str, names) -> str | None:
    return next(iter(difflib.get_close_matches(name, set(names) - {name}, n=1)), None)
