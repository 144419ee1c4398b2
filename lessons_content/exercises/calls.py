"""Functions of plain numbers and lists: a kind of exercises, with arguments as cases."""

from types import SimpleNamespace

from lessons_content.exercises import outcomes


def taking(*names: str, returns: tuple[type, ...] = ()) -> SimpleNamespace:
    """The kind of exercises whose cases are tuples of these arguments.

    returns: `list` or `tuple` for each level of a result, from the outside in.
    """

    def named(case: tuple) -> dict:
        return dict(zip(names, case, strict=True))

    def observe(answer, case: tuple):
        return outcomes.called(answer, *returns, **named(case))

    def describe(case: tuple) -> str:
        return ", ".join(f"{name} = {argument}" for name, argument in named(case).items())

    return SimpleNamespace(
        observe=observe, describe=describe, same=outcomes.same, show=outcomes.show
    )


def numbers(text: str) -> list[tuple[int, ...]]:
    """The cases (1, 2, 3) and (4, 5, 6) of "1 2 3, 4 5 6"."""
    return [tuple(map(int, case.split())) for case in text.split(",")]


def lists_and_numbers(text: str) -> list[tuple[list[int], int]]:
    """The cases ([1, 2], 3) and ([], 4) of "1 2 in 3, in 4"."""
    pairs = (case.split("in ") for case in text.split(","))
    return [([*map(int, numbers.split())], int(number)) for numbers, number in pairs]
