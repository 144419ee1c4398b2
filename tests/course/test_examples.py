"""Which examples hypothesis draws in this course's tests."""

import subprocess
import sys

import pytest

from lessons_lib.paths import ROOT

DRAWING = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=20)
@given(st.integers())
def test_drawing(number):
    print("drawn", number)
    assert settings().deadline is None
"""


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """What a run of pytest draws, and the words at its head."""
    (tmp_path / "test_drawing.py").write_text(DRAWING)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:xdist", "-s"]
        lines = subprocess.run(
            [*command, *options], cwd=tmp_path, text=True, capture_output=True, check=True
        ).stdout.splitlines()
        (head,) = (line for line in lines if line.startswith("examples: "))
        return [line.split("drawn ")[1] for line in lines if "drawn -" in line], head

    return run


@pytest.mark.slow(nightly=True)
def test_they_are_the_same_each_time_and_a_seed_draws_others_and_repeats_them(drawn):
    usual = drawn()
    assert drawn() == usual
    of_a_seed, head = drawn("--hypothesis-seed=7")
    assert head == "examples: drawn anew; --hypothesis-seed=7 repeats them"
    assert of_a_seed and of_a_seed != usual[0]
    assert drawn("--hypothesis-seed=7") == (of_a_seed, head)
