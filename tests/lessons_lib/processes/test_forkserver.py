"""The forkserver, and the process that it keeps waiting, so that the next run starts soon."""

import contextlib
import os
import sys
import time

import cloudpickle
import psutil
import pytest

from lessons_lib import run_isolated
from lessons_lib.paths import ROOT
from lessons_lib.processes import isolation
from process_end import wait_until_ended
from python_process import python

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def servers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if "forkserver" in " ".join(child.cmdline()):
                found.append(child)
    return found


def waiting() -> int:
    """The process that waits for the next run, once there is one."""
    while not (found := [each.pid for server in servers() for each in server.children()]):
        time.sleep(0.01)
    (pid,) = found
    return pid


@pytest.fixture
def waits():
    """The process that waits after a first run."""
    run_isolated(os.getpid)
    return waiting()


def session() -> int:
    return os.getsid(0)


def test_a_process_that_waits_is_used_once(waits):
    assert run_isolated(session).value == waits
    assert run_isolated(session).value != waits


def test_a_process_that_waits_is_not_used_from_another_place(waits, tmp_path, monkeypatch):
    def place():
        return os.getcwd(), sys.path[0]

    monkeypatch.chdir(tmp_path)
    assert run_isolated(place).value[0] == str(tmp_path)
    wait_until_ended(waits)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_isolated(place).value == (str(ROOT), str(tmp_path))


def test_a_process_that_waited_and_was_killed_is_not_used(waits):
    os.kill(waits, 9)
    while psutil.pid_exists(waits):  # until the forkserver has seen it
        time.sleep(0.01)
    assert run_isolated(session).value != waits


def test_a_fork_of_the_notebook_leaves_what_waits_alone(waits):
    if not (pid := os.fork()):
        isolation.end_waiting()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert run_isolated(session).value == waits


def test_what_waits_can_be_ended_and_descriptors_and_processes_do_not_pile_up(waits):
    isolation.end_waiting()
    wait_until_ended(waits)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run_isolated(os.getpid)
    isolation.end_waiting()
    assert len(os.listdir("/proc/self/fd")) == before
    assert [server.children() for server in servers()] == [[]]


def test_a_program_ends_with_all_its_processes():
    """A process waits for the next run. While it holds the output, this waits too."""
    program = "from lessons_lib import run_isolated\nprint(run_isolated(int).value)"
    done = python("-c", program)
    assert done.stdout == "0\n" and done.returncode == 0


def test_rubbish_in_its_pipes_and_a_killed_server_are_no_trouble():
    """The next run starts another server."""

    def answer():
        for descriptor in range(3, 30):
            try:
                os.write(descriptor, b"\0\0\0\x08rubbish!")
            except OSError:
                pass
        os._exit(0)

    assert run_isolated(answer).ending == "exited"
    for server in servers():
        server.kill()
    assert run_isolated(lambda: 5).value == 5
