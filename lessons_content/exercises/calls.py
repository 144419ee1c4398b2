"""Functions of plain numbers and lists: a kind of exercises, with arguments as cases."""

import functools
import inspect
from types import SimpleNamespace

from lessons_content.exercises import outcomes


def taking(ours, *returns: type) -> SimpleNamespace:
    """The kind of exercises whose cases are tuples of an answer's arguments.

    ours: our answer.
    returns: `list` or `tuple` for each level of a result, from the outside in.
    """
    parameters = inspect.signature(ours).parameters
    names = [name for name, each in parameters.items() if each.kind != each.KEYWORD_ONLY]
    only_by_name = [name for name in parameters if name not in names]

    def observe(answer, case: tuple):
        first, last = case[: len(names)], case[len(names) :]
        by_name = dict(zip(only_by_name, last, strict=True))
        arguments = dict(zip(names, first, strict=True))
        return outcomes.called(functools.partial(answer, **by_name), *returns, **arguments)

    def describe(case: tuple) -> str:
        pairs = zip((*names, *only_by_name), case, strict=True)
        return ", ".join(f"{name} = {argument}" for name, argument in pairs)

    return SimpleNamespace(
        reference=ours,
        observe=observe,
        describe=describe,
        same=outcomes.same,
        show=outcomes.show,
    )


def numbers(text: str) -> list[tuple[int, ...]]:
    """The cases (1, 2, 3) and (4, 5, 6) of "1 2 3, 4 5 6"."""
    return [tuple(map(int, case.split())) for case in text.split(",")]


def lists_and_numbers(text: str) -> list[tuple[list[int], int]]:
    """The cases ([1, 2], 3) and ([], 4) of "1 2 in 3, in 4"."""
    pairs = (case.split("in ") for case in text.split(","))
    return [([*map(int, numbers.split())], int(number)) for numbers, number in pairs]
