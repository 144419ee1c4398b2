"""What all exercises share, so that a file such as e2_1_pieces.py says what is its own."""

import random
import re
from types import ModuleType

from lessons_exercises.mistakes import Bank
from lessons_exercises.words import paragraphs
from lessons_lib.checks import Exercise

# fields of an exercise that go by these names in its file, or in a module of its kind
FIELDS = (
    *("prepare", "arrange", "observe", "describe", "size", "same", "show"),
    *("chancy", "recognise", "name_from_text"),
)


def exercise(
    scope: dict,
    *kinds: ModuleType,
    answer_name: str,
    hints: str,
    also: dict | None = None,
    **own,
) -> Exercise:
    """The exercise that a file defines. `checks.Exercise` explains the fields.

    scope: the file's globals(). A function with a field's name is that field. Its cases are
        CASES, or what cases() gives, and hidden(chance) draws those of grades. Our answer has
        the answer's name. The texts of mistakes may use all names here, and those in `also`.
    kinds: modules that have the fields which exercises of one kind share. They count where the
        file has none; of two kinds, the first one.
    hints: with a blank line between two of them.
    own: fields that are not found by their names.
    """
    lesson, number = re.search(r"\.e(\d+)_(\d+)_\w+$", scope["__name__"]).groups()
    id = f"{lesson}.{number}"
    given = {name: scope[name] for name in FIELDS if name in scope} | own
    for kind in kinds:
        given = {name: vars(kind)[name] for name in FIELDS if name in vars(kind)} | given
    if "cases" not in given:
        given["cases"] = scope.get("cases") or (lambda: scope["CASES"])
    hidden = given.pop("hidden", None) or _first("hidden", scope, *map(vars, kinds))
    names = scope | (also or {})
    return Exercise(
        id=id,
        answer_name=answer_name,
        hidden=lambda seed: hidden(random.Random(seed)),
        hints=paragraphs(hints),
        mistakes=Bank(id, answer_name, scope["__file__"], names, given.get("prepare")),
        **{"reference": scope.get(answer_name)} | given,
    )


def _first(name: str, *scopes: dict):
    return next(scope[name] for scope in scopes if name in scope)
