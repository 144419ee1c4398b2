"""The engine whose host is a step ahead gives what the plain one gives, and loses nothing."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

from echo import (
    END,
    VOCAB_SIZE,
    EchoModel,
    assert_nothing_is_lost,
    continuation,
    engine_with,
    read_back,
)
from paged_attention.engine.fast.ahead import PENDING, AheadEngine
from paged_attention.engine.history import History
from paged_attention.engine.request import RequestError, SamplingParams
from test_engine import actions
from test_failed_steps import CtrlC

ENDLESS = SamplingParams(max_new_tokens=5, ignore_end=True)


class EchoDevice:
    """A runner as a device is one: it keeps the tokens that the host does not know yet."""

    def __init__(self, runner):
        self.runner, self.last_tokens, self.num_steps = runner, {}, 0

    def run(self, scheduled):
        self.num_steps += 1
        known = {request: list(request.tokens) for request, _ in scheduled}
        for request, _ in scheduled:
            if PENDING in request.tokens:
                assert request.tokens.index(PENDING) == len(request.tokens) - 1
                request.tokens[-1] = self.last_tokens[request]
        try:
            logits = self.runner.run(scheduled)
        finally:  # a step that fails tells the host nothing either
            for request, tokens in known.items():
                request.tokens[:] = tokens
        finite = logits.amax(-1).isfinite()
        tokens = logits.argmax(-1).where(finite, -1)
        for (request, _), token in zip(scheduled, tokens.clamp(min=0).tolist()):
            self.last_tokens[request] = token

        return SimpleNamespace(wait=lambda: tokens)


def ahead_engine(model=None, **options) -> AheadEngine:
    sizes = {"num_blocks": 12, "block_size": 4, "token_budget": 9, "max_num_seqs": 4}
    engine = AheadEngine(model or EchoModel(), path=read_back, **sizes | options)
    engine.runner = EchoDevice(engine.runner)
    engine.sample = lambda token, params, position: int(token)
    engine.are_finite = lambda tokens: (tokens >= 0).tolist()
    return engine


@settings(max_examples=200, deadline=None)
@given(
    trace=st.lists(actions, max_size=30),
    block_size=st.integers(1, 5),
    num_blocks=st.integers(1, 14),
    token_budget=st.integers(1, 24),
    max_num_seqs=st.integers(1, 6),
    sharing=st.booleans(),
)
def test_every_request_gets_its_own_tokens_and_no_block_is_lost(
    trace, block_size, num_blocks, token_budget, max_num_seqs, sharing
):
    engine = ahead_engine(
        block_size=block_size,
        num_blocks=num_blocks,
        token_budget=token_budget,
        max_num_seqs=max_num_seqs,
        prefix_sharing=sharing,
    )
    accepted = []
    for number, (action, *details) in enumerate(trace):
        if action == "add":
            try:
                params = SamplingParams(max_new_tokens=details[1])
                accepted.append(engine.add(number, details[0], params))
            except RequestError:
                pass
        elif action == "step":
            for _ in range(details[0]):
                engine.step()
                assert len(engine.scheduler.running) <= max_num_seqs
                assert not any(PENDING in request.tokens for request in accepted)
        elif details[0] < len(accepted) and accepted[details[0]].reason is None:
            engine.cancel(accepted[details[0]].id)
    engine.run()
    for request in accepted:
        alone = continuation(request.prompt, request.params)
        if request.reason == "cancelled":
            assert request.output == alone[: len(request.output)]
        else:
            assert request.output == alone
            assert request.reason == ("end" if alone[-1] == END else "length")
    event(f"preempted: {any(request.num_preempted for request in accepted)}")
    assert_nothing_is_lost(engine)


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


@settings(max_examples=120, deadline=None)
@given(steps=st.integers(0, 12), place=st.floats(0, 1, exclude_max=True))
def test_ctrl_c_anywhere_in_a_step_loses_nothing(steps, place):
    undisturbed, expected = busy_engine(steps)
    clock = CtrlC()
    with clock.watching():
        undisturbed.step()
    undisturbed.run()
    engine, requests = busy_engine(steps)
    with pytest.raises(KeyboardInterrupt), CtrlC(int(place * clock.count)).watching():
        engine.step()
    waiting = [each for each in requests if each.reason is None]
    assert [*engine.scheduler.running, *engine.scheduler.waiting] == waiting
    assert not any(PENDING in request.tokens for request in requests)
    engine.run()
    assert [(each.output, each.reason) for each in requests] == [
        (each.output, each.reason) for each in expected
    ]
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
