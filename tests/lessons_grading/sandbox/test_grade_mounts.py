"""What of the computer a sandbox sees, wherever Python and the course are installed."""

from types import SimpleNamespace

import pytest
from test_grade_confinement import pairs

from lessons_grading import confinement
from lessons_grading.confinement import COURSE, SCRATCH, WRITTEN


@pytest.fixture
def words_where(monkeypatch, tmp_path):
    """The words of the mounts, with Python and the course in folders of this test."""

    def words_where(
        root="course", prefix="venv", base="python", own="own", has_own=False, packages=()
    ) -> list[str]:
        root, prefix, base, own = (tmp_path / name for name in (root, prefix, base, own))
        root.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(confinement, "words_of_bubblewrap", lambda: [])
        monkeypatch.setattr(confinement, "SYSTEM", (f"{tmp_path}/usr", f"{tmp_path}/bin"))
        monkeypatch.setattr(confinement, "ROOT", root)
        monkeypatch.setattr(confinement, "build_folder", lambda: tmp_path / "build")
        monkeypatch.setattr(
            confinement, "sys", SimpleNamespace(prefix=str(prefix), base_prefix=str(base))
        )
        site = SimpleNamespace(
            ENABLE_USER_SITE=has_own,
            getusersitepackages=lambda: str(own),
            getsitepackages=lambda: [str(tmp_path / each) for each in packages],
        )
        monkeypatch.setattr(confinement, "site", site)
        return confinement._mounts(1 << 20, ())

    return words_where


def bound(words: list[str], folder) -> list[str]:
    """What is shown of a folder, each at its own place."""
    found = pairs(words, "--ro-bind-try")
    assert all(inside == outside for inside, outside in found)
    return [place.removeprefix(f"{folder}/") for place, _ in found]


def emptied(words: list[str], folder) -> list[str]:
    places = [words[at + 1] for at, word in enumerate(words) if word == "--tmpfs"]
    return [place.removeprefix(f"{folder}/") for place in places if str(folder) in place]


IN_COURSE = [f"course/{name}" for name in COURSE]


def test_it_sees_the_system_python_and_the_course_without_answers(words_where, tmp_path):
    words = words_where()
    assert words[:2] == ["--proc", "/proc"] and words[-2:] == ["--chdir", SCRATCH]
    assert bound(words, tmp_path) == ["usr", "bin", "python", "venv", *IN_COURSE]
    assert emptied(words, tmp_path) == [f"course/{name}" for name in WRITTEN]
    weights = f"{tmp_path}/course/paged_attention/tiny_qwen3"
    assert pairs(words, "--ro-bind") == [(weights, weights)]


def test_a_folder_of_the_user_is_seen_where_python_looks_into_it(words_where, tmp_path):
    assert "own" in bound(words_where(has_own=True), tmp_path)
    assert "own" not in bound(words_where(has_own=False), tmp_path)


def test_a_python_in_the_course_is_shown_after_what_is_around_it(words_where, tmp_path):
    words = words_where(prefix="course/.venv")
    expected = ["usr", "bin", "python", "course/.venv", *IN_COURSE]
    assert bound(words, tmp_path) == expected


def test_a_link_of_the_system_is_a_link_and_any_other_is_a_folder(words_where, tmp_path):
    (tmp_path / "usr").mkdir()
    for name in ("bin", "venv"):
        (tmp_path / name).symlink_to("usr")
    words = words_where()
    assert pairs(words, "--symlink") == [("usr", f"{tmp_path}/bin")]
    assert bound(words, tmp_path) == ["usr", "python", "venv", *IN_COURSE]


def test_a_course_in_the_folder_of_python_is_hidden_but_for_its_parts(words_where, tmp_path):
    words = words_where(root="python/course")
    assert words[:2] == ["--proc", "/proc"]
    hidden = words.index(f"{tmp_path}/python/course")
    assert words[hidden - 1] == "--tmpfs"
    assert words.index(f"{tmp_path}/python") < hidden
    assert hidden < words.index(f"{tmp_path}/python/course/{COURSE[0]}")


def test_a_course_that_is_a_package_is_seen_with_its_neighbours(words_where, tmp_path):
    (tmp_path / "python/packages/torch").mkdir(parents=True)
    words = words_where(root="python/packages", packages=["python/packages"])
    assert "python" in bound(words, tmp_path)
    assert f"{tmp_path}/python/packages" not in words  # so nothing hides it


def test_answers_are_hidden_wherever_the_course_is_installed(words_where, tmp_path):
    there, absent = WRITTEN[0], WRITTEN[1]
    (tmp_path / f"python/packages/{there}").mkdir(parents=True)
    words = words_where(packages=["python/packages"])
    hidden = emptied(words, tmp_path)
    assert f"python/packages/{there}" in hidden
    assert f"python/packages/{absent}" not in hidden
    assert {f"course/{name}" for name in WRITTEN} <= set(hidden)


def test_what_can_be_written_is_measured():
    written = {f"{confinement.ROOT}/{name}" for name in WRITTEN}
    assert set(confinement.WRITABLE) == {SCRATCH, "/tmp", "/dev/shm", *written}
