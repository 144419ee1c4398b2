"""For the Python exercises of lesson 07: answers that give no result."""

import re

from lessons_lib.checks import HANG, Raised, Text


class Changed(Text):
    """The result of an answer that changed its argument."""


class AnyError(Exception):
    """Raised by a mistake that raises. It is the same as every error."""


def raises():
    raise AnyError


def is_error(result) -> bool:
    """Not the end of a process or of the time: those have no name before a colon."""
    return isinstance(result, Raised) and re.match(r"\w+(:|$)", result) is not None


def same_error(expected, actual) -> bool:
    """Errors are compared by their kind: the words differ between spellings of one mistake."""
    if is_error(expected) and is_error(actual):
        kind = expected.split(":")[0]
        return kind in (AnyError.__name__, actual.split(":")[0])
    return isinstance(expected, Raised) and isinstance(actual, Raised) and expected == actual


def show_no_result(actual) -> str | None:
    """The text for a result that is no result; None for all others."""
    if actual is None:
        return "nothing (None)"
    if is_error(actual):
        return f"an error, {actual}"
    if isinstance(actual, Raised) and actual == HANG:
        return f"{actual}: it does not end, or it is slow"
    return None
