"""What the doctor says of a machine. The machines are made up by the tests."""

import platform
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lessons_command import doctor
from lessons_command.doctor import Finding, Report

THERE = Finding("ninja", "1.13", True, "no <build>", "get ninja")
LACKING = Finding("C++ compiler", "", True, "no <C++>", "get g++ & more")
DISPENSABLE = Finding("GPU", "", False, "it is slower", "buy one")


def test_a_mark_says_whether_a_part_is_there_and_needed():
    assert [each.mark for each in (THERE, LACKING, DISPENSABLE)] == ["✓", "✗", "–"]


NOT_READY = "Not ready: the rows marked ✗ say what to install."
READY = "Ready: everything that the lessons need is here."


@pytest.mark.parametrize(
    "findings, ready, summary",
    [
        ((THERE, DISPENSABLE), True, READY),
        ((THERE, LACKING), False, NOT_READY),
        ((), True, READY),
    ],
)
def test_a_machine_is_ready_if_nothing_that_is_needed_is_missing(findings, ready, summary):
    report = Report(findings)
    assert (report.ready, report.summary) == (ready, summary)


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


def test_a_report_as_a_page():
    left = "<td style='text-align:left'>"
    assert Report((THERE, LACKING))._repr_html_() == (
        f"<table><tbody><tr><td>✓</td><td><b>ninja</b></td>{left}1.13</td></tr>"
        f"<tr><td>✗</td><td><b>C++ compiler</b></td>{left}not found. "
        "Without it: no &lt;C++&gt;.<br>To get it: get g++ &amp; more.</td></tr>"
        f"</tbody></table><p>{NOT_READY}</p>"
    )


@pytest.fixture
def machine(monkeypatch):
    """A machine on which nothing that the lessons need is found."""
    for name in ("_python", "_headers", "_ninja", "_cuda_on_cpu", "_nvcc", "_gpu"):
        monkeypatch.setattr(doctor, name, lambda: "")
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    monkeypatch.setattr(doctor, "_first_line", lambda *command: "")
    monkeypatch.setattr(doctor.whole, "faults", lambda: "a file is missing")
    monkeypatch.setattr(doctor.whole, "remedy", lambda: "mend it")


def test_the_lessons_need_some_parts_and_can_do_without_others(machine):
    findings = {each.name: each.needed for each in doctor.doctor().findings}
    needed = "Python,the course,PyTorch,transformers,C++ compiler,Python headers,ninja"
    assert findings == {
        **dict.fromkeys([*needed.split(","), "CUDA on the CPU"], True),
        **dict.fromkeys(["addr2line", "nvcc", "GPU"], False),
    }


@pytest.mark.parametrize(
    "faults, version, found",
    [("a file is missing", "1.0", ""), ("", "1.0", "1.0"), ("", "", "a copy")],
)
def test_the_course_itself_may_be_damaged(machine, monkeypatch, faults, version, found):
    monkeypatch.setattr(doctor.whole, "faults", lambda: faults)
    monkeypatch.setattr(doctor, "_version", lambda package: version)
    (course,) = [each for each in doctor.doctor().findings if each.name == "the course"]
    assert (course.found, course.without_it, course.remedy) == (found, faults, "mend it")


@pytest.mark.parametrize("named, program", [(None, "c++"), ("clang++", "clang++")])
def test_the_compiler_is_the_one_that_the_variable_names(machine, monkeypatch, named, program):
    monkeypatch.delenv("CXX", raising=False)
    if named:
        monkeypatch.setenv("CXX", named)
    monkeypatch.setattr(doctor, "_first_line", lambda *command: " ".join(command))
    found = {each.name: each.found for each in doctor.doctor().findings}
    assert found["C++ compiler"] == f"{program} --version"
    assert found["addr2line"] == "addr2line --version"


@pytest.mark.parametrize(
    "version, is_enough", [((3, 11), True), ((3, 12, 1), True), ((3, 10, 14), False)]
)
def test_python_has_to_be_new_enough(monkeypatch, version, is_enough):
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version))
    assert doctor._python() == (platform.python_version() if is_enough else "")


def test_a_package_that_is_not_there_has_no_version():
    assert doctor._version("pytest") == pytest.__version__
    assert doctor._version("no-such-package") == ""


@pytest.fixture
def programs(monkeypatch):
    """`programs[command]`: its exit status and what it prints, or an error."""
    programs = {}

    def run(command, *, capture_output=False, text=False, timeout=None):
        assert capture_output and text and timeout == 120  # two minutes
        result = programs.get(" ".join(command), FileNotFoundError())
        if isinstance(result, Exception):
            raise result
        return SimpleNamespace(returncode=result[0], stdout=result[1])

    monkeypatch.setattr(doctor.subprocess, "run", run)
    return programs


RESULTS = {
    "one line": ((0, "g++ 13\n"), "g++ 13"),
    "more lines": ((0, "\n g++ 13 \nCopyright\n"), "g++ 13 "),
    "nothing": ((0, ""), ""),
    "a failure": ((1, "g++ 13\n"), ""),
    "missing": (FileNotFoundError(), ""),
    "for ever": (subprocess.TimeoutExpired("c++", 120), ""),
}


@pytest.mark.parametrize("result, line", RESULTS.values(), ids=RESULTS)
def test_of_what_a_program_prints_the_first_line_counts(programs, result, line):
    programs["c++ --version"] = result
    assert doctor._first_line("c++", "--version") == line


NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\n  Cuda compilation tools, release 12.8\nBuild\n"


@pytest.mark.parametrize(
    "result, line",
    [
        ((0, NVCC), "Cuda compilation tools, release 12.8"),
        ((0, "nvcc\n"), ""),
        (FileNotFoundError(), ""),
        (subprocess.TimeoutExpired("nvcc", 120), ""),
    ],
)
def test_of_what_nvcc_prints_the_release_counts(programs, result, line):
    programs["nvcc --version"] = result
    assert doctor._nvcc() == line


def test_headers_are_there_if_the_file_is(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sysconfig, "get_path", {"include": str(tmp_path)}.get)
    assert doctor._headers() == ""
    (tmp_path / "Python.h").touch()
    assert doctor._headers() == "Python.h"


def test_ninja_beside_python_comes_first(monkeypatch, tmp_path, programs):
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    programs |= {
        f"{tmp_path}/ninja --version": (0, "beside"),
        "/usr/bin/ninja --version": (0, "on the path"),
        "ninja --version": (0, "anywhere"),
    }
    found = []
    monkeypatch.setattr(doctor.shutil, "which", lambda name: found[-1])
    for each, answer in ((None, "anywhere"), ("/usr/bin/ninja", "on the path")):
        found.append(each)
        assert doctor._ninja() == answer
    (tmp_path / "ninja").touch()
    assert doctor._ninja() == "beside"


@pytest.mark.parametrize("is_available, name", [(True, "H100"), (False, "")])
def test_a_gpu_is_there_if_pytorch_can_use_it(monkeypatch, is_available, name):
    cuda = SimpleNamespace(is_available=lambda: is_available, get_device_name=lambda: "H100")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert doctor._gpu() == name


def test_without_pytorch_there_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert doctor._gpu() == ""


@pytest.mark.parametrize("findings, status", [((THERE,), 0), ((LACKING,), 1)])
def test_the_program_prints_its_report_and_says_whether_it_is_ready(
    monkeypatch, capsys, findings, status
):
    monkeypatch.setattr(doctor, "doctor", lambda: Report(findings))
    assert doctor.main() == status
    assert capsys.readouterr().out == f"{Report(findings)!r}\n"


def test_it_is_a_program(monkeypatch, capsys, programs):
    monkeypatch.setattr(doctor.whole, "faults", lambda: "")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(doctor.__file__, run_name="__main__")
    assert left.value.code == 1 and NOT_READY in capsys.readouterr().out
