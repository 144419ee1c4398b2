"""`draw_tokens`: which token each row gets, exactly, and that bad rows change no other."""

from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paged_attention.engine.fast.graph import capture
from paged_attention.engine.fast.sampler import draw_tokens

INF, NAN = float("inf"), float("nan")
LAST = 2.0**-53  # the last bit of a random number
CPU = torch.device("cpu")


def batch(*rows) -> tuple[torch.Tensor, ...]:
    """The arguments for rows of (logits, temperature, top_k, top_p, number)."""
    logits, temperature, top_k, top_p, numbers = zip(*rows)
    return (
        torch.tensor(logits, dtype=torch.float64),
        torch.tensor(temperature, dtype=torch.float64),
        torch.tensor(top_k),
        torch.tensor(top_p, dtype=torch.float64),
        torch.tensor(numbers, dtype=torch.float64),
    )


@st.composite
def weights_and_rows(draw):
    """Rows of weights 1, 2, 4 and 8, so that their sums are exact, and their parameters."""
    num_seqs, vocab_size = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    powers = st.lists(st.integers(0, 3), min_size=vocab_size, max_size=vocab_size)
    row = st.tuples(
        powers.map(lambda each: [2**power for power in each]),
        st.sampled_from([0.25, 1.0, 2.0]),
        st.integers(1, vocab_size),
        st.integers(1, 8).map(lambda eighths: eighths / 8),
        st.floats(0, 1, exclude_max=True),
    )
    return draw(st.lists(row, min_size=num_seqs, max_size=num_seqs))


def expected(weights, top_k, top_p, number) -> int:
    """The token, in exact fractions. Leaves aside what rounding may decide either way."""
    order = sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]
    whole = sum(weights[token] for token in order)
    limits, reached = [], 0
    for token in order:
        assume(reached == 0 or abs(Fraction(reached, whole) - Fraction(top_p)) > 1e-9)
        if reached < Fraction(top_p) * whole:
            limits.append((reached + weights[token], token))
        reached += weights[token]
    point = Fraction(number) * limits[-1][0]
    assume(all(abs(limit - point) > 1e-9 for limit, _ in limits))
    return next(token for limit, token in limits if limit >= point)


@settings(max_examples=100, deadline=None)
@given(rows=weights_and_rows())
def test_each_row_gets_the_token_that_its_own_number_points_at(rows):
    arguments = batch(
        *(
            ((torch.tensor(weights).double().log() * temperature).tolist(), temperature, *own)
            for weights, temperature, *own in rows
        )
    )
    tokens = draw_tokens(*arguments)
    assert tokens.dtype == torch.int64 and tokens.shape == (len(rows),)
    assert tokens.tolist() == [expected(weights, *own) for weights, _, *own in rows]


@pytest.mark.parametrize(
    ("number", "top_p", "token"),
    [
        (0.0, 1.0, 0),
        (0.25, 1.0, 0),
        (0.25 + LAST, 1.0, 1),
        (0.75, 1.0, 2),
        (1 - LAST, 1.0, 3),
        (1 - LAST, 0.5, 1),
        (1 - LAST, 0.5 + LAST, 2),
        (0.5, 0.5, 0),
    ],
)
def test_of_four_equal_ones_a_number_that_a_sum_just_reaches(number, top_p, token):
    assert draw_tokens(*batch(([1.5] * 4, 1.0, 4, top_p, number))).tolist() == [token]


def test_of_equal_ones_the_lowest_come_first():
    rows = [([0.0, 1.0] * 250, 1.0, 3, 1.0, number) for number in (0.1, 0.5, 0.9)]
    assert draw_tokens(*batch(*rows)).tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    "bad", [[NAN, 0.5, 0.1], [INF, 0.5, 0.1], [-INF] * 3, [NAN] * 3], ids=str
)
@pytest.mark.parametrize("number", [0.0, 1 - LAST])
def test_a_row_that_is_not_finite_changes_no_other_and_gets_some_token(bad, number):
    rows = [([0.2, -INF, 0.3], 0.5, 2, 0.9, each) for each in (0.1, 0.5, 0.9)]
    alone = draw_tokens(*batch(*rows)).tolist()
    for place in range(4):
        tokens = draw_tokens(
            *batch(*rows[:place], (bad, 1.0, 3, 1.0, number), *rows[place:])
        ).tolist()
        assert 0 <= tokens.pop(place) < 3
        assert tokens == alone


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_logits_of_any_dtype_are_computed_in_float64_and_do_not_change(dtype):
    arguments = batch(
        *(([i / 256 for i in range(256)], 0.5, 200, 0.9, n / 9) for n in range(9))
    )
    logits = arguments[0].to(dtype)
    before = [each.clone() for each in (logits, *arguments[1:])]
    tokens = draw_tokens(logits, *arguments[1:])
    assert torch.equal(tokens, draw_tokens(logits.double(), *arguments[1:]))
    assert all(map(torch.equal, before, (logits, *arguments[1:])))


def test_it_can_be_recorded_and_follows_its_parameters():
    """So nothing is read on the host."""
    own = batch(*(([0.3, 0.1, 0.2, 0.4], 1.0, 4, 1.0, n / 7) for n in range(7)))
    others = batch(*(([0.4, 0.4, -INF, 0.1], 0.3, 1 + n % 3, 0.6, n / 7) for n in range(7)))
    expected = draw_tokens(*others).tolist()
    graph = capture(lambda: draw_tokens(*own), CPU)
    for tensor, other in zip(own, others):
        tensor.copy_(other)
    assert graph.replay().tolist() == expected
