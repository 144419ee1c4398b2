"""The words of a verdict: what is refused before it runs, and what is shown of a case."""

import types
from dataclasses import replace

import pytest

from doubling import DOUBLES, WRONG, doubled
from lessons_lib import checks
from lessons_lib.checks import CheckResult, Raised
from lessons_processes.isolation import Outcome

LIKE_THIS = 'Write it like this: `check("{}", {})`, with nothing around the name.'
REFUSED = [
    (
        "0.1",
        None,
        "not-attempted",
        "`blocks_needed` is still None. Write it in the cell above.",
    ),
    (
        "0.1",
        ...,
        "not-attempted",
        "`blocks_needed` is still Ellipsis. Write it in the cell above.",
    ),
    (
        "1.1",
        " \n",
        "not-attempted",
        "`free_list` is still ' \\n'. Write it in the cell above.",
    ),
    (
        "0.1",
        7,
        "not-an-answer",
        "check('0.1', …) expects the function `blocks_needed`, and got int: 7\n"
        + LIKE_THIS.format("0.1", "blocks_needed"),
    ),
    (
        "0.1",
        types.ModuleType("helpers"),
        "not-an-answer",
        "check('0.1', …) expects the function `blocks_needed`, and got module: "
        "<module 'helpers'>\n" + LIKE_THIS.format("0.1", "blocks_needed"),
    ),
    (
        "3.2",
        checks.NO_ANSWER,
        "not-an-answer",
        "check('3.2', …) expects the class `SoftmaxState`, and got nothing\n"
        + LIKE_THIS.format("3.2", "SoftmaxState"),
    ),
    (
        "1.1",
        "free_list",
        "not-an-answer",
        "check('1.1', …) expects C++ source text, the string `free_list`, "
        "and got str: 'free_list'\n" + LIKE_THIS.format("1.1", "free_list"),
    ),
    (
        "1.1",
        len,
        "not-an-answer",
        "check('1.1', …) expects C++ source text, the string `free_list`, "
        "and got builtin_function_or_method: <built-in function len>\n"
        + LIKE_THIS.format("1.1", "free_list"),
    ),
    (
        "1.1",
        'int f() {\n  throw std::logic_error("Exercise 1.1");\n}',
        "not-attempted",
        'Line 2 of `free_list` is still the stub: throw std::logic_error("Exercise 1.1");',
    ),
    (
        "6.1",
        '#error "Exercise 6.1: write it"',
        "not-attempted",
        'Line 1 of `vector_add` is still the stub: #error "Exercise 6.1: write it"',
    ),
    (
        "1.1",
        "int f();\n  raise NotImplementedError()  \n",  # nbgrader's stub
        "not-attempted",
        "Line 2 of `free_list` is still the stub: raise NotImplementedError()",
    ),
]


@pytest.mark.parametrize("exercise, answer, mistake, words", REFUSED)
def test_an_answer_is_refused_before_it_runs(exercise, answer, mistake, words):
    assert checks.run(exercise, answer) == CheckResult(exercise, False, mistake, words)


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


STUBS = [
    ("", "", doubled, "not-attempted", "`doubled` is still the stub."),
    (": Exercise 9.9", "line 2", doubled, "not-attempted", "`doubled` is still the stub."),
    (": Exercise 9.9", "", Outcome, "not-attempted", "`doubled` is still the stub."),
    (
        ": Exercise 12.34",
        "",
        doubled,
        "not-attempted",
        "It calls exercise 12.34, which is still the stub.",
    ),
    (
        ": later",
        "line 2: `raise NotImplementedError('later')`",
        Outcome,
        "not-attempted",
        "A part of `doubled` is still the stub, in "
        "line 2: `raise NotImplementedError('later')`.",
    ),
    (
        ": Exercise 9.9 of the course",
        "",
        doubled,
        "missing",
        "It calls the course's own answer to exercise 9.9, which is not there when "
        "answers are graded. It may call whatever your notebook defines.",
    ),
]


@pytest.mark.parametrize("words, where, reference, mistake, message", STUBS)
def test_a_stub_that_an_answer_reaches_is_named(words, where, reference, mistake, message):
    """`reference`: our answer, a function or a class."""
    result = Raised(f"NotImplementedError{words}")
    result.where = where
    found = verdict(result, replace(DOUBLES, reference=reference))
    assert found == CheckResult("9.9", False, mistake, message)


@pytest.mark.parametrize(
    "words, where",
    [
        ("NotImplementedError: not for sparse tensors", "line 2: `x.sparse()`"),
        ("ValueError: Exercise 9.9", ""),
        ("ValueError: no", "line 2: `except NotImplementedError:`"),
    ],
)
def test_another_error_is_no_stub(words, where):
    result = Raised(words)
    result.where = where
    found = verdict(result)
    assert found.mistake == "wrong" and words in found.message
    assert found.message.endswith(f"\n  raised in {where}" if where else words)
