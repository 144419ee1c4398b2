"""What all exercises share, so that a file such as e2_1_pieces.py says what is its own."""

import random
import re
from dataclasses import fields
from typing import Any

from lessons_content.exercises.naming_words import paragraphs
from lessons_content.mistakes.bank import Bank
from lessons_lib.checks import Exercise

FIELDS = {field.name for field in fields(Exercise)}


def exercise(
    scope: dict,
    *kinds: Any,
    answer_name: str,
    hints: str,
    also: dict | None = None,
    **own,
) -> Exercise:
    """The exercise that a file defines. `checks.Exercise` explains the fields.

    scope: the file's globals(). A function with a field's name is that field. Its cases are
        CASES, or what cases() gives, and hidden(chance) draws those of grades. Our answer has
        the answer's name. The texts of mistakes may use all names here, and those in `also`.
    kinds: modules, or what `taking` of calls.py gives, with the fields that exercises of one
        kind share. They count where the file has none; of two kinds, the first one.
    hints: with a blank line between two of them.
    own: fields that are not found by their names.
    """
    lesson, number = re.search(r"\.e(\d+)_(\d+)_\w+$", scope["__name__"]).groups()
    id = f"{lesson}.{number}"
    found = {"reference": scope.get(answer_name)}
    for source in (*map(vars, reversed(kinds)), scope, own):
        table = {"cases": lambda table=source["CASES"]: table} if "CASES" in source else {}
        found |= table | {name: source[name] for name in FIELDS & source.keys()}
    hidden = found.pop("hidden")
    names = scope | (also or {})
    return Exercise(
        id=id,
        answer_name=answer_name,
        hidden=lambda seed: hidden(random.Random(seed)),
        hints=paragraphs(hints),
        mistakes=Bank(id, answer_name, scope["__file__"], names, found.get("prepare")),
        **found,
    )
