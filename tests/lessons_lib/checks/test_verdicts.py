"""The words of a verdict: what is refused before it runs, and what is shown of a case."""

import types
from dataclasses import replace

import pytest

from doubling import DOUBLES, WRONG, doubled
from lessons_lib import checks
from lessons_lib.checks import CheckResult, Raised
from lessons_lib.processes.isolation import Outcome

FUNCTION, CPP = "the function `blocks_needed`", "C++ source text, the string `free_list`"


@pytest.mark.parametrize(
    "exercise, answer, is_still",
    [
        ("0.1", None, "`blocks_needed` is still None"),
        ("0.1", ..., "`blocks_needed` is still Ellipsis"),
        ("1.1", " \n", r"`free_list` is still ' \n'"),
    ],
)
def test_an_answer_of_nothing_is_not_attempted(exercise, answer, is_still):
    words = f"{is_still}. Write it in the cell above."
    found = checks.run(exercise, answer)
    assert found == CheckResult(exercise, False, "not-attempted", words)


@pytest.mark.parametrize(
    "exercise, answer, expected, got",
    [
        ("0.1", 7, FUNCTION, "int: 7"),
        ("0.1", types.ModuleType("helpers"), FUNCTION, "module: <module 'helpers'>"),
        ("3.2", checks.NO_ANSWER, "the class `SoftmaxState`", "nothing"),
        ("1.1", "free_list", CPP, "str: 'free_list'"),
        ("1.1", len, CPP, "builtin_function_or_method: <built-in function len>"),
    ],
)
def test_what_is_no_answer_is_refused_with_an_example(exercise, answer, expected, got):
    name = expected.split("`")[1]
    words = (
        f"check('{exercise}', …) expects {expected}, and got {got}\n"
        f'Write it like this: `check("{exercise}", {name})`, with nothing around the name.'
    )
    found = checks.run(exercise, answer)
    assert found == CheckResult(exercise, False, "not-an-answer", words)


@pytest.mark.parametrize(
    "exercise, before, line",
    [
        ("1.1", "int f() {\n", 'throw std::logic_error("Exercise 1.1");'),
        ("6.1", "", '#error "Exercise 6.1: write it"'),
        ("1.1", "int f();\n", "raise NotImplementedError()"),  # nbgrader's stub
    ],
)
def test_a_line_of_the_stub_is_named(exercise, before, line):
    name, number = checks.find(exercise).answer_name, 1 + before.count("\n")
    words = f"Line {number} of `{name}` is still the stub: {line}"
    found = checks.run(exercise, f"{before}  {line}  \n}}")
    assert found == CheckResult(exercise, False, "not-attempted", words)


@pytest.mark.parametrize(
    "line", ['throw std::logic_error("Exercise 1.11");', '// throw "Exercise 1.1"']
)
def test_what_is_like_a_stub_is_tried(line):
    assert checks.run("1.1", f"{line}\nint x = ;").mistake == "does-not-compile"


def verdict(actual, of=DOUBLES) -> CheckResult:
    """On an answer that gives `actual`, a result or a function of the case."""
    attempt = actual if callable(actual) else lambda x: actual
    return checks.compare(
        of,
        lambda number, case: 2 * case,
        lambda number, case: attempt(case),
        lambda about: None,
    )


@pytest.mark.parametrize("chancy, which, case", [(False, "Smallest", 1), (True, "First", 3)])
def test_a_verdict_says_first_where_chance_decides_and_smallest_elsewhere(chancy, which, case):
    found = verdict(0, replace(DOUBLES, chancy=lambda x: chancy))
    assert found.message == (
        f"The result is not right.\n{which} case that shows it: {case}\n"
        f"  expected: {2 * case}\n  got:      0"
    )
    assert verdict(doubled) == CheckResult("9.9", True, None, "")


def got(actual, of=DOUBLES) -> str:
    return verdict(actual, of).message.partition("  got:      ")[2]


class Unshowable:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    "actual, shown",
    [
        ("a" * 298, repr("a" * 298)),
        ("a" * 299, "'" + "a" * 298 + "…"),
        (Raised("a" * 800), "a" * 800),
        (Raised("a" * 801), "a" * 799 + "…"),
        ([object(), 1], "[<object object>, 1]"),
        (Unshowable(), "something of type Unshowable that cannot be shown"),
    ],
    ids=["as it is", "cut", "an error", "a long error", "without addresses", "unshowable"],
)
def test_a_long_result_is_cut_and_an_error_has_more_room(actual, shown):
    assert got(actual) == shown


def test_what_cannot_be_shown_as_the_exercise_shows_it_is_shown_plainly():
    def fails(ours, theirs):
        raise ValueError

    exercise = replace(DOUBLES, show=fails)
    assert got("2" * 298, exercise) == repr("2" * 298)
    assert got(Unshowable(), exercise).startswith("something of type Unshowable that")


def test_a_verdict_with_a_name_keeps_it_however_the_run_ended():
    ended = Outcome("timed out", detail="5 s")
    named = replace(WRONG, mistake="squares")
    assert checks.in_general(named, ended) == named
    assert checks.in_general(WRONG, ended) == replace(
        WRONG,
        mistake="timed-out",
        message="Your code did not come to an end within 5 s.\nmore",
    )


def reached(words: str, where: str, of=DOUBLES) -> CheckResult:
    """The verdict on an answer that raises this in that line."""
    result = Raised(words)
    result.where = where
    return verdict(result, of)


def test_an_answer_of_ours_that_is_not_there_is_named():
    found = reached("NotImplementedError: Exercise 9.9 of the course", "")
    assert found.mistake == "missing" and "own answer to exercise 9.9" in found.message


@pytest.mark.parametrize(
    "words, where",
    [
        ("NotImplementedError: not for sparse tensors", "line 2: `x.sparse()`"),
        ("ValueError: Exercise 9.9", ""),
        ("ValueError: no", "line 2: `except NotImplementedError:`"),
    ],
)
def test_another_error_is_no_stub(words, where):
    found = reached(words, where)
    assert found.mistake == "wrong" and words in found.message
    assert found.message.endswith(f"\n  raised in {where}" if where else words)
