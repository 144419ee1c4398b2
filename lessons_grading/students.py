"""One student's grades, and what a report says of them."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby

from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_lib import checks
from lessons_lib.paths import NOTEBOOKS

# What is watched from within the answer's own process, which can switch the watch off. That a
# notebook's check sees it is enough for learners, who do not attack themselves.
NOT_PROVED = {
    "1.3": "that each method holds the lock while it touches the data",
    "3.4": "that the scores of many blocks are never in memory at once",
    "4.5": "that the number of calls does not grow with the number of requests",
    "5.3": "that each tensor is on the device that was asked for",
    "10.2": "that each tensor is on the device that was asked for",
    "10.5": "that nothing is read on the host",
}
UNTOUCHED = ("missing", checks.NOT_ATTEMPTED)


@dataclass(frozen=True)
class Student:
    """All that one student submitted. Of several answers to an exercise, the best counts."""

    name: str
    grades: tuple[SubmissionGrade, ...]

    @property
    def page(self) -> str:
        """The file name of the page, at most 255 bytes long."""
        name = self.name.encode()
        if len(name) > 250:
            name = name[:200] + hashlib.sha256(name).hexdigest()[:16].encode()
        return f"{name.decode(errors='ignore').replace('/', '_')}.html"

    @cached_property
    def lessons(self) -> dict[str, list[ExerciseGrade]]:
        def worth(entry: ExerciseGrade) -> tuple:
            return entry.earned, entry.mistake not in UNTOUCHED

        best: dict[str, dict[str, ExerciseGrade]] = {}
        for grade in self.grades:
            for entry in grade.exercises:
                assert grade.lesson is not None  # where it is unknown, there are no exercises
                lesson = best.setdefault(grade.lesson, {})
                lesson[entry.exercise] = max(
                    lesson.get(entry.exercise, entry), entry, key=worth
                )
        return {
            lesson: [best[lesson][id] for id in sorted(best[lesson], key=in_numbers)]
            for lesson in sorted(best)
        }

    @property
    def exercises(self) -> list[ExerciseGrade]:
        return [entry for entries in self.lessons.values() for entry in entries]

    @property
    def next_steps(self) -> list[dict]:
        """The first two exercises that have not passed, with their first hints and places."""
        return [
            {
                "grade": entry,
                "exercise": checks.find(entry.exercise),
                "place": (
                    f"{file_name(lesson)}.ipynb#exercise-{entry.exercise.replace('.', '-')}"
                ),
            }
            for lesson, entries in self.lessons.items()
            for entry in entries
            if not entry.passed
        ][:2]


def students_of(grades: Iterable[SubmissionGrade]) -> Iterator[Student]:
    """The students, from grades `in_order`."""
    for name, theirs in groupby(grades, lambda grade: grade.student):
        yield Student(name, tuple(theirs))


def in_order(grade: SubmissionGrade) -> tuple[str, ...]:
    """A key to sort by, as GradeStore does."""
    return grade.student.casefold(), grade.student, grade.lesson or "", grade.notebook


def besides(grade: SubmissionGrade) -> list[str]:
    """The events, except for a missing sandbox, which each page reports anyway."""
    return [event for event in grade.events if event != "it ran without a sandbox"]


def to_look_at(grade: SubmissionGrade) -> list[str]:
    """The events for a teacher, without errors of cells: an unfinished notebook has many."""
    return [event for event in besides(grade) if not re.match(r"cell \d+ raised ", event)]


def in_numbers(exercise: str) -> tuple[int, ...]:
    """Makes 2.10 come after 2.9."""
    return tuple(map(int, exercise.split(".")))


def not_proved(exercise: str) -> str:
    """What a passed exercise does not prove, because an answer could switch off its watch."""
    is_cuda = checks.find(exercise).language == "cuda"
    return NOT_PROVED.get(exercise, "that its threads do not race" if is_cuda else "")


@cache
def file_name(lesson: str) -> str:
    """The name of the lesson's notebook, without its ending."""
    return next((path.stem for path in NOTEBOOKS.glob(f"{lesson}_*.ipynb")), lesson)


def score(entries: Iterable[ExerciseGrade]) -> dict[str, int]:
    entries = list(entries)
    return {
        "earned": sum(entry.earned for entry in entries),
        "points": sum(entry.points for entry in entries),
    }
