"""What is remembered of a learner: nothing is lost when two notebooks are open, or when the
file is spoilt, and nothing of ours gets in.
"""

import json
import subprocess
import sys

import nbclient
import nbformat
import pytest

from lessons_lib.checks import progress
from lessons_lib.paths import ROOT, SOLUTIONS
from lessons_lib.whole_files import write_whole

pytestmark = pytest.mark.usefixtures("learner")


@pytest.mark.parametrize(
    "checks, passed, mistakes, tries",
    [
        ([(False, None)], False, [], 1),
        ([(True, None)], True, [], 1),
        ([(True, None), (False, "a"), (False, "b"), (True, None)], True, ["a", "b"], 1),
        ([(False, "a"), (False, "b"), (False, "a"), (True, None)], True, ["a", "b"], 4),
        ([(False, ""), (False, None)], False, [], 2),
    ],
)
def test_an_exercise_stays_passed_and_mistakes_and_tries_are_counted(
    checks, passed, mistakes, tries
):
    """Each mistake once, and the tries up to the first that passes."""
    for check in checks:
        progress.remember("0.1", *check)
    expected = {"passed": passed, "mistakes": mistakes, "tries": tries}
    assert progress.load() == {"0.1": expected}


def test_tries_of_an_earlier_version_are_as_many_as_its_mistakes(learner):
    earlier = {"0.1": {"passed": False, "mistakes": ["a", "b"]}}
    (learner / "progress.json").write_text(json.dumps(earlier))
    progress.remember("0.1", True, None)
    assert progress.load()["0.1"]["tries"] == 3


def test_the_record_is_a_file_that_a_person_can_read(learner):
    progress.remember("1.2", False, "a")
    progress.remember("0.1", True, None)
    assert (learner / "progress.json").read_text() == (
        '{\n "0.1": {\n  "mistakes": [],\n  "passed": true,\n  "tries": 1\n },\n'
        ' "1.2": {\n  "mistakes": [\n   "a"\n  ],\n  "passed": false,\n  "tries": 1\n }\n}'
    )


RUBBISH = ["[]", "null", "{", '{"0.1": 3}', '"text"', b"\xff\xfe{", b"[" * 100_000]


def test_a_file_that_is_no_record_is_kept_and_a_new_record_begins(learner):
    for number, rubbish in enumerate(RUBBISH, 1):
        rubbish = rubbish if isinstance(rubbish, bytes) else rubbish.encode()
        (learner / "progress.json").write_bytes(rubbish)
        assert progress.load() == {}
        progress.remember("0.1", True, None)
        assert progress.load()["0.1"]["passed"]
        assert (learner / f"unreadable-{number}.json").read_bytes() == rubbish
    (learner / "progress.json").write_bytes(b"")
    progress.remember("0.1", True, None)
    assert not (learner / f"unreadable-{len(RUBBISH) + 1}.json").exists()


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
        {"passed": True, "mistakes": [], "tries": "many"},
    ],
    ids=str,
)
def test_an_entry_of_another_form_hides_no_other_and_is_not_lost(learner, entry):
    right = {"passed": True, "mistakes": [], "tries": 1}
    text = json.dumps({"0.1": right, "0.2": entry})
    (learner / "progress.json").write_text(text)
    assert progress.load() == {"0.1": right}
    progress.remember("0.3", True, None)
    assert json.loads((learner / "progress.json").read_text())["0.2"] == entry
    assert progress.load() == {"0.1": right, "0.3": right}
    assert not (learner / "unreadable-1.json").exists()
    progress.remember("0.2", True, None)
    assert progress.load() == {"0.1": right, "0.2": right, "0.3": right}
    assert json.loads((learner / "unreadable-1.json").read_text())["0.2"] == entry


def test_a_record_that_cannot_be_read_now_is_not_written(learner):
    (learner / "progress.json").mkdir()
    progress.remember("0.1", True, None)
    assert {path.name for path in learner.iterdir()} - {"lock"} == {"progress.json"}


@pytest.mark.usefixtures("plain_locale")
def test_records_are_utf8_whatever_the_locale(learner):
    write_whole(learner / "progress.json", '{"é": {"passed": true, "mistakes": []}}')
    assert "é".encode() in (learner / "progress.json").read_bytes()
    assert progress.load()["é"]["passed"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(learner):
    (learner / "a folder").mkdir()
    with pytest.raises(OSError):
        write_whole(learner / "a folder", "after")
    assert [path.name for path in learner.iterdir()] == ["a folder"]


@pytest.mark.parametrize("in_its_place", ["a folder", "a link to itself"])
def test_what_is_in_the_place_of_the_lock_is_no_obstacle(learner, in_its_place):
    lock = learner / "lock"
    lock.mkdir() if in_its_place == "a folder" else lock.symlink_to(lock)
    progress.remember("0.1", True, None)
    assert progress.load()["0.1"]["passed"]


def test_kernels_that_record_at_once_lose_nothing(learner):
    """And a reader sees a whole file each time."""
    program = (
        "import sys; from lessons_lib.checks import progress\n"
        "sys.stdin.read(1)\n"
        "for number in range(100):\n"
        "    progress.remember(f'{sys.argv[1]}.{number}', True, f'm{number}')"
    )
    kernels = [
        subprocess.Popen(
            [sys.executable, "-c", program, kernel], cwd=ROOT, stdin=subprocess.PIPE
        )
        for kernel in "123"
    ]
    for kernel in kernels:
        kernel.stdin.close()
    before = 0
    while any(kernel.poll() is None for kernel in kernels):
        now = len(progress.load())
        assert now >= before
        before = now
    assert [kernel.wait() for kernel in kernels] == [0, 0, 0]
    assert progress.load() == {
        f"{kernel}.{number}": {"passed": True, "mistakes": [f"m{number}"], "tries": 1}
        for kernel in (1, 2, 3)
        for number in range(100)
    }
    assert sorted(path.name for path in learner.iterdir()) == ["lock", "progress.json"]


def test_in_the_folder_of_solutions_a_notebook_has_a_record_of_its_own(learner, monkeypatch):
    monkeypatch.chdir(SOLUTIONS)
    progress.remember("0.1", True, None)
    progress.remember("0.1", False, "floor-division")
    assert progress.load()["0.1"]["mistakes"] == ["floor-division"]
    assert not [*learner.iterdir()]
    monkeypatch.chdir(learner)
    assert progress.load() == {}


@pytest.mark.slow
def test_a_solution_notebook_run_from_elsewhere_writes_nothing_of_the_learners(
    tmp_path, learner
):
    """A copy of it, as a learner may make for comparison."""
    (source,) = SOLUTIONS.glob("02_*.ipynb")
    notebook = nbformat.read(source, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert progress.load() == {} and not (learner / "parts").exists()
