"""Grades submitted notebooks: `python -m lessons_lib.grade SUBMISSIONS`."""
