"""Reads the source of a lesson: its cells, and the parts of other files that it includes."""
