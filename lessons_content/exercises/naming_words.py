"""Words for hints and for the descriptions of cases, and results whose words do not count."""

from lessons_content.exercises.errors import retold
from lessons_lib.checks import Raised, Text

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


def paragraphs(text: str) -> tuple[str, ...]:
    """The hints in a text that has a blank line between two of them."""
    return tuple(" ".join(part.split()) for part in text.strip().split("\n\n"))


class Alike(Text):
    """A result that equals any other one of its class, whatever the words."""

    def __eq__(self, other):
        return type(other) is type(self)

    def __ne__(self, other):  # else a text's own would compare the words
        return not self == other

    __hash__ = Text.__hash__


class RaisedWithNothing(Alike, Raised):
    """The result of an answer that raises for a case without tokens, blocks or requests."""


def named_where(nothing: bool, run):
    """What `run()` returns. Where there is `nothing` in a case, raising is a result too."""
    try:
        return run()
    except Exception as error:
        if not nothing or isinstance(error, NotImplementedError):
            raise
        return retold(error, kind=RaisedWithNothing)
