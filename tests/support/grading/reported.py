"""Grades for the tests of reports, and the pages that are made of them."""

from html.parser import HTMLParser

import pytest

from lessons_grading.grades import ExerciseGrade, SubmissionGrade, in_order
from lessons_grading.pages import write_report
from lessons_lib import checks

UNSEEN = "this is not a notebook: Expecting value: line 1 column 1"


def entry(exercise: str, mistake: str | None = None, message: str = "") -> ExerciseGrade:
    known = checks.find(exercise)
    earned = 0 if mistake else known.points
    return ExerciseGrade(
        exercise, known.title, known.points, earned, not mistake, mistake, message, 0.25
    )


def submission(
    student: str,
    *exercises: ExerciseGrade,
    lesson: str | None = "02",
    notebook: str = "02.ipynb",
    events=(),
):
    return SubmissionGrade(student, notebook, "", lesson, exercises, tuple(events), 1.5)


@pytest.fixture
def written(tmp_path):
    """Writes a report and returns the folder of the results."""

    def written(*grades: SubmissionGrade, sandboxed: bool = True):
        in_turn = sorted(grades, key=in_order)
        write_report(tmp_path, in_turn, seed=3, sandboxed=sandboxed)
        return tmp_path

    return written


class Page(HTMLParser):
    """The words of a page and its elements. Fails for an element that is not closed in its
    place.
    """

    def __init__(self, path):
        super().__init__()
        self.words = []
        self.elements = []
        self.open = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def of(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]


CASE = "Smallest case that shows it: slot_mapping(…)\n  expected: 3\n  got:      {}"


def wrong(
    got: object, rest: str = "", slug: str = "wrong", words: str = "The result is not right."
) -> ExerciseGrade:
    return entry("2.2", slug, f"{words}\n{CASE.format(got)}{rest}")
