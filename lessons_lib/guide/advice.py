"""Says what to do after a check, for the card that shows the result."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from lessons_lib import checks
from lessons_lib.checks import progress

RUN_IT = "run its cell: click on it and press Shift+Enter"
_failed: dict[str, Any] = {}  # the last refused answer to each exercise


def after_failing(result: checks.CheckResult, answer: Any) -> str:
    """The result's message and the next step.

    A learner may have edited a cell and not run it.
    """
    body = f'{result.message}\nOne hint at a time: hint("{result.exercise}")'
    if _failed.get(result.exercise) is answer:
        body += f"\nThis is the answer of your last check. Is yours newer? Then {RUN_IT}."
    _failed[result.exercise] = answer
    return body


def after_passing() -> str:
    """Lists the imported files to hand in with the notebook; "" if there are none."""
    here, own = Path.cwd(), set()
    for module in [*sys.modules.values()]:
        with suppress(Exception):  # a module may have any attributes
            file = Path(module.__file__ or "")
            # PyTorch's modules may name files that do not exist
            is_real = file.is_absolute() and file.suffix == ".py"
            if is_real and file.resolve().parent == here:
                own.add(file.name)
    names = " and ".join(sorted(own))
    return (
        f"Your notebook imports {names} from its folder. When you hand the notebook in, hand "
        f"{names} in with it: without, your answer cannot be graded."
        if own
        else ""
    )


def standing(result: checks.CheckResult) -> str:
    """Says in the title of the card why an answer was not tried."""
    first = re.match(r"It calls exercise (\d+\.\d+)", result.message)
    return f"needs exercise {first[1]} first" if first else "not attempted yet"


def before_trying(result: checks.CheckResult) -> str:
    """The message to a learner whose answer is still the stub in this kernel."""
    words = (
        f"{result.message}\nHave you written it? Then take the stub's line out, and {RUN_IT}."
    )
    if progress.load().get(result.exercise, {}).get("passed"):
        words += "\nIt has passed before. Is that answer in another tab, or in another copy?"
    return words


def is_the_learners(answer: Any, exercise: checks.Exercise) -> bool:
    """Whether it has the answer's name. A lesson also checks wrong answers, to show them."""
    name = getattr(answer, "__name__", exercise.answer_name)
    return name in (exercise.answer_name, "<lambda>")
