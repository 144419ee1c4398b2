"""Imports all exercises, for the process that every check is a fork of."""

from lessons_content.mistakes.bank import Bank
from lessons_lib import checks

for lesson in checks.lessons():
    for exercise in checks.exercises_of(lesson):
        if isinstance(exercise.mistakes, Bank):
            _ = exercise.mistakes.made_with  # so that no check has to read these files
