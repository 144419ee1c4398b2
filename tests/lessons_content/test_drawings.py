"""The pictures that the course draws itself: the same at each run, with a text that says what
is seen.
"""

import io
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from jupyterlab_driver import browser_page
from lessons_draw import FREE, LINES, QUIET, SEVERAL, WASTED, show
from lessons_draw.tables import Film, Stills, draw_tables
from lessons_lib.paths import ROOT
from paged_attention.block_manager import PythonBlockManager
from paged_attention.block_table import BlockTable
from paged_attention.kv_cache import PagedAttentionManager


def forked_manager():
    manager = PagedAttentionManager(6, 4, 1, 1, max_num_seqs=3, max_blocks_per_seq=3)
    manager.add_sequence(0, 6)
    manager.fork_sequence(0, 1)
    manager.append_token(1)
    return manager


def test_a_table_is_drawn_as_valid_svg_with_an_arrow_for_each_entry():
    frame = draw_tables(forked_manager(), "After a fork & a write")
    root = ElementTree.fromstring(frame.svg)
    curves = [
        path for path in root.iter("{http://www.w3.org/2000/svg}path") if " C" in path.get("d")
    ]
    assert len(curves) == 4
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "sequence 1: 7 tokens" in words
    assert "0: ×2" in words
    assert "5: free" in words
    assert words.count("−1") == 2
    assert (
        frame.alt
        == "After a fork & a write. Sequence 0 has 6 tokens in blocks [0, 1]. Sequence 1 has 7"
        " tokens in blocks [0, 2]. 3 of 6 blocks are free."
    )


def test_a_table_that_is_filled_by_hand_is_drawn_step_by_step():
    table, block_manager = BlockTable(2, 3), PythonBlockManager(8)
    stills = Stills(table, block_manager)
    for length in (3, 5):
        table.write(0, length // 4, [block_manager.allocate()])
        stills.add(f"It has {length} tokens", {0: length})
    assert repr(stills) == (
        "1. It has 3 tokens. Row 0 has 3 tokens in blocks [0]. 7 of 8 blocks are free.\n"
        "2. It has 5 tokens. Row 0 has 5 tokens in blocks [0, 1]. 6 of 8 blocks are free."
    )
    assert stills._repr_html_().count("<img ") == 2


def film():
    manager, film = forked_manager(), Film()
    film.add(manager, "forked")
    manager.free_sequence(0)
    film.add(manager, "the parent has ended")
    return film


def test_a_film_is_static_html_and_the_same_each_time():
    page = film()._repr_html_()
    assert page == film()._repr_html_()
    assert (
        "<script" not in page and page.count("<img ") == 2 and page.count('type="radio"') == 3
    )
    assert re.findall('alt="([^.]*)', page) == ["forked", "the parent has ended"]
    assert repr(film()).startswith("1. forked. Sequence 0 has 6 tokens")


@pytest.mark.browser
@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_film_that_was_held_can_be_played_again(motion):
    """Who has asked for less motion sees the first frame until another is chosen."""
    look = """() => [...document.querySelectorAll('.film img')].map(getComputedStyle)
        .map(style => [style.animationName, style.visibility])"""
    with browser_page() as page:
        page.emulate_media(reduced_motion=motion)
        page.set_content(film()._repr_html_())
        at_first = page.evaluate(look)
        page.get_by_label("2").check()
        assert page.evaluate(look) == [["none", "hidden"], ["none", "visible"]]
        page.get_by_label("play").check()
        again = page.evaluate(look)
    if motion == "reduce":
        assert at_first == again == [["none", "visible"], ["none", "hidden"]]
    else:
        assert [name for name, _ in at_first] == [name for name, _ in again] == ["film"] * 2


def contrast(one, other) -> float:
    """The contrast of two colours, from 1 to 21, as accessibility guidelines define it.

    one, other: red, green and blue, from 0 to 255.
    """
    luminances = []
    for colour in (one, other):
        parts = [value / 255 for value in colour]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in parts
        )
        luminances.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


@pytest.mark.browser
@pytest.mark.parametrize(
    "sheet, place",
    [
        ("lessons_colour/src/style.css", '<div class="jp-OutputArea">{}</div>'),
        ("lessons_site/static/site.css", '<div class="lesson-picture">{}</div>'),
    ],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_both_themes(theme, sheet, place):
    """Black words on blocks, and coloured words on paper."""
    with browser_page() as page:

        def seen(colour):
            figure = plt.figure(figsize=(1, 1))
            figure.add_artist(Rectangle((0, 0), 1, 1, color=colour))
            image = show(figure, colour)._repr_html_()
            page.set_content(
                f'<html data-theme="{theme}"><style>{(ROOT / sheet).read_text()}</style>'
                f'<body data-jp-theme-light="{str(theme == "light").lower()}">'
                f'<div class="bd-content"><div>{place.format(image)}</div></div></body></html>'
            )
            drawn = Image.open(io.BytesIO(page.locator("img").screenshot())).convert("RGB")
            return drawn.getpixel((40, 40))

        black, paper = seen("#000000"), seen(FREE)
        assert (sum(paper) < sum(black)) == (theme == "dark")
        assert min(contrast(black, seen(block)) for block in (*SEVERAL, WASTED)) >= 4.5
        assert min(contrast(paper, seen(words)) for words in (*LINES, QUIET)) >= 4.5
