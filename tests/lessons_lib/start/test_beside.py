"""What is installed beside the packages of somebody else's machine. Pip is a stand-in."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lessons_command import beside, doctor
from lessons_command.beside import Needs


@pytest.fixture
def machine(monkeypatch):
    """A machine with a pip that installs nothing.

    here: the versions by name. pip: its exit status and its complaint.
    given: what pip was called with: its words, the versions to keep, and what to install.
    """
    machine = SimpleNamespace(
        here={"paged-attention-course": "1.0", "torch": "2.12"},
        requires=None,
        pip=(0, ""),
        given=[],
        findings=(),
    )

    def version(name):
        if name not in machine.here:
            raise beside.metadata.PackageNotFoundError
        return machine.here[name]

    def run(command, *, capture_output=False, text=False):
        assert capture_output and text
        place = command.index("--constraint") + 1
        kept = Path(command[place]).read_text(encoding="utf-8")
        machine.given.append((command[:place], kept, command[place + 1 :]))
        return SimpleNamespace(returncode=machine.pip[0], stderr=machine.pip[1])

    monkeypatch.setattr(beside.metadata, "version", version)
    monkeypatch.setattr(beside.metadata, "requires", lambda name: machine.requires)
    monkeypatch.setattr(beside.subprocess, "run", run)
    monkeypatch.setattr(doctor, "doctor", lambda: SimpleNamespace(findings=machine.findings))
    return machine


def complete() -> tuple[bool, list[str]]:
    said = []
    return beside.complete(said.append), said


READY = (
    "The course 1.0 is here, with the PyTorch 2.12 of this machine.{} Now run the cells below."
)


def test_a_machine_that_has_everything_gets_nothing(machine):
    assert complete() == (True, [READY.format("")]) and not machine.given


def test_what_is_missing_is_installed_and_nothing_else_changed(machine):
    machine.here |= {"ninja": "1.13", "old": "2.0"}
    machine.requires = ["torch>=2.11", "rich>=2", "old<2", "ninja", "jupyterlab", "absent"]
    done, said = complete()
    assert (done, said) == (
        True,
        [READY.format(" Installed beside it: absent, old<2, rich>=2.")],
    )
    (command, kept, brought), *others = machine.given
    # a learner's queue.py is no module of pip's
    assert command == [sys.executable, "-P", "-m", "pip", "install", "-q", "--constraint"]
    assert (kept, brought) == ("ninja==1.13\ntorch==2.12\n", ["absent", "old<2", "rich>=2"])
    assert not others


def test_a_version_before_its_release_is_within_the_bounds(machine):
    machine.here["torch"] = "2.12.0a0+git1234"
    assert beside.look(["torch<2.14,>=2.11"]).met == ["torch==2.12.0a0+git1234"]


def test_requirements_of_extras_and_other_systems_do_not_count(machine):
    assert beside.look(
        ["a; extra == 'test'", "b; python_version < '3'", "c; python_version > '3'"]
    ) == Needs(missing=["c"])


def test_only_what_the_session_uses_needs_a_restart(machine, monkeypatch):
    machine.here |= {"one": "1", "two": "1", "three": "1"}
    for name in ("one", "three", "absent"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    machine.requires = ["one>=2", "two>=2", "three>=2", "absent"]
    assert complete() == (
        False,
        ["Restart the session: it still uses the old one and three."],
    )
    assert machine.given[0][2] == ["absent", "one>=2", "three>=2", "two>=2"]


@pytest.mark.parametrize(
    "here, found",
    [("2.10", "PyTorch 2.10 is here"), (None, "There is no PyTorch here")],
)
def test_pytorch_is_left_to_the_user(machine, here, found):
    machine.here = {"torch": here} if here else {}
    machine.requires = ["torch<2.14,>=2.11", "absent"]
    done, (said,) = complete()
    assert not done and not machine.given
    assert said.startswith(f"{found}, and the course needs one that is >=2.11 and <2.14. ")


@pytest.mark.parametrize(
    "complaint, reason",
    [("one\ntwo\nthree\n", "three"), ("one\n", "one"), (" \n", "it gave no reason")],
)
@pytest.mark.parametrize("status", [1, 2, -9])
def test_where_pip_fails_its_last_line_is_told(machine, complaint, reason, status):
    machine.requires, machine.pip = ["a", "b"], (status, complaint)
    done, (said,) = complete()
    assert not done and said.startswith(f"pip could not install a, b: {reason}. If the ")


@pytest.mark.parametrize(
    "needed, found, is_told", [(True, "", True), (True, "x", False), (False, "", False)]
)
def test_what_else_the_lessons_need_is_told(machine, needed, found, is_told):
    finding = doctor.Finding("C++ compiler", found, needed, "no C++", "get g++")
    machine.findings = (finding,)
    told = "C++ compiler is missing here: no C++. To get it: get g++."
    assert complete() == (not is_told, [told if is_told else READY.format("")])


@pytest.mark.usefixtures("plain_locale")
def test_what_stays_is_written_in_any_letters(machine):
    assert beside._install(Needs(met=["é==1"], missing=["a"]), print)
    assert machine.given[0][1] == "é==1\n"
