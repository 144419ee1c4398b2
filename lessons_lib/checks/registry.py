"""Finds exercises by their numbers."""

import re
from collections.abc import Iterable

from lessons_lib import rooms
from lessons_lib.checks.types import Exercise, NoSuchExercise
from lessons_lib.paths import mistakes_folder


def find(exercise_id: str) -> Exercise:
    """The exercise with this id. Raises NoSuchExercise if there is none."""
    exercise_id = str(exercise_id)
    is_id = re.fullmatch(r"(0|[1-9]\d?)\.[1-9]\d?", exercise_id)
    if is_id and (found := rooms.exercises(*exercise_id.split("."))):
        return found[0].EXERCISE
    known = exercises_of(exercise_id) if is_id else ()
    ids = ", ".join(exercise.id for exercise in known) or "of the form '1.2'"
    ids += "" if known else f", in the lessons {', '.join(lessons())}"
    raise NoSuchExercise(f"There is no exercise {exercise_id!r}; the ids here are {ids}.")


def lessons() -> tuple[str, ...]:
    """The numbers of the lessons that have exercises: "00", "01", …"""
    return rooms.lessons()


def exercises_of(lesson: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson, by its number ("01") or by the id of an exercise ("1.2").

    Empty for pages without a number, such as "summary".
    """
    lesson = str(lesson).split(".")[0]
    found = rooms.exercises(lesson) if re.fullmatch(r"\d\d?", lesson) else []
    return tuple(module.EXERCISE for module in found)


def read_mistakes(wanted: Iterable[str]) -> None:
    """Reads a teacher's own mistakes for these lessons, so that errors in their files show
    now.

    Raises MistakesError, with file and line, if they cannot be read.
    """
    if folder := mistakes_folder():
        exercises = [exercise for lesson in wanted for exercise in exercises_of(lesson)]
        sizes = [
            (exercise.id, len(getattr(exercise.mistakes, "further", ())))
            for exercise in exercises
        ]
        print(
            f"Further mistakes from {folder}:",
            ", ".join(f"{size} for {id}" for id, size in sizes if size)
            or "none for this lesson",
        )
