"""A run in its own process ends in one of five ways, and none of them reaches the caller."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import cloudpickle
import psutil
import pytest

from lessons_lib import run_isolated
from lessons_lib.paths import ROOT
from lessons_processes import isolation, one_call, process_family

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])


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
    assert (
        outcome.ending == "raised"
        and type(outcome.error) is type(error)
        and outcome.error.args == error.args
    )


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
            mark.write_text(str(os.getpid()))
        time.sleep(1e6)

    outcome = run_isolated(answer, time_limit=1.0)
    assert (outcome.ending, outcome.detail) == ("timed out", "1 s")
    wait_until_ended(int(mark.read_text()))


def daemon(mark):
    """Leaves a process with its own session, without a parent and without our pipes."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 100)
            mark.write_text(str(os.getpid()))
            time.sleep(1e6)
        os._exit(0)
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.01)


def of_another_program(mark):
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1e6)"],
        start_new_session=True,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    mark.write_text(str(child.pid))


ENDINGS = {
    "returned": lambda: None,
    "timed out": lambda: time.sleep(1e6),
    "exited": lambda: os._exit(3),
    "crashed": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "raised": lambda: 1 / 0,
    "flooded": lambda: [print("x" * 1_000) for _ in range(1_000_000)],
}


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux hands orphans to a process that asks for them"
)
@pytest.mark.parametrize("leave", [daemon, of_another_program])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_run_leaves_in_a_session_of_its_own_ends_with_it(tmp_path, leave, ending):
    mark, end = tmp_path / "alive", ENDINGS[ending]

    def answer():
        leave(mark)
        end()

    limit = 2.0 if ending == "timed out" else 60.0
    assert run_isolated(answer, time_limit=limit, output_limit=100_000).ending == ending
    wait_until_ended(int(mark.read_text()))


@pytest.mark.heavy
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux hands orphans to a process that asks for them"
)
def test_what_it_left_ends_even_when_the_notebook_was_killed(tmp_path):
    mark = tmp_path / "pid"

    def answer():
        daemon(mark)
        while True:
            pass

    end_notebook_in_the_middle(answer, mark)
    wait_until_ended(int(mark.read_text()))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGUSR1]
)
def test_a_signal_to_its_group_is_a_crash_like_any_other(number):
    def answer():
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.killpg(os.getpgrp(), number)
        time.sleep(1e6)

    outcome = run_isolated(answer, time_limit=60.0)
    assert (outcome.ending, outcome.detail) == ("crashed", signal.strsignal(number))


def test_a_signal_that_comes_before_the_other_process_waits_is_for_the_answer_too(monkeypatch):
    see_out = process_family.see_out

    def be_late(caller):
        os.waitid(os.P_PID, caller, os.WEXITED | os.WNOWAIT)
        see_out(caller)

    def answer():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGINT)
        time.sleep(1e6)

    monkeypatch.setattr(process_family, "see_out", be_late)
    context = multiprocessing.get_context("fork")  # takes what we have patched along
    results, theirs = context.Pipe()
    process = context.Process(target=one_call.serve, args=(theirs, context.Pipe()[1]))
    process.start()
    results.send(one_call.Call(cloudpickle.dumps((answer, ())), 60.0, False, False))
    process.join()
    assert process.exitcode == -signal.SIGINT


@pytest.mark.parametrize("code", [0, 3, 255])
def test_an_exit_code_comes_back(code):
    outcome = run_isolated(lambda: os._exit(code))
    assert (outcome.ending, outcome.detail) == ("exited", f"exit code {code}")


class Hostile:
    """Raises `error` when it is pickled, or when it is unpickled in another process than
    `home`.
    """

    def __init__(self, error, home=None):
        self.error, self.home = error, home

    def __reduce__(self):
        if self.home is None:
            raise self.error
        return raise_elsewhere, (self.error, self.home)


def raise_elsewhere(error, home):
    if os.getpid() != home:
        raise error


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), Own("mine"), GeneratorExit()]
)
def test_whatever_pickling_raises_is_a_result(error):
    """In an argument, in a result, and when a result is read."""
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        run_isolated(lambda hostile: None, Hostile(error))
    outcome = run_isolated(lambda: Hostile(error))
    assert outcome.ending == "raised" and "cannot be sent back: it is of type Hostile" in str(
        outcome.error
    )
    outcome = run_isolated(lambda: Hostile(error, os.getpid()))
    assert (outcome.ending, outcome.detail) == (
        "exited",
        f"unreadable result, {type(error).__name__}",
    )
    outcome = run_isolated(lambda hostile: None, Hostile(error, os.getpid()))
    assert outcome.ending in ("exited", "raised")


def works_for_ever():
    while True:
        pass


def sleeps_for_ever():
    time.sleep(1e6)


def waits_for_itself():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def leaves_the_work_to_a_child():
    subprocess.run([sys.executable, "-c", "while True: pass"])


@pytest.mark.parametrize(
    "answer", [works_for_ever, sleeps_for_ever, waits_for_itself, leaves_the_work_to_a_child]
)
def test_nothing_goes_on_for_ever(answer):
    assert run_isolated(answer, time_limit=0.5).ending == "timed out"


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="only Linux says which processor a process runs on",
)
def test_a_busy_processor_takes_no_time_from_a_run():
    """It shares one processor with five endless loops, and so it takes far more seconds by the
    clock than its limit has.
    """
    processor = min(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]

    def answer(seconds):
        os.sched_setaffinity(0, {processor})
        started = time.monotonic()
        while time.process_time() < seconds:
            pass
        return time.monotonic() - started

    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {processor})
        outcome = run_isolated(answer, 0.8, time_limit=1.2)
        assert outcome.ending == "returned" and outcome.value > 1.2
        assert run_isolated(answer, 1e6, time_limit=1.2).ending == "timed out"
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_by_the_clock_too_there_is_a_limit(monkeypatch):
    """For a run that apparently neither works nor sleeps."""
    monkeypatch.setattr(isolation, "observe_session", lambda session: (0.0, True))
    outcome = run_isolated(sleeps_for_ever, time_limit=0.1)
    assert (outcome.ending, outcome.detail) == ("timed out", "0.1 s")


@pytest.mark.heavy
def test_a_run_ends_by_itself_when_the_notebook_was_killed(tmp_path):
    mark = tmp_path / "pid"

    def answer():
        mark.write_text(str(os.getpid()))
        while True:
            pass

    end_notebook_in_the_middle(answer, mark)
    wait_until_ended(int(mark.read_text()))


def end_notebook_in_the_middle(answer, mark):
    """Kills a notebook that runs `answer`, once this has written into the file `mark`."""
    program = (
        "import cloudpickle, lessons_lib\n"
        f"answer = cloudpickle.loads({cloudpickle.dumps(answer)!r})\n"
        "lessons_lib.run_isolated(answer, time_limit=0.5)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    while not (mark.exists() and mark.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()


def test_a_run_that_got_more_time_ends_by_itself_later():
    def answer(report):
        report("a moment, please")
        return signal.getitimer(signal.ITIMER_REAL)[0]  # seconds until then

    assert (
        run_isolated(
            answer, time_limit=100.0, report=True, on_report=lambda value: 5_000.0
        ).value
        > 5_000
    )


def test_a_process_that_one_look_misses_is_found_by_the_next(monkeypatch):
    """Its parent ends while we look, so for that look it is no descendant of ours."""
    killed, looks = [], iter([set(), {1234}])
    monkeypatch.setattr(process_family, "_family_of", lambda pid: next(looks))
    monkeypatch.setattr(process_family.os, "kill", lambda pid, number: killed.append(pid))
    assert process_family.kill(1) and killed == [1234]


def wait_until_ended(pid: int):
    """Waits for ever for a process that does not end."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_a_flood_is_cut_and_does_not_block():
    outcome = run_isolated(
        lambda: [print("x" * 10_000) for _ in range(1_000)] and None, time_limit=20
    )
    assert outcome.ending == "returned" and len(outcome.printed) < 2_100


def test_what_stands_in_the_main_module_is_not_run_again():
    # pytest's own script is __main__ here; running it again in the child would start the tests
    # anew.
    assert (
        run_isolated(
            lambda: __import__("sys").modules["__main__"].__dict__.get("__file__")
        ).value
        is None
    )


def test_a_program_ends_with_all_its_processes():
    """A process waits for the next run. While it holds the output, this waits too."""
    program = "from lessons_lib import run_isolated\nprint(run_isolated(int).value)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=180,
    )
    assert done.stdout == "0\n" and done.returncode == 0


def test_a_process_that_waits_is_not_used_from_another_folder(tmp_path, monkeypatch):
    def place():
        return os.getcwd(), sys.path[0]

    monkeypatch.chdir(tmp_path)
    assert run_isolated(place).value[0] == str(tmp_path)
    isolation._start_waiting()
    (waiting,) = isolation._waiting
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_isolated(place).value == (str(ROOT), str(tmp_path))
    assert not waiting.process.is_alive()


def test_a_process_that_waits_is_used():
    isolation.end_waiting()
    isolation._start_waiting()
    (waiting,) = isolation._waiting
    assert run_isolated(os.getsid, 0).value == waiting.process.pid


def test_a_fork_of_the_notebook_leaves_what_waits_alone():
    isolation._start_waiting()
    (waiting,) = isolation._waiting
    if not (pid := os.fork()):
        isolation.end_waiting()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert waiting.process.is_alive()


@pytest.mark.alone
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
    threads = [
        threading.Thread(target=lambda n=n: results.append(run_isolated(lambda: n * n).value))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [n * n for n in range(8)]
    # hidden while a process starts, and back afterwards
    assert sys.modules["__main__"] is main


def test_descriptors_and_processes_do_not_pile_up():
    run_isolated(os.getpid)
    isolation.end_waiting()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        run_isolated(os.getpid)
    isolation.end_waiting()
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
            work(0.6)
        return "done"

    def receive(value):
        received.append(value)
        return 1.0

    received = []
    outcome = run_isolated(answer, time_limit=1.0, report=True, on_report=receive)
    assert (outcome.ending, outcome.value, received) == ("returned", "done", [0, 1, 2])


def work(seconds):
    """Works so long by itself, however busy the machine is."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_limit_that_a_report_shortens_or_leaves_alone():
    def answer(report):
        report("a moment, please")
        work(1e6)

    for seconds, detail in ((0.1, "0.1 s"), (None, "0.7 s")):
        outcome = run_isolated(
            answer,
            time_limit=0.7,
            report=True,
            on_report=lambda value, seconds=seconds: seconds,
        )
        assert (outcome.ending, outcome.detail, outcome.last_report) == (
            "timed out",
            detail,
            "a moment, please",
        )


def test_a_limit_that_a_report_does_not_change_is_for_the_whole_run():
    def answer(report):
        for _ in range(1_000):
            report("still here")
            work(0.1)

    assert (
        run_isolated(answer, time_limit=1.0, report=True, on_report=lambda value: None).ending
        == "timed out"
    )


@pytest.mark.parametrize("seen", [True, False])
def test_what_the_receiver_of_a_report_takes_does_not_count(monkeypatch, seen):
    if not seen:  # the clock counts here
        monkeypatch.setattr(isolation, "observe_session", lambda session: None)

    def answer(report):
        report("a moment, please")

    assert (
        run_isolated(
            answer, time_limit=1.0, report=True, on_report=lambda value: time.sleep(2.0)
        ).ending
        == "returned"
    )


def test_a_run_that_writes_too_much_is_ended():
    outcome = run_isolated(
        lambda: [print("x" * 1_000) for _ in range(10_000)],
        time_limit=20,
        output_limit=100_000,
    )
    assert outcome.ending == "flooded"
