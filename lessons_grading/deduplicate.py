"""Notebooks with the same code get the same grade, and only one of them is graded.

A grade depends on the code of all cells, on their places, which its events name, and on the
lesson. Titles, outputs, names and students make no difference. As cells depend on each other,
the text of one cell says nothing about its answer. try_answer.py does this for single answers.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from lessons_grading.grades import SubmissionGrade
from lessons_grading.judge import grade_notebook
from lessons_grading.local_workers import Read
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.store import GradeStore
from lessons_grading.submissions import Submission


def code_of(notebook: Notebook) -> str:
    """A digest of what decides its grade."""
    cells = [(cell.number, cell.source) for cell in notebook.cells]
    parts = notebook.lesson, cells, notebook.files
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Deduplicated:
    """Finds which notebooks have to be graded. All others get the grade of another one.

    look_back: whether grades of an earlier run count.
    found, saved: how many have a grade of an earlier run, and how many got one in this run.
    """

    def __init__(self, store: GradeStore, look_back: bool):
        self.store, self.look_back = store, look_back
        self.found = self.saved = 0
        self._codes: dict[Submission, str] = {}  # of what is graded at present
        # by code: the submissions that wait for another one's grade, with their digests
        self._alike: dict[str, list[tuple[Submission, str]]] = {}

    def to_grade(self, submissions: Iterable[Submission]) -> Iterator[Read]:
        """Reads each notebook once. Of several with the same code it yields the first one."""
        for submission in submissions:
            if submission.problem:
                self._save(submission, submission.without_points(submission.problem))
                continue
            notebook = read_notebook(submission.path, submission.student, self.store.root)
            if self.look_back and self.store.find(submission, notebook.digest):
                self.found += 1
                continue
            if notebook.problem:  # nothing of it is run
                whose = submission.name, submission.student
                self._save(submission, grade_notebook(notebook, *whose, seed=0))
                continue
            code = code_of(notebook)
            if known := self.store.find_code(code, self.look_back):
                self._save(submission, _copy(known, submission, notebook.digest), code)
            elif code in self._alike:
                self._alike[code].append((submission, notebook.digest))
            else:
                self._alike[code], self._codes[submission] = [], code
                yield submission, notebook

    def give(self, submission: Submission, grade: SubmissionGrade):
        """Saves a grade for this submission, and for all with the same code so far."""
        code = self._codes.pop(submission)
        self._save(submission, grade, code)
        for other, digest in self._alike.pop(code):
            self._save(other, _copy(grade, other, digest if grade.is_final else ""), code)

    def _save(self, submission: Submission, grade: SubmissionGrade, code: str = ""):
        self.store.save(submission, grade, code)
        self.saved += 1


def _copy(grade: SubmissionGrade, submission: Submission, digest: str) -> SubmissionGrade:
    return msgspec.structs.replace(
        grade,
        student=submission.student,
        notebook=submission.name,
        digest=digest,
        seconds=0.0,
        is_repeat=True,
        tried=0,
        repeated=0,
    )
