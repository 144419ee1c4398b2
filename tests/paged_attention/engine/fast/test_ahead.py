"""The engine whose host is a step ahead gives what the plain one gives, and loses nothing."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrl_c import CtrlC
from echo import (
    END,
    VOCAB_SIZE,
    EchoModel,
    ahead_engine,
    assert_nothing_is_lost,
    continuation,
    engine_with,
)
from paged_attention.engine.fast.ahead import PENDING
from paged_attention.engine.history import History
from paged_attention.engine.request import SamplingParams

ENDLESS = SamplingParams(max_new_tokens=5, ignore_end=True)


def test_the_next_step_is_launched_before_the_tokens_are_asked_for():
    engine, order = ahead_engine(), []
    run = engine.runner.run

    def noted(scheduled):
        number = len([what for what in order if what[0] == "launch"])
        order.append(("launch", number))
        step = run(scheduled)

        def wait():
            order.append(("wait", number))
            return step.wait()

        return SimpleNamespace(wait=wait)

    engine.runner.run = noted
    engine.generate([[1, 2, 3]], SamplingParams(max_new_tokens=3, ignore_end=True))
    assert order == [
        ("launch", 0), ("launch", 1), ("wait", 0), ("launch", 2), ("wait", 1), ("wait", 2)
    ]  # fmt: skip


def test_an_end_is_seen_one_step_late_and_what_was_computed_after_it_is_dropped():
    """An end by length is known before, so no step is wasted on it. An end token is not."""
    short = SamplingParams(max_new_tokens=20)
    prompts = ([1, number, 2] for number in range(VOCAB_SIZE))
    prompt = next(each for each in prompts if continuation(each, short)[1:2] == [END])
    engine = ahead_engine()
    late = engine.generate([prompt], short)[0]
    assert late.reason == "end" and late.output == continuation(prompt, short)
    assert engine.runner.num_steps == len(late.output) + 1
    assert_nothing_is_lost(engine)
    engine = ahead_engine()
    engine.generate([prompt], SamplingParams(max_new_tokens=4, ignore_end=True))
    assert engine.runner.num_steps == 4


def test_a_request_that_is_cancelled_in_the_late_step_keeps_what_is_known():
    engine = ahead_engine()
    first, second = (engine.add(id, [1, 2, id], ENDLESS) for id in (3, 4))
    for _ in range(3):
        engine.step()
    engine.cancel(3)
    assert first.output == continuation(first.prompt, ENDLESS)[:2]
    engine.run()
    assert second.output == continuation(second.prompt, ENDLESS)
    assert_nothing_is_lost(engine)


def busy_engine(steps: int):
    engine = ahead_engine(num_blocks=7, token_budget=8, history=History())
    prompts = [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7], [3] * 9, [5], [1, 2, 3, 4, 5, 6]
    for number, prompt in enumerate(prompts):
        params = SamplingParams(max_new_tokens=2 + 2 * number, ignore_end=number > 2)
        engine.add(number, prompt, params)
    requests = list(engine.requests.values())
    for _ in range(steps):
        engine.step()
    return engine, requests


def outputs_of(requests):
    return [(request.output, request.reason) for request in requests]


@settings(max_examples=120, deadline=None)
@given(steps=st.integers(0, 12), place=st.floats(0, 1, exclude_max=True))
def test_ctrl_c_anywhere_in_a_step_loses_nothing(steps, place):
    undisturbed, expected = busy_engine(steps)
    clock = CtrlC()
    before = outputs_of(expected)
    with clock.watching():
        undisturbed.step()
    after = outputs_of(expected)
    undisturbed.run()
    engine, requests = busy_engine(steps)
    with pytest.raises(KeyboardInterrupt), CtrlC(int(place * clock.count)).watching():
        engine.step()
    assert outputs_of(requests) in (before, after)
    waiting = [each for each in requests if each.reason is None]
    assert [*engine.scheduler.running, *engine.scheduler.waiting] == waiting
    assert not any(PENDING in request.tokens for request in requests)
    engine.run()
    assert outputs_of(requests) == outputs_of(expected)
    assert_nothing_is_lost(engine)


def test_the_model_may_fail_and_the_step_is_taken_again():
    engine = ahead_engine()
    requests = [engine.add(id, [1, 2, 3, 4, 5, id], ENDLESS) for id in (1, 2, 3)]
    engine.step()
    engine.step()
    engine.runner.runner.model.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    assert list(engine.scheduler.waiting) == requests and not engine.scheduler.running
    assert not any(PENDING in request.tokens for request in requests)
    engine.runner.runner.model.fails = False
    engine.run()
    assert all(request.output == continuation(request.prompt, ENDLESS) for request in requests)
    assert_nothing_is_lost(engine)


class OverflowingModel(EchoModel):
    """Its logits are NaN after a 9."""

    def logits_after(self, tokens):
        row = super().logits_after(tokens)
        return row + torch.nan if 9 in tokens else row


def test_a_request_that_is_not_finite_ends_and_the_others_go_on():
    engine = ahead_engine(OverflowingModel())
    bad, good = (engine.add(id, prompt, ENDLESS) for id, prompt in ((1, [9, 1]), (2, [1, 2])))
    engine.run()
    assert bad.reason == "not finite" and bad.output == []
    expected = continuation([1, 2], ENDLESS)
    until = expected.index(9) + 1 if 9 in expected else 5
    assert good.output == expected[:until]
    assert_nothing_is_lost(engine)


def test_the_history_is_that_of_the_plain_engine():
    """Ends by length are known before, so each step is the same one.

    Only the prefix cache learns of a block one step late.
    """
    histories = []
    for make in (engine_with, ahead_engine):
        engine = make(history=History(), num_blocks=30, max_num_seqs=5, prefix_sharing=False)
        for id in range(5):
            params = SamplingParams(max_new_tokens=2 + id, ignore_end=True)
            engine.add(id, [1, 2, 3, 4, 5, 6, id], params)
        engine.run()
        histories.append(list(engine.history))
    plain, ahead = histories
    assert [step.scheduled for step in ahead] == [step.scheduled for step in plain]
    for one, other in zip(plain, ahead):
        # a request that has ended still has its blocks while the next step is scheduled
        assert one.lengths.items() <= other.lengths.items()


def test_what_would_go_on_for_ever_is_an_error():
    engine = ahead_engine()
    engine.add(1, [1, 2, 3], ENDLESS)
    engine.scheduler.schedule = lambda: []
    with pytest.raises(RuntimeError, match="schedule\\(\\) chose no request"):
        engine.step()
