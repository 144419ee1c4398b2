"""What a learner reads when a compiler refuses a text. The compilers' words are given."""

import pickle

import pytest

from lessons_lib.cuda.compiler_errors import CompileError, explain, without_assertions

TEXT = "int a;\nint bb;\n\tint c;"
SOURCES = {"your code": TEXT, "other": "x\n\n\n"}


def test_an_error_is_told_with_its_line_and_a_caret_under_its_column():
    output = "your code:2:5: error: no bb\nmore"
    error = explain(output, SOURCES)
    assert str(error) == "your code, line 2: no bb\n    int bb;\n        ^"
    assert (error.source, error.line, error.reason) == ("your code", 2, "no bb")
    assert error.output == output


@pytest.mark.parametrize(
    "place, quoted",
    [
        ("1:0", "int a;"),
        ("1:1", "int a;\n    ^"),
        ("1:6", "int a;\n         ^"),
        ("1:7", "int a;\n          ^"),  # right after it
        ("1:8", "int a;"),
        ("3:2", " int c;\n     ^"),  # a tab is as wide as its column
        ("1", "int a;"),
    ],
)
def test_a_caret_is_within_the_line_or_right_after_it(place, quoted):
    said = str(explain(f"your code:{place}: error: no", SOURCES))
    assert said == f"your code, line {place[0]}: no\n    {quoted}"


@pytest.mark.parametrize("output", ["your code(1): error: no", "your code:1:fatal error: no"])
def test_other_forms_of_an_error_are_read_too(output):
    assert str(explain(output, SOURCES)) == "your code, line 1: no\n    int a;"


@pytest.mark.parametrize(
    "earlier",
    [
        "",
        "your code:1:1: warning: errors",
        "other:1:1: note: error",
        "In file",
        "a:b: error: c",
    ],
)
def test_the_first_error_counts(earlier):
    output = f"{earlier}\nyour code:2:1: error: first\nyour code:1:1: error: second"
    assert (explain(output, SOURCES).line, explain(output, SOURCES).reason) == (2, "first")


@pytest.mark.parametrize(
    "places, line",
    [
        (["your code:1:1: note: here"], 1),
        (["your code:1:1: note: here", "your code:2:1:   required from here"], 2),
        (["your code:2:1: in instantiation of f", "your code:1:1: note: here"], 2),
        (["your code:1:1: note: here", "your code:2:1: in instantiation of f"], 2),
        (["your code:2:1:  required from here", "your code:1:1:  required from here"], 2),
        (["/usr/include/b:9:1: required from here", "your code:1:1: note: here"], 1),
    ],
)
def test_an_error_in_a_header_is_told_at_the_line_that_led_there(places, line):
    output = "\n".join(["/usr/include/a:7:3: error: no match", *places])
    error = explain(output, SOURCES)
    assert (error.source, error.line, error.reason) == ("your code", line, "no match")


def test_an_error_that_no_line_of_ours_led_to_is_told_where_it_is():
    output = "/usr/include/a:7:3: error: no match\n/usr/include/b:1:1: note: here"
    error = explain(output, SOURCES)
    assert str(error) == "/usr/include/a:7: no match"
    assert (error.source, error.line) == (None, None)
    assert (error.reason, error.output) == ("no match", output)


@pytest.mark.parametrize(
    "text, line, early",
    [
        ("int f() {\n  g();\n\n", 2, False),
        ("int f() {\n  g();\n\n", 3, True),
        ("int f() {\n  g();", 3, True),
        ("\n\nint f() {", 3, False),
        ("\n\nint f() {", 4, True),
    ],
)
def test_an_error_after_the_last_line_means_that_something_was_not_closed(text, line, early):
    error = explain(f"mine:{line}:1: error: expected }}", {"mine": text})
    assert error.reason == (
        "it ends too early; a closing brace or a semicolon is missing (expected })"
        if early
        else "expected }"
    )


@pytest.mark.parametrize("line", [0, 2, 3])
def test_a_line_that_is_not_there_is_not_quoted(line):
    error = explain(f"mine:{line}:1: error: no", {"mine": "int f() {"})
    assert "\n" not in str(error) and error.line == line


@pytest.mark.parametrize(
    "compiled, caret",
    [
        (None, True),
        ({"your code": TEXT}, True),
        ({"your code": TEXT.replace("a", "other")}, True),
        ({"your code": TEXT.replace("bb", "other")}, False),
    ],
)
def test_a_column_counts_only_in_the_line_that_the_learner_wrote(compiled, caret):
    error = explain("your code:2:5: error: no", SOURCES, compiled)
    assert (
        str(error)
        == f"your code, line 2: no\n    int bb;{chr(10) + 8 * ' ' + '^' if caret else ''}"
    )


def test_without_an_error_the_last_six_lines_of_the_compiler_are_shown():
    lines = [f"{number} {'x' * 300}" for number in range(8)]
    tools = ["ninja: stopped", "[1/2] c++", "FAILED: a", "c++ -o", "g++ -o"]
    output = "\n".join(["", *lines[:5], *tools, *lines[5:], *tools, "\n"])
    error = explain(output, SOURCES)
    assert str(error).split("\n") == [
        "The compiler failed:",
        *(f"    {line[:200]}" for line in lines[2:]),
    ]
    assert (error.source, error.line, error.reason, error.output) == (None, None, "", output)


def test_an_error_from_another_process_has_all_its_parts():
    error = pickle.loads(pickle.dumps(CompileError("words", "mine", 3, "why", "all")))
    assert str(error) == "words" and error._render_traceback_() == ["CompileError: words"]
    assert (error.source, error.line, error.reason, error.output) == ("mine", 3, "why", "all")


def test_only_the_librarys_own_assertions_are_told_in_plain_words():
    """test_checks.py has those that learners meet most."""
    printed = "mine: Assertion 'a' failed.\n"
    other = "/usr/include/c++/12/bits/stl_vector.h:1: T f(): Assertion 'it != end()' failed."
    plain = "A container of the C++ library was used in a way that it does not allow."
    assert without_assertions(f"{printed}{other}\nafter") == f"{printed}{plain}\nafter"
