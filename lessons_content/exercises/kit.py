"""What the file of an exercise is made with, to be imported in one line."""

from lessons_content.exercises import outcomes, tensors
from lessons_content.exercises.changes import changed
from lessons_content.exercises.errors import error_of, retold
from lessons_content.exercises.exercise import exercise
from lessons_content.exercises.naming_words import Alike, counted, listed, named_where
from lessons_lib.checks import Raised, Text, raised

__all__ = [
    "Alike",
    "Raised",
    "Text",
    "changed",
    "counted",
    "error_of",
    "exercise",
    "listed",
    "named_where",
    "outcomes",
    "raised",
    "retold",
    "tensors",
]
