"""Grades kept on disk, one file for each, so that an interrupted run can continue."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from lessons_exercises.further import further_files
from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import Unreadable, digest_of, read_file
from lessons_grading.submissions import Submission, text_of
from lessons_lib.paths import ROOT


@dataclass(frozen=True)
class Kept:
    """`terms`: what else decides a grade, such as the seed. New terms find no old grade."""

    folder: Path
    terms: str

    def find(self, submission: Submission) -> SubmissionGrade | None:
        """The grade of the submission's present bytes."""
        try:
            file = self._file(submission, digest_of(read_file(submission.path)))
            return SubmissionGrade.from_json(json.loads(file.read_bytes()))
        except (Unreadable, OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, submission: Submission, grade: SubmissionGrade):
        """Keeps a final grade, under the bytes that were graded. The file may have changed."""
        write_whole(
            self._file(submission, grade.digest), json.dumps(grade.to_json(), indent=1)
        )

    def _file(self, submission: Submission, digest: str) -> Path:
        parts = submission.student, text_of(submission.path.name), digest, self.terms
        return self.folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}.json"


def write_whole(file: Path, text: str):
    """Writes the whole file, or leaves what was there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # two runs may write to the same folder
    partial = file.with_name(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def course_digest() -> str:
    """Changes with everything in the course that may decide a grade."""
    files = [
        path
        for folder in (
            "kernels",
            "lessons_build",
            "lessons_grading",
            "lessons_lib",
            "lessons_processes",
            "notebooks",
            "paged_attention",
            "lessons_exercises",
        )
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix not in (".pyc", ".html") and path.is_file()
    ]
    contents = [
        (os.path.relpath(path, ROOT), path.read_bytes()) for path in [*files, *further_files()]
    ]
    return hashlib.sha256(repr(contents).encode()).hexdigest()
