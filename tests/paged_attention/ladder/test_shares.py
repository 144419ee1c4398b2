"""A block's share by kernels/ladder/plan_share.cuh, against a list of who has which tile."""

import functools
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_exercises.lesson_10.e10_4_share_of import prepare
from lessons_exercises.lesson_10.shares import Case, in_pieces, in_rows, owners, shares
from lessons_lib.inline import read_kernel

many = settings(max_examples=100)

TILES = st.lists(st.one_of(st.integers(1, 3), st.integers(1, 40)), min_size=1, max_size=12)
GROUPS = st.integers(1, 4)


@functools.cache
def ours():
    return prepare(read_kernel("ladder/plan_share.cuh"))


def assert_right(case: Case):
    found = ours()(case)
    assert found == shares(case)
    begins = [share[0] for share in found]
    assert begins == sorted(begins) and begins[0] == 0  # plan.cuh searches in them
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert found[-1][1] == len(owners(case)[0])


@many
@given(tiles=TILES, groups=GROUPS, num_blocks=st.integers(1, 60))
def test_rows_that_are_cut_anywhere(tiles, groups, num_blocks):
    """With more blocks than tiles, some blocks have no work."""
    assert_right(Case(tuple(tiles), num_blocks, groups))


@many
@given(tiles=TILES, groups=GROUPS, data=st.data())
def test_whole_rows_are_never_cut(tiles, groups, data):
    rows = len(tiles) * groups
    each = data.draw(st.sampled_from([n for n in range(1, rows + 1) if rows % n == 0]))
    case = in_rows(tuple(tiles), each, groups)
    assert_right(case)
    assert all(share[4:8] == [0, 0, 0, each] for share in ours()(case))


@pytest.mark.slow
@many
@given(tiles=TILES, groups=GROUPS, pieces=st.integers(2, 9))
def test_pieces_of_a_row_are_cut_where_it_has_several_tiles(tiles, groups, pieces):
    case = in_pieces(tuple(tiles), pieces, groups)
    assert_right(case)
    for begin, end, row, last_row, is_cut, is_last_cut, *_ in ours()(case):
        if begin < end:
            assert row == last_row and is_cut == (case.rows[row] > 1) and not is_last_cut


@pytest.mark.parametrize("num_blocks", [1, 2, 132])
def test_a_product_that_does_not_fit_into_an_int(num_blocks):
    tiles, asked = (2**27 - 1, 1, 5), num_blocks - 1
    total = sum(tiles)
    (share,) = ours()(Case(tiles, num_blocks, asked=(asked,)))
    begin = total * asked // num_blocks
    assert share[:4] == [begin, total, 0, 2]
    assert share[4:6] == [int(begin > 0), 0]
