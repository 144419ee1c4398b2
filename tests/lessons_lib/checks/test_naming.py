"""Which known mistakes explain an answer, and how much is tried to tell them apart."""

from dataclasses import replace

import pytest

from doubling import DOUBLES, Kept, doubled
from lessons_lib import checks
from lessons_lib.checks import HANG, CheckResult, Mistake, Raised
from lessons_processes.isolation import Outcome


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
def test_a_stub_that_an_answer_reaches_is_named(raised, where, of, verdict):
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
    assert found == (("a", 0), ("b", 0))
    assert compared == 2 * [(5, 5)] + 2 * [(7, 7)]  # with and without words, for both forms


class FromElsewhere(Kept):
    """A record of another version of Python, whose errors may have other words."""

    def gives(self, same, recorded, actual):
        return same(recorded.split(":")[0], actual.split(":")[0])


def test_where_words_may_differ_a_mistake_with_the_same_words_comes_first():
    words = {"a": "KeyError: 'a'", "b": "KeyError: 'b'", "c": "TypeError: c"}
    forms = [
        Mistake(name, "", FromElsewhere({0: (n, words[name])})) for n, name in enumerate(words)
    ]
    exercise = replace(DOUBLES, mistakes=forms)

    def named(text):
        found = checks._suspects(exercise, checks._every_form(exercise), [(0, 1, text)])
        return [slug for slug, _ in found]

    assert named("KeyError: 'b'") == ["b", "a"] and named("KeyError: b") == ["a", "b"]
    assert named("TypeError: d") == ["c"] and named("ValueError: c") == []


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
