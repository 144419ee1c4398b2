"""What becomes of an answer's result on its way through JSON, and what is refused there."""

import enum
import json
import math
import sys
import types
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lessons_lib.checks import Raised, result_codec
from lessons_lib.checks.result_codec import Foreign, decode, encode


def there(value):
    """`value` as it comes out of a sandbox."""
    return decode(json.loads(json.dumps(encode(value))))


class Words(str):
    """Text with a mark, as an exercise may define it."""


class Pair(tuple):
    """Two values with a mark."""


@dataclass
class Sizes:
    rows: int
    table: object


class Plain:
    """No result."""


@dataclass
class Imported:
    """A class that the module below has, but does not define."""

    rows: int


@pytest.fixture(autouse=True)
def exercise(monkeypatch):
    """A module of the course that has the classes above, and a function."""
    module = types.ModuleType("lessons_content.of_a_test")
    for kind in (Words, Pair, Sizes, Plain):
        monkeypatch.setattr(kind, "__module__", module.__name__)
        setattr(module, kind.__name__, kind)
    module.Imported, module.function = Imported, there
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -3, 2**9_999 - 1, 1.5, math.inf, "", "words", (), [], {}]
    + [
        (1, [2, "a"]),
        [None, (True,)],
        {1, 2},
        frozenset({"a"}),
        {"a": [1], (1, 2): {3}},
        set(),
    ],
)
def test_plain_values_come_out_as_they_were(value):
    assert there(value) == value and type(there(value)) is type(value)


def test_what_is_in_a_container_keeps_its_kind():
    inner = there([(1, True), {2: np.int16(3)}])
    assert [type(part) for part in inner] == [tuple, dict]
    assert inner[0][1] is True and type(inner[1][2]) is np.int16


def test_other_kinds_of_plain_values_become_plain():
    kind = enum.IntEnum("kind", "one two")
    for value, plain in (
        (kind.two, 2),
        (type("Text", (str,), {})("a"), "a"),
        (type("Number", (float,), {})(0.5), 0.5),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (namedtuple("Point", "x y")(1, 2), (1, 2)),
    ):
        assert there(value) == plain and type(there(value)) is type(plain)


DTYPES = ("float32", "bfloat16", "complex128", "int64", "uint8", "bool")


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES])
@pytest.mark.parametrize(
    "view",
    [
        lambda whole: whole,
        lambda whole: whole.T,
        lambda whole: whole[:, 1:3],
        lambda whole: whole[:1, 0],
        lambda whole: whole[1, 2],
        lambda whole: whole[:0],
        lambda whole: whole[:1].expand(3, 4),
    ],
)
def test_a_tensor_comes_out_with_its_dtype_and_shape(dtype, view):
    tensor = view(torch.arange(12).reshape(3, 4)).to(dtype)
    result = there(tensor)
    assert (result.dtype, result.shape) == (dtype, tensor.shape)
    assert torch.equal(result, tensor)


def test_what_autograd_knows_of_a_tensor_is_left_out():
    tensor = torch.ones(2, requires_grad=True) * 3
    assert there(tensor).tolist() == [3, 3] and not there(tensor).requires_grad


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5),
        np.bool_(True),
        np.int16([[1, 2], [3, 4]]),
        np.uint8([[1, 2], [3, 4]]).T,
        np.complex128([1j]),
        np.zeros((0, 2)),
    ],
)
def test_numbers_of_numpy_come_out_with_their_type(value):
    result = there(value)
    assert type(result) is type(value) and result.dtype == value.dtype
    assert result.shape == value.shape and np.array_equal(result, value)


@pytest.mark.parametrize(
    "make", [lambda n: torch.zeros(n, dtype=torch.uint8), lambda n: np.zeros(n, np.uint8)]
)
def test_a_million_numbers_are_the_most(make):
    most = 1 << 20
    assert len(there(make(most))) == most
    assert isinstance(there(make(most + 1)), Foreign)


def test_a_value_of_an_exercises_own_class_keeps_it():
    words, pair = Words("text"), Pair((1, [2]))
    words.mark, pair.mark = (1, 2), "a"
    for value in (words, pair, Sizes(3, (1, 2))):
        result = there(value)
        assert type(result) is type(value) and result == value
        assert vars(result) == vars(value)
    assert there(Raised("E: no")) == Raised("E: no")


def test_a_value_of_an_imported_class_becomes_words():
    assert type(there(Imported(3))) is Foreign
    assert repr(there(Imported(3))) == repr(Imported(3))


class Speaks:
    def __repr__(self):
        return "x" * 400


def test_what_cannot_be_sent_becomes_its_words():
    assert encode(Speaks()) == ["foreign", "x" * 300]
    assert decode(["foreign", "y" * 400]).words == "y" * 300
    assert encode(2**9_999) == ["foreign", str(2**9_999)[:300]]
    assert repr(there(np.array(["a"]))) == "array(['a'], dtype='<U1')"
    assert repr(there(np.array([None]))) == "array([None], dtype=object)"
    assert encode(Plain())[0] == "foreign"
    assert encode(Sizes)[0] == "foreign"


def test_what_cannot_even_be_shown_becomes_the_name_of_its_type():
    holds_itself = []
    holds_itself.append(holds_itself)
    assert encode(holds_itself) == ["foreign", "something of type list"]
    most_digits = sys.get_int_max_str_digits()  # the environment may have changed it
    sys.set_int_max_str_digits(4_300)
    try:
        assert encode(10**5_000) == ["foreign", "something of type int"]
    finally:
        sys.set_int_max_str_digits(most_digits)


def test_words_equal_nothing_and_are_shown_as_they_are():
    assert there(Speaks()) != there(Speaks()) and repr(Foreign("words")) == "words"


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict"])
def test_a_set_and_a_dictionary_have_two_thousand_keys_at_most_and_a_list_more(kind):
    keys = [[number, 0] if kind == "dict" else number for number in range(2_001)]
    assert len(decode([kind, keys[:-1]])) == 2_000
    with pytest.raises(ValueError, match="it has too many keys"):
        decode([kind, keys])
    assert len(decode(["list", [*range(2_001)]])) == 2_001


@pytest.mark.parametrize(
    "module, name, base, attributes",
    [
        (None, "Plain", None, {}),
        (None, "Sizes", None, {"rows": 1}),
        (None, "Sizes", None, {"rows": 1, "table": 2, "more": 3}),
        (None, "Imported", None, {"rows": 1}),
        (None, "function", None, {}),
        (__name__, "Imported", None, {"rows": 1}),
        ("os", "system", None, {}),
        ("builtins", "str", "text", {}),
        ("lessons_lib.checks", "find", None, {}),
    ],
)
def test_only_results_of_the_course_are_made(exercise, module, name, base, attributes):
    module = module or exercise
    with pytest.raises(ValueError, match=f"{module}.{name} is no result"):
        decode(["course", module, name, base, attributes])


def test_the_courses_own_answers_are_not_in_a_sandbox():
    with pytest.raises(LookupError, match="The course's own answer is not here"):
        result_codec.gone(1, a=2)
