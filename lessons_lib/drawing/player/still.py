"""One step of a recording as an SVG, for places where no script runs. Its paper is white."""

import html
import textwrap
from collections.abc import Iterator

from lessons_lib.drawing import EDGE, FREE, QUIET, WASTED
from lessons_lib.drawing.looks import AGAIN_LOOK, SHARED_LOOK, Look, Pattern, request_look
from lessons_lib.drawing.player.panels import called
from lessons_lib.drawing.svg import rectangle, text

WIDTH, GAP = 860, 28  # pixels: the whole width, and the gap between views
BOX, BELOW = 28, 15  # pixels: the height of a place, and of the id below it
LANE = 22
LINE = 20  # pixels: the height of a line of text
WIDEST = 56  # pixels: the width of a place, at most
EMPTY = Look("empty", WASTED, Pattern("", "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4"))


def draw(recording, step: int) -> str:
    """The views at a step, with the sentence below them."""
    state = recording.state(step)
    rows: list[list] = []
    for view in recording.views:
        if view.wide or not rows or rows[-1][0].wide:
            rows.append([])
        rows[-1].append(view)
    parts = [text(0, 16, recording.title, 15, "start", "bold")]
    top = 26.0
    for row in rows:
        width = (WIDTH - GAP * (len(row) - 1)) / len(row)
        bottoms = []
        for place, view in enumerate(row):
            drawn = _View(recording, state, place * (width + GAP), top, width)
            drawn.draw(view)
            parts += drawn.parts
            bottoms.append(drawn.top)
        top = max(bottoms) + 6
    for line in textwrap.wrap(recording.steps[step]["say"], 118):
        top += LINE
        parts.append(text(0, top, line, 14, "start"))
    height = int(top + 12)
    looks = [
        EMPTY,
        AGAIN_LOOK,
        SHARED_LOOK,
        *map(request_look, range(min(20, len(recording.names) or 5))),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="-6 0 {WIDTH + 12} {height}" font-family="sans-serif">'
        f"<defs>{''.join(look.svg for look in looks)}</defs>"
        f'<rect x="-6" width="{WIDTH + 12}" height="{height}" fill="white"/>'
        f"{''.join(parts)}</svg>"
    )


class _View:
    """Draws the panels of a view from the top down."""

    def __init__(self, recording, state: dict, left: float, top: float, width: float):
        self.names = [str(name) for name in recording.names]
        self.state, self.left, self.top, self.width = state, left, top, width
        self.parts: list[str] = []

    def draw(self, view) -> None:
        if view.title:
            self.line(view.title, weight="bold")
        for panel in view.panels:
            if hasattr(panel, "draw_on"):
                panel.draw_on(self)
            else:
                getattr(self, f"_{panel.kind}")(panel)
            self.top += 8

    def line(self, words: str, size: int = 14, weight: str = "normal") -> None:
        self.top += LINE
        self.parts.append(text(self.left, self.top - 5, words, size, "start", weight))

    def _cells(self, panel) -> None:
        self.line(panel.title, 13)
        longest = max(len(row.cells) for row in panel.rows)
        columns = panel.columns or longest
        heads = [self.state.get(f"{panel.id}/head {row.id}", "") for row in panel.rows]
        indent = 8 + 7 * max(map(len, heads)) if any(heads) else 0
        pitch = min(WIDEST, (self.width - indent) / columns)
        height = BOX + 4 + (BELOW if panel.ids else 0)
        for row, head in zip(panel.rows, heads, strict=True):
            if head:
                self.parts.append(text(self.left, self.top + 19, head, 13, "start"))
            values = [
                (name, self.state.get(f"{panel.id}/{called(name)}")) for name in row.cells
            ]
            if panel.missing == "gone":
                values = [(name, value) for name, value in values if value]
            for place, (name, value) in enumerate(values):
                left = self.left + indent + place % columns * pitch
                top = self.top + place // columns * height
                self.parts += self._cell(panel, value, left, top, pitch - 3)
                if panel.ids:
                    middle = left + pitch / 2
                    self.parts.append(
                        text(middle, top + BOX + 12, str(name), 11, colour=QUIET)
                    )
            self.top += height * max(1, -(-len(values) // columns))

    def _cell(self, panel, value, left: float, top: float, width: float) -> Iterator[str]:
        if value is None:
            yield rectangle(left, top, width, BOX, FREE, "#888888")
            if panel.blank:
                yield text(left + width / 2, top + 19, panel.blank, 12, colour=QUIET)
            return
        users, filled, shows, _ = value
        share = filled / panel.size if panel.size else 1
        look = request_look(users[0]) if len(users) == 1 else SHARED_LOOK
        if not users or share < 1:
            yield rectangle(left, top, width, BOX, "url(#empty)", "none")
        if users and share:
            yield rectangle(left, top, width * share, BOX, f"url(#{look.name})", "none")
        if users and 1 < panel.size <= 8:
            slot = width / panel.size
            edges = "".join(
                f"M{left + slot * n:.1f},{top} v{BOX}" for n in range(1, panel.size)
            )
            yield f'<path d="{edges}" stroke="{EDGE}" stroke-opacity="0.5"/>'
        yield rectangle(left, top, width, BOX, "none")
        names = [self.names[user] for user in users]
        words = shows or (f"×{len(names)}" if len(names) > 1 else "".join(names))
        if words:
            wide = 7.5 * len(words) + 3
            middle = left + width / 2
            chip = look.colour if users else FREE
            yield rectangle(middle - wide / 2, top + 7, wide, 15, chip, "none")
            yield text(middle, top + 19, words, 12, weight="bold")

    def _lanes(self, panel) -> None:
        self.line(panel.title, 13)
        indent = 8 + 7.2 * max(map(len, panel.lanes))
        scale = (self.width - indent) / panel.end
        for lane, name in enumerate(panel.lanes):
            self.parts.append(text(self.left, self.top + lane * LANE + 15, name, 13, "start"))
        for bar in panel.bars:
            left, top = self.left + indent + bar.start * scale, self.top + bar.lane * LANE
            width = (bar.end - bar.start) * scale
            look = bar.look or panel.kinds[bar.kind][1]
            self.parts.append(
                rectangle(left, top, width, LANE - 3, f"url(#{look})", "#666666")
            )
            if bar.shows and width > 7 * len(bar.shows):
                self.parts.append(text(left + width / 2, top + 14, bar.shows, 11))
        now = self.left + indent + self.state[f"{panel.id}/now"] * scale
        height = LANE * len(panel.lanes)
        self.parts.append(f'<path d="M{now:.1f},{self.top} v{height}" stroke="#0072b2"/>')
        self.top += height
        left = self.left
        for meaning, look in panel.kinds:
            if not look:
                continue
            if left + 50 + 7 * len(meaning) > self.left + self.width:
                left, self.top = self.left, self.top + LINE
            self.parts.append(rectangle(left, self.top + 6, 22, 12, f"url(#{look})"))
            self.parts.append(text(left + 28, self.top + 16, meaning, 13, "start"))
            left += 50 + 7 * len(meaning)
        self.top += LINE

    def _numbers(self, panel) -> None:
        self.top += 4
        for name, words in panel.items.items():
            number, share = self.state[f"{panel.id}/{name}"]
            self.top += 22
            self.parts.append(
                f'<text x="{self.left:.1f}" y="{self.top - 4:.1f}" font-size="13">'
                f'<tspan font-size="19" font-weight="bold">{html.escape(number)}</tspan>'
                f" {html.escape(words)}</text>"
            )
            if share is not None:
                self.parts.append(rectangle(self.left, self.top + 2, 190, 7, FREE))
                self.parts.append(
                    rectangle(self.left, self.top + 2, 190 * share, 7, "url(#empty)")
                )
                self.top += 12
