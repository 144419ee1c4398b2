"""Imports all exercises, for the process that every check is a fork of."""

from lessons_lib import checks

for lesson in checks.lessons():
    checks.exercises_of(lesson)
