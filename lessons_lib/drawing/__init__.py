"""How the lessons draw: blocks and pools in one style, and an alt text for each picture."""

import base64
import html
import io
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import ExifTags, Image

# The colours of Okabe and Ito, with a lighter green. People with any common form of colour
# blindness can tell them apart. Black text is easy to read on each. A dark theme changes them
# (`tools/colour/src/style.css`), and then white text is easy to read.
FREE = "#ffffff"
USED = "#56b4e9"
SHARED = "#e69f00"
WASTED = "#bbbbbb"
EDGE = "#333333"
GREEN, PINK, YELLOW = "#33bd93", "#cc79a7", "#f0e442"
# For several things of one kind: sequences, requests, rows. Each also has a name or number.
SEVERAL = (USED, SHARED, GREEN, PINK, YELLOW)
# For lines, dots and words on white, without a dark edge. Contrast 4.5:1 or more.
LINES = ("#000000", "#c05000", "#0072b2", "#a0527a", "#006b4f")
QUIET = "#666666"  # for less important text on white; contrast 5.7:1
EMPTY = "///"  # the hatch of an empty place, drawn over WASTED
DPI = 100  # pixels on the page for an inch of a figure
# pixels of a picture for each pixel of the page, so that it is sharp on any screen
SHARPNESS = 2
# JupyterLab's dark theme and the site's turn these pictures dark, and keep each colour's hue.
STILL = 'class="still"'


@dataclass(frozen=True)
class Picture:
    """A PNG with its alt text. It is shown at half its size, so it is sharp on any screen.

    It is HTML, because JupyterLab drops the alt text of a plain image.
    """

    png: bytes
    alt: str

    @property
    def jpeg(self) -> bytes:
        return as_jpeg(self.png)

    def _repr_html_(self):
        data = base64.b64encode(self.png).decode()
        width = Image.open(io.BytesIO(self.png)).width // SHARPNESS
        return (
            f'<img alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}"'
            f' width="{width}" {STILL} style="max-width:100%">'
        )

    def __repr__(self):
        return f"Picture: {self.alt}"


def show(figure, alt: str) -> Picture:
    """The figure as a picture. Give it as the last line of a cell.

    alt: says in words what the figure shows.
    Raises ValueError if `alt` is empty.
    """
    if not alt.strip():
        raise ValueError("alt is empty; say in a sentence what the picture shows.")
    return Picture(as_png(figure, bbox_inches="tight"), alt)


def as_png(figure, **options) -> bytes:
    """The figure as a PNG, on white. The figure is closed.

    options: further options for matplotlib's `savefig`.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI * SHARPNESS, facecolor="white", **options)
    plt.close(figure)
    image = Image.open(drawn).convert("RGB")
    width, height = (length - length % SHARPNESS for length in image.size)  # whole pixels
    # A drawing has few colours: with a palette the file is a third as large.
    image.crop((0, 0, width, height)).quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def draw_arrow(axes, start: tuple, end: tuple, curve: float = 0.0) -> None:
    """Draws an arrow from one place (x, y) to another. curve: 0 for a straight one."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=12,
            color=EDGE,
            shrinkA=0,
            shrinkB=0,
            connectionstyle=f"arc3,rad={curve}",
        )
    )


def as_jpeg(png: bytes) -> bytes:
    """The picture as a JPEG that is shown at its right size. Markdown cannot give a size.

    Browsers use the resolution in a JPEG, but not the one in a PNG.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    about = Image.Exif()
    about[ExifTags.Base.XResolution] = about[ExifTags.Base.YResolution] = 72.0 * SHARPNESS
    about[ExifTags.Base.ResolutionUnit] = 2  # inches; an inch has 72 pixels
    size = about.get_ifd(ExifTags.IFD.Exif)
    size[ExifTags.Base.ExifImageWidth] = image.width // SHARPNESS
    size[ExifTags.Base.ExifImageHeight] = image.height // SHARPNESS
    buffer = io.BytesIO()
    image.save(buffer, format="jpeg", quality=70, progressive=True, exif=about)
    return buffer.getvalue()


def draw_pool(ref_counts: list[int], title: str, axes, texts: list[str] | None = None) -> None:
    """One row of squares, one for each block; free blocks have no colour.

    The id is inside a square, and the number of sequences that use it is below.
    texts: if given, the texts are inside, and the ids are below.
    """
    for block_id, count in enumerate(ref_counts):
        users = f"×{count}" if count else "free"
        inside, below = (
            (str(block_id), users)
            if texts is None
            else (texts[block_id], f"{block_id}: {users}")
        )
        draw_block(axes, block_id, 0, inside, pool_colour(count), below=below)
    axes.set_title(title, loc="left", fontsize=10)
    _frame(axes, len(ref_counts))


def draw_block(
    axes, x: float, y: float, text: str, colour: str, width: float = 1.0, below: str = ""
) -> None:
    """A rectangle of height 1 with its lower left corner at (x, y)."""
    axes.add_patch(
        Rectangle(
            (x, y), width, 1, facecolor=colour, edgecolor=EDGE, hatch=empty_hatch(colour, text)
        )
    )
    axes.text(
        x + width / 2, y + 0.5, text, ha="center", va="center", fontsize=10, color="black"
    )
    if below:
        axes.text(
            x + width / 2, y - 0.12, below, ha="center", va="top", fontsize=8, color="black"
        )


def empty_hatch(colour: str, text: str = "") -> str | None:
    """The hatch of a grey place that has no text; None for any other place."""
    return EMPTY if colour == WASTED and not text else None


def ink(shade) -> str:
    """Black or white, whichever is easier to read on this colour. Contrast 4.5:1 or more."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(shade)
    )
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"


def pool_colour(count: int) -> str:
    """White for a free block, blue for a block of one sequence, orange for a shared block."""
    return FREE if count == 0 else USED if count == 1 else SHARED


def pool_steps(steps: list[tuple]):
    """A figure with one row for each step: what was done, and the reference counts after it.

    A step may also have texts for the blocks.
    """
    width = min(9.0, 0.4 + 0.62 * len(steps[0][1]))
    figure, rows = plt.subplots(
        len(steps),
        1,
        figsize=(max(width, 5.5), 1.15 * len(steps)),
        squeeze=False,
        layout="constrained",
    )
    for axes, (title, ref_counts, *texts) in zip(rows[:, 0], steps, strict=True):
        draw_pool(ref_counts, title, axes, *texts)
    return figure


def _frame(axes, width: float) -> None:
    axes.set_xlim(-0.1, width + 0.1)
    axes.set_ylim(-0.5, 1.05)
    axes.set_aspect("equal", anchor="W")
    axes.axis("off")
