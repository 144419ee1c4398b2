"""A teacher tries their own mistakes first: `make grade ARGS="mistakes …"`."""

import os
import subprocess
import sys

import pytest

from lessons_lib.paths import ROOT

SHOWN = """## seven-more
You add 7. Where does it come from?

    returns: result + 7
"""
ALREADY = """## rounds-down
You round down.

    returns: num_tokens // block_size
"""
NOTHING = """## the-same-in-other-words
It is the same.

    returns: result + 0
    or
    returns: result - 0
"""


@pytest.fixture
def tried(tmp_path):
    """The exit code and the lines of the command, started as a teacher does."""

    def run(text: str | None, folder: str = str(tmp_path)):
        if text is not None:
            (tmp_path / "0.1_mine.mistakes").write_text(text)
        command = [sys.executable, "-m", "lessons_grading", "mistakes"]
        environment = {**os.environ, "LESSONS_MISTAKES": folder}
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, text=True, capture_output=True
        )
        assert not ran.stderr
        return ran.returncode, ran.stdout.splitlines()

    return run


@pytest.mark.slow
def test_a_mistake_whose_message_is_shown(tried):
    assert tried(SHOWN) == (
        0,
        [
            "0.1_mine.mistakes:4: seven-more: its message is shown.",
            "Of 1 form, 1 shows its message.",
        ],
    )


@pytest.mark.slow
def test_a_mistake_that_the_course_names_first_and_one_that_no_case_sees(tried):
    code, (first, second, third, last) = tried(ALREADY + "\n" + NOTHING)
    assert code == 1
    assert first.startswith(
        "0.1_mine.mistakes:4: rounds-down: the course names it first: `floor-division`, "
    )
    ending = "the check passes. No case can tell it from our answer."
    assert second == f"0.1_mine.mistakes:9: the-same-in-other-words: {ending}"
    assert third == f"0.1_mine.mistakes:11: the-same-in-other-words: {ending}"
    assert last == "Of 3 forms, 0 show their message."


def test_a_text_that_cannot_be_read_is_said_with_its_line(tried):
    code, lines = tried("## a\nA.\n\n    block_sise => 1\n")
    assert code == 2 and lines[0].startswith("0.1_mine.mistakes:4: `block_sise` is not in our")


@pytest.mark.slow
def test_an_empty_folder_and_none(tried, tmp_path):
    assert tried(None) == (2, [f"There is no file of mistakes in {tmp_path}."])
    code, (line,) = tried(None, "")
    assert code == 2 and 'make grade ARGS="mistakes FOLDER"' in line
