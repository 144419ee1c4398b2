"""Exceptions of C++ in a verdict: their own names, and the learner's line if it is known."""

import re

_GOT = re.compile(r"^  got: .*?\b(RuntimeError|StandardOutOfRange)\b(?:: ([^;\n]*))?", re.M)
# The exception that the library's message belongs to, and the code that throws it.
_OF_THE_LIBRARY = (
    (
        r"^StandardOutOfRange|range_check|: __pos|\bat\b",
        "std::out_of_range",
        r"\.(at|substr)\(",
    ),
    (
        r"bad_alloc",
        "std::bad_alloc",
        r"\bnew\b|\b(resize|reserve|assign)\(|vector<.*>\s*\w*\(",
    ),
    (
        r"length_error|_M_\w+$|larger than max_size",
        "std::length_error",
        r"resize\(|vector<.*\(",
    ),
)


def told(message: str, text: str) -> str:
    """A message about a wrong answer in C++, in which a thrown exception has its own name."""
    found = _GOT.search(message)
    if found is None:
        return message
    kind, thrower, words = "an exception", "", found[2] or ""
    for said, name, throws in _OF_THE_LIBRARY:
        if re.search(said, f"{found[1]}: {words}"):
            kind, thrower = name, throws
            break
    else:
        thrower = rf'\bthrow\b.*"{re.escape(words)}'
    if kind in words or found[1] != "RuntimeError":
        words = ""
    lines = [*enumerate(text.split("\n"), 1)]
    may_throw = [(number, line.strip()) for number, line in lines if re.search(thrower, line)]
    shown = message.split("\n")
    shown[0] = f"Your code threw {kind}{': ' * bool(words)}{words.rstrip('.')}."
    if len(may_throw) == 1:
        (number, line), got = may_throw[0], message[: found.start()].count("\n")
        shown.insert(got + 1, f"  thrown in line {number}: `{line}`")
    return re.sub(r"StandardOutOfRange(: [^;\n]*)?", kind, "\n".join(shown))
