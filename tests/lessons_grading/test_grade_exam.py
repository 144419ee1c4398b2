"""The hidden exam: what it asks, and the verdict on what comes out of a sandbox."""

import base64
import json
import pickle
from collections import deque
from dataclasses import replace

import pytest

from lessons_grading import hidden_cases
from lessons_grading.hidden_cases import NEW_CASE
from lessons_grading.sandbox_messages import Begun, Case, Finished, Ready, Refused
from lessons_grading.work import Effort
from lessons_lib import checks
from lessons_lib.checks import CRASH, CheckResult, Exercise, Mistake
from lessons_lib.processes.isolation import Outcome

SEED = 7
SECONDS = 10.0


def double(case):
    return 2 * case


def observe(subject, case):
    return subject(case)


def compares_numbers(expected, actual):
    if isinstance(actual, str):
        raise ValueError("not a number")
    return expected == actual


EXERCISE = Exercise(
    id="7.7",
    title="Double",
    answer_name="double",
    reference=double,
    cases=lambda: [500, 5, 1, 3],
    observe=observe,
    size=lambda case: case,
    mistakes=[
        Mistake("adds-one", "It adds one.", lambda case: case + 1),
        Mistake("adds-three", "It adds three.", lambda case: case + 3),
    ],
    hints=(),
    describe=lambda case: f"double({case})",
    same=compares_numbers,
    chancy=lambda case: case >= 500,
    hidden=lambda seed: [600, seed + 20, seed + 10],
)
CASES = [1, 3, 5, 500, 17, 27, 600]  # by size, chancy ones last; then the hidden ones
RIGHT = [2, 6, 10, 1000, 34, 54, 1200]


@pytest.fixture
def asked(monkeypatch):
    """The exam of EXERCISE, with these fields instead of its own."""

    def asked(**fields) -> hidden_cases.Exam:
        monkeypatch.setattr(checks, "find", {"7.7": replace(EXERCISE, **fields)}.get)
        return hidden_cases.exam_of("7.7", SEED)

    hidden_cases.exam_of.cache_clear()
    yield asked
    hidden_cases.exam_of.cache_clear()


def test_the_hidden_cases_follow_the_visible_ones_and_both_are_in_order(asked):
    made = asked()
    assert made.exercise.in_order(made.exercise.cases()) == CASES
    assert made.num_visible == 4 and made.expected == tuple(RIGHT)
    assert made.by_chance == {3, 6}


def test_the_sandbox_gets_the_cases_and_no_answer(asked):
    bare, cases = pickle.loads(base64.b64decode(asked().packed))
    assert [*cases] == CASES and bare.observe(double, 4) == 8
    assert bare.reference is None and [each.wrong for each in bare.mistakes] == [None, None]


def test_hidden_cases_and_those_by_chance_name_no_mistake(asked):
    made = asked()
    chancy = made.exercise.chancy
    assert [chancy(case) for case in made.exercise.cases()] == [False] * 3 + [True] * 4


class Ran:
    """In place of a run: its reports, and how it ended."""

    def __init__(self, reports: list, ending="returned", **about):
        self.reports, self._outcome = deque(reports), Outcome(ending, **about)
        self.outcome, self.limits = None, []

    def next(self, seconds=None):
        self.limits += [] if seconds is None else [seconds]
        if not self.reports:
            self.outcome = self._outcome
        return self.reports.popleft() if self.reports else None


def told(values) -> list:
    """The reports of these results."""
    return [case(number, value) for number, value in enumerate(values)]


def case(number: int, value) -> Case:
    return Case(number, json.dumps(value))


def changed(**values) -> list:
    """The right results, but for these cases."""
    return [values.get(f"of_{case}", right) for case, right in zip(CASES, RIGHT, strict=True)]


def compare(made: hidden_cases.Exam, run: Ran, ended=None, effort=None):
    return hidden_cases.compare(made, run, ended or {}, effort or Effort(), SECONDS)


def verdict(made: hidden_cases.Exam, reports: list, *ending, **about) -> CheckResult:
    found, outcome = compare(made, Ran(reports, *ending, **about))
    assert not checks.crashed_first(outcome)
    return found


def test_right_results_pass(asked):
    assert verdict(asked(), told(RIGHT)) == CheckResult("7.7", True, None, "")


def test_a_wrong_result_fails_and_the_message_shows_the_smallest_visible_case(asked):
    found = verdict(asked(), told(changed(of_3=7, of_5=8, of_17=0)))
    assert (found.passed, found.mistake) == (False, "wrong")
    assert found.message == (
        "The result is not right.\n"
        "Smallest case that shows it: double(3)\n  expected: 6\n  got:      7"
    )


def test_a_mistake_is_named_as_in_the_notebook(asked):
    found = verdict(asked(), told([case + 1 for case in CASES]))
    assert found.mistake == "adds-one" and found.message.startswith("It adds one.\nSmallest")


def test_a_mistake_keeps_its_name_whatever_the_hidden_cases_give(asked):
    only_in_the_visible_cases = [4, 6, 8, 503, 0, 0, 0]
    assert verdict(asked(), told(only_in_the_visible_cases)).mistake == "adds-three"


@pytest.mark.parametrize(
    "wrong, shown",
    [
        ({"of_17": 0}, "Smallest case that shows it: double(17)"),
        ({"of_27": 0}, "Smallest case that shows it: double(27)"),
        ({"of_600": 0}, "First case that shows it: double(600)"),
    ],
)
def test_a_message_says_that_only_a_hidden_case_fails(asked, wrong, shown):
    found = verdict(asked(), told(changed(**wrong)))
    assert found.message.startswith(f"{NEW_CASE}\nThe result is not right.\n{shown}\n")
    assert (found.passed, found.mistake) == (False, "wrong")
    assert NEW_CASE.startswith("It passes the check of the notebook, and not all")


def test_a_visible_case_by_chance_is_called_the_first_and_not_the_smallest(asked):
    found = verdict(asked(), told(changed(of_500=0)))
    assert found.message.startswith(
        "The result is not right.\nFirst case that shows it: double"
    )


def test_only_the_messages_own_words_are_changed(asked):
    words = "First case that shows it: "
    found = verdict(asked(describe=lambda case: words), told(changed(of_17=0)))
    assert found.message.count(words) == 1


def test_a_result_that_cannot_be_compared_or_read_is_wrong(asked):
    for value in ("two", ["tensor", "torch.float32", [3], "?"]):
        assert verdict(asked(), told(changed(of_1=value))).mistake == "wrong"


def test_a_result_is_looked_at_only_for_its_own_case(asked):
    reports = told(RIGHT)
    assert verdict(asked(), [case(3, 0), Begun(1), Finished("returned"), *reports]).passed
    assert not verdict(asked(), [case(1, 2), *reports[1:]]).passed


FORGED = {  # what equals nothing, and must not break what compares and shows it
    "a tensor for a number": ["tensor", "torch.float32", [1], "AAAAAA=="],
    "a type that is quantized": ["tensor", "torch.qint8", [1], "AAAAAA=="],
    "a type that is none": ["tensor", "torch.nn", [1], "AAAAAA=="],
    "more dimensions than numbers": ["tensor", "torch.bool", [1] * 100_000, "AA=="],
    "a shape of words": ["tensor", "torch.bool", ["1"], "AA=="],
    "objects of numpy": ["numpy", "|O", [1], "AAAAAAAAAAA="],
    "numbers in numbers": ["numpy", "f8," * 1_000 + "f8", [1], "AAAAAAAAAAA="],
    "words of another type": ["course", "lessons_lib.checks.types", "Text", ["list", []], {}],
    "a place of another type": [
        *("course", "lessons_lib.checks.types", "Raised", "ValueError: no"),
        {"where": 3},
    ],
    "a class that is no result": ["course", "lessons_lib.checks.types", "Exercise", None, {}],
    "a name of the wrong kind": ["course", 5, 6, 7, 8],
    "nothing": [],
    "a kind of the wrong kind": [[[]], {}],
    "depth": eval("[" * 90 + "]" * 90),
    "an object": {"tuple": 1},
}


@pytest.mark.parametrize("value", FORGED.values(), ids=FORGED)
def test_what_fits_no_kind_of_result_is_wrong_for_good(asked, value):
    """Also where an exercise would make words of it, which raises here."""
    for shown in (repr, lambda value: value + 1):
        made = asked(show=lambda *values, shown=shown: tuple(map(shown, values)))
        assert verdict(made, told(changed(of_1=value))).mistake == "wrong"
    many = Case(0, "[" + "[]," * 300_000 + "1]")
    assert verdict(asked(), [many, *told(RIGHT)[1:]]).mistake == "wrong"


def test_results_that_do_not_come_are_not_right(asked):
    found = verdict(asked(), told(RIGHT)[:2])
    assert not found.passed and found.mistake == "exited"
    assert "ended its process (without a result)" in found.message
    assert "Smallest case that shows it: double(5)" in found.message


def test_an_answer_that_is_built_gets_the_time_for_its_cases_once(asked):
    for language, limits in (("python", []), ("c++", [SECONDS])):
        run = Ran([Ready(), Ready(), *told(RIGHT)])
        assert compare(asked(language=language), run)[0].passed and run.limits == limits
        hidden_cases.exam_of.cache_clear()


def test_an_answer_that_cannot_be_built_has_failed_on_no_case(asked):
    found, outcome = compare(asked(language="c++"), Ran([], "crashed", detail="fault"))
    assert found.mistake == "crashed" and "case that shows it" not in found.message
    assert outcome.last_report is None


def test_what_the_sandbox_refuses_first_counts_and_its_results_do_not(asked):
    refused = [Refused("adds-one", "It adds."), Refused("adds-three", "It adds more.")]
    assert verdict(asked(), refused) == CheckResult("7.7", False, "adds-one", "It adds.")


def test_cases_that_have_a_result_already_are_not_waited_for(asked):
    reports = told(RIGHT)
    found, _ = compare(asked(), Ran([*reports[:1], *reports[2:]]), ended={1: CRASH})
    assert not found.passed
    assert "double(3)\n  expected: 6\n  got:      the process crashed" in found.message


def test_a_crash_before_any_difference_is_told_with_its_case(asked):
    found, crash = compare(asked(), Ran(told(RIGHT)[:2], "crashed", detail="fault"))
    assert crash == Outcome("crashed", detail="fault", last_report=(2, None))
    assert found.mistake == "crashed" and "double(5)" in found.message
    assert "crashed its process (fault)" in found.message and NEW_CASE not in found.message


def test_only_a_crash_before_any_difference_counts_as_one(asked):
    wrong_before = told([2, 9])
    for reports, ending in ((wrong_before, "crashed"), (told(RIGHT)[:2], "timed out")):
        assert not verdict(asked(), reports, ending, detail="so").passed


def test_a_crash_in_a_hidden_case_is_said_to_be_in_a_new_case(asked):
    found, crash = compare(asked(), Ran(told(RIGHT)[:4], "crashed", detail="fault"))
    assert crash.last_report == (4, None)
    assert found.message.startswith(NEW_CASE) and "Smallest case" in found.message


def test_a_difference_in_a_visible_case_counts_although_a_hidden_one_ends_the_run(asked):
    made = asked(chancy=lambda case: False)
    found, _ = compare(made, Ran(told([4, 6]), "crashed", detail="fault"))
    assert "double(1)" in found.message and NEW_CASE not in found.message


ENDINGS = {
    "crashed": (Outcome("crashed", detail="fault"), "crashed", "crashed its process (fault)"),
    "exited": (Outcome("exited", detail="code 3"), "exited", "ended its process (code 3)"),
    "timed out": (Outcome("timed out", detail="5 s"), "timed-out", "an end within 5 s"),
    "returned": (Outcome("returned"), "exited", "its process (without a result)"),
    "flooded": (Outcome("flooded", detail="9"), "exited", "its process (without a result)"),
    "raised": (Outcome("raised", error=ValueError("no")), "wrong", "loaded: ValueError: no"),
}


@pytest.mark.parametrize("outcome, mistake, words", ENDINGS.values(), ids=ENDINGS)
def test_a_run_that_gives_no_verdict_fails(outcome, mistake, words):
    found = hidden_cases.broken(EXERCISE, outcome)
    assert (found.passed, found.mistake) == (False, mistake) and words in found.message
    assert "case that shows it" not in found.message


def test_a_run_that_breaks_in_a_case_shows_it(asked):
    outcome = Outcome("timed out", detail="5 s", last_report=(1, None))
    found = hidden_cases.broken(asked().exercise, outcome)
    assert found.mistake == "timed-out" and "double(3)" in found.message


MISTAKES = dict.fromkeys(["not-attempted", "not-an-answer", "missing", "adds-one"])


@pytest.mark.parametrize("mistake", [*MISTAKES, "full marks"])
def test_a_refusal_names_what_the_check_could_name(mistake):
    refused = hidden_cases.refusal(EXERCISE, Refused(mistake, "words"))
    slug = mistake if mistake in MISTAKES else "wrong"
    assert refused == CheckResult("7.7", False, slug, "words")
