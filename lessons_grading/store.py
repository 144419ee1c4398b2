"""The grades of a class on disk, in one SQLite file: each is written as soon as it is there.

So an interrupted run can continue, and no run holds all grades in its memory.
"""

import hashlib
import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import Unreadable, digest_of, read_files
from lessons_grading.submissions import Submission, text_of

FILE = "grades.sqlite"
_TABLE = """
CREATE TABLE IF NOT EXISTS grades (
    key TEXT PRIMARY KEY,       -- whose notebook with which bytes, and the terms of its grade
    run INTEGER NOT NULL,       -- the last run of the command that it was a part of
    folded TEXT NOT NULL,       -- the student without capitals, to sort by
    student TEXT NOT NULL,
    lesson TEXT NOT NULL,       -- "" if nothing shows it
    notebook TEXT NOT NULL,
    place TEXT NOT NULL,        -- of the file, from the folder of the class
    earned INTEGER NOT NULL,
    points INTEGER NOT NULL,
    code TEXT NOT NULL,         -- of all its cells and the terms; "" if it could not be read
    is_final INTEGER NOT NULL,  -- 0 if the next run tries again
    grade TEXT NOT NULL         -- all of it, as JSON
);
CREATE INDEX IF NOT EXISTS of_a_run ON grades (run, folded, student, lesson, notebook);
CREATE INDEX IF NOT EXISTS of_a_code ON grades (code);
"""


class GradeStore:
    """The grades in one file. They belong to a run, which begins here.

    terms: what else decides a grade, such as the seed. New terms find no old grade.
    root: the folder of the class. A grade is found again when it has moved.
    Raises OSError, with a sentence, for a file that cannot be used; so do all methods.
    """

    def __init__(self, file: Path, terms: str, root: Path):
        self.file, self.terms, self.root = file, terms, root
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._in_a_sentence():
            self._database = sqlite3.connect(file, isolation_level=None)
            try:
                self._database.executescript(_TABLE)
                (last,) = self._database.execute("SELECT max(run) FROM grades").fetchone()
            except BaseException:
                self._database.close()
                raise
        self.run = 1 + (last or 0)

    def __enter__(self) -> "GradeStore":
        return self

    def __exit__(self, *_):
        self._database.close()

    def find(self, submission: Submission) -> SubmissionGrade | None:
        """The final grade of the submission's present bytes, now a part of this run."""
        try:
            read = read_files(submission.path, submission.student, self.root)
            key = self._key(submission, digest_of(*read))
        except Unreadable:
            return None
        with self._in_a_sentence():
            row = self._database.execute(
                "SELECT grade FROM grades WHERE key = ? AND is_final", (key,)
            ).fetchone()
            grade = row and _read(row[0])
            if grade:
                self._database.execute(
                    "UPDATE grades SET run = ? WHERE key = ?", (self.run, key)
                )
        return grade or None

    def find_code(self, code: str, look_back: bool = True) -> SubmissionGrade | None:
        """A final grade of a notebook with this code, of any student.

        look_back: whether one of an earlier run will do.
        """
        with self._in_a_sentence():
            row = self._database.execute(
                "SELECT grade FROM grades WHERE code = ? AND is_final AND run >= ? LIMIT 1",
                (self._under_terms(code), 0 if look_back else self.run),
            ).fetchone()
        return _read(row[0]) if row else None

    def save(self, submission: Submission, grade: SubmissionGrade, code: str = ""):
        """Keeps a grade, under the bytes that were graded. The file may have changed.

        code: from deduplicate.code_of.
        """
        row = (
            self._key(submission, grade.digest),
            self.run,
            grade.student.casefold(),
            grade.student,
            grade.lesson or "",
            grade.notebook,
            self._place(submission),
            sum(entry.earned for entry in grade.exercises),
            sum(entry.points for entry in grade.exercises),
            self._under_terms(code) if code else "",
            grade.is_final,
            msgspec.json.encode(grade).decode(),
        )
        with self._in_a_sentence():
            self._database.execute(
                f"REPLACE INTO grades VALUES ({', '.join('?' * len(row))})", row
            )

    def grades(self) -> Generator[SubmissionGrade, None, None]:
        """Those of this run, student by student."""
        with self._in_a_sentence():
            rows = self._database.execute(
                "SELECT grade FROM grades WHERE run = ? "
                "ORDER BY folded, student, lesson, notebook, key",
                (self.run,),
            )
            with closing(rows):
                for (text,) in rows:
                    if grade := _read(text):
                        yield grade

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """All that is found and saved in this context is written together: that is faster."""
        with self._in_a_sentence():
            self._database.execute("BEGIN")
        try:
            yield
        finally:
            with self._in_a_sentence():
                self._database.execute("COMMIT")

    def _key(self, submission: Submission, digest: str) -> str:
        parts = submission.student, self._place(submission), digest, self.terms
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _place(self, submission: Submission) -> str:
        return text_of(os.path.relpath(submission.path, self.root))

    def _under_terms(self, code: str) -> str:
        return hashlib.sha256(f"{code} {self.terms}".encode()).hexdigest()

    def _in_a_sentence(self):
        return _in_a_sentence(self.file)


@contextmanager
def _in_a_sentence(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # a full disk, no rights, another's lock
        raise OSError(f"{file} cannot be read or written ({error})") from None
    except sqlite3.DatabaseError as error:
        raise OSError(
            f"{file} cannot be read ({error}): move it away, and everything is graded anew"
        ) from None


def last_run(file: Path) -> Iterator[tuple[str, SubmissionGrade]]:
    """The grades of the last run, each with the place of its notebook in the class.

    Raises OSError, with a sentence, for a file that cannot be read.
    """
    with _in_a_sentence(file), closing(sqlite3.connect(file)) as database:
        rows = database.execute(
            "SELECT place, grade FROM grades WHERE run = (SELECT max(run) FROM grades) "
            "ORDER BY folded, student, lesson, notebook, key"
        )
        for place, text in rows:
            if grade := _read(text):
                yield place, grade


def _read(text: str | bytes) -> SubmissionGrade | None:
    """The grade, or None for one of an older form, or that somebody has changed by hand."""
    try:
        return msgspec.json.decode(text, type=SubmissionGrade)
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return None
