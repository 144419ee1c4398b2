"""The next token: by `sample` for one row, by `draw_tokens` and `sample_all` for a batch.

Which token is drawn, exactly; extreme numbers; and that bad rows change no other.
"""

from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from examples import few
from fast_requests import DEVICES
from lessons_content.lesson_08 import e8_7_sample
from lessons_content.lesson_10 import e10_5_draw_tokens, rows
from paged_attention.engine.draws import draw_number
from paged_attention.engine.fast.graph import capture
from paged_attention.engine.fast.sampler import NOT_FINITE, draw_tokens, sample_all
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample

INF, NAN = float("inf"), float("nan")
LAST = 2.0**-53  # the last bit of a random number


def drawn(logits, times=120, seed=0, **params) -> set[int]:
    """The tokens that come up at some positions."""
    params = SamplingParams(**{"temperature": 1.0, "seed": seed} | params)
    before = (row := torch.as_tensor(logits)).clone()
    tokens = {sample(row, params, position) for position in range(times)}
    assert torch.equal(row, before)
    return tokens


def batch(*rows) -> tuple[torch.Tensor, ...]:
    """The arguments for rows of (logits, temperature, top_k, top_p, number)."""
    dtypes = torch.float64, torch.float64, torch.int64, torch.float64, torch.float64
    return tuple(torch.tensor(each, dtype=dtype) for each, dtype in zip(zip(*rows), dtypes))


# Which token


def those_that_stay(weights, top_k, eighths) -> list[tuple[int, int]] | None:
    """(the running sum, its token) of each, counted in integers.

    None where a sum is exactly top_p and no binary fraction: either of two tokens is right.
    """
    order = sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]
    whole = sum(weights[token] for token in order)
    limits, reached = [], 0
    for token in order:
        if reached * 8 == eighths * whole and whole.bit_count() > 1:
            return None
        if reached * 8 < eighths * whole:
            limits.append((reached + weights[token], token))
        reached += weights[token]
    return limits


@st.composite
def weights_and_params(draw):
    """Rows of weights 1, 2, 4 and 8, so that their sums are exact, and their parameters."""
    vocab_size = draw(st.integers(1, 5))
    powers = st.lists(st.integers(0, 3), min_size=vocab_size, max_size=vocab_size)
    params = st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.25, 1.0, 2.0]),
        top_k=st.none() | st.integers(1, vocab_size + 1),
        top_p=st.integers(1, 8).map(lambda eighths: eighths / 8),
        seed=st.integers(-(2**63), 2**64 - 1),
    )
    row = st.tuples(powers.map(lambda each: [2**power for power in each]), params)
    return draw(st.lists(row, min_size=1, max_size=4))


@few(50, drawn_anew=100)
@given(given=weights_and_params(), first=st.integers(0, 10**6))
def test_the_number_says_which_of_the_tokens_that_stay_is_drawn(given, first):
    for position in range(first, first + 3):
        expected, arguments = [], []
        for weights, params in given:
            limits = those_that_stay(weights, params.top_k, int(params.top_p * 8))
            assume(limits)
            number = draw_number(params.seed, position)
            point = Fraction(number) * limits[-1][0]
            assume(all(abs(limit - point) > 1e-9 for limit, _ in limits))
            expected.append(next(token for limit, token in limits if limit >= point))
            logits = torch.tensor(weights).double().log() * params.temperature
            assert sample(logits, params, position) == expected[-1]
            top_k = min(params.top_k or len(weights), len(weights))
            own = params.temperature, top_k, params.top_p, number
            arguments.append((logits.tolist(), *own))
        tokens = draw_tokens(*batch(*arguments))
        assert tokens.dtype == torch.int64 and tokens.tolist() == expected


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


def test_of_equal_tokens_the_lowest_come_first():
    """Of so many, a sort that is not stable changes the order."""
    assert drawn([0.0] * 500, top_k=3) == {0, 1, 2}
    assert drawn([0.0, 1.0] * 250, top_k=3) == {1, 3, 5}
    given = [([0.0, 1.0] * 250, 1.0, 3, 1.0, number) for number in (0.1, 0.5, 0.9)]
    assert draw_tokens(*batch(*given)).tolist() == [1, 3, 5]


def test_no_case_tells_apart_two_right_ways_to_sum():
    """Where top_p is reached exactly, the weights are equal, and every way is exact. Elsewhere
    it is far from each sum.
    """
    seeds = None, 0, 1

    def cases(module):
        for seed in seeds:
            yield from module.CASES if seed is None else module.EXERCISE.hidden(seed)

    rows_of = [
        rows.Row(case.logits, own.temperature or 1.0, own.top_k, own.top_p, 0.0)
        for case in cases(e8_7_sample)
        for own in (case.params,)
    ]
    rows_of += [row for case in cases(e10_5_draw_tokens) for row in case.rows if row.is_good]
    for row in rows_of:
        if row.top_p == 1:
            continue
        likeliest = torch.tensor(row.logits).double().sort(descending=True).values[: row.top_k]
        p = torch.softmax(likeliest / row.temperature, -1)
        running = p.cumsum(-1)
        for before in (running[:-1], (running - p)[1:]):
            near = ((before - row.top_p).abs() < 1e-5).any()
            assert not near or (p == p[0]).all() and len(p) in (2, 4), row


# Extreme numbers


@pytest.mark.parametrize("temperature", [1e-5, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_logits_at_the_end_of_their_range(temperature, dtype):
    """Divided by the smallest temperature they are far beyond float32, and still there is a
    token to draw.
    """
    largest = torch.finfo(dtype).max
    logits = torch.tensor([-largest, largest, 0.0, largest], dtype=dtype)
    tokens = drawn(logits, temperature=temperature)
    all_alike = temperature == 1e30 and dtype == torch.float16
    assert tokens == ({0, 1, 2, 3} if all_alike else {1, 3})


@pytest.mark.parametrize(
    "params",
    [{}, {"top_k": 3}, {"top_p": 0.99}, {"top_k": 9, "top_p": 1.0}, {"temperature": 50.0}],
)
def test_what_is_ruled_out_never_comes(params):
    assert drawn([-INF, 0.3, -INF, 0.2, -INF], times=400, **params) == {1, 3}


# What a draw depends on, and what it changes


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


def test_a_draw_of_a_batch_can_be_recorded_and_follows_its_parameters():
    """So nothing is read on the host."""
    own = batch(*(([0.3, 0.1, 0.2, 0.4], 1.0, 4, 1.0, n / 7) for n in range(7)))
    others = batch(*(([0.4, 0.4, -INF, 0.1], 0.3, 1 + n % 3, 0.6, n / 7) for n in range(7)))
    expected = draw_tokens(*others).tolist()
    graph = capture(lambda: draw_tokens(*own), torch.device("cpu"))
    for tensor, other in zip(own, others):
        tensor.copy_(other)
    assert graph.replay().tolist() == expected


# A batch of requests, some of which draw


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 4.0]),
    top_k=st.none() | st.integers(1, 9),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    seed=st.integers(-(2**63), 2**64 - 1),
)


@pytest.mark.parametrize("device", DEVICES)
@few(60, drawn_anew=150)
@given(data=st.data(), own=st.lists(params, min_size=1, max_size=6))
def test_a_batch_gets_the_tokens_that_its_rows_get_alone(device, data, own):
    numbers = st.sampled_from([0.0, 0.5, 0.5, 1.25, -2.0, 3.0, -INF])
    logits = torch.tensor(
        [[1.0, *data.draw(st.lists(numbers, min_size=6, max_size=6))] for _ in own],
        device=device,
    )
    positions = [data.draw(st.integers(0, 10**6)) for _ in own]
    before = logits.clone()
    tokens = sample_all(logits, own, positions).tolist()
    assert torch.equal(logits, before)
    for row, token, each, position in zip(logits, tokens, own, positions):
        if each.temperature == 0:  # of equal ones, any
            assert row[token] == row.max()
        else:
            assert token == sample(row, each, position)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[NAN, 0, 1], [INF, 0, 1], [-INF] * 3, [NAN] * 3], ids=str)
def test_a_row_that_is_not_finite_has_no_token_and_harms_no_other(device, temperature, bad):
    assert NOT_FINITE < 0  # so it is never mistaken for a token
    logits = torch.tensor([[0.0, 9.0, 1.0], bad, [-INF, 0.0, -INF]], device=device)
    own = [SamplingParams(temperature=temperature, top_p=0.5)] * 3
    assert sample_all(logits, own, [3, 4, 5]).tolist() == [1, NOT_FINITE, 1]
