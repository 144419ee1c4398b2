"""The engine whose host is a step ahead gives what the plain one gives, and loses nothing."""

import pytest

from echo import (
    END,
    VOCAB_SIZE,
    ahead_engine,
    assert_nothing_is_lost,
    assert_right,
    continuation,
)
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
        wait = step.wait

        def noted_wait():
            order.append(("wait", number))
            return wait()

        step.wait = noted_wait
        return step

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


def test_a_late_token_is_not_for_another_request_with_the_same_id():
    engine = ahead_engine()
    old = engine.add("a", [1, 2, 3], ENDLESS)
    engine.step()
    engine.cancel("a")
    new = engine.add("a", [3, 4], ENDLESS)
    engine.run()
    assert old.output == [] and new.output == continuation([3, 4], ENDLESS)
    assert_nothing_is_lost(engine)


@pytest.mark.parametrize(
    "prefix, ends, token_budget, num_computed",
    [
        (9, (1, 1, 1, 1), 64, 9 + 1 + 3 * 2),  # a block is 4 tokens, and two of them are full
        (8, (2, 1, 2, 1), 64, 8 + 2 + 1 + 2 + 1),
        (8, (0, 0, 0, 0), 64, 8 + 3 * 4),  # the last block is computed anew
        (7, (0, 0, 0, 0), 64, 7 + 3 * 3),
        (30, (1, 1, 1, 1), 9, 30 + 1 + 3 * 3),  # in four steps
    ],
)
def test_a_prefix_that_all_bring_at_once_is_computed_once(
    prefix, ends, token_budget, num_computed
):
    engine = ahead_engine(history=History(), num_blocks=60, token_budget=token_budget)
    shared = [(3 * place + 1) % VOCAB_SIZE for place in range(prefix)]
    prompts = [shared + [1 + id] * num_own for id, num_own in enumerate(ends)]
    assert_right(engine.generate(prompts, ENDLESS))
    num_tokens = [count for step in engine.history for count, _ in step.scheduled.values()]
    num_decoded = len(prompts) * (ENDLESS.max_new_tokens - 1)
    assert sum(num_tokens) == num_computed + num_decoded
    assert_nothing_is_lost(engine)
