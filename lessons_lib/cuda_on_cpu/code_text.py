"""A C++ or CUDA text to search in.

Comments and strings are blank, and brackets are matched.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from lessons_lib.cuda.compiler_errors import CompileError

# The order matters: a string may contain comment signs, and a comment may contain quotes.
# After a digit or a letter, an apostrophe separates digits (1'000), unless the letters are a
# prefix of a character, as in u'a'.
_NO_CODE = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
      | (?P<raw>R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)")
      | (?P<string>"(?:\\.|[^"\\\n])*"?)
      | (?P<character>(?:(?<!\w)|(?<=\bL)|(?<=\bu)|(?<=\bU)|(?<=\bu8))'(?:\\.|[^'\\\n])*'?)
      | (?P<directive>^[ \t]*\#[ \t]*(?:include|pragma|error|warning)\b(?:\\\n|[^\n])*)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@lru_cache(maxsize=128)  # one build asks for the mask of the same text several times
def mask(text: str, keep_strings: bool = False) -> str:
    """`text` with spaces instead of comments, strings and characters. Its length stays."""

    def blank(match):
        if keep_strings and not match["comment"] and not match["directive"]:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _NO_CODE.sub(blank, text)


class CodeText:
    """A text, and two masked copies of the same length.

    `plain` has no comments, and `bare` has no strings either.
    """

    def __init__(self, text: str, source: str):
        self.text, self.source = text, source
        self.plain, self.bare = mask(text, keep_strings=True), mask(text)

    def error(self, position: int, reason: str) -> CompileError:
        """The error to raise for the code at `position`."""
        line = self.text.count("\n", 0, position) + 1
        excerpt = self.text.split("\n")[line - 1].replace("\t", " ")
        return CompileError(
            f"{self.source}, line {line}: {reason}\n    {excerpt}", self.source, line, reason
        )

    def find_outside_brackets(
        self, start: int, found: Callable[[int], bool], stop: str = ";"
    ) -> int | None:
        """The first position, outside brackets, where `found(position)` is true.

        None if the end, a closing bracket or one of the characters in `stop` comes first.
        """
        expected: list[str] = []
        for position in range(start, len(self.bare)):
            character = self.bare[position]
            if not expected and found(position):
                return position
            if character in _CLOSING:
                expected.append(_CLOSING[character])
            elif character in ")]}":
                if not expected or expected.pop() != character:
                    return None
            elif not expected and character in stop:
                return None
        return None

    def opening_bracket(self, end: int, opening: str, closing: str) -> int:
        """The position of the bracket that is closed just before `end`."""
        depth = 0
        for position in range(end - 1, -1, -1):
            depth += (self.bare[position] == closing) - (self.bare[position] == opening)
            if depth == 0:
                return position
        raise self.error(end - 1, f"this {closing} has no {opening} that opens it")

    def enclosing_braces(self, position: int) -> list[int]:
        """The positions of the braces that are open at `position`, outermost first."""
        open_braces = []
        for brace in re.finditer(r"[{}]", self.bare[:position]):
            if brace[0] == "{":
                open_braces.append(brace.start())
            elif open_braces:
                open_braces.pop()
        return open_braces


def bracket_depths(text: str) -> Iterator[tuple[str, int]]:
    """Each character with the number of brackets around it: ( [ { and the < of a template."""
    open_brackets: list[str] = []
    for position, character in enumerate(text):
        angles = not open_brackets or open_brackets[-1] == "<"
        closes_angle = (
            character == ">"
            and open_brackets
            and angles
            and text[position - 1 : position] != "-"
        )
        if open_brackets and (character in ")]}" or closes_angle):
            open_brackets.pop()
        yield character, len(open_brackets)
        if character in "([{" or (character == "<" and angles):
            open_brackets.append(character)


def split_at_commas(text: str) -> list[str]:
    """The parts of `text` between commas that are outside brackets."""
    parts = [""]
    for character, depth in bracket_depths(text):
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def outside_brackets(text: str) -> str:
    """`text` with spaces instead of all that is inside brackets. Its length stays."""
    return "".join(" " if depth else character for character, depth in bracket_depths(text))


def one_line(text: str) -> str:
    return " ".join(text.replace("\\\n", " ").split())


def line_ends(text: str) -> str:
    """The line ends in `text`, each with the backslash that a macro of several lines needs."""
    return "".join(re.findall(r"\\?\n", text))
