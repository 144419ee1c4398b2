"""What the doctor says of a machine. Its programs are stand-ins on the PATH."""

import os

import pytest

from lessons_lib.start.doctor import Finding, Report
from made_packages import Packages

THERE = Finding("ninja", "1.13", True, "no <build>", "get ninja")
LACKING = Finding("C++ compiler", "", True, "no <C++>", "get g++ & more")
DISPENSABLE = Finding("GPU", "", False, "it is slower", "buy one")
NOT_READY = "Not ready: the rows marked ✗ say what to install."
TORCH = "class cuda:\n    is_available = lambda: {}\n    get_device_name = lambda: 'H100'\n"


def test_a_report_as_text():
    assert repr(Report((THERE, LACKING, DISPENSABLE))).split("\n") == [
        "✓ ninja           1.13",
        "✗ C++ compiler    not found",
        "    without it: no <C++>",
        "    to get it:  get g++ & more",
        "– GPU             not found",
        "    without it: it is slower",
        "    to get it:  buy one",
        NOT_READY,
    ]


def test_a_report_as_a_page_shows_what_it_quotes_as_it_is():
    page = Report((THERE, LACKING))._repr_html_()
    assert "<td>✓</td><td><b>ninja</b></td>" in page and NOT_READY in page
    assert "Without it: no &lt;C++&gt;.<br>To get it: get g++ &amp; more." in page


@pytest.fixture
def examine(tmp_path):
    """Calls the doctor where `programs` print these texts and end with these statuses."""
    packages = Packages(tmp_path / "packages")
    packages.module("torch", TORCH.format(False))

    def examine(gpu=False, path="", programs=(), **variables):
        packages.module("torch", TORCH.format(gpu))
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        for name, text, status in programs:
            program = folder / name
            program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {status}\n")
            program.chmod(0o755)
        variables = {"CXX": "", "PATH": f"{folder}{os.pathsep}{path}"} | variables
        run = packages.run("-m", "lessons_lib.start.doctor", **variables)
        lines = [line for line in run.stdout.splitlines() if line[0] in "✓✗–"]
        return run.returncode, {line[2:17].strip(): (line[0], line[18:]) for line in lines}

    return examine


def test_a_machine_with_nothing_but_python_is_not_ready(examine):
    status, found = examine()
    assert status == 1
    needed = {"Python", "the course", "PyTorch", "transformers", "C++ compiler"}
    needed |= {"Python headers", "ninja", "CUDA on the CPU"}
    assert set(found) == needed | {"addr2line", "nvcc", "GPU"}
    for name in ("addr2line", "nvcc", "GPU"):
        assert found[name] == ("–", "not found")
    assert found["C++ compiler"] == ("✗", "not found")
    assert found["Python"][0] == found["the course"][0] == found["ninja"][0] == "✓"


NVCC = (
    r"nvcc: NVIDIA (R) Cuda compiler driver\n  Cuda compilation tools, release 12.8\nBuild\n"
)


def test_of_what_programs_print_the_line_with_their_version_is_shown(examine):
    """The compiler is the one that the variable CXX names."""
    programs = [("c++", r"\ng++ 13\nCopyright\n", 0), ("nvcc", NVCC, 0)]
    programs += [("mine", "clang 20", 0), ("addr2line", "fails", 1)]
    status, found = examine(gpu=True, programs=programs)
    assert status == 0 and found["C++ compiler"] == ("✓", "g++ 13")
    assert found["nvcc"] == ("✓", "Cuda compilation tools, release 12.8")
    assert found["addr2line"] == ("–", "not found") and found["GPU"] == ("✓", "H100")
    programs = [*programs[2:], ("atos", "", 1), ("nvcc", "no version", 0)]
    status, found = examine(programs=programs, CXX="mine")
    assert found["addr2line"][1].endswith("/atos")  # macOS's program for the same
    assert status == 0 and found["C++ compiler"] == ("✓", "clang 20")
    assert found["nvcc"] == found["GPU"] == ("–", "not found")
