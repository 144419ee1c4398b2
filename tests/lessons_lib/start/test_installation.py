"""Whether all files of the course are there, in a checkout and where pip put them."""

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from lessons_lib import installation
from lessons_lib.paths import ROOT
from made_packages import Packages

ROOMS = ("lessons_lib", "lessons_content", "kernels")
CALLS = """
from lessons_lib.notebook_api import check, open_lesson
answer = lambda num_tokens, block_size: 1
for call in (lambda: check('0.1', answer), lambda: open_lesson('00')):
    try:
        call()
    except Exception as error:
        print(repr(error))
"""
FAULTS = """
from lessons_lib import installation
print(installation.faults())
print(installation.remedy())
"""


@pytest.fixture
def course(tmp_path):
    """A copy of the course, as far as it is needed here, in a folder with a space."""
    folder = tmp_path / "it's here" / "paged_attention_course"
    for room in ROOMS:
        kept = shutil.ignore_patterns("__pycache__", "records")
        shutil.copytree(ROOT / room, folder / room, ignore=kept)
    for room in ("paged_attention", "lessons_grading"):
        (folder / room).mkdir()
        (folder / room / "__init__.py").touch()
    return folder


def run(packages, course, code, **variables):
    """Runs Python on a copy of the course, which finds no other."""
    code = f"import sys; sys.path.insert(0, {str(course)!r}); {code}"
    return packages.run("-S", "-c", code, **variables)


def faults(packages, course, **variables) -> tuple[str, str]:
    """What is wrong with a copy of the course, and what mends it."""
    found, remedy = run(packages, course, FAULTS, **variables).stdout.splitlines()
    return found, remedy


class TestCheckout:
    @pytest.fixture
    def checkout(self, course):
        (course / "pyproject.toml").touch()
        for words in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", *words], cwd=course, check=True)
        return Packages(course, Path(sysconfig.get_path("purelib")))

    def test_the_first_three_files_that_are_missing_are_named(self, checkout, course):
        assert faults(checkout, course)[0] == ""
        names = sorted(path.name for path in (course / "kernels").iterdir())
        listed = [f"kernels/{name}" for name in names]
        for gone, words in (
            (2, ", ".join(listed[:2])),
            (5, f"{', '.join(listed[:3])} and 2 more"),
        ):
            for name in names[:gone]:
                (course / "kernels" / name).unlink(missing_ok=True)
            found, remedy = faults(checkout, course)
            assert found == f"missing or cut off: {words}"
        assert shlex.split(remedy)[:4] == ["git", "-C", str(course), "restore"]
        subprocess.run(remedy, shell=True, check=True)
        assert faults(checkout, course)[0] == ""

    def test_no_check_blames_a_learner_for_a_missing_file(self, checkout, course):
        (course / "kernels" / "free_list.h").unlink()
        said = run(checkout, course, CALLS).stdout.splitlines()
        assert len(said) == 2
        for line in said:
            assert line.startswith(
                "CourseDamaged('The course is not whole, and until it is, it"
            )
            assert "missing or cut off: kernels/free_list.h. To mend it: git" in line

    def test_a_copy_without_git_or_of_which_git_knows_nothing_is_taken_as_it_is(
        self, checkout, course
    ):
        (course / "kernels" / "free_list.h").unlink()
        assert faults(checkout, course, PATH="")[0] == ""
        shutil.rmtree(course / ".git")
        assert faults(checkout, course)[0] == ""


class TestInstalled:
    @pytest.fixture
    def installed(self, course, tmp_path):
        """Beside all packages that are installed here, but for the course's own."""
        others = tmp_path / "others"
        others.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if "paged_attention_course" not in path.name:
                (others / path.name).symlink_to(path)
        return Packages(course.parent, others)

    @staticmethod
    def write_list(installed, course):
        """Lists the course's files as pip does, and others that do not matter."""
        files = (path for path in course.rglob("*") if path.is_file())
        listed = {
            path.relative_to(course.parent).as_posix(): path.stat().st_size for path in files
        }
        listed |= {f"{course.name}/gone.pyc": 3, "other/gone.py": 3}
        installed.distribution(installation.NAME, "1.0", files=listed)

    def test_it_has_each_file_of_its_wheel(self, installed, course):
        self.write_list(installed, course)
        assert faults(installed, course)[0] == ""
        (course / "kernels/free_list.h").write_text("ab")
        (course / "kernels/block_manager.h").unlink()
        (course / "kernels/block_manager.h").mkdir()
        found, remedy = faults(installed, course)
        assert found.startswith("missing or cut off: ") and found.count(",") == 1
        assert "kernels/free_list.h" in found and "kernels/block_manager.h" in found
        installs, _, rest = remedy.partition("paged_attention_course-….whl")
        # no index has the course: its name finds nothing, or what somebody else put there
        assert installs.startswith("pip install ") and installation.NAME not in installs
        assert "pip install" not in rest

    @pytest.mark.parametrize("versions", [(), ("1.0",)])
    def test_without_pips_list_it_is_not_whole(self, installed, course, versions):
        for version in versions:
            installed.distribution(installation.NAME, version)
        lacking = "the list of files that pip keeps about paged-attention-course"
        assert faults(installed, course)[0] == f"missing or cut off: {lacking}"

    def test_of_two_versions_nobody_knows_which_one_runs(self, installed, course):
        for packages, version in ((installed, "1.0"), (Packages(installed.course), "2.0")):
            packages.distribution(installation.NAME, version, files={})
        found, _ = faults(installed, course)
        assert found.startswith(f"there is more than one version: 1.0 in {installed.folder}")
        assert found.endswith(f"2.0 in {installed.course}")
