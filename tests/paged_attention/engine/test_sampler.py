"""`sample` at its limits: which token is drawn, exactly, and extreme numbers."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paged_attention.engine import sampler
from paged_attention.engine.draws import draw_number
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample

INF = float("inf")


def drawn(logits, times=120, seed=0, **params) -> set[int]:
    """The tokens that come up at some positions."""
    params = SamplingParams(**{"temperature": 1.0, "seed": seed} | params)
    return {sample(torch.as_tensor(logits), params, position) for position in range(times)}


@pytest.mark.parametrize(
    ("top_p", "count"),
    [(0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4)],
)
def test_of_equal_tokens_as_few_as_reach_top_p(top_p, count):
    """Two of four equal ones have 0.5 together; a third is not needed."""
    assert drawn([1.5, 1.5, 1.5, 1.5], top_p=top_p) == set(range(count))


def test_of_equal_tokens_the_lowest_come_first():
    """Of so many, a sort that is not stable changes the order."""
    assert drawn([0.0] * 500, top_k=3) == {0, 1, 2}
    assert drawn([0.0, 1.0] * 250, top_k=3) == {1, 3, 5}


@pytest.mark.parametrize(
    ("top_k", "tokens"),
    [(1, {1}), (2, {1, 3}), (3, {0, 1, 3}), (4, {0, 1, 2, 3}), (9, {0, 1, 2, 3})],
)
def test_only_the_top_k_likeliest_are_drawn(top_k, tokens):
    assert drawn([0.2, 0.4, 0.1, 0.3], top_k=top_k) == tokens


@settings(max_examples=60, deadline=None)
@given(
    powers=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    top_k=st.none() | st.integers(1, 6),
    eighths=st.integers(1, 8),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_number_says_which_of_the_tokens_that_stay_is_drawn(powers, top_k, eighths, seed):
    """Weights 1, 2, 4 and 8, so that their sums are exact."""
    weights = [2**power for power in powers]
    order = sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]
    whole = sum(weights[token] for token in order)
    limits = []  # (the running sum, its token) of those that stay
    reached = 0
    for token in order:
        # exactly top_p, and no binary fraction: either is right
        assume(reached * 8 != eighths * whole or whole.bit_count() == 1)
        if reached * 8 < eighths * whole:
            limits.append((reached + weights[token], token))
        reached += weights[token]
    logits = torch.tensor(weights).double().log()
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=eighths / 8, seed=seed)
    for position in range(40):
        number = Fraction(draw_number(seed, position)) * limits[-1][0]
        expected = next(token for limit, token in limits if limit >= number)
        assert sample(logits, params, position) == expected


@pytest.mark.parametrize(
    ("number", "token"),
    [(0.0, 0), (0.25, 0), (0.25 + 2**-53, 1), (0.5, 1), (0.75 + 2**-53, 3), (1 - 2**-53, 3)],
)
def test_a_number_that_a_sum_just_reaches_and_the_smallest_and_the_largest(
    monkeypatch, number, token
):
    monkeypatch.setattr(sampler, "draw_number", lambda seed, position: number)
    assert drawn([0.0] * 4, times=1) == {token}
    # scaled, it is in a third of what three tokens have together
    assert drawn([0.0] * 4, times=1, top_p=0.75) == {int(number * 3)}


@pytest.mark.parametrize("temperature", [1e-5, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_logits_at_the_end_of_their_range(temperature, dtype):
    """Divided by the smallest temperature they are far beyond float32, and still there is a
    token to draw.
    """
    largest = torch.finfo(dtype).max
    logits = torch.tensor([-largest, largest, 0.0, largest], dtype=dtype)
    tokens = drawn(logits, temperature=temperature)
    assert tokens == (
        {0, 1, 2, 3} if temperature == 1e30 and dtype == torch.float16 else {1, 3}
    )


def test_a_temperature_that_is_nearly_nothing_is_refused_and_the_smallest_is_not():
    with pytest.raises(
        ValueError, match="temperature 1e-06 is too close to 0; 0 takes the likeliest token"
    ):
        SamplingParams(temperature=1e-6)
    assert SamplingParams(temperature=1e-5).temperature == 1e-5
    assert drawn([1.0, 1.0 + 1e-3], temperature=1e-5) == {1}


@pytest.mark.parametrize(
    "params",
    [{}, {"top_k": 3}, {"top_p": 0.99}, {"top_k": 9, "top_p": 1.0}, {"temperature": 50.0}],
)
def test_what_is_ruled_out_never_comes(params):
    assert drawn([-INF, 0.3, -INF, 0.2, -INF], times=400, **params) == {1, 3}


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_the_row_stays_as_it_is(temperature):
    logits = torch.tensor([0.5, -INF, 2.0])
    before = logits.clone()
    drawn(logits, temperature=temperature, top_k=2, top_p=0.9)
    assert torch.equal(logits, before)


def test_temperature_0_draws_nothing(monkeypatch):
    def draw_number(seed, position):
        raise AssertionError("a number is drawn")

    monkeypatch.setattr(sampler, "draw_number", draw_number)
    logits = torch.tensor([0.0, 2.0, 1.0])
    assert sample(logits, SamplingParams(), 3) == 1
    with pytest.raises(AssertionError, match="a number is drawn"):
        sample(logits, SamplingParams(temperature=1.0), 3)


def test_a_draw_depends_on_seed_and_position_alone():
    logits, params = torch.zeros(50), SamplingParams(temperature=1.0, seed=7)
    forwards = [sample(logits, params, position) for position in range(9)]
    torch.manual_seed(2)
    backwards = [sample(logits, params, position) for position in reversed(range(9))]
    assert forwards == backwards[::-1] and len(set(forwards)) > 1
    other = replace(params, seed=8)
    assert [sample(logits, other, position) for position in range(9)] != forwards
