"""The course from its wheel: installed where it cannot be written, used from a home folder."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from from_wheel import installed  # noqa: F401, a fixture
from lessons_lib.paths import ROOT, SOLUTIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("bwrap"), reason="bubblewrap makes the read-only root"
    ),
]
# all but the glossary, which has no code
LESSONS = sorted({path.name for path in SOLUTIONS.glob("*.ipynb")} - {"glossary.ipynb"})


@pytest.fixture
def learner(installed, tmp_path):
    """Runs a command as somebody who may write only in their home."""
    home = tmp_path / "home"
    home.mkdir()
    scripts = Path(sys.executable).parent

    def run(*command, program="paged-attention-course", root=installed):
        words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for path in ("/tmp", "/var/tmp"):
            words += ["--tmpfs", path]
        for path in (sys.prefix, sys.base_prefix, root, installed):  # some may be in /tmp
            words += ["--ro-bind", path, path]
        words += ["--bind", home, home, "--unshare-pid", "--chdir", home]
        kept = {name: os.environ[name] for name in ("LANG", "CXX") if name in os.environ}
        return subprocess.run(
            [*words, root / "bin" / program, *command],
            env=kept | {"HOME": str(home), "PATH": f"{scripts}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )

    run.home = home
    return run


def test_the_command_brings_the_lessons_and_the_doctor_is_content(learner):
    run = learner("lab", "--only-copy")
    assert run.returncode == 0, run.stderr
    assert (learner.home / "paged-attention-course" / "01_block_manager.ipynb").is_file()
    run = learner("doctor")
    assert run.returncode == 0 and "Ready" in run.stdout, run.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_prints_what_it_says(lesson, learner):
    shutil.copy(SOLUTIONS / lesson, learner.home)
    shutil.copy(ROOT / "tests" / "nbval.cfg", learner.home)
    options = "-p no:cacheprovider -q --nbval --nbval-current-env --nbval-cell-timeout=900"
    words = [*options.split(), "--nbval-sanitize-with", "nbval.cfg", lesson]
    run = learner("-m", "pytest", *words, program="python")
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]


def test_a_submission_is_graded_from_the_wheel(learner):
    (learner.home / "class").mkdir()
    shutil.copy(SOLUTIONS / "00_start_here.ipynb", learner.home / "class" / "ada.ipynb")
    run = learner("grade", "class", "--no-sandbox")
    assert run.returncode == 0, run.stdout + run.stderr
    with open(learner.home / "results" / "results.csv", newline="") as table:
        (row,) = csv.DictReader(table)
    assert (row["student"], row["exercise"], row["passed"]) == ("ada", "0.1", "True")
