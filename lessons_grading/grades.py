"""What became of a submission: a grade for each exercise of its lesson, and other events."""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class ExerciseGrade:
    """The grade of one exercise: `earned` of its `points`.

    mistake: None if it passed; else a slug of its bank or of a check ("wrong", "timed-out",
        "not-attempted", …), or "missing" if no cell defines an answer of that name.
    message: what the student reads about it.
    """

    exercise: str
    title: str
    points: int
    earned: int
    passed: bool
    mistake: str | None
    message: str
    seconds: float


@dataclass(frozen=True)
class SubmissionGrade:
    """The grade of one notebook.

    digest: SHA-256 of the bytes that were graded; "" if they could not be read.
    lesson: its number, such as "02", or None if nothing shows it.
    events: what else happened, in plain words, such as "cell 7 was stopped after 20 s".
    is_final: False if another attempt may give another grade, because the file could not be
        read or the machine did not let it finish. Such a grade is not kept.
    is_repeat: whether it was taken over from a notebook with the same code.
    tried, repeated: how many answers were tried for it, and how many were known already from
        other submissions.
    """

    student: str
    notebook: str
    digest: str
    lesson: str | None
    exercises: tuple[ExerciseGrade, ...]
    events: tuple[str, ...]
    seconds: float
    is_final: bool = True
    is_repeat: bool = False
    tried: int = 0
    repeated: int = 0

    def to_json(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> "SubmissionGrade":
        """The grade that `to_json` wrote. Raises KeyError or TypeError for anything else."""
        exercises = tuple(ExerciseGrade(**entry) for entry in data["exercises"])
        return cls(**{**data, "exercises": exercises, "events": tuple(data["events"])})
