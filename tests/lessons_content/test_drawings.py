"""The pictures that the course draws itself: the same at each run, with a text that says what
is seen.
"""

import re
from xml.etree import ElementTree

import pytest

from jupyterlab_driver import browser_page
from lessons_draw.tables import Film, Stills, draw_tables
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
