"""A block's share by kernels/ladder/plan_share.cuh, against a list of who has which tile."""

import functools
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_content.lesson_10.shares import (
    Case,
    in_pieces,
    in_rows,
    owners,
    prepare,
    shares,
)
from lessons_lib.cuda.inline import read_kernel

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
@given(
    tiles=TILES,
    groups=GROUPS,
    cut=st.one_of(
        st.tuples(st.just(Case), st.integers(1, 60)),
        st.tuples(st.just(in_rows), st.integers(1, 48)),
        st.tuples(st.just(in_pieces), st.integers(2, 9)),
    ),
)
def test_a_share_is_what_the_list_says(tiles, groups, cut):
    """Rows are cut anywhere, where some blocks may have no work; not at all; or where a row
    has several tiles.
    """
    way, number = cut
    if way is in_rows:  # as many to each block
        number = math.gcd(number, len(tiles) * groups)
    assert_right(way(tuple(tiles), number, groups))


@pytest.mark.parametrize("num_blocks", [1, 2, 132])
def test_a_product_that_does_not_fit_into_an_int(num_blocks):
    tiles, asked = (2**27 - 1, 1, 5), num_blocks - 1
    total = sum(tiles)
    (share,) = ours()(Case(tiles, num_blocks, asked=(asked,)))
    begin = total * asked // num_blocks
    assert share[:4] == [begin, total, 0, 2]
    assert share[4:6] == [int(begin > 0), 0]
