"""Right answers that differ from ours in form, at least three for each exercise, and other spellings of known mistakes.

Each lesson's module has `RIGHT_ANSWERS`, {exercise id: [answer, …]}, and may have `WRONG_ANSWERS`,
{exercise id: {slug: [answer, …]}}: the mistake as another learner would write it.
"""

import importlib
import pkgutil

import cloudpickle

RIGHT_ANSWERS, WRONG_ANSWERS = {}, {}
for _found in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_found.name}")
    cloudpickle.register_pickle_by_value(_module)  # as functions of a notebook travel
    RIGHT_ANSWERS |= _module.RIGHT_ANSWERS
    WRONG_ANSWERS |= getattr(_module, "WRONG_ANSWERS", {})
