"""What people read: results.csv, results.json, a page for each student, and one for the class.

All of it is made from the grades, student by student, so that a class may be of any size.
Everything that comes from a submission is escaped.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.students import (
    MOST_NAMES,
    UNTOUCHED,
    ClassNumbers,
    besides,
    file_name,
    not_proved,
    score,
    students_of,
)
from lessons_grading.submissions import text_of
from lessons_lib import display
from lessons_lib.whole_files import whole_file, write_whole

_OF_AN_EXERCISE = [name for name in ExerciseGrade.__struct_fields__ if name != "message"]
COLUMNS = ("student", "notebook", "lesson", *_OF_AN_EXERCISE)
MOST_ROWS = 250  # in one table of the class page
# Where a spreadsheet may see a formula: at the start of a cell, and after a character that it
# may take for the end of one.
_FORMULA = re.compile(r"""((?:^|[,;|:"'])\s*)(?=[=+\-@|＝＋－＠｜])""")


def write_report(
    results: Path,
    grades: Iterable[SubmissionGrade],
    seed: int,
    sandboxed: bool,
    limited_by: str = "",
) -> ClassNumbers:
    """Writes everything into the folder `results`, each file whole or not at all.

    grades: sorted with the key `in_order`.
    limited_by: what kept the limits on memory and processes, in words.
    """
    numbers = ClassNumbers()
    about = {"seed": seed, "sandboxed": sandboxed, "limits_kept_by": limited_by}
    with (
        whole_file(results / "results.csv") as table,
        whole_file(results / "results.json") as data,
    ):
        rows = csv.DictWriter(table, COLUMNS, extrasaction="ignore", lineterminator="\n")
        rows.writeheader()
        data.write(_indented(about).removesuffix("\n}") + ',\n "submissions": [')
        separator = "\n"
        for student in students_of(grades):
            for grade in student.grades:
                rows.writerows(_rows_of(grade))
                data.write(separator + _indented(grade))
                separator = ",\n"
            numbers.add(student)
            write_whole(
                results / "students" / student.page,
                _page("student.html", student=student, sandboxed=sandboxed),
            )
        data.write("\n]}\n")
    write_whole(
        results / "class.html", _page("class.html", numbers=numbers, sandboxed=sandboxed)
    )
    return numbers


def _indented(value) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def _rows_of(grade: SubmissionGrade) -> Iterator[dict]:
    """A row for each exercise, and one without an exercise for what could not be graded."""
    whose = {"student": grade.student, "notebook": grade.notebook, "lesson": grade.lesson}
    reason = "unreadable" if grade.is_final else "not-graded"
    nothing = {"points": 0, "earned": 0, "passed": False, "mistake": reason}
    entries = map(msgspec.structs.asdict, grade.exercises)
    for entry in entries if grade.exercises else [nothing | {"seconds": grade.seconds}]:
        yield {name: _cell(value) for name, value in (whose | entry).items()}


def _cell(value):
    """The value, made harmless as a formula. An apostrophe in front makes it text.

    A student chooses a file's name, and a spreadsheet would run one that looks like a formula.
    """
    if isinstance(value, float):
        return f"{value:.2f}"
    return _FORMULA.sub(r"\1'", text_of(value)) if isinstance(value, str) else value


def _page(template: str, **values) -> str:
    return _templates.get_template(template).render(**values)


_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
)
_templates.globals.update(untouched=UNTOUCHED, most_names=MOST_NAMES, most_rows=MOST_ROWS)
_templates.filters.update(
    score=score,
    besides=besides,
    not_proved=not_proved,
    prose=lambda text: Markup(display.as_html(text)),
    lesson_title=lambda lesson: file_name(lesson).replace("_", " "),
)
