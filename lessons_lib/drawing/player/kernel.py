"""The panels of a kernel's run: boxes in groups, and lines of source text.

    {"kind": "boxes", "id": "keys", "title": "…", "noun": "block, offset", "empty": "not read",
     "shades": [["#00224e", "white"], …],
     "groups": [{"title": "block 5", "columns": [], "rows": [["0", ["5.0", …]], …]}, …]}
    {"kind": "code", "id": "code", "title": "…",
     "texts": [["paged_scores", [[20, "for (…)"], [0, "⋮"], …]], …]}

The values are

- of a box: null, or [text, shade, lit, tells]: `shade` is the number of its shade, or -1;
  `lit` is whether this step is about it; `tells` is read out instead of its text. A box whose
  name has dots is named with the parts of `noun`: "block 5, offset 2".
- of a line of code, `code/paged_scores 20`: null, or the mark at this line.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lessons_lib.drawing import FREE, QUIET
from lessons_lib.drawing.svg import rectangle, text

# pixels of the still: a box's distance and height, and a line of code's height
PITCH, HEIGHT, LINE = 21, 21, 17
LIT = "#d55e00"
_NOTHING = ("", -1, False, "")


@dataclass(frozen=True)
class Box:
    """A short text. shade: its number in the panel, -1 for none. lit: a step is about it."""

    text: str
    shade: int = -1
    lit: bool = False
    tells: str = ""


@dataclass(frozen=True)
class Group:
    """Rows of boxes below a title. rows: for each row its label, and its boxes' names."""

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Boxes:
    """Many small things: threads, entries of a table, numbers in memory.

    shades: a background each, and the colour of the text on it.
    empty: the text that is read out for a box without a value.
    wide: the width of one box, in boxes of the usual width.
    """

    id: str
    title: str
    groups: Sequence[Group]
    noun: str
    shades: Sequence[tuple[str, str]] = ()
    empty: str = "empty"
    wide: float = 1
    kind: ClassVar[str] = "boxes"
    files: ClassVar[str] = "kernel"

    def at(self, boxes: Mapping[str, Box]) -> dict:
        """The panel's whole state. boxes: a Box for each name that has a value.

        Raises KeyError for a name that the panel does not have.
        """
        names = [name for group in self.groups for _, row in group.rows for name in row]
        if unknown := boxes.keys() - set(names):
            raise KeyError(f"{sorted(unknown)} is not in the panel {self.id!r}")
        return {
            f"{self.id}/{name}": [*vars(boxes[name]).values()] if name in boxes else None
            for name in names
        }

    def as_json(self) -> dict:
        groups = [
            {"title": group.title, "columns": [*group.columns], "rows": [*group.rows]}
            for group in self.groups
        ]
        return {"kind": self.kind, **vars(self), "groups": groups}

    def draw_on(self, page) -> None:
        """Draws the panel on a view of the still."""
        page.line(self.title, 13)
        pitch, left, bottom = round(PITCH * self.wide), round(page.left), round(page.top)
        placed: dict[tuple, list] = {}  # by look: the place and the text of each box
        for group in self.groups:
            indent = 4 + 7 * max(len(head) for head, _ in group.rows)
            width = indent + pitch * max(len(names) for _, names in group.rows)
            if left > page.left and left + width > page.left + page.width:
                left, page.top = round(page.left), bottom
            top = round(page.top)
            if group.title:
                top += 16
                page.parts.append(text(left + indent, top - 4, group.title, 12, "start"))
            for head, names in group.rows:
                page.parts.append(text(left, top + 14, head, 12, "start", colour=QUIET))
                for place, name in enumerate(names):
                    words, shade, lit, _ = page.state[f"{self.id}/{name}"] or _NOTHING
                    at = left + indent + place * pitch, top
                    placed.setdefault((lit, shade), []).append((*at, words))
                top += HEIGHT
            for place, name in enumerate(group.columns):
                middle = left + indent + (place + 0.5) * pitch
                page.parts.append(text(middle, top + 10, name, 10, colour=QUIET))
            left += width + 10
            bottom = max(bottom, top + 14 * bool(group.columns))
        page.parts += [
            self._boxes(lit, shade, places, pitch - 2)
            for (lit, shade), places in sorted(placed.items())
        ]
        page.top = bottom

    def _boxes(self, lit: bool, shade: int, places: list, width: int) -> str:
        """All boxes of one look, in few SVG elements: each takes room in a notebook."""
        height = HEIGHT - 2
        background, ink = self.shades[shade] if shade >= 0 else (FREE, "black")
        edge = f'"{LIT}" stroke-width="3"' if lit else '"#888"'
        frames = "".join(
            f"M{left},{top}h{width}v{height}h-{width}z" for left, top, _ in places
        )
        words = "".join(
            f'<text x="{left + width // 2}" y="{top + 14}">{html.escape(words)}</text>'
            for left, top, words in places
            if words
        )
        return (
            f'<path d="{frames}" fill="{background}" stroke={edge}/>'
            f'<g font-size="11" text-anchor="middle" fill="{ink}">{words}</g>'
        )


@dataclass(frozen=True)
class Code:
    """Lines of source texts, some of them with marks.

    texts: by name, the lines that are shown, each by its number from 1.
    """

    id: str
    title: str
    texts: Mapping[str, Mapping[int, str]]
    kind: ClassVar[str] = "code"
    files: ClassVar[str] = "kernel"

    @classmethod
    def around(
        cls,
        id: str,
        title: str,
        texts: Mapping[str, str],
        places: Iterable[tuple[str, int]],
        before: int = 2,
        after: int = 1,
    ) -> "Code":
        """The lines of `texts` near some places.

        A place is a text's name and a line's number.
        """
        numbers: dict[str, set[int]] = {name: set() for name in texts}
        for name, number in places:
            numbers[name] |= {*range(number - before, number + after + 1)}
        shown = {}
        for name, near in numbers.items():
            lines = dict(enumerate(texts[name].split("\n"), 1))
            kept = {number: lines[number] for number in sorted(near & lines.keys())}
            indents = [
                len(line) - len(line.lstrip()) for line in kept.values() if line.strip()
            ]
            if indents:
                shown[name] = {n: line[min(indents) :] for n, line in kept.items()}
        return cls(id, title, shown)

    def at(self, marks: Mapping[tuple[str, int], str]) -> dict:
        """The panel's whole state. marks: the mark of each marked line."""
        return {
            f"{self.id}/{name} {number}": marks.get((name, number))
            for name, lines in self.texts.items()
            for number in lines
        }

    def as_json(self) -> dict:
        texts = [[name, [*self._with_gaps(lines)]] for name, lines in self.texts.items()]
        return {"kind": self.kind, "id": self.id, "title": self.title, "texts": texts}

    @staticmethod
    def _with_gaps(lines: Mapping[int, str]) -> Iterable[tuple[int, str]]:
        last = None
        for number, line in lines.items():
            if last and number > last + 1:
                yield 0, "⋮"
            yield number, line
            last = number

    def draw_on(self, page) -> None:
        """Draws the panel on a view of the still."""
        page.line(self.title, 13)
        for name, lines in self.texts.items():
            page.top += LINE
            page.parts.append(text(page.left, page.top - 4, name, 12, "start", colour=QUIET))
            for number, line in self._with_gaps(lines):
                mark = page.state.get(f"{self.id}/{name} {number}")
                self._draw_line(page, number, line, mark)

    def _draw_line(self, page, number: int, line: str, mark: str | None) -> None:
        if mark:
            page.parts.append(rectangle(page.left, page.top, page.width, LINE, "#ffe9d6", LIT))
            page.parts.append(
                text(page.left + page.width - 6, page.top + 13, f"◂ {mark}", 12, "end", "bold")
            )
        page.top += LINE
        shown = text(page.left + 38, page.top - 4, line.replace(" ", "\u00a0"), 12, "start")
        page.parts.append(shown.replace("<text", '<text font-family="monospace"'))
        if number:
            page.parts.append(
                text(page.left + 30, page.top - 4, str(number), 11, "end", colour=QUIET)
            )
