"""Results of several lists of numbers, each with its name, for 10.2 and 10.3."""

from lessons_lib.checks import Text

NOT_WRITTEN = -7777  # what tensors hold at first
MOST_SHOWN = 8  # numbers of a list in a message


def show(expected, actual) -> tuple[str, str]:
    """The first numbers that differ."""
    for (name, ours), (_, theirs) in zip(expected, actual, strict=True):
        if ours != theirs:
            return in_words(name, ours, theirs), in_words(name, theirs, ours)
    return repr(expected), repr(actual)


def in_words(name: str, numbers, others) -> str:
    """The numbers, if there are many from the first that is another one on."""
    if isinstance(numbers, Text):
        return f"{name}: {numbers}"
    if len(numbers) <= MOST_SHOWN:
        return f"{name}: {short(numbers)}"
    first = next((i for i, pair in enumerate(zip(numbers, others)) if len(set(pair)) > 1), 0)
    return f"{name}, from [{first}] on: {short(numbers[first:])}"


def short(numbers) -> str:
    """ "[3, 4]", or the first of many."""
    shown = ["not written" if number == NOT_WRITTEN else number for number in numbers]
    more = ", …" if len(numbers) > MOST_SHOWN else ""
    return f"[{', '.join(map(str, shown[:MOST_SHOWN]))}{more}]"
