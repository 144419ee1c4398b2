"""Packages that are installed next to a machine's own, as on Colab. The machine's packages are
made up, and its pip only writes down its arguments.
"""

import json
import re
from importlib import metadata

import pytest

from lessons_lib import installation
from lessons_lib.start import install_missing
from lessons_lib.start.install_missing import Needs
from made_packages import Packages
from python_process import python

REQUIRES = [*metadata.requires(installation.NAME)]
COMPLETE = "from lessons_lib.start import install_missing; print(install_missing.complete())"
PIP = """\
import json, sys
words = sys.argv[1:]
kept = words.index("--constraint") + 1
with open(words[kept], encoding="utf-8") as file:
    asked = [words[:kept], file.read().split("\\n"), words[kept + 1:], sys.flags.safe_path]
with open({path!r}, "w") as file:
    json.dump(asked, file)
print({complaint!r}, file=sys.stderr)
sys.exit({status})
"""
TORCH = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
READY = (
    "The course 1.0 is here, with the PyTorch 2.12 of this machine.{} Now run the cells below."
)


class Machine(Packages):
    """A machine with these versions of PyTorch and of packages that we make up."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = folder / "asked.json"
        self.module("torch", TORCH)
        self.pip()

    def pip(self, status=0, complaint=""):
        """From now on pip ends like this."""
        path = str(self.asked)
        text = PIP.format(path=path, status=status, complaint=complaint)
        self.module("pip.__main__", text)

    def complete(self, requires, torch="2.12", uses="", **variables):
        """Whether the lessons can be run, and what is said. uses: modules of the session."""
        self.distribution(installation.NAME, "1.0", requires, files={})
        self.distribution("torch", torch)
        code = f"import sys{''.join(f', {name}' for name in uses.split())}; {COMPLETE}"
        run = self.run("-c", code, **variables)
        *said, done = run.stdout.splitlines()
        return done == "True", said

    def given_to_pip(self):
        """Its words, the versions to keep, what to install, and whether it takes no modules
        from the learner's folder; None if it was not called.
        """
        return json.loads(self.asked.read_text()) if self.asked.exists() else None


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "packages")


def test_a_machine_that_has_everything_gets_nothing(machine):
    assert machine.complete(["torch>=2.11", "jupyterlab<1"]) == (True, [READY.format("")])
    assert machine.given_to_pip() is None


def test_what_is_missing_is_installed_and_nothing_else_changed(machine):
    machine.distribution("made-up", "1.13")
    machine.distribution("old", "2.0")
    requires = ["torch>=2.11", "absent-b>=2", "old<2", "made-up", "absent-a"]
    said = READY.format(" Installed beside it: absent-a, absent-b>=2, old<2.")
    assert machine.complete(requires) == (True, [said])
    words, kept, brought, is_safe = machine.given_to_pip()
    assert words == ["install", "-q", "--constraint"] and is_safe
    assert kept == ["made-up==1.13", "torch==2.12", ""]
    assert brought == ["absent-a", "absent-b>=2", "old<2"]


@pytest.mark.parametrize("torch", ["2.12.0a0+git1234", "3.1.0+cu140"])
def test_a_pytorch_before_its_release_or_newer_than_those_tried_stays(machine, torch):
    done, (said,) = machine.complete(["torch<2.14,>=2.11", "absent"], torch)
    assert done and f"the PyTorch {torch} of this machine" in said
    assert ("which is newer than any that it was tried with" in said) == (torch[0] == "3")
    assert f"torch=={torch}" in machine.given_to_pip()[1]


def test_an_old_pytorch_is_left_to_the_user(machine):
    done, (said,) = machine.complete(["torch<2.14,>=2.11", "absent"], "2.10.2")
    words = "PyTorch 2.10.2 is here, and the course needs one that is >=2.11 and <2.14. "
    assert not done and said.startswith(words) and machine.given_to_pip() is None
    assert '%pip install "torch<2.14,>=2.11"' in said and "Kaggle: Run" in said


def test_requirements_of_extras_and_other_systems_do_not_count():
    requires = ["a; extra == 'test'", "b; python_version < '3'", "c; python_version > '3'"]
    assert install_missing.look(requires) == Needs(missing=["c"])


def test_only_what_the_session_uses_needs_a_restart(machine):
    for name in ("one", "two", "three"):
        machine.distribution(name, "1")
        machine.module(name)
    requires = ["one>=2", "two>=2", "three>=2", "absent"]
    said = ["Restart the session: it still uses the old one and three."]
    assert machine.complete(requires, uses="one three") == (False, said)
    assert machine.given_to_pip()[2] == ["absent", "one>=2", "three>=2", "two>=2"]


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [("one\ntwo\nERROR: three\n", "ERROR: three"), (" \n", "it gave no reason")],
)
def test_where_pip_fails_its_last_line_is_told(machine, complaint, reason):
    machine.pip(status=1, complaint=complaint)
    done, (said,) = machine.complete(["a", "b"])
    assert not done and said.startswith(f"pip could not install a, b: {reason}. If the ")


def test_what_else_the_lessons_need_is_told(machine):
    done, (said,) = machine.complete([], CXX="/no/such/compiler")
    assert not done and said.startswith("C++ compiler is missing here: lessons 01, ")


def test_what_completes_the_course_runs_without_what_is_missing():
    """At first not even those packages are there that importing the course's rooms needs: only
    packaging, which the kernel of every notebook has.
    """
    assert any(text.startswith("packaging") for text in metadata.requires("ipykernel"))
    text = "import sys; from lessons_lib.start import install_missing; print(*sys.modules)"
    run = python("-c", text)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    own = {re.split(r"[<>= ]", text)[0] for text in REQUIRES} - {"packaging"}
    assert "lessons_lib" in loaded and not loaded & own


def test_each_requirement_of_the_course_is_looked_at():
    needs = install_missing.look(REQUIRES)
    assert (
        install_missing.NAME == installation.NAME and not needs.missing and not needs.refused
    )
    own = {re.split(r"[<>= ]", text)[0] for text in REQUIRES if "extra" not in text}
    assert {text.split("==")[0] for text in needs.met} == own - {"jupyterlab"}
