"""What the functions of a sandbox report, without a sandbox; and how it tries an answer."""

import base64
import builtins
import ctypes
import io
import json
import os
import sys

import cloudpickle
import pytest
import torch
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

from lessons_grading import worker
from lessons_grading.controller import LENGTH
from lessons_lib.checks import Exercise, Mistake

BUFFER = ctypes.create_string_buffer(4096)  # of the module, since C goes on using it


class Exited(BaseException):
    """In place of the end of the process."""


class Narrow:
    """In place of a pipe that takes little at once."""

    def __init__(self):
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data[:5]
        return len(data[:5])

    def messages(self) -> list:
        data, found = self.data, []
        while data:
            end = LENGTH.size + LENGTH.unpack_from(data)[0]
            found.append(json.loads(data[LENGTH.size : end]))
            data = data[end:]
        return found


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Runs this as `observe`. Returns the messages, and how many of them were not read."""

    def leave(code):
        raise Exited(code)

    def run(function, *arguments) -> tuple[list, int]:
        reports, answers = Narrow(), io.BytesIO(b"\n" * 9)
        monkeypatch.setattr(worker, "observe", function)
        with pytest.raises(Exited) as exited:
            worker.run("observe", [*arguments], reports, answers)
        assert exited.value.args == (0,)
        messages = reports.messages()
        return messages, len(messages) - (9 - len(answers.read()))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LESSONS_GRADE_FOLDER", str(tmp_path))
    monkeypatch.setattr(os, "_exit", leave)
    return run


def test_reports_come_out_whole_and_each_waits_until_it_was_read(run):
    def function(first, second, report):
        report([first, "ä" * 20])
        report([second])

    assert run(function, 1, 2) == ([[1, "ä" * 20], [2], ["returned"]], 0)


@pytest.mark.parametrize(
    "raised, ended",
    [
        (SystemExit(3), ["exited", "exit(3)"]),
        (SystemExit("x" * 100), ["exited", "exit('" + "x" * 79 + ")"]),
        (ValueError("no"), ["raised", "ValueError", "ValueError: no"]),
        (KeyboardInterrupt(), ["raised", "KeyboardInterrupt", "KeyboardInterrupt"]),
        (
            ValueError("x" * 30_000),
            ["raised", "ValueError", f"ValueError: {'x' * 30_000}"[:20_000]],
        ),
    ],
    ids=["exit", "exit with a long text", "error", "interrupt", "error with a long text"],
)
def test_how_a_run_ended_is_reported(run, raised, ended):
    def function(report):
        raise raised

    assert run(function) == ([ended], 0)


def test_each_function_of_the_sandbox_can_be_called(run, monkeypatch):
    for name in ("run_cells", "build"):
        monkeypatch.setattr(worker, name, lambda report, name=name: report([name]))
        reports = Narrow()
        with pytest.raises(Exited):
            worker.run(name, [], reports, io.BytesIO(b"\n\n"))
        assert reports.messages() == [[name], ["returned"]]


def test_it_runs_in_the_folder_of_the_submission(run, tmp_path, monkeypatch):
    folder = tmp_path / "submission"
    folder.mkdir()
    monkeypatch.setenv("LESSONS_GRADE_FOLDER", str(folder))
    assert run(lambda report: report([os.getcwd()]))[0][0] == [str(folder)]


def test_a_line_comes_out_at_once_and_half_a_line_at_the_end(run, capfd):
    def function(report):
        print("a line")
        print("an error", file=sys.stderr)
        report(capfd.readouterr())
        print("half a line", end="")

    assert run(function)[0] == [["a line\n", "an error\n"], ["returned"]]
    assert capfd.readouterr() == ("half a line", "")


def test_what_c_has_printed_comes_out_at_the_end(run, capfd):
    c = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(c, "stdout")
    until_full = (
        0  # C keeps what it prints until then; under `python -u` it would keep nothing
    )
    assert c.setvbuf(stdout, BUFFER, until_full, len(BUFFER)) == 0
    run(lambda report: c.printf(b"from C"))
    assert capfd.readouterr().out == "from C"


def test_the_output_stays_open_when_a_cell_closes_its_stream(run, capfd):
    def function(report):
        sys.stdout.close()
        sys.stderr.close()
        os.write(1, b"still")
        os.write(2, b"open")

    assert run(function)[0] == [["returned"]]
    assert capfd.readouterr() == ("still", "open")


PREPARED: list[str] = []


def prepare(answer):
    PREPARED.append(answer)
    return lambda case: case + len(answer)


def observe(subject, case):
    if case == 13:
        raise ValueError("unlucky")
    return subject(case)


@pytest.fixture
def trial():
    """Tries a packed answer on these cases. Returns the reports."""
    PREPARED.clear()

    def trial(function, packed: dict, *arguments, language="c++", cases=(1, 13, 3)) -> list:
        exercise = Exercise(
            id="1.1",
            title="",
            answer_name="SOURCE",
            reference=None,
            cases=tuple,
            observe=observe,
            size=len,
            mistakes=[Mistake("typo", "Oh.", None)],
            hints=(),
            language=language,
            prepare=prepare if language == "c++" else callable_as_it_is,
            recognise=slip_in,
        )
        tryout = base64.b64encode(cloudpickle.dumps((exercise, cases))).decode()
        found = []
        function(tryout, packed, *arguments, found.append)
        return found

    return trial


def callable_as_it_is(answer):
    return answer


def slip_in(answer):
    return "typo" if "tyop" in answer else None


def test_an_answer_in_cpp_is_built(trial):
    assert trial(worker.build, {"text": "int f();"}) == [] and PREPARED == ["int f();"]


def test_what_its_text_refuses_is_neither_built_nor_tried(trial, threads):
    refused = [["refused", "typo", "Oh."]]
    assert trial(worker.build, {"text": "int tyop();"}) == refused
    assert trial(worker.observe, {"text": "int tyop();"}, []) == refused
    assert PREPARED == []


@pytest.fixture
def threads(monkeypatch):
    """What the number of threads was set to."""
    monkeypatch.setattr(torch, "set_num_threads", (numbers := []).append)
    return numbers


def test_each_case_is_reported_with_its_result(trial, threads):
    first, second, third = trial(worker.observe, {"text": "f()"}, [])
    assert first == ["case", 0, 4] and third == ["case", 2, 6]
    assert second[:2] == ["case", 1] and "ValueError: unlucky" in json.dumps(second[2])
    assert threads == [1] and PREPARED == ["f()"]


def test_cases_that_have_ended_a_run_are_left_out(trial, threads):
    found = trial(worker.observe, {"text": "f()"}, [0, 2])
    assert [report[1] for report in found] == [1]


def test_an_answer_in_python_is_tried_as_it_was_packed(trial, threads):
    answer = {"pickle": base64.b64encode(cloudpickle.dumps(lambda case: 2 * case)).decode()}
    found = trial(worker.observe, answer, [], language="python", cases=(1, 2))
    assert found == [["case", 0, 2], ["case", 1, 4]]


@pytest.fixture
def real_shell(monkeypatch, tmp_path):
    """IPython's own shell, as the sandbox has it. What it changes is put back afterwards."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    for name in ("displayhook", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(HistoryManager, "enabled", HistoryManager.enabled)
    for name in ("display", "__IPYTHON__"):
        monkeypatch.setattr(builtins, name, None, raising=False)
    monkeypatch.setattr(InteractiveShell, "_instance", None)  # other tests may have made one
    return worker._shell()


def test_ipython_runs_cells_as_a_notebook_does(real_shell, tmp_path):
    shell = real_shell
    assert shell.run_cell("def f():\n    return 3").error_in_exec is None
    assert shell.user_ns["f"]() == 3 and shell.user_ns["f"].__module__ == "__main__"
    assert shell.run_cell("x = %env IPYTHONDIR\nassert f() == 3\n%gui qt").success
    assert isinstance(shell.run_cell("1 +").error_before_exec, SyntaxError)
    assert isinstance(shell.run_cell("1 / 0").error_in_exec, ZeroDivisionError)
    assert not shell.history_manager.enabled and not [*tmp_path.rglob("history*")]
