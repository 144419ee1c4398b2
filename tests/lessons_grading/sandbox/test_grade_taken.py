"""Time and memory that a submission takes are counted, in whatever way it hides them."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from test_grade_hostile import TOO_MANY, says

from forge import FORGE
from graded import QUICK, RIGHT, WRONG, a_few, earned, grade, hand_in, mistakes, needs_sandbox
from lessons_grading import confinement
from lessons_grading.sandbox import Limits

TIME = {
    "a report after the other": "while True: forge(['cell', 3], ['error', 3, 'x'])",
    "sleep beside a process that works": (
        "import time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True: pass\n"
        "time.sleep(10 ** 6)"
    ),
    "stopped": "os.kill(os.getpid(), 19)",
    "waits for its child in vfork": (
        "os.posix_spawn('/bin/sleep', ['sleep', '1000000'], {})\nos.wait()"
    ),
}


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("cell", a_few(TIME, "stopped"))
def test_no_cell_outlives_its_time(tmp_path, cell):
    """If its limit ended it, it says so.

    If its reports became too many, the judge did not wait.
    """
    result = grade(hand_in(tmp_path, FORGE, RIGHT, cell))
    assert any(
        "cell 3 was stopped after 3 s" in event or "reported more than" in event
        for event in result.events
    ), result.events


@pytest.mark.slow
@needs_sandbox
def test_the_notebooks_time_is_that_of_all_its_processes(tmp_path):
    """Each of the cells takes less than a cell may."""
    limits = Limits(cell_seconds=60.0, notebook_seconds=10.0)
    work = "import time\nend = time.thread_time() + 4\nwhile time.thread_time() < end: pass"
    result = grade(hand_in(tmp_path, RIGHT, work, work, work, WRONG), limits)
    assert "the notebook was stopped after 10 s" in result.events and earned(result) == 1


HIDDEN_WORK = """
import os, signal, time
def work(seconds):  # it gives all of it to children for which nobody waits
    end = time.monotonic() + seconds
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while time.monotonic() < end:
        for _ in range(os.cpu_count()):
            if os.fork() == 0:
                end = time.thread_time() + 0.05
                while time.thread_time() < end: pass
                os._exit(0)
        time.sleep(0.05)
"""


@pytest.mark.slow
@needs_sandbox
def test_time_of_children_that_nobody_waits_for_counts(tmp_path):
    """A cell may take 3 seconds here, and an answer 10."""
    result = grade(hand_in(tmp_path, HIDDEN_WORK + "work(60)\n" + RIGHT))
    assert result.events == ("cell 1 was stopped after 3 s",) and earned(result) == 0
    answer = RIGHT.replace("    return", "    work(120)\n    return")
    result = grade(hand_in(tmp_path, HIDDEN_WORK + answer))
    assert mistakes(result) == {"0.1": "timed-out"}


@pytest.mark.slow
@needs_sandbox
def test_a_submissions_time_by_the_clock_is_extended_by_nothing(tmp_path):
    limits = replace(QUICK, cell_seconds=600.0, total_seconds=9.0)
    result = grade(hand_in(tmp_path, RIGHT, "import time\ntime.sleep(600)"), limits)
    assert result.is_over and not result.is_final and earned(result) == 0
    assert result.events == ("it was stopped after 0.15 minutes by the clock, with cell 2",)
    assert "This was not tried: the time by the clock was over" in result.exercises[0].message


TOO_MUCH = {
    "buffers of TCP": (
        (
            "import socket, time\nserver = socket.create_server(('127.0.0.1', 0))\nkept = []\n"
            "for _ in range(300):\n    one = socket.create_connection(server.getsockname())\n"
            "    kept += [one, server.accept()[0]]\n    one.setblocking(False)\n"
            "    try:\n        while True: one.send(b'x' * (1 << 16))\n"
            "    except BlockingIOError: pass\ntime.sleep(1000)"
        ),
        "GB of memory",
    ),
    "threads": (
        (
            "import threading, time\nfor _ in range(300):\n"
            "    threading.Thread(target=time.sleep, args=(1000,)).start()\ntime.sleep(1000)"
        ),
        TOO_MANY,
    ),
    "sockets": (
        (
            "import os, socket, time\nfor _ in range(4): os.fork()\n"
            "kept = [socket.socketpair() for _ in range(400)]\ntime.sleep(1000)"
        ),
        "GB of memory",
    ),
    "page tables": (
        (
            "import mmap, time\nkept = []\nfor _ in range(80):\n"
            "    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n"
            "    kept.append(mmap.mmap(-1, 16 << 30, flags, mmap.PROT_READ))\n"
            "    for place in range(0, 16 << 30, 2 << 20): kept[-1][place]\ntime.sleep(1000)"
        ),
        "GB of memory",
    ),
    "empty files": (
        (
            "import os, time\nfor n in range(10 ** 6):\n"
            "    os.close(os.open(f'/tmp/{n}', os.O_CREAT))"
        ),
        "GB of files",
    ),
}


@needs_sandbox
@pytest.mark.parametrize("cell, event", a_few(TOO_MUCH, "threads"))
def test_what_belongs_to_no_process_is_counted_too(tmp_path, cell, event):
    limits = Limits(cell_seconds=300.0, memory=1 << 30, disk=64 << 20)
    result = grade(hand_in(tmp_path, RIGHT, cell), limits)
    assert says(result, event), result.events
    assert earned(result) == 1


needs_cgroup = pytest.mark.skipif(
    confinement.missing() is not None or not confinement.systemd_scope(),
    reason="systemd gives no cgroup here",
)

BIG = {  # 200 MB
    "plain memory": "kept = bytearray(b'x' * (200 << 20))",
    "memory of a child": (
        "import os\nif not os.fork():\n    kept = bytearray(b'x' * (200 << 20))\n"
        "    os._exit(0)\nos.wait()"
    ),
    "a memfd": (
        "import os\nend = os.memfd_create('x')\n"
        "for _ in range(200): os.write(end, b'x' * (1 << 20))"
    ),
    "a file in memory": (
        "import tempfile\nwith tempfile.TemporaryFile(dir='/dev/shm') as file:\n"
        "    for _ in range(200): file.write(b'x' * (1 << 20))"
    ),
}


@needs_cgroup
@pytest.mark.parametrize("code", BIG.values(), ids=BIG)
def test_the_kernel_ends_all_that_is_in_a_cgroup_whose_memory_runs_out(code):
    def run(memory: int) -> int:
        words = [*confinement.in_scope(memory, 16), sys.executable, "-I", "-c", code]
        return subprocess.run(words, stderr=subprocess.PIPE).returncode

    assert (run(1 << 30), run(100 << 20)) == (0, -signal.SIGKILL)


@needs_cgroup
def test_a_sandbox_gets_a_cgroup_and_does_not_learn_how_to_find_its_manager():
    look = [*confinement.in_scope(1 << 30, 16), "sh", "-c", "cat /proc/self/cgroup; env"]
    path = {"PATH": "/usr/bin:/bin"}
    ran = subprocess.run(look, env=path, stdout=subprocess.PIPE, text=True)
    assert ran.returncode == 0 and ".scope" in ran.stdout
    assert not any(f"{name}=" in ran.stdout for name in confinement.MANAGER)
