"""What a step costs the host depends on what is scheduled, and not on what else there is."""

from dataclasses import replace

import pytest

from paged_attention.engine.checkpoint import load_model
from tools.bench.host_steps import MOST, Sizes, measure

BASE = Sizes(num_blocks=60, cached=20, waiting=30, running=4)


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def base(model):
    return measure(model, "as it is", BASE)


@pytest.mark.parametrize(
    "larger",
    [
        {"cached": 60},
        {"num_blocks": 600, "cached": 600},
        {"waiting": 300},
        {"num_blocks": 600, "running": 40},
    ],
    ids=str,
)
def test_a_request_of_a_step_takes_as_many_calls_in_a_larger_engine(model, base, larger):
    row = measure(model, "larger", replace(BASE, **larger))
    assert row.calls <= MOST * base.calls
