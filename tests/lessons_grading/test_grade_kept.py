"""Files that are written whole or not at all, and what a grade depends on."""

import os
from pathlib import Path

import pytest

from lessons_grading import store
from lessons_lib import rooms
from lessons_lib.whole_files import whole_file, write_whole

LONGEST = "n" * 255  # bytes that the name of a file may have


@pytest.mark.parametrize("name", ["grades.csv", LONGEST])
def test_a_file_is_written_with_its_folders_and_again(tmp_path, name):
    file = tmp_path / "autumn" / "results" / name
    for text in ("old", "new and longer"):
        write_whole(file, text)
        assert file.read_text() == text and os.listdir(file.parent) == [name]


def test_what_is_written_in_pieces_takes_its_place_at_the_end(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    with whole_file(file) as writing:
        writing.write("one ")
        writing.flush()
        assert file.read_text() == "old"
        writing.write("two")
    assert file.read_text() == "one two"


def test_what_is_interrupted_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(file) as writing:
        writing.write("new")
        raise KeyboardInterrupt
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["file"]


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small course, of which the digest is taken."""
    root = tmp_path / "course"
    monkeypatch.setattr(store, "ROOT", root)
    for folder in rooms.JUDGING:
        (root / folder / "deeper").mkdir(parents=True)
        (root / folder / "deeper" / "text.py").write_text("x = 1")
    return root


def digest() -> str:
    return store.course_digest.__wrapped__()  # it keeps what it was at first


def change(path: Path):
    path.write_text("x = 2")


def rename(path: Path):
    path.rename(path.with_name("other.py"))


CHANGES = [change, rename, Path.unlink]


@pytest.mark.parametrize("make", CHANGES, ids=["change", "rename", "delete"])
@pytest.mark.parametrize(
    "folder",
    ["kernels", "lessons_content", "lessons_grading", "lessons_lib"],
)
def test_the_digest_changes_with_each_file_that_may_decide_a_grade(course, folder, make):
    before = digest()
    assert digest() == before
    make(course / folder / "deeper" / "text.py")
    assert digest() != before


def test_the_digest_is_the_same_wherever_the_course_is(course, monkeypatch):
    before = digest()
    monkeypatch.setattr(store, "ROOT", course.rename(course.with_name("elsewhere")))
    assert digest() == before


@pytest.mark.parametrize(
    "name", ["lessons_lib/text.pyc", "notebooks/01.ipynb", "solutions/01.py", "README.md"]
)
def test_the_digest_leaves_out_what_decides_no_grade(course, name):
    before = digest()
    (course / name).parent.mkdir(exist_ok=True)
    (course / name).write_text("anything")
    assert digest() == before


def test_the_digest_of_mistakes_changes_with_a_name_and_a_text(tmp_path, monkeypatch):
    monkeypatch.setenv("LESSONS_MISTAKES", str(tmp_path))
    file = tmp_path / "2.5.mistakes"
    seen = {store.mistakes_digest()}
    for text in ("one", "two"):
        file.write_text(text)
        seen.add(store.mistakes_digest())
    file.rename(tmp_path / "2.6.mistakes")
    seen.add(store.mistakes_digest())
    assert len(seen) == 4
    elsewhere = tmp_path / "moved"
    elsewhere.mkdir()
    (tmp_path / "2.6.mistakes").rename(elsewhere / "2.6.mistakes")
    monkeypatch.setenv("LESSONS_MISTAKES", str(elsewhere))
    assert store.mistakes_digest() in seen
