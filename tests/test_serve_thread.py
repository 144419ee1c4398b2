"""Who hears what of the engine: its thread runs here, and its steps are planned."""

import queue
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from paged_attention.engine.request import RequestError, SamplingParams
from paged_attention.engine.serve import engine_thread
from paged_attention.engine.serve.engine_thread import (
    EngineThread,
    News,
    QueueFullError,
    StoppedError,
)

PARAMS = SamplingParams(max_new_tokens=7)


class Engine:
    """In each step a request gets what is planned for it.

    A plan has a dictionary for each step, with a list for each request's number. A list has
    tokens, a word that ends the request, functions to call, or an error to raise. A step may
    also be an error, which is raised before any request is chosen.
    """

    def __init__(self, *plan):
        self.plan, self.planned = iter(plan), {}
        self.requests, self.cancelled, self.num_steps, self.num_looks = {}, [], 0, 0
        self.scheduler = SimpleNamespace(schedule=self.schedule, has_work=self.has_work)

    def add(self, number, prompt, params):
        if isinstance(prompt, Exception):
            raise prompt
        request = SimpleNamespace(id=number, output=[], reason=None, asked=(prompt, params))
        self.requests[number] = request
        return request

    def cancel(self, number):
        del self.requests[number]
        self.cancelled.append(number)

    def has_work(self):
        self.num_looks += 1
        assert self.num_looks < 1000, "it goes round and round"
        return bool(self.requests)

    def schedule(self):
        self.planned = next(self.plan)
        if isinstance(self.planned, Exception):
            raise self.planned
        return [(self.requests[number], 1) for number in self.planned]

    def step(self):
        self.num_steps += 1
        for request, _ in self.scheduler.schedule():
            for what in self.planned[request.id]:
                if isinstance(what, Exception):
                    raise what
                if isinstance(what, int):
                    request.output.append(what)
                elif isinstance(what, str):
                    request.reason = what
                    del self.requests[request.id]
                else:
                    what()


class Asked:
    """The thread's queue. Where the thread would wait, it calls the test's next moment."""

    def __init__(self):
        self.items, self.moments = deque(), deque()

    def put(self, what):
        self.items.append(what)

    def get(self):
        while not self.items:
            assert self.moments, "it waits for ever"
            self.moments.popleft()()
        return self.items.popleft()

    def get_nowait(self):
        if not self.items:
            raise queue.Empty
        return self.items.popleft()


class Thread:
    def __init__(self, **named):
        self.named, self.is_started, self.joined = named, False, []

    def start(self):
        self.is_started = True

    def join(self, patience):
        self.joined.append(patience)


class Lock:
    """Calls `after` once, as soon as it is free again."""

    after = None

    def __enter__(self):
        pass

    def __exit__(self, *_):
        after, self.after = self.after, None
        if after:
            after()


class Served:
    """An engine's thread with the news that it has told."""

    def __init__(self, monkeypatch, *plan, most_requests=9):
        self.engine, self.asked, self.lock = Engine(*plan), Asked(), Lock()
        self.threads, self.news = [], {}
        stand_ins = {
            "threading": SimpleNamespace(Lock=lambda: self.lock, Thread=self._thread),
            "queue": SimpleNamespace(SimpleQueue=lambda: self.asked, Empty=queue.Empty),
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(engine_thread, name, stand_in)
        self.thread = EngineThread(self.engine, most_requests)

    def _thread(self, **named):
        self.threads.append(Thread(**named))
        return self.threads[-1]

    def run(self, *moments):
        """Runs the thread to its end, which comes as the last moment."""
        self.asked.moments.extend([*moments, self.thread.stop])
        (thread,) = self.threads
        assert thread.is_started
        thread.named["target"]()
        assert not self.asked.moments, "it has ended early"

    def submit(self, prompt=(1, 2)) -> int:
        news = []
        number = self.thread.submit(prompt, PARAMS, news.append)
        self.news[number] = news
        return number

    def told(self, number) -> list[tuple]:
        return [(each.tokens, each.reason, each.error) for each in self.news[number]]


def test_each_token_is_told_once_and_nothing_where_there_is_none(monkeypatch):
    served = Served(monkeypatch, {0: [5]}, {0: []}, {0: [6, 7]}, {0: [8]}, {0: [9, "length"]})
    served.run(served.submit)
    assert served.told(0) == [
        ([5], None, None),
        ([6, 7], None, None),
        ([8], None, None),
        ([9], "length", None),
    ]
    assert len(served.thread) == 0 and not served.engine.cancelled


def test_the_engine_gets_the_prompt_and_its_parameters(monkeypatch):
    served = Served(monkeypatch, {0: ["length"]})
    added = []
    monkeypatch.setattr(
        served.engine,
        "add",
        lambda *given: added.append(given) or Engine.add(served.engine, *given),
    )
    served.run(lambda: served.submit([3, 4]))
    assert added == [(0, [3, 4], PARAMS)]


def test_an_end_without_a_token_is_told_too(monkeypatch):
    served = Served(monkeypatch, {0: ["not finite"]})
    served.run(served.submit)
    assert served.told(0) == [([], "not finite", None)]


def test_all_that_was_asked_is_done_before_a_step_and_each_hears_its_own(monkeypatch):
    served = Served(monkeypatch, {0: [1, "end"], 1: [2]}, {1: [3, "end"]})
    counts = []

    def two():
        assert [served.submit(), served.submit()] == [0, 1]
        counts.append(len(served.thread))

    served.run(two, lambda: counts.append(len(served.thread)))
    assert served.told(0) == [([1], "end", None)]
    assert served.told(1) == [([2], None, None), ([3], "end", None)]
    assert counts == [2, 0] and served.engine.num_steps == 2


def test_without_work_there_is_no_step(monkeypatch):
    served = Served(monkeypatch)
    served.run(lambda: served.thread.cancel(99))
    assert served.engine.num_steps == 0


def test_there_are_as_many_requests_as_it_takes_and_no_more(monkeypatch):
    served = Served(monkeypatch, {0: ["end"], 1: ["end"]}, {2: ["end"]}, most_requests=2)

    def fill():
        served.submit(), served.submit()
        with pytest.raises(QueueFullError, match="^2 requests are waiting or running"):
            served.submit()

    served.run(fill, served.submit)
    assert served.told(2) == [([], "end", None)]


@pytest.mark.parametrize("kind", [RequestError, TypeError, ValueError])
def test_a_request_that_the_engine_refuses_hears_of_it(monkeypatch, kind):
    served, error = Served(monkeypatch, {1: ["end"]}), kind("request 0 is too long")
    served.run(lambda: served.submit(error), served.submit)
    assert served.told(0) == [([], None, error)]
    assert served.told(1) == [([], "end", None)] and len(served.thread) == 0


def test_a_request_that_is_cancelled_hears_nothing_more(monkeypatch):
    served = Served(
        monkeypatch, {0: [1, lambda: served.thread.cancel(0)], 1: []}, {1: ["end"]}
    )
    served.run(lambda: (served.submit(), served.submit()), lambda: served.thread.cancel(0))
    assert served.told(0) == [([1], None, None)] and served.engine.cancelled == [0]
    assert len(served.thread) == 0


def test_a_step_that_fails_ends_those_in_it_and_the_others_go_on(monkeypatch):
    error = RuntimeError("the card is hot")
    served = Served(monkeypatch, {0: [1], 1: [1]}, {1: [error]}, {0: [2, "length"]})
    served.run(lambda: (served.submit(), served.submit()))
    assert served.told(0) == [([1], None, None), ([2], "length", None)]
    assert served.told(1) == [([1], None, None), ([], None, error)]
    assert served.engine.cancelled == [1] and len(served.thread) == 0


def test_a_step_that_fails_before_any_is_chosen_ends_all(monkeypatch):
    error = RuntimeError("no room")
    served = Served(monkeypatch, error, {2: [1]}, error)
    served.run(
        lambda: (served.submit(), served.submit()), lambda: (served.submit(), served.submit())
    )
    assert [served.told(number) for number in (0, 1, 3)] == [[([], None, error)]] * 3
    assert served.told(2) == [([1], None, None), ([], None, error)]
    assert served.engine.cancelled == [0, 1, 2, 3] and len(served.thread) == 0


def test_the_end_comes_after_the_step_and_all_hear_of_it(monkeypatch):
    """Those too that were asked for in that step."""

    def end():
        served.submit()
        served.thread.stop()

    served = Served(monkeypatch, {0: [5, end]})
    served.asked.moments.append(served.submit)
    served.threads[0].named["target"]()
    assert served.told(0)[0] == ([5], None, None)
    for *_, (tokens, reason, error) in (served.told(0), served.told(1)):
        assert (tokens, reason, str(error)) == ([], None, "the server is ending")
        assert isinstance(error, StoppedError)
    assert served.engine.num_steps == 1 and served.engine.cancelled == [0, 1]
    assert len(served.thread) == 0


def test_after_the_end_nothing_is_taken(monkeypatch):
    served = Served(monkeypatch)
    served.run()
    with pytest.raises(StoppedError, match="the server is ending"):
        served.submit()
    assert len(served.thread) == 0 and not served.asked.items


def test_a_request_that_is_taken_just_before_the_end_hears_of_it(monkeypatch):
    served = Served(monkeypatch)

    def end():
        served.thread.stop()
        served.threads[0].named["target"]()

    served.lock.after = end
    served.submit()
    ((_, _, error),) = served.told(0)
    assert isinstance(error, StoppedError)


def test_the_end_is_waited_for_half_a_minute_at_most(monkeypatch):
    served = Served(monkeypatch)
    served.run()
    served.thread.stop(2.5)
    assert served.threads[0].joined == [30.0, 2.5]


def test_its_thread_does_not_keep_the_process_alive(monkeypatch):
    named = Served(monkeypatch).threads[0].named
    assert named["daemon"] is True and named["name"] == "engine"


def test_it_runs_in_a_thread_of_its_own():
    engine, heard = Engine({0: [lambda: seen.append(threading.current_thread()), "end"]}), []
    seen, ended = [], threading.Event()
    thread = EngineThread(engine, 1)
    thread.submit([1], PARAMS, lambda news: (heard.append(news), ended.set()))
    assert ended.wait(60)
    thread.stop()
    assert heard == [News([], "end", None)] and seen != [threading.current_thread()]
