"""For the mistakes of 11.2: a next event with some of its steps done in other ways."""

from collections.abc import Callable

BROKEN = "\ufffd"  # what bytes become that are no whole character yet
Stop = list[str]


def earliest(text: str, stop: Stop) -> int | None:
    """Where the first stop text in the text begins."""
    return min((text.find(word) for word in stop if word in text), default=None)


def first_listed(text: str, stop: Stop) -> int | None:
    return next((text.find(word) for word in stop if word in text), None)


def last_listed(text: str, stop: Stop) -> int | None:
    return first_listed(text, stop[::-1])


def latest(text: str, stop: Stop) -> int | None:
    return max((text.find(word) for word in stop if word in text), default=None)


def last_place(text: str, stop: Stop) -> int | None:
    return min((text.rfind(word) for word in stop if word in text), default=None)


def at_the_end(text: str, stop: Stop) -> int | None:
    return min((len(text) - len(word) for word in stop if text.endswith(word)), default=None)


def nowhere(text: str, stop: Stop) -> None:
    return None


def beginnings(text: str, stop: Stop, first: int = 1, short: int = 1) -> list[int]:
    """The sizes of the text's ends that begin a stop text and are no whole one."""
    return [
        size
        for word in stop
        for size in range(first, len(word) - short + 1)
        if text.endswith(word[:size])
    ]


def longest(text: str, stop: Stop) -> int:
    return max(beginnings(text, stop), default=0)


def shortest(text: str, stop: Stop) -> int:
    return min(beginnings(text, stop), default=0)


def nothing(text: str, stop: Stop) -> int:
    return 0


def one_character(text: str, stop: Stop) -> int:
    return int(any(text.endswith(word[0]) for word in stop))


def all_but_one(text: str, stop: Stop) -> int:
    """Only what lacks one character to a stop text."""
    return max(
        (len(word) - 1 for word in stop if word[:-1] and text.endswith(word[:-1])), default=0
    )


def by_length(text: str, stop: Stop) -> int:
    return max(map(len, stop), default=1) - 1


def by_whole_length(text: str, stop: Stop) -> int:
    return max(map(len, stop), default=0)


def by_the_first(text: str, stop: Stop) -> int:
    return longest(text, stop[:1])


def by_the_last(text: str, stop: Stop) -> int:
    return longest(text, stop[-1:])


def at_any_place(text: str, stop: Stop) -> int:
    """From the first character on that a stop text begins with."""
    places = [text.find(word[0]) for word in stop if word[0] in text]
    return len(text) - min(places, default=len(text))


def any_letter(text: str, stop: Stop) -> int:
    """All at the end that is somewhere in a stop text."""
    letters = "".join(stop)
    return len(text) - len(text.rstrip(letters)) if letters else 0


def everything(text: str, stop: Stop) -> int:
    return len(text) if stop else 0


def trailing(text: str) -> int:
    return len(text) - len(text.rstrip(BROKEN))


def one_trailing(text: str) -> int:
    return int(text.endswith(BROKEN))


def from_the_first(text: str) -> int:
    return len(text) - text.find(BROKEN) if BROKEN in text else 0


def none_broken(text: str) -> int:
    return 0


def otherwise(
    text: str,
    num_sent: int,
    stop: Stop,
    reason: str | None,
    *,
    stops_at: Callable = earliest,
    holds: Callable = longest,
    breaks: Callable = trailing,
    beside: bool = False,
    flushes: bool = True,
    asks_reason_first: bool = False,
    keeps_stop_text: bool = False,
    keeps_rest: bool = False,
    stop_reason: str | None = "stop",
) -> tuple[str, str | None]:
    """The next event.

    stops_at, holds, breaks: where a stop text begins; how much may begin one; how much is
        broken at the end.
    beside: whether a beginning is looked for in the whole text, broken characters too.
    flushes: whether all is sent at the end.
    asks_reason_first: whether a reason comes before a stop text.
    keeps_stop_text, keeps_rest: what is sent of what begins with a stop text.
    """
    place = None if asks_reason_first and reason else stops_at(text, stop)
    if place is not None:
        word = next(word for word in stop if text.startswith(word, place))
        end = place + len(word) if keeps_stop_text else len(text) if keeps_rest else place
        return text[num_sent:end], stop_reason
    if reason is not None and flushes:
        return text[num_sent:], reason
    broken = breaks(text)
    held = holds(text if beside else text[: len(text) - broken], stop)
    held = max(held, broken) if beside else held + broken
    return text[num_sent : max(num_sent, len(text) - held)], reason
