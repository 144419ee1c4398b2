"""Which values a CUDA function takes: numbers that fit, and tensors that are apart in memory
or the same memory.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_lib.cuda_arguments import bind, check, same_memory, span_bytes
from lessons_lib.cuda_signatures import SCALARS, functions

F = functions(
    {"": 'extern "C" int f(const float* a, const float* b, float* c, float* d) { return 0; }'}
)["f"]


def same(a=None, b=None, c=None, d=None) -> dict[str, str]:
    return same_memory(F, {"a": a, "b": b, "c": c, "d": d})


def number(type: str, value):
    """What a parameter of a C++ type makes of a value."""
    function = functions({"": f'extern "C" int g({type} n) {{ return 0; }}'})["g"]
    given = bind(function, (value,), {})
    assert check(function, given, "cpu") is None
    return given["n"]


@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize("value", [0.0, -0.5, math.inf, -math.inf, 1e-50, 3, True])
def test_a_real_number_is_taken_infinite_ones_too(type, value):
    assert number(type, value) == value


@pytest.mark.parametrize("type", ["float", "double"])
def test_nan_is_a_number_too(type):
    assert math.isnan(number(type, math.nan))


@pytest.mark.parametrize(
    "type, value",
    [("float", 1e39), ("float", -1e39), ("double", 10**400), ("double", -(10**400))],
)
def test_a_number_that_would_become_infinite_is_refused(type, value):
    with pytest.raises(ValueError, match="does not fit into"):
        number(type, value)


@pytest.mark.parametrize(
    "type", [type for type in SCALARS if type not in ("float", "double", "bool")]
)
def test_a_whole_number_is_taken_from_the_least_to_the_largest_of_its_type(type):
    bits = 8 * __import__("ctypes").sizeof(SCALARS[type])
    least, most = (
        (0, 2**bits - 1) if "unsigned" in type else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    assert (number(type, least), number(type, most)) == (least, most)
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match="does not fit"):
            number(type, value)
    with pytest.raises(TypeError, match="takes a whole number"):
        number(type, 1.0)


def test_a_bool_is_no_other_number():
    assert (number("bool", True), number("bool", 0)) == (True, False)
    for value in (2, -1):
        with pytest.raises(ValueError, match="takes True or False"):
            number("bool", value)


def test_neighbours_are_apart():
    whole = torch.zeros(100)
    assert same(a=whole[:50], c=whole[50:]) == {} and same(a=whole[50:], c=whole[:50]) == {}
    assert same(c=whole[:50], d=whole[50:]) == {}


def test_one_element_that_both_have_is_too_much():
    whole = torch.zeros(100)
    for part, other in (
        (slice(0, 51), slice(50, 100)),
        (slice(50, 100), slice(0, 51)),
        (slice(0, 100), slice(3, 4)),
    ):
        with pytest.raises(
            ValueError,
            match=(
                r"f: a shares a part of its memory with c, which is written; pass a.clone\(\)"
            ),
        ):
            same(a=whole[part], c=whole[other])


def test_what_is_only_read_may_overlap():
    whole = torch.zeros(100)
    assert same(a=whole[:60], b=whole[40:]) == {}


def test_the_same_memory_is_named_once():
    whole = torch.zeros(4, 6)
    assert same(a=whole, c=whole) == {"a": "c"}
    assert same(c=whole, d=whole) == {"d": "c"}
    assert same(a=whole, b=whole.view(24), c=whole, d=torch.zeros(3)) == {"a": "c", "b": "c"}


def test_none_and_empty_tensors_share_nothing():
    whole = torch.zeros(8)
    assert (
        same(c=whole) == {}
        and same(a=whole[:0], c=whole) == {}
        and same(a=whole[4:4], c=whole) == {}
    )


def test_columns_of_one_tensor_may_interlace():
    """Each has gaps, in which the other lies."""
    whole = torch.zeros(6, 4)
    assert same(a=whole[:, 0], c=whole[:, 1]) == {}
    assert same(a=whole[:, 1], c=whole[:, 1]) == {"a": "c"}
    # they meet, but spans do not show it: each is a copy
    assert same(a=whole[:, :2], c=whole[:, 1]) == {}


def test_what_lies_in_a_gap_is_apart():
    whole = torch.zeros(3, 4)
    assert (
        same(a=whole[0, 1:], c=whole[:, 0]) == {} and same(a=whole[:, 0], c=whole[0, 1:]) == {}
    )


def test_tensors_with_gaps_are_the_same_memory_where_their_strides_are_the_same():
    whole = torch.zeros(16)
    # from the same byte to the same byte
    every_fourth, every_other = whole[0:5:4], whole[0:5:2]
    assert same(a=every_fourth, c=every_other) == {}
    assert same(a=whole[0:5:4], c=every_fourth) == {"a": "c"}


def test_elements_that_share_memory_may_be_read_and_not_written():
    expanded = torch.zeros(1, 5).expand(3, 5)
    # of one row it does not matter how far away the next would be
    one = torch.zeros(5).as_strided((1, 5), (0, 1))
    values = {"a": expanded, "b": one, "c": one, "d": None}
    assert check(F, values, "cpu") == torch.device("cpu")
    with pytest.raises(
        ValueError,
        match=(
            r"f: d may be written, but some of its elements share memory \(strides \(0, 1\)\)"
        ),
    ):
        check(F, values | {"d": expanded}, "cpu")


slices = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@settings(deadline=None)
@given(slices, slices)
def test_slices_are_refused_where_they_have_elements_in_common_and_are_not_equal(
    first, second
):
    whole = torch.zeros(30)
    a, c = whole[slice(*first)], whole[slice(*second)]
    common = set(range(*first)) & set(range(*second))
    if not common:
        assert same(a=a, c=c) == {}
    elif first == second:
        assert same(a=a, c=c) == {"a": "c"}
    else:
        with pytest.raises(ValueError, match="shares a part"):
            same(a=a, c=c)


def test_another_element_type_is_another_layout():
    whole = torch.zeros(8)
    function = functions({"": 'extern "C" int f(const void* a, void* c) { return 0; }'})["f"]
    with pytest.raises(ValueError, match="shares a part"):
        same_memory(function, {"a": whole.view(torch.uint8), "c": whole})
    assert span_bytes(whole.view(torch.uint8)) == span_bytes(whole)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    number = 0

    @property
    def device(self):
        return torch.device("cuda", self.number)


def test_all_tensors_are_on_one_device():
    first, second, third = (torch.zeros(3).as_subclass(OnGpu) for _ in range(3))
    values = {"a": None, "b": first, "c": second, "d": third}
    assert check(F, values, "cuda") == torch.device("cuda", 0)
    third.number = 1
    with pytest.raises(
        ValueError, match="f: d is on cuda:1, and b on cuda:0; all tensors must"
    ):
        check(F, values, "cuda")


@pytest.mark.parametrize("rows", [2, 3])
def test_from_two_rows_on_an_expanded_tensor_is_refused(rows):
    values = {"a": None, "b": None, "c": torch.zeros(1, 5).expand(rows, 5), "d": None}
    with pytest.raises(ValueError, match="c may be written, but some of its elements share"):
        check(F, values, "cpu")


def test_each_tensor_is_compared_with_all_that_come_after_a_stranger():
    """What is read, or apart, or known already, does not end the search."""
    one, other = torch.zeros(8), torch.zeros(8)
    assert same(a=other, b=one, c=one, d=other) == {"b": "c", "a": "d"}
    assert same(a=None, b=one[:4], c=one[4:], d=one[:4]) == {"b": "d"}
    with pytest.raises(ValueError, match="b shares a part of its memory with d"):
        same(a=other, b=one[:5], c=other, d=one[4:])


def test_a_tensor_with_gaps_is_not_refused_for_one_without():
    whole = torch.zeros(16)
    assert same(a=whole[:8:2], c=whole[:5]) == {} and same(a=whole[:5], c=whole[:8:2]) == {}


def test_tensors_of_one_shape_with_gaps_are_the_same_memory_only_as_a_whole():
    whole = torch.zeros(4, 4)
    assert same(a=whole[:2, :2], c=whole[:2, :2]) == {"a": "c"}
    assert same(a=whole[:2, :2], c=whole[:2, :2].T) == {}


def test_a_number_is_taken_as_python_has_it():
    for type_, value, kind in (("float", 3, float), ("int", True, int), ("bool", 1, bool)):
        assert type(number(type_, value)) is kind
    assert number("float", 0.1) == 0.1
    with pytest.raises(TypeError, match=r"n takes a number \(float n\), not str"):
        number("float", "1")
