"""A file of right and wrong answers: what it may say, and that an error names its line."""

import inspect

import cloudpickle
import pytest

import right_answers
from answers import every_exercise
from lessons_lib import checks
from lessons_lib.checks import MistakesError

RIGHT = "## right (by floor)\n    return -(-num_tokens // block_size)\n"


def read(folder, text: str, exercise: str = "0.1"):
    file = folder / "e0_1_test.answers"
    file.write_text(text, encoding="utf-8")
    return right_answers.read(file, checks.find(exercise))


def test_a_file_is_that_of_an_exercise():
    files = {right_answers.answers_file(exercise) for exercise in every_exercise()}
    assert set(right_answers.HERE.rglob("*.answers")) == files


def test_an_edit_changes_the_text_above_it_and_first_our_answer(tmp_path):
    shared, answers = read(
        tmp_path,
        "## shared\n    import math\n    def up(x):\n        return math.ceil(x)\n"
        "## adds-one: return => return 1 +\n    or return => return 7 +\n"
        "## right: return up(num_tokens / block_size)\n"
        "## rounds-down: up => int\n"
        "## blocks-listed\n    def blocks_needed(num_tokens, block_size):\n"
        "        return [num_tokens]\n    or blocks_needed = print\n",
    )
    assert "math.ceil" in shared
    assert [answer.slug for answer in answers] == (
        ["adds-one"] * 2 + ["right", "rounds-down"] + ["blocks-listed"] * 2
    )
    head = "def blocks_needed(num_tokens, block_size):\n"
    assert [answer.text for answer in answers[2:]] == [
        f"{head}    return up(num_tokens / block_size)\n",
        f"{head}    return int(num_tokens / block_size)\n",
        f"{head}    return [num_tokens]\n",
        "blocks_needed = print\n",
    ]
    loaded = [answer.load(checks.find("0.1"), shared) for answer in answers]
    assert loaded[2](17, 16) == 2 and loaded[5] is print


def test_an_answer_travels_to_another_process_and_keeps_its_lines(tmp_path):
    shared, (answer,) = read(
        tmp_path,
        "## shared\n    def up(a, b):\n        return -(-a // b)\n"
        "## right: return up(num_tokens, block_size)\n",
    )
    function = answer.load(checks.find("0.1"), shared)
    assert inspect.getsource(function) == answer.text
    assert cloudpickle.loads(cloudpickle.dumps(function))(17, 16) == 2
    assert checks.run("0.1", function).passed


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "## adds-one\n    block_sise => 7\n",
            "answers:4: `block_sise` is 0 times in the text",
        ),
        (
            "## adds-one: return => yield\n    return => pass\n",
            "answers:4: `return` is 0 times",
        ),
        ("## adds-one: - => +\n", "answers:3: `-` is 2 times in the text above"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_line(tmp_path, text, message):
    with pytest.raises(MistakesError, match="e0_1_test.") as error:
        read(tmp_path, RIGHT + text)
    assert message in str(error.value)
