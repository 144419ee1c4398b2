"""Draws the SVG of block tables as a PNG, because a notebook cannot attach an SVG."""

import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from lessons_lib.drawing import DPI, as_png

_SVG = "{http://www.w3.org/2000/svg}"
_ANCHORS = {"start": "left", "middle": "center"}
# Commands of an SVG path: the code for each of its points, and whether points are relative.
_COMMANDS = {
    "M": (Path.MOVETO, False),
    "C": (Path.CURVE4, False),
    "l": (Path.LINETO, True),
    "h": (Path.LINETO, True),
}


def as_raster(svg: str) -> bytes:
    """An SVG of rectangles, paths and texts as a PNG that looks like those of figures.

    A path may have the commands M, C, l, h and z.
    Raises ValueError for anything else.
    """
    root = ElementTree.fromstring(svg)
    width, height = int(root.get("width", 0)), int(root.get("height", 0))
    figure = plt.figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for order, element in enumerate(root):
        _draw(axes, element, order)
    return as_png(figure)


def _draw(axes, element, order: int) -> None:
    """Draws one element above the elements before it."""
    about = element.attrib
    if element.tag == f"{_SVG}text":
        axes.text(
            float(about["x"]),
            float(about["y"]),
            element.text,
            # matplotlib's font is wider than the browser's
            fontsize=float(about["font-size"]) * 72 / DPI * 0.93,
            ha=_ANCHORS[about["text-anchor"]],
            weight=about["font-weight"],
            color=about["fill"],
            zorder=order,
        )
        return
    colours = {
        "facecolor": about.get("fill", "none"),
        "edgecolor": about.get("stroke", "none"),
        "linewidth": float(about.get("stroke-width", 1)) * 72 / DPI,
        "zorder": order,
    }
    if element.tag == f"{_SVG}rect":
        corner = float(about.get("x", 0)), float(about.get("y", 0))
        size = float(about["width"]), float(about["height"])
        axes.add_patch(Rectangle(corner, *size, **colours))
    elif element.tag == f"{_SVG}path":
        axes.add_patch(PathPatch(_path(about["d"]), **colours))
    else:
        raise ValueError(f"{element.tag} is not drawn here")


def _path(text: str) -> Path:
    points: list[tuple[float, float]] = []
    codes = []
    for command, words in re.findall(r"([A-Za-z])([^A-Za-z]*)", text):
        numbers = [float(word) for word in re.split(r"[ ,]+", words.strip()) if word]
        if command == "z":
            points.append(points[0])
            codes.append(Path.CLOSEPOLY)
            continue
        if command not in _COMMANDS:
            raise ValueError(f"the command {command} of a path is not drawn here")
        if command == "h":
            numbers.append(0.0)
        code, relative = _COMMANDS[command]
        for x, y in zip(numbers[::2], numbers[1::2], strict=True):
            from_x, from_y = points[-1] if relative else (0.0, 0.0)
            points.append((from_x + x, from_y + y))
            codes.append(code)
    return Path(points, codes)
