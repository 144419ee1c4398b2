"""A class makes a mistake that has no name yet: a draft of it, and then its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graded import RIGHT, hand_in, needs_sandbox
from lessons_content.mistakes import edits
from lessons_content.mistakes.edits import our_answers
from lessons_grading import draft
from lessons_grading.draft import answer_text, as_edits
from lessons_grading.grades import ExerciseGrade, SubmissionGrade
from lessons_grading.notebook import Cell, Notebook
from lessons_grading.store import FILE, GradeStore
from lessons_grading.students import Group, way_of
from lessons_grading.submissions import Submission
from lessons_lib import checks

HEAD = "def blocks_needed(num_tokens, block_size):\n"


def text_in(exercise: str, *cells: str) -> str | None:
    notebook = Notebook("", "00", tuple(Cell(*each) for each in enumerate(cells, 1)))
    return answer_text(notebook, checks.find(exercise))


def test_the_text_of_an_answer_is_its_last_definition_with_what_it_uses():
    text = text_in(
        "0.1",
        "%matplotlib inline\nimport math, itertools as tools\nimport os",
        HEAD + "    return 1",
        "def up(a):\n    '''Mine.'''\n    return math.ceil(a) + more  # mine\nmore = 7",
        "this is no Python",
        HEAD + "    '''Mine.'''\n    return up(num_tokens / block_size) + tools.x",
        "unused = up(3)",
    )
    assert text == (
        "import math, itertools as tools\n"
        "def up(a):\n    return math.ceil(a) + more\n"
        "def blocks_needed(num_tokens, block_size):\n"
        "    return up(num_tokens / block_size) + tools.x\n"
        "more = 7\n"
    )


@pytest.mark.parametrize(
    "exercise, cell",
    [
        ("0.1", "blocks_needed = lambda num_tokens, block_size: 3"),
        ("0.1", "x = 1"),
        ("1.1", "free_list = 'a' + 'b'"),
        ("1.1", "def free_list(): pass"),
        ("1.1", "free_list = '" + "/* " * 266_000 + "'"),
    ],
)
def test_what_cannot_be_read_without_running_it_gives_no_text(exercise, cell):
    assert text_in(exercise, cell) is None


@pytest.mark.parametrize(
    "exercise, cell", [("1.1", "free_list = {}"), ("0.1", HEAD + "    return {}")]
)
def test_half_a_character_and_comments_without_an_end_are_text_too(exercise, cell):
    for value in (r"'\ud800'", repr("/* " * 6_000)):
        text = text_in(exercise, cell.format(value))
        as_edits(text, checks.find(exercise))


def made_of(entry: str, exercise: str, folder: Path) -> list[str]:
    """What an entry's edits make of our answer."""
    file = folder / "draft.mistakes"
    file.write_text(f"## draft\nWords.\n{entry}\n")
    (section,) = edits.sections(file, checks.find(exercise).language == "python")
    ours = our_answers()[exercise]
    return [text for form in section.forms for text in form.texts(ours, [ours])]


NEAR = {
    "another line": ("0.1", "+ block_size - 1) //", "+ block_size - 1) / 2 //"),
    "two lines for one": (
        "0.1",
        "    return (num_tokens + block_size - 1) // block_size",
        "    full = num_tokens // block_size\n    return full + 2",
    ),
    "a line more": (
        "2.5",
        "    index, offset =",
        "    self.blocks_for(1)\n    index, offset =",
    ),
    "a line less": ("2.5", "    self.blocks_for(sequence.length + 1)", "    "),
    "C++": ("1.1", "    block_ids_.pop_back();\n", ""),
    "a line before the first": (
        "1.1",
        "#include <stdexcept>",
        "#include <map>\n#include <stdexcept>",
    ),
    "a line after the last": (
        "2.5",
        "self.block_size + offset\n",
        "self.block_size + offset\n    return None\n",
    ),
}


@pytest.mark.parametrize("exercise, old, new", NEAR.values(), ids=NEAR)
def test_an_answer_that_is_near_ours_is_edits_of_it(tmp_path, exercise, old, new):
    ours = our_answers()[exercise]
    assert old in ours
    theirs = ours.replace(old, new)
    known = checks.find(exercise)
    cell = theirs if known.language == "python" else f"{known.answer_name} = r'''{theirs}'''"
    text = text_in(exercise, cell)
    entry = as_edits(text, known)
    assert entry
    assert text_in(exercise, *made_cells(known, made_of(entry, exercise, tmp_path))) == text


def made_cells(exercise, texts: list[str]) -> list[str]:
    (text,) = texts
    return [text if exercise.language == "python" else f"{exercise.answer_name} = {text!r}"]


def test_an_answer_that_is_far_from_ours_or_is_ours_has_no_edits():
    far = text_in("2.5", "def append_token(self, seq_id):\n    a = 1\n    b = 2\n    return a")
    assert as_edits(far, checks.find("2.5")) is None
    ours = text_in("2.5", our_answers()["2.5"])
    assert as_edits(ours, checks.find("2.5")) is None


def test_an_answer_with_more_than_three_edits_is_another_one():
    ours = our_answers()["2.5"]
    changes = {"+ 1)": "+ 2)", "offset == 0": "not offset", "+= 1": "+= 2", "[copy_id]": "[0]"}
    for number, (old, new) in enumerate(changes.items(), 1):
        ours = ours.replace(old, new)
        assert bool(as_edits(text_in("2.5", ours), checks.find("2.5"))) == (number <= 3)


def entry(message: str, mistake="wrong") -> ExerciseGrade:
    return ExerciseGrade("0.1", "blocks needed", 1, 0, False, mistake, message, 0.1)


@pytest.fixture
def graded(tmp_path):
    """A class of these students, as if it were graded: (message, cell) each."""
    folder, results = tmp_path / "class", tmp_path / "results"

    def graded(mistake: str = "wrong", **students: tuple[str, str]):
        folder.mkdir()
        with GradeStore(results, folder) as store:
            for name, (message, cell) in students.items():
                path = hand_in(folder, cell, "check('0.1', x)", name=f"{name}.ipynb")
                entries = (entry(message, mistake),)
                grade = SubmissionGrade(name, path.name, "", "00", entries, (), 0.1)
                store.save(Submission(name, path), grade)
        return results

    return graded


def group_of(message: str) -> str:
    return Group("0.1", "wrong", way_of(entry(message))).name


def drafted(results: Path, folder: Path, message: str = "got: 4") -> str:
    """The text of the group's draft."""
    assert draft.main([str(results), group_of(message), str(folder / "mine")]) == 0
    return (folder / "mine" / f"{group_of(message)}.mistakes").read_text()


def test_a_draft_is_the_shortest_of_its_group_and_waits_for_its_name(graded, tmp_path, capsys):
    results = graded(
        ada=("got: 3", HEAD + "    three = 1 + 1 + 1\n    a = three\n    return a"),
        bob=("got: 3\nYour code printed:\nx", HEAD + "    return num_tokens - block_size"),
        cleo=("got: 4", HEAD + "    return 4"),
    )
    folder = tmp_path / "mine"
    words = [str(results), group_of("got: 3"), str(folder)]
    assert draft.main(words) == 0
    (file,) = folder.iterdir()
    assert file.name == f"{group_of('got: 3')}.mistakes"
    text = file.read_text()
    assert "2 answers fail like this. The text is bob's, in bob.ipynb." in text
    assert "# got: 3\n" in text and "runs outside of the sandbox" in text
    assert "    return (num_tokens + block_size - 1) // block_size => return" in text
    (section,) = edits.sections(file)
    with pytest.raises(checks.MistakesError, match="name-this-mistake has no message"):
        section.message
    assert str(file) in capsys.readouterr().out
    with pytest.raises(SystemExit):
        draft.main(words)
    assert f"{file} is there already" in capsys.readouterr().err and file.read_text() == text


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda results, words: words.__setitem__(0, "nowhere"), "holds no grades.sqlite"),
        (lambda results, words: words.__setitem__(1, "0.1-abc"), "there is no group 0.1-abc"),
        (
            lambda results, words: (results.parent / "class/ada.ipynb").unlink(),
            "no notebook of this group defines `blocks_needed`",
        ),
        (
            lambda results, words: (results / FILE).write_bytes(b"x" * 5_000),
            "grades.sqlite cannot be read (file is not a database)",
        ),
        (
            lambda results, words: (results.parent / "mine").touch(),
            "File exists",
        ),
    ],
)
def test_no_draft_is_a_sentence(graded, tmp_path, capsys, change, sentence):
    results = graded(ada=("got: 3", HEAD + "    return 3"))
    words = [str(results), group_of("got: 3"), str(tmp_path / "mine")]
    change(results, words)
    with pytest.raises(SystemExit) as refusal:
        draft.main(words)
    assert refusal.value.code == 2 and sentence in capsys.readouterr().err


def test_a_draft_is_whole_where_edits_do_not_reach(graded, tmp_path):
    cell = "def blocks_needed(a, b):\n    if a:\n        a = 2\n\n    return a + b"
    results = graded(ada=("got: 4\nline 3", cell))
    name = group_of("got: 4\nline 5")
    assert drafted(results, tmp_path, "got: 4\nline 3") == (
        f"# Group {name}: 1 answer fails like this. "
        "The text is ada's, in ada.ipynb.\n"
        "# got: 4\n"
        "# a line\n"
        "# A student's code runs outside of the sandbox when it is in this file: "
        "read it first.\n"
        "# Then write a name instead of name-this-mistake, and below it what the learner "
        "reads.\n"
        "## name-this-mistake\n"
        "\n"
        "    def blocks_needed(a, b):\n"
        "        if a:\n"
        "            a = 2\n"
        "        return a + b\n"
    )


def test_edits_are_taken_before_a_shorter_text_and_the_first_of_equals(graded, tmp_path):
    near = HEAD + "    return (num_tokens + block_size - 1) // block_size - num_tokens"
    results = graded(
        ada=("got: 4", "class blocks_needed: x = 1"),
        bob=("got: 4", near),
        cleo=("got: 4", near),
    )
    assert "The text is bob's" in drafted(results, tmp_path)


UNREADABLE = {
    "no definition": "blocks_needed = max",
    "no Python": "def blocks_needed(",
    "a sum of thousands": HEAD + f"    return {' + '.join(['1'] * 2_000)}",
}


@pytest.mark.parametrize("cell", UNREADABLE.values(), ids=UNREADABLE)
def test_one_answer_that_cannot_be_read_leaves_the_others(graded, tmp_path, capsys, cell):
    results = graded(ada=("got: 4", cell), bob=("got: 4", HEAD + "    return 4"))
    assert "The text is bob's" in drafted(results, tmp_path)
    (results.parent / "class/bob.ipynb").unlink()
    with pytest.raises(SystemExit):
        draft.main([str(results), group_of("got: 4"), str(tmp_path / "other")])
    assert "no notebook of this group" in capsys.readouterr().err


def test_a_mistake_with_a_name_needs_no_draft(graded, tmp_path, capsys):
    results = graded(ada=("got: 4", HEAD + "    return 4"), mistake="no-rounding")
    name = Group("0.1", "no-rounding", "got: 4").name
    with pytest.raises(SystemExit):
        draft.main([str(results), name, str(tmp_path / "mine")])
    assert f"there is no group {name}" in capsys.readouterr().err


@pytest.mark.slow(nightly=True)
@needs_sandbox
def test_the_next_run_names_what_was_drafted(tmp_path):
    """For those of the group, written in any way, and for no other."""
    folder, mine = tmp_path / "class", tmp_path / "mine"
    cells = {
        "ada": HEAD + "    return -(-num_tokens // block_size) + 3",
        "bob": HEAD + "    three = 3\n    return three + (num_tokens - 1) // block_size + 1",
        "cleo": HEAD + "    return 40",
        "dan": RIGHT,
    }
    for name, cell in cells.items():
        (folder / name).mkdir(parents=True)
        hand_in(folder / name, cell)

    def mistakes(**environment) -> dict[str, str | None]:
        """In a command of its own, as a teacher calls it."""
        words = [sys.executable, "-m", "lessons_grading", str(folder), "--seed", "1"]
        subprocess.run(words, check=True, env=os.environ | environment)
        data = json.loads((tmp_path / "results/results.json").read_text())
        return {
            each["student"]: each["exercises"][0]["mistake"] for each in data["submissions"]
        }

    assert mistakes() == {"ada": "wrong", "bob": "wrong", "cleo": "wrong", "dan": None}
    page = (tmp_path / "results/class.html").read_text()
    assert "2 of 4 fail in the same way" in page
    group = page.split("Group <code>")[1].split("<")[0]
    assert draft.main([str(tmp_path / "results"), group, str(mine)]) == 0
    (file,) = mine.iterdir()
    file.write_text(
        file.read_text().replace(
            "## name-this-mistake\n", "## three-too-many\nYou count three blocks too many.\n"
        )
    )
    assert mistakes(LESSONS_MISTAKES=str(mine)) == {
        "ada": "three-too-many",
        "bob": "three-too-many",
        "cleo": "wrong",
        "dan": None,
    }
