"""Films lesson 00's player in a real browser, for the README: contiguous_and_paged.gif."""

import io
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support" / "course"), str(HERE.parents[1])]

from jupyterlab_driver import browser_page  # noqa: E402
from lessons_content.lesson_00.pictures import contiguous_and_paged  # noqa: E402

FILM = HERE / "contiguous_and_paged.gif"
SIZE = {"width": 900, "height": 600}
PACE, REST = 800, 4000  # milliseconds: for a step, and for the last one
COLOURS = 64


def frames() -> list[Image.Image]:
    """A picture of each step, in the light theme."""
    player = contiguous_and_paged()
    with browser_page(SIZE) as page:
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.set_content(f'<body style="margin:12px">{player._repr_html_()}')
        page.add_style_tag(content="details { display: none }")
        root = page.locator(".pool-player")
        pictures = []
        for step in range(len(player.recording.steps)):
            root.evaluate("(root, step) => root.player.show(step)", step)
            png = root.screenshot()
            pictures.append(Image.open(io.BytesIO(png)).convert("RGB"))
    return pictures


def main() -> None:
    pictures = frames()
    # one palette for all, so that nothing flickers
    palette = pictures[len(pictures) // 3].quantize(COLOURS)
    first, *others = [
        picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
    ]
    first.save(
        FILM,
        save_all=True,
        append_images=others,
        duration=[PACE] * len(others) + [REST],
        loop=0,
        optimize=True,
    )
    print(f"{FILM}: {FILM.stat().st_size / 1000:.0f} KB, {len(pictures)} steps")


if __name__ == "__main__":
    main()
