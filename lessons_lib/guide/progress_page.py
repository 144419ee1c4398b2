"""Shows how far a learner is in the whole course: passed exercises, and mistakes."""

import html
import re
from dataclasses import dataclass
from pathlib import Path

from lessons_lib import checks
from lessons_lib.checks import progress
from lessons_lib.display import Card, as_html
from lessons_lib.guide import handed_out
from lessons_lib.paths import NOTEBOOKS


@dataclass(frozen=True)
class ExerciseState:
    """An exercise and its record.

    mistakes: the learner's mistakes, as (slug, the first sentence of its message or "").
    """

    id: str
    title: str
    passed: bool
    mistakes: tuple[tuple[str, str], ...]

    @property
    def mark(self) -> str:
        return _mark(self.passed)


@dataclass(frozen=True)
class LessonState:
    """A lesson with its exercises, in order. `notebook` is its file's name."""

    title: str
    notebook: str
    exercises: tuple[ExerciseState, ...]

    @property
    def num_passed(self) -> int:
        return sum(exercise.passed for exercise in self.exercises)


@dataclass(frozen=True)
class ProgressPage:
    """All lessons. Shown as a table in a notebook, and as text anywhere else."""

    lessons: tuple[LessonState, ...]

    @property
    def title(self) -> str:
        passed = sum(lesson.num_passed for lesson in self.lessons)
        total = sum(len(lesson.exercises) for lesson in self.lessons)
        return f"{passed} of {total} exercises passed"

    @property
    def next_step(self) -> str:
        """The first exercise that is not passed, in words."""
        for lesson in self.lessons:
            for exercise in lesson.exercises:
                if not exercise.passed:
                    return f"Next: exercise {exercise.id}, {exercise.title}"
        return "All exercises are passed."

    def __repr__(self):
        lines = [f"› {self.title}", f"  {self.next_step}"]
        for lesson in self.lessons:
            marks = " ".join(f"{each.mark} {each.id}" for each in lesson.exercises)
            lines.append(f"  {lesson.title}: {marks}")
            lines += [
                f"    met in {exercise.id}: {', '.join(slug for slug, _ in exercise.mistakes)}"
                for exercise in lesson.exercises
                if exercise.mistakes
            ]
        return "\n".join(lines)

    def _repr_html_(self):
        rows = "".join(map(_row, self.lessons))
        cells = "".join(
            f'<th style="text-align:left">{name}</th>'
            for name in ("lesson", "exercises (■ passed)", "mistakes met")
        )
        return (
            '<div role="status" style="margin:.2em 0">'
            f'<div style="font-weight:600">{self.title}</div>'
            f"<div>{html.escape(self.next_step)}</div>"
            f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
        )


def _mark(passed: bool) -> str:
    return "■" if passed else "□"


def page() -> ProgressPage:
    """The records on this machine, lesson by lesson."""
    record = progress.load()
    return ProgressPage(tuple(_lesson(number, record) for number in checks.lessons()))


def title(lesson: str) -> str:
    """A lesson's first heading: "01 · The block manager".

    Its number if there is no heading.
    """
    first = next(iter(_cells(_notebook(lesson))), None)
    heading = handed_out.text_of(first).split("\n")[0] if first else ""
    return heading.removeprefix("# ") or Path(_notebook(lesson)).stem or lesson


def in_order(lesson: str) -> list[checks.Exercise]:
    """The exercises of a lesson, in the order of its notebook."""
    cells = _cells(_notebook(lesson))
    places = {cell["metadata"].get("exercise"): place for place, cell in enumerate(cells)}
    return sorted(
        checks.exercises_of(lesson), key=lambda each: places.get(each.id, len(cells))
    )


def _lesson(number: str, record: dict[str, dict]) -> LessonState:
    exercises = (
        _exercise(each, record.get(each.id, progress.NOTHING)) for each in in_order(number)
    )
    return LessonState(title(number), _notebook(number), tuple(exercises))


def _notebook(lesson: str) -> str:
    """The notebook's file name, "" if there is none."""
    return min((path.name for path in NOTEBOOKS.glob(f"{lesson}_*.ipynb")), default="")


def _cells(notebook: str) -> list[dict]:
    try:
        return handed_out.read(NOTEBOOKS / notebook)["cells"]
    except (OSError, handed_out.Changed):
        return []


def _exercise(exercise: checks.Exercise, entry: dict) -> ExerciseState:
    messages = (
        {mistake.slug: mistake.message for mistake in exercise.mistakes}
        if entry["mistakes"]
        else {}
    )
    mistakes = tuple(
        (str(slug), _first_sentence(messages.get(slug, ""))) for slug in entry["mistakes"]
    )
    return ExerciseState(exercise.id, exercise.title, entry["passed"], mistakes)


def _first_sentence(message: str) -> str:
    return re.split(r"(?<=[.?!])\s", message)[0]


def _row(lesson: LessonState) -> str:
    marks = " ".join(
        f'<span title="{html.escape(each.title)}" style="white-space:nowrap">'
        f"{each.mark} {each.id}</span>"
        for each in lesson.exercises
    )
    title = html.escape(lesson.title)
    link = (
        f'<a href="{html.escape(lesson.notebook)}">{title}</a>' if lesson.notebook else title
    )
    cells = "".join(
        f'<td style="text-align:left;vertical-align:top">{cell}</td>'
        for cell in (link, marks, _mistakes(lesson))
    )
    return f"<tr>{cells}</tr>"


def _mistakes(lesson: LessonState) -> str:
    """The number of mistakes, which unfolds into their list."""
    met = [
        f"{exercise.id} `{slug}`" + (f": {sentence}" if sentence else "")
        for exercise in lesson.exercises
        for slug, sentence in exercise.mistakes
    ]
    if not met:
        return "–"
    return f"<details><summary>{len(met)}</summary>{as_html(chr(10).join(met))}</details>"


def bar(lesson: str, titles: bool) -> Card:
    """Shows which exercises of a lesson ("01") are passed.

    titles: whether each exercise has a line with its title; otherwise one line shows them all.
    """
    record = progress.load()
    exercises = in_order(lesson)
    passed = {each.id for each in exercises if record.get(each.id, progress.NOTHING)["passed"]}
    lines = [
        f"{_mark(each.id in passed)} {each.id} {each.title if titles else ''}".rstrip()
        for each in exercises
    ]
    head = f"Lesson {lesson}: {len(passed)} of {len(lines)} exercises passed"
    return Card(head, ("\n" if titles else " · ").join(lines))
