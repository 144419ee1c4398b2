"""How much of an engine's step learners write: no less than CONTRIBUTING says."""

import pytest

from tools.share import GIVEN, count_lines


@pytest.mark.slow
@pytest.mark.parametrize("room, least", [("", 0.43), ("engine", 0.36)])
def test_learners_write_more_than_a_third_of_what_a_step_executes(room, least):
    counts = count_lines(room)
    assert {f"8.{number}" for number in range(1, 10)} <= set(counts)
    assert 1 - counts[GIVEN] / counts.total() > least
