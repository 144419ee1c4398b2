"""Grades submitted notebooks: `python -m lessons_grading SUBMISSIONS`."""
