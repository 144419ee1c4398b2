"""Which known mistakes explain an answer, and how much is tried to tell them apart."""

import time
from dataclasses import replace

import pytest

from doubling import DOUBLES, Kept, doubled
from lessons_lib import checks
from lessons_lib.checks import CRASH, Mistake, NoEnd, Raised

HUNDRED = replace(DOUBLES, cases=lambda: range(100), reference=lambda x: x)


def named(answer, mistakes, of=HUNDRED, builds=False) -> tuple[str, list]:
    """The mistake that an answer is found to have, and the cases on which it was tried.

    mistakes: by name, the forms of each.
    """
    tried = []

    def attempt(number, case):
        tried.append(case)
        return answer(case)

    known = [Mistake(name, f"It {name}.", *forms) for name, forms in mistakes.items()]
    verdict = checks.compare(
        replace(of, mistakes=known),
        lambda number, case: of.reference(case),
        attempt,
        lambda about: None,
        builds=builds,
    )
    return verdict.mistake, tried


def adds_one(x):
    return x + 1


def up_to_50(x):
    return x + (x <= 50)


BOTH = {"up-to-50": (up_to_50,), "adds-one": (adds_one,)}


def test_all_cases_tell_mistakes_apart():
    assert named(adds_one, BOTH) == ("adds-one", [*range(100)])
    assert named(up_to_50, BOTH) == ("up-to-50", [*range(100)])


def test_no_further_case_is_tried_when_no_mistake_is_left():
    """Two faults at once fit no single mistake; the check guesses nothing."""
    assert named(lambda x: x + 1 + (x == 7), BOTH) == ("wrong", [*range(8)])


def test_telling_mistakes_apart_ends_after_a_second_of_work():
    def slow(x):
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        return x + 1

    name, tried = named(slow, {"adds-one": (adds_one,), "up-to-50": (up_to_50,)})
    # the first, and four of 0.3 s each: past the 1 s
    assert name == "adds-one" and tried == [*range(5)]


def test_telling_mistakes_apart_ends_after_two_waits_in_vain():
    name, tried = named(
        lambda x: checks.Stuck("never"), {"stuck": (lambda x: checks.Stuck("never"),)}
    )
    assert name == "stuck" and tried == [*range(3)]


def test_a_case_that_a_race_decides_tells_no_mistakes_apart():
    exercise = replace(HUNDRED, chancy=lambda x: x % 2 == 1)
    found = named(lambda x: x + 1 - (x % 2), {"adds-one": (adds_one,)}, exercise)
    assert found == ("adds-one", [*range(0, 100, 2)])


def test_a_further_form_of_a_mistake_explains_an_answer_too():
    """But one form has to explain all cases."""
    forms = {"two-forms": (None, (lambda x: x + 2, adds_one))}
    assert named(adds_one, forms)[0] == "two-forms"
    # what the first form, None, would give
    as_none = Raised("TypeError: 'NoneType' object is not callable")
    assert named(lambda x: as_none, forms)[0] == "wrong"
    assert named(lambda x: x + 1 + (x == 0), forms)[0] == "wrong"


def test_how_a_run_ends_tells_mistakes_apart_as_any_result_does():
    def crashes_later(x):
        return CRASH if x > 3 else x + 1

    mistakes = {"adds-one": (adds_one,), "crashes": (crashes_later,)}
    assert named(crashes_later, mistakes)[0] == "crashes"


def test_a_mistake_that_never_ends_or_raises_or_prints_has_a_result_like_any_other(capsys):
    def never(x):
        print("from the mistake")
        raise NoEnd

    def leaves(x):
        raise KeyboardInterrupt

    mistakes = {"never": (never,), "leaves": (leaves,)}
    assert named(lambda x: checks.HANG, mistakes)[0] == "never"
    assert named(lambda x: Raised("KeyboardInterrupt"), mistakes)[0] == "leaves"
    assert capsys.readouterr().out == ""


# Mistakes that are kept as texts, with records of what they give

TWO = replace(DOUBLES, cases=lambda: [0, 1], reference=lambda x: 7)


def explained(form, results, builds=False) -> bool:
    """Whether a form gives these results on the cases 0 and 1."""
    return named(results.__getitem__, {"kept": (form,)}, TWO, builds)[0] == "kept"


def test_a_record_explains_a_result_without_a_run():
    form = Kept({0: (1, 5), 1: (2, 6)})
    assert explained(form, [5, 6]) and not explained(form, [5, 5])
    assert form.loaded == 0


def test_what_is_not_recorded_is_tried():
    form = Kept({0: (1, 2)})
    assert explained(form, [2, 2]) and form.loaded == 1
    assert not explained(form, [2, 5])


def test_a_form_is_not_tried_where_a_record_tells_already():
    form = Kept({1: (1, 99)})
    assert not explained(form, [7, 2]) and form.loaded == 0  # 7 is right


class FromElsewhere(Kept):
    """A record of another version of Python, whose errors may have other words."""

    def gives(self, same, recorded, actual):
        return same(recorded.split(":")[0], actual.split(":")[0])


@pytest.mark.parametrize(
    "text, name",
    [
        ("KeyError: 'b'", "b"),
        ("KeyError: b", "a"),
        ("TypeError: d", "c"),
        ("ValueError: c", "wrong"),
    ],
)
def test_where_words_may_differ_a_mistake_with_the_same_words_comes_first(text, name):
    words = {"a": "KeyError: 'a'", "b": "KeyError: 'b'", "c": "TypeError: c"}
    forms = {
        name: (FromElsewhere({0: (n, words[name]), 1: (n, words[name])}),)
        for n, name in enumerate(words)
    }
    assert named(lambda x: text, forms, TWO)[0] == name


@pytest.mark.parametrize(
    "is_recorded, builds, found, is_loaded",
    [
        (True, True, True, False),
        (True, False, True, False),
        (False, False, False, False),
        (False, True, True, True),
    ],
)
def test_a_form_that_has_to_be_built_runs_only_where_it_may(
    is_recorded, builds, found, is_loaded
):
    form = Kept(is_built=True, is_recorded=is_recorded)
    assert explained(form, [0, 2], builds) == found and bool(form.loaded) == is_loaded


def test_few_forms_are_built():
    forms = [Kept(is_built=True, does=lambda x: x) for _ in range(3)]
    forms += [Kept(is_built=True) for _ in range(3)]
    found, _ = named(
        doubled, {f"m{n}": (form,) for n, form in enumerate(forms)}, TWO, builds=True
    )
    assert found == "wrong"  # the right one comes too late
    assert [form.loaded > 0 for form in forms] == 3 * [True] + 3 * [False]
