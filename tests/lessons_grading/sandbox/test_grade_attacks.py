"""Routes through the wall between a submission and its judge, tried with all of
`lessons_grading/` known.
"""

import signal
import struct
import subprocess
import sys
import time

import pytest
from test_grade_hostile import FORKING_MEMORY, HARM, SHARED_MEMORY, TOO_MANY, earned, says

from graded import QUICK, RIGHT, WRONG, a_few, grade, hand_in, passed
from lessons_grading import confinement, hidden_cases, sandbox
from lessons_grading.run_cells import SETUP_LIMIT
from lessons_grading.sandbox import Limits, Reported, Sandbox
from lessons_lib.paths import ROOT

needs_sandbox = pytest.mark.skipif(
    confinement.missing() is not None, reason="there is no bubblewrap that works"
)
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
assert libc.memfd_create(b'x', 0) == -1 and libc.shmget(0, 4096, 0o1600) == -1
assert libc.syscall(0x40000000 | 319, b'x', 0) == -1  # by the numbers of another ABI
assert libc.syscall(425, 8, 0) == -1"""
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
assert not os.listdir({str(ROOT / "lessons_exercises")!r})
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
    "ends": [["returned"], ["exited", "x"], ["raised", "CompileError", "x" * 1_000_000]],
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
    forge(["returned"])
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
    import glob
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read()
        except OSError:  # it has ended, or is none of ours
            continue
        if b"sleep" in words:
            raise ValueError("somebody is left")
    return -(-num_tokens // block_size)
"""


@needs_sandbox
def test_nobody_of_a_cell_is_left_when_its_answers_are_tried(tmp_path):
    spawn = "import os\nos.posix_spawn('/bin/sleep', ['sleep', '1000000'], {}, setsid=True)"
    result = grade(hand_in(tmp_path, spawn, ALONE))
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


TOO_MUCH = {
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


def test_the_filter_of_system_calls_refuses_what_it_names_and_nothing_else():
    """The program, run by hand."""
    program = [
        struct.unpack_from("=HBBI", confinement.system_call_filter(), 8 * number)
        for number in range(len(confinement.system_call_filter()) // 8)
    ]
    if not program:
        pytest.skip("no numbers for this processor")
    column, architecture = confinement._ARCHITECTURES[confinement.platform.machine()]
    refused = {numbers[column] for numbers in confinement.REFUSED.values()}

    def run(call: int, of: int = architecture) -> int:
        place, loaded = 0, None
        while True:
            code, yes, no, k = program[place]
            if code == confinement._RETURN:
                return k
            if code == confinement._LOAD:
                loaded = {0: call, 4: of}[k]
                place += 1
            else:
                place += 1 + (
                    yes if (loaded == k if code == confinement._EQUAL else loaded >= k) else no
                )

    assert {call for call in range(600) if run(call) != confinement._ALLOW} == refused
    assert run(0x40000001) == run(next(iter(refused))) == confinement._NO_SUCH_CALL
    assert run(0, of=0x40000003) == confinement._KILL


@needs_sandbox
def test_a_cgroup_limits_what_it_can_where_systemd_gives_one(tmp_path, monkeypatch):
    """In place of systemd-run a script that notes what it was asked for, without a cgroup."""
    tool = tmp_path / "systemd-run"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nwhile [ "$1" != sh ]; do shift; done\n'
        'shift 4\nexec "$@"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{confinement.os.environ['PATH']}")
    confinement.systemd_scope.cache_clear()
    try:
        assert earned(grade(hand_in(tmp_path, RIGHT))) == 1
        assert "cgroup" in sandbox.limited_by(QUICK)
    finally:
        confinement.systemd_scope.cache_clear()
    asked = (tmp_path / "asked").read_text()
    assert (
        f"MemoryMax={QUICK.memory + QUICK.disk}" in asked
        and f"TasksMax={QUICK.processes}" in asked
    )


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


IN_A_CGROUP = {  # cell, bytes of memory, words
    "shared memory": (
        SHARED_MEMORY.replace("20 <<", "2 <<"),
        1 << 30,
        "cell 2: it took more than 1 GB of memory",
    ),
    "memory of many": (FORKING_MEMORY, 1 << 30, "cell 2: it took more than 1 GB of memory"),
    "threads": (
        TOO_MUCH["threads"][0].replace("1000", "30"),
        1 << 30,
        "can't start new thread",
    ),
    "fork bomb": (HARM["fork bomb"][0], 3 << 30, "Resource temporarily unavailable"),
}


@needs_cgroup
@pytest.mark.parametrize("cell, memory, event", IN_A_CGROUP.values(), ids=IN_A_CGROUP)
def test_the_kernel_keeps_the_limits_unwatched(tmp_path, monkeypatch, cell, memory, event):
    monkeypatch.setattr(sandbox, "WATCH_EVERY", 1e6)
    limits = Limits(cell_seconds=300.0, memory=memory, disk=64 << 20)
    result = grade(hand_in(tmp_path, WRONG, cell, RIGHT), limits)
    assert earned(result) == 1
    assert len(result.events) == 1 and event in result.events[0], result.events


@needs_sandbox
def test_a_run_in_which_only_the_clock_was_at_its_end_makes_no_final_grade(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sandbox, "BUSY", 1e-9)  # so it is, on however quick a machine
    result = grade(hand_in(tmp_path, RIGHT))
    assert not result.is_final and "the machine was too busy" in " ".join(result.events)


@needs_sandbox
def test_a_sandbox_that_says_anything_else_than_it_should_is_ended(tmp_path):
    there = Sandbox(QUICK, Reported())
    try:
        run = there.run("no such function", files={}, seconds=5.0)
        while run.next() is not None:
            pass
        assert run.outcome.ending == "raised" and not there.reason
        there._reported.bytes = sandbox.LARGEST_SUM
        run = there.run("observe", files={}, seconds=5.0)
        assert (
            run.next() is None
            and "reported more than" in run.outcome.detail
            and not there.alive
        )
    finally:
        there.close()


@needs_sandbox
def test_results_that_take_long_to_compare_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_cases, "LARGEST_EFFORT", 0.0)
    only = grade(hand_in(tmp_path, RIGHT)).exercises[0]
    assert (only.earned, only.message) == (0, hidden_cases.TOO_MUCH_EFFORT)


def test_the_effort_of_comparing_is_the_processors_time():
    effort = hidden_cases.Effort()
    with effort:
        time.sleep(0.2)
    assert effort.seconds < 0.1
    for _ in range(2):
        with effort:
            begun = time.thread_time()
            while time.thread_time() - begun < 0.2:
                pass
    assert 0.4 <= effort.seconds < 0.6


@needs_sandbox
def test_getting_ready_is_no_part_of_a_cells_time(tmp_path, monkeypatch):
    """On a busy machine, what comes before the first cell has taken more than a cell may."""
    limits, run = [], Sandbox.run

    def watched(self, function, *arguments, **more):
        limits.append((function, more["seconds"]))
        return run(self, function, *arguments, **more)

    monkeypatch.setattr(Sandbox, "run", watched)
    assert earned(grade(hand_in(tmp_path, RIGHT))) == 1
    assert limits[0] == ("run_cells", SETUP_LIMIT) and limits[0][1] > 10 * QUICK.cell_seconds
