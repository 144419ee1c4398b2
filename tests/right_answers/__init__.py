"""Right answers that differ from ours in form, at least three for each exercise, and other spellings of known mistakes.

Each lesson's module has `RIGHT_ANSWERS`, {exercise id: [answer, …]}, and may have `WRONG_ANSWERS`,
{exercise id: {slug: [answer, …]}}: the mistake as another learner would write it. A long lesson has a second module, named
by what its exercises are about. `…_second` and `…_third` are what further learners wrote, all over the lesson.
"""

import collections
import importlib
import pkgutil

import cloudpickle

RIGHT_ANSWERS = collections.defaultdict(list)
WRONG_ANSWERS = {}
for _found in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_found.name}")
    cloudpickle.register_pickle_by_value(_module)  # as functions of a notebook travel
    for _id, _answers in _module.RIGHT_ANSWERS.items():
        RIGHT_ANSWERS[_id].extend(_answers)
    for _id, _by_slug in getattr(_module, "WRONG_ANSWERS", {}).items():
        for _slug, _answers in _by_slug.items():
            WRONG_ANSWERS.setdefault(_id, {}).setdefault(_slug, []).extend(_answers)
