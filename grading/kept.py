"""Grades kept on disk, a file each, so that an interrupted run goes on where it was."""

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from grading.classroom import Submission, text_of
from grading.grades import SubmissionGrade
from lessons_lib.paths import ROOT

LARGEST_READ = 20 << 20  # bytes; the grader refuses larger files


@dataclass(frozen=True)
class Kept:
    """`terms`: what decides a grade beside the submission, such as the seed. Under other terms no old grade is found."""

    folder: Path
    terms: str

    def file(self, submission: Submission) -> Path:
        parts = submission.student, text_of(submission.path.name), _fingerprint(submission.path), self.terms
        return self.folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}.json"

    def load(self, file: Path) -> SubmissionGrade | None:
        try:
            return SubmissionGrade.from_json(json.loads(file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, file: Path, grade: SubmissionGrade):
        write_whole(file, json.dumps(grade.to_json(), indent=1))


def write_whole(file: Path, text: str):
    """Writes all of the file, or leaves what was there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{os.getpid()}.partial")  # two runs may write to the same folder
    try:
        partial.write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def course_digest() -> str:
    """Changes with whatever in the course may decide a grade."""
    files = [path for folder in ("grading", "kernels", "lessons_lib", "notebooks", "paged_attention", "solutions/checks")
             for path in sorted((ROOT / folder).rglob("*")) if path.suffix not in (".pyc", ".html") and path.is_file()]
    contents = [(path.relative_to(ROOT), path.read_bytes()) for path in files]
    return hashlib.sha256(repr(contents).encode()).hexdigest()


def _fingerprint(path: Path) -> str:
    """Another text for another content. What is no plain file, or too large, is not read."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_READ:
            return f"{status.st_mode} {status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return str(error)
