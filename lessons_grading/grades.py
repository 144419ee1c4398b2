"""The grade of a submission: a grade for each exercise of its lesson, and other events."""

import msgspec

# Begins the message of an answer that fails on hidden cases alone.
NEW_CASE = (
    "It passes the check of the notebook, "
    "and not all of the further cases that are used for grades."
)


class ExerciseGrade(msgspec.Struct, frozen=True):
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


class SubmissionGrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The grade of one notebook. It travels and is kept as JSON, which msgspec reads.

    digest: SHA-256 of the bytes that were graded; "" if they could not be read.
    lesson: its number, such as "02", or None if nothing shows it.
    events: what else happened, in plain words, such as "cell 7 was stopped after 20 s".
    is_final: False if another attempt may give another grade, because the file could not be
        read or the machine did not let it finish. The next run tries it again.
    is_over: whether its whole time by the clock was used up.
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
    is_over: bool = False
    is_repeat: bool = False
    tried: int = 0
    repeated: int = 0


def in_order(grade: SubmissionGrade) -> tuple[str, ...]:
    """A key to sort by, as a report is sorted."""
    return grade.student.casefold(), grade.student, grade.lesson or "", grade.notebook
