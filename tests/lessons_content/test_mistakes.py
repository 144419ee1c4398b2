"""Mistakes as edits of our answers: each form is refused and named, and records are true."""

import functools
import random

import pytest

from answers import every_exercise, forms_of, is_built
from lessons_content.mistakes import __main__ as command
from lessons_content.mistakes import records
from lessons_content.mistakes.__main__ import AGAIN
from lessons_content.mistakes.bank import Bank, RecordedForm
from lessons_lib import checks
from lessons_lib.checks import result_codec
from verdicts import recorded_verdicts

EXERCISES = [exercise for exercise in every_exercise() if isinstance(exercise.mistakes, Bank)]
BUILT = [exercise for exercise in EXERCISES if is_built(exercise)]
by_id = functools.partial(pytest.mark.parametrize, ids=lambda exercise: exercise.id)
by_exercise = by_id("exercise", EXERCISES)


@pytest.mark.parametrize(
    "respelt",
    [
        pytest.param(False, id="as-ours"),
        pytest.param(True, id="respelt", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled
@by_exercise
def test_each_form_of_each_mistake_is_refused_and_named(exercise, respelt):
    """Those of our own spelling get their own name. In other spellings two mistakes may be
    the same.
    """
    asked = forms_of(exercise, respelt)
    found = recorded_verdicts(exercise, [form for _, form in asked])
    misnamed = [
        f"{form.place}: {slug} {'passes' if verdict.passed else f'is named {verdict.mistake}'}"
        + f"\n{form.text}"
        for (slug, form), verdict in zip(asked, found, strict=True)
        if verdict.passed
        or verdict.mistake != slug
        and (not form.is_respelt or verdict.mistake == "wrong")
    ]
    assert not misnamed, "\n".join(misnamed)


@pytest.mark.sampled
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
@by_id("exercise", [exercise for exercise in EXERCISES if not is_built(exercise)])
def test_the_records_are_what_the_forms_give(exercise, every):
    cases = exercise.in_order(exercise.cases())
    for slug, form in forms_of(exercise)[::every]:
        for number, case in enumerate(cases):
            recorded = form.record(number)
            if exercise.mistakes.records.encoded(form.text)[number] == records.HANGS:
                assert slug in exercise.mistakes.hanging
                continue
            assert recorded, f"{exercise.id} has no record of {slug}. {AGAIN}"
            given = checks.attempt(exercise, form, case)
            assert form.gives(exercise.same, recorded[1], given), (form.place, number)


@pytest.mark.slow
@pytest.mark.sampled
@by_id("exercise", BUILT)
def test_the_records_are_what_some_of_the_forms_give_when_they_are_built(exercise):
    """Others each time that the mistakes change. test_banks.py builds each mistake's first."""
    bank = exercise.mistakes
    # what the text shows by itself, C++ may leave undefined
    every = forms_of(exercise) + forms_of(exercise, respelt=True)
    sure = [form for _, form in every if not exercise.recognise(form.text)]
    chosen = random.Random(bank.source).sample(sure, 5)
    for form in chosen:
        given = command.results_of(exercise, form.text)
        for number, encoded in enumerate(given):
            recorded = form.record(number)
            assert recorded, f"{exercise.id} has no record of {form.place}. {AGAIN}"
            assert form.gives(exercise.same, recorded[1], result_codec.decode(encoded)), (
                form.place,
                number,
            )


@by_exercise
def test_the_records_are_in_step(exercise, capsys):
    assert command.main([exercise.id, "--check"]) == 0, capsys.readouterr().out


def test_all_records_together_are_small():
    sizes = [path.stat().st_size for path in records.FOLDER.iterdir()]
    assert sum(sizes) <= 3_000_000
    assert {path.name for path in records.FOLDER.iterdir()} == {
        records.file_of(exercise.id).name for exercise in EXERCISES
    }


@by_exercise
def test_what_is_recorded_names_as_the_texts_do(exercise):
    """The forms that give different results, in the same order, with the same messages."""
    bank = exercise.mistakes
    quick = {mistake.slug: mistake.message for mistake in bank.mistakes}
    whole = {mistake.slug: mistake.message for mistake in bank.complete}
    assert quick == {slug: whole[slug] for slug in quick}
    assert set(quick) == set(whole)
    with_results = [mistake.slug for mistake in bank.mistakes if mistake.wrong]
    assert with_results == [slug for slug in whole if slug in with_results]
    first = bank.mistakes[0].wrong
    assert isinstance(first, RecordedForm)
    assert first.record(0) == bank.complete[0].wrong.record(0)
