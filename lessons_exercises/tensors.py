"""Results that hold tensors: how checks compare them, and how they look in a message."""

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
        kind = (
            "float"
            if self.tensor.is_floating_point()
            else str(self.tensor.dtype).removeprefix("torch.")
        )
        return f"{self.name} {tuple(self.tensor.shape)} {kind}".strip()


def values(result, *names: str):
    """A result for comparison: a tensor, or a tuple of as many tensors as names.

    Anything else becomes words.
    """
    if not names and isinstance(result, torch.Tensor):
        return Values(result.clone())
    if (
        names
        and isinstance(result, tuple | list)
        and len(result) == len(names)
        and all(isinstance(part, torch.Tensor) for part in result)
    ):
        return tuple(
            Values(part.clone(), name) for part, name in zip(result, names, strict=True)
        )
    expected = f"a tuple of {len(names)} tensors ({', '.join(names)})" if names else "a tensor"
    return Text(f"{_word(result)} instead of {expected}")


def same(expected, actual) -> bool:
    """For `Exercise.same`: equal, with tensors compared to TOLERANCE.

    Integers and booleans are compared exactly, dtype included.

    NaN equals NaN, so that a mistake that gives NaN is recognised. It never passes: no result
    of ours holds one.
    """
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if not (isinstance(expected, Values) and isinstance(actual, Values)):
        return type(expected) is type(actual) and expected == actual
    ours, theirs = expected.tensor.detach(), actual.tensor.detach()
    if ours.shape != theirs.shape or ours.is_floating_point() != theirs.is_floating_point():
        return False
    if ours.is_floating_point():
        return torch.allclose(
            theirs.double(), ours.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        )
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def show(expected, actual) -> tuple[str, str]:
    """For `Exercise.show`: both results in words, from the first difference on."""
    if (
        isinstance(expected, tuple)
        and isinstance(actual, tuple)
        and len(expected) == len(actual)
    ):
        differing = [pair for pair in zip(expected, actual, strict=True) if not same(*pair)]
        return show(*differing[0]) if differing else (repr(expected), repr(actual))
    if not (isinstance(expected, Values) and isinstance(actual, Values)):
        return repr(expected), repr(actual)
    ours, theirs = expected.tensor.detach().cpu(), actual.tensor.detach().cpu()
    if (
        ours.shape != theirs.shape
        or ours.dim() == 0
        or ours.numel() <= SHOWN
        or (not ours.is_floating_point() and ours.dtype != theirs.dtype)
    ):
        digits = DIGITS if repr(expected) != repr(actual) else MORE_DIGITS
        return expected.text(digits), actual.text(digits)
    close = torch.isclose(theirs.double(), ours.double(), rtol=TOLERANCE, atol=TOLERANCE)
    first = (~close).nonzero()[0].tolist() if not close.all() else [0] * ours.dim()
    place = f"at [{', '.join(map(str, first))}]"
    row = (*first[:-1], slice(first[-1], first[-1] + SHOWN))
    digits = (
        DIGITS if _numbers(ours[row], DIGITS) != _numbers(theirs[row], DIGITS) else MORE_DIGITS
    )
    return (
        f"{expected._head()} {place}: {_numbers(ours[row], digits)}",
        f"{actual._head()} {place}: {_numbers(theirs[row], digits)}",
    )


def _numbers(tensor: torch.Tensor, digits: int) -> str:
    numbers = tensor.flatten().tolist()
    return ", ".join(
        f"{number:.{digits}g}" if isinstance(number, float) else str(number)
        for number in numbers
    )


def _word(result) -> str:
    if isinstance(result, tuple | list) and not result:
        return f"an empty {type(result).__name__}"
    if isinstance(result, tuple | list):
        return (
            f"a {type(result).__name__} of {len(result)}: "
            f"{', '.join(type(part).__name__ for part in result)}"
        )
    return "None" if result is None else f"{type(result).__name__}"
