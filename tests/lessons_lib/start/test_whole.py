"""Whether all files of the course are there, in a checkout and where pip put them. The folders
are made up."""

import shlex
import subprocess
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from lessons_lib import whole
from lessons_lib.paths import ROOT


@pytest.fixture(autouse=True)
def not_looked_yet():
    whole._faults_seen_first.cache_clear()
    yield
    whole._faults_seen_first.cache_clear()


@pytest.fixture
def git(monkeypatch):
    """A checkout; `deleted` are the files that git misses."""
    made = SimpleNamespace(deleted=[], code=0, asked=[])

    def run(command, capture_output=False, text=False, timeout=None):
        assert capture_output and text and timeout == 60
        made.asked.append(command)
        listed = "".join(f"{name}\n" for name in made.deleted)
        return SimpleNamespace(returncode=made.code, stdout=listed)

    monkeypatch.setattr(subprocess, "run", run)
    return made


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs versions of the course; the first one is the one that runs."""
    root = tmp_path / "lib" / "course"
    root.mkdir(parents=True)
    monkeypatch.setattr(whole, "IS_CHECKOUT", False)
    monkeypatch.setattr(whole, "ROOT", root)
    others = SimpleNamespace(version="1", locate_file=lambda _: "/elsewhere", files=[])

    def put_in(*versions):
        those = [
            SimpleNamespace(
                version=f"0.{number}",
                files=files,
                locate_file=lambda _, number=number: tmp_path / str(number),
            )
            for number, files in enumerate(versions)
        ]
        named = {whole.NAME: those, None: [others, *those]}
        monkeypatch.setattr(
            whole.metadata, "distributions", lambda name=None: iter(named[name])
        )
        return root

    return put_in


def file(path: str, size: int = 3):
    """A file as the wheel lists it."""
    path = PurePosixPath(path)
    return SimpleNamespace(parts=path.parts, suffix=path.suffix, size=size)


def test_a_checkout_with_all_its_files_is_whole(git):
    assert whole.faults() == "" and whole.require() is None
    assert git.asked[0][:3] == ["git", "-C", str(ROOT)]
    assert {"--deleted", "kernels", "lessons_*", "paged_attention"} <= {*git.asked[0]}


@pytest.mark.parametrize(
    "count, words",
    [
        (1, "1"),
        (2, "1, 2"),
        (3, "1, 2, 3"),
        (4, "1, 2, 3 and 1 more"),
        (9, "1, 2, 3 and 6 more"),
    ],
)
def test_the_first_three_files_that_are_missing_are_named(git, count, words):
    git.deleted = [str(number + 1) for number in range(count)]
    assert whole.faults() == f"missing or cut off: {words}"


def test_what_is_missing_and_what_mends_it_are_said_together(git):
    git.deleted = ["kernels/sum.cu"]
    with pytest.raises(whole.CourseDamaged) as caught:
        whole.require()
    assert str(caught.value) == (
        "The course is not whole, and until it is, it judges no answer: missing or cut off: "
        f"kernels/sum.cu. To mend it: git -C {shlex.quote(str(ROOT))} "
        "restore kernels 'lessons_*' paged_attention"
    )


def test_git_is_asked_only_once(git):
    whole.require(), whole.require()
    assert len(git.asked) == 1


@pytest.mark.parametrize("code", [1, 128])
def test_a_folder_that_git_does_not_know_is_taken_as_it_is(git, code):
    git.deleted, git.code = ["kernels/sum.cu"], code
    assert whole.faults() == ""


@pytest.mark.parametrize(
    "error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 60)]
)
def test_a_checkout_without_an_answer_of_git_is_taken_as_it_is(monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(subprocess, "run", fails)
    assert whole.faults() == ""


def test_a_checkout_that_is_installed_twice_is_whole(git, monkeypatch, tmp_path):
    versions = [
        SimpleNamespace(version=name, locate_file=lambda _, name=name: tmp_path / name)
        for name in ("0.1", "0.2")
    ]
    monkeypatch.setattr(whole.metadata, "distributions", lambda name=None: versions)
    assert whole.faults() == ""


def test_an_installed_course_has_each_file_of_its_wheel(installed):
    listed = [
        file("other/gone.py"),
        file("course/gone.pyc"),
        file("course/a.py"),
        file("course/kernels/sum.cu"),
        file("course/kernels/product.cu"),
        file("course/kernels/empty.cu", 0),
    ]
    root = installed(listed)
    (root / "kernels").mkdir()
    for name in ("a.py", "kernels/sum.cu", "kernels/product.cu"):
        (root / name).write_text("abc")
    (root / "kernels/empty.cu").touch()
    assert whole.faults() == ""
    (root / "kernels/sum.cu").write_text("ab")
    (root / "kernels/product.cu").unlink()
    assert whole.faults() == "missing or cut off: kernels/sum.cu, kernels/product.cu"
    (root / "kernels/product.cu").mkdir()
    assert whole.faults().endswith(", kernels/product.cu")


@pytest.mark.parametrize("versions", [(), (None,)])
def test_a_course_without_pips_list_is_not_whole(installed, versions):
    installed(*versions)
    assert whole.faults() == (
        "missing or cut off: the list of files that pip keeps about paged-attention-course"
    )


def test_of_two_versions_nobody_knows_which_one_runs(installed, tmp_path):
    installed([], [])
    assert whole.faults() == (
        f"there is more than one version: 0.0 in {tmp_path}/0, 0.1 in {tmp_path}/1"
    )


def test_how_the_course_is_installed_and_mended(monkeypatch):
    assert (whole.NAME, whole.INSTALL) == ("paged-attention-course", "make lab")
    monkeypatch.setattr(whole, "IS_CHECKOUT", False)
    assert whole.remedy() == (
        "pip install --force-reinstall --no-deps paged_attention_course-….whl, the file that "
        "you got the course as (if there are two versions, first: pip uninstall "
        "paged-attention-course)"
    )
    assert whole.REINSTALL in whole.remedy() and whole.WHEEL in whole.REINSTALL


def test_a_command_to_copy_is_right_for_a_folder_with_a_space(monkeypatch):
    monkeypatch.setattr(whole, "IS_CHECKOUT", True)
    monkeypatch.setattr(whole, "ROOT", Path("/home/Ann B/it's here"))
    assert shlex.split(whole.remedy())[:4] == ["git", "-C", "/home/Ann B/it's here", "restore"]
