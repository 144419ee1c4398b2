"""`sample` at its limits: which tokens may be drawn, exactly, and extreme numbers."""

from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample

INF = float("inf")


def drawn(logits, times=120, seed=0, **params) -> set[int]:
    """The tokens that come up in some draws."""
    generator = torch.Generator().manual_seed(seed)
    params = SamplingParams(**{"temperature": 1.0} | params)
    return {sample(torch.as_tensor(logits), params, generator) for _ in range(times)}


@pytest.mark.parametrize(
    ("top_p", "count"),
    [(0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4)],
)
def test_of_equal_tokens_as_few_as_reach_top_p(top_p, count):
    """Two of four equal ones have 0.5 together; a third is not needed. Any two will do."""
    assert len(drawn([1.5, 1.5, 1.5, 1.5], top_p=top_p)) == count


@pytest.mark.parametrize(
    ("top_k", "tokens"),
    [(1, {1}), (2, {1, 3}), (3, {0, 1, 3}), (4, {0, 1, 2, 3}), (9, {0, 1, 2, 3})],
)
def test_only_the_top_k_likeliest_are_drawn(top_k, tokens):
    assert drawn([0.2, 0.4, 0.1, 0.3], top_k=top_k) == tokens


@settings(max_examples=60, deadline=None)
@given(
    powers=st.lists(st.integers(0, 3), min_size=1, max_size=5, unique=True),
    top_k=st.none() | st.integers(1, 6),
    eighths=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_who_may_be_drawn(powers, top_k, eighths, seed):
    """Weights 1, 2, 4, 8, so that their sums are exact.

    Each possible token has 1/15 at least, so 240 draws find it.
    """
    weights = [2**power for power in powers]
    kept = sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]
    whole = sum(weights[token] for token in kept)
    top_p = Fraction(eighths, 8)
    before = 0
    expected = set()
    for token in kept:
        if Fraction(before, whole) < top_p:
            expected.add(token)
        before += weights[token]
        # exactly top_p, and no binary fraction: either is right
        assume(before * 8 != eighths * whole or whole in (1, 2, 4, 8))
    logits = (
        torch.tensor(weights, dtype=torch.float64).log2() * torch.tensor(2.0).double().log()
    )
    assert drawn(logits, times=240, seed=seed, top_k=top_k, top_p=float(top_p)) == expected


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


def test_temperature_0_draws_nothing():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    assert sample(torch.tensor([0.0, 2.0, 1.0]), SamplingParams(seed=1), generator) == 1
    assert torch.equal(generator.get_state(), before)


def test_a_draw_depends_on_the_generator_alone():
    logits, params = torch.zeros(50), SamplingParams(temperature=1.0)
    torch.manual_seed(1)
    a = [
        sample(logits, params, generator)
        for generator in [torch.Generator().manual_seed(7)]
        for _ in range(9)
    ]
    torch.manual_seed(2)
    b = [
        sample(logits, params, generator)
        for generator in [torch.Generator().manual_seed(7)]
        for _ in range(9)
    ]
    assert a == b and len(set(a)) > 1
