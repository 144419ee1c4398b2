"""What a request begins with, and which parameters are refused."""

import pytest

from paged_attention.engine.request import Request, SamplingParams


def test_unless_it_is_told_otherwise_a_request_takes_the_likeliest_token_64_times_at_most():
    plain = SamplingParams(max_new_tokens=64, temperature=0, top_k=None, top_p=1, seed=0)
    assert SamplingParams() == plain and not plain.ignore_end


@pytest.mark.parametrize(
    "name, values",
    [
        ("max_new_tokens", [1, 10**9]),
        ("temperature", [0, 1e-5, 0.5, 1.0, 100.0]),
        ("top_k", [None, 1, 2]),
        ("top_p", [1e-9, 0.5, 1, 1.0]),
        ("seed", [-(2**63), -1, 0, 2**64 - 1]),
    ],
)
def test_values_up_to_the_ends_of_their_ranges_are_taken(name, values):
    for value in values:
        assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(
    "name, values, words",
    [
        ("max_new_tokens", [0, -1], "max_new_tokens must be 1 or more"),
        ("top_k", [0, -1], "top_k must be 1 or more"),
        ("temperature", [-1e-9, -1.0, float("inf"), float("nan")], "temperature must be 0 or"),
        ("temperature", [9.9e-6, 1e-30], "is too close to 0"),
        ("top_p", [0, 0.0, -0.5, 1.001, 2.0, float("nan")], "top_p must be above 0"),
        ("seed", [-(2**63) - 1, 2**64], "seed must fit into 64 bits"),
    ],
)
def test_values_past_the_ends_of_their_ranges_are_refused(name, values, words):
    for value in values:
        with pytest.raises(ValueError, match=words):
            SamplingParams(**{name: value})


@pytest.mark.parametrize("name", ["max_new_tokens", "top_k", "seed"])
def test_a_fraction_is_refused_where_a_whole_number_is_wanted(name):
    with pytest.raises(TypeError, match=f"{name} must be an integer, not float: 1.5"):
        SamplingParams(**{name: 1.5})
    with pytest.raises(TypeError, match="max_new_tokens must be an integer, not NoneType"):
        SamplingParams(max_new_tokens=None)


def test_its_tokens_are_those_of_the_prompt_and_no_others():
    with pytest.raises(TypeError):
        Request("a", [1], tokens=[2])
