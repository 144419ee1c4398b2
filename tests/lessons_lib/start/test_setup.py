"""The environment is described once: pyproject.toml, constraints.txt and environment.yml
agree, and set-up speaks plainly.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml

from lessons_lib import rooms
from lessons_lib.paths import ROOT
from lessons_lib.start import doctor
from python_process import python

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    return normal(re.split(r"[ <>=]", requirement)[0])


PINS = {
    normal(name): version
    for name, version in (
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
}


def wanted() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *extras["test"], *extras["lint"], *extras["grade"]]


def test_every_dependency_is_pinned():
    extras = PROJECT["optional-dependencies"] | {"site": []}  # that has its own constraints
    everything = sum(extras.values(), PROJECT["dependencies"])
    assert set(map(name_of, everything)) <= set(PINS)


def test_pins_are_within_the_ranges_of_the_project():
    from packaging.requirements import Requirement

    for requirement in map(Requirement, wanted()):
        assert requirement.specifier.contains(PINS[normal(requirement.name)]), requirement


def test_conda_installs_the_same_through_the_same_pins():
    (pip,) = [item["pip"] for item in CONDA["dependencies"] if isinstance(item, dict)]
    assert pip == ["--constraint constraints.txt", "--editable ."]
    names = {name_of(item) for item in CONDA["dependencies"] if isinstance(item, str)}
    assert {"python", "pip", "cxx-compiler", "cuda-nvcc", "make", "bubblewrap"} <= names
    # What pip installs, conda must not install as well in another version.
    assert not set(map(name_of, wanted())) & names


def test_conda_has_a_python_that_the_project_takes():
    from packaging.specifiers import SpecifierSet

    (python,) = [
        item
        for item in CONDA["dependencies"]
        if isinstance(item, str) and item.startswith("python=")
    ]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))


def test_ci_runs_each_python_that_the_project_names():
    named = {
        entry.removeprefix("Programming Language :: Python :: ")
        for entry in PROJECT["classifiers"]
    }
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    runs = {*matrix["python"], *(entry["python"] for entry in matrix["include"])}
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert runs == named and lowest in named


@pytest.mark.parametrize("workflow", ["test", "nightly"])
def test_ci_knows_each_job_of_a_workflow(workflow):
    text = (ROOT / f".github/workflows/{workflow}.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert job["steps"][-1]["run"] == "bash .ci/run ${{ matrix.job }}"
    matrix = job["strategy"]["matrix"]
    names = {*matrix["job"], *(entry["job"] for entry in matrix["include"])}
    script = (ROOT / ".ci" / "run").read_text()
    (known,) = re.findall(r"^    (.+)\) ;;$", script, re.MULTILINE)
    assert names <= set(known.split(" | ")) and len(names) > 3
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


def test_each_set_of_versions_that_has_bounds_runs_at_night():
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    runs = {
        (entry["job"], entry["python"])
        for entry in nightly["jobs"]["nightly"]["strategy"]["matrix"]["include"]
    }
    pythons = [entry.rpartition(" ")[2] for entry in PROJECT["classifiers"]]
    assert {("oldest", pythons[0]), ("newest", pythons[-1])} <= runs


def test_what_is_installed_here_is_what_is_pinned():
    if "CI" not in os.environ:
        pytest.skip("an environment of one's own may differ; CI's may not")
    here = {normal(each.name) for each in metadata.distributions()}
    extras = PROJECT["optional-dependencies"]
    for requirement in wanted():
        name = name_of(requirement)
        if requirement in extras["lint"] and name not in here:
            continue  # `make test` does without
        assert metadata.version(name).split("+")[0] == PINS[name]


def preflight(python=sys.executable, **environment):
    return subprocess.run(
        ["/bin/sh", str(ROOT / "lessons_lib/start/preflight.sh"), python],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def fake_python(tmp_path, body: str) -> str:
    path = tmp_path / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_preflight_is_silent_where_all_is_there():
    run = preflight()
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "body, words",
    [
        ("exit 1", "Python 3.11 or newer is needed"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "apt-get install python3-venv"),
        ('case "$2" in *Python.h*) exit 1;; esac', "apt-get install python3-dev"),
    ],
)
def test_preflight_says_what_to_install(tmp_path, body, words):
    run = preflight(fake_python(tmp_path, body))
    assert run.returncode == 1 and words in run.stdout


def test_preflight_says_when_there_is_no_python_or_no_compiler(tmp_path):
    run = preflight("")
    assert run.returncode == 1 and "apt-get install python3 python3-venv" in run.stdout
    run = preflight(PATH=str(tmp_path), CXX="")
    assert run.returncode == 1 and "apt-get install g++" in run.stdout


@pytest.mark.parametrize("status", [0, 2])
def test_on_macos_preflight_asks_whether_the_compiler_is_there(tmp_path, status):
    """There, c++ is a program that offers to install it."""
    for name, ends in {"c++": 1, "xcode-select": status}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {ends}\n")
        (tmp_path / name).chmod(0o755)
    run = preflight(PATH=f"{tmp_path}:{os.environ['PATH']}", CXX="")
    assert ("macOS:           xcode-select --install" in run.stdout) == (status != 0)


def test_make_help_lists_every_command():
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    now, _, _ = (ROOT / "Makefile").read_text().partition("# The names of before")
    targets = re.findall(r"^([a-z-]+):", now, re.MULTILINE)
    assert re.findall(r"^  make (\S+)", listed, re.MULTILINE) == targets
    assert len(targets) == 12


def test_doctor_finds_this_machine_ready():
    report = doctor.doctor()
    assert report.ready and report.summary.startswith("Ready")
    assert "<table>" in report._repr_html_()


@pytest.mark.parametrize(
    "system, machine, words",
    [
        ("Linux", "x86_64", "tested in full"),
        ("Linux", "aarch64", "tested in an emulator"),
        ("Darwin", "arm64", "compiled but never run"),
        ("Windows", "AMD64", "not found"),
    ],
)
def test_doctor_says_what_each_platform_gets_of_cuda_on_the_cpu(
    monkeypatch, system, machine, words
):
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    (line,) = [line for line in repr(doctor.doctor()).split("\n") if "CUDA on the CPU" in line]
    assert words in line


def test_the_library_that_helps_the_lessons_stays_small():
    """What lessons build is in paged_attention/, pictures and runs in lessons_content/."""
    files = [
        path
        for path in (ROOT / "lessons_lib").rglob("*.py")
        if "cuda_on_cpu" not in path.parts
    ]
    # Statements, not lines: they are the same in any form.
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    assert sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree)) < 5_500


def test_the_wheel_has_every_room_that_lessons_need():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tools"}
    assert packages == set(rooms.PACKAGES)
    assert set(rooms.HANDED_OUT) == set(wheel["only-include"])
    assert wheel["sources"] == {
        room: f"paged_attention_course/{room}" for room in wheel["only-include"]
    }


@pytest.mark.slow
def test_a_wheel_of_an_older_version_is_not_left_beside_the_new_one():
    """A teacher who takes "the file" from there would hand out the old one."""
    folder = ROOT / ".build/wheel"
    folder.mkdir(parents=True, exist_ok=True)
    old = folder / "paged_attention_course-0.1-py3-none-any.whl"
    old.touch()
    made = python("-m", "tools.wheel")
    assert made.returncode == 0 and not old.exists(), made.stderr
    assert made.stdout.split() == [str(path) for path in folder.iterdir()]
