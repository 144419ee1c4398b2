"""What all exercises share, so that a file such as e2_1_pieces.py says what is its own."""

import inspect
import random
import re
import sys
from dataclasses import fields
from types import ModuleType

from lessons_content.exercises.naming_words import paragraphs
from lessons_content.mistakes.bank import Bank
from lessons_lib.checks import Exercise

FIELDS = {field.name for field in fields(Exercise)}


def exercise(
    scope: dict,
    *kinds: ModuleType,
    answer_name: str = "",
    also: dict | None = None,
    **own,
) -> Exercise:
    """The exercise that a file defines. `checks.Exercise` explains the fields.

    scope: the file's globals(). Its docstring has the title, after "Exercise 2.1: ", and then
        the hints, each a paragraph. A function with a field's name is that field. Its cases
        are CASES, or what cases() gives, and hidden(chance) draws those of grades. Our answer
        has the answer's name, and a case is described as its call. The texts of mistakes may
        use all names here, those in `also`, and those of the module that our answer is in.
    kinds: modules that have the fields which exercises of one kind share. They count where the
        file has none; of two kinds, the first one.
    answer_name: not needed where it is the name of the reference.
    own: fields that are not found by their names.
    """
    lesson, number = re.search(r"\.e(\d+)_(\d+)_\w+$", scope["__name__"]).groups()
    id = f"{lesson}.{number}"
    answer = scope.get(answer_name)
    found = {"reference": answer, "describe": lambda case: as_call(answer, case)}
    for source in (*map(vars, reversed(kinds)), scope, own):
        table = {"cases": lambda table=source["CASES"]: table} if "CASES" in source else {}
        found |= table | {name: source[name] for name in FIELDS & source.keys()}
    hidden = found.pop("hidden")
    heading, *hints = paragraphs(scope["__doc__"])
    found = {"title": heading.partition(": ")[2].rstrip("."), "hints": tuple(hints)} | found
    if isinstance(found["hints"], str):  # files that have no hints in their docstring yet
        found["hints"] = paragraphs(found["hints"])
    answer_name = answer_name or found["reference"].__name__
    names = _names_beside(found["reference"]) | scope | (also or {})
    return Exercise(
        id=id,
        answer_name=answer_name,
        hidden=lambda seed: hidden(random.Random(seed)),
        mistakes=Bank(id, answer_name, scope["__file__"], names, found.get("prepare")),
        **found,
    )


def as_call(answer, case) -> str:
    """A case as a call: "blocks_needed(num_tokens=17, block_size=16)". Lists have no names."""
    arguments = case if isinstance(case, tuple) else (case,)
    words = (
        str(argument) if isinstance(argument, list) else f"{name}={argument}"
        for name, argument in zip(inspect.signature(answer).parameters, arguments)
    )
    return f"{answer.__name__}({', '.join(words)})"


def _names_beside(answer) -> dict:
    """The names of the module that an answer is in."""
    module = sys.modules.get(getattr(inspect.unwrap(answer), "__module__", ""))
    return dict(vars(module)) if module else {}
