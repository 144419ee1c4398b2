"""A small fault in one file."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A file with a fault.

    path: from the repository's root.
    function: where the fault is, as `Class.method`, or "".
    line, last_line: the first and the last line that differ, from 1.
    was, becomes: the lines that differ, without their indentation.
    text: the whole file with the fault.
    """

    path: str
    function: str
    line: int
    last_line: int
    was: str
    becomes: str
    text: str

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.path}\n{self.text}".encode()).hexdigest()[:16]

    @property
    def place(self) -> tuple[str, str, str, str]:
        """A key that stays the same when other lines of the file change."""
        return self.path, self.function, self.was, self.becomes

    def __str__(self):
        lines = [
            f"{self.path}:{self.line}" + (f" in {self.function}" if self.function else "")
        ]
        lines += [f"  - {line}" for line in self.was.splitlines()] + [
            f"  + {line}" for line in self.becomes.splitlines()
        ]
        return "\n".join(lines)


def replaced(
    path: str, source: str, function: str, start: int, end: int, words: str
) -> Mutant:
    """The mutant of `source` with `words` instead of its characters from `start` to `end`."""
    text = source[:start] + words + source[end:]
    old, new = source.splitlines(), text.splitlines()
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    was, becomes = old[first : len(old) - last], new[first : len(new) - last]
    return Mutant(
        path,
        function,
        first + 1,
        max(first + 1, len(old) - last),
        _stripped(was),
        _stripped(becomes),
        text,
    )


def _stripped(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines)
