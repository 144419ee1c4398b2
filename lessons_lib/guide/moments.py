"""Says what a passed exercise means: what the learner can do now, what the lesson built."""

import functools
import tomllib
from pathlib import Path

from lessons_lib import checks
from lessons_lib.checks import progress, solution_cells
from lessons_lib.display import Card, show
from lessons_lib.guide import advice, progress_page


@functools.cache
def lines() -> dict[str, str]:
    """The sentences of moments.toml, by exercise and by lesson."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def is_new(exercise_id: str) -> bool:
    """Whether the learner has not passed this exercise before. Call it before `remember`."""
    passed = progress.load().get(exercise_id, progress.NOTHING)["passed"]
    return not passed and not solution_cells.are_at_home()


def show_passed(exercise: checks.Exercise, is_new: bool) -> None:
    """Shows that an answer has passed and, the first time, what that means."""
    said = [after_exercise(exercise.id) if is_new else "", advice.after_passing()]
    body = "\n".join(filter(None, said))
    show(Card(f"Exercise {exercise.id}, {exercise.title}: passed", body, tone="passed"))
    if is_new and (card := after_lesson(exercise.id)):
        show(card)


def after_exercise(exercise_id: str) -> str:
    """One line: what the learner can do now, what becomes possible, and what comes next."""
    return f"{lines().get(exercise_id, '')} Next: {_next(exercise_id)}.".lstrip()


def after_lesson(exercise_id: str) -> Card | None:
    """Says what the lesson has built, if all its exercises are passed now."""
    lesson, record = _lesson_of(exercise_id), progress.load()
    exercises = progress_page.in_order(lesson)
    entries = [record.get(each.id, progress.NOTHING) for each in exercises]
    if not all(entry["passed"] for entry in entries):
        return None
    slips = sum(len(entry["mistakes"]) for entry in entries)
    way = f"You met {slips or 'no'} slip{'s' * (slips != 1)} on the way."
    tries, longest = max(
        zip((entry.get("tries", 0) for entry in entries), exercises, strict=True),
        key=lambda pair: pair[0],
    )
    if tries > 1:
        way += f" The most tries went into {longest.id}, {longest.title}: {tries}."
    body = "\n".join(filter(None, [lines().get(lesson), way]))
    return Card(f"{progress_page.title(lesson)}: all exercises passed", body, tone="passed")


def _lesson_of(exercise_id: str) -> str:
    return f"{int(exercise_id.split('.')[0]):02d}"


def _next(exercise_id: str) -> str:
    """The next open exercise: in this lesson, else an earlier one, else the next lesson's."""
    lesson, record = _lesson_of(exercise_id), progress.load()
    exercises = progress_page.in_order(lesson)
    place = [each.id for each in exercises].index(exercise_id)
    for each in (*exercises[place + 1 :], *exercises[:place]):
        if not record.get(each.id, progress.NOTHING)["passed"]:
            return f"{each.id}, {each.title}"
    later = [number for number in checks.lessons() if number > lesson]
    return f"lesson {progress_page.title(later[0])}" if later else "the summary"
