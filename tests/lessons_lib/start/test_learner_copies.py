"""The learner's copies: made, brought up to date with their answers, never overwritten."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_versions import LESSON, answer, answers_in, lesson, stub, write
from examples import few
from lessons_lib.paths import ROOT
from lessons_lib.start import lab, learner_copies

STUBS = {"1.1": stub("1.1"), "1.2": stub("1.2")}


@pytest.fixture
def course(tmp_path):
    folder = tmp_path / "course"
    write(folder / LESSON, lesson(STUBS))
    (folder / "pictures").mkdir()
    (folder / "pictures" / "idea.png").write_bytes(b"\x89PNG")
    return folder


@pytest.fixture
def mine(course, tmp_path):
    """The learner's folder, with the first version."""
    folder = tmp_path / "mine"
    learner_copies.bring(course, folder)
    return folder


def said(copied: learner_copies.Copied) -> str:
    return lab.in_words(copied, Path("mine"))


@pytest.fixture
def update(course, mine):
    """Brings the next version of the course; gives the new notebook and what was said."""

    def update(words: str = "two", stubs=STUBS):
        write(course / LESSON, lesson(stubs, words))
        copied = learner_copies.bring(course, mine)
        (offer,) = copied.beside
        return mine / offer.new, said(copied)

    return update


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != learner_copies.LIST
    }


def test_everything_is_copied_once(course, tmp_path):
    own = tmp_path / "my/own"
    assert learner_copies.bring(course, own).new == [LESSON, "pictures/idea.png"]
    assert files(own) == files(course)
    assert learner_copies.bring(course, own) == learner_copies.Copied()


def test_a_notebook_that_was_only_run_is_replaced(course, mine):
    answer(mine / LESSON)
    write(course / LESSON, lesson(STUBS, "Read that."))
    assert learner_copies.bring(course, mine).updated == [LESSON]
    assert files(mine) == files(course)


def test_a_changed_notebook_stays_and_the_new_version_has_its_answers(course, mine):
    answer(mine / LESSON, e1_1="def f(x):\n    return x")
    before = (mine / LESSON).read_bytes()
    assert learner_copies.bring(course, mine).kept == [LESSON]
    write(course / LESSON, lesson(STUBS, "Read that."))
    copied = learner_copies.bring(course, mine)
    assert (mine / LESSON).read_bytes() == before
    (offer,) = copied.beside
    new = json.loads((mine / offer.new).read_text())
    assert new["cells"][0]["source"] == "Read that." and not new["cells"][1]["outputs"]
    assert answers_in(mine / offer.new) == STUBS | {"1.1": "def f(x):\n    return x"}
    assert f"Its new version is {offer.new}, with your answers to 1.1." in said(copied)
    assert f"Outputs, and cells and notes that you added, are only in {LESSON}" in said(copied)
    assert learner_copies.bring(course, mine).kept == [LESSON]


def test_three_updates_in_a_row_need_no_new_number_of_the_course(mine, update):
    """The learner goes on in the newest notebook each time."""
    newest = mine / LESSON
    for step, words in enumerate(["two", "three", "four"], 1):
        answer(newest, **{f"e1_{min(step, 2)}": f"x = {step}"})
        newest, _ = update(words)
    assert len(files(mine)) == 5  # four of the lesson, and the picture
    assert answers_in(newest) == {"1.1": "x = 1", "1.2": "x = 3"}


def test_an_answer_that_was_taken_over_gives_way_to_a_newer_one(mine, update):
    """The old notebook is saved once more, with nothing new in it."""
    answer(mine / LESSON, e1_1="x = 1")
    newer, _ = update("two")
    answer(newer, e1_1="x = 2")
    os.utime(newer, (1, 1))
    assert answers_in(update("three")[0])["1.1"] == "x = 2"


def test_an_exercise_that_asks_for_something_else_is_named_and_has_its_new_stub(mine, update):
    answer(mine / LESSON, e1_1="x = 1", e1_2=STUBS["1.2"])
    multiplies, divides = stub("1.1", "Multiplies."), stub("1.2", "Divides.")
    newer, words = update(stubs={"1.1": multiplies, "1.2": divides})
    assert "What is asked has changed in 1.1. This shows it: " in words
    assert answers_in(newer) == {"1.1": "x = 1", "1.2": divides}
    answer(mine / LESSON, e1_2="x = 2")
    _, words = update("three", {"1.1": multiplies})
    assert "It has no exercise 1.2: that answer is only in the old one." in words


def test_a_cell_that_was_split_is_one_answer(mine, update):
    answer(mine / LESSON, e1_1="x = 1")
    notebook = json.loads((mine / LESSON).read_text())
    notebook["cells"].insert(2, notebook["cells"][1] | {"id": "split", "source": "y = 2"})
    write(mine / LESSON, notebook)
    assert answers_in(update()[0])["1.1"] == "x = 1\n\ny = 2"


def test_a_notebook_of_two_versions_ago_is_brought_to_the_newest(course, mine):
    answer(mine / LESSON, e1_1="x = 1")
    old = (mine / LESSON).read_bytes()
    for words in ("two", "three"):
        write(course / LESSON, lesson(STUBS, words))
        learner_copies.bring(course, mine)
    for path in [*mine.glob("*.ipynb"), mine / learner_copies.LIST]:
        path.unlink()
    (mine / LESSON).write_bytes(old)  # as from a backup
    (offer,) = learner_copies.bring(course, mine).beside
    assert answers_in(mine / offer.new)["1.1"] == "x = 1"
    assert (mine / LESSON).read_bytes() == old


def test_a_renamed_notebook_stays_and_its_answers_are_in_the_new_one(course, mine):
    answer(mine / LESSON, e1_1="x = 1")
    (mine / LESSON).rename(mine / "my first.ipynb")
    write(course / LESSON, lesson(STUBS, "two"))
    copied = learner_copies.bring(course, mine)
    assert f"{LESSON} is new, with your answers to 1.1." in said(copied)
    assert "are only in my first.ipynb." in said(copied)
    assert answers_in(mine / LESSON)["1.1"] == "x = 1"
    assert answers_in(mine / "my first.ipynb")["1.1"] == "x = 1"


def merged(notebook: bytes) -> bytes:
    """As git leaves a notebook that was changed on both sides."""
    ours = b'    "raise NotImplementedError()"\n'
    return notebook.replace(
        b'    "x = 1"\n',
        b'<<<<<<< Updated upstream\n%b=======\n    "x = 1"\n>>>>>>> Stashed changes\n' % ours,
    )


def test_a_notebook_with_merge_marks_stays_and_its_answers_are_in_the_new_one(course, mine):
    answer(mine / LESSON, e1_1="x = 1")
    broken = merged((mine / LESSON).read_bytes())
    assert b">>>>>>>" in broken
    (mine / LESSON).write_bytes(broken)
    copied = learner_copies.bring(course, mine)
    (offer,) = copied.beside
    assert f"{LESSON} is no longer a notebook that opens and is as you" in said(copied)
    assert (mine / LESSON).read_bytes() == broken
    assert answers_in(mine / offer.new)["1.1"] == "x = 1"


def test_a_notebook_that_is_cut_off_stays_and_a_whole_one_is_beside_it(mine, update):
    answer(mine / LESSON, e1_1="x = 1")
    half = (mine / LESSON).read_bytes()[:-50]
    (mine / LESSON).write_bytes(half)
    newer, _ = update()
    assert (mine / LESSON).read_bytes() == half and answers_in(newer) == STUBS


def test_a_folder_of_the_time_before_stamps_loses_nothing(course, tmp_path):
    """What an earlier version of the course copied, and listed by the digests of its cells."""
    old = lesson(STUBS, "one")
    listed = {LESSON: old["metadata"].pop("given")}
    for cell in old["cells"]:
        cell["metadata"].pop("given", None)
    for answered in (False, True):
        folder = tmp_path / f"answered {answered}"
        write(folder / LESSON, old)
        (folder / learner_copies.LIST).write_text(json.dumps(listed))
        if answered:
            answer(folder / LESSON, e1_1=STUBS["1.1"] + "\nanswer = 42")
        copied = learner_copies.bring(course, folder)
        if not answered:
            assert copied.updated == [LESSON]
        else:
            assert answers_in(folder / copied.beside[0].new)["1.1"].endswith("answer = 42")
            assert copied.beside[0].taken.answers == ("1.1",)


def test_a_folder_may_have_any_name(course, tmp_path):
    name = "a space, a'quote, two\"quotes, Ünïcödé 漢字, $HOME;&|`x`, a back\\slash and {x}"
    folder = tmp_path / name / "mine"
    learner_copies.bring(course, folder)
    answer(folder / LESSON, e1_1="x = 1")
    write(course / LESSON, lesson(STUBS, "two"))
    copied = learner_copies.bring(course, folder)
    assert answers_in(folder / copied.beside[0].new)["1.1"] == "x = 1"
    assert name in lab.in_words(copied, folder)


def test_two_updates_at_once_write_each_notebook_once(course, mine):
    answer(mine / LESSON, e1_1="x = 1")
    write(course / LESSON, lesson(STUBS, "two"))
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: learner_copies.bring(course, mine), range(8)))
    assert sum(len(copied.beside) for copied in done) == 1
    assert answers_in(mine / LESSON)["1.1"] == "x = 1"


def test_two_versions_of_the_course_may_share_a_folder(course, mine, tmp_path):
    answer(mine / LESSON, e1_1="x = 1")
    other = tmp_path / "other"
    write(other / LESSON, lesson(STUBS, "two"))
    for turn in (other, course, other, course):
        learner_copies.bring(turn, mine)
    names = [*mine.glob("*.ipynb")]
    assert len(names) <= 3 and all(answers_in(name)["1.1"] == "x = 1" for name in names)


# Machines with real faults: the command runs where it can write nothing, or not enough


COMMAND = (
    "import sys; from lessons_lib.start import learner_copies; from pathlib import Path\n"
)
COMMAND += "try: learner_copies.bring(Path(sys.argv[1]), Path(sys.argv[2]))\n"
COMMAND += "except learner_copies.CannotCopy as error: sys.exit(str(error))\n"
needs_bwrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


def bring_where(course: Path, folder: Path, *binds, then: str = "", stdin: str = ""):
    """Brings the course into `folder` in a sandbox; gives the exit status and what is said.

    then: what the shell does there afterwards.
    """
    words = ["bwrap", "--dev-bind", "/", "/", *binds]
    script = 'cd "$1" && shift && "$@"' + then
    python = [sys.executable, "-c", COMMAND, course, folder]
    shell = ["sh", "-c", script, "sh", ROOT]
    return subprocess.run(
        [*words, *shell, *python], input=stdin, capture_output=True, text=True
    )


@needs_bwrap
@pytest.mark.parametrize("has_copies", [False, True])
def test_a_read_only_folder_is_one_sentence_and_stays_as_it_is(course, mine, has_copies):
    answer(mine / LESSON, e1_1="x = 1")
    write(course / LESSON, lesson(STUBS, "two"))
    folder = mine if has_copies else mine.parent / "nothing yet"
    folder.mkdir(exist_ok=True)
    before = files(folder)
    run = bring_where(course, folder, "--ro-bind", folder, folder)
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert "Read-only file system" in run.stderr
    assert "a folder that you may write to" in run.stderr
    assert files(folder) == before


@needs_bwrap
def test_a_read_only_folder_that_needs_nothing_is_no_fault(course, mine):
    run = bring_where(course, mine, "--ro-bind", mine, mine)
    assert (run.returncode, run.stderr) == (0, "")


@needs_bwrap
def test_a_full_disk_cuts_nothing_off_and_the_next_update_completes_it(course, tmp_path):
    """The disk has room for the learner's notebook, and not for a new version."""
    large = "Much. " * 30_000
    write(course / LESSON, lesson(STUBS, large + "two"))
    write(tmp_path / "old" / LESSON, lesson(STUBS, large))
    answer(tmp_path / "old" / LESSON, e1_1="x = 1")
    disk, seen = tmp_path / "disk", tmp_path / "seen"
    disk.mkdir()
    seen.mkdir()
    keep = f'; s=$?; cp "{disk}"/* "{seen}/"; ls -a "{disk}" >&2; exit $s'
    fill = ["--size", f"{300 * 1024}", "--tmpfs", disk, "--file", "0", disk / LESSON]
    older = (tmp_path / "old" / LESSON).read_text()
    run = bring_where(course, disk, *fill, then=keep, stdin=older)
    assert run.returncode == 1 and "No space left on device" in run.stderr
    assert "partial" not in run.stderr.split("make room.")[1]
    assert files(seen) == files(tmp_path / "old")
    (offer,) = learner_copies.bring(course, seen).beside
    assert answers_in(seen / offer.new)["1.1"] == "x = 1"


# Whatever happens in whatever order


@few(30, drawn_anew=80)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["edit", "edit newest", "update", "bring", "lose list", "break"]),
            st.integers(0, 3),
        ),
        max_size=14,
    )
)
def test_no_text_of_the_learners_is_ever_lost(tmp_path_factory, actions):
    base = tmp_path_factory.mktemp("lessons")
    course, mine = base / "course", base / "mine"
    write(course / LESSON, lesson(STUBS, "0"))
    learner_copies.bring(course, mine)
    written = {}
    for action, number in actions:
        newest = max(mine.glob("*.ipynb"), key=lambda path: path.stat().st_mtime_ns)
        if action.startswith("edit"):
            path = newest if action == "edit newest" else mine / LESSON
            answer(path, e1_1=f"answer = {number}")
            written[path] = path.read_bytes()
        elif action == "update":
            write(course / LESSON, lesson(STUBS, str(number)))
        elif action == "lose list":
            (mine / learner_copies.LIST).unlink(missing_ok=True)
        elif action == "break":
            (mine / learner_copies.LIST).write_text('{"01.ipynb": ')
        else:
            for offer in learner_copies.bring(course, mine).beside:
                assert answers_in(mine / offer.new)["1.1"] in {
                    answers_in(path)["1.1"] for path in written
                }
        assert all(path.read_bytes() == content for path, content in written.items())
