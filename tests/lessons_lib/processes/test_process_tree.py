"""Whatever a run has started ends with it, and a signal to all of them is for the run."""

import os
import signal
import subprocess
import sys
import time

import cloudpickle
import pytest

from lessons_lib import run_isolated
from lessons_lib.paths import ROOT
from process_end import wait_until_ended

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])
orphans = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux hands orphans to a process that asks for them"
)


def sleeper(mark):
    """Leaves a child that holds our pipes."""
    if os.fork() == 0:
        mark.write_text(str(os.getpid()))
        time.sleep(1e6)
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.01)


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


def sleeper_alone(mark):
    """Leaves a child, and kills the process that would look after it."""
    sleeper(mark)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1e6)


ENDINGS = {
    "returned": lambda: None,
    "timed out": lambda: time.sleep(1e6),
    "exited": lambda: os._exit(3),
    "crashed": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "raised": lambda: 1 / 0,
    "flooded": lambda: [print("x" * 1_000) for _ in range(1_000_000)],
}


LEFT = [*((ending, daemon) for ending in ENDINGS), ("returned", of_another_program)]
LEFT += [("crashed", sleeper_alone)]
LEFT += [(ending, sleeper) for ending in ("returned", "timed out", "crashed")]


@orphans
@pytest.mark.parametrize("ending, leave", LEFT)
def test_what_a_run_leaves_ends_with_it(tmp_path, leave, ending):
    mark, end = tmp_path / "alive", ENDINGS[ending]

    def answer():
        leave(mark)
        end()

    limit = 1.0 if ending == "timed out" else 60.0
    assert run_isolated(answer, time_limit=limit, output_limit=100_000).ending == ending
    wait_until_ended(int(mark.read_text()))


@orphans
@pytest.mark.slow
def test_a_run_and_what_it_left_end_even_when_the_notebook_was_killed(tmp_path):
    run, left = tmp_path / "run", tmp_path / "left"

    def answer():
        run.write_text(str(os.getpid()))
        daemon(left)
        while True:
            pass

    end_notebook_in_the_middle(answer, left)
    for mark in run, left:
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


GROUP = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("number", [*GROUP, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_to_its_group_is_a_crash_like_any_other(number):
    def answer():
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.killpg(os.getpgrp(), number)
        time.sleep(1e6)

    outcome = run_isolated(answer, time_limit=60.0)
    assert (outcome.ending, outcome.detail) == ("crashed", signal.strsignal(number))


def test_a_signal_to_its_group_that_a_run_ignores_ends_nothing():
    def answer():
        for number in GROUP:
            signal.signal(number, signal.SIG_IGN)
            os.killpg(os.getpgrp(), number)
        time.sleep(0.3)
        return "alive"

    assert run_isolated(answer).value == "alive"


EARLY = """
import os, signal, time
from lessons_lib.processes import process_tree
before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
signal.signal(signal.SIGINT, signal.SIG_DFL)
if caller := process_tree.split():
    os.waitid(os.P_PID, caller, os.WEXITED | os.WNOWAIT)  # is late
    process_tree.see_out(caller)
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR1}
os.killpg(os.getpgrp(), signal.SIGINT)
time.sleep(1e6)
"""


def test_a_signal_that_comes_before_the_other_process_waits_is_for_the_caller_too():
    program = [sys.executable, "-c", EARLY]
    done = subprocess.run(program, cwd=ROOT, start_new_session=True)
    assert done.returncode == -signal.SIGINT
