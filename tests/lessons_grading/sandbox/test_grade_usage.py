"""What a family of processes takes, as the system counts it."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lessons_grading import usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
HERE = SimpleNamespace(pid=77)
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


def test_sockets_count_with_what_waits_in_them():
    own = psutil.Process()
    text = Path("/proc/self/net/sockstat").read_text()
    least = int(re.search(r"used (\d+)", text)[1]) * usage.SOCKET_SIZE // 2
    pages = sum(map(int, re.findall(r" mem (\d+)", text)))
    assert usage.sockets(own) >= least + pages * 1024
    assert usage.sockets(NOBODY) == 0


@pytest.mark.parametrize(
    "text, bytes_counted",
    [
        (
            "sockets: used 7\nTCP: inuse 1 mem 3\nUDP: inuse 9 mem 5\n",
            7 * (256 << 10) + 8 * 4096,
        ),
        ("sockets: used 0\nTCP: inuse 0\n", 0),
        ("sockets:", 0),
        ("sockets: used many", 0),
    ],
)
def test_what_the_system_says_of_sockets(monkeypatch, text, bytes_counted):
    monkeypatch.setattr(usage, "Path", lambda path: SimpleNamespace(read_text=lambda: text))
    monkeypatch.setattr(usage.os, "sysconf", lambda name: 4096)
    assert usage.sockets(NOBODY) == bytes_counted


@pytest.fixture
def proc(monkeypatch, tmp_path):
    """A stand-in for /proc/77: writes its files."""
    monkeypatch.setattr(usage, "Path", lambda path: tmp_path / path.removeprefix("/proc/77/"))

    def write(**files: str):
        for name, text in files.items():
            (tmp_path / name).write_text(text)

    return write


STATUS = """Name:\tpython
VmRSS:\t  9999999 kB
VmPTE:\t       40 kB
RssAnon:\t   1000 kB
RssFile:\t9000000 kB
RssShmem:\t   200 kB
Threads:\t5
"""
SMAPS = """55d0-7ffd ---p 00000000 00:00 0      [rollup]
Rss:             9999999 kB
Pss:             9999999 kB
Pss_Dirty:       9999999 kB
Pss_Anon:            600 kB
Pss_File:        9000000 kB
Pss_Shmem:            70 kB
Shared_Clean:    9000000 kB
"""


def test_what_the_system_says_of_a_process(proc):
    proc(status=STATUS, smaps_rollup=SMAPS)
    assert usage.num_threads(HERE) == 5
    assert usage.memory(HERE) == 1240 * 1024
    assert usage.share(HERE) == 710 * 1024


@pytest.mark.parametrize(
    "status", ["", "Threads:\nRssAnon:\nVmPTE:", "Threads: x y\nRssAnon: z"]
)
def test_one_that_is_ending_takes_nothing_and_was_one_thread(proc, status):
    proc(status=status)
    assert (usage.num_threads(HERE), usage.memory(HERE), usage.share(HERE)) == (1, 0, 0)


def disks(**used: tuple[int, int, int]):
    """A stand-in for os.statvfs: each folder has blocks in use of a size, and files."""

    def statvfs(path: str):
        place = path.removeprefix("/proc/77/root")
        if place not in usage.WRITABLE:
            raise PermissionError(path)
        blocks, size, files = used.get(place.rpartition("/")[2], (0, 4096, 0))
        return SimpleNamespace(
            f_blocks=100 + blocks,
            f_bfree=100,
            f_frsize=size,
            f_files=1_000 + files,
            f_ffree=1_000,
        )

    return statvfs


DISKS = {  # what is used, and the bytes that count: the fullest disk, or all names together
    "nothing": ({}, 0),
    "files": ({"tmp": (3, 4096, 1)}, 3 * 4096),
    "the fullest": ({"tmp": (3, 4096, 1), "shm": (5, 2048, 1)}, 3 * 4096),
    "names": ({"tmp": (3, 4096, 30), "shm": (1, 4096, 10)}, 40 * 1024),
}


@pytest.mark.parametrize("used, counted", DISKS.values(), ids=DISKS)
def test_files_and_their_names_take_disk(monkeypatch, used, counted):
    monkeypatch.setattr(usage.os, "statvfs", disks(**used))
    assert usage.disk([HERE]) == counted


def test_the_last_process_that_can_be_looked_into_shows_the_disks(monkeypatch):
    monkeypatch.setattr(usage.os, "statvfs", disks(tmp=(3, 4096, 1)))
    assert usage.disk([NOBODY, HERE, NOBODY]) == 3 * 4096
    assert usage.disk([NOBODY]) == usage.disk([]) == 0
