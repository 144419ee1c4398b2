"""Takes the pictures out of notebooks, so that a browser loads them when it needs them."""

import base64
import html
import re
import struct
from pathlib import Path

FOLDER = "_static/pictures"  # on the site, as pages name it
ENDS = {"png": ".png", "svg+xml": ".svg"}
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

        kind: "png" or "svg+xml". Raises ValueError for any other.
        """
        if kind not in ENDS:
            raise ValueError(f"{self.page} has a picture of the kind {kind}, not PNG or SVG.")
        self.count += 1
        name = f"{self.page}-{self.count:02}{ENDS[kind]}"
        (self.folder / name).write_bytes(data)
        return f"{FOLDER}/{name}"

    def tag(self, data: bytes, kind: str, alt: str) -> str:
        """A picture as HTML. It leads to its file, which a phone can enlarge."""
        address, (width, height) = self.write(data, kind), size(data, kind)
        return (
            f'<div class="lesson-picture"><a href="{address}"><img loading="lazy"'
            f' alt="{html.escape(alt)}" src="{address}" width="{width}" height="{height}">'
            "</a></div>"
        )

    def drawn(self, picture) -> str:
        """A picture of `lessons_draw` as HTML."""
        return self.tag(picture.png, "png", picture.alt)

    def from_output(self, output: str) -> str:
        """The HTML of an output, with files in place of the pictures in it.

        The still of a player stays where its styles hide it.
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
    """Width and height in pixels. Raises ValueError if it is not a picture of that kind."""
    if kind == "png" and data[:8] == b"\x89PNG\r\n\x1a\n":
        return struct.unpack(">II", data[16:24])
    head = re.match(rb'<svg [^>]*?width="(\d+)" height="(\d+)"', data)
    if kind == "svg+xml" and head:
        return int(head[1]), int(head[2])
    raise ValueError(f"This is not {kind}; it begins with {data[:12]!r}.")
