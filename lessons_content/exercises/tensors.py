"""Results that hold tensors: how checks compare them, and how they look in a message."""

import copy
import functools
from dataclasses import dataclass

import torch

from lessons_lib.checks import Text

# relative and absolute; our references accumulate in float64, answers may in float32
TOLERANCE = 1e-4
SHOWN = 6  # numbers of a tensor that a message shows
DIGITS, MORE_DIGITS = 4, 7  # of a float in a message; more where two results would look alike


@dataclass(frozen=True, eq=False)
class Values:
    """A tensor as a result, with the name that a message gives it."""

    tensor: torch.Tensor
    name: str = ""

    def __repr__(self):
        return self.text(DIGITS)

    def text(self, digits: int) -> str:
        more = ", …" if self.tensor.numel() > SHOWN else ""
        return f"{self._head()} [{_numbers(self.tensor.flatten()[:SHOWN], digits)}{more}]"

    def _head(self) -> str:
        kind = "float" if self.tensor.is_floating_point() else name_of(self.tensor.dtype)
        return f"{self.name} {tuple(self.tensor.shape)} {kind}".strip()


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def values(result, *names: str):
    """A result for comparison: a tensor, or a tuple of as many tensors as names.

    Anything else becomes words.
    """
    if not names and isinstance(result, torch.Tensor):
        return Values(result.clone())
    parts = result if names and isinstance(result, tuple | list) else ()
    if parts and [isinstance(part, torch.Tensor) for part in parts] == [True] * len(names):
        return tuple(map(Values, (part.clone() for part in parts), names))
    expected = f"a tuple of {len(names)} tensors ({', '.join(names)})" if names else "a tensor"
    return Text(f"{_word(result)} instead of {expected}")


def observe(answer, case: tuple):
    """For `Exercise.observe`: what an answer returns for a case's arguments."""
    return values(answer(*case))


def _word(result) -> str:
    kind = type(result).__name__
    if isinstance(result, tuple | list) and not result:
        return f"an empty {kind}"
    if isinstance(result, tuple | list):
        return (
            f"a {kind} of {len(result)}: {', '.join(type(part).__name__ for part in result)}"
        )
    return "None" if result is None else kind


def same(expected, actual) -> bool:
    """For `Exercise.same`: equal, with tensors compared to TOLERANCE.

    Integers and booleans are compared exactly, dtype included.

    NaN equals NaN, so that a mistake that gives NaN is recognised. It never passes: no right
    result holds one.
    """
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if not (isinstance(expected, Values) and isinstance(actual, Values)):
        return type(expected) is type(actual) and expected == actual
    ours, theirs = expected.tensor.detach(), actual.tensor.detach()
    if ours.shape != theirs.shape or ours.is_floating_point() != theirs.is_floating_point():
        return False
    if ours.is_floating_point():
        return bool(_close(ours, theirs).all())
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def _close(ours: torch.Tensor, theirs: torch.Tensor, nan_too: bool = True) -> torch.Tensor:
    ours, theirs = ours.double(), theirs.double()
    return torch.isclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=nan_too)


def show(expected, actual) -> tuple[str, str]:
    """For `Exercise.show`: both results in words, from the first difference on."""
    are_tuples = isinstance(expected, tuple) and isinstance(actual, tuple)
    if are_tuples and len(expected) == len(actual):
        differing = [pair for pair in zip(expected, actual, strict=True) if not same(*pair)]
        return show(*differing[0]) if differing else (repr(expected), repr(actual))
    if not (isinstance(expected, Values) and isinstance(actual, Values)):
        return repr(expected), repr(actual)
    ours, theirs = expected.tensor.detach().cpu(), actual.tensor.detach().cpu()
    other_kind = not ours.is_floating_point() and ours.dtype != theirs.dtype
    if ours.shape != theirs.shape or not ours.dim() or ours.numel() <= SHOWN or other_kind:
        digits = DIGITS if repr(expected) != repr(actual) else MORE_DIGITS
        return expected.text(digits), actual.text(digits)
    differing = (~_close(ours, theirs, nan_too=False)).nonzero().tolist()
    *before, last = differing[0] if differing else [0] * ours.dim()
    row = (*before, slice(last, last + SHOWN))
    looks_alike = _numbers(ours[row], DIGITS) == _numbers(theirs[row], DIGITS)
    place = f"at [{', '.join(map(str, (*before, last)))}]:"
    digits = MORE_DIGITS if looks_alike else DIGITS
    return (
        f"{expected._head()} {place} {_numbers(ours[row], digits)}",
        f"{actual._head()} {place} {_numbers(theirs[row], digits)}",
    )


def _numbers(tensor: torch.Tensor, digits: int) -> str:
    numbers = tensor.flatten().tolist()
    return ", ".join(f"{x:.{digits}g}" if isinstance(x, float) else str(x) for x in numbers)


def integer(result):
    """A result that is an integer, Python's or NumPy's; anything else in words."""
    is_integer = hasattr(result, "__index__") and not isinstance(result, torch.Tensor)
    return int(result) if is_integer else Text(repr(result))


def in_double(function):
    """The function in float64, as our results are. A manager's pool keeps its dtype."""

    @functools.wraps(function)
    def wrapped(*arguments):
        doubled = [*map(_doubled, arguments)]
        result = function(*doubled)
        for given, exact in zip(arguments, doubled, strict=True):
            if hasattr(given, "kv_cache"):
                given.kv_cache.copy_(exact.kv_cache)
        return result

    return wrapped


def _doubled(argument):
    """A float64 copy of a tensor of floats, a layer, or a manager with its pool."""
    if hasattr(argument, "kv_cache"):
        exact = copy.copy(argument)
        exact.kv_cache = argument.kv_cache.double()
        return exact
    if isinstance(argument, torch.nn.Module):
        return copy.deepcopy(argument).double()
    is_float = torch.is_tensor(argument) and argument.is_floating_point()
    return argument.double() if is_float else argument


def same_bits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Of one kind, with the same numbers in the same places, NaN included."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return False
    return bool(((tensor == other) | (tensor.isnan() & other.isnan())).all())
