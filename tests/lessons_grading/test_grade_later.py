"""Answers that call what a later cell defines, and answers that call the course's own."""

import base64
from dataclasses import replace

import cloudpickle
import pytest

from graded import QUICK, SEED, grade, hand_in, needs_sandbox
from lessons_grading import judge
from lessons_grading.notebook import Notebook
from lessons_grading.work import Work
from lessons_lib import checks
from paged_attention.pool import kv_cache
from right_answers import RIGHT_ANSWERS

NOT_HERE = "which is not there when answers are graded. It may call whatever your notebook"
IMPORTS = "from paged_attention.pool.kv_cache import *"
ADD = """
def add_sequence(self, seq_id, num_tokens):
    self.check_new(seq_id)
    if self.blocks_for(num_tokens) > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, 0, [])
    for _ in range(num_tokens):
        self.append_token(seq_id)"""
# by its name, as a method, and in a class of the notebook, which gets its method later
FORK = """
class Helper:
    pass

def fork_sequence(self, seq_id, child_id):
    blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
    self.check_new(child_id)
    for block_id in blocks:
        self.block_manager.increase_ref_count(block_id)
    try:
        Helper().begin(self, child_id, length, blocks)
    except LookupError:
        give_back(self, blocks)
        raise"""
LATER = """
def give_back(manager, blocks):
    for block_id in blocks:
        manager.block_manager.free(block_id)

def begin(helper, manager, seq_id, length, blocks):
    manager.start(seq_id, length, blocks)

Helper.begin = begin"""


@needs_sandbox
def test_an_answer_may_call_what_a_later_cell_defines_and_nothing_of_the_course(tmp_path):
    """As in a notebook, where 2.4 passes its check even before 2.5 is written."""
    scope = dict(vars(kv_cache))
    exec(ADD, scope)
    assert checks.run("2.4", scope["add_sequence"]).passed
    borrowed = (
        "def append_token(self, seq_id):\n"
        "    from paged_attention.pool.kv_cache import PagedAttentionManager as ours\n"
        "    return ours.append_token(self, seq_id)"
    )
    result = grade(
        hand_in(
            tmp_path,
            IMPORTS,
            ADD,
            borrowed,
            FORK,
            "def free_sequence(self, seq_id):\n    return count_pieces(seq_id)",
            "def count_pieces(*arguments):\n    raise NotImplementedError('Exercise 2.1')",
            LATER,
            name="02.ipynb",
        )
    )
    found = {each.exercise: each for each in result.exercises}
    assert found["2.4"].passed and found["2.6"].passed, result
    assert found["2.5"].mistake == "missing" and found["2.5"].message.startswith(
        f"It calls the course's own answer to exercise 2.5, {NOT_HERE}"
    )
    assert found["2.7"].mistake == checks.NOT_ATTEMPTED
    assert found["2.7"].message == "It calls exercise 2.1, which is still the stub."


@needs_sandbox
@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("lesson", checks.lessons())
def test_a_right_answer_gets_its_points_whatever_else_it_calls(lesson):
    """Unless it calls the course's own answer, as one of them does: a sentence says so."""
    exercises = checks.exercises_of(lesson)
    python = [each for each in exercises if each.language == "python"]
    work = Work(Notebook("", lesson, ()), exercises, SEED, replace(QUICK, cell_seconds=20.0))
    borrowed = []
    try:
        for exercise in python:
            for answer in RIGHT_ANSWERS[exercise.id]:
                packed = base64.b64encode(cloudpickle.dumps(answer)).decode()
                work.answers[exercise.id] = [{"pickle": packed}]
                result = judge.grade_exercise(work, exercise)
                assert result.passed or NOT_HERE in result.message, result
                borrowed += [] if result.passed else [exercise.id]
    finally:
        work.close()
    assert borrowed == (["4.4"] if lesson == "04" else [])
