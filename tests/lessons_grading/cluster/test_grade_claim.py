"""One grader at a time in a folder of results, and what it leaves there."""

import errno
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

from lessons_grading import results_lock
from lessons_grading.results_lock import LONGEST_TEMPORARY, Claim


@pytest.fixture
def results(tmp_path) -> Path:
    return tmp_path / "of" / "a class"


@pytest.fixture
def left(tmp_path):
    """The temporary folder of a grader that was killed."""
    folder = tmp_path / "grading-left"
    folder.mkdir()
    (folder / "file").touch()
    return folder


def test_a_folder_belongs_to_one_grader_at_a_time(results):
    Claim(results).close()
    first = Claim(results)
    with pytest.raises(ValueError) as refused:
        Claim(results)
    assert str(refused.value) == (
        f"another grader is at work on {results}, process {os.getpid()}: "
        "wait until it is done, or choose another --results"
    )
    first.close()
    Claim(results).close()


def test_its_temporary_folder_is_there_as_long_as_the_claim(results):
    with Claim(results) as scratch:
        (scratch / "file").touch()
        assert scratch.name.startswith("grading-")
        with pytest.raises(ValueError):
            Claim(results)
    assert not scratch.exists()
    with Claim(results) as again:
        assert again != scratch


def test_a_temporary_folder_that_is_gone_already_is_no_fault(results):
    with Claim(results) as scratch:
        scratch.rmdir()
    Claim(results).close()


def test_the_next_grader_tidies_up_after_a_killed_one(results, left):
    (results / "students").mkdir(parents=True)
    (results / ".claim").write_text(json.dumps({"process": 1, "scratch": str(left)}))
    kept = ["results/seed", "students/ada.html", "students/a.partial", "deep/er/.1.partial"]
    for name in (".1.seed.partial", "students/.1.ada.partial", *kept):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).touch()
    Claim(results).close()
    assert not left.exists()
    there = {str(file.relative_to(results)) for file in results.rglob("*") if file.is_file()}
    assert there == {".claim", *kept}


def test_a_temporary_folder_that_was_given_back_is_not_the_graders_any_more(results):
    with Claim(results) as scratch:
        pass
    scratch.mkdir()  # somebody else's
    Claim(results).close()
    scratch.rmdir()


def test_what_a_killed_grader_left_may_be_gone(results, left, monkeypatch):
    results.mkdir(parents=True)
    (results / ".claim").write_text(json.dumps({"scratch": str(left)}))
    (results / ".1.partial").touch()
    shutil.rmtree(left)
    unlink = Path.unlink

    def unlink_later(path, missing_ok=False):
        os.unlink(path)  # by somebody else
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_later)
    Claim(results).close()
    assert not (results / ".1.partial").exists()


NOTES = ["", "[]", "[1]", "{", "7", "\xff", '{"scratch": 3}']
PLACES = ["mine", "TMP/mine", "grading-mine", "TMP/grading-mine/.."]


@pytest.mark.parametrize("noted", [*NOTES, *(f'{{"scratch": "{place}"}}' for place in PLACES)])
def test_a_note_of_another_kind_deletes_nothing(tmp_path, monkeypatch, noted):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "grading-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / ".claim").write_bytes(noted.replace("TMP", str(tmp_path)).encode("latin-1"))
    with Claim(tmp_path) as scratch:
        assert scratch.is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {".claim", "mine", "grading-mine"}


def test_a_grader_whose_note_cannot_be_read_is_unknown(results):
    with Claim(results):
        (results / ".claim").write_text("{")
        with pytest.raises(ValueError, match="process unknown: wait until it is done"):
            Claim(results)


def test_a_folder_without_locks_can_be_used(results, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(results_lock.fcntl, "flock", refuse)
    with Claim(results) as scratch:
        assert scratch.is_dir()


def test_a_grader_that_cannot_begin_does_not_hold_the_folder(results, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(tempfile, "mkdtemp", full)
        with pytest.raises(OSError, match="No space left") as held:
            Claim(results)
    Claim(results).close()
    del held  # until here it kept the claim in memory


@pytest.mark.parametrize("length", [LONGEST_TEMPORARY, LONGEST_TEMPORARY + 1])
def test_sockets_need_a_short_name(results, monkeypatch, length):
    """The system allows 107 characters for a socket with all its folders."""
    folder = Path("/tmp") / secrets.token_hex(length)[: length - len("/tmp/")]
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        with Claim(results) as scratch:
            assert scratch.parent == (folder if length <= 30 else Path("/tmp"))
    finally:
        folder.rmdir()
