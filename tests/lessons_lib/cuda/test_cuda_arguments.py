"""Which values a CUDA function takes: by position or by name, numbers that fit, and tensors
that are apart in memory or the same memory.
"""

import ctypes
import math

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuda_machine import on_gpu
from lessons_lib.cuda.arguments import bind, check, same_memory
from lessons_lib.cuda.signatures import SCALARS, functions

TEXT = """
struct Params {
  const float *q, *out, *lse;
  int num_seqs;
  long long stride;
  bool causal;
};
extern "C" int f(Params p, const int* table, int n, cudaStream_t s) {}
extern "C" int g(const float* a, void* out, float scale, bool fast) {}
extern "C" int four(const float* a, const float* b, float* c, float* d) {}
"""
F, G, FOUR = (functions({"": TEXT})[name] for name in ("f", "g", "four"))


def fields(**changed) -> dict:
    x, table = torch.zeros(3), torch.zeros(2, dtype=torch.int32)
    tensors = {"q": x, "out": x, "lse": None, "table": table}
    return tensors | {"num_seqs": 1, "stride": 2**40, "causal": True, "n": 3} | changed


TAKES = r"It takes: g\(const float\* a, void\* out, float scale, bool fast\)"


@pytest.mark.parametrize(
    "function, values, named, words",
    [
        (G, (1, 2, 3), {}, f"g: missing argument fast. {TAKES}"),
        (G, (), {"a": 1, "fast": 2}, "g: missing arguments out, scale"),
        (G, (1, 2, 3, 4), {"speed": 3}, "g: unknown argument speed"),
        (G, (1, 2, 3, 4), {"a": 3}, "g: a is given twice"),
        (G, (1, 2, 3, 4, 5), {}, "g takes 4 arguments by position, not 5"),
        (F, (1, 2, 3), {}, "a struct's fields are given by keyword"),
    ],
)
def test_arguments_that_do_not_fit_together(function, values, named, words):
    with pytest.raises(TypeError, match=words):
        bind(function, values, named)


@pytest.mark.parametrize(
    "changed, error, words",
    [
        ({"q": [1.0]}, TypeError, "f: q takes a tensor .const float. q., not list"),
        (
            {"q": torch.zeros(3, dtype=torch.float64)},
            TypeError,
            "f: q takes a tensor of torch.float32 .const float. q., not torch.float64",
        ),
        ({"table": torch.zeros(3)}, TypeError, "f: table takes a tensor of torch.int32"),
        (
            {"q": torch.zeros(3, device="meta")},
            ValueError,
            "f: q is on meta, but this library was built for the CPU: pass q.cpu",
        ),
        (
            {"q": torch.zeros(3).to_sparse()},
            ValueError,
            "f: q is a tensor of the layout torch.sparse_coo",
        ),
        (
            {"n": torch.tensor(3)},
            TypeError,
            "f: n takes a number .*, not a tensor; pass n.item",
        ),
        ({"n": None}, TypeError, "f: n takes a whole number"),
    ],
)
def test_values_are_checked_by_name(changed, error, words):
    with pytest.raises(error, match=words):
        check(F, fields(**changed), "cpu")


def test_void_takes_any_dtype_and_numbers_take_what_counts_as_one():
    values = {"a": None, "out": torch.zeros(2, dtype=torch.complex64), "scale": 2, "fast": 0}
    assert check(G, values, "cpu") == torch.device("cpu")
    assert values["scale"] == 2.0 and values["fast"] is False
    values = fields(n=numpy.int64(3), stride=True)
    check(F, values, "cpu")
    assert values["n"] == 3 and values["stride"] == 1
    nothing = {"a": None, "out": None, "scale": numpy.float32(2), "fast": False}
    assert check(G, nothing, "cpu") is None


def number(type: str, value):
    """What a parameter of a C++ type makes of a value."""
    function = functions({"": f'extern "C" int g({type} n) {{ return 0; }}'})["g"]
    given = bind(function, (value,), {})
    assert check(function, given, "cpu") is None
    return given["n"]


@pytest.mark.parametrize("type", ["float", "double"])
def test_a_real_number_is_taken_unless_it_would_become_infinite(type):
    for value in (0.0, -0.5, 0.1, math.inf, -math.inf, 1e-50, 3, True):
        assert number(type, value) == value
    assert math.isnan(number(type, math.nan))
    for value in (1e39, -1e39) if type == "float" else (10**400, -(10**400)):
        with pytest.raises(ValueError, match="does not fit into"):
            number(type, value)
    with pytest.raises(TypeError, match=rf"n takes a number \({type} n\), not str"):
        number(type, "1")


@pytest.mark.parametrize(
    "type", [type for type in SCALARS if type not in ("float", "double", "bool")]
)
def test_a_whole_number_is_taken_from_the_least_to_the_largest_of_its_type(type):
    bits = 8 * ctypes.sizeof(SCALARS[type])
    least = 0 if "unsigned" in type else -(2 ** (bits - 1))
    most = least + 2**bits - 1
    assert (number(type, least), number(type, most)) == (least, most)
    for value in (least - 1, most + 1):
        with pytest.raises(
            ValueError, match=f"g: n is {value}, which does not fit into {type}"
        ):
            number(type, value)
    with pytest.raises(TypeError, match=rf"n takes a whole number \({type} n\), not float"):
        number(type, 1.0)


def test_a_bool_is_no_other_number():
    assert (number("bool", True), number("bool", 0)) == (True, False)
    for value in (2, -1):
        with pytest.raises(ValueError, match="takes True or False"):
            number("bool", value)


WHOLE = torch.arange(100.0)
GRID = WHOLE[:24].view(4, 6)
PAIR = {"a": "c"}
PART = "shares a part of its memory with c, which is written; pass a.clone"


def same(a=None, b=None, c=None, d=None) -> dict[str, str]:
    """Which tensors are the memory of another one. The function writes c and d."""
    return same_memory(FOUR, {"a": a, "b": b, "c": c, "d": d})


@pytest.mark.parametrize(
    "tensors, found",
    [
        # each has gaps, in which the other lies
        (dict(a=GRID[:, 0], c=GRID[:, 1]), {}),
        (dict(a=GRID[:, 1], c=GRID[:, 1]), PAIR),
        (dict(a=GRID[0, 1:], c=GRID[:, 0]), {}),
        (dict(a=GRID[:, 0], c=GRID[0, 1:]), {}),
        # they meet, but spans do not show it: each is a copy
        (dict(a=GRID[:, :2], c=GRID[:, 1]), {}),
        (dict(a=WHOLE[:8:2], c=WHOLE[:5]), {}),
        (dict(a=WHOLE[:5], c=WHOLE[:8:2]), {}),
        # from the same byte to the same byte
        (dict(a=WHOLE[0:5:4], c=WHOLE[0:5:2]), {}),
        (dict(a=WHOLE[0:5:4], c=WHOLE[0:5:4]), PAIR),
        (dict(a=GRID[:2, :2], c=GRID[:2, :2]), PAIR),
        (dict(a=GRID[:2, :2], c=GRID[:2, :2].T), {}),
        # what is only read may overlap; empty tensors and None share nothing
        (dict(a=WHOLE[:60], b=WHOLE[40:]), {}),
        (dict(c=WHOLE), {}),
        (dict(a=WHOLE[:0], c=WHOLE), {}),
        (dict(a=WHOLE[4:4], c=WHOLE), {}),
        # the same memory is named once, and each is compared with all that come after it
        (dict(c=WHOLE, d=WHOLE), {"d": "c"}),
        (dict(a=GRID, b=GRID.view(24), c=GRID, d=torch.zeros(3)), {"a": "c", "b": "c"}),
        (dict(a=WHOLE[50:], b=WHOLE[:9], c=WHOLE[:9], d=WHOLE[50:]), {"b": "c", "a": "d"}),
        (dict(b=WHOLE[:4], c=WHOLE[4:], d=WHOLE[:4]), {"b": "d"}),
    ],
)
def test_tensors_that_are_the_same_memory_or_apart(tensors, found):
    assert same(**tensors) == found


def test_a_part_of_the_memory_is_refused_whatever_the_dtype():
    with pytest.raises(ValueError, match="b shares a part of its memory with d"):
        same(a=torch.zeros(3), b=WHOLE[:5], c=torch.zeros(3), d=WHOLE[4:])
    function = functions({"": 'extern "C" int f(const void* a, void* c) { return 0; }'})["f"]
    with pytest.raises(ValueError, match=PART):
        same_memory(function, {"a": WHOLE.view(torch.uint8), "c": WHOLE})


slices = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@given(slices, slices)
def test_slices_are_refused_where_they_have_elements_in_common_and_are_not_equal(
    first, second
):
    a, c = WHOLE[slice(*first)], WHOLE[slice(*second)]
    if not set(range(*first)) & set(range(*second)):
        assert same(a=a, c=c) == {}
    elif first == second:
        assert same(a=a, c=c) == PAIR
    else:
        with pytest.raises(ValueError, match=PART):
            same(a=a, c=c)


def test_elements_that_share_memory_may_be_read_and_not_written():
    expanded = torch.zeros(1, 5).expand(2, 5)
    # of one row it does not matter how far away the next would be
    one = torch.zeros(5).as_strided((1, 5), (0, 1))
    values = {"a": expanded, "b": one, "c": one, "d": None}
    assert check(FOUR, values, "cpu") == torch.device("cpu")
    words = r"four: d may be written, but some of its elements share memory \(strides \(0, 1\)"
    with pytest.raises(ValueError, match=words):
        check(FOUR, values | {"d": expanded}, "cpu")


def test_all_tensors_are_on_one_device():
    first, second, third = (on_gpu(torch.zeros(3)) for _ in range(3))
    values = {"a": None, "b": first, "c": second, "d": third}
    assert check(FOUR, values, "cuda") == torch.device("cuda", 0)
    third.number = 1
    with pytest.raises(ValueError, match="d is on cuda:1, and b on cuda:0; all tensors must"):
        check(FOUR, values, "cuda")
    with pytest.raises(ValueError, match="q is on cpu, but .* built for the GPU: pass q.cuda"):
        check(F, fields(), "cuda")
