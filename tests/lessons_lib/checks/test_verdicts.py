"""The words of a verdict, and which run of an answer it comes from. No process is started."""

import linecache
import types
from dataclasses import replace

import pytest

from doubling import DOUBLES, IN_CPP, SHOWN, WRONG, doubled
from lessons_lib import checks
from lessons_lib.checks import (
    CRASH,
    CheckResult,
    Failure,
    Mistake,
    MistakesError,
    Raised,
)
from lessons_lib.compiler_errors import CompileError
from lessons_processes.isolation import Outcome


@pytest.fixture
def exercise(monkeypatch):
    """Exercise 9.9 is DOUBLES."""
    monkeypatch.setattr(checks, "find", lambda exercise_id: DOUBLES)
    return DOUBLES


REFUSED = [
    (DOUBLES, None, "not-attempted", "`doubled` is still None. Write it in the cell above."),
    (
        DOUBLES,
        ...,
        "not-attempted",
        "`doubled` is still Ellipsis. Write it in the cell above.",
    ),
    (IN_CPP, " \n", "not-attempted", "`doubled` is still ' \\n'. Write it in the cell above."),
    (
        DOUBLES,
        7,
        "not-an-answer",
        "check('9.9', …) expects the function `doubled`, and got int: 7\n"
        'Write it like this: `check("9.9", doubled)`, with nothing around the name.',
    ),
    (
        replace(DOUBLES, reference=Outcome),
        checks.NO_ANSWER,
        "not-an-answer",
        "check('9.9', …) expects the class `doubled`, and got nothing\n"
        'Write it like this: `check("9.9", doubled)`, with nothing around the name.',
    ),
    (
        IN_CPP,
        "doubled",
        "not-an-answer",
        "check('9.9', …) expects C++ source text, the string `doubled`, "
        "and got str: 'doubled'\n"
        'Write it like this: `check("9.9", doubled)`, with nothing around the name.',
    ),
    (
        IN_CPP,
        'int f() {\n  throw std::logic_error("Exercise 9.9");\n}',
        "not-attempted",
        'Line 2 of `doubled` is still the stub: throw std::logic_error("Exercise 9.9");',
    ),
    (
        IN_CPP,
        '#error "Exercise 9.9: write it"',
        "not-attempted",
        'Line 1 of `doubled` is still the stub: #error "Exercise 9.9: write it"',
    ),
    (
        IN_CPP,
        "int f();\n  raise NotImplementedError()  \n",
        "not-attempted",
        "Line 2 of `doubled` is still the stub: raise NotImplementedError()",
    ),
    (
        IN_CPP,
        "given text",
        "not-attempted",
        "`doubled` is still the text that you were given.",
    ),
    (IN_CPP, "int recognised;", "adds", "It adds."),
]


@pytest.mark.parametrize("exercise, answer, mistake, words", REFUSED)
def test_an_answer_is_refused_before_it_runs(monkeypatch, exercise, answer, mistake, words):
    monkeypatch.setattr(checks, "find", lambda exercise_id: exercise)
    monkeypatch.setattr(checks.isolation, "run_isolated", None)  # nothing runs
    assert checks.run("9.9", answer) == CheckResult("9.9", False, mistake, words)


def test_an_answer_that_can_be_tried_is_not_refused():
    assert checks._refuse(DOUBLES, doubled) is None
    other = 'throw std::logic_error("Exercise 9.91");\n// throw "Exercise 9.9"\nint x;'
    assert checks._refuse(IN_CPP, other) is None
    assert checks._refuse(DOUBLES, types).message.startswith(
        "check('9.9', …) expects the function `doubled`, and got module: <module 'types'"
    )


class Runs:
    """A stand-in for isolated runs: what each was asked for, and what comes of it."""

    def __init__(self, *outcomes):
        self.outcomes, self.asked = [*outcomes], []

    def __call__(self, function, *arguments, **named):
        self.asked.append((function, arguments, named))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def runs(monkeypatch):
    def replaced(*outcomes):
        made = Runs(*outcomes)
        monkeypatch.setattr(checks.isolation, "run_isolated", made)
        return made

    return replaced


def test_an_answer_in_python_runs_once(exercise, runs):
    passed = CheckResult("9.9", True, None, "")
    made = runs(Outcome("returned", passed, printed="words"))
    assert checks.run("9.9", doubled) == passed
    ((function, arguments, named),) = made.asked
    assert function is checks._examine and arguments[:3] == ("9.9", doubled, {})
    file = doubled.__code__.co_filename
    assert arguments[3] == {file: linecache.getlines(file)}
    assert named["time_limit"] == 5.0 and named["report"] is True


def test_an_answer_in_cpp_is_built_first_with_a_limit_of_its_own(monkeypatch, runs):
    monkeypatch.setattr(checks, "find", lambda exercise_id: IN_CPP)
    made = runs(Outcome("returned"), Outcome("returned", WRONG, printed="words\n\n"))
    assert checks.run("9.9", "int f();").message == (
        f"{WRONG.message}\nYour code printed:\nwords"
    )
    build, arguments, named = made.asked[0]
    assert (arguments, named) == (("9.9", "int f();"), {"time_limit": 120.0})
    built = []
    monkeypatch.setattr(checks, "find", lambda _: replace(IN_CPP, prepare=built.append))
    assert build(*arguments) is None and built == ["int f();"]
    assert made.asked[1][1] == ("9.9", "int f();", {}, {})
    failure = Failure(0, "1", "2")
    further_time = made.asked[1][2]["on_report"]
    assert further_time((0, failure)) == 5.0 + 5.0 + 3 * 120.0


def test_each_failure_after_a_right_case_begins_further_time(exercise, runs):
    made = runs(Outcome("returned", CheckResult("9.9", True, None, "")))
    checks.run("9.9", doubled)
    further_time, failure = made.asked[0][2]["on_report"], Failure(0, "1", "2")
    given = [further_time((0, failed)) for failed in (None, failure, failure, None, failure)]
    assert given == [None, 10.0, None, None, 10.0]


BROKEN = [
    (
        Outcome("raised", error=CompileError("line 3: no")),
        "does-not-compile",
        "It could not be built.\nline 3: no",
    ),
    (
        Outcome("raised", error=OSError("no room"), printed="x"),
        "wrong",
        "It raised while it was loaded: OSError: no room\nYour code printed:\nx",
    ),
    (
        Outcome("crashed", detail="Aborted", printed="x"),
        "crashed",
        "Your code crashed its process (Aborted).\nYour code printed:\nx",
    ),
    (
        Outcome("exited", detail="exit code 3"),
        "exited",
        "Your code ended its process (exit code 3). An answer returns; it does not exit.",
    ),
    (
        Outcome("timed out", detail="120 s"),
        "timed-out",
        "Your code did not come to an end within 120 s.",
    ),
]


@pytest.mark.parametrize("outcome, mistake, words", BROKEN)
def test_what_cannot_be_built_is_not_run(monkeypatch, runs, outcome, mistake, words):
    monkeypatch.setattr(checks, "find", lambda exercise_id: IN_CPP)
    runs(outcome)
    assert checks.run("9.9", "int f();") == CheckResult("9.9", False, mistake, words)


def test_an_error_in_a_teachers_file_is_raised_as_it_is(exercise, runs):
    error = MistakesError("mistakes.txt:3: no id")
    runs(Outcome("raised", error=error))
    with pytest.raises(MistakesError) as caught:
        checks.run("9.9", doubled)
    assert caught.value is error and error.__suppress_context__


def test_an_answer_that_cannot_be_sent_says_why(exercise, runs):
    runs(TypeError("cannot pickle a lock"))
    assert checks.run("9.9", doubled) == CheckResult(
        "9.9",
        False,
        "not-an-answer",
        "cannot pickle a lock\nYour answer uses an object of the notebook "
        "(a compiled manager, a lock, an open file) where it should use its arguments.",
    )


@pytest.mark.parametrize(
    "outcome, mistake, message",
    [
        (
            Outcome("exited", detail="exit code 3", last_report=(1, None), printed="x"),
            "exited",
            "Your code ended its process (exit code 3). An answer returns; it does not exit.\n"
            f"Smallest {SHOWN}the process ended, exit code 3\nYour code printed:\nx",
        ),
        (
            Outcome("timed out", detail="5 s", last_report=(1, None)),
            "timed-out",
            "Your code did not come to an end within 5 s.\n"
            f"Smallest {SHOWN}no answer within the time limit",
        ),
        (
            Outcome("timed out", detail="5 s", last_report=(2, None)),
            "timed-out",
            "Your code did not come to an end within 5 s.\n"
            "Smallest case that shows it: 3\n  expected: 6\n"
            "  got:      no answer within the time limit",
        ),
    ],
)
def test_a_run_that_ends_early_fails_on_the_case_it_was_on(
    exercise, runs, outcome, mistake, message
):
    runs(outcome)
    assert checks.run("9.9", doubled) == CheckResult("9.9", False, mistake, message)


def test_a_crash_before_any_difference_is_tried_once_more_without_that_case(exercise, runs):
    verdict = CheckResult("9.9", False, "wrong", f"The result is not right.\nFirst {SHOWN}0")
    made = runs(
        Outcome("crashed", detail="Aborted", last_report=(1, None), printed="before"),
        Outcome("returned", verdict, printed="again"),
    )
    result = checks.run("9.9", doubled)
    assert (result.mistake, result.message) == (
        "crashed",
        f"Your code crashed its process (Aborted).\nFirst {SHOWN}0"
        "\nYour code printed:\nbefore",
    )
    assert [asked[1][2] for asked in made.asked] == [{}, {1: CRASH}]


def test_a_crash_that_a_mistake_explains_has_its_name(exercise, runs):
    named = CheckResult("9.9", False, "squares", f"It squares.\nSmallest {SHOWN}0")
    runs(Outcome("crashed", last_report=(0, None)), Outcome("returned", named))
    assert checks.run("9.9", doubled) == named


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("crashed", detail="Aborted"),
        Outcome("crashed", detail="Aborted", last_report=(1, Failure(1, "4", "5"))),
        Outcome("timed out", detail="5 s", last_report=(1, None)),
    ],
)
def test_any_other_end_is_not_tried_again(exercise, runs, outcome):
    made = runs(outcome)
    assert not checks.run("9.9", doubled).passed and len(made.asked) == 1
    assert not checks.crashed_first(outcome)


def test_how_a_run_ends_after_its_first_difference_tells_mistakes_apart(monkeypatch, runs):
    def crashes_on_three(x):
        return CRASH if x == 3 else x + 3

    told = (
        Mistake("adds", "It adds.", lambda x: x + 3),
        Mistake("crashes", "It crashes.", crashes_on_three),
    )
    suspects = (("adds", 0), ("crashes", 0))
    failure = Failure(1, "4", "5", where="line 2: `x + 3`", suspects=suspects)
    runs(Outcome("crashed", detail="Aborted", last_report=(2, failure)))
    monkeypatch.setattr(checks, "find", lambda _: replace(DOUBLES, mistakes=told))
    assert checks.run("9.9", doubled) == CheckResult(
        "9.9",
        False,
        "crashes",
        f"It crashes.\nSmallest {SHOWN}5\n  raised in line 2: `x + 3`",
    )


@pytest.mark.parametrize(
    "text, found",
    [("int squared;", "squares"), ("int plain;", "wrong")],
    ids=("names", "does not"),
)
def test_a_text_names_a_failure_however_the_run_ended(monkeypatch, runs, text, found):
    monkeypatch.setattr(checks, "find", lambda exercise_id: IN_CPP)
    wrong = CheckResult("9.9", False, "wrong", f"The result is not right.\nSmallest {SHOWN}5")
    shown = f"Smallest {SHOWN}5"
    named = {"squares": f"It squares.\n{shown}", "wrong": wrong.message}
    runs(Outcome("returned"), Outcome("returned", wrong))
    assert checks.run("9.9", text) == replace(wrong, mistake=found, message=named[found])
    runs(Outcome("returned"), Outcome("timed out", detail="5 s", last_report=(1, None)))
    assert (checks.run("9.9", text).mistake == "squares") == (found == "squares")


def test_the_lines_of_a_class_are_those_of_the_cell_that_defines_it():
    class Answer:
        size = 3

        def method(self):
            return self.size

    lines = {__file__: linecache.getlines(__file__)}
    assert checks._sources(Answer) == checks._sources(Answer.method) == lines
    assert checks._sources(types.SimpleNamespace()) == checks._sources("text") == {}
    assert checks._sources(type("Empty", (), {"size": 3})) == {}


def test_a_verdict_says_first_where_chance_decides_and_smallest_elsewhere():
    failure = Failure(1, "4", "5")
    for exercise, word in (DOUBLES, "Smallest"), (replace(DOUBLES, chancy=bool), "First"):
        assert checks._verdict(exercise, failure).message == (
            f"The result is not right.\n{word} case that shows it: "
            f"{exercise.in_order(exercise.cases())[1]}\n  expected: 4\n  got:      5"
        )


@pytest.mark.parametrize(
    "length, raised, kept",
    [(300, False, 300), (301, False, 299), (800, True, 800), (801, True, 799)],
)
def test_a_long_result_is_cut_and_an_error_has_more_room(length, raised, kept):
    exercise = replace(DOUBLES, show=lambda ours, theirs: (str(ours), str(theirs)))
    actual = (Raised if raised else str)("a" * length)
    ours, theirs = checks._show(exercise, "e", actual)
    assert ours == "e" and theirs == "a" * kept + "…" * (kept < length)
    assert checks._show(exercise, actual, actual)[0] == theirs


def test_what_cannot_be_shown_as_the_exercise_shows_it_is_shown_plainly():
    def fails(ours, theirs):
        raise ValueError

    class Unshowable:
        def __repr__(self):
            raise ValueError

    exercise = replace(DOUBLES, show=fails)
    assert checks._show(exercise, 1, "2" * 298) == ("1", repr("2" * 298))
    assert checks._show(exercise, "1" * 299, "2" * 299) == (
        "'" + "1" * 298 + "…",
        "'" + "2" * 298 + "…",
    )
    assert checks._show(exercise, 1, Unshowable())[1] == (
        "something of type Unshowable that cannot be shown"
    )


def test_a_short_text_has_eighty_characters_and_no_addresses():
    assert checks._short("a" * 78) == repr("a" * 78)
    assert checks._short("a" * 79) == "'" + "a" * 78 + "…"
    assert checks._short(object()) == "<object object>"


def test_what_an_answer_printed_comes_last_and_is_cut():
    passed = CheckResult("9.9", True, None, "")
    assert checks._with_printed(passed, "words") == passed
    assert checks._with_printed(WRONG, " \n") == WRONG
    printed = checks._with_printed(WRONG, "  words" + "x" * 2_000)
    assert printed.message == (f"{WRONG.message}\nYour code printed:\n  words{'x' * 993}")


def test_a_verdict_with_a_name_keeps_it_however_the_run_ended():
    ended = Outcome("timed out", detail="5 s")
    named = replace(WRONG, mistake="squares")
    assert checks.in_general(named, ended) == named
    assert checks.in_general(WRONG, ended) == replace(
        WRONG,
        mistake="timed-out",
        message="Your code did not come to an end within 5 s.\nmore",
    )
