"""Own time: work counts as the processor counts it, sleep by the clock, and waiting for a
processor not at all.
"""

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busy_processor import busy_processor
from lessons_lib.processes.cpu_time import Stopwatch, Thread, observe_session
from python_process import python

EVERY = 0.1
TICK = 1 / os.sysconf("SC_CLK_TCK")
linux = pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="elsewhere the clock counts"
)


class Machine:
    """A clock and a run of which a test says what it did since the last look.

    is_seen: whether it can be observed.
    shows_waits: whether the system says how long its thread has waited.
    """

    def __init__(self, every: float = EVERY, is_seen: bool = True, shows_waits: bool = True):
        self.now, self.worked, self.is_seen, self.shows_waits = (
            100.0,
            7.0,
            is_seen,
            shows_waits,
        )
        self.thread = Thread(True, 7.0, 3.0)
        self.stopwatch = Stopwatch(self.observe, every, lambda: self.now)

    def observe(self):
        thread = self.thread if self.shows_waits else Thread(self.thread.is_ready, None, None)
        return (self.worked, {1: thread}) if self.is_seen else None

    def look_after(self, seconds: float, worked: float = 0.0, is_awake: bool = True) -> float:
        """It has worked, and then waited for a processor if it is awake, or slept."""
        self.now = self.now + seconds
        self.worked = self.worked + worked
        waited = max(0.0, seconds - worked) if is_awake else 0.0
        self.thread = Thread(is_awake, self.worked, self.thread.waited + waited)
        return self.stopwatch.look()


WORK, SLEEP = dict(worked=0.1), dict(is_awake=False)
LOOKS = {  # at what a run has done since the last look, after so many seconds; its own time
    "work": ([(0.1, WORK)] * 3, 0.3),
    "sleep": ([(0.1, SLEEP)] * 3, 0.3),
    "waiting for a processor": ([(0.1, dict(worked=0.01))] * 3 + [(60.0, {})], 0.03),
    "both": ([(0.1, dict(worked=0.03, is_awake=False))] * 3, 0.3),
    "two threads at once count as one": ([(1.0, dict(worked=10.0))], 1.0),
    # of a second with ten seconds of work, two ticks of the rest may count in the next
    "the rest of their work": ([(1.0, dict(worked=10.0)), (1.0, {})], 1.0 + 2 * TICK),
    # of a thread that works all the time, a look may see no tick, then two
    "late ticks": ([(0.06, {}), (0.06, dict(worked=0.02))] * 20, 0.4),
    "after less than half of the time between two": ([(0.046, SLEEP)], 0.0),
    "after half of it": ([(0.046, SLEEP), (0.005, SLEEP)], 0.051),
}


@pytest.mark.parametrize("looks, own", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("shows_waits", [True, False])
def test_work_and_sleep_count_and_waiting_for_a_processor_does_not(looks, own, shows_waits):
    """The system counts in hundredths of a second."""
    machine = Machine(shows_waits=shows_waits)
    seen = [machine.look_after(seconds, **since) for seconds, since in looks]
    assert seen[-1] == pytest.approx(own)


def test_what_was_not_seen_to_wait_counts():
    """Work of a child that has ended, and that nobody has waited for, is seen nowhere."""
    machine = Machine()
    machine.thread = machine.thread._replace(is_ready=False)
    machine.now += 60.0
    assert machine.stopwatch.look() == pytest.approx(60.0)


def test_a_wait_counts_when_it_is_over_or_while_nothing_has_run():
    machine = Machine()
    for _ in range(3):  # the thread is ready, and has not run since the last look
        machine.now += 0.1
        assert machine.stopwatch.look() == 0.0


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_is_left_out_does_not_count(is_seen):
    machine = Machine(is_seen=is_seen)
    machine.now += 60.0
    machine.stopwatch.leave_out(50.0)
    machine.stopwatch.leave_out(10.0)
    assert machine.look_after(0.1, is_awake=False) == pytest.approx(0.1)


def test_where_nothing_can_be_seen_the_clock_counts():
    machine = Machine(is_seen=False)
    assert [machine.look_after(seconds) for seconds in (1.0, 1.5, 0.5)] == [1.0, 2.5, 3.0]
    machine.is_seen, machine.worked = True, 0.25
    assert machine.look_after(1.0) == 3.25


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 8), st.booleans())))
def test_own_time_never_runs_back_nor_ahead_of_the_clock(looks):
    machine, before = Machine(), 0.0
    for seconds, worked, is_awake in looks:
        own = machine.look_after(seconds, worked, is_awake)
        assert before <= own <= machine.now - 100.0 + 1e-9
        before = own


def is_awake(session: int) -> bool:
    return any(thread.is_ready for thread in observe_session(session)[1].values())


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
        while is_awake(process.pid) is not does_work:  # it starts, which is work
            time.sleep(0.01)
        while does_work and observe_session(process.pid)[0] < 0.3:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert observe_session(process.pid) == (0.0, {})


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
from lessons_lib.processes.cpu_time import own_clock
os.sched_setaffinity(0, {%d})
clock, own, end = time.monotonic(), own_clock(), time.process_time() + 0.5
while time.process_time() < end: pass
time.sleep(0.5)
print(time.monotonic() - clock, own_clock() - own)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="elsewhere the clock counts"
)
def test_a_process_sees_its_own_time_pass():
    """Half a second of work and half a second of sleep, on a processor that it shares."""
    with busy_processor() as processor:
        run = python("-c", OWN_CLOCK % processor)
    clock, own = map(float, run.stdout.split())
    assert own > 0.99 and clock - own > 1
