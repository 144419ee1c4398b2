"""This machine's clock is off, or is set while a class is graded: nothing depends on it.

tests/lessons_grading/cluster/test_grade_cluster_clock.py is about the clocks of Dask workers.
"""

import ast
import io
import os
from types import SimpleNamespace

import pytest
import tqdm.std
from test_grade_classroom import called, hand_in, run  # noqa: F401

from lessons_grading import command
from lessons_lib.paths import ROOT

YEAR = 365 * 86_400
# names of what reads or shows the time of day; monotonic and processor time are not of it
OF_DAY = {"time_ns", "localtime", "gmtime", "ctime", "strftime", "datetime", "getmtime"}
OF_DAY |= {"getctime", "st_mtime", "st_ctime", "CLOCK_REALTIME"}


@pytest.mark.parametrize("years", [-30, 30])
def test_files_of_another_time_are_graded_and_found_again(hand_in, capsys, years):
    """Submissions, the store and the results: what counts is what they hold."""
    names = ["ada", "bob"]
    for name in names:
        folder = hand_in(f"{name}.ipynb", name).parent
    results = folder.parent / "results"

    def date_all():
        there = os.stat(folder).st_mtime + years * YEAR
        for path in [*folder.rglob("*"), *results.rglob("*"), folder]:
            os.utime(path, (there, there))

    date_all()
    assert run(folder) == 0 and len(called(folder)) == 2
    first = (results / "results.csv").read_text()
    date_all()
    assert run(folder) == 0 and len(called(folder)) == 2
    assert (results / "results.csv").read_text() == first
    assert "Graded: 2, 2 of them in an earlier run." in capsys.readouterr().out
    about = os.stat(folder / "ada.ipynb")
    hand_in("ada.ipynb", "eda")  # as long as before, and dated as before
    os.utime(folder / "ada.ipynb", ns=(about.st_atime_ns, about.st_mtime_ns))
    hand_in("new.ipynb", "new")
    date_all()
    assert run(folder) == 0 and len(called(folder)) == 4
    assert "Graded: 3, 1 of them in an earlier run." in capsys.readouterr().out


def test_the_bar_goes_on_when_the_clock_is_set_back(monkeypatch):
    clock = SimpleNamespace(wall=1e9, steady=0.0)
    monkeypatch.setattr(tqdm.std, "time", lambda: clock.wall)
    monkeypatch.setattr(command.time, "monotonic", lambda: clock.steady)
    shown = io.StringIO()
    with command.Bar(total=4, file=shown, unit="notebook") as bar:
        for seconds in (1, 1, -3_600, 1):
            clock.wall += seconds
            clock.steady += 1
            bar.update()
            assert f"{bar.n}/4 [00:0{bar.n}<" in shown.getvalue()
    assert "-1 day" not in shown.getvalue()


def test_nothing_in_a_grade_reads_the_time_of_day():
    """But a file's time, to see that it was not written while it was read."""
    found = set()
    for folder in ("lessons_grading", "lessons_processes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = getattr(node, "attr", getattr(node, "id", ""))
                of = getattr(getattr(node, "value", None), "id", "")
                if name in OF_DAY or (of, name) == ("time", "time"):
                    found.add((path.name, name))
                if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                    found.add((path.name, node.module))
    assert found == set()
