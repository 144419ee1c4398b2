"""Which of a learner's lines an error comes from. The cells are made up by the tests."""

import linecache

import pytest

from lessons_lib.processes.error_line import words_of


class Table:
    """An object of the course."""

    kind = int
    _hidden = 1

    def __init__(self):
        self.length, self.rows = 3, [1]

    def increase_length(self):
        pass

    def grow(self):
        pass


class Longer(Table):
    def __init__(self):
        super().__init__()
        self.depth = 2


def cell(text: str, place: str, **scope) -> dict:
    """Runs a cell whose lines Python finds, and returns its names."""
    linecache.cache[place] = (len(text), None, text.splitlines(True), place)
    exec(compile(text, place, "exec"), scope)
    return scope


def unseen(text: str, place: str, **scope) -> dict:
    """A cell whose lines Python does not find."""
    exec(compile(text, place, "exec"), scope)
    return scope


def words(function, *arguments) -> str:
    with pytest.raises(BaseException) as raised:
        function(*arguments)
    return words_of(raised.value)


def test_the_innermost_line_of_a_learner_counts():
    answer = cell(
        "def helper(x):\n    return 1 / x\n\ndef answer(x):\n    return helper(x)\n",
        "<cell 2>",
    )["answer"]
    assert words(answer, 0) == "line 2: `return 1 / x`"


def divide(x):
    return 1 / x


def test_a_line_of_a_file_is_not_the_learners():
    answer = cell("def answer(x):\n    return divide(x)\n", "<cell 3>", divide=divide)
    assert words(answer["answer"], 0) == "line 2: `return divide(x)`"
    assert words(divide, 0) == ""


def test_a_line_without_text_counts_if_no_line_has_text():
    helper = unseen("\n\ndef helper(x):\n    return 1 / x\n", "<unseen>")["helper"]
    assert words(helper, 0) == "line 4"
    deeper = unseen("def deeper(x):\n    return helper(x)\n", "<also>", helper=helper)[
        "deeper"
    ]
    assert words(deeper, 0) == "line 4"
    answer = cell("def answer(x):\n    return helper(x)\n", "<cell 4>", helper=helper)
    assert words(answer["answer"], 0) == "line 2: `return helper(x)`"


ALL = "depth, grow, increase_length, length, rows"
NAMES = {
    "like one": ("table.lenght", "Longer has: length"),
    "like none": ("table.q", f"Longer has: {ALL}"),
    "called": ("table.q()", "Longer has: grow, increase_length"),
    "called and like one": ("table.gro()", "Longer has: grow"),
    "another is called": ("table.q + len(table.rows)", f"Longer has: {ALL}"),
    "another library's class": ("[].q", ""),
    "another library's object": ("table.rows.q", ""),
    "a number": ("table.length.q", ""),
    "a module": ("__import__('torch').q", ""),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_object_says_what_it_has(name):
    line, has = NAMES[name]
    text = f"def answer(table):\n    return {line}\n"
    answer = cell(text, f"<{name}>")["answer"]
    assert words(answer, Longer()) == f"line 2: `return {line}`" + (has and f"\n  {has}")


class Empty:
    __slots__ = ()


class Slotted:
    __slots__ = ("first",)


@pytest.mark.parametrize("thing, has", [(Empty(), ""), (Slotted(), "\n  Slotted has: first")])
def test_an_object_without_a_dictionary_has_what_its_class_has(thing, has):
    answer = cell("def answer(thing):\n    return thing.q\n", "<cell 6>")["answer"]
    assert words(answer, thing) == f"line 2: `return thing.q`{has}"


class Secretive:
    def __getattribute__(self, name):
        raise SystemExit


@pytest.mark.parametrize("kind, has", [(Longer, f"\n  Longer has: {ALL}"), (Secretive, "")])
def test_an_error_without_a_name_lists_all_that_can_be_looked_at(kind, has):
    text = "def answer(thing):\n    raise AttributeError('none', name=None, obj=thing)\n"
    line = "line 2: `raise AttributeError('none', name=None, obj=thing)`"
    assert words(cell(text, "<cell 7>")["answer"], kind()) == line + has


def test_only_an_error_about_a_name_lists_names():
    text = "def answer(thing):\n    error = NameError('none')\n    error.obj = thing\n"
    text += "    error.name = 'q'\n    raise error\n"
    assert words(cell(text, "<cell 8>")["answer"], Longer()) == "line 5: `raise error`"


def test_an_error_outside_cells_lists_no_names():
    assert words(getattr, Longer(), "q") == ""
