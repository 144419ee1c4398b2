"""Finds the known mistakes that explain an answer's results."""

import contextlib
import io
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lessons_lib.checks.types import HANG, Exercise, Failure, Form, NoEnd, Raised
from lessons_lib.processes import error_line, isolation

NAMING_WORK = 5.0  # seconds of work for trying mistakes whose results are not recorded
MOST_BUILDS = 3  # of mistakes in C++ and CUDA whose results are not recorded


def attempt(exercise: Exercise, subject, case):
    """The result of `subject` on `case`. An exception is a result like any other."""
    try:
        return exercise.observe(subject.load() if isinstance(subject, Form) else subject, case)
    except NoEnd:
        return HANG
    except SystemExit:
        raise
    except BaseException as error:
        return raised(error)


def raised(error: BaseException) -> Raised:
    """An exception as a result, with the learner's line that it comes from."""
    result = Raised(isolation.describe_error(error))
    result.where = error_line.words_of(error)
    return result


def failure_of(exercise: Exercise, number: int, expected, actual) -> Failure:
    where = actual.where if isinstance(actual, Raised) else ""
    return Failure(number, *both_as_text(exercise, expected, actual), where)


def with_suspects(
    exercise: Exercise, failure: Failure, candidates, seen, builds: bool = False
) -> Failure:
    """The failure, with the candidates that explain every result as its suspects."""
    return replace(failure, suspects=_suspects(exercise, candidates, seen, builds))


def every_form(exercise: Exercise) -> tuple[tuple[str, int], ...]:
    return tuple(
        (mistake.slug, form)
        for mistake in exercise.mistakes
        for form in range(1 + len(mistake.also))
    )


def _suspects(
    exercise: Exercise,
    candidates: Iterable[tuple[str, int]],
    seen: list[tuple[int, Any, object]],
    builds: bool = False,
) -> tuple[tuple[str, int], ...]:
    """The (slug, form) pairs in `candidates` that explain every result. Pairs whose recorded
    results are the same in each word come first.

    A form has to explain the results on all cases. A form without a record is tried, until all
    trials together have taken NAMING_WORK or MOST_BUILDS; after that, such a form explains
    nothing. A form that has to be built is not tried on cases that its record lacks.

    seen: the number of each case, the case, and the answer's result.
    """
    forms = {mistake.slug: (mistake.wrong, *mistake.also) for mistake in exercise.mistakes}
    equal: dict[tuple[int, int], int] = {}  # by case and record: the value of `recorded_fit`
    begun, built = time.thread_time(), set[int]()

    def recorded_fit(form, number, actual) -> int | None:
        """2 if both results are the same, 1 if the same error has other words, else 0. None
        if nothing is recorded.
        """
        record = form.record(number) if isinstance(form, Form) else None
        if record is None:
            return None
        key, recorded = record
        if (number, key) not in equal:
            given = bool(form.gives(exercise.same, recorded, actual))
            equal[number, key] = given + bool(given and exercise.same(recorded, actual))
        return equal[number, key]

    def fits_when_tried(form, case, actual) -> bool:
        if isinstance(form, Form) and form.is_built:
            if form.is_recorded or not builds:
                return form.is_recorded
            built.add(id(form))
        has_time = time.thread_time() - begun < NAMING_WORK and len(built) <= MOST_BUILDS
        return bool(has_time and exercise.same(attempt(exercise, form, case), actual))

    def least_fit(form) -> int:
        """Of all results. A form is tried only if all records fit, because that takes long."""
        least, to_try = 2 if form is not None else 0, []
        for number, case, actual in seen:
            its = least and recorded_fit(form, number, actual)
            if its is None:
                to_try.append((case, actual))
            else:
                least = min(least, its)
        is_fit = least and all(fits_when_tried(form, *about) for about in to_try)
        return least if is_fit else 0

    with contextlib.redirect_stdout(io.StringIO()):  # a mistake may print too
        fits = [((slug, form), least_fit(forms[slug][form])) for slug, form in candidates]
    return tuple(pair for least in (2, 1) for pair, its in fits if its == least)


def both_as_text(exercise: Exercise, expected, actual) -> tuple[str, str]:
    """Both results as text. The text is the same on every run."""
    try:
        ours, theirs = exercise.show(expected, actual)
        length = 800 if isinstance(actual, Raised) else 300  # an error needs more room
        return cut(ours, length), cut(theirs, length)
    except BaseException:
        return short(expected, 300), short(actual, 300)


def short(value, length: int = 80) -> str:
    try:
        return cut(repr(value), length)
    except BaseException:
        return f"something of type {type(value).__name__} that cannot be shown"


def cut(text: str, length: int) -> str:
    """The text, shortened and without the memory addresses that Python puts into some."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= length else text[: length - 1] + "…"
