"""How long a run may take: in own time, and with what a report adds."""

import functools
import os
import signal
import subprocess
import sys
import time

import cloudpickle
import pytest

from busy_processor import busy_processor
from lessons_lib import run_isolated

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def work(seconds: float):
    """Works so long by itself, however busy the machine is."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


ENDLESS = {
    "works": lambda: work(1e6),
    "sleeps": lambda: time.sleep(1e6),
    "leaves the work to a child": lambda: subprocess.run(
        [sys.executable, "-c", "while True: pass"]
    ),
    "is stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_nothing_goes_on_for_ever(answer):
    outcome = run_isolated(answer, time_limit=0.5)
    assert (outcome.ending, outcome.detail) == ("timed out", "0.5 s")


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="only Linux says which processor a process runs on",
)
def test_a_busy_processor_takes_no_time_from_a_run():
    """It gets little of a processor that it shares, and works on past its limit by the clock.
    By the clock there is a limit too, for one that gets no time at all.
    """

    def answer(seconds, processor, policy):
        os.sched_setaffinity(0, {processor})
        os.nice(10)
        os.sched_setscheduler(0, policy, os.sched_param(0))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    with busy_processor() as processor:
        outcome = run_isolated(answer, 1.2, processor, os.SCHED_OTHER, time_limit=0.8)
        assert outcome.ending == "returned"
        outcome = run_isolated(answer, 1e6, processor, os.SCHED_IDLE, time_limit=0.2)
        assert (outcome.ending, outcome.detail) == ("timed out", "0.2 s")


def test_a_run_ends_by_itself_if_nobody_ends_it():
    """And later, if a report got it more time."""

    def seconds_left(report, waits=True):
        report("a moment, please", waits=waits)
        return signal.getitimer(signal.ITIMER_REAL)[0]

    without_a_wait = functools.partial(seconds_left, waits=False)
    more = {"on_report": lambda value: 5_000.0}
    limits = [
        run_isolated(answer, time_limit=100.0, report=True, **words).value
        for answer, words in ((seconds_left, {}), (without_a_wait, more), (seconds_left, more))
    ]
    assert [round(limit, -3) for limit in limits] == [1_000, 1_000, 50_000]


def test_a_run_waits_until_its_report_was_received_and_may_get_more_time():
    def answer(report):
        for number in range(3):
            report(number)
            work(0.3)
        return "done"

    def receive(value):
        received.append(value)
        return 0.6

    received = []
    outcome = run_isolated(answer, time_limit=0.6, report=True, on_report=receive)
    assert (outcome.ending, outcome.value, received) == ("returned", "done", [0, 1, 2])


@pytest.mark.parametrize("seconds, detail", [(0.1, "0.1 s"), (None, "0.5 s")])
def test_a_report_may_shorten_the_limit_or_leave_it_for_the_whole_run(seconds, detail):
    def answer(report):
        for number in range(1_000):
            report(number)
            work(0.15 if seconds is None else 5.0)

    outcome = run_isolated(
        answer, time_limit=0.5, report=True, on_report=lambda value: seconds
    )
    assert (outcome.ending, outcome.detail) == ("timed out", detail)
    assert (outcome.last_report == 0) == (seconds is not None)


def test_a_report_that_does_not_wait_leaves_the_limit():
    def answer(report):
        report("half", waits=False)
        time.sleep(1e6)

    outcome = run_isolated(answer, time_limit=0.3, report=True, on_report=lambda value: 5.0)
    assert (outcome.detail, outcome.last_report) == ("0.3 s", "half")


def test_what_the_receiver_of_a_report_takes_does_not_count():
    """Neither as own time nor by the clock, of which there is ten times as much."""
    outcome = run_isolated(
        lambda report: report("a moment, please"),
        time_limit=0.15,
        report=True,
        on_report=lambda value: time.sleep(1.7),
    )
    assert outcome.ending == "returned"
