"""The first screen of a lesson shows a picture, and needs no cell to run for it."""

import base64
import io
import re

import nbformat
import pytest
from PIL import Image

from jupyterlab_driver import Notebook, browser_page, jupyterlab
from lessons_content.lesson_02.pictures.raster import as_raster
from lessons_lib.drawing import USED
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS, build_folder
from lessons_lib.source.lesson import SourceError
from tools.notebooks import build, pictures
from tools.site.pictures import size

LESSONS = [lesson.name for lesson in build.select([]) if lesson.name != "glossary"]
TALLEST = ("05_batched_metadata",)  # its picture
SLOW = pytest.mark.slow(nightly=True), pytest.mark.sampled
SCREENS = {"width": 1366, "height": 768}, {"width": 1100, "height": 768}
PAPER = {"JupyterLab Light": 255, "JupyterLab Dark": 17}  # of pictures, from 0 to 255
# Of the first picture: where it is on the screen, and whether it has loaded.
FIRST_PICTURE = """() => {
    const image = document.querySelector('.jp-Notebook img');
    if (!image || !image.complete || !image.naturalWidth) return null;
    const place = image.getBoundingClientRect();
    return {top: place.top, bottom: place.bottom, alt: image.alt};
}"""
CODE_THAT_GOES_ON_TO_THE_SIDE = """() =>
    [...document.querySelectorAll('.jp-Notebook .jp-InputArea .cm-scroller')]
    .filter(code => code.scrollWidth > code.clientWidth + 1)
    .map(code => code.textContent.slice(0, 60))"""


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("folder", [NOTEBOOKS, SOLUTIONS], ids=lambda folder: folder.name)
def test_a_lesson_begins_with_a_picture_that_goes_with_the_notebook(folder, lesson):
    first = nbformat.read(folder / f"{lesson}.ipynb", as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert "](attachment:opening.jpg)" in first.source and "![]" not in first.source
    jpeg = base64.b64decode(first.attachments["opening.jpg"]["image/jpeg"])
    width, height = size(jpeg, "jpeg")
    assert 400 < width < 950 and height < 480  # the rest of the screen is for words


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with jupyterlab(tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(name, marks=pytest.mark.slow if name in TALLEST else SLOW)
        for name in LESSONS
    ],
)
def test_the_first_screen_of_a_laptop_in_both_themes(server, lesson):
    """The picture is whole, its paper has the theme's colour, and all code is seen to its
    right end.
    """
    with browser_page() as page:
        notebook = Notebook(page, *server, f"{lesson}.ipynb")
        for theme, paper in PAPER.items():
            notebook.change_theme(theme)
            for screen in SCREENS:
                page.set_viewport_size(screen)
                picture = page.wait_for_function(FIRST_PICTURE).json_value()
                assert 0 < picture["top"] < picture["bottom"] < screen["height"]
                assert len(picture["alt"]) > 40
                drawn = page.locator(".jp-Notebook img").first.screenshot()
                corner = Image.open(io.BytesIO(drawn)).convert("L").getpixel((2, 2))
                assert abs(corner - paper) < 4
                name = f"first_{lesson}_{theme.split()[1]}_{screen['width']}.png"
                page.screenshot(path=build_folder() / name)
        assert page.evaluate(CODE_THAT_GOES_ON_TO_THE_SIDE) == []
        page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")


def test_a_line_in_the_text_becomes_the_picture():
    text, attachments = pictures.put_into("Before.\n\nPICTURE opening\n\nAfter.", "00_start")
    assert text.startswith("Before.\n\n![Above, the words of two requests")
    assert text.endswith("(attachment:opening.jpg)\n\nAfter.")
    assert [*attachments] == ["opening.jpg"]
    assert base64.b64decode(attachments["opening.jpg"]["image/jpeg"]).startswith(b"\xff\xd8")
    assert pictures.put_into("A PICTURE opening", "00_start") == ("A PICTURE opening", {})


@pytest.mark.parametrize("lesson, name", [("00_start", "closing"), ("77_none", "opening")])
def test_a_picture_that_is_not_drawn_is_named(lesson, name):
    with pytest.raises(SourceError, match=f"PICTURE {name}: .*(closing|lesson_77)"):
        pictures.put_into(f"PICTURE {name}", lesson)


def test_block_tables_are_drawn_as_a_sharp_png_of_the_same_size():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="40">'
        '<rect width="60" height="40" fill="white"/>'
        f'<rect x="10" y="5" width="20" height="30" fill="{USED}" stroke="none"/>'
        '<path d="M40,10 h10 l0,20 z" fill="#ff0000"/>'
        '<path d="M0,0 C0,0 0,0 0,0" fill="none" stroke="#333333" stroke-width="1.5"/>'
        '<text x="20" y="20" font-size="12" text-anchor="middle" font-weight="bold"'
        ' fill="black">x</text></svg>'
    )
    image = Image.open(io.BytesIO(as_raster(svg))).convert("RGB")
    blue = tuple(bytes.fromhex(USED[1:]))
    assert image.size == (120, 80)
    colours = [image.getpixel(place) for place in ((10, 40), (24, 16), (24, 66), (96, 30))]
    assert colours == [(255, 255, 255), blue, blue, (255, 0, 0)]
    assert min(image.crop((30, 16, 50, 44)).convert("L").tobytes()) < 60  # the text


def test_lesson_00_adds_up_what_the_lessons_take():
    shortest, longest = 15, 15  # minutes, of lesson 00 itself
    for lesson in build.select([])[1:12]:
        text = " ".join(lesson.cells[0].source.split())
        (found,) = re.findall(r"\*\*It takes\*\* (\w+) to (\w+) (minutes|hours)\.", text)
        numbers = [{"two": 2, "three": 3}.get(word) or int(word) for word in found[:2]]
        minutes = [number * (60 if found[2] == "hours" else 1) for number in numbers]
        shortest, longest = shortest + minutes[0], longest + minutes[1]
    text = " ".join(build.select(["00"])[0].cells[0].source.split())
    assert f": {shortest / 60:.0f} to {longest / 60:.0f} hours in all." in text
    assert "have not timed anybody" in text
