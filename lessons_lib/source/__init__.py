"""The source of a lesson: its cells, and what it takes in from other files."""
