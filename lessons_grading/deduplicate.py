"""Notebooks with the same code get the same grade, and only one of them is graded.

What a grade depends on is the code of all cells, with their places, which its events name, and
the lesson. Cells depend on each other, so the text of one cell is no key for its answer; and
titles, outputs, names and students play no part. try_answer.py does the same for single
answers.
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
    """Keeps apart what has to be graded, what has a grade, and what will have another's.

    look_back: whether a grade of an earlier run may be taken over.
    found, saved: how many have a grade of an earlier run, and how many got one now.
    """

    def __init__(self, store: GradeStore, look_back: bool):
        self.store, self.look_back = store, look_back
        self.found = self.saved = 0
        self._codes: dict[Submission, str] = {}
        # by code: those that wait for the grade of another, with their digests
        self._alike: dict[str, list[tuple[Submission, str]]] = {}

    def to_grade(self, submissions: Iterable[Submission]) -> Iterator[Read]:
        """Reads each once, and yields those that nobody else has handed in."""
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
        """The grade of one that was graded, and of all that are like it so far."""
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
