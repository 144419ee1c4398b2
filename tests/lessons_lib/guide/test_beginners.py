"""What beginners run into in their first hour: they are told what to do, each time."""

import json

import pytest

import added_method
from lessons_lib import CompileError, checks
from lessons_lib.guide import restart, show_cells

RUN_IT = "run its cell: click on it and press Shift+Enter."
WRONG = "def blocks_needed(num_tokens, block_size): return 1"


@pytest.fixture
def notebook(learner, run_cells):
    """Runs a cell of a lesson and gives what is shown."""
    run_cells("from lessons_lib import check, hint")
    return run_cells


def test_a_cell_that_python_cannot_read_says_what_to_do(notebook):
    """All that can be said of such a cell: test_explained_errors.py."""
    out = notebook("def fork(manager, blocks):\n    return [(1]")
    assert "SyntaxError" in out and "Python cannot read this cell" in out
    assert "a check sees your answer from before" in out and 'stub("1.5")' in out


@pytest.mark.parametrize(
    "error, number",
    [
        ("NotImplementedError('Exercise 1.5')", "1.5"),
        ("RuntimeError('Exercise 10.12 is not written yet')", "10.12"),
    ],
)
def test_a_cell_that_needs_an_answer_says_which_exercise_to_write(notebook, error, number):
    out = notebook(f"raise {error}")
    assert f"Exercise {number} is not written yet, and this cell needs it" in out
    assert f"Write the answer into the cell of exercise {number} and {RUN_IT}" in out
    assert "›" not in notebook("raise RuntimeError('Exercise 1.5 is hard')")


CLOSE = "import torch\ntorch.testing.assert_close(torch.zeros(1), torch.ones(1))"


@pytest.mark.parametrize(
    "cell, is_told",
    [("assert not x", True), (CLOSE, True), ("assert not x, 'own words'", False)],
)
def test_a_lessons_cell_whose_assertion_fails_says_what_to_look_at(
    make_lesson, run_cells, cell, is_told
):
    """The learner's own assertions, and those with words, need no more words."""
    make_lesson("x = 1", cell)
    told = run_cells("x = 1", cell)
    assert ("Run the checks of the exercises above once more" in told) == is_told
    assert ("What this cell expects of your answers is not so" in told) == is_told
    assert "›" not in run_cells("assert 1 == 2")


def test_a_stress_test_that_could_not_be_built_is_no_verdict_on_the_manager():
    """It said "breaks" of a right answer, where a cell above had not run."""
    (cell,) = (each.source for each in restart.cells_of("01") if "def holds(" in each.source)
    scope = {"block_manager": "", "slow_free_list": "", "stress": ""}
    with pytest.raises(NameError, match="errors"):
        exec(cell, scope)
    with pytest.raises(CompileError):
        exec(cell, scope | {"errors": "no C++"})


def test_a_stub_whose_exercise_has_passed_asks_where_the_answer_is(notebook):
    """In a second tab of the browser, a cell is as it was when the tab was opened."""
    notebook("def blocks_needed(n, size): return -(-n // size)")
    assert ": passed" in notebook('check("0.1", blocks_needed)')
    notebook("def blocks_needed(n, size): raise NotImplementedError('Exercise 0.1')")
    asks = "It has passed before. Is that answer in another tab"
    assert asks in notebook('check("0.1", blocks_needed)')
    notebook("def fork(manager, blocks): raise NotImplementedError('Exercise 1.5')")
    out = notebook('check("1.5", fork)')
    assert "not attempted yet" in out and asks not in out


def test_an_answer_that_waits_for_another_exercise_is_not_called_unattempted(notebook):
    notebook("def blocks_needed(n, size): raise NotImplementedError('Exercise 0.1')")
    notebook("def fork(manager, blocks): return blocks_needed(1, 1)")
    out = notebook('check("1.5", fork)')
    assert ": needs exercise 0.1 first" in out and "It calls exercise 0.1, which is" in out
    assert "not attempted" not in out.split("NotAttempted")[0]


def test_a_method_that_a_learner_adds_to_the_notebooks_class_comes_with_the_answer(notebook):
    """The check tries a function on the course's own object."""
    notebook(added_method.CELL)
    assert ": passed" in notebook('check("2.7", free_sequence)')
    notebook("del PagedAttentionManager.give_back_all")
    assert "has no attribute 'give_back_all'" in notebook('check("2.7", free_sequence)')


@pytest.mark.parametrize(
    "cell, call",
    [
        ("check('1.5', fork(1))", "'1.5', fork"),
        ('x = 1\ncheck("1.5", fork())', '"1.5", fork'),
        ("fork(1)\ncheck('1.5', fork)", None),
        ("fork(1)", None),
    ],
)
def test_an_answer_that_is_called_in_its_check_is_told(notebook, cell, call):
    notebook("def fork(manager, blocks): return blocks")
    out = notebook(cell)
    assert ("› A check calls your answer itself\n" in out) == ("›" in out) == bool(call)
    assert not call or f"Write `check({call})`, with nothing after the name." in out


def test_a_class_of_which_a_part_is_written_is_not_called_the_stub(notebook):
    """It said "is still the stub" of a class with one of three methods to go."""
    notebook(
        "class SoftmaxState:\n"
        "    def __init__(self, *shape, **others): self.shape = shape\n"
        "    def update(self, *parts):\n"
        "        raise NotImplementedError('Exercise 3.2')\n"
        "    finish = update"
    )
    out = notebook('check("3.2", SoftmaxState)')
    assert "A part of `SoftmaxState` is still the stub, in line 4: `raise NotImpl" in out


def test_the_same_answer_once_more_says_that_its_cell_has_to_run(notebook):
    notebook(WRONG)
    assert "your last check" not in notebook('check("0.1", blocks_needed)')
    assert "This is the answer of your last check" in notebook('check("0.1", blocks_needed)')
    notebook(WRONG)
    assert "your last check" not in notebook('check("0.1", blocks_needed)')


def test_an_answer_that_uses_a_file_beside_the_notebook_says_what_to_hand_in(
    notebook, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whole_blocks.py").write_text("def up(n, size): return -(-n // size)")
    notebook("import whole_blocks\ndef blocks_needed(n, size): return -(-n // size)")
    out = notebook('check("0.1", blocks_needed)')
    assert "hand whole_blocks.py in with it" in out


def test_the_cell_of_an_exercise_can_be_seen_as_it_was_given(capsys):
    show_cells.stub("1.1")
    shown = capsys.readouterr().out
    cells = json.loads(next(show_cells.NOTEBOOKS.glob("01_*.ipynb")).read_text())["cells"]
    (cell,) = (each for each in cells if each["metadata"].get("exercise") == "1.1")
    for line in "".join(cell["source"]).split("\n"):
        assert f"    {line}\n" in shown
    with pytest.raises(checks.NoSuchExercise):
        show_cells.stub("1.99")
