"""Moves pictures from notebooks to files, so that a browser loads them when it needs them."""

import base64
import html
import io
import re
from contextlib import suppress
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from lessons_lib.drawing import SHARPNESS

FOLDER = "_static/pictures"  # on the site, as pages name it
PHONE = 360  # pixels: a page's width on a phone
ENDS = {"png": ".png", "jpeg": ".jpg", "svg+xml": ".svg"}
_INSIDE = re.compile(
    r'<img alt="(?P<alt>[^"]*)" src="data:image/(?P<kind>[a-z+]+);base64,(?P<data>[^"]+)"'
    r"(?P<rest>[^>]*)>"
)
_ATTACHED = re.compile(r"!\[(?P<alt>.*?)\]\(attachment:(?P<name>[^)\s]+)\)")


class Pictures:
    """Writes a page's pictures to files, and counts them.

    page: the page's name; the files' names begin with it.
    source: the folder of the site's sources.
    """

    def __init__(self, page: str, source: Path):
        self.page = page
        self.folder = source / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def write(self, data: bytes, kind: str) -> str:
        """Keeps a picture. Returns its address for a page.

        kind: "png", "jpeg" or "svg+xml". Raises ValueError for any other.
        """
        if kind not in ENDS:
            raise ValueError(
                f"{self.page} has a picture of the kind {kind}, not one of {', '.join(ENDS)}."
            )
        self.count += 1
        name = f"{self.page}-{self.count:02}{ENDS[kind]}"
        (self.folder / name).write_bytes(data)
        return f"{FOLDER}/{name}"

    def tag(self, data: bytes, kind: str, alt: str) -> str:
        """A picture as HTML. It leads to its file, which a phone can enlarge."""
        address, (width, height) = self.write(data, kind), size(data, kind)
        wide = " wide" if width > PHONE else ""
        return (
            f'<div class="lesson-picture{wide}"><a href="{address}"><img loading="lazy"'
            f' alt="{html.escape(alt)}" src="{address}" width="{width}" height="{height}">'
            "</a></div>"
        )

    def drawn(self, picture) -> str:
        """A picture of `lessons_lib.drawing` as HTML."""
        return self.tag(picture.png, "png", picture.alt)

    def from_output(self, output: str) -> str:
        """The HTML of an output, with files instead of the pictures in it.

        In a player only the still's address changes, so that its styles still hide it.
        """
        is_player = 'class="pool-player"' in output

        def replace(match):
            data = base64.b64decode(match["data"])
            if not is_player:
                return self.tag(data, match["kind"], html.unescape(match["alt"]))
            address = self.write(data, match["kind"])
            return f'<img alt="{match["alt"]}" src="{address}"{match["rest"]}>'

        return _INSIDE.sub(replace, output)

    def from_text(self, text: str, attachments: dict[str, dict[str, str]]) -> str:
        """The Markdown of a cell, with files in place of the pictures attached to it."""

        def replace(match):
            kind, data = next(iter(attachments[match["name"]].items()))
            kind = kind.removeprefix("image/")
            return self.tag(base64.b64decode(data), kind, match["alt"])

        return _ATTACHED.sub(replace, text)


def size(data: bytes, kind: str) -> tuple[int, int]:
    """Width and height on the page, in pixels.

    Raises ValueError if it is not a picture of that kind.
    """
    if kind == "svg+xml":
        if head := re.match(rb'<svg [^>]*?width="(\d+)" height="(\d+)"', data):
            return int(head[1]), int(head[2])
    else:
        with suppress(UnidentifiedImageError):
            width, height = Image.open(io.BytesIO(data), formats=[kind]).size
            return width // SHARPNESS, height // SHARPNESS
    raise ValueError(f"This is not {kind}; it begins with {data[:12]!r}.")
