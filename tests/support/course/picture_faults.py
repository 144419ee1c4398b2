"""Finds what makes a figure hard to read: touching words, covered data, slivers."""

from collections import defaultdict
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import lessons_lib.drawing

# Gaps are in heights of a line; between two words there is about 0.3.
GAP_OF_LINES = 0.7
GAP_OF_PARAGRAPHS = 3.0  # texts of several lines beside each other are read across sooner
NARROWEST = 4  # pixels of a coloured part that has to be seen
SMALLEST = 8.5  # pixels: the size of a font, where a small laptop shows the picture
NOTEBOOK = 711  # pixels: a notebook beside the file browser, in a window of 1,100


def faults(figure: Figure) -> list[str]:
    """What is wrong with a figure, a line each. Empty if nothing is."""
    figure.set_dpi(100)  # as `lessons_lib.drawing.show` draws it
    figure.canvas.draw()
    return [
        *_words_that_touch([*_texts(figure)]),
        *_hidden_by_legends(figure),
        *_wider_than_their_places(figure),
        *_slivers(figure),
        *_small_words(figure),
    ]


def watch() -> None:
    """From now on, a picture with a fault raises AssertionError where it is shown."""
    close = lessons_lib.drawing.plt.close

    def look_and_close(figure):
        found = faults(figure)
        close(figure)
        assert not found, found

    lessons_lib.drawing.plt.close = look_and_close


def _axes(figure: Figure) -> list[Axes]:
    """All axes, those inside others too."""
    found = list(figure.axes)
    for axes in found:
        found += [child for child in axes.child_axes if child not in found]
    return found


def _texts(figure: Figure):
    """Each text that is drawn, its box without an annotation's arrow, and whether it has a
    place to itself: a rectangle or a tick, which keep it apart from others.
    """
    alone, ticks, legends = [*figure.texts], [], [*figure.legends]
    for axes in _axes(figure):
        alone += [*axes.texts, axes.title, axes._left_title, axes._right_title]
        if axes.axison:
            for axis in (axes.xaxis, axes.yaxis):
                alone.append(axis.label)
                ticks += _tick_labels(axis)
        if legend := axes.get_legend():
            legends.append(legend)
    for legend in legends:
        alone += [legend.get_title(), *legend.get_texts()]
    places = _boxes(patch for axes in _axes(figure) for patch in axes.patches)
    for text in [*alone, *ticks]:
        if text.get_visible() and text.get_text().strip():
            box = Text.get_window_extent(text)
            yield text, box, text in ticks or len(_widths_around(box, places)) > 0


def _tick_labels(axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    labels = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
    return [label for place, label in labels if low <= place <= high]


def _boxes(patches) -> np.ndarray:
    """(number of patches, 4): left, lower, right and upper end of each, in pixels."""
    extents = [patch.get_window_extent().extents for patch in patches]
    return np.array(extents).reshape(-1, 4)


def _widths_around(words: Bbox, places: np.ndarray) -> np.ndarray:
    """The widths of those places that have these words in their middle."""
    x, y = (words.x0 + words.x1) / 2, (words.y0 + words.y1) / 2
    left, lower, right, upper = places.T
    around = (abs(left + right - 2 * x) < 2) & (lower < y) & (y < upper)
    return (right - left)[around]


def _words_that_touch(texts: list[tuple[Text, Bbox, bool]]):
    """Pairs of texts that overlap, or that are in one row and read like one text."""
    for (one, first, one_alone), (other, second, other_alone) in combinations(texts, 2):
        names = f"{one.get_text()!r} and {other.get_text()!r}"
        rows = min(first.y1, second.y1) - max(first.y0, second.y0)
        gap = max(first.x0, second.x0) - min(first.x1, second.x1)
        lines = [1 + text.get_text().count("\n") for text in (one, other)]
        height = min(first.height / lines[0], second.height / lines[1])
        least = height * (GAP_OF_PARAGRAPHS if min(lines) > 1 else GAP_OF_LINES)
        level = one.get_rotation() == other.get_rotation() == 0
        if rows > 1 and gap < -1:
            yield f"{names} overlap"
        elif rows > height / 2 and gap < least and level and not (one_alone and other_alone):
            yield f"{names} nearly touch: {gap:.0f} pixels"


def _hidden_by_legends(figure: Figure):
    for axes in _axes(figure):
        if (legend := axes.get_legend()) is None:
            continue
        box = legend.get_window_extent()
        for patch in axes.patches:
            covered = Bbox.intersection(box, patch.get_window_extent())
            if covered and covered.width > 1 and covered.height > 1:
                yield f"the legend covers a {type(patch).__name__}"
                break
        for line in axes.lines:
            if _passes_through(line, box):
                yield f"the legend covers a part of the line {line.get_label()!r}"


def _passes_through(line: Line2D, box: Bbox) -> bool:
    """Whether a line goes through a box; looked at in steps of a pixel."""
    points = line.get_transform().transform(line.get_xydata())
    points = points[np.isfinite(points).all(1)]
    for start, end in zip(points[:-1], points[1:], strict=True):
        steps = int(max(2, np.abs(end - start).max()))
        between = start + (end - start) * np.linspace(0, 1, steps)[:, None]
        if ((between > box.min) & (between < box.max)).all(1).any():
            return True
    return False


def _wider_than_their_places(figure: Figure):
    """Texts in the middle of a rectangle that are wider than it."""
    for axes in _axes(figure):
        places = _boxes(patch for patch in axes.patches if isinstance(patch, Rectangle))
        for text in axes.texts:
            words = Text.get_window_extent(text)
            if words.width > _widths_around(words, places).min(initial=words.width):
                yield f"{text.get_text()!r} is wider than its place"


def _slivers(figure: Figure):
    """Colours of which axes, and those inside them, have only parts that are hard to see.

    A legend may say that a part is too thin.
    """
    thin = {
        to_hex(handle.get_facecolor())
        for legend in figure.legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        if "too thin to see" in text.get_text()
    }
    for axes in figure.axes:
        widest: dict[str, float] = defaultdict(float)
        for patch in [*axes.patches, *(p for child in axes.child_axes for p in child.patches)]:
            if isinstance(patch, Rectangle) and patch.get_facecolor()[3]:
                colour, box = to_hex(patch.get_facecolor()), patch.get_window_extent()
                widest[colour] = max(widest[colour], box.width)
        for colour, width in widest.items():
            if width < NARROWEST and colour not in thin:
                yield f"all parts of the colour {colour} are less than {width:.1f} pixels wide"


def _small_words(figure: Figure):
    """Texts that are too small where the picture is beside JupyterLab's file browser."""
    shrunk = min(1, NOTEBOOK / figure.bbox.width)
    for text, *_ in _texts(figure):
        size = shrunk * text.get_fontsize() * figure.dpi / 72
        if size < SMALLEST:
            yield f"{text.get_text()!r} is only {size:.1f} pixels high"
