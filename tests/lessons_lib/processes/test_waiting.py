"""A cell that takes long says what it waits for, and leaves nothing behind."""

import re
import threading
import time

import pytest

from lessons_processes import waiting


def test_the_line_counts_and_goes_at_the_end(monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", 0.01)
    said, twice = [], threading.Event()

    def show(line):
        said.append(line)
        if len(said) == 2:
            twice.set()

    with waiting.waiting("Compiling C++", show):
        assert twice.wait(60)
    assert all(re.fullmatch(r"Compiling C\+\+ … \d+ s", line) for line in said[:2])
    assert said[-1] == "" and said.count("") == 1


def test_a_short_wait_says_nothing():
    said = []
    with waiting.waiting("Compiling C++", said.append):
        pass
    assert said == []


def test_an_error_goes_through_and_ends_the_line(monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    said = []
    with pytest.raises(ZeroDivisionError), waiting.waiting("Compiling C++", said.append):
        while not said:
            time.sleep(0.01)
        raise ZeroDivisionError
    assert said[-1] == ""


def test_a_program_that_executes_notebooks_sees_no_line(monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    with waiting.waiting("Compiling C++"):
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")
