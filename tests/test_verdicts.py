"""The words of a verdict, and which run of an answer it comes from. No process is started."""

import linecache
import types
from dataclasses import replace

import pytest

from lessons_lib import checks, remedies
from lessons_lib.checks import (
    CRASH,
    HANG,
    CheckResult,
    Exercise,
    Failure,
    Form,
    Mistake,
    MistakesError,
    Raised,
)
from lessons_lib.compiler_errors import CompileError
from lessons_processes.isolation import Outcome


def doubled(x):
    return 2 * x


DOUBLES = Exercise(
    id="9.9",
    title="a title",
    answer_name="doubled",
    reference=doubled,
    cases=lambda: [3, 1, 2],
    observe=lambda f, x: f(x),
    size=lambda x: x,
    mistakes=(
        Mistake("squares", "It squares.", lambda x: x * x),
        Mistake("adds", "It adds.", None, also=(lambda x: x + 2, lambda x: x + 3)),
    ),
    hints=("one", "two"),
)
IN_CPP = replace(
    DOUBLES,
    language="cpp",
    is_given=lambda text: text == "given text",
    recognise=lambda text: "adds" if "recognised" in text else None,
    name_from_text=lambda text: "squares" if "squared" in text else None,
)
WRONG = CheckResult("9.9", False, "wrong", "The result is not right.\nmore")


@pytest.fixture
def exercise(monkeypatch):
    """Exercise 9.9 is DOUBLES."""
    monkeypatch.setattr(checks, "find", lambda exercise_id: DOUBLES)
    return DOUBLES


def test_what_an_exercise_has_if_it_says_nothing():
    assert (DOUBLES.language, DOUBLES.points, DOUBLES.time_limit) == ("python", 1, 5.0)
    assert DOUBLES.describe("case") == "'case'" and DOUBLES.show(1, "2") == ("1", "'2'")
    assert DOUBLES.same(1, 1.0) and not DOUBLES.same(1, 2)
    assert DOUBLES.chancy(1) is False and DOUBLES.is_given("text") is False
    assert DOUBLES.recognise("text") is None and DOUBLES.name_from_text("text") is None
    assert DOUBLES.prepare("answer") == "answer" and DOUBLES.arrange("case") == "case"
    assert DOUBLES.hidden(1) == () and DOUBLES.mistakes[0].also == ()
    failure = Failure(0, "1", "2")
    assert (failure.where, failure.suspects) == ("", ()) and Raised("error").where == ""


def test_a_form_has_no_record_of_its_own_and_is_compared_by_the_exercise():
    class Unrecorded(Form):
        pass

    assert Unrecorded().record(0) is None
    assert Unrecorded().gives(lambda recorded, actual: recorded < actual, 1, 2)
    with pytest.raises(NotImplementedError):
        Unrecorded().load()


def test_cases_come_smallest_first_and_those_of_chance_last():
    assert DOUBLES.in_order([3, 1, 2]) == [1, 2, 3]
    assert replace(DOUBLES, chancy=lambda x: x < 3).in_order([2, 3, 1]) == [3, 2, 1]


@pytest.mark.parametrize(
    "wanted, words",
    [
        ("1.99", "There is no exercise '1.99'; the ids here are 1.1, 1.2, "),
        (
            "99.1",
            "There is no exercise '99.1'; the ids here are of the form '1.2', in the lessons ",
        ),
        ("01.1", "There is no exercise '01.1'; the ids here are of the form '1.2', in the"),
        ("1.01", "There is no exercise '1.01'; the ids here are of the form '1.2', in the"),
        ("1.100", "There is no exercise '1.100'; the ids here are of the form '1.2', in the"),
    ],
)
def test_an_id_that_is_not_there_is_one_line(wanted, words):
    with pytest.raises(checks.NoSuchExercise) as caught:
        checks.find(wanted)
    (line,) = caught.value._render_traceback_()
    assert line.startswith(f"NoSuchExercise: {words}")
    assert (", in the lessons 00, 01, " in line) == ("of the form" in line)


def test_an_id_may_come_as_a_number():
    assert checks.find(1.2).id == "1.2"
    assert [exercise.id for exercise in checks.exercises_of(10)][:2] == ["10.1", "10.2"]
    assert [exercise.id for exercise in checks.exercises_of("01")][:2] == ["1.1", "1.2"]
    assert checks.exercises_of("1.7") == checks.exercises_of("1")
    assert checks.exercises_of("summary") == () and checks.exercises_of("100") == ()


def test_exercises_are_in_the_order_of_their_numbers(monkeypatch, tmp_path):
    folder = tmp_path / "lessons_exercises/lesson_03"
    folder.mkdir(parents=True)
    for name in "e3_10_c", "e3_9_b", "e3_1_a", "shared":
        (folder / f"{name}.py").touch()
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    names = [name.rpartition(".")[2] for name in checks._modules("3")]
    assert names == ["e3_1_a", "e3_9_b", "e3_10_c"]
    assert checks._modules("3", "9") == ["lessons_exercises.lesson_03.e3_9_b"]


def test_lessons_are_told_by_two_digits():
    assert checks.lessons()[:3] == ("00", "01", "02")


@pytest.mark.parametrize(
    "sizes, words",
    [
        ({"1.1": 2, "1.3": 1}, "2 for 1.1, 1 for 1.3"),
        ({}, "none for this lesson"),
    ],
)
def test_a_teachers_own_mistakes_are_counted(monkeypatch, capsys, sizes, words):
    class Mistakes(tuple):
        further = ()

    def with_further(exercise_id):
        mistakes = Mistakes()
        mistakes.further = range(sizes.get(exercise_id, 0))
        return types.SimpleNamespace(id=exercise_id, mistakes=mistakes)

    monkeypatch.setattr(checks, "mistakes_folder", lambda: "/home/teacher/mistakes")
    monkeypatch.setattr(
        checks, "exercises_of", lambda lesson: [*map(with_further, ("1.1", "1.2", "1.3"))]
    )
    checks.read_mistakes(["01"])
    assert (
        capsys.readouterr().out == f"Further mistakes from /home/teacher/mistakes: {words}\n"
    )


def test_without_a_teachers_mistakes_nothing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(checks, "mistakes_folder", lambda: None)
    checks.read_mistakes(["01"])
    assert capsys.readouterr().out == ""


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
    assert arguments[3] == {__file__: linecache.getlines(__file__)}
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


def test_a_teachers_file_that_cannot_be_read_is_said_as_it_is(exercise, runs):
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


SHOWN = "case that shows it: 2\n  expected: 4\n  got:      "


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


def judged(monkeypatch, answer, ended=(), sources=(), of=DOUBLES):
    """The verdict as the isolated process finds it, and what it reported."""
    kept, reports = [], []

    def keeping_reserve(function, *arguments, otherwise):
        kept.append(function)
        try:
            return function(*arguments)
        except MemoryError as error:
            return otherwise(error)

    monkeypatch.setattr(checks, "find", lambda exercise_id: of)
    monkeypatch.setattr(checks.one_call, "keeping_reserve", keeping_reserve)
    monkeypatch.setattr(checks.one_call, "keep_printed", lambda begins: kept.append(begins))

    def report(about, waits):
        reports.append((about[0], about[1] is not None, waits))

    verdict = checks._examine("9.9", answer, dict(ended), dict(sources), report)
    return verdict, reports, kept


def test_each_case_is_reported_before_it_runs(monkeypatch):
    verdict, reports, kept = judged(monkeypatch, doubled)
    assert verdict == CheckResult("9.9", True, None, "")
    assert reports == [(0, False, False), (1, False, False), (2, False, False)]
    assert kept == [True, checks._attempt] * 3


def test_a_failure_is_reported_and_waits_for_further_time(monkeypatch):
    verdict, reports, kept = judged(monkeypatch, lambda x: x + 3)
    assert verdict.mistake == "adds"
    # case 0 shows it; on the others the mistakes are told apart
    assert reports == [(0, False, False), (0, True, True), (1, True, True), (2, True, True)]
    assert kept[:4] == [True, checks._attempt, False, False]


def test_a_run_that_ends_late_is_compared_on_all_cases_before(exercise):
    """The second mistake would have shown itself on case 2 already."""
    hangs = [
        Mistake(name, "", lambda x, right=right: HANG if x == 3 else right(x))
        for name, right in (("late", doubled), ("early", lambda x: x + 1))
    ]
    hanging = replace(DOUBLES, mistakes=hangs)
    assert checks._fatal(hanging, 2, HANG).suspects == (("late", 0),)


def test_tensors_are_not_shared_among_threads(monkeypatch):
    import torch

    numbers = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    assert judged(monkeypatch, doubled)[0].passed and numbers == [1]


def test_mistakes_that_have_to_be_built_are_built_where_the_answer_runs(monkeypatch):
    built = replace(DOUBLES, mistakes=(Mistake("built", "Built.", Kept(is_built=True)),))
    wrong = replace(built, reference=lambda x: x)
    assert judged(monkeypatch, doubled, of=wrong)[0].mistake == "built"

    def elsewhere(number, case):
        return 2 * case

    verdict = checks.compare(wrong, lambda number, case: case, elsewhere, lambda about: None)
    assert verdict.mistake == "wrong"
    failure, seen = Failure(0, "1", "2"), [(0, 1, 2)]
    every = checks._every_form(wrong)
    assert checks._named(wrong, failure, every, seen).suspects == ()
    assert checks._suspects(wrong, every, seen) == ()


def test_what_crashed_before_does_not_run_again(monkeypatch):
    tried = []

    def answer(x):
        tried.append(x)
        return 2 * x

    verdict, _, kept = judged(monkeypatch, answer, ended={1: CRASH})
    assert verdict.mistake == "wrong" and tried == [1]
    assert verdict.message.endswith("  got:      the process crashed")
    assert checks._beside not in kept


def test_lines_of_a_cell_are_there_for_words_of_errors(monkeypatch):
    lines = ["def answer(x):\n", "    return x.lenght\n"]
    scope = {}
    exec(compile("".join(lines), "/tmp/ipykernel_7/1.py", "exec"), scope)
    monkeypatch.setattr(linecache, "cache", {})
    verdict, _, _ = judged(
        monkeypatch, scope["answer"], sources={"/tmp/ipykernel_7/1.py": lines}
    )
    assert verdict.message.endswith("\n  raised in line 2: `return x.lenght`")
    assert linecache.cache["/tmp/ipykernel_7/1.py"][0] == sum(map(len, lines))


def test_an_unnamed_answer_is_compared_in_what_it_does_beside_its_result(monkeypatch):
    def slip(reference, subject, passes):
        assert reference is doubled and subject is answer
        assert passes(lambda x: 2 * x, doubled) and not passes(lambda x: x + 1, doubled)
        return "changes-its-input", "It changes its input."

    def answer(x):
        return 7

    monkeypatch.setattr(remedies, "slip", slip)
    verdict, _, kept = judged(monkeypatch, answer)
    assert verdict.mistake == "changes-its-input" and kept[-1] is checks._beside
    assert verdict.message == (
        "It changes its input.\nSmallest case that shows it: 1\n  expected: 2\n  got:      7"
    )


@pytest.mark.parametrize("what", ["nothing is found", "memory is used up"])
def test_what_is_done_beside_changes_no_verdict_if_nothing_is_found(monkeypatch, what):
    def slip(*_):
        if what == "memory is used up":
            raise MemoryError

    monkeypatch.setattr(remedies, "slip", slip)
    verdict, _, _ = judged(monkeypatch, lambda x: 7)
    assert verdict.mistake == "wrong"
    assert verdict.message.startswith("The result is not right.\nSmallest case that shows")


def test_memory_that_an_answer_uses_up_is_a_result(monkeypatch):
    def keeping_reserve(function, *arguments, otherwise):
        return otherwise(MemoryError("used up"))

    monkeypatch.setattr(checks, "find", lambda exercise_id: DOUBLES)
    monkeypatch.setattr(checks.one_call, "keeping_reserve", keeping_reserve)
    monkeypatch.setattr(checks.one_call, "keep_printed", lambda begins: None)
    verdict = checks._examine("9.9", doubled, {}, {}, lambda about, waits: None)
    assert verdict.message.endswith("  got:      MemoryError: used up")


@pytest.mark.parametrize(
    "raised, where, of, verdict",
    [
        (
            "NotImplementedError",
            "",
            doubled,
            ("not-attempted", "`doubled` is still the stub."),
        ),
        (
            "NotImplementedError: Exercise 9.9 of the course",
            "",
            doubled,
            (
                "missing",
                "It calls the course's own answer to exercise 9.9, which is not there when "
                "answers are graded. It may call whatever your notebook defines.",
            ),
        ),
        (
            "NotImplementedError: Exercise 12.34",
            "",
            doubled,
            ("not-attempted", "It calls exercise 12.34, which is still the stub."),
        ),
        (
            "NotImplementedError: later",
            "line 2: `raise NotImplementedError('later')`",
            Outcome,
            (
                "not-attempted",
                "A part of `doubled` is still the stub, in "
                "line 2: `raise NotImplementedError('later')`.",
            ),
        ),
        (
            "NotImplementedError: Exercise 9.9",
            "",
            Outcome,
            ("not-attempted", "`doubled` is still the stub."),
        ),
        (
            "NotImplementedError: Exercise 9.9",
            "line 2",
            doubled,
            ("not-attempted", "`doubled` is still the stub."),
        ),
    ],
)
def test_a_stub_that_an_answer_reaches_has_its_words(raised, where, of, verdict):
    result = Raised(raised)
    result.where = where
    assert checks._is_a_stubs(result)
    assert checks._stub_reached(replace(DOUBLES, reference=of), result) == verdict
    got = checks.compare(
        replace(DOUBLES, reference=of), lambda *_: 0, lambda *_: result, lambda about: None
    )
    assert got == CheckResult("9.9", False, *verdict)


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
    assert not checks._is_a_stubs(result)


class Kept(Form):
    """A form whose results are recorded for the cases in `records`."""

    def __init__(self, records=None, is_built=False, is_recorded=False, does=doubled):
        self.records, self.does, self.loaded = records or {}, does, 0
        self.is_built, self.is_recorded = is_built, is_recorded

    def load(self):
        self.loaded += 1
        return self.does

    def record(self, number):
        return self.records.get(number)


def explained(form, seen, builds=False, same=None):
    exercise = replace(DOUBLES, mistakes=(Mistake("kept", "Kept.", form),))
    if same:
        exercise = replace(exercise, same=same)
    return bool(checks._suspects(exercise, [("kept", 0)], seen, builds))


def test_a_record_explains_a_result_without_a_run():
    form = Kept({0: (1, 5), 1: (2, 6)})
    assert explained(form, [(0, 1, 5), (1, 2, 6)]) and not explained(form, [(1, 2, 5)])
    assert form.loaded == 0


def test_what_is_not_recorded_is_tried():
    form = Kept({0: (1, 2)})
    assert explained(form, [(0, 1, 2), (1, 2, 4)]) and form.loaded == 1
    assert not explained(form, [(0, 1, 2), (1, 2, 5)])


def test_equal_records_are_compared_once():
    compared = []

    def same(recorded, actual):
        compared.append((recorded, actual))
        return recorded == actual

    forms = [Mistake(name, "", Kept({0: (1, 5), 1: (1, 7)})) for name in ("a", "b")]
    exercise = replace(DOUBLES, mistakes=forms, same=same)
    found = checks._suspects(exercise, checks._every_form(exercise), [(0, 1, 5), (1, 2, 7)])
    assert found == (("a", 0), ("b", 0)) and compared == [(5, 5), (7, 7)]


@pytest.mark.parametrize(
    "is_recorded, builds, found, loaded",
    [
        (True, True, True, 0),
        (True, False, True, 0),
        (False, False, False, 0),
        (False, True, True, 1),
    ],
)
def test_a_form_that_has_to_be_built_runs_only_where_it_may(
    is_recorded, builds, found, loaded
):
    form = Kept(is_built=True, is_recorded=is_recorded)
    assert explained(form, [(0, 1, 2)], builds) == found and form.loaded == loaded


def test_few_forms_are_built_and_each_counts_once():
    forms = [Kept(is_built=True) for _ in range(5)]
    exercise = replace(
        DOUBLES, mistakes=[Mistake(f"m{n}", "", form) for n, form in enumerate(forms)]
    )
    seen = [(0, 1, 2), (1, 2, 4)]
    found = checks._suspects(exercise, checks._every_form(exercise), seen, builds=True)
    assert [slug for slug, _ in found] == ["m0", "m1", "m2"]
    assert [form.loaded for form in forms] == [2, 2, 2, 0, 0]


def test_what_a_mistake_prints_while_it_is_tried_is_not_seen(capsys):
    def prints(x):
        print("from the mistake")
        return 2 * x

    assert explained(prints, [(0, 1, 2)]) and capsys.readouterr().out == ""


def test_an_attempt_has_a_result_whatever_it_raises():
    def raising(error):
        def subject(x):
            raise error

        return checks._attempt(DOUBLES, subject, 1)

    assert raising(checks.NoEnd()) is HANG
    assert raising(ValueError("no")) == "ValueError: no"
    assert raising(KeyboardInterrupt()).startswith("KeyboardInterrupt")
    with pytest.raises(SystemExit):
        raising(SystemExit(3))
    assert checks._attempt(DOUBLES, Kept(), 4) == 8


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


@pytest.mark.parametrize("seconds, name", [(1.0, "squares"), (1.1, "adds")])
def test_telling_apart_may_take_a_second_of_work(monkeypatch, seconds, name):
    """On cases 1 and 2 both fit; only case 4 tells them apart."""
    exercise = replace(
        DOUBLES,
        cases=lambda: [1, 2, 4],
        mistakes=(
            Mistake("adds", "It adds.", lambda x: x + x // 2 + x % 2),
            Mistake("squares", "It squares.", lambda x: x * x + (x < 2) - (x == 2)),
        ),
    )
    tried = []

    def attempt(number, case):
        tried.append(case)
        return exercise.mistakes[1].wrong(case)

    monkeypatch.setattr(checks.time, "thread_time", lambda: 7.0 + seconds * (len(tried) > 1))
    verdict = checks.compare(exercise, lambda number, case: case, attempt, lambda about: None)
    assert verdict.mistake == name


@pytest.mark.parametrize("waits, name", [(2, "first"), (1, "second")])
def test_telling_apart_may_wait_in_vain_twice(waits, name):
    """Both mistakes fit until case 5, and some of the cases before are waits in vain."""
    stuck = checks.Stuck("it never comes back")

    def answer(x):
        return stuck if x <= 1 + waits else x + 2

    exercise = replace(
        DOUBLES,
        cases=lambda: range(1, 6),
        mistakes=(
            Mistake("first", "", lambda x: 0 if x == 5 else 1 if x == 1 else answer(x)),
            Mistake("second", "", lambda x: 1 if x == 1 else answer(x)),
        ),
    )
    verdict = checks.compare(
        exercise,
        lambda number, case: 0,
        lambda number, case: exercise.mistakes[1].wrong(case),
        lambda about: None,
    )
    assert verdict.mistake == name


@pytest.mark.parametrize("seconds, found", [(4.9, True), (5.0, False)])
def test_mistakes_are_tried_for_five_seconds_of_work(monkeypatch, seconds, found):
    times = iter([7.0, 7.0 + seconds])
    monkeypatch.setattr(checks.time, "thread_time", lambda: next(times))
    assert explained(doubled, [(0, 1, 2)]) == found
