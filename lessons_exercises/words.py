"""Words for the descriptions of cases, and errors whose words count."""

# Python raises these where a name, an attribute or an argument is wrong: their words say what
# the mistake is. Of other errors only the type counts: their words may be the learner's own.
SLIPS = ("TypeError", "AttributeError", "NameError", "UnboundLocalError")


def counted(number: int, noun: str) -> str:
    """ "1 block", "2 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(words) -> str:
    """ "2", "2 and 3", "2, 3 and 4"."""
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last
