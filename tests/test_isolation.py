"""A run in its own process ends in one of five ways, and none of them reaches the caller."""

import os
import sys
import threading
import time

import cloudpickle
import pytest

from lessons_lib import run_isolated

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as functions of a notebook travel


def test_a_result_comes_back_with_what_was_printed():
    def answer(x):
        print("thinking")
        return x + 1

    outcome = run_isolated(answer, 41)
    assert (outcome.ending, outcome.value, outcome.printed) == ("returned", 42, "thinking\n")


def test_it_is_another_process():
    assert run_isolated(os.getpid).value != os.getpid()


def test_globals_of_the_notebook_travel_along():
    assert run_isolated(lambda: SECRET * 2).value == 14


SECRET = 7


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), RuntimeError("x", 3)])
def test_an_exception_comes_back_as_itself(error):
    def answer():
        raise error

    outcome = run_isolated(answer)
    assert outcome.ending == "raised" and type(outcome.error) is type(error) and outcome.error.args == error.args


def test_an_exception_that_cannot_travel_comes_back_in_words():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__("odd")

    def answer():
        raise Odd(1, 2)

    outcome = run_isolated(answer)
    assert outcome.ending == "raised" and "Odd: odd" in str(outcome.error)


def test_a_result_that_cannot_travel_says_so():
    outcome = run_isolated(threading.Lock)
    assert outcome.ending == "raised" and "cannot be sent back" in str(outcome.error)


def test_an_argument_that_cannot_travel_says_so():
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        run_isolated(lambda lock: lock, threading.Lock())


def test_the_time_limit_holds_and_children_end_with_the_run(tmp_path):
    mark = tmp_path / "alive"

    def answer():
        if os.fork() == 0:
            while True:
                mark.write_text(str(time.time()))
                time.sleep(0.02)
        time.sleep(60)

    started = time.monotonic()
    outcome = run_isolated(answer, time_limit=1.0)
    assert outcome.ending == "timed out" and time.monotonic() - started < 20
    time.sleep(0.2)
    last = mark.read_text()
    time.sleep(0.3)
    assert mark.read_text() == last


def test_a_flood_is_cut_and_does_not_block():
    outcome = run_isolated(lambda: [print("x" * 10_000) for _ in range(1_000)] and None, time_limit=20)
    assert outcome.ending == "returned" and len(outcome.printed) < 2_100


def test_what_stands_in_the_main_module_is_not_run_again():
    # pytest's own script is __main__ here; running it again in the child would start the tests anew.
    assert run_isolated(lambda: __import__("sys").modules["__main__"].__dict__.get("__file__")).value is None


def test_a_warm_run_takes_milliseconds():
    run_isolated(os.getpid)
    times = []
    for _ in range(5):
        started = time.monotonic()
        run_isolated(os.getpid)
        times.append(time.monotonic() - started)
    assert min(times) < 0.2


def test_many_at_once():
    results, main = [], sys.modules["__main__"]
    threads = [threading.Thread(target=lambda n=n: results.append(run_isolated(lambda: n * n).value)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [n * n for n in range(8)]
    assert sys.modules["__main__"] is main  # hidden while a process starts, and back afterwards


def test_descriptors_and_processes_do_not_pile_up():
    run_isolated(os.getpid)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        run_isolated(os.getpid)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_killed_forkserver_is_started_again():
    from multiprocessing.forkserver import _forkserver

    run_isolated(os.getpid)
    os.kill(_forkserver._forkserver_pid, 9)
    assert run_isolated(lambda: 5).value == 5


def test_rubbish_in_the_result_pipe_is_an_ending_like_any_other():
    def answer():
        for descriptor in range(3, 30):
            try:
                os.write(descriptor, b"\0\0\0\x08rubbish!")
            except OSError:
                pass
        os._exit(0)

    assert run_isolated(answer).ending == "exited"


def test_a_run_waits_until_its_report_was_received_and_may_get_more_time():
    def answer(report):
        for number in range(3):
            report(number)
            time.sleep(0.6)
        return "done"

    received = []

    def receive(value):
        received.append(value)
        time.sleep(0.5)  # does not count
        return 1.0

    outcome = run_isolated(answer, time_limit=1.0, report=True, on_report=receive)
    assert (outcome.ending, outcome.value, received) == ("returned", "done", [0, 1, 2])
    assert run_isolated(answer, time_limit=20.0, report=True, on_report=lambda value: 0.1).ending == "timed out"


def test_a_run_that_writes_too_much_is_ended():
    outcome = run_isolated(lambda: [print("x" * 1_000) for _ in range(10_000)], time_limit=20, output_limit=100_000)
    assert outcome.ending == "flooded"
