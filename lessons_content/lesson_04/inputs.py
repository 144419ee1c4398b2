"""Inputs of lesson 04's exercises, and how an answer is run on them."""

import copy
import math

import torch
from torch import Tensor

from lessons_content.exercises.changes import changed
from lessons_content.exercises.naming_words import Alike
from lessons_content.exercises.tensors import Values, values
from paged_attention.attention.softmax_state import NO_KEY

# held where an answer must not look; a finite number, so that mistakes can be told apart by
# the damage
POISON = 1e4
FEW = 12  # numbers of o that a message shows
NAN = float("nan")  # held there in further cases, where a mask must have both its halves


class ArgumentChanged(Alike):
    """The result of an answer that changes what it is given."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def listed(**tensors: Tensor) -> str:
    """Small tensors in numbers, for a description: "q = [[1, 2]], m = [-inf, 0]"."""
    return ", ".join(f"{name} = {_numbers(x.tolist())}" for name, x in tensors.items())


def _numbers(part) -> str:
    if isinstance(part, list):
        return f"[{', '.join(map(_numbers, part))}]"
    return f"{part:g}" if isinstance(part, float) else str(part)


def call(answer, *names: str, **arguments: Tensor):
    """What `answer` returns, as values of these names (none: one tensor).

    Or which of the arguments it has changed.
    """
    before = copy.deepcopy(arguments)
    result = answer(*arguments.values())
    if names_of_changed := changed(before, arguments):
        return ArgumentChanged(f"the argument {names_of_changed[0]} was changed")
    return values(result, *names)


def call_for_parts(answer, **arguments: Tensor):
    """The same for (o, m, l), and where l is exactly 0: the next step asks for `l == 0`."""
    result = call(answer, "o", "m", "l", **arguments)
    if not isinstance(result, tuple):
        return result
    return (*result, Values(result[2].tensor == 0, "l == 0"))


def drawn_parts(chance, num_parts: int):
    """For hidden cases: head size, level, spread, parts that saw no key, seed."""
    abouts = (0.0, 1.0), (-2.0, 3.0), (0.0, 300.0), (500.0, 1.0), (-500.0, 1.0)
    about, num_empty = chance.choice(abouts), (0, 0, num_parts // 3, num_parts // 2)
    empty = tuple(sorted(chance.sample(range(num_parts), chance.choice(num_empty))))
    return chance.choice((2, 5, 16)), *about, empty, chance.randrange(2**31)


def are_few(shape: tuple[int, ...], head_size: int) -> bool:
    """Whether these parts are whole numbers, and few enough to be shown."""
    return 0 < math.prod(shape) * head_size <= FEW


def parts(shape, head_size: int, level: float, spread: float, empty, seed: int):
    """(o, m, l) of parts of attention: maxima around `level`.

    empty: the numbers of the parts that saw no key. A pair (part, head): only this head.
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


def describe_parts(
    arguments, head: str, noun: str, shape, head_size: int, level: float, spread: float, empty
) -> str:
    """A case in words: its arguments if they are few, or their shapes and what is in them.

    noun: what messages call a part.
    """
    if are_few(shape, head_size):
        return listed(**arguments)
    words = f"{head}: o of shape {(*shape, head_size)}, m and l of shape {shape}"
    if level or spread > 10:
        words += f", m near {level:,.0f}"
    if spread > 10:
        words += f" give or take {spread:,.0f}"
    names = [
        f"{noun} {part[0]} in head {part[1]}" if isinstance(part, tuple) else f"{noun} {part}"
        for part in empty
    ]
    if names:
        words += f"; {' and '.join(names)} saw no key (o = 0, m = -inf, l = 0)"
    return words
