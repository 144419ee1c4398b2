"""What to do after a check, for the card that shows its result."""

from typing import Any

from lessons_lib import checks, progress

RUN_IT = "run its cell: click on it and press Shift+Enter"
_failed: dict[str, Any] = {}  # the answer that each exercise's last check refused


def after_failing(result: checks.CheckResult, answer: Any) -> str:
    """The result's message and the next step. A cell that was edited may not have run."""
    body = f'{result.message}\nOne hint at a time: hint("{result.exercise}")'
    if _failed.get(result.exercise) is answer:
        body += f"\nThis is the answer of your last check. Is yours newer? Then {RUN_IT}."
    _failed[result.exercise] = answer
    return body


def before_trying(result: checks.CheckResult) -> str:
    """The message to a learner whose answer is still the stub, as far as the kernel knows."""
    words = (
        f"{result.message}\nHave you written it? Then take the stub's line out, and {RUN_IT}."
    )
    if progress.load().get(result.exercise, {}).get("passed"):
        words += "\nIt has passed before. Is that answer in another tab, or in another copy?"
    return words


def is_the_learners(answer: Any, exercise: checks.Exercise) -> bool:
    """Whether it has the answer's name: a lesson also checks wrong ones that it shows."""
    name = getattr(answer, "__name__", exercise.answer_name)
    return name in (exercise.answer_name, "<lambda>")
