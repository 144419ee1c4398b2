"""The serving benchmark: what it counts, reports and keeps. And our engine is not slower."""

import dataclasses
import re

import pytest
import torch

from lessons_content.lesson_08.bench import serving
from lessons_content.lesson_08.bench.attention_share import attention_share
from lessons_content.lesson_08.bench.servers import (
    Trace,
    random_model,
    random_trace,
    task_trace,
)
from lessons_content.lesson_08.bench.serving import measure

TRACE = Trace("two requests", [[5, 6], [7]], 4, end_token=1)
SMALL = dict(
    num_layers=2,
    device="cpu",
    dtype=torch.float32,
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=64,
    vocab_size=97,
)


class Pretender:
    """Answers what it is told to, or raises."""

    def __init__(self, name, answers, error=None):
        self.name = name
        self.title = "made up"
        self.answers = answers
        self.error = error
        self.turns = 0

    def prepare(self):
        self.turns += 1

    def serve(self):
        if self.error:
            raise self.error
        return self.answers


# What is counted


def test_only_useful_tokens_count():
    assert TRACE.useful([3, 1, 1, 0]) == [3, 1] and TRACE.useful([3, 4, 5, 6, 7]) == [
        3,
        4,
        5,
        6,
    ]
    assert dataclasses.replace(TRACE, end_token=None).useful([1, 2, 1, 0]) == [1, 2, 1, 0]
    assert TRACE.num_blocks == 2
    right, other = [[3, 1, 0, 0], [4, 5, 6, 7]], [[3, 1], [4, 5, 8, 1]]
    ours, same, others = measure(
        [Pretender("ours", right), Pretender("same", right), Pretender("other", other)],
        TRACE,
        2,
    )
    assert ours.tokens_per_second == pytest.approx(6 / max(ours.seconds))
    assert len(ours.seconds) == 2
    assert (same.same_requests, same.same_tokens) == (2, 1.0)
    assert (others.same_requests, others.same_tokens) == (1, pytest.approx(4 / 6))


def test_who_fails_is_named_and_the_others_go_on():
    failing = Pretender("failing", [], RuntimeError("no\nmemory"))
    said = []
    row, other = measure([failing, Pretender("other", [[1], [1]])], TRACE, 3, say=said.append)
    assert row.tokens_per_second is None
    assert row.reason == "RuntimeError: no memory"
    assert failing.turns == 1
    assert other.same_requests == 2
    assert len(other.seconds) == 3
    assert "failing: RuntimeError: no memory" in said


def test_a_slow_server_gets_no_more_turns():
    slow = Pretender("slow", [[1], [1]])
    measure([slow], TRACE, 50, limit=0.0)
    assert slow.turns == 2


def test_the_traces_are_the_same_each_time():
    trace = task_trace(64)
    assert trace == task_trace(64) and len({tuple(prompt) for prompt in trace.prompts}) == 64
    assert "64 requests, prompts of 5 to" in trace.title
    trace = random_trace(97, 6, 3, 9, 2)
    assert trace == random_trace(97, 6, 3, 9, 2)
    assert all(3 <= len(prompt) <= 9 for prompt in trace.prompts)


@pytest.mark.slow
def test_a_share_that_cannot_be_measured_has_a_reason():
    share = attention_share(random_model(**SMALL), 2, 10**6, "batched")
    assert share.step is None and re.match("PromptTooLongError: ", share.reason)


@pytest.mark.slow
def test_our_engine_and_transformers_serve_the_same_requests():
    _, rows, _ = serving.measure_small(repeats=1)
    assert [(row.reason, row.same_requests) for row in rows] == [("", 64)] * 5
