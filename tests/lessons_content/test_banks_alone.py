"""Each known mistake as a learner meets it: one check, one process, one second to tell the
mistakes apart that fit. And our answer as quick as a learner expects it.

`test_banks.py` takes its verdicts from a process that remembers what the known mistakes do,
and so has longer.
"""

import time

import pytest

from answers import every_exercise, forms_of, our_answer
from lessons_lib import checks
from right_answers import WRONG_ANSWERS

EXERCISES = every_exercise()
PYTHON_EXERCISES = [exercise for exercise in EXERCISES if exercise.language == "python"]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("exercise", PYTHON_EXERCISES, ids=lambda exercise: exercise.id)
def test_each_known_mistake_is_named_in_a_process_of_its_own(exercise):
    answers = [(slug, form.load()) for slug, form in forms_of(exercise)]
    answers += [
        (slug, answer)
        for slug, spelt in WRONG_ANSWERS.get(exercise.id, {}).items()
        for answer in spelt
    ]
    named = [(slug, checks.run(exercise.id, answer).mistake) for slug, answer in answers]
    assert [(slug, name) for slug, name in named if name != slug] == []


@pytest.mark.alone
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_a_check_answers_at_once_when_it_is_built(exercise):
    """The best of three. Most take a tenth of a second, and 7.3 half a second."""
    answer = our_answer(exercise)
    times = []
    limit = 3.0
    checks.run(exercise.id, answer)
    while len(times) < 3 and min(times, default=9) > limit:
        started = time.monotonic()
        checks.run(exercise.id, answer)
        times.append(time.monotonic() - started)
    assert min(times) < limit
