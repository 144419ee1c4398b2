"""Grades one submission (being written)."""

from pathlib import Path

from lessons_lib.grade.grades import SubmissionGrade
from lessons_lib.grade.sandbox import Limits


def grade_notebook(path: Path, student: str, seed: int, limits: Limits = Limits()) -> SubmissionGrade:
    """The grade of one notebook. Never raises for a bad submission."""
    raise NotImplementedError
