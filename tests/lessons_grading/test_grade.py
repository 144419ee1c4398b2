"""Honest submissions: right answers get their points, and mistakes the check's names."""

import base64
import json
import shutil
from dataclasses import replace

import cloudpickle
import msgspec
import pytest

import added_method
from answers import attempt, forms_of, our_answer, own_mistakes, wrong_answer
from graded import (
    RIGHT,
    SEED,
    grade,
    hand_in,
    mistakes,
    needs_sandbox,
    passed,
    solution_of,
)
from lessons_grading import hidden_cases, judge
from lessons_grading.grades import SubmissionGrade
from lessons_grading.notebook import Notebook, read_notebook
from lessons_grading.sandbox import Limits
from lessons_grading.work import Work
from lessons_lib import checks
from lessons_lib.checks import naming, result_codec
from lessons_lib.paths import NOTEBOOKS, SOLUTIONS
from right_answers import RIGHT_ANSWERS

LESSONS = checks.lessons()
USUAL = Limits()


SLOW = pytest.mark.slow(nightly=True), pytest.mark.sampled


def by_lesson(*quick: str):
    """All lessons, of which those that are not `quick` take 10 s and more."""
    return pytest.mark.parametrize(
        "lesson",
        [pytest.param(lesson, marks=[] if lesson in quick else SLOW) for lesson in LESSONS],
    )


def notebook_of(folder, lesson: str):
    (path,) = folder.glob(f"{lesson}_*.ipynb")
    return path


@needs_sandbox
@by_lesson("00")
def test_the_solution_of_a_lesson_gets_all_points_without_an_event(lesson):
    result = grade(notebook_of(SOLUTIONS, lesson), USUAL)
    assert result.lesson == lesson and not result.events
    assert not [each for each in result.exercises if not each.passed]
    assert sum(each.earned for each in result.exercises) == sum(
        each.points for each in checks.exercises_of(lesson)
    )


@needs_sandbox
@by_lesson("00")
def test_a_lesson_that_nobody_has_written_in_gets_nothing(lesson):
    result = grade(notebook_of(NOTEBOOKS, lesson), USUAL)
    assert mistakes(result) == dict.fromkeys(
        [each.id for each in checks.exercises_of(lesson)], checks.NOT_ATTEMPTED
    )
    assert not any(each.earned for each in result.exercises)


@needs_sandbox
def test_exercises_are_found_wherever_their_answers_are(tmp_path):
    """Without metadata, moved, copied, split, deleted, renamed, imported: one lesson with all
    of it.
    """
    needed = (
        "from torch import Tensor\nfrom lessons_lib import check\n"
        "from paged_attention.validate import check_write\n"
    )
    result = grade(
        hand_in(
            # moved to the front, with the import that it needs
            tmp_path,
            needed + solution_of("2.2"),
            # copied, and the copy is not right
            solution_of("2.1"),
            "def count_pieces(tensor):\n    return None",
            # split
            "def write_kv(*arguments):\n    return write(*arguments)",
            solution_of("2.3").replace("write_kv", "write"),
            "from paged_attention.pool.kv_cache import PagedAttentionManager\n"
            "add_sequence = PagedAttentionManager.add_sequence",
            # handed in by another name
            "def my_append(self, seq_id):\n    raise KeyError\ncheck('2.5', my_append)",
            "def fork_sequence(self, seq_id, child_id):\n"
            "    raise NotImplementedError('Exercise 2.6')",
            "import threading\nlock = threading.Lock()\ndef free_sequence(self, seq_id):\n"
            "    lock.acquire()",
            # its name, used for something else
            "for count_pieces in range(20): check('2.1', count_pieces)",
            name="homework.ipynb",
        )
    )
    assert result.lesson == "02"
    assert mistakes(result) == {
        "2.1": None,
        "2.2": None,
        "2.3": None,
        "2.4": "missing",
        "2.5": "wrong",
        "2.6": checks.NOT_ATTEMPTED,
        "2.7": "not-an-answer",
    }
    messages = {each.exercise: each.message for each in result.exercises}
    assert "the course's own" in messages["2.4"] and "cannot be sent" in messages["2.7"]


@needs_sandbox
def test_magics_work_and_a_later_helper_is_found(tmp_path):
    result = grade(
        hand_in(
            tmp_path,
            "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
            "plt.show()",
            "%%writefile mine.py\ndef up(a, b):\n    return -(-a // b)",
            "!ls",
            "x = await __import__('asyncio').sleep(0, 3)",
            "def blocks_needed(num_tokens, block_size):\n"
            "    return helper(num_tokens, block_size)",
            "import mine\ndef helper(a, b):\n    return (a + b - 1) // b",
        ),
        USUAL,
    )
    assert passed(result)["0.1"] and result.events == ()


@needs_sandbox
def test_a_method_that_was_added_to_the_notebooks_class_comes_with_the_answer(tmp_path):
    result = grade(hand_in(tmp_path, added_method.CELL, name="02_block_tables.ipynb"))
    assert passed(result)["2.7"]


@needs_sandbox
def test_an_answer_that_knows_the_cases_by_heart_fails_on_the_hidden_ones(tmp_path):
    known = {case: checks.find("0.1").reference(*case) for case in checks.find("0.1").cases()}
    result = grade(
        hand_in(
            tmp_path,
            f"known = {known}\ndef blocks_needed(num_tokens, block_size):\n"
            "    return known.get((num_tokens, block_size), 1)",
        )
    )
    graded = result.exercises[0]
    assert (graded.exercise, graded.mistake, graded.earned) == ("0.1", "wrong", 0)
    assert graded.message.startswith(hidden_cases.NEW_CASE)
    assert "Smallest case that shows it: blocks_needed(" in graded.message
    assert checks.run(
        "0.1", lambda num_tokens, block_size: known.get((num_tokens, block_size), 1)
    ).passed


@by_lesson("00")
def test_a_grade_names_each_mistake_as_the_check_does(lesson):
    """All mistakes of the bank, and the right answers.

    Without a sandbox, because they call the course's own answers if they can.
    """
    exercises = checks.exercises_of(lesson)
    handed_in = [
        (exercise, mistake.slug, wrong_answer(exercise, mistake))
        for exercise in exercises
        for mistake in own_mistakes(exercise)
    ]
    handed_in += [
        (exercise, None, answer)
        for exercise in exercises
        for answer in (our_answer(exercise), *RIGHT_ANSWERS[exercise.id])
    ]
    work = Work(Notebook("", lesson, ()), exercises, SEED, replace(USUAL, sandboxed=False))
    try:
        for exercise, mistake, answer in handed_in:
            work.answers[exercise.id] = [packed(answer)]
            result = judge.grade_exercise(work, exercise)
            assert (result.mistake, result.passed) == (
                mistake,
                mistake is None,
            ), result.message
            assert hidden_cases.NEW_CASE not in result.message
    finally:
        work.close()


def packed(answer) -> dict:
    """As the worker packs it, except that it does not refuse the course's own answers."""
    return (
        {"text": answer}
        if isinstance(answer, str)
        else {"pickle": base64.b64encode(cloudpickle.dumps(answer)).decode()}
    )


@pytest.mark.parametrize(
    "source, name, lesson",
    [
        ('check("6.1", vector_add)', "01_a.ipynb", "06"),
        ("class SoftmaxState:\n    pass", "01_a.ipynb", "03"),
        ("vector_add = 'text'", "a.ipynb", "06"),
        ("x = 1", "homework_07_final.ipynb", "07"),
        ("x = 1", "2024.ipynb", None),
    ],
)
def test_the_lesson_is_told_by_its_cells_and_then_by_the_file(tmp_path, source, name, lesson):
    notebook = read_notebook(hand_in(tmp_path, source, name=name))
    assert notebook.lesson == lesson and bool(notebook.problem) == (lesson is None)


def test_a_notebook_of_no_lesson_has_no_exercises(tmp_path):
    result = grade(hand_in(tmp_path, "x = 1", name="a.ipynb"))
    assert (result.lesson, result.exercises) == (None, ())
    assert result.events == ("nothing in this notebook says which lesson it is",)


@needs_sandbox
def test_grades_survive_json_and_a_copy_has_the_same_digest(tmp_path):
    path = hand_in(tmp_path, RIGHT)
    result = grade(path)
    assert msgspec.json.decode(msgspec.json.encode(result), type=SubmissionGrade) == result
    copy = shutil.copy(path, tmp_path / "copy_00.ipynb")
    assert read_notebook(copy).digest == result.digest


@pytest.mark.sampled
@pytest.mark.parametrize(
    "exercise",
    [exercise for lesson in LESSONS for exercise in checks.exercises_of(lesson)],
    ids=lambda exercise: exercise.id,
)
def test_results_come_out_of_the_sandbox_as_they_were(exercise):
    """The same for the comparison and in messages: ours, and those of each mistake."""
    forms = [
        exercise.reference,
        *(form for _, form in forms_of(exercise)),
    ]
    for number, case in enumerate(exercise.in_order(exercise.cases())[:4]):
        expected = checks.attempt(exercise, exercise.reference, case)
        for result in (attempt(exercise, form, number, case) for form in forms):
            there = result_codec.decode(json.loads(json.dumps(result_codec.encode(result))))
            assert exercise.same(expected, there) == exercise.same(expected, result)
            assert naming.both_as_text(exercise, expected, there) == naming.both_as_text(
                exercise, expected, result
            )


@pytest.mark.parametrize(
    "data",
    [
        ["course", "os", "system", None, {}],
        ["course", "lessons_lib.checks.registry", "find", None, {}],
        ["course", "lessons_content", 3],
        ["course", "lessons_lib.checks.types", "Exercise", None, {}],
        [
            "course",
            "lessons_lib.processes.isolation",
            "Outcome",
            None,
            dict.fromkeys(("ending", "value", "error", "detail", "printed", "last_report")),
        ],
        ["set", list(range(3_000))],
        ["dict", [[number, 0] for number in range(3_000)]],
        ["tensor", "torch.load", [1], "AAAA"],
        ["numpy", "O", [1], "AAAA"],
        ["tensor", "torch.float32", [1 << 40], "AAAA"],
        ["dict", [[["list", []], 1]]],
        ["tuple"],
        ["set", [["list", []]]],
        [],
    ],
)
def test_what_is_no_result_is_refused(data):
    assert isinstance(hidden_cases.decode(data), result_codec.Foreign)


def test_a_result_that_cannot_be_sent_equals_nothing():
    holds_itself = []
    holds_itself.append(holds_itself)
    for value in (holds_itself, object(), lambda: 0, 10**5_000):
        there = result_codec.decode(json.loads(json.dumps(result_codec.encode(value))))
        assert isinstance(there, result_codec.Foreign) and there != value and repr(there)


@needs_sandbox
def test_a_wrong_answer_that_a_lesson_checks_to_show_it_is_not_the_students(tmp_path):
    graded = grade(
        hand_in(
            tmp_path,
            "from lessons_lib import check",
            RIGHT.replace("-(-num_tokens // block_size)", "1.5"),
            "check('0.1', lambda num_tokens, block_size: num_tokens // block_size)",
        )
    )
    assert graded.exercises[0].message.endswith("got:      1.5, of type float")
