"""The line that says what a cell waits for. Clock, threads and Jupyter are stand-ins."""

import os
import sys
from types import SimpleNamespace

import pytest

from lessons_processes import waiting

MOST_LOOKS = 100  # a thread that looks more often would never end


class Threads:
    """A stand-in for the modules `threading` and `time`.

    A thread does all of its work when it is joined. `seconds`: what the block takes.
    """

    def __init__(self, seconds: float):
        self.now, self.end, self.is_over = 64.0, 64.0 + seconds, False
        self.looks, self.made, self.joined = 0, [], 0

    def monotonic(self):
        return self.now

    def Event(self):
        return SimpleNamespace(wait=self.wait, set=lambda: setattr(self, "is_over", True))

    def wait(self, seconds):
        self.looks += 1
        assert self.looks < MOST_LOOKS
        if self.is_over and self.now + seconds >= self.end:
            return True
        self.now += seconds
        return False

    def Thread(self, target=None, daemon=None):
        def start():
            self.made.append(daemon)

        def join():
            assert self.made  # it has been started
            self.joined += 1
            target()

        return SimpleNamespace(start=start, join=join)


@pytest.fixture
def threads(monkeypatch):
    def take(seconds: float) -> Threads:
        threads = Threads(seconds)
        monkeypatch.setattr(waiting, "threading", threads)
        monkeypatch.setattr(waiting, "time", threads)
        return threads

    return take


@pytest.mark.parametrize(
    "seconds, said",
    [
        (2.0, []),
        (2.5, ["Compiling … 2 s", ""]),
        (4.5, ["Compiling … 2 s", "Compiling … 3 s", "Compiling … 4 s", ""]),
    ],
)
def test_after_two_seconds_the_line_counts_each_second(threads, seconds, said):
    made, lines, ran = threads(seconds), [], []
    with waiting.waiting("Compiling", lines.append):
        ran.append("the block")
    assert (lines, ran) == (said, ["the block"])
    assert made.made == [True]  # it keeps no program from ending
    assert made.joined == 1


def test_an_error_goes_through_and_the_line_goes(threads):
    threads(3.0)
    lines = []
    with pytest.raises(ZeroDivisionError), waiting.waiting("Compiling", lines.append):
        raise ZeroDivisionError
    assert lines == ["Compiling … 2 s", ""]


@pytest.fixture
def notebook(monkeypatch):
    """What IPython has to display, as if Jupyter's server had started this kernel."""
    shown = []

    def display(data, raw=False, display_id=False):
        assert raw and display_id
        shown.append(("new", data))

        def update(data, raw=False):
            assert raw
            shown.append(("update", data))

        return SimpleNamespace(update=update)

    shell = SimpleNamespace(kernel="a kernel")
    modules = {
        "ipykernel": SimpleNamespace(),
        "IPython": SimpleNamespace(get_ipython=lambda: shell),
        "IPython.display": SimpleNamespace(display=display),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(os.environ, "JPY_SESSION_NAME", "a notebook")
    return SimpleNamespace(shown=shown, shell=shell)


def test_in_a_notebook_the_line_is_below_the_cell(threads, notebook):
    threads(3.5)
    with waiting.waiting("Compiling"):
        pass
    assert notebook.shown == [
        ("new", {"text/plain": "Compiling … 2 s", "text/html": "<i>Compiling … 2 s</i>"}),
        ("update", {"text/plain": "Compiling … 3 s", "text/html": "<i>Compiling … 3 s</i>"}),
        ("update", {"text/plain": "", "text/html": ""}),
    ]


@pytest.mark.parametrize("missing", ["the server", "the kernel's module", "a kernel"])
def test_elsewhere_the_block_runs_and_nothing_is_shown(
    monkeypatch, threads, notebook, missing
):
    if missing == "the server":
        monkeypatch.delitem(os.environ, "JPY_SESSION_NAME")
    elif missing == "the kernel's module":
        monkeypatch.delitem(sys.modules, "ipykernel")
    else:
        del notebook.shell.kernel
    made, ran = threads(9.0), []
    with waiting.waiting("Compiling"):
        ran.append("the block")
    assert ran == ["the block"] and not made.made and not notebook.shown


def test_a_caller_that_shows_the_line_itself_needs_no_notebook(monkeypatch, threads):
    monkeypatch.delitem(os.environ, "JPY_SESSION_NAME", raising=False)
    threads(2.5)
    lines = []
    with waiting.waiting("Compiling", lines.append):
        pass
    assert lines == ["Compiling … 2 s", ""]
