"""The finished code of the course.

A lesson shows the code that it builds. Later lessons import it from here.
"""
