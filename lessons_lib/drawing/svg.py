"""Elements of SVG, as text."""

import html

from lessons_lib.drawing import EDGE


def rectangle(
    left: float, top: float, width: float, height: float, fill: str, edge: str = EDGE
) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' fill="{fill}" stroke="{edge}"/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    size: float = 14,
    anchor: str = "middle",
    weight: str = "normal",
    colour: str = "black",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
        f' font-weight="{weight}" fill="{colour}">{html.escape(words)}</text>'
    )
