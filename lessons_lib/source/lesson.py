"""Reads a lesson's source: percent cells, solution regions, and files from `kernels/`.

A region is between the comment lines `BEGIN SOLUTION` and `END SOLUTION`, in Python, C++ or
CUDA, even inside a string. It may name its exercise (`// BEGIN SOLUTION 1.4`); without a name
it belongs to its cell's exercise. It may also give the text that the learner gets in its place
(`STUB: text`, in which `\\n` begins a new line). Without one, the learner gets a line that
raises an error and names the exercise.

`// INCLUDE file` includes a file of `kernels/`. `# INCLUDE lessons_lib/file.py name` includes
a function, a class or a method (see `lessons_lib/source/include.py`). Regions that belong to
exercises later than the cell's are left out of an included text. In a text cell, a line
`PLACES` becomes the lesson's table of places in other engines (see
`lessons_lib/source/vllm_places.py`).

An exercise cell with `faulty=true` gives the learner a text to repair. Its stubs are faulty
lines of code, so they need not raise an error. Its solution is the faulty text, followed by
one region with the repairs. So if the solutions are cleared, the faulty text stays.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lessons_lib.paths import KERNELS
from lessons_lib.source import vllm_places
from lessons_lib.source.include import SourceError, python_definition

# characters of a string literal, so that its line in a cell has at most 95
WIDEST_LITERAL = 88

_BEGIN = re.compile(
    r"^(?P<indent>\s*)(?P<comment>#|//) BEGIN SOLUTION"
    r"(?: (?P<exercise>\d+\.\d+))?(?: STUB: (?P<stub>.*))?$"
)
_END = re.compile(r"^\s*(#|//) END SOLUTION$")
_INCLUDE = re.compile(r"^// INCLUDE (?P<file>[\w./]+)$")
_INCLUDE_PYTHON = re.compile(
    r"^# INCLUDE (?P<file>[\w/]+\.py) (?P<name>[\w.]+)(?: without (?P<without>[\w, ]+))?$"
)


@dataclass(frozen=True)
class Region:
    """The lines of one solution region. Lines outside regions have no `exercise`."""

    lines: tuple[str, ...]
    exercise: str | None = None
    begin: re.Match[str] | None = None


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson.

    kind: "markdown", "code", "exercise" or "check".
    exercise: its id, for the last two kinds.
    """

    kind: str
    source: str
    exercise: str | None = None
    language: str = "c++"
    tags: tuple[str, ...] = ()
    faulty: bool = False

    def solution(self) -> str:
        """The cell with our solution, between plain markers as nbgrader looks for them."""
        if self.faulty:
            return "\n".join(
                [self.student(), "# BEGIN SOLUTION", *self._repairs(), "# END SOLUTION"]
            )
        lines: list[str] = []
        for region in self._regions():
            if region.begin is None:
                lines += region.lines
            else:
                marker = f"{region.begin['indent']}{region.begin['comment']}"
                lines += [f"{marker} BEGIN SOLUTION", *region.lines, f"{marker} END SOLUTION"]
        return "\n".join(lines)

    def student(self) -> str:
        """The cell as the learner gets it, with a stub in place of each region."""
        lines: list[str] = []
        for region in self._regions():
            lines += region.lines if region.begin is None else [self.stub_of(region)]
        return "\n".join(lines)

    def solution_lines(self) -> set[str]:
        return {
            line.strip()
            for region in self._regions()
            if region.exercise
            for line in region.lines
        }

    def _repairs(self) -> list[str]:
        """Lines that replace each fault with our own text."""
        name = self.source.split(" ")[0]
        pairs = [
            (self.stub_of(region), "\n".join(region.lines))
            for region in self._regions()
            if region.exercise
        ]
        lines = []
        for fault, repair in pairs:
            *first, fault_end = _literals(fault)
            *second, repair_end = _literals(repair)
            lines += [f"{name} = {name}.replace(", *first, f"{fault_end},", *second]
            lines += [f"{repair_end},", ")"]
        return lines

    def stub_of(self, region: Region) -> str:
        assert region.begin is not None  # only a solution has a stub
        indent = region.begin["indent"]
        comment = region.begin["comment"]
        text = region.begin["stub"]
        if text is not None:
            return indent + text.replace(r"\n", "\n")
        if comment == "#":
            return f'{indent}raise NotImplementedError("Exercise {self.exercise}")'
        if self.language == "cuda":
            return f'#error "Exercise {self.exercise} is not written yet"'
        return (
            f'{indent}throw std::logic_error("Exercise {self.exercise} is not written yet");'
        )

    def _regions(self) -> list[Region]:
        """The cell's lines as regions.

        Regions of later exercises are left out, and the given lines around them are joined.
        """
        regions: list[Region] = []
        for region in parse_regions(
            self.source.split("\n"), self.exercise, where=self.source[:60]
        ):
            if region.exercise:
                if self.exercise is None:
                    raise SourceError(
                        f"A solution region outside an exercise cell: {self.source[:60]!r}"
                    )
                if _number(region.exercise) > _number(self.exercise):
                    continue
                if not region.lines:
                    raise SourceError(f"an empty solution region: {self.source[:60]!r}")
            begin, before = region.begin, regions[-1].begin if regions else None
            if begin and before and not begin["stub"] and not before["stub"]:
                regions[-1] = Region(regions[-1].lines + region.lines, self.exercise, before)
            elif region.lines:
                regions.append(region)
        return regions


@dataclass(frozen=True)
class Lesson:
    """A lesson's name ("01_block_manager") and cells."""

    name: str
    cells: tuple[Cell, ...]


def parse_regions(lines: list[str], exercise: str | None, where: str) -> Iterator[Region]:
    """Splits lines into given lines and solution regions."""
    given: list[str] = []
    inside: list[str] = []
    begin = None
    for number, line in enumerate(lines, 1):
        if match := _BEGIN.match(line):
            if begin:
                raise SourceError(
                    f"line {number} of {where!r}: BEGIN SOLUTION inside a solution"
                )
            yield Region(tuple(given))
            given = []
            inside = []
            begin = match
        elif _END.match(line):
            if not begin:
                raise SourceError(
                    f"line {number} of {where!r}: END SOLUTION without BEGIN SOLUTION"
                )
            yield Region(tuple(inside), begin["exercise"] or exercise or "?", begin)
            begin = None
        elif re.search(r"(BEGIN|END) SOLUTION", line):
            raise SourceError(
                f"line {number} of {where!r}: not the form of a solution marker: "
                f"{line.strip()}"
            )
        else:
            (inside if begin else given).append(line)
    if begin:
        raise SourceError(f"{where!r}: a BEGIN SOLUTION without its END SOLUTION")
    yield Region(tuple(given))


def read_cell(cell, lesson: str) -> Cell:
    """A cell of a lesson's source, as jupytext reads it, with all includes.

    Raises SourceError, which says what is wrong.
    """
    metadata = cell.metadata
    if cell.cell_type == "markdown":
        return Cell("markdown", vllm_places.put_into(cell.source, lesson))
    kind = "exercise" if "exercise" in metadata else "check" if "check" in metadata else "code"
    exercise = None if kind == "code" else metadata[kind]
    if kind != "code" and not (
        isinstance(exercise, str) and re.fullmatch(r"\d+\.\d+", exercise)
    ):
        raise SourceError(f'an exercise is named like "1.2" (a string), not {exercise!r}')
    result = Cell(
        kind,
        _expand_includes(cell.source),
        exercise,
        metadata.get("language", "c++"),
        tuple(metadata.get("tags", ())),
        bool(metadata.get("faulty")),
    )
    if result.faulty:
        if kind != "exercise" or not result.solution_lines():
            raise SourceError(
                f"faulty=true is for an exercise cell with regions: {result.source[:60]!r}"
            )
    elif kind == "exercise" and not re.search(
        r"raise NotImplementedError|throw std::logic_error|#error", result.student()
    ):
        raise SourceError(f"exercise {exercise}: nothing in the student's version would fail")
    return result


def _literals(text: str) -> list[str]:
    """A text as string literals for a call: one or more for each of its lines."""
    pieces = []
    for line in text.splitlines(keepends=True):
        words = re.findall(r"\s*\S+\s*", line)
        pieces.append("")
        for word in words:
            if len(pieces[-1] + word) > WIDEST_LITERAL:
                pieces.append("")
            pieces[-1] += word
    return [f"    {json.dumps(piece, ensure_ascii=False)}" for piece in pieces]


def given_kernel(file_name: str, exercise: str) -> str:
    """The text of a file of `kernels/` as the learner gets it in an exercise."""
    return Cell("exercise", "\n".join(_included(file_name)), exercise, "cuda").student()


def _expand_includes(source: str) -> str:
    lines = []
    for line in source.split("\n"):
        if match := _INCLUDE.match(line):
            lines += _included(match["file"])
        elif match := _INCLUDE_PYTHON.match(line):
            lines += python_definition(
                match["file"], match["name"], re.findall(r"\w+", match["without"] or "")
            )
        elif re.match(r"\s*(//|#)\s*INCLUDE\b", line):
            raise SourceError(
                f"not the form `// INCLUDE file` or `# INCLUDE folder/file.py name`: {line!r}"
            )
        else:
            lines.append(line)
    return "\n".join(lines)


def _included(file_name: str) -> list[str]:
    path = KERNELS / file_name
    if not path.is_file():
        raise SourceError(f"there is no kernels/{file_name} to include")
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not re.match(r'#pragma once|#include "', line)
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept).strip("\n")).split("\n")


def _number(exercise: str) -> tuple[int, ...]:
    return tuple(int(part) for part in exercise.split("."))
