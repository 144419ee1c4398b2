"""Guides a learner: what is passed and what is next, and why a name is missing."""

# The errors of a cell after which a learner is told more than Python tells.
KINDS = (
    *(NameError, AttributeError, SyntaxError, TypeError),
    *(NotImplementedError, RuntimeError, AssertionError),
)
