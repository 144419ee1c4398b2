"""Turns pages of compiler output into the one error that matters, at the learner's line."""

import re
from dataclasses import dataclass, replace

# GCC and Clang: `file:line:column: error: text`. nvcc: `file(line): error: text`.
_GCC_LINE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<text>.*)$"
)
_NVCC_LINE = re.compile(r"^(?P<file>[^(\n]+)\((?P<line>\d+)\):\s*(?P<text>.*)$")


@dataclass(frozen=True)
class Location:
    """A place that a compiler names: source, line and column from 1 (0: none), message."""

    source: str
    line: int
    column: int
    text: str

    @property
    def is_error(self) -> bool:
        return re.match(r"(fatal )?error\b", self.text) is not None


class CompileError(Exception):
    """The C++ or CUDA compiler refused a source.

    source, line: the text's name, and the line from 1; None if unknown.
    reason, output: the compiler's message for this error, and its whole output.
    """

    def __init__(self, message, source=None, line=None, reason="", output=""):
        super().__init__(message)
        self.source, self.line, self.reason, self.output = source, line, reason, output

    def __reduce__(self):
        return type(self), (str(self), self.source, self.line, self.reason, self.output)

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}"]


class CannotBuild(CompileError):
    """A build failed, perhaps because of this machine."""


def explain(
    output: str, sources: dict[str, str], compiled: dict[str, str] | None = None
) -> CompileError:
    """The error to raise for a compiler's output: its first error, at the learner's line.

    sources: the learner's texts by name.
    compiled: the texts that the compiler read, if they are not `sources`. If a line differs
        between the two, the column means nothing and is left out.
    """
    places = [place for line in output.splitlines() if (place := _parse(line))]
    first_error = next((place for place in places if place.is_error), None)
    if first_error is None:
        return CompileError(f"The compiler failed:\n{_last_lines(output)}", output=output)

    reason = re.sub(
        "void value not ignored.*",
        r"\g<0>: what is called returns nothing",
        re.sub(r"^(fatal )?error:?\s*", "", first_error.text),
    )
    where = first_error if first_error.source in sources else _caller(places, sources)
    if where is None:
        return CompileError(
            f"{first_error.source}:{first_error.line}: {reason}", reason=reason, output=output
        )
    if where.line > len(sources[where.source].rstrip().split("\n")):
        reason = f"it ends too early; a closing brace or a semicolon is missing ({reason})"
    if compiled and _line(compiled[where.source], where.line) != _line(
        sources[where.source], where.line
    ):
        where = replace(where, column=0)
    message = (
        f"{where.source}, line {where.line}: {reason}{_excerpt(sources[where.source], where)}"
    )
    return CompileError(message, where.source, where.line, reason, output)


def _parse(line: str) -> Location | None:
    if match := _GCC_LINE.match(line):
        return Location(
            match["file"], int(match["line"]), int(match["column"] or 0), match["text"]
        )
    if match := _NVCC_LINE.match(line):
        return Location(match["file"], int(match["line"]), 0, match["text"])
    return None


def _caller(places, sources) -> Location | None:
    """The line of `sources` that caused an error in a system header.

    The compiler's output names this line too.
    """
    ours = [place for place in places if place.source in sources]
    required = [
        place for place in ours if "required" in place.text or "instantiation" in place.text
    ]
    return (required or ours or [None])[0]


def _line(text: str, number: int) -> str | None:
    lines = text.split("\n")
    return lines[number - 1].replace("\t", " ") if 1 <= number <= len(lines) else None


def _excerpt(text: str, where: Location) -> str:
    line = _line(text, where.line)
    if line is None:
        return ""
    caret = f"\n    {' ' * (where.column - 1)}^" if 0 < where.column <= len(line) + 1 else ""
    return f"\n    {line}{caret}"


def _last_lines(output: str, count: int = 6) -> str:
    kept = [
        line
        for line in output.strip().splitlines()
        if not line.startswith(("ninja: ", "[", "FAILED", "c++ ", "g++ "))
    ]
    return "\n".join("    " + line[:200] for line in kept[-count:])


_ASSERTION = re.compile(r"^/\S*/bits/\S+: .*Assertion '(.*)' failed\.$", re.MULTILINE)
_BROKEN = {
    "__n < this->size()": "An index is past the end of its container.",
    "!this->empty()": "An empty container has no first and no last element.",
}


def without_assertions(printed: str) -> str:
    """The output of a program, with the C++ library's own assertions in plain words."""
    usual = "A container of the C++ library was used in a way that it does not allow."
    return _ASSERTION.sub(lambda found: _BROKEN.get(found[1], usual), printed)
