"""Both samplers keep the tokens that top_p asks for, also where their sum is exactly top_p."""

import itertools

import pytest
import torch

from lessons_exercises.lesson_08 import e8_7_sample
from lessons_exercises.lesson_10 import e10_5_draw_tokens, rows
from paged_attention.engine.draws import draw_number
from paged_attention.engine.fast.sampler import draw_tokens
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample

# A position whose number is so large that it draws the last token that stays.
LAST = next(position for position in range(1000) if draw_number(0, position) > 0.99)


def last_that_stays(weights, top_k, eighths) -> int | None:
    """Counted in integers; None where the sum is top_p and no binary fraction: either of two
    tokens is right.
    """
    order = sorted(range(len(weights)), key=lambda token: -weights[token])[:top_k]
    whole = sum(weights[token] for token in order)
    reached, last = 0, None
    for token in order:
        if reached * 8 == eighths * whole and whole.bit_count() > 1:
            return None
        if reached * 8 < eighths * whole:
            last = token
        reached += weights[token]
    return last


def configurations(rows_of_weights):
    """(weights, top_k, eighths, the last token that stays) wherever one is right."""
    for weights in rows_of_weights:
        for top_k, eighths in itertools.product(range(1, len(weights) + 1), range(1, 9)):
            last = last_that_stays(weights, top_k, eighths)
            if last is not None:
                yield weights, top_k, eighths, last


@pytest.mark.parametrize("vocab_size", range(1, 6))
def test_a_batch_keeps_as_few_as_reach_top_p(vocab_size):
    every = itertools.product((1, 2, 4, 8), repeat=vocab_size)
    weights, top_k, eighths, last = map(torch.tensor, zip(*configurations(every)))
    ones = torch.ones(len(weights), dtype=torch.float64)
    drawn = draw_tokens(weights.double().log(), ones, top_k, eighths / 8, ones - 2**-53)
    assert torch.equal(drawn, last)


@pytest.mark.parametrize("vocab_size", range(1, 6))
def test_one_row_keeps_as_few_as_reach_top_p(vocab_size):
    every = itertools.combinations_with_replacement((1, 2, 4, 8), vocab_size)
    for weights, top_k, eighths, last in configurations(every):
        params = SamplingParams(temperature=1.0, top_k=top_k, top_p=eighths / 8)
        assert sample(torch.tensor(weights).double().log(), params, LAST) == last, params


def test_no_case_tells_apart_two_right_ways_to_sum():
    """Where top_p is reached exactly, the weights are equal, and every way is exact. Elsewhere
    it is far from each sum.
    """
    rows_of = [
        rows.Row(case.logits, own.temperature or 1.0, own.top_k, own.top_p, 0.0)
        for seed in (None, 0, 1)
        for case in (e8_7_sample.hidden(seed) if seed is not None else e8_7_sample.CASES)
        for own in (case.params,)
    ]
    rows_of += [
        row
        for seed in (None, 0, 1)
        for case in (
            e10_5_draw_tokens.hidden(seed) if seed is not None else e10_5_draw_tokens.CASES
        )
        for row in case.rows
        if row.is_good
    ]
    for row in rows_of:
        if row.top_p == 1:
            continue
        likeliest = torch.tensor(row.logits).double().sort(descending=True).values[: row.top_k]
        p = torch.softmax(likeliest / row.temperature, -1)
        running = p.cumsum(-1)
        for before in (running[:-1], (running - p)[1:]):
            near = ((before - row.top_p).abs() < 1e-5).any()
            assert not near or (p == p[0]).all() and len(p) in (2, 4), row
