"""The pictures that the course draws itself: the same at each run, with a text that says what
is seen.
"""

from xml.etree import ElementTree

from lessons_draw.films import Film
from lessons_draw.tables import draw_tables
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
