"""Routes through the wall between a submission and its judge, tried with all of
`lessons_grading/` known.
"""

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from test_grade_hostile import TOO_MANY, says

from graded import (
    QUICK,
    RIGHT,
    WRONG,
    a_few,
    earned,
    grade,
    hand_in,
    mistakes,
    needs_sandbox,
    passed,
)
from lessons_grading import confinement
from lessons_grading.sandbox import Limits
from lessons_lib.paths import ROOT
from ordinary_user import NUMBER, as_ordinary_user

# For the cells below: the end of the pipe to the controller, and its messages.
FORGE = """
import ctypes, json, os, struct
def ends():
    for name in os.listdir('/proc/self/fd'):
        try:
            target = os.readlink('/proc/self/fd/' + name)
            if int(name) > 2 and target.startswith('pipe:'): yield int(name)
        except OSError: pass
def forge(*messages):
    for message in messages:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        data = struct.pack('>I', len(data)) + data
        for end in ends():
            try:
                rest = data
                while rest: rest = rest[os.write(end, rest):]
            except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
"""
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
LIMITS_OF_THE_CONTROLLER = (
    FORGE
    + """
import resource
for name in ('RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_AS', 'RLIMIT_FSIZE'):
    try: resource.prlimit(1, getattr(resource, name), (0, 0))
    except (OSError, ValueError): pass
"""
)
LONG = FORGE + "for _ in range(9): forge(b'\"' + b'x' * (15 << 20) + b'\"')"
FORGED = {
    "marks": [
        ["cell", 1],
        ["passed", "0.1"],
        ["ended", {"ending": "returned"}],
        ["grade", 1],
        ["case", 0, 1],
        ["report", None],
    ],
    "answers": [
        ["answer", "0.1", {"text": "x"}],
        ["answer", "0.1", {"pickle": "!"}],
        ["answer", "9.9", {"text": ""}],
        [
            "answer",
            "0.1",
            {"pickle": "gASVHAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARleGl0lIWUUpQu"},
        ],
        ["answer", ["0.1"], {}],
        ["answer"],
        ["refused", "0.1", ""],
    ],
    "types": [["refused", 5, 3], ["case", 0, 5], ["case", "0", "1"], ["finished", 3, []]],
    "ends": [
        ["ready"],
        ["finished", "returned"],
        ["finished", "exited", "x"],
        ["finished", "raised", "CompileError: " + "x" * 1_000_000],
    ],
    "an error whose name is none": [["finished", "raised", "a\0b: x"]],
    "shapes": [None, 1, [], {}, "", [[]], {"report": {}}, True],
    "no JSON": [b"\xff", b"", b"[1"],
    "depth": [b"[" * 100_000],
    "parts": [b"[" + b"[]," * 400_000 + b"1]"],
    "a length that is a lie": [struct.pack(">I", 0xFFFFFFFF)],
}


@needs_sandbox
def test_a_cell_sees_reaches_and_gets_nothing_that_is_not_its_own(tmp_path):
    result = grade(hand_in(tmp_path, FORGE, *LOOK.values(), RIGHT))
    assert result.events == () and earned(result) == 1


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


@needs_sandbox
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(LIMITS_OF_THE_CONTROLLER, marks=pytest.mark.slow),
        pytest.param(LONG, marks=pytest.mark.slow),
        *(
            pytest.param(
                FORGE + f"forge(*{messages!r})",
                marks=[] if name in ("marks", "answers", "ends") else [pytest.mark.slow],
            )
            for name, messages in FORGED.items()
        ),
    ],
    ids=["limits of the controller", "long messages", *FORGED],
)
def test_forged_messages_earn_nothing_and_cost_nothing(tmp_path, cell):
    """Neither is a wrong answer taken for a right one, nor is a right answer lost that came
    before.
    """
    assert earned(grade(hand_in(tmp_path, WRONG, cell))) == 0
    assert earned(grade(hand_in(tmp_path, RIGHT, cell))) == 1


def test_forged_messages_do_without_a_sandbox_no_more(tmp_path):
    cells = [FORGE + f"forge(*{FORGED[name]!r})" for name in ("marks", "answers", "shapes")]
    assert earned(grade(hand_in(tmp_path, WRONG, *cells), Limits(sandboxed=False))) == 0


@needs_sandbox
def test_results_forged_in_an_answer_have_to_be_right(tmp_path):
    """For each case it sends what equals many things, and continues as if it were done."""
    answer = (
        FORGE
        + """
def blocks_needed(num_tokens, block_size):
    equal = [["foreign", "x"], ["course", "lessons_lib.checks", "Text", "1", {}],
             ["set", []], True, None, ["dict", []]]
    for number in range(80): forge(*(["case", number, each] for each in equal))
    forge(["finished", "returned"])
    os._exit(0)"""
    )
    assert not earned(grade(hand_in(tmp_path, answer)))


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
def test_nothing_that_a_submission_made_is_unpickled_outside_of_its_own_process(
    tmp_path, sandboxed
):
    note = tmp_path / "note"
    place = "/tmp/note" if sandboxed else str(note)
    hostile = f"""
class Hostile(MemoryError):  # it ends its process, and is what is said of that
    def __reduce__(self):
        return exec, ("import os; open({place!r}, 'a').write(str(os.getpid()))",)
raise Hostile()"""
    unnoticed = f"import os\nassert not os.path.exists({place!r})"
    result = grade(hand_in(tmp_path, hostile, unnoticed, RIGHT), Limits(sandboxed=sandboxed))
    assert earned(result) == 1 and not note.exists()
    assert [event for event in result.events if event.startswith("cell")] == [
        "cell 1 raised Hostile"
    ]


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


@needs_sandbox
def test_a_submissions_time_by_the_clock_is_extended_by_nothing(tmp_path):
    limits = replace(QUICK, cell_seconds=600.0, total_seconds=9.0)
    result = grade(hand_in(tmp_path, RIGHT, "import time\ntime.sleep(600)"), limits)
    assert result.is_over and not result.is_final and earned(result) == 0
    assert result.events == ("it was stopped after 0.15 minutes by the clock, with cell 2",)
    assert "This was not tried: the time by the clock was over" in result.exercises[0].message


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
@pytest.mark.parametrize("cell, event", a_few(TOO_MUCH, "threads", "empty files"))
def test_what_belongs_to_no_process_is_counted_too(tmp_path, cell, event):
    limits = Limits(cell_seconds=300.0, memory=1 << 30, disk=64 << 20)
    result = grade(hand_in(tmp_path, RIGHT, cell), limits)
    assert says(result, event), result.events
    assert earned(result) == 1


@needs_sandbox
def test_what_cannot_be_deleted_costs_only_the_sandbox(tmp_path):
    """Where the course's files go, folders inside folders, too deep for a plain deletion."""
    dig = (
        f"import os\nos.chdir({str(ROOT / 'kernels')!r})\nfor _ in range(3000):\n"
        "    os.mkdir('d')\n    os.chdir('d')"
    )
    assert earned(grade(hand_in(tmp_path, dig, RIGHT))) == 1


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
