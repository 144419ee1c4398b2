"""What the record of a learner's progress says, and that a file is always written whole."""

import json
from pathlib import Path

import pytest

from lessons_lib import progress
from lessons_lib.paths import SOLUTIONS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of a learner who has not begun."""
    monkeypatch.setenv("LESSONS_PROGRESS_DIR", str(tmp_path / "progress"))
    (tmp_path / "progress").mkdir()
    return tmp_path / "progress"


@pytest.fixture
def at_home(monkeypatch):
    """This process works in the folder of our solutions."""
    monkeypatch.setattr(progress, "_in_solutions", {})
    monkeypatch.chdir(SOLUTIONS)


@pytest.mark.parametrize(
    "checks, passed, mistakes",
    [
        ([(False, None)], False, []),
        ([(True, None)], True, []),
        ([(True, None), (False, "a")], True, ["a"]),
        ([(False, "a"), (False, "b"), (False, "a"), (True, None)], True, ["a", "b"]),
        ([(False, ""), (False, None)], False, []),
    ],
)
def test_an_exercise_stays_passed_and_each_mistake_is_noted_once(checks, passed, mistakes):
    for check in checks:
        progress.remember("0.1", *check)
    assert progress.load() == {"0.1": {"passed": passed, "mistakes": mistakes}}


def test_the_record_is_a_file_that_a_person_can_read(folder):
    progress.remember("1.2", False, "a")
    progress.remember("0.1", True, None)
    assert (folder / "progress.json").read_text() == (
        '{\n "0.1": {\n  "mistakes": [],\n  "passed": true\n },\n'
        ' "1.2": {\n  "mistakes": [\n   "a"\n  ],\n  "passed": false\n }\n}'
    )


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"0.1": 3}', '"text"'])
def test_a_file_that_is_no_record_counts_as_empty(folder, text):
    assert progress.load() == {}
    (folder / "progress.json").write_text(text)
    assert progress.load() == {}
    progress.remember("0.1", True, None)
    assert progress.load()["0.1"]["passed"]
    if text:
        assert (folder / "unreadable-1.json").read_text() == text


def test_a_file_that_cannot_be_decoded_is_kept_and_a_new_record_begins(folder):
    for number, rubbish in enumerate((b"\xff\xfe{", b"[" * 100_000), 1):
        (folder / "progress.json").write_bytes(rubbish)
        progress.remember("0.1", True, None)
        assert progress.load()["0.1"]["passed"]
        assert (folder / f"unreadable-{number}.json").read_bytes() == rubbish


@pytest.mark.parametrize(
    "entry",
    [
        None,
        3,
        "passed",
        [],
        {"passed": True},
        {"mistakes": []},
        {"passed": 1, "mistakes": []},
        {"passed": True, "mistakes": "a"},
    ],
    ids=str,
)
def test_an_entry_of_another_form_hides_no_other_and_is_not_lost(folder, entry):
    right = {"passed": True, "mistakes": []}
    text = json.dumps({"0.1": right, "0.2": entry})
    (folder / "progress.json").write_text(text)
    assert progress.load() == {"0.1": right}
    progress.remember("0.3", True, None)
    assert json.loads((folder / "progress.json").read_text())["0.2"] == entry
    assert progress.load() == {"0.1": right, "0.3": right}
    assert not (folder / "unreadable-1.json").exists()
    progress.remember("0.2", True, None)
    assert progress.load() == {"0.1": right, "0.2": right, "0.3": right}
    assert json.loads((folder / "unreadable-1.json").read_text())["0.2"] == entry


def test_a_record_that_cannot_be_read_now_is_not_written(folder):
    (folder / "progress.json").mkdir()
    progress.remember("0.1", True, None)
    assert [path.name for path in folder.iterdir() if path.name != "lock"] == ["progress.json"]


@pytest.mark.usefixtures("at_home")
def test_our_own_solutions_leave_no_trace(folder, monkeypatch):
    progress.remember("0.1", True, "a")
    assert progress.load() == {"0.1": {"passed": True, "mistakes": ["a"]}}
    assert [*folder.iterdir()] == []
    monkeypatch.chdir(folder)
    assert progress.load() == {}


def test_at_first_our_solutions_have_no_record(monkeypatch):
    monkeypatch.chdir(SOLUTIONS)
    assert progress.load() == {}


@pytest.mark.usefixtures("plain_locale")
def test_records_are_utf8_whatever_the_locale(folder):
    progress.replace_file(folder / "progress.json", '{"é": {"passed": true, "mistakes": []}}')
    assert "é".encode() in (folder / "progress.json").read_bytes()
    assert progress.load()["é"]["passed"]


def test_a_file_is_replaced_whole(folder, monkeypatch):
    path = folder / "a file"
    path.write_text("before")
    parts, replace = [], progress.os.replace

    def look_and_replace(part, whole):
        parts.append((Path(part).read_text(), Path(whole).read_text()))
        # on the same disk, and if it is left there, its name tells what it was to be
        assert str(part).startswith(str(whole))
        replace(part, whole)

    monkeypatch.setattr(progress.os, "replace", look_and_replace)
    progress.replace_file(path, "after")
    assert parts == [("after", "before")]
    assert path.read_text() == "after" and [*folder.iterdir()] == [path]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(folder, monkeypatch):
    path = folder / "a file"
    path.write_text("before")

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(progress.os, "replace", refuse)
    with pytest.raises(PermissionError):
        progress.replace_file(path, "after")
    assert path.read_text() == "before" and [*folder.iterdir()] == [path]


@pytest.mark.parametrize("in_its_place", ["a folder", "a link to itself"])
def test_what_is_in_the_place_of_the_lock_is_no_obstacle(folder, in_its_place):
    lock = folder / "lock"
    lock.mkdir() if in_its_place == "a folder" else lock.symlink_to(lock)
    progress.remember("0.1", True, None)
    assert progress.load()["0.1"]["passed"]
