"""Grades submitted notebooks: `python -m grading SUBMISSIONS`."""
