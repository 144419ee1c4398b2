"""The engine whose host is a step ahead gives what the plain one gives, and loses nothing."""

from echo import (
    END,
    VOCAB_SIZE,
    ahead_engine,
    assert_nothing_is_lost,
    continuation,
    engine_with,
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
