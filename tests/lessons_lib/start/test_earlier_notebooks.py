"""From the old way to the new one: a learner has worked in `notebooks/` of a clone. The course
moves on, and `make lab` finds what they wrote.
"""

import pytest

from course_versions import LESSON, Clone, answer, answers_in, lesson, stub, write
from lessons_lib.guide import handed_out
from lessons_lib.start import earlier_notebooks, lab, learner_copies

STUBS = {"1.1": stub("1.1"), "1.2": stub("1.2")}


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path, lesson(STUBS, "one"))


def test_answers_in_a_stash_are_taken_over_once(clone):
    """git stash && git pull && make lab"""
    answer(clone.notebooks / LESSON, e1_1="x = 1")
    clone.stash_and_pull(lesson(STUBS | {"1.2": stub("1.2", "Divides.")}, "two"))
    copied = clone.make_lab()
    assert answers_in(clone.mine / LESSON) == {"1.1": "x = 1", "1.2": stub("1.2", "Divides.")}
    (kept,) = copied.earlier
    assert answers_in(clone.mine / kept[0])["1.1"] == "x = 1"
    assert b"seen" in (clone.mine / kept[0]).read_bytes()
    words = lab.in_words(copied, clone.mine)
    assert f"(a stash of git) is here now, as it was: {kept[0]}." in words
    assert f"{LESSON} is new, with your answers to 1.1." in words
    assert clone.make_lab() == learner_copies.Copied(kept=[LESSON])
    assert clone.git("stash", "list").stdout  # nothing of it is gone
    assert not clone.git("status", "--short", "notebooks").stdout


def test_what_was_only_run_is_no_answer(clone):
    answer(clone.notebooks / LESSON)
    clone.stash_and_pull(lesson(STUBS, "two"))
    assert clone.make_lab().new == [LESSON]


@pytest.mark.parametrize("committed", [False, True])
def test_answers_in_notebooks_are_taken_over_and_it_hands_out_what_it_was(clone, committed):
    """An editor opened the course's own notebook, and somebody typed an answer there."""
    clone.publish(lesson(STUBS, "two"))
    clone.git("pull", "-q")
    clone.make_lab()
    answer(clone.notebooks / LESSON, e1_1="x = 1")
    if committed:
        clone.git("commit", "-qam", "my answer")
    changed = (clone.notebooks / LESSON).read_bytes()
    copied = clone.make_lab()
    given = handed_out.digest(handed_out.read(clone.notebooks / LESSON))
    assert given == lesson(STUBS, "two")["metadata"]["given"]
    assert answers_in(clone.mine / LESSON)["1.1"] == "x = 1"
    assert copied.earlier[0][1] == f"notebooks/{LESSON}"
    assert (clone.notebooks / LESSON).read_bytes() == changed
    assert clone.make_lab() == learner_copies.Copied(kept=[LESSON])


def test_a_pop_that_ended_in_a_conflict_loses_nothing(clone):
    """The README's way of the earlier versions: git stash, git pull, git stash pop."""
    answer(clone.notebooks / LESSON, e1_1="x = 1")
    clone.stash_and_pull(lesson(STUBS | {"1.1": stub("1.1", "Multiplies.")}, "two"))
    assert clone.git("stash", "pop", check=False).returncode
    with pytest.raises(ValueError):
        answers_in(clone.notebooks / LESSON)
    (offer,) = clone.make_lab().filled
    assert answers_in(clone.mine / LESSON)["1.1"] == "x = 1"
    assert offer.taken.differ == ("1.1",)


def test_answers_of_before_and_of_now_are_both_there(clone):
    """Somebody has begun in my-notebooks/, and then remembers the stash."""
    answer(clone.notebooks / LESSON, e1_1="old = 1", e1_2="old = 2")
    clone.stash_and_pull(lesson(STUBS, "two"))
    learner_copies.bring(clone.notebooks, clone.mine)
    answer(clone.mine / LESSON, e1_1="new = 1")
    own = (clone.mine / LESSON).read_bytes()
    copied = clone.make_lab()
    assert (clone.mine / LESSON).read_bytes() == own
    (offer,), (kept,) = copied.beside, copied.earlier
    assert answers_in(clone.mine / offer.new)["1.2"] == "old = 2"
    assert answers_in(clone.mine / kept[0]) == {"1.1": "old = 1", "1.2": "old = 2"}


def test_a_copy_that_a_learner_made_in_notebooks_is_theirs(clone):
    answer(clone.notebooks / LESSON, e1_1="x = 1")
    (clone.notebooks / LESSON).rename(clone.notebooks / "01-Copy1.ipynb")
    clone.git("checkout", "-q", "--", ".")
    clone.publish(lesson(STUBS, "two"))
    for words in (["stash", "--include-untracked"], ["pull", "-q"]):
        clone.git(*words)
    (kept,) = clone.make_lab().earlier
    assert kept[0].startswith("01-Copy1 (before ")
    assert answers_in(clone.mine / LESSON)["1.1"] == "x = 1"


def test_a_maintainers_stash_of_notebooks_made_anew_is_nobodys_answer(clone):
    clone.publish(lesson(STUBS, "two"))
    clone.git("pull", "-q")
    write(clone.notebooks / LESSON, lesson(STUBS | {"1.3": stub("1.3")}, "mine"))
    clone.git("stash")
    assert clone.make_lab().new == [LESSON]


def test_without_git_what_was_changed_is_told_and_kept(tmp_path):
    """A course that was unpacked from a file."""
    notebooks, mine = tmp_path / "notebooks", tmp_path / "mine"
    write(notebooks / LESSON, lesson(STUBS))
    answer(notebooks / LESSON, e1_1="x = 1")
    copied = learner_copies.bring(notebooks, mine, earlier_notebooks.find(notebooks))
    assert answers_in(mine / copied.earlier[0][0])["1.1"] == "x = 1"
    words = lab.in_words(copied, mine)
    assert f"notebooks/{LESSON} is not what the course hands out." in words
