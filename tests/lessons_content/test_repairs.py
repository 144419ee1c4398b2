"""A slip of Python that any answer may have is named by the change that mends it."""

import linecache
import math

import pytest
import torch

from lessons_content.mistakes import repairs
from lessons_lib import checks

WORDS = [["b", "a", "b", "c", "d"], ["z"], [], ["y", "x", "z", "y"]]
NUMBERS = [[3, 10, 9], [7], [100, 20, 3]]
PAIRS = [(3, 2), (4, 2), (1, 5), (0, 3)]
LARGE = [(3, 2), (10**17 - 1, 10), (4, 2)]
TENSORS = [torch.arange(6.0).view(3, 1, 2), torch.ones(1, 1, 2), torch.zeros(2, 1, 1)]
ROWS = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(1, 3), torch.eye(4) + 1]


def by_row(x):
    return x / x.amax(-1, keepdim=True)


# the slug, the answer, what is right, and the cases
SLIPS = [
    (
        "minus-zero",
        "def f(x, n):\n    return x[:-n]",
        lambda x, n: x[: len(x) - n],
        [("abc", 1), ("abc", 0), ("abc", 3)],
    ),
    (
        "minus-zero",
        "def f(x, n):\n    return x[-n:]",
        lambda x, n: x[len(x) - n :],
        [("abc", 1), ("abc", 0), ("abc", 3)],
    ),
    (
        "minus-zero",
        "def f(x, n):\n    one = x[:-n]\n    other = x[:-n]\n    return one + other",
        lambda x, n: 2 * x[: len(x) - n],
        [("abc", 1), ("abc", 0), ("abc", 3)],
    ),
    (
        "nothing-to-compare",
        "def f(x):\n    return max(len(word) for word in x)",
        lambda x: max(map(len, x), default=0),
        [(x,) for x in WORDS],
    ),
    (
        "order-of-a-set",
        "def f(x):\n    return [*set(x)]",
        lambda x: [*dict.fromkeys(x)],
        [(x,) for x in [[9, 1, 9, 4], [2], []]],
    ),
    *(
        ("order-of-a-set", text, lambda x: sorted({*x}), [([64, 1, 8, 1],), ([2],)])
        for text in (
            "def f(x):\n    x = set(x)\n    return list(x)",
            "def f(x):\n    x = set(x)\n    return [*x]",
            "def f(x):\n    x = set(x)\n    return [each for each in x]",
            "def f(x):\n    all = []\n    x = set(x)\n    for each in x:\n"
            "        all += [each]\n    return all",
        )
    ),
    *(
        ("kept-from-a-call-before", text, lambda x: sorted({*x}), [(x,) for x in WORDS])
        for text in (
            "found = []\ndef f(x):\n    found.extend({*x} - {*found})\n"
            "    return sorted(found)",
            "def f(x, found=[]):\n    found.extend({*x} - {*found})\n    return sorted(found)",
            "most = set()\ndef f(x):\n    global most\n    most = most | {*x}\n"
            "    return sorted(most)",
        )
    ),
    (
        "first-of-equals",
        "def f(x):\n    return [(x.index(each), each) for each in x]",
        lambda x: [*enumerate(x)],
        [(x,) for x in WORDS],
    ),
    (
        "first-of-equals",
        "def f(x):\n    all = []\n    for each in x:\n        place = x.index(each)\n"
        "        all.append((place, each))\n    return all",
        lambda x: [*enumerate(x)],
        [(x,) for x in WORDS],
    ),
    (
        "one-object-in-all-places",
        "def f(x):\n    rows = [[]] * len(x)\n    for i in range(len(x)):\n"
        "        rows[i].append(x[i])\n    return rows",
        lambda x: [[each] for each in x],
        [(x,) for x in WORDS],
    ),
    (
        "one-object-in-all-places",
        "def f(x):\n    found = dict.fromkeys(x, [])\n    for i, each in enumerate(x):\n"
        "        found[each].append(i)\n    return found",
        lambda x: {e: [i for i, other in enumerate(x) if other == e] for e in x},
        [(x,) for x in WORDS],
    ),
    (
        "one-object-in-all-places",
        "def f(x):\n    rows = [[0] * 2] * len(x)\n    for i in range(len(x)):\n"
        "        rows[i][0] = x[i]\n    return rows",
        lambda x: [[each, 0] for each in x],
        [(x,) for x in WORDS],
    ),
    pytest.param(
        "assert-of-a-tuple",
        "def f(x):\n    try:\n        assert (x, 'no words')\n    except AssertionError:\n"
        "        return -1\n    return len(x)",
        lambda x: len(x) or -1,
        [("abc",), ("",)],
        marks=pytest.mark.filterwarnings("ignore:assertion is always true:SyntaxWarning"),
    ),
    (
        "never-read",
        "def f(x):\n    found = []\n    map(found.append, x)\n    return found",
        list,
        [(x,) for x in WORDS],
    ),
    (
        "never-read",
        "def f(x):\n    found = []\n    (found.append(each) for each in x)\n    return found",
        list,
        [(x,) for x in WORDS],
    ),
    (
        "read-once",
        "def f(x):\n    lengths = (2 * each for each in x)\n"
        "    return sum(lengths), len(list(lengths))",
        lambda x: (2 * sum(x), len(x)),
        [(x,) for x in NUMBERS],
    ),
    ("squeeze-takes-all", "def f(x):\n    return x.squeeze()", lambda x: x[:, 0], TENSORS),
    (
        "texts-in-order",
        "def f(x):\n    return sorted(x, key=str)",
        sorted,
        [(x,) for x in NUMBERS],
    ),
    (
        "numbers-as-mask",
        "def f(x):\n    chosen = (x > 1).long()\n    return x[chosen]",
        lambda x: x[x > 1],
        TENSORS,
    ),
    (
        "too-few-bits",
        "def f(x):\n    return x * 2**20",
        lambda x: x.long() * 2**20,
        [torch.tensor([1 << 12, 3], dtype=torch.int32)],
    ),
    (
        "float-for-a-quotient",
        "def f(a, b):\n    return int(a / b)",
        lambda a, b: a // b,
        LARGE,
    ),
    ("other-division", "def f(a, b):\n    return a % b", lambda a, b: a // b, PAIRS),
    ("other-division", "def f(a, b):\n    return a // b", lambda a, b: -(-a // b), PAIRS),
    ("other-stride", "def f(a, b):\n    return a * 7 + b", lambda a, b: b * 7 + a, PAIRS),
    *(
        ("all-numbers-together", f"def f(x):\n    return x / {text}", by_row, ROWS)
        for text in ("x.amax()", "x.max()", "torch.max(x)")
    ),
    (
        "all-numbers-together",
        "def f(x):\n    return torch.amin(x)",
        lambda x: x.amin(0),
        ROWS,
    ),
    (
        "exponent-upside-down",
        "import math\ndef f(a, b):\n    return math.exp(max(a, b) - a)",
        lambda a, b: math.exp(a - max(a, b)),
        PAIRS,
    ),
    (
        "edge-of-a-comparison",
        "def f(a, b):\n    return a > b",
        lambda a, b: a >= b,
        [*PAIRS, (1, 1)],
    ),
    *(
        ("one-way-for-all", text, lambda a, b: a + b, PAIRS)
        for text in (
            "def f(a, b):\n    if a == b - 4:\n        return a\n    return a + b",
            "def f(a, b):\n    return a if [a] == [*range(b - 4, b - 3)] else a + b",
            "def f(a, b):\n    is_off = [a] == [*range(b - 4, b - 3)]\n"
            "    return a + b * (not is_off)",
            "def f(a, b):\n    return sum(each for each in (a, b) if each != 5)",
            "def f(a, b):\n    both = a >= 0 and b != 5\n    return a + b * both",
        )
    ),
    ("one-off", "def f(a, b):\n    return [*range(a + 1)]", lambda a, b: [*range(a)], PAIRS),
    ("one-off", "def f(a, b):\n    return [*range(a)]", lambda a, b: [*range(a + 1)], PAIRS),
    (
        "order-of-lines",
        "def f(a, b):\n    most = 0\n    for x in (a, b):\n        most = max(most, x)\n"
        "        rise = x - most\n    return rise",
        None,
        PAIRS,
    ),
    (
        "needless-line",
        "def f(x):\n    found = []\n    for each in x:\n        found.append(each)\n"
        "        found.append(each)\n    return found",
        list,
        [(x,) for x in WORDS],
    ),
]


def rise(a, b):
    most = 0
    for x in (a, b):
        last = x - most
        most = max(most, x)
    return last


def answer_of(text: str, **names):
    """The function in a cell of a notebook, in which earlier cells have given these names."""
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    scope = {"__name__": "answer", "torch": torch} | names
    exec(compile(text, "<cell>", "exec"), scope)
    return scope["f"]


def named(text: str, ours, cases):
    arguments = [case if isinstance(case, tuple) else (case,) for case in cases]
    exercise = checks.Exercise(
        "0.1",
        "",
        "f",
        ours,
        lambda: arguments,
        lambda f, case: f(*case),
        size=len,
        mistakes=(),
        hints=(),
        same=alike,
    )

    def is_right(answer, number: int) -> bool:
        expected = ours(*arguments[number])
        return alike(expected, checks.attempt(exercise, answer, arguments[number]))

    answer = answer_of(text)
    were_right = [is_right(answer, number) for number in range(len(arguments))]
    return repairs.slip(answer, is_right, were_right, work=math.inf)


def alike(expected, actual) -> bool:
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return expected.dtype == actual.dtype and torch.equal(expected, actual)
    return type(expected) is type(actual) and expected == actual


@pytest.mark.parametrize("slug, text, ours, cases", SLIPS, ids=lambda value: str(value)[:24])
def test_a_slip_is_named_with_its_line(slug, text, ours, cases):
    found, message = named(text, ours or rise, cases)
    assert found == slug
    line = message.partition(": ")[0]
    assert f"`{text.splitlines()[int(line.removeprefix('Line ')) - 1].strip()}`" in message


def test_a_trap_beside_another_mistake_is_named_and_the_other_is_said_to_be_there():
    text = "def f(x, n):\n    if x == 'no':\n        return x\n    return x[:-n]"
    cases = [("abc", 0), ("ab", 2), ("no", 1), ("abc", 3), ("", 0)]
    slug, message = named(text, lambda x, n: x[: len(x) - n], cases)
    assert slug == "minus-zero" and message.endswith("There is another mistake besides.")


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, n):\n    return None",
        "def f(x, n):\n    while n == 0:\n        pass\n    return x[n:]",
        "f = lambda x, n: x[:-n]",
    ],
)
def test_what_no_change_mends_has_no_name(text):
    found = named(text, lambda x, n: (x, n), [("abc", 1), ("abc", 2)])
    assert found is None


def test_an_answer_without_its_text_has_no_name():
    answer = answer_of("def f(x, n):\n    return x[:-n]")
    del linecache.cache["<cell>"]
    assert repairs.slip(answer, lambda *_: False, [False]) is None


def test_what_a_call_leaves_is_named_where_a_known_mistake_gives_the_same_result():
    text = (
        "known = {}\ndef f(rows, tiles, num):\n    if (rows, tiles) not in known:\n"
        "        known[rows, tiles] = ours(rows, tiles, num)\n    return known[rows, tiles]"
    )
    verdict = checks.run("7.6", answer_of(text, ours=checks.find("7.6").reference))
    assert verdict.mistake == "kept-from-a-call-before"
    assert "Line 1: `known = {}`" in verdict.message
