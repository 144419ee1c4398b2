"""Names an answer that makes two of an exercise's mistakes at once.

Two edits at a time are made in our answer. A pair fits if its results are the answer's results
on all cases. The pair's mistake that is named is one whose repair makes the shown case right.
"""

import itertools
import time
from collections.abc import Iterator

from lessons_content.exercises.tensors import Values
from lessons_content.mistakes.edits import combined
from lessons_lib import checks

WORK = 2.0  # seconds of this thread's work
BESIDES = " There is another mistake besides."


def find(
    bank, exercise, cases: list, given: list, expected: list, work: float = WORK
) -> tuple[str, str] | None:
    """(slug, message) of the mistake to name, or None.

    cases, given, expected: all cases in order, the answer's results and ours.
    work: seconds after which it gives up.
    """
    pairs = zip(expected, given, strict=True)
    differing = [number for number, pair in enumerate(pairs) if not exercise.same(*pair)]
    if not differing:
        return None
    shown, begun = differing[0], time.thread_time()
    places = dict.fromkeys([*differing, *range(len(cases))])
    shows = _what_shows(bank, exercise.same, shown, given[shown], expected[shown])
    for first, second, text in _texts(bank, shows, _is_of_numbers(given[shown])):
        if time.thread_time() - begun > work:
            return None
        form = bank.form(text)
        if all(
            exercise.same(checks.attempt(exercise, form, cases[number]), given[number])
            for number in places
        ):
            slug = first if shows[first] else second
            return slug, bank.message_of(slug) + BESIDES
    return None


def _what_shows(bank, same, number: int, given, expected) -> dict[str, str]:
    """For each mistake, its result alone on a case: "" if it is our answer's, "all" if it is
    the learner's, "some" if it is another one.
    """
    shows = {}
    for slug, form in bank.first_forms():
        record = bank.records.find(next(iter(form.texts_of(bank.answer)), ""), number)
        if record:
            is_ours, is_given = same(expected, record[1]), same(record[1], given)
            shows[slug] = "" if is_ours else "all" if is_given else "some"
    return shows


def _is_of_numbers(result) -> bool:
    if isinstance(result, tuple | list):
        return all(map(_is_of_numbers, result))
    return isinstance(result, int | float | Values)


def _texts(bank, shows: dict[str, str], both: bool) -> Iterator[tuple[str, str, str]]:
    """(slug, slug, text) of two mistakes that may together give the learner's result.

    First come pairs in which one mistake alone gives the result. Then, if `both`, pairs in
    which each mistake changes the result. That is for numbers, where both changes add up. In
    other results, one mistake may undo the effect that the other one's message describes.
    """
    forms = dict(bank.first_forms())
    pairs = [*itertools.combinations(shows, 2)]
    likely = [pair for pair in pairs if {shows[slug] for slug in pair} == {"", "all"}]
    others = [pair for pair in pairs if both and all(shows[slug] for slug in pair)]
    for pair in (*likely, *others):
        groups = [(slug, (forms[slug],)) for slug in pair]
        for text in [*combined(groups, bank.answer)][:1]:
            yield *pair, text
