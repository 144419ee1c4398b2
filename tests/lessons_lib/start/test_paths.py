"""Where the course keeps what it writes: for a checkout, for one that was installed.

Where nothing may be written: test_machines.py.
"""

from pathlib import Path

import pytest

from lessons_lib import paths

FOLDERS = [
    (paths.build_folder, "LESSONS_BUILD_DIR", ".build", "XDG_CACHE_HOME", ".cache"),
    (
        paths.progress_folder,
        "LESSONS_PROGRESS_DIR",
        ".progress",
        "XDG_DATA_HOME",
        ".local/share",
    ),
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home, a course and a system's temporary folder that have nothing in them yet."""
    monkeypatch.setattr(paths, "ROOT", tmp_path / "course")
    monkeypatch.setattr(paths, "IS_CHECKOUT", True)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for _, variable, _, of_the_system, _ in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(of_the_system, raising=False)
    return tmp_path / "home"


def test_the_course_knows_where_it_is():
    root = Path(__file__).resolve().parents[3]
    assert (
        root / "kernels",
        root / "notebooks",
        root / "solutions",
    ) == (paths.KERNELS, paths.NOTEBOOKS, paths.SOLUTIONS)


def test_a_checkout_knows_that_it_is_one(monkeypatch):
    monkeypatch.undo()
    assert Path(__file__).resolve().parents[3] == paths.ROOT
    assert paths.IS_CHECKOUT is (paths.ROOT / "pyproject.toml").is_file() is True


@pytest.mark.parametrize("folder, variable, own, of_the_system, usual", FOLDERS)
def test_a_checkout_writes_into_a_folder_of_its_own_or_where_it_is_told_to(
    tmp_path, monkeypatch, folder, variable, own, of_the_system, usual
):
    assert folder() == tmp_path / "course" / own and folder().is_dir()
    monkeypatch.setenv(variable, "")
    assert folder() == tmp_path / "course" / own
    monkeypatch.setenv(variable, str(tmp_path / "a/b"))
    assert [folder(), folder()] == [tmp_path / "a/b"] * 2 and (tmp_path / "a/b").is_dir()


@pytest.mark.parametrize("folder, variable, own, of_the_system, usual", FOLDERS)
def test_an_installed_course_writes_where_the_users_programs_do(
    tmp_path, monkeypatch, home, folder, variable, own, of_the_system, usual
):
    monkeypatch.setattr(paths, "IS_CHECKOUT", False)
    assert folder() == home / usual / "paged-attention-course" and folder().is_dir()
    monkeypatch.setenv(of_the_system, str(tmp_path / "elsewhere"))
    assert folder() == tmp_path / "elsewhere/paged-attention-course"
    monkeypatch.setenv(variable, str(tmp_path / "a/b"))
    assert folder() == tmp_path / "a/b"


def test_a_teachers_mistakes_are_where_the_teacher_says(monkeypatch):
    monkeypatch.setenv("LESSONS_MISTAKES", "/some/where")
    assert paths.mistakes_folder() == Path("/some/where")
    for value in ("", None):
        monkeypatch.delenv("LESSONS_MISTAKES")
        if value is not None:
            monkeypatch.setenv("LESSONS_MISTAKES", value)
        assert paths.mistakes_folder() is None
        monkeypatch.setenv("LESSONS_MISTAKES", "/some/where")
