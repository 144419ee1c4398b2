"""Guides a learner: exercises that are passed, the next one, and why a name is missing."""

# Errors of a cell that the course explains further than Python does.
KINDS = (
    *(NameError, AttributeError, SyntaxError, TypeError),
    *(NotImplementedError, RuntimeError, AssertionError),
)
