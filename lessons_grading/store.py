"""The grades of a class on disk, in one SQLite file: each is written as soon as it is there.

So an interrupted run can continue, and no run holds all grades in its memory.
"""

import fcntl
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path

import msgspec

from lessons_content.mistakes.teachers_mistakes import further_files
from lessons_grading.grades import SubmissionGrade, in_order
from lessons_grading.submissions import Submission, text_of
from lessons_lib import rooms
from lessons_lib.paths import ROOT

FILE = "grades.sqlite"
LARGEST_SEED = (1 << 31) - 1
_TABLES = """
CREATE TABLE IF NOT EXISTS class (
    seed INTEGER NOT NULL,      -- of the hidden cases
    folder TEXT NOT NULL        -- of the submissions, from that of this file
);
CREATE TABLE IF NOT EXISTS graded (
    key TEXT PRIMARY KEY,       -- whose notebook with which bytes, and the terms of its grade
    run INTEGER NOT NULL,       -- the last run of the command that it was a part of
    sorted TEXT NOT NULL,       -- its place in a report
    place TEXT NOT NULL,        -- of the file, from the folder of the class
    code TEXT NOT NULL,         -- of all its cells and the terms; "" if it could not be read
    is_final INTEGER NOT NULL,  -- 0 if the next run tries again
    grade TEXT NOT NULL         -- all of it, as JSON
);
CREATE INDEX IF NOT EXISTS of_a_run ON graded (run, sorted, key);
CREATE INDEX IF NOT EXISTS of_a_code ON graded (code);
"""


class GradeStore:
    """The grades of one class, in its folder of results. A store begins a new run.

    Only one grader at a time may use the folder, until it closes the store or ends.

    root: the folder of the class. A grade is found again when both folders have moved.
    seed: of the hidden cases; None for the last run's seed, or one by chance.
    terms: what else decides a grade. New terms find no old grade.
    Raises ValueError, with a sentence, if the folder is in use or has the grades of another
    class. Raises OSError, with a sentence, for a file that cannot be used. So do all methods.
    """

    def __init__(self, results: Path, root: Path, seed: int | None = None, terms: str = ""):
        results.mkdir(parents=True, exist_ok=True)
        self.file, self.root = results / FILE, root
        with ExitStack() as opened, _in_a_sentence(self.file):
            self._hold(results, opened.enter_context(open(results / ".lock", "w")))
            self._database = opened.enter_context(closing(sqlite3.connect(self.file)))
            self._begin(results, seed)
            self.terms = f"{self.seed} {terms}"
            self.close = opened.pop_all().close

    def _hold(self, results: Path, lock):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with the file
        except BlockingIOError:
            raise ValueError(
                f"another grader is at work on {results}: wait until it is done, or choose "
                "another --results"
            ) from None
        except OSError:  # some file systems have no locks
            pass

    def _begin(self, results: Path, seed: int | None):
        self._database.executescript(_TABLES)
        folder = os.path.relpath(self.root, results)
        kept = self._database.execute("SELECT seed, folder FROM class").fetchone()
        if kept and kept[1] != folder:
            raise ValueError(
                f"{results} has the grades of {kept[1]}, not of {folder}: choose another "
                "--results"
            )
        last = kept[0] if kept else secrets.randbelow(LARGEST_SEED + 1)
        self.seed: int = last if seed is None else seed
        with self._database:
            self._database.execute("DELETE FROM class")
            self._database.execute("INSERT INTO class VALUES (?, ?)", (self.seed, folder))
        (run,) = self._database.execute("SELECT max(run) FROM graded").fetchone()
        self.run = 1 + (run or 0)

    def __enter__(self) -> "GradeStore":
        return self

    def __exit__(self, *_):
        self.close()

    def find(self, submission: Submission, digest: str) -> SubmissionGrade | None:
        """The final grade of these bytes, which is then a part of this run too."""
        key = self._key(submission, digest)
        grade = self._select("key = ? AND is_final", key)
        if grade:
            with _in_a_sentence(self.file):  # `save` and `grades` write it
                self._database.execute(
                    "UPDATE graded SET run = ? WHERE key = ?", (self.run, key)
                )
        return grade

    def find_code(self, code: str, look_back: bool = True) -> SubmissionGrade | None:
        """A final grade of a notebook with this code, of any student.

        look_back: whether one of an earlier run will do.
        """
        run = 0 if look_back else self.run
        return self._select("code = ? AND is_final AND run >= ?", self._under_terms(code), run)

    def save(self, submission: Submission, grade: SubmissionGrade, code: str = ""):
        """Keeps a grade, under the bytes that were graded. The file may have changed.

        code: from deduplicate.code_of.
        """
        row = (
            self._key(submission, grade.digest),
            self.run,
            "\t".join(in_order(grade)),
            self._place(submission),
            self._under_terms(code) if code else "",
            grade.is_final,
            msgspec.json.encode(grade).decode(),
        )
        with _in_a_sentence(self.file), self._database:
            self._database.execute("REPLACE INTO graded VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def grades(self) -> Generator[SubmissionGrade, None, None]:
        """The grades of this run, student by student."""
        with _in_a_sentence(self.file), self._database:
            for _, grade in _of_run(self._database, self.run):
                yield grade

    def _select(self, where: str, *values) -> SubmissionGrade | None:
        with _in_a_sentence(self.file):
            row = self._database.execute(
                f"SELECT grade FROM graded WHERE {where} LIMIT 1", values
            ).fetchone()
        return _read(row[0]) if row else None

    def _key(self, submission: Submission, digest: str) -> str:
        parts = submission.student, self._place(submission), digest, self.terms
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _place(self, submission: Submission) -> str:
        return text_of(os.path.relpath(submission.path, self.root))

    def _under_terms(self, code: str) -> str:
        return hashlib.sha256(f"{code} {self.terms}".encode()).hexdigest()


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


def last_run(results: Path) -> Iterator[tuple[Path, SubmissionGrade]]:
    """The grades of the last run, each with its notebook.

    Raises OSError, with a sentence, for a file that cannot be read.
    """
    file = results / FILE
    with _in_a_sentence(file), closing(sqlite3.connect(file)) as database:
        (folder,) = database.execute("SELECT folder FROM class").fetchone()
        (run,) = database.execute("SELECT max(run) FROM graded").fetchone()
        for place, grade in _of_run(database, run):
            yield Path(os.path.normpath(results / folder / place)), grade


def _of_run(database: sqlite3.Connection, run: int) -> Iterator[tuple[str, SubmissionGrade]]:
    rows = database.execute(
        "SELECT place, grade FROM graded WHERE run = ? ORDER BY sorted, key", (run,)
    )
    with closing(rows):
        for place, text in rows:
            if grade := _read(text):
                yield place, grade


def _read(text: str) -> SubmissionGrade | None:
    """The grade, or None if it has an older form or was changed by hand."""
    try:
        return msgspec.json.decode(text, type=SubmissionGrade)
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return None


@cache
def course_digest() -> str:
    """Changes with everything in the course that may decide a grade, as it was at first."""
    return _digest_of(
        [
            path
            for folder in rooms.JUDGING
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix not in (".pyc", ".html") and path.is_file()
        ]
    )


def mistakes_digest() -> str:
    """Changes with a teacher's further mistakes."""
    return _digest_of(further_files(), lambda path: path.name)


def _digest_of(files: list[Path], name=lambda path: os.path.relpath(path, ROOT)) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(repr((name(path), path.read_bytes())).encode())
    return digest.hexdigest()
