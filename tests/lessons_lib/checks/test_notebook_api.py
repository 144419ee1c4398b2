"""What a learner sees of the verbs of a lesson, and what is kept of it."""

import sys

import pytest

from answers import every_exercise
from lessons_lib import checks, notebook_api
from lessons_lib.checks import progress, saved_answers
from lessons_lib.guide import show_cells
from python_process import python

pytestmark = pytest.mark.usefixtures("learner")


def right(num_tokens, block_size):
    return -(-num_tokens // block_size)


def rounds_down(num_tokens, block_size):
    return num_tokens // block_size


def blocks_needed(num_tokens, block_size):
    return num_tokens // block_size


TITLE = "Exercise 0.1, blocks needed"


def is_saved(exercise: str) -> bool:
    try:
        return bool(saved_answers.load(exercise))
    except saved_answers.NoSavedAnswer:
        return False


@pytest.mark.parametrize("answer", [right, lambda n, size: -(-n // size)])
def test_an_answer_that_passes_is_shown_remembered_and_saved(capsys, answer):
    """Under any name."""
    assert notebook_api.check("0.1", answer) is None
    assert capsys.readouterr().out.startswith(f"✓ {TITLE}: passed\n")
    assert progress.load()["0.1"]["passed"] and is_saved("0.1")


@pytest.mark.parametrize("answer, is_learners", [(blocks_needed, True), (rounds_down, False)])
def test_an_answer_that_is_wrong_is_shown_and_raised(capsys, answer, is_learners):
    """It is remembered if it has the answer's name: a lesson shows wrong ones too."""
    with pytest.raises(notebook_api.CheckFailed) as caught:
        notebook_api.check("0.1", answer)
    assert type(caught.value) is notebook_api.CheckFailed
    assert caught.value.result.mistake == "floor-division"
    assert caught.value._render_traceback_() == ["CheckFailed: exercise 0.1: floor-division"]
    shown = capsys.readouterr().out
    assert shown.startswith(f"✗ {TITLE}: not yet (floor-division)\n")
    assert shown.endswith('One hint at a time: hint("0.1")\n')
    entry = {"0.1": {"passed": False, "mistakes": ["floor-division"], "tries": 1}}
    assert progress.load() == (entry if is_learners else {}) and not is_saved("0.1")


def test_a_stub_is_not_attempted_and_leaves_no_trace(capsys):
    def blocks_needed(num_tokens, block_size):
        raise NotImplementedError("Exercise 0.1")

    with pytest.raises(notebook_api.NotAttempted):
        notebook_api.check("0.1", blocks_needed)
    out = capsys.readouterr().out
    assert out.startswith(f"› {TITLE}: not attempted yet\n") and "press Shift+Enter" in out
    assert progress.load() == {} and not is_saved("0.1")


def test_what_this_machine_cannot_judge_leaves_no_trace(capsys, monkeypatch, tmp_path):
    """No process can start in a folder that is gone."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(notebook_api.NotJudged):
        notebook_api.check("0.1", blocks_needed)
    assert capsys.readouterr().out.startswith(f"› {TITLE}: not judged\n")
    monkeypatch.chdir(tmp_path)
    assert progress.load() == {} and not is_saved("0.1")


def test_an_answer_of_ours_that_another_notebook_runs_is_not_kept(monkeypatch):
    cell = "def blocks_needed(n, size):\n    # BEGIN SOLUTION\n    return -(-n // size)"
    monkeypatch.setattr(sys.modules["__main__"], "In", [cell], raising=False)
    notebook_api.check("0.1", right)
    assert progress.load() == {} and not is_saved("0.1")


# Hints and solutions


def test_hints_come_one_at_a_time_and_each_exercise_has_its_own_count(capsys):
    count = len(checks.find("2.6").hints)
    for number in range(1, count + 1):
        notebook_api.hint("2.6")
        assert f"Hint {number} of {count} for exercise 2.6" in capsys.readouterr().out
    notebook_api.hint("2.7")
    assert "Hint 1 of " in capsys.readouterr().out
    for _ in range(2):
        notebook_api.hint("2.6")
        assert capsys.readouterr().out == (
            f"› Exercise 2.6 has hints 1 to {count}, and no other.\n"
            '  Our own answer: solution("2.6")\n'
        )


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 3, 4])
def test_a_hint_may_be_asked_for_by_its_number(capsys, number):
    hints = checks.find("2.1").hints
    notebook_api.hint("2.1", number)
    out = capsys.readouterr().out
    if 1 <= number <= len(hints):
        head = f"› Hint {number} of {len(hints)} for exercise 2.1\n  {hints[number - 1][:20]}"
        assert out.startswith(head)
    else:
        assert out.startswith(f"› Exercise 2.1 has hints 1 to {len(hints)}, and no other.\n")


@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_solution_shows_our_answer_without_markers(exercise, capsys):
    notebook_api.solution(exercise.id)
    shown = capsys.readouterr().out
    assert exercise.answer_name in shown and "BEGIN SOLUTION" not in shown


def test_a_copy_without_solutions_shows_the_answer_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(show_cells, "SOLUTIONS", tmp_path)
    notebook_api.solution("1.2")
    shown = capsys.readouterr().out
    assert shown.startswith("› One answer to exercise 1.2\n    ") and "throw" in shown
    assert "SOLUTION" not in shown


# Opening


def test_a_lesson_opens_with_its_pictures_and_a_line_of_progress(capsys):
    progress.remember("5.2", True, None)
    pictures = notebook_api.open_lesson("05")
    head, line = capsys.readouterr().out.splitlines()
    assert head == f"› Lesson 05: 1 of {len(checks.exercises_of('05'))} exercises passed"
    assert line.startswith("  □ 5.1 · ■ 5.2 · □ 5.3")
    assert pictures.__name__ == "lessons_content.lesson_05.pictures" and callable(
        pictures.opening
    )


def test_in_a_notebook_it_says_what_it_waits_for(displayed, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "05_metadata.ipynb")
    notebook_api.open_lesson("05")
    first, end, progress_bar = (each["data"]["text/plain"] for each in displayed)
    assert first == "Loading what the lesson needs …" and end == ""
    assert "Lesson 05" in progress_bar


def test_the_summary_opens_without_progress(capsys):
    assert callable(notebook_api.open_lesson("summary").opening)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["torch", "transformers", "lessons_content"])
def test_a_lesson_says_what_is_missing_and_what_to_do(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError) as caught:
        notebook_api.open_lesson("05")
    assert str(caught.value) == (
        f"No module named '{name}'. Close this, and open the course with: make lab"
    )
    assert caught.value.__suppress_context__


def test_a_lesson_that_does_not_exist_is_named():
    with pytest.raises(ModuleNotFoundError, match="lessons_content.lesson_77"):
        notebook_api.open_lesson("77")


def test_a_lesson_counts_a_teachers_mistakes_or_says_where_they_cannot_be_read(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("LESSONS_MISTAKES", str(tmp_path))
    (tmp_path / "9.1.mistakes").write_text("## mine\nMine.\n\n    nothing => something\n")
    # in a process of its own, which has not read the lesson before
    opens = "import lessons_lib; lessons_lib.open_lesson('09')"
    said = python("-c", opens, cwd=tmp_path).stderr
    assert "MistakesError" in said and "9.1.mistakes:4: `nothing` is not" in said
    assert "another exception" not in said  # it says this alone
    (tmp_path / "9.1.mistakes").unlink()
    capsys.readouterr()
    notebook_api.open_lesson("04")
    head = f"Further mistakes from {tmp_path}: none for this lesson\n"
    assert capsys.readouterr().out.startswith(head)
