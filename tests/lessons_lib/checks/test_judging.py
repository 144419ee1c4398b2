"""How an answer is judged in its process: its cases, its reports, and its side effects. Here
the process is the one of the tests.
"""

import linecache
from dataclasses import replace

import pytest
import torch

from doubling import DOUBLES, Kept, doubled
from lessons_lib import checks, remedies
from lessons_lib.checks import CRASH, HANG, CheckResult, Failure, Mistake


@pytest.fixture(autouse=True)
def threads_as_before():
    """Judging leaves PyTorch with one thread; the tests after these get theirs back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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


def test_a_run_that_ends_late_is_compared_on_all_earlier_cases():
    """The second mistake would have shown itself on case 2 already."""
    hangs = [
        Mistake(name, "", lambda x, right=right: HANG if x == 3 else right(x))
        for name, right in (("late", doubled), ("early", lambda x: x + 1))
    ]
    hanging = replace(DOUBLES, mistakes=hangs)
    assert checks._fatal(hanging, 2, HANG).suspects == (("late", 0),)


def test_pytorch_has_one_thread_where_an_answer_runs(monkeypatch):
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


def test_an_error_quotes_the_line_of_its_cell(monkeypatch):
    lines = ["def answer(x):\n", "    return x.lenght\n"]
    scope = {}
    exec(compile("".join(lines), "/tmp/ipykernel_7/1.py", "exec"), scope)
    monkeypatch.setattr(linecache, "cache", {})
    verdict, _, _ = judged(
        monkeypatch, scope["answer"], sources={"/tmp/ipykernel_7/1.py": lines}
    )
    assert verdict.message.endswith("\n  raised in line 2: `return x.lenght`")
    assert linecache.cache["/tmp/ipykernel_7/1.py"][0] == sum(map(len, lines))


def test_a_wrong_answer_without_a_name_is_searched_for_side_effects(monkeypatch):
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
def test_a_search_for_side_effects_that_finds_none_changes_no_verdict(monkeypatch, what):
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
