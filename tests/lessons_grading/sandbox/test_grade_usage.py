"""What a family of processes takes, as the system counts it."""

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lessons_grading import usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
NOBODY = SimpleNamespace(pid=2**22 + 1)  # there are no such numbers
MB = 1 << 20


@pytest.fixture
def started():
    """Runs Python in another process until it prints a line."""
    running = []

    def start(code: str) -> psutil.Process:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        running.append(process)
        assert process.stdout.readline() == b"ready\n"
        return psutil.Process(process.pid)

    yield start
    for process in running:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        process.communicate()


WAIT = "print('ready', flush=True); input()"


def test_children_of_children_belong_to_a_family(started):
    child = "import subprocess; subprocess.run(['sleep', '1000000'])"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "import psutil\n"
        "while not psutil.Process(child.pid).children(): pass\n"
        f"{WAIT}"
    )
    family = usage.tree(started(code).pid)
    assert len(family) == 2 and family[1].ppid() == family[0].pid
    assert usage.tree(NOBODY.pid) == []


def test_each_thread_counts(started):
    code = (
        "import threading\n"
        "for _ in range(3): threading.Thread(target=input, daemon=True).start()\n"
    )
    assert usage.num_threads(started(code + WAIT)) == 4
    assert usage.num_threads(NOBODY) == 1  # it was there


def test_memory_is_what_was_written_and_not_what_is_mapped(started):
    plain = usage.memory(started(WAIT))
    code = f"kept = bytearray(b'x' * {100 * MB}); del kept[{60 * MB}:]\n"
    assert 60 * MB < usage.memory(started(code + WAIT)) - plain < 110 * MB
    code = f"import mmap; kept = mmap.mmap(-1, {100 * MB})\n"
    assert usage.memory(started(code + WAIT)) - plain < 10 * MB
    code += f"for at in range(0, {50 * MB}, 4096): kept[at] = 1\n"
    assert 50 * MB < usage.memory(started(code + WAIT)) - plain < 60 * MB
    assert usage.memory(NOBODY) == usage.share(NOBODY) == 0


def test_what_two_have_in_common_counts_half_for_each(started):
    code = (
        "import mmap, os\n"
        f"kept = mmap.mmap(-1, {80 * MB})\n"
        f"for at in range(0, {80 * MB}, 4096): kept[at] = 1\n"
        "ours, theirs = os.pipe()\n"
        "if os.fork() == 0:\n"
        f"    sum(kept[at] for at in range(0, {80 * MB}, 4096))\n"
        "    os.write(theirs, b'x')\n"
        "    os.read(0, 1)\n"
        "os.read(ours, 1)\n"
    )
    parent = started(code + WAIT)
    family = [parent, *usage.tree(parent.pid)]
    assert len(family) == 2 and sum(map(usage.memory, family)) > 160 * MB
    assert 80 * MB < sum(map(usage.share, family)) < 110 * MB


def test_sockets_count_as_much_as_their_buffers_may_hold(started):
    plain = sum(int(Path(f"/proc/sys/net/core/{way}mem_default").read_text()) for way in "rw")
    before = usage.sockets(psutil.Process())
    pairs = [socket.socketpair() for _ in range(100)]
    assert usage.sockets(psutil.Process()) - before >= 150 * plain  # others may end meanwhile
    server = socket.create_server(("127.0.0.1", 0))
    largest = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    before = usage.sockets(psutil.Process())
    ends = [socket.create_connection(server.getsockname()) for _ in range(10)]
    assert usage.sockets(psutil.Process()) - before >= 5 * largest
    for each in (*ends, server, *(end for pair in pairs for end in pair)):
        each.close()
    assert usage.sockets(NOBODY) == 0
