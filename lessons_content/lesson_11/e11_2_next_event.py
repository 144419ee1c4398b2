"""Exercise 11.2: what a stream sends next.

There are three cases: the text has a stop text in it, the answer has ended, or it goes on. In
which of them may something have to wait?

Where the answer goes on, look at the end of the text. Which ends of "abEN" could become the
stop text "END", and which of "abEE"?

`text.endswith(word[:size])` says whether the text ends with the first `size` characters of a
word. Which sizes have to be tried? And what does `text[:-0]` give?

Find out where the text to send ends: at the first stop text, at the end, or before what is
held back. Then send from num_sent to there. Take the incomplete characters away first, with
`rstrip`, and look for the beginning of a stop text in what is left.
"""

from dataclasses import dataclass

from lessons_content.exercises.kit import Text, counted, exercise
from paged_attention.engine.serve.stop_texts import next_event

BROKEN = "\ufffd"  # what bytes become that are no whole character yet


@dataclass(frozen=True)
class Case:
    text: str
    num_sent: int = 0
    stop: tuple[str, ...] = ()
    reason: str | None = None


CASES = [
    # Without stop texts: what is new.
    Case(""),
    Case("a"),
    Case("ab", 1),
    Case("ab", 2),
    Case("abcdef", 2),
    Case("", reason="stop"),
    Case("ab", 2, reason="length"),
    Case("abc", 1, reason="length"),
    Case("abc", 1, reason="stop"),
    # A stop text: in the middle, at an end, over what two steps have brought.
    Case("ab.", 0, (".",)),
    Case("ab.", 2, (".",)),
    Case("ab.cd", 1, (".",)),
    Case(".", 0, (".",)),
    Case("ab.", 1, (".",), "length"),
    Case("abEND", 2, ("END",)),
    Case("abENDcd", 1, ("END",)),
    Case("abENDcd", 2, ("END",), "length"),
    Case("abEND", 2, ("END",), "stop"),
    Case("a.b.c", 0, (".",)),
    Case("a.b.c", 1, (".",)),
    # Two stop texts: the first in the text counts, wherever it is in the list.
    Case("ab.cd!", 1, ("!", ".")),
    Case("ab!cd.", 1, ("!", ".")),
    Case("ab!cd", 1, (".", "!")),
    Case("xyz", 0, ("yz", "xyz")),
    Case("xyz", 0, ("xyz", "yz")),
    Case("wxyz", 0, ("z", "xyz")),
    # What may begin a stop text is held back.
    Case("abE", 0, ("END",)),
    Case("abE", 2, ("END",)),
    Case("abEN", 1, ("END",)),
    Case("abEN", 2, ("END",)),
    Case("E", 0, ("END",)),
    Case("abc", 0, ("END",)),
    Case("abcde", 1, ("END",)),
    Case("aEb", 0, ("END",)),
    Case("aEb", 1, ("END",)),
    Case("aENb", 1, ("END",)),
    Case("abD", 1, ("END",)),
    Case("abND", 1, ("END",)),
    Case("aEND", 1, ("ENDED",)),
    Case("abEE", 2, ("END",)),
    Case("abENE", 2, ("END",)),
    # The longest end that may begin one.
    Case("baa", 1, ("aab",)),
    Case("baaa", 1, ("aab",)),
    Case("xabab", 1, ("ababc",)),
    Case("xaba", 1, ("abac",)),
    Case("xaa", 1, ("aaa",)),
    # Several that it may begin.
    Case("abE", 2, ("END", "xy")),
    Case("abx", 2, ("END", "xy")),
    Case("abcd", 1, ("dx", "bcdy")),
    Case("abcd", 1, ("bcdy", "dx")),
    Case("abc", 1, ("END", "xy")),
    # It has ended, so nothing is held back.
    Case("abE", 2, ("END",), "length"),
    Case("abEN", 2, ("END",), "length"),
    Case("abEN", 2, ("END",), "stop"),
    Case("abc", 3, ("END",), "length"),
    # Characters of several bytes.
    Case(f"ab{BROKEN}", 1),
    Case(f"ab{BROKEN}", 2),
    Case(f"ab{BROKEN}{BROKEN}", 1),
    Case(f"a{BROKEN * 3}", 0),
    Case(BROKEN),
    Case("abé", 2),
    Case(f"a{BROKEN}b", 0),
    Case(f"a{BROKEN}b", 1),
    Case(f"a{BROKEN}b{BROKEN}", 1),
    Case(f"ab{BROKEN}", 2, reason="length"),
    Case(f"ab{BROKEN}{BROKEN}", 1, reason="stop"),
    Case(f"ab{BROKEN}", 2, ("END",), "length"),
    Case(f"{BROKEN}ab", 0),  # bytes that never became a character
    # White space is text like any other.
    Case(" a"),
    Case("ab ", 1),
    Case("ab\n", 1, ("END",)),
    Case("ab .", 1, (".",)),
    Case(" .", 0, (".",)),
    Case("ab ", 1, reason="length"),
    Case(f"ab {BROKEN}", 1),
    # Both at once.
    Case(f"abE{BROKEN}", 1, ("END",)),
    Case(f"abE{BROKEN}", 2, ("END",)),
    Case(f"abE{BROKEN}", 2, ("Eé",)),
    Case(f"abE{BROKEN}", 2, ("Eé",), "length"),
    Case(f"ab{BROKEN}E", 2, ("END",)),
    Case(f"abEND{BROKEN}", 2, ("END",)),
    Case("abéE", 2, ("END",)),
    Case("abé!", 2, ("é!",)),
]


def hidden(chance):
    """An answer that comes in pieces, and what was sent of it before."""
    for number in range(12):
        letters = "xyz" if number % 3 else f"xy{BROKEN}"
        stop = tuple(
            "".join(chance.choices("xyz", k=chance.randint(1, 4)))
            for _ in range(chance.randint(0, 3))
        )
        text, num_sent = "", 0
        while True:
            text += "".join(chance.choices(letters, k=chance.randint(1, 3)))
            reason = chance.choice((None, None, None, "length", "stop"))
            yield Case(text, num_sent, stop, reason)
            sent, ended = next_event(text, num_sent, stop, reason)
            num_sent += len(sent)
            if ended or len(text) > 20:
                break


def observe(answer, case: Case):
    result = answer(case.text, case.num_sent, list(case.stop), case.reason)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return Text(f"{result!r} instead of a text and a reason")
    return tuple(result)


def describe(case: Case) -> str:
    ended = f", ended for the reason {case.reason!r}" if case.reason else ", goes on"
    stop = f", stop texts {list(case.stop)}" if case.stop else ""
    return (
        f"the text {case.text!r}{stop}{ended}; "
        f"{counted(case.num_sent, 'character')} sent before"
    )


EXERCISE = exercise(
    globals(),
    answer_name="next_event",
    size=lambda case: (
        len(case.text) + sum(map(len, case.stop)),
        len(case.stop),
        case.reason is not None,
        case.num_sent,
    ),
)
