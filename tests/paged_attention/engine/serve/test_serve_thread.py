"""Who hears what of the engine, which runs in a thread of its own."""

import queue
import threading
from dataclasses import replace

import pytest

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import fast_engine
from paged_attention.engine.history import History
from paged_attention.engine.request import EmptyPromptError, SamplingParams
from paged_attention.engine.serve.engine_thread import (
    EngineThread,
    QueueFullError,
    StoppedError,
    TooManyError,
)
from paged_attention.tiny_qwen3.tasks import decode, encode
from serving import wait_until

PARAMS = SamplingParams(max_new_tokens=7)
LONG = SamplingParams(max_new_tokens=400, ignore_end=True)


@pytest.fixture
def gate(thread):
    """The engine does not go on from a step before this is set."""
    gate = threading.Event()
    thread.engine.history = lambda engine, scheduled: gate.wait(60)
    yield gate
    gate.set()


class Heard:
    """What was told of a request, in its order."""

    def __init__(self):
        self.news = queue.SimpleQueue()

    def until_the_end(self):
        """All tokens, the reason and the error."""
        tokens = []
        while True:
            news = self.news.get(timeout=60)
            tokens += news.tokens
            if news.reason or news.error:
                assert self.news.empty()
                return tokens, news.reason, news.error


@pytest.fixture
def thread():
    made = EngineThread(Engine(load_model(), num_blocks=64), 3)
    yield made
    made.stop()


def submit(thread, *asked):
    """asked: (text, params) of each."""
    heard = [Heard() for _ in asked]
    numbers = thread.submit(
        [
            (encode(text), params, each.news.put)
            for (text, params), each in zip(asked, heard, strict=True)
        ]
    )
    return numbers, heard


def test_it_does_not_keep_the_process_alive(thread):
    assert [each.daemon for each in threading.enumerate() if each.name == "engine"] == [True]


def test_all_are_taken_or_none(thread, gate):
    _, heard = submit(thread, ("Ca>", PARAMS), ("Cb>", PARAMS))
    with pytest.raises(QueueFullError, match="2 answers are waiting or running"):
        submit(thread, ("Ca>", PARAMS), ("Cb>", PARAMS))
    with pytest.raises(TooManyError, match="4 answers at once, and this server takes 3"):
        submit(thread, *[("Ca>", PARAMS)] * 4)
    (number,), (third,) = submit(thread, ("Cc>", PARAMS))
    thread.cancel(number)
    gate.set()
    assert [decode(each.until_the_end()[0]) for each in heard] == ["a$", "b$"]
    wait_until(lambda: not len(thread))
    assert third.news.empty()
    _, three = submit(thread, *[("Ca>", PARAMS)] * 3)
    assert [decode(each.until_the_end()[0]) for each in three] == ["a$"] * 3


def test_the_end_is_told_to_all_their_blocks_are_free_and_nothing_more_is_taken(thread):
    _, heard = submit(thread, ("Cq7b>", LONG), ("Cabc>", LONG))
    wait_until(thread.engine.scheduler.has_work)
    thread.stop()
    for each in heard:
        assert isinstance(each.until_the_end()[2], StoppedError)
    assert not len(thread) and not thread.engine.requests
    with pytest.raises(StoppedError, match="the server is ending"):
        submit(thread, ("Cq7b>", PARAMS))


def test_one_that_the_engine_refuses_hears_of_it_and_the_others_go_on(thread):
    _, (refused, taken) = submit(thread, ("", PARAMS), ("Ca>", PARAMS))
    tokens, reason, error = refused.until_the_end()
    assert (tokens, reason) == ([], None) and isinstance(error, EmptyPromptError)
    assert decode(taken.until_the_end()[0]) == "a$"


def test_a_function_is_called_in_the_engines_thread_until_that_ends(thread):
    submit(thread, ("Cq7b>", LONG))
    name = thread.between_steps(lambda: threading.current_thread().name)
    failed = thread.between_steps(lambda: 1 / 0)
    assert name.result(60) == "engine" and isinstance(failed.exception(60), ZeroDivisionError)
    thread.stop()
    with pytest.raises(StoppedError, match="the server is ending"):
        thread.between_steps(lambda: 1)


@pytest.mark.parametrize("make", [Engine, fast_engine])
def test_several_answers_share_the_blocks_of_their_prompt(make):
    """They have the tokens that each has alone; and nobody is told of what has no news."""
    history = History()
    text, params = "Ka17..q42......z93?zq>", replace(LONG, max_new_tokens=6, temperature=3.0)
    each = [(text, replace(params, seed=seed)) for seed in range(3)]
    thread = EngineThread(make(load_model(), num_blocks=64, history=history), 4)
    try:
        _, heard = submit(thread, *each, ("Cq7b>", PARAMS))
        found = [decode(one.until_the_end()[0]) for one in heard]
    finally:
        thread.stop()
    alone = Engine(load_model(), num_blocks=64)
    prompts = [encode(text)] * 3 + [encode("Cq7b>")]
    requests = alone.generate(prompts, [own for _, own in each] + [PARAMS])
    assert found == [decode(request.output) for request in requests]
    assert history[0].unshared > history[0].alone + history[0].shared
