"""Results of functions of plain numbers and lists, and answers that give none."""

import copy
import math
import re
from types import GeneratorType

from lessons_content.exercises.naming_words import Alike
from lessons_lib.checks import HANG, Raised, Text

CHANGED = " was changed"


class Changed(Alike):
    """The result of an answer that changed an argument, whichever it is."""


class AnyError(Exception):
    """Raised by a mistake that raises. It is the same as every error."""


def raises():
    raise AnyError


def called(answer, *kinds: type, **arguments):
    """What an answer returns for these arguments, as plain() has it.

    Or Changed, with the argument that it has changed.
    """
    given = copy.deepcopy(arguments)
    result = answer(*given.values())
    for name, argument in given.items():
        if argument != arguments[name]:
            return Changed(f"{name}{CHANGED}")
    return plain(result, *kinds)


def plain(result, *kinds: type):
    """A result in Python's own numbers, and arrays of NumPy and torch in words.

    kinds: `list` or `tuple` for each level, from the outside in. An answer may make either.
    """
    if isinstance(result, GeneratorType):
        return Text("a generator, which has not run yet")
    if isinstance(result, range):
        return list(result)
    if kinds and isinstance(result, list | tuple):
        kind, *inner = kinds
        return kind(plain(part, *inner[_is_flat(part, inner) :]) for part in result)
    if not hasattr(result, "shape"):
        return result
    return result.item() if math.prod(result.shape) == 1 else Text(repr(result))


def _is_flat(part, kinds: list[type]) -> bool:
    """Whether a level is missing."""
    is_list = isinstance(part, list | tuple) and len(part) > 0
    return is_list and len(kinds) > 1 and not isinstance(part[0], list | tuple)


def is_error(result) -> bool:
    """Not the end of a process or of the time: those have no name before a colon."""
    return isinstance(result, Raised) and re.match(r"\w+(:|$)", result) is not None


def same(expected, actual) -> bool:
    """Of the same kind, and equal. Errors are compared by their kind: the words differ between
    spellings of one mistake.
    """
    if not is_error(actual):
        return type(expected) is type(actual) and bool(expected == actual)
    if is_error(expected):
        return expected.split(":")[0] in (AnyError.__name__, actual.split(":")[0])
    return isinstance(expected, Raised) and expected == actual


def show(expected, actual) -> tuple[str, str]:
    """Both results, or what there is instead of the actual one."""
    if isinstance(actual, Changed):
        return f"{actual.removesuffix(CHANGED)} as it was", actual
    return repr(expected), show_no_result(actual) or repr(actual)


def show_no_result(actual) -> str | None:
    """The text for a result that is no result; None for all others."""
    if actual is None:
        return "nothing (None)"
    if is_error(actual):
        return f"an error, {actual}"
    if isinstance(actual, Raised) and actual == HANG:
        return f"{actual}: it does not end, or it is slow"
    return None
