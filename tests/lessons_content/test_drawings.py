"""The pictures that the course draws itself: the same at each run, with a text that says what
is seen.
"""

import io
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from jupyterlab_driver import page_of
from lessons_content.lesson_02.pictures.films import Film
from lessons_content.lesson_02.pictures.tables import draw_tables
from lessons_lib.drawing import FREE, LINES, QUIET, SEVERAL, WASTED, show
from lessons_lib.paths import ROOT
from paged_attention.pool.block_manager import PythonBlockManager
from paged_attention.pool.block_table import BlockTable
from paged_attention.pool.kv_cache import PagedAttentionManager


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


def test_a_table_that_is_filled_by_hand_is_shown_step_by_step():
    table, block_manager = BlockTable(2, 3), PythonBlockManager(8)
    film = Film()
    for length in (3, 5):
        table.write(0, length // 4, [block_manager.allocate()])
        film.add_table(table, f"It has {length} tokens", {0: length})
    assert repr(film) == (
        "Player of 2 steps: It has 5 tokens. row 0: 5 tokens in blocks [0, 1]."
        " 6 of 8 blocks are free."
    )
    assert film.player().recording.steps[1]["set"] == {
        "table/0.1": [[0], 0, "1", ""],
        "table/head 0": "row 0: 5 tokens",
        "pool/0": [[0], 4, "", ""],
        "pool/1": [[0], 1, "", ""],
        "numbers/free": ["6", None],
    }


def test_a_film_of_a_manager_shows_which_sequences_share_a_block():
    manager, film = forked_manager(), Film(still=0)
    film.add(manager, "forked")
    manager.free_sequence(0)
    film.add(manager, "the parent has ended")
    shared, alone = ([0, 1], 4, "", ""), ([1], 4, "", "")
    blocks = [film.player().recording.state(step)["pool/0"] for step in (0, 1)]
    assert blocks == [[*shared], [*alone]]
    assert repr(film).startswith("Player of 2 steps: forked. seq 0: 6 tokens in blocks")


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
        ("tools/colour/src/style.css", '<div class="jp-OutputArea">{}</div>'),
        ("tools/site/static/site.css", '<div class="lesson-picture">{}</div>'),
    ],
)
def test_words_can_be_read_in_both_themes(browser, sheet, place):
    """Black words on blocks, and coloured words on paper."""
    colours = "#000000", FREE, *SEVERAL, WASTED, *LINES, QUIET
    figure = plt.figure(figsize=(len(colours), 1))
    for number, colour in enumerate(colours):
        corner = number / len(colours), 0
        figure.add_artist(Rectangle(corner, 1 / len(colours), 1, color=colour))
    image = place.format(show(figure, "All colours.")._repr_html_())
    with page_of(browser, {"width": 2000, "height": 400}) as page:
        for theme in ("light", "dark"):
            page.set_content(
                f'<html data-theme="{theme}"><style>{(ROOT / sheet).read_text()}</style>'
                f'<body data-jp-theme-light="{str(theme == "light").lower()}">'
                f'<div class="bd-content"><div>{image}</div></div></body></html>'
            )
            drawn = Image.open(io.BytesIO(page.locator("img").screenshot())).convert("RGB")
            width = drawn.width / len(colours)
            places = [(int((number + 0.5) * width), 40) for number in range(len(colours))]
            seen = dict(zip(colours, map(drawn.getpixel, places), strict=True))
            black, paper = seen["#000000"], seen[FREE]
            assert (sum(paper) < sum(black)) == (theme == "dark")
            assert min(contrast(black, seen[each]) for each in (*SEVERAL, WASTED)) >= 4.5
            assert min(contrast(paper, seen[each]) for each in (*LINES, QUIET)) >= 4.5
