"""Inputs of lesson 04's exercises, and how an answer is run on them."""

import math

import torch
from torch import Tensor

from lessons_exercises.tensors import Values, values
from lessons_lib.checks import Raised, Text, raised
from paged_attention.softmax_state import NO_KEY

# held where an answer must not look; a finite number, so that mistakes can be told apart by
# the damage
POISON = 1e4
FEW = 12  # numbers of o that a message shows
NAN = float("nan")  # held there in further cases, where a mask must have both its halves


class ArgumentChanged(Text):
    """The result of an answer that changes what it is given.

    Equal to any other such result.
    """

    def __eq__(self, other):
        return isinstance(other, ArgumentChanged)

    __hash__ = Text.__hash__


class RaisedWithNothing(Raised):
    """The result of an answer that raises where there is nothing to reduce or to join.

    Equal whatever it raises.
    """

    def __eq__(self, other):
        return isinstance(other, RaisedWithNothing)

    __hash__ = Raised.__hash__


def named_where(nothing: bool, run):
    """What `run()` returns.

    Where there is `nothing` in a case, raising is a result of its own, whatever the words.
    """
    try:
        return run()
    except Exception as error:
        if not nothing:
            raise
        words = raised(error)
        result = RaisedWithNothing(words)
        result.where = words.where
        return result


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def listed(**tensors: Tensor) -> str:
    """Small tensors in numbers, for a description: "q = [[1, 2]], m = [-inf, 0]"."""
    return ", ".join(
        f"{name} = {_numbers(tensor.tolist())}" for name, tensor in tensors.items()
    )


def _numbers(part) -> str:
    if isinstance(part, list):
        return f"[{', '.join(map(_numbers, part))}]"
    return f"{part:g}" if isinstance(part, float) else str(part)


def in_double(function):
    """The function on float64 copies of its float arguments, as our results are."""

    def wrapped(*arguments):
        return function(
            *(
                argument.double() if argument.is_floating_point() else argument
                for argument in arguments
            )
        )

    return wrapped


def call(answer, names: tuple[str, ...], **arguments: Tensor):
    """What `answer` returns, as values of these names (none: one tensor).

    Or which of the arguments it has changed.
    """
    copies = {name: argument.clone() for name, argument in arguments.items()}
    result = answer(*arguments.values())
    for name, copy in copies.items():
        if not equal(arguments[name], copy):
            return ArgumentChanged(f"the argument {name} was changed")
    return values(result, *names)


def equal(tensor: Tensor, other: Tensor) -> bool:
    """The same numbers in the same places, NaN included."""
    return tensor.shape == other.shape and bool(
        ((tensor == other) | (tensor.isnan() & other.isnan())).all()
    )


def drawn_parts(chance, num_parts: int):
    """For hidden cases, what `parts` takes besides a shape.

    Head size, level, spread, parts that saw no key, seed.
    """
    level, spread = chance.choice(
        ((0.0, 1.0), (-2.0, 3.0), (0.0, 300.0), (500.0, 1.0), (-500.0, 1.0))
    )
    empty = sorted(
        chance.sample(range(num_parts), chance.choice((0, 0, num_parts // 3, num_parts // 2)))
    )
    return chance.choice((2, 5, 16)), level, spread, tuple(empty), chance.randrange(2**31)


def with_zeros_of_l(result):
    """A result (o, m, l), and where its l is exactly 0.

    The next step asks for `l == 0`.
    """
    if not isinstance(result, tuple):
        return result
    return (*result, Values(result[2].tensor == 0, "l == 0"))


def are_few(shape: tuple[int, ...], head_size: int) -> bool:
    """Whether these parts are whole numbers, and few enough to be shown."""
    return 0 < math.prod(shape) * head_size <= FEW


def parts(
    shape: tuple[int, ...],
    head_size: int,
    level: float,
    spread: float,
    empty: tuple[int, ...],
    seed: int,
):
    """(o, m, l) of parts of attention: maxima around `level`.

    The parts whose numbers are in `empty` saw no key.

    A pair (part, head) in `empty`: only this head of the part saw none.
    """
    source = generator(seed)
    o = torch.randn(*shape, head_size, generator=source)
    m = level + spread * torch.randn(shape, generator=source)
    l = 1 + 15 * torch.rand(shape, generator=source)
    if are_few(shape, head_size):
        o, m, l = ((2 * o).round() + 0.0, m.round() + 0.0, (l / 3).ceil())  # no -0
    for part in empty:
        o[part], m[part], l[part] = 0.0, NO_KEY, 0.0
    return o, m, l


def names_of_empty(empty, noun: str) -> str:
    """ ", block 0 and 2 saw no key (…)" as words of a description, or nothing."""
    words = [
        f"{noun} {part[0]} in head {part[1]}" if isinstance(part, tuple) else f"{noun} {part}"
        for part in empty
    ]
    return f"; {' and '.join(words)} saw no key (o = 0, m = -inf, l = 0)" if empty else ""
