"""Each known mistake as a learner meets it: one check, one process, one second to tell the
mistakes apart that fit.

`test_banks.py` takes its verdicts from a process that remembers what the known mistakes do,
and so has longer.
"""

import pytest

from answers import every_exercise, forms_of
from lessons_lib import checks
from right_answers import WRONG_ANSWERS

PYTHON_EXERCISES = [exercise for exercise in every_exercise() if exercise.language == "python"]


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
