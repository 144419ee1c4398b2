"""What a learner reads of an exception: in each exercise it is told as one, with the line."""

import __future__

import ast
import linecache
import re

import pytest

from answers import every_exercise, is_built
from lessons_content.mistakes import edits
from lessons_lib import checks

PYTHON = [exercise for exercise in every_exercise() if not is_built(exercise)]
CELL = "<cell of the answer>"


def with_a_slip(exercise):
    """Our answer, each function of which begins with a name that nobody has defined."""
    tree = ast.parse(edits.our_answers()[exercise.id])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.parse("maths").body[0])
    text = ast.unparse(tree)
    linecache.cache[CELL] = (len(text), None, text.splitlines(keepends=True), CELL)
    scope = {**exercise.mistakes.scope, "__name__": "answer"}
    flags = __future__.annotations.compiler_flag
    exec(compile(text, CELL, "exec", flags, dont_inherit=True), scope)
    return scope[exercise.answer_name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("exercise", PYTHON, ids=lambda exercise: exercise.id)
def test_a_name_that_is_missing_is_told_with_the_line(exercise):
    message = checks.run(exercise.id, with_a_slip(exercise)).message
    assert re.match(r"Your \w+ raise", message), message
    assert "NameError: name 'maths' is not defined" in message and "`maths`" in message
