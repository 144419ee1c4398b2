"""How requests look, in stills and in the player: each has a colour and a pattern. So people
who cannot tell the colours apart see different patterns.

A look is written once. It gives the CSS of the player and the SVG pattern of the still.
"""

from dataclasses import dataclass

from lessons_lib.drawing import EDGE, GREEN, PINK, SHARED, USED, WASTED, YELLOW

TILE = 8  # pixels: the side of a pattern's tile in SVG


@dataclass(frozen=True)
class Pattern:
    """Thin dark lines or dots. `css`: layers of a background. `path`: of a tile in SVG."""

    css: str
    path: str


def _lines(angle: int) -> str:
    return f"repeating-linear-gradient({angle}deg,#0008 0 1px,#0000 1.5px 5.6px)"


_RISING = "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4"
_FALLING = "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4"
PATTERNS = (
    Pattern(_lines(135), _RISING),
    Pattern("radial-gradient(circle,#000a 1.2px,#0000 1.8px) 0 0/7px 7px", "M3,4 h2 M4,3 v2"),
    Pattern(_lines(0), "M0,4 h8"),
    Pattern(_lines(45), _FALLING),
    Pattern(_lines(90), "M4,0 v8"),
)
CROSSED = Pattern(f"{_lines(135)},{_lines(45)}", f"{_RISING} {_FALLING}")


@dataclass(frozen=True)
class Look:
    """A colour with a pattern. `name` is its class in CSS, and its pattern's id in SVG."""

    name: str
    colour: str
    pattern: Pattern

    @property
    def css(self) -> str:
        """Sets --look, a background, and --tint, the colour alone."""
        background = f"{self.pattern.css},{self.colour}"
        return f".{self.name}{{--look:{background};--tint:{self.colour}}}"

    @property
    def svg(self) -> str:
        """A pattern for `fill="url(#name)"`."""
        return (
            f'<pattern id="{self.name}" width="{TILE}" height="{TILE}"'
            f' patternUnits="userSpaceOnUse"><rect width="{TILE}" height="{TILE}"'
            f' fill="{self.colour}"/><path d="{self.pattern.path}" stroke="{EDGE}"'
            f' stroke-width="1" stroke-opacity="0.6"/></pattern>'
        )


# For requests that gave way. Requests that wait for the first time look like reserved places.
AGAIN_LOOK = Look("again", WASTED, CROSSED)
# Orange means shared in this course, so no request has that colour.
SHARED_LOOK = Look("shared", SHARED, CROSSED)
_COLOURS = (USED, GREEN, PINK, YELLOW)


def request_look(place: int) -> Look:
    """The look of a request, by its place among all. Twenty looks differ."""
    colour, pattern = _COLOURS[place % len(_COLOURS)], PATTERNS[place % len(PATTERNS)]
    return Look(f"look-{place % 20}", colour, pattern)
