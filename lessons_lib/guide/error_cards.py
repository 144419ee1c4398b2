"""Explains an error of a cell: a misspelt name, a cell that has not run, or invalid Python.

After a restart, the kernel knows nothing of the cells that ran before.
"""

import builtins
import difflib
import sys

from lessons_lib import checks
from lessons_lib.display import Card, show
from lessons_lib.guide import KINDS, missing_methods, restart, syntax_errors


def watch(lesson: str) -> None:
    """From now on, an error in the lesson shows the name that was meant, or cells to run."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.set_custom_exc(KINDS, lambda *error, **rest: _show(lesson, *error, **rest))


def _show(lesson: str, shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    explain(shell, error, lesson)


def explain(shell, error: Exception, lesson: str | None) -> None:
    """Shows an explanation of the error, if there is one.

    lesson: its number, if it is known.
    """
    running = shell.user_ns.get("In", [""])[-1]
    if isinstance(error, NameError):
        card = _explain_name(error.name or "", running, lesson, shell.user_ns)
    elif isinstance(error, AttributeError):
        card = missing_methods.explain(error, running, lesson, shell.user_ns)
    else:
        card = syntax_errors.explain(error, running, lesson)
    if card:
        show(card)


def _explain_name(name: str, running: str, lesson: str | None, known: dict) -> Card | None:
    answers = {exercise.answer_name for exercise in checks.exercises_of(lesson or "")}
    if name in answers and (like := _like(name, known)):
        return Card(f"You have written `{like}`, and the check looks for `{name}`.")
    if card := restart.explain(name, running, lesson, known):
        return card
    candidates = {*known, *answers, *vars(builtins)}
    if like := _like(name, {each for each in candidates if len(each) > 3}):
        return Card(f"There is no `{name}`. Do you mean `{like}`?")
    return None


def _like(name: str, names) -> str | None:
    return next(iter(difflib.get_close_matches(name, set(names) - {name})), None)
