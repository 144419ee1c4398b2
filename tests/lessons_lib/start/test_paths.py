"""Where the course keeps what it writes: for a checkout, for one that was installed.

Where nothing may be written: test_machines.py.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

from lessons_lib import paths

FOLDERS = [
    ("build_folder", "LESSONS_BUILD_DIR", ".build", "XDG_CACHE_HOME", ".cache"),
    (
        *("progress_folder", "LESSONS_PROGRESS_DIR", ".progress"),
        *("XDG_DATA_HOME", ".local/share"),
    ),
]
each_folder = pytest.mark.parametrize("name, variable, own, of_the_system, usual", FOLDERS)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Gives `paths` of a course in a folder of its own, for somebody with an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for _, variable, _, of_the_system, _ in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(of_the_system, raising=False)

    def course(is_checkout):
        file = tmp_path / "course/lessons_lib/paths.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.__file__, file)
        if is_checkout:
            (tmp_path / "course/pyproject.toml").touch()
        found = importlib.util.spec_from_file_location("paths", file)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    return course


def test_the_course_knows_where_it_is():
    root = Path(__file__).resolve().parents[3]
    folders = (root / "kernels", root / "notebooks", root / "solutions")
    assert folders == (paths.KERNELS, paths.NOTEBOOKS, paths.SOLUTIONS)
    assert paths.IS_CHECKOUT


@each_folder
def test_a_checkout_writes_into_a_folder_of_its_own_or_where_it_is_told_to(
    course, tmp_path, monkeypatch, name, variable, own, of_the_system, usual
):
    folder = getattr(course(is_checkout=True), name)
    assert folder() == tmp_path / "course" / own and folder().is_dir()
    monkeypatch.setenv(variable, "")
    assert folder() == tmp_path / "course" / own
    monkeypatch.setenv(variable, str(tmp_path / "a/b"))
    assert [folder(), folder()] == [tmp_path / "a/b"] * 2 and (tmp_path / "a/b").is_dir()


@each_folder
def test_an_installed_course_writes_where_the_users_programs_do(
    course, tmp_path, monkeypatch, name, variable, own, of_the_system, usual
):
    folder = getattr(course(is_checkout=False), name)
    assert folder() == tmp_path / "home" / usual / "paged-attention-course"
    assert folder().is_dir()
    monkeypatch.setenv(of_the_system, str(tmp_path / "elsewhere"))
    assert folder() == tmp_path / "elsewhere/paged-attention-course"
    monkeypatch.setenv(variable, str(tmp_path / "a/b"))
    assert folder() == tmp_path / "a/b"


def test_a_teachers_mistakes_are_where_the_teacher_says(monkeypatch):
    for value, folder in (("/some/where", Path("/some/where")), ("", None)):
        monkeypatch.setenv("LESSONS_MISTAKES", value)
        assert paths.mistakes_folder() == folder
    monkeypatch.delenv("LESSONS_MISTAKES")
    assert paths.mistakes_folder() is None
