"""A byte of a tensor, or of a shared array, by the name that a learner would give it."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lessons_lib.cuda_on_cpu.elements import (
    inner_sizes,
    shared_element,
    tensor_element,
    tensor_index,
)


@st.composite
def layouts(draw):
    """Shape and strides of a tensor without overlap, its dimensions in any order, with gaps or
    without.
    """
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    strides, stride = [0] * len(shape), draw(st.integers(1, 3))
    for dimension in draw(st.permutations(range(len(shape)))):
        strides[dimension] = stride
        stride = stride * shape[dimension] + draw(st.integers(0, 3))
    return shape, strides


def place(index, strides) -> int:
    return sum(i * stride for i, stride in zip(index, strides, strict=True))


@given(layouts())
def test_each_element_of_a_tensor_is_found(layout):
    shape, strides = layout
    for index in itertools.product(*map(range, shape)):
        assert tensor_index(shape, strides, place(index, strides)) == index


@given(layouts(), st.integers(-1000, 1000))
def test_an_index_outside_leads_to_the_same_place(layout, element):
    shape, strides = layout
    index = tensor_index(shape, strides, element)
    if index is not None:
        assert place(index, strides) == element
        assert all(0 <= i < size for i, size in zip(index[1:], shape[1:], strict=True))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(-200, 200))
def test_every_place_around_a_contiguous_tensor_has_an_index(shape, element):
    assert tensor_index(shape, torch.zeros(shape).stride(), element) is not None


@pytest.mark.parametrize(
    "tensor, byte, name",
    [
        (torch.zeros(2, 3), 13, "byte 13 of x"),
        (torch.zeros(2, 6)[:, ::2], 4, "byte 4 of x"),
        (torch.zeros(()), 0, "x"),
        (torch.zeros(()), 4, "x[1]"),
        (torch.zeros(0, 3), 4, "x[0, 1]"),
        (torch.zeros(3).expand(2, 3), 4, "x[0, 1]"),
    ],
)
def test_elements_of_tensors_have_names(tensor, byte, name):
    assert tensor_element("x", tensor, byte) == name


@pytest.mark.parametrize(
    "byte, size, inner, name",
    [
        (0, 4, (), "s"),
        (4, 4, (), "s[1]"),
        (0, 8, (), "s[0]"),
        (2, 4, (), "byte 2 of s"),
        (14, 64, (), "byte 14 of s (in s[3])"),
        (37 * 4, 4 * 9 * 4, (9,), "s[4][1]"),
        (-4, 4 * 9 * 4, (9,), "s[-1][8]"),
        (4 * (12 * 1 + 4 * 2 + 3), 4 * 24, (3, 4), "s[1][2][3]"),
    ],
)
def test_elements_of_shared_arrays_have_names(byte, size, inner, name):
    assert shared_element("s", byte, 4, size, inner) == name


def test_the_sizes_of_a_shared_array_are_read_from_its_declaration():
    text = (
        "__shared__ float a[2][N];\n"
        "#define N 5\n"
        "__shared__ float a[2][M], b[3][4][N];\n"
        "x = a[1][1];"
    )
    assert inner_sizes("a", {"": "", "t": text}, "t", 1) == (5,)
    assert inner_sizes("a", {"t": text}, "t", 4) == ()
    assert inner_sizes("b", {"t": text}, "t", 4) == (4, 5)
