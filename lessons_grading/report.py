"""What people read: results.csv, results.json, a page for each student, and one for the class.

All of it is made from the grades. Everything that comes from a submission is escaped.
"""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
from markupsafe import Markup

from lessons_grading.exam import NEW_CASE
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.kept import write_whole
from lessons_grading.submissions import text_of
from lessons_lib import checks, display
from lessons_lib.paths import NOTEBOOKS

COLUMNS = (
    "student",
    "notebook",
    "lesson",
    "exercise",
    "title",
    "points",
    "earned",
    "passed",
    "mistake",
    "seconds",
)
UNTOUCHED = ("missing", checks.NOT_ATTEMPTED)
# no mistake of a bank; the reason may be anything
UNNAMED = ("wrong", "crashed", "exited", "timed-out", "does-not-compile")
MOST_NAMES = 5  # of students, in one row of the class page
# Where a spreadsheet may see a formula: at the start of a cell, and after a character that it
# may take for the end of one.
_FORMULA = re.compile(r"""((?:^|[,;|:"'])\s*)(?=[=+\-@|＝＋－＠｜])""")


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
            lesson: [best[lesson][id] for id in sorted(best[lesson], key=_numbers)]
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
                    f"notebooks/{_name(lesson)}.ipynb"
                    f"#exercise-{entry.exercise.replace('.', '-')}"
                ),
            }
            for lesson, entries in self.lessons.items()
            for entry in entries
            if not entry.passed
        ][:2]


def besides(grade: SubmissionGrade) -> list[str]:
    """The events, except for a missing sandbox, which each page reports anyway."""
    return [event for event in grade.events if event != "it ran without a sandbox"]


def to_look_at(grade: SubmissionGrade) -> list[str]:
    """The events for a teacher, without errors of cells: an unfinished notebook has many."""
    return [event for event in besides(grade) if not re.match(r"cell \d+ raised ", event)]


def write_report(
    results: Path,
    grades: Iterable[SubmissionGrade],
    seed: int,
    sandboxed: bool,
    limited_by: str = "",
):
    """Writes everything into the folder `results`, each file whole or not at all.

    limited_by: what kept the limits.
    """
    grades = sorted(
        grades,
        key=lambda grade: (
            grade.student.casefold(),
            grade.student,
            grade.lesson or "",
            grade.notebook,
        ),
    )
    of_student: dict[str, list[SubmissionGrade]] = {}
    for grade in grades:
        of_student.setdefault(grade.student, []).append(grade)
    students = [Student(name, tuple(theirs)) for name, theirs in of_student.items()]
    for student in students:
        write_whole(
            results / "students" / student.page,
            _page("student.html", student=student, sandboxed=sandboxed),
        )
    write_whole(
        results / "class.html",
        _page("class.html", students=students, sandboxed=sandboxed, **_numbers_of(students)),
    )
    write_whole(results / "results.csv", csv_text(grades))
    write_whole(
        results / "results.json",
        json.dumps(
            {
                "seed": seed,
                "sandboxed": sandboxed,
                "limits_kept_by": limited_by,
                "submissions": [grade.to_json() for grade in grades],
            },
            indent=1,
        ),
    )


def csv_text(grades: Iterable[SubmissionGrade]) -> str:
    """A row for each exercise, and one without an exercise for what could not be graded."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for grade in grades:
        whose = [grade.student, grade.notebook, grade.lesson]
        if not grade.exercises:
            rows.writerow(
                map(
                    _cell,
                    [
                        *whose,
                        None,
                        None,
                        0,
                        0,
                        False,
                        "unreadable" if grade.is_final else "not-graded",
                        f"{grade.seconds:.2f}",
                    ],
                )
            )
        for entry in grade.exercises:
            columns = (getattr(entry, column) for column in COLUMNS[3:-1])
            rows.writerow(map(_cell, [*whose, *columns, f"{entry.seconds:.2f}"]))
    return text.getvalue()


def _cell(value):
    """The value, made harmless as a formula. An apostrophe in front makes it text.

    A student chooses a file's name, and a spreadsheet would run one that looks like a formula.
    """
    return _FORMULA.sub(r"\1'", text_of(value)) if isinstance(value, str) else value


def _numbers_of(students: list[Student]) -> dict:
    """The class page's numbers: passes for each exercise, students held up by each mistake."""
    entries = [entry for student in students for entry in student.exercises]
    handed_in = Counter(entry.exercise for entry in entries)
    passed = Counter(entry.exercise for entry in entries if entry.passed)
    titles = {entry.exercise: entry.title for entry in entries}
    exercises = [
        {"id": id, "title": titles[id], "passed": passed[id], "of": handed_in[id]}
        for id in sorted(titles, key=_numbers)
    ]
    mistakes = [
        row
        | {
            "count": len(row["students"]),
            "of": handed_in[row["id"]],
            "title": titles[row["id"]],
            "words": row["words"].format(f"{len(row['students'])} of {handed_in[row['id']]}"),
        }
        for row in _groups(students)
    ]
    mistakes.sort(
        key=lambda row: (
            -row["alike"],
            row["slug"] in UNTOUCHED,
            _numbers(row["id"]),
            row["slug"],
        )
    )
    return {
        "exercises": exercises,
        "mistakes": mistakes,
        "lessons": sorted({lesson for student in students for lesson in student.lessons}),
    }


def _groups(students: list[Student]) -> list[dict]:
    """Groups of students with the same named mistake, or with the same wrong result.

    alike: how many answers fail in the same way.
    Students in no group share one row for each exercise.
    """
    alike: dict[tuple, list[Student]] = {}
    for student in students:
        for entry in student.exercises:
            if not entry.passed:
                way = _way(entry) if entry.mistake in UNNAMED else ""
                alike.setdefault((entry.exercise, entry.mistake, way), []).append(student)
    alone: dict[tuple, list[Student]] = {}
    rows = []
    for (id, slug, way), group in alike.items():
        if slug in UNNAMED and len(group) == 1:
            alone.setdefault((id, slug), []).extend(group)
        else:
            rows.append(
                {
                    "id": id,
                    "slug": slug,
                    "students": group,
                    "alike": len(group),
                    "way": way or _way(_entry(group[0], id)),
                    "words": "{} fail in the same way" if slug in UNNAMED else "",
                }
            )
    for (id, slug), group in alone.items():
        one = len(group) == 1
        rows.append(
            {
                "id": id,
                "slug": slug,
                "students": group,
                "alike": 1,
                "way": _way(_entry(group[0], id)) if one else "",
                "words": (
                    "no other answer fails like this one"
                    if one
                    else "{} fail, each in a way of its own"
                ),
            }
        )
    return rows


def _entry(student: Student, exercise: str) -> ExerciseGrade:
    return next(entry for entry in student.exercises if entry.exercise == exercise)


def _way(entry: ExerciseGrade) -> str:
    """How an answer fails, in words that are the same for all answers that fail alike.

    For a named mistake this is its own message. Otherwise it is the result's message without
    what belongs to one student: what the code printed, and line numbers.
    """
    message = entry.message.removeprefix(f"{NEW_CASE}\n")
    if entry.mistake not in UNNAMED:
        return message.split("\n")[0]
    message = (
        message.split("\nYour code printed:\n")[0]
        .removeprefix("The result is not right.")
        .strip("\n")
    )
    return re.sub(r"\bline \d+", "a line", message)


def _numbers(exercise: str) -> tuple[int, ...]:
    """Makes 2.10 come after 2.9."""
    return tuple(map(int, exercise.split(".")))


def _name(lesson: str) -> str:
    return next((path.stem for path in NOTEBOOKS.glob(f"{lesson}_*.ipynb")), lesson)


def _score(entries: Iterable[ExerciseGrade]) -> dict[str, int]:
    entries = list(entries)
    return {
        "earned": sum(entry.earned for entry in entries),
        "points": sum(entry.points for entry in entries),
    }


def _page(template: str, **values) -> str:
    return _templates.get_template(template).render(**values)


_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(untouched=UNTOUCHED, most_names=MOST_NAMES)
_templates.filters.update(
    score=_score,
    besides=besides,
    to_look_at=to_look_at,
    prose=lambda text: Markup(display.as_html(text)),
    lesson_title=lambda lesson: _name(lesson).replace("_", " "),
)
