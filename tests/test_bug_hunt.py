"""The bug hunt: what the learner is given, and that the first fault that is left is the one
which shows.
"""

import random

import pytest

from lessons_build.source import Cell, SourceError, read_lesson
from lessons_lib import checks
from paged_attention.bug_hunt import CASES, hunt
from right_answers.lesson_06_hunt import FAULTS, GIVEN, OURS, repaired

# The case at which hunt() stops when only the faults before this one are repaired, and a word
# of what it prints.
STOPS = {
    "no-dynamic-smem": (1, "dynamic shared memory"),
    "missing-barrier": (1, "__syncthreads()"),
    "shared-alias": (1, "nan"),
    "wrong-layout": (2, "k_cache[1, 0, 1]"),
    "wrong-head-mapping": (3, "[0, 1], [0, 2]"),
    "wrong-table-stride": (4, "block_table[0, 2] holds -1"),
    "empty-context-unwritten": (5, "out[0, 0, 0] was never written"),
    "fixed-score-buffer": (6, "scores[256]"),
}


@pytest.mark.parametrize("number, fault", list(enumerate(FAULTS)))
def test_the_hunt_stops_where_the_next_fault_shows(number, fault, capsys):
    hunt(repaired(*FAULTS[:number]))
    shown = capsys.readouterr().out
    stop, words = STOPS[fault]
    assert f"\n{stop}. {CASES[stop - 1].title}: " in f"\n{shown}" and words in shown
    assert shown.count(": as the reference\n") == stop - 1


def test_the_repaired_kernel_passes_every_case(capsys):
    hunt(OURS)
    assert capsys.readouterr().out.count(": as the reference\n") == len(CASES)


@pytest.mark.parametrize("seed", range(3))
def test_of_any_faults_the_first_one_is_named(seed):
    """In whatever order they are repaired."""
    left = [fault for fault in FAULTS if fault in random.Random(seed).sample(FAULTS, 3)]
    result = checks.run("6.8", repaired(*(fault for fault in FAULTS if fault not in left)))
    assert result.mistake == left[0], (left, result.message)


def test_what_was_given_is_not_an_attempt():
    for text in (GIVEN, "// my kernel\n" + GIVEN.replace("  ", "    ") + "\n\n"):
        assert checks.run("6.8", text).mistake == checks.NOT_ATTEMPTED


def test_the_given_text_hides_what_it_should():
    assert len(FAULTS) == 8 and not any(
        words in GIVEN for words in ("SOLUTION", "STUB", '#include "', "fault")
    )


def test_a_cell_of_faults_needs_no_stub_that_fails(tmp_path):
    path = tmp_path / "01_test.py"
    source = 'text = r"""\n// BEGIN SOLUTION STUB: x = 6;\nx = 7;\n// END SOLUTION\n"""'
    path.write_text(f'# %% exercise="1.1" language="cuda" faulty=true\n{source}\n')
    (cell,) = read_lesson(path).cells
    assert cell == Cell("exercise", source, "1.1", "cuda", faulty=True)
    assert cell.student() == 'text = r"""\nx = 6;\n"""'
    assert (
        cell.solution()
        == cell.student()
        + """
# BEGIN SOLUTION
text = text.replace(
    "x = 6;",
    "x = 7;",
)
# END SOLUTION"""
    )
    path.write_text('# %% exercise="1.1" faulty=true\nx = 7\n')
    with pytest.raises(SourceError, match="cell with regions"):
        read_lesson(path)
