"""Notebooks with the same code get the same grade, and only one of them is graded.

What a grade depends on is the code of all cells, with their places, which its events name, and
the lesson. Cells depend on each other, so the text of one cell is no key for its answer; and
titles, outputs, names and students play no part. try_answer.py does the same for single answers.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, repeat

from lessons_grading.classroom import Judged
from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.store import GradeStore
from lessons_grading.submissions import Submission, text_of


def code_of(notebook: Notebook) -> str:
    """A digest of what decides its grade; "" if none of its code is run."""
    if notebook.problem:
        return ""
    cells = [(cell.number, cell.source) for cell in notebook.cells]
    parts = notebook.lesson, cells
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def grade_once(
    submissions: list[Submission],
    grade: Callable[[list[Submission]], Judged],
    store: GradeStore,
    look_back: bool,
) -> Judged:
    """Yields each submission with its grade, and saves it.

    look_back: whether a grade of an earlier run may be taken over.
    """
    # with fewer each time, since one of those with the same code is graded
    for is_again in chain([False], repeat(True)):
        kept_back: list[Submission] = []
        once = _Once(store, look_back)
        yield from once.begin(submissions)
        for submission, result in grade(once.first):
            store.save(submission, result, once.code_graded(submission, result))
            yield submission, result
            for other, copy in once.copies(submission, result, is_again):
                if copy is None:
                    kept_back.append(other)
                else:
                    store.save(other, copy, once.code[other])
                    yield other, copy
        if not kept_back:
            return
        submissions = kept_back


class _Once:
    """first: the submissions that are graded. code: of each, "" where none is run."""

    def __init__(self, store: GradeStore, look_back: bool):
        self.store, self.look_back = store, look_back
        self.first: list[Submission] = []
        self.code: dict[Submission, str] = {}
        self._digests: dict[Submission, str] = {}
        self._alike: dict[str, list[Submission]] = {}  # the first one, then the others

    def begin(
        self, submissions: list[Submission]
    ) -> Iterator[tuple[Submission, SubmissionGrade]]:
        """Chooses those that are graded. Yields those whose grade is known already."""
        for submission in submissions:
            if submission.problem:
                self.first.append(submission)
                continue
            notebook = read_notebook(submission.path, submission.student)
            code = self.code[submission] = code_of(notebook)
            self._digests[submission] = notebook.digest
            if self.look_back and code and (known := self.store.find_code(code)):
                copy = _copy(known, submission, notebook.digest)
                self.store.save(submission, copy, code)
                yield submission, copy
            elif code in self._alike:
                self._alike[code].append(submission)
            else:
                self.first.append(submission)
                if code:
                    self._alike[code] = [submission]

    def code_graded(self, submission: Submission, grade: SubmissionGrade) -> str:
        """The code that has this grade; "" if its file changed before it was graded."""
        is_same = grade.digest == self._digests.get(submission)
        return self.code.get(submission, "") if is_same else ""

    def copies(
        self, submission: Submission, grade: SubmissionGrade, is_again: bool
    ) -> Iterator[tuple[Submission, SubmissionGrade | None]]:
        """The submissions with the same code, each with its grade.

        None if another attempt may be better: this one is the first and has no final grade, or
        its file changed before it was graded.
        """
        is_good = grade.is_final and self.code_graded(submission, grade)
        for other in self._alike.pop(self.code.get(submission, ""), [])[1:]:
            if is_good:
                yield other, _copy(grade, other, self._digests[other])
            elif is_again and not grade.is_final:
                yield other, _copy(grade, other, "")
            else:
                yield other, None


def _copy(grade: SubmissionGrade, submission: Submission, digest: str) -> SubmissionGrade:
    return replace(
        grade,
        student=submission.student,
        notebook=text_of(submission.path.name),
        digest=digest,
        seconds=0.0,
        is_repeat=True,
        tried=0,
        repeated=0,
    )
