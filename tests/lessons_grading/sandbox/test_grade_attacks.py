"""Routes through the wall between a submission and its judge, tried with all of
`lessons_grading/` known.
"""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from forge import FORGE
from graded import QUICK, RIGHT, earned, grade, hand_in, needs_sandbox, passed
from lessons_lib.paths import ROOT
from ordinary_user import NUMBER, as_ordinary_user

LOOK = {
    "descriptors": (
        """
for process in filter(str.isdigit, os.listdir('/proc')):
    if int(process) == os.getpid(): continue
    descriptors = (f'fd/{number}' for number in range(300))
    for file in ('mem', 'maps', 'environ', 'auxv', 'cwd', 'root', *descriptors):
        for mode in ('rb', 'r+b', 'wb'):
            try: open(f'/proc/{process}/{file}', mode).close()
            except OSError: pass
            else: raise AssertionError((process, file, mode))"""
    ),
    "signals": (
        """
import signal
for number in set(range(1, 65)) - {32, 33}:
    try: os.kill(1, number)
    except OSError: pass"""
    ),
    "tracing": (
        """
assert libc.syscall(101, 16, 1, 0, 0) == -1  # ptrace
assert libc.syscall(310, 1, 0, 0, 0, 0, 0) == -1  # process_vm_readv
assert libc.syscall(311, 1, 0, 0, 0, 0, 0) == -1  # process_vm_writev
handle = libc.syscall(434, 1, 0)  # pidfd_open
assert all(libc.syscall(438, handle, number, 0) == -1 for number in range(20))"""
    ),
    "namespaces": (
        """
assert libc.unshare(0x10000000) == -1  # a user namespace would give all capabilities within it
assert libc.unshare(0x00020000) == -1 and libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) == -1
assert os.system('unshare -U true 2>/dev/null') != 0"""
    ),
    "uncounted memory": (
        """
import mmap, socket
assert libc.memfd_create(b'x', 0) == -1 and libc.shmget(0, 4096, 0o1600) == -1
assert libc.syscall(0x40000000 | 319, b'x', 0) == -1  # by the numbers of another ABI
assert libc.syscall(425, 8, 0) == -1
assert libc.syscall(278, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 38  # vmsplice
for flags in (mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, 0x23, mmap.MAP_PRIVATE | 0x40020):
    try: mmap.mmap(-1, 4096, flags=flags)
    except OSError: pass
    else: raise AssertionError(flags)
try: mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)
except (OSError, ValueError): pass
else: raise AssertionError('shared memory without a file')
mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
one, other = socket.socketpair()
for option in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):
    one.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 1 << 20
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # others go on"""
    ),
    "sockets of the host": (
        """
import socket
for family in (socket.AF_VSOCK, 38, 17, 9, 31):  # of a virtual machine, a cipher, a device
    for make in (socket.socket, socket.socketpair):
        try: make(family, socket.SOCK_STREAM)
        except OSError as error: assert error.errno == 97, (family, error)
        else: raise AssertionError(family)
for family in (1, 2, 10, 16): socket.socket(family, socket.SOCK_DGRAM).close()"""
    ),
    "root": (
        """
assert os.stat('/proc/sys/vm').st_uid not in os.getresuid()
assert 'CapEff:\\t0000000000000000' in open('/proc/self/status').read()
for change in (os.setuid, os.setgid, os.seteuid):
    try: change(0)
    except OSError: pass
    else: raise AssertionError(change)"""
    ),
    "work that hides after those that wait": (
        """
assert [libc.syscall(call, 0, 5, 0) for call in (144, 314, 142, 141)] == [-1] * 4"""
    ),
    "what outlives a process": (
        """
assert libc.syscall(240, b'kept', 0o102, 0o600, 0) == -1 and ctypes.get_errno() == 38
assert libc.msgget(1, 0o1600) == -1 and libc.semget(1, 1, 0o1600) == -1"""
    ),
    "the kernel's settings and devices": (
        """
import errno
for place in ('/proc/sys/vm/swappiness', '/proc/self/oom_score_adj', '/dev/kept', '/dev/a/b'):
    try: open(place, 'w')
    except OSError as error: assert error.errno in (errno.EROFS, errno.ENOENT), (place, error)
    else: raise AssertionError(place)
assert open('/dev/null', 'w').write('x') and os.urandom(1)"""
    ),
    "what the course wrote for itself": (
        f"""
kept = [name for _, _, names in os.walk({str(ROOT / "lessons_content")!r}) for name in names]
assert not [name for name in kept if name.endswith('.mistakes') or name.startswith('e0_')]
assert not os.path.exists({str(ROOT / "solutions")!r})
assert not os.path.exists({str(ROOT / "tests")!r})
assert not os.path.exists({str(ROOT / ".git")!r})"""
    ),
}


@needs_sandbox
def test_a_cell_sees_reaches_and_gets_nothing_that_is_not_its_own(tmp_path):
    result = grade(hand_in(tmp_path, FORGE, *LOOK.values(), RIGHT))
    assert result.events == () and earned(result) == 1


@pytest.mark.slow
@needs_sandbox
@pytest.mark.skipif(os.getuid() != 0, reason="the test above is an ordinary user's here")
def test_for_an_ordinary_user_the_wall_is_the_same():
    code = (
        "import pathlib, tempfile\nfrom graded import *\nfrom test_grade_attacks import *\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = hand_in(pathlib.Path(folder), FORGE, *LOOK.values(), RIGHT)\n"
        "    result = grade(path)\nprint(os.getuid(), earned(result), result.events)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    words = [*as_ordinary_user(), "env", f"PYTHONPATH={path}", "HOME=/nowhere"]
    ran = subprocess.run([*words, sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == f"{NUMBER} 1 ()\n", ran.stderr


ALONE = """
def blocks_needed(num_tokens, block_size):
    import glob, os
    if os.path.lexists("/tmp/a"):
        raise ValueError("something is left")
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read()
        except OSError:  # it has ended, or is none of ours
            continue
        if b"sleep" in words:
            raise ValueError("somebody is left")
    return -(-num_tokens // block_size)
"""

CLOSED = "import os\nos.makedirs('/tmp/a/b')\nopen('/tmp/a/b/c', 'w')\nos.chmod('/tmp/a', 0)"


@needs_sandbox
def test_nothing_of_a_cell_is_left_when_its_answers_are_tried(tmp_path):
    spawn = "import os\nos.posix_spawn('/bin/sleep', ['sleep', '1000000'], {}, setsid=True)"
    result = grade(hand_in(tmp_path, spawn, CLOSED, ALONE))
    assert passed(result) == {"0.1": True}, result


def kill_what_runs(marker: Path):
    """From outside, as a system without memory does: the newest process of the sandbox."""
    while not marker.exists():
        time.sleep(0.1)
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == "sleeps now":
                    process.kill()
                    marker.touch()


SLEEPS = """
import ctypes
ctypes.CDLL(None).prctl(15, b"sleeps now", 0, 0, 0)
import time
time.sleep(600)
"""


@needs_sandbox
@pytest.mark.parametrize("where", ["cell", "answer"])
def test_who_was_killed_from_outside_has_no_final_grade_and_none_that_is_remembered(
    tmp_path, where
):
    body = "".join(f"    {line}\n" for line in SLEEPS.splitlines())
    answer = RIGHT if where == "cell" else RIGHT.replace("    return", f"{body}    return")
    cells = (answer, SLEEPS) if where == "cell" else (answer,)
    path, limits = hand_in(tmp_path, *cells), replace(QUICK, cell_seconds=600.0)
    killer = threading.Thread(target=kill_what_runs, args=(tmp_path / "killed",), daemon=True)
    killer.start()
    result = grade(path, limits)
    assert not result.is_final and not result.is_over
    what = "cell 2" if where == "cell" else "an answer"
    words = f"something killed {what}: perhaps the machine has too little memory"
    assert words in result.events and earned(result) == (where == "cell")


COUNTS_PROCESSES = """
import os
def blocks_needed(num_tokens, block_size):
    return -(-num_tokens // block_size) if os.getpid() > 120 else 0
"""


@pytest.mark.slow
@needs_sandbox
def test_no_verdict_is_remembered_of_a_sandbox_in_which_cells_ran(tmp_path):
    """Cells leave something there: small numbers of processes are used up. The last student
    has the same answer, and no such cell.
    """
    fill = "import os\nfor _ in range(150):\n    if os.fork() == 0: os._exit(0)\n    os.wait()"
    notebooks = [(COUNTS_PROCESSES, f"{fill}\n{number}") for number in range(5)]
    notebooks.append((COUNTS_PROCESSES,))
    for number, cells in enumerate(notebooks):
        (tmp_path / str(number)).mkdir()
        hand_in(tmp_path / str(number), *cells)
    code = (
        "import sys\nfrom pathlib import Path\nfrom graded import Limits, earned, grade\n"
        "from lessons_grading.try_answer import remember_answers\n"
        "remember_answers()\n"
        "for path in sorted(Path(sys.argv[1]).glob('*/*.ipynb')):\n"
        "    result = grade(path, Limits())\n"
        "    print(earned(result), result.tried, result.repeated)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines() == [*["1 1 0"] * 4, "0 1 0", "0 0 1"], ran.stderr


@pytest.mark.slow
@needs_sandbox
def test_what_cannot_be_deleted_costs_only_the_sandbox(tmp_path):
    """Where the course's files go, folders inside folders, too deep for a plain deletion."""
    dig = (
        f"import os\nos.chdir({str(ROOT / 'kernels')!r})\nfor _ in range(3000):\n"
        "    os.mkdir('d')\n    os.chdir('d')"
    )
    assert earned(grade(hand_in(tmp_path, dig, RIGHT))) == 1
