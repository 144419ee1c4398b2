"""A cell that takes long says what it waits for, and leaves nothing behind."""

import re
import threading
import time

import pytest

from lessons_lib.processes.waiting import waiting


def test_the_line_counts_and_goes_at_the_end():
    said, twice = [], threading.Event()

    def show(line):
        said.append(line)
        if len(said) == 2:
            twice.set()

    with waiting("Compiling C++", show, patience=0.01):
        assert twice.wait(60)
    assert all(re.fullmatch(r"Compiling C\+\+ … \d+ s", line) for line in said[:2])
    assert said[-1] == "" and said.count("") == 1


@pytest.mark.parametrize("patience, wanted", [(2.0, []), (0.0, ["Compiling C++ …", ""])])
def test_a_short_wait_says_nothing_unless_it_is_known_to_be_long(patience, wanted):
    said = []
    with waiting("Compiling C++", said.append, patience):
        pass
    assert said == wanted


def test_an_error_goes_through_and_ends_the_line():
    said = []
    with (
        pytest.raises(ZeroDivisionError),
        waiting("Compiling C++", said.append, patience=0.01),
    ):
        while not said:
            time.sleep(0.01)
        raise ZeroDivisionError
    assert said[-1] == ""


def test_in_a_notebook_the_line_is_below_the_cell(displayed, monkeypatch):
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    with waiting("Compiling", patience=0.0):
        pass
    line, end = displayed
    assert line["data"] == {
        "text/plain": "Compiling …",
        "text/html": "<i>Compiling …</i>",
    }
    assert end["data"] == {"text/plain": "", "text/html": ""}
    assert end["update"] and end["transient"] == line["transient"]


def test_a_program_that_executes_notebooks_sees_no_line(displayed, monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with waiting("Compiling C++", patience=0.0):
        pass
    assert not displayed and capsys.readouterr() == ("", "")


def test_a_script_that_a_notebook_runs_shows_no_line(monkeypatch, capsys):
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    with waiting("Compiling C++", patience=0.0):
        pass
    assert capsys.readouterr() == ("", "")
