"""The promise about build times, measured; takes a minute."""

import pytest

from lessons_bench.cpp_builds import main


@pytest.mark.slow
@pytest.mark.alone
def test_a_build_takes_a_quarter_of_the_default_and_a_rebuild_no_time():
    assert main() == 0
