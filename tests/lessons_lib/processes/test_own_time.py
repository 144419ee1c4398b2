"""Own time: work counts as the processor counts it, sleep by the clock, and waiting for a
processor not at all.
"""

import functools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_lib.paths import ROOT
from lessons_processes.own_time import Stopwatch, observe_session, observe_thread

EVERY = 0.1
linux = pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="elsewhere the clock counts"
)


class Machine:
    """A clock and a run of which a test says what it did since the last look."""

    def __init__(self):
        self.now, self.worked, self.is_awake = 100.0, 7.0, True
        self.stopwatch = Stopwatch(
            lambda: (self.worked, self.is_awake), EVERY, lambda: self.now
        )

    def look_after(self, seconds: float, worked: float = 0.0, is_awake: bool = True) -> float:
        self.now = self.now + seconds
        self.worked = self.worked + worked
        self.is_awake = is_awake
        return self.stopwatch.look()


def test_work_counts():
    machine = Machine()
    assert [machine.look_after(0.1, worked=0.1) for _ in range(3)] == pytest.approx(
        [0.1, 0.2, 0.3]
    )


def test_sleep_counts():
    machine = Machine()
    assert [machine.look_after(0.1, is_awake=False) for _ in range(3)] == pytest.approx(
        [0.1, 0.2, 0.3]
    )


def test_waiting_for_a_processor_counts_for_nothing():
    machine = Machine()
    assert [machine.look_after(0.1, worked=0.01) for _ in range(3)] == pytest.approx(
        [0.01, 0.02, 0.03]
    )
    assert machine.look_after(60.0) == pytest.approx(0.03)


def test_what_a_sleeper_did_while_the_looker_had_no_processor_is_not_known():
    assert Machine().look_after(60.0, is_awake=False) == pytest.approx(2 * EVERY)


def test_two_threads_that_work_at_once_count_as_one():
    machine = Machine()
    assert machine.look_after(0.1, worked=0.2) == pytest.approx(0.1)
    assert machine.look_after(1.0) < 0.15  # and are not counted later


def test_a_tick_that_is_counted_late_is_not_lost():
    """The system counts in hundredths of a second: of a thread that works all the time, a look
    may see none, then two.
    """
    machine = Machine()
    for worked in (0.0, 0.02) * 20:
        seconds = machine.look_after(0.06, worked=worked)
    assert seconds == pytest.approx(0.4)


def test_looks_that_follow_at_once_do_not_count_more():
    machine = Machine()
    for _ in range(100):
        machine.look_after(0.001, is_awake=False)
    assert machine.stopwatch.seconds <= 0.1 + 1e-9


def test_what_is_left_out_does_not_count():
    machine = Machine()
    machine.now += 60.0
    machine.stopwatch.leave_out(60.0)
    assert machine.look_after(0.1, is_awake=False) == pytest.approx(0.1)


def test_where_nothing_can_be_seen_the_clock_counts():
    clock = iter([0.0, 1.0, 2.5])
    stopwatch = Stopwatch(lambda: None, EVERY, lambda: next(clock))
    assert (stopwatch.look(), stopwatch.look()) == (1.0, 2.5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 8), st.booleans())))
def test_own_time_never_runs_back_nor_ahead_of_the_clock(looks):
    machine, before = Machine(), 0.0
    for seconds, worked, is_awake in looks:
        own = machine.look_after(seconds, worked, is_awake)
        assert before <= own <= machine.now - 100.0 + 1e-9
        before = own


@linux
@pytest.mark.parametrize(
    "program, does_work",
    [
        ("while True: pass", True),
        (
            (
                "import threading; threading.Thread(target=lambda: "
                "[0 for _ in iter(int, 1)]).start()"
            ),
            True,
        ),
        ("import time; time.sleep(1e6)", False),
        ("import threading; threading.Lock().acquire(); threading.Event().wait()", False),
    ],
)
def test_a_session_is_seen(program, does_work):
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        while observe_session(process.pid)[1] is not does_work:  # it starts, which is work
            time.sleep(0.01)
        while does_work and observe_session(process.pid)[0] < 0.3:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert observe_session(process.pid) == (0.0, False)


@linux
def test_work_of_children_counts_also_when_they_have_ended():
    # more than is asked below: the kernel counts in ticks, and the child's own clock does not
    child = "import time\nwhile time.process_time() < 0.6: pass"
    program = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {child!r}]); "
        "print(flush=True); time.sleep(1e6)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, stdout=subprocess.PIPE
    )
    process.stdout.read(1)
    worked, _ = observe_session(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert worked >= 0.5


OWN_CLOCK = """
import os, time
from lessons_processes.own_time import own_clock
os.sched_setaffinity(0, {%d})
clock, own, end = time.monotonic(), own_clock(), time.process_time() + 0.5
while time.process_time() < end: pass
time.sleep(0.5)
print(time.monotonic() - clock, own_clock() - own)
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="elsewhere the clock counts"
)
def test_a_process_sees_its_own_time_pass():
    """Half a second of work and half a second of sleep, on a processor that it shares with
    five endless loops.
    """
    processor = min(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {processor})
        run = subprocess.run(
            [sys.executable, "-c", OWN_CLOCK % processor],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    clock, own = map(float, run.stdout.split())
    assert own > 0.99 and clock - own > 1


@linux
def test_a_thread_is_seen():
    door = threading.Lock()
    door.acquire()
    thread = threading.Thread(target=door.acquire)
    thread.start()
    observe = functools.partial(observe_thread, thread.native_id)
    while observe()[1]:
        time.sleep(0.001)
    assert not observe()[1]
    door.release()
    thread.join()
    while observe() is not None:  # the system ends it a moment later
        time.sleep(0.001)
