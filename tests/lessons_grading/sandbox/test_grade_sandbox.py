"""What a sandbox may take and what comes out of it, on stand-ins for its processes."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from graded import open_files
from lessons_grading import confinement, sandbox, usage
from lessons_grading.controller import ENDED, LARGEST_MESSAGE, REPORT, SECONDS
from lessons_grading.sandbox import BUSY, Limits, Reported, Run, Sandbox
from lessons_lib.compiler_errors import CompileError

GB = 1 << 30
UNREADABLE = "what came from its sandbox cannot be read"


class Process:
    pid = 77

    def __init__(self, code=None):
        self.code, self.killed, self.waited = code, 0, 0

    def poll(self):
        return self.code

    def kill(self):
        self.killed += 1

    def wait(self, timeout=None):
        self.waited += 1
        if self.code is None and timeout is not None:
            raise subprocess.TimeoutExpired("bwrap", timeout)
        return self.code


@pytest.fixture
def box(monkeypatch):
    """A sandbox whose process is a stand-in. `theirs` is the other end of its replies."""
    monkeypatch.setattr(usage, "tree", lambda pid: [])
    made = Sandbox.__new__(Sandbox)
    made.limits, made.reason, made.alive = Limits(), "", True
    made.deadline, made._reported, made._process = float("inf"), Reported(), Process()
    made._replies, made.theirs = Pipe(duplex=False)
    yield made
    made.theirs.close()
    made._replies.close()


LIMITS = Limits(memory=3 * GB, processes=5, disk=2 * GB)
TOO_MUCH = {  # each process: threads, bytes, its share of them; bytes of sockets and on disk
    "nothing": ([], 0, 0, ""),
    "all of it": ([(5, 3 * GB, 3 * GB)], 0, 2 * GB, ""),
    "threads": (
        [(3, 0, 0), (3, 0, 0)],
        0,
        0,
        "it started more than 5 processes and threads",
    ),
    "memory": (
        [(1, 2 * GB, 2 * GB), (1, GB + 1, GB + 1)],
        0,
        0,
        "it took more than 3 GB of memory, in 2 processes",
    ),
    "memory that two share": ([(1, 3 * GB, 2 * GB), (1, 3 * GB, GB)], 0, 0, ""),
    "memory in sockets": (
        [(1, 3 * GB - 4, 3 * GB - 4)],
        5,
        0,
        "it took more than 3 GB of memory, in 1 processes",
    ),
    "a little in sockets": ([(1, 3 * GB - 5, 3 * GB - 5)], 5, 0, ""),
    "files": ([(1, 0, 0)], 0, 2 * GB + 1, "it wrote more than 2 GB of files"),
}


@pytest.mark.parametrize("processes, sockets, disk, reason", TOO_MUCH.values(), ids=TOO_MUCH)
def test_the_watcher_says_what_is_too_much(box, monkeypatch, processes, sockets, disk, reason):
    box.limits = LIMITS
    monkeypatch.setattr(usage, "tree", lambda pid: processes if pid == 77 else None)
    for place, name in enumerate(("num_threads", "memory", "share")):
        monkeypatch.setattr(usage, name, lambda process, place=place: process[place])
    monkeypatch.setattr(usage, "sockets", lambda process: sockets)
    monkeypatch.setattr(usage, "disk", lambda processes: disk)
    assert box._too_much() == reason


def test_a_plain_process_has_no_disk_and_no_network_of_its_own(box, monkeypatch):
    box.limits = Limits(memory=GB, sandboxed=False)
    monkeypatch.setattr(usage, "tree", lambda pid: [(1, GB, GB)])
    for place, name in enumerate(("num_threads", "memory", "share")):
        monkeypatch.setattr(usage, name, lambda process, place=place: process[place])
    for name in ("sockets", "disk"):
        monkeypatch.setattr(usage, name, lambda _: 100 * GB)
    assert box._too_much() == ""


@pytest.mark.parametrize("num_processes, reason", [(24, ""), (25, "it took more than 3 GB")])
def test_of_many_processes_the_quick_sum_counts(box, monkeypatch, num_processes, reason):
    box.limits = Limits(memory=3 * GB)
    monkeypatch.setattr(usage, "tree", lambda pid: [1] * num_processes)
    for name, value in {"num_threads": 1, "memory": 3 * GB, "share": 0}.items():
        monkeypatch.setattr(usage, name, lambda process, value=value: value)
    for name in ("sockets", "disk"):
        monkeypatch.setattr(usage, name, lambda _: 0)
    assert box._too_much().startswith(reason) and bool(box._too_much()) == bool(reason)


def test_what_does_not_react_is_ended(box, monkeypatch):
    box.deadline = float("-inf")
    assert box._too_much() == "it did not react any more"


def message(kind: bytes, content, seconds: float | None = None) -> bytes:
    own = b"" if seconds is None else SECONDS.pack(seconds)
    return (
        kind + own + (content if isinstance(content, bytes) else json.dumps(content).encode())
    )


def parts(count: int) -> bytes:
    """JSON that begins with this many brackets and commas."""
    return b"[" + b",".join([b"1"] * count) + b"]"


def test_reports_and_the_end_come_in_order(box):
    box.theirs.send_bytes(message(REPORT, ["cell", 3], 1.5))
    box.theirs.send_bytes(message(ENDED, {"ending": "exited"}))
    assert box.receive() == ("report", 1.5, ["cell", 3])
    assert box.receive() == ("ended", {"ending": "exited"})
    assert box.alive and not box.reason and not box._process.killed


@pytest.mark.parametrize(
    "data",
    [
        message(b"?", {}),
        message(ENDED, b"{"),
        message(ENDED, b"[" * 50_000),
        message(REPORT, b"\xff", 1.0),
        REPORT + b"\0",
        message(ENDED, parts(1001)),
        b"",
    ],
    ids=["kind", "half", "deep", "no UTF-8", "short", "many parts", "empty"],
)
def test_what_cannot_be_read_ends_it(box, monkeypatch, data):
    monkeypatch.setattr(sandbox, "MOST_PARTS", 1000 if b"1" in data else 100_000)
    box.theirs.send_bytes(data)
    assert box.receive() is None
    assert (box.alive, box.reason, box._process.killed) == (False, UNREADABLE, 1)


def test_as_many_parts_as_may_be_are_read(box, monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_PARTS", 1000)
    for content in ([1] * 1000, [{}] * 500, [[]] * 500):
        box.theirs.send_bytes(message(ENDED, content))
        assert box.receive() == ("ended", content)
    box.theirs.send_bytes(message(ENDED, [{}] * 501))
    assert box.receive() is None


def test_a_message_that_is_too_long_ends_it(box, monkeypatch):
    monkeypatch.setattr(sandbox, "LARGEST_MESSAGE", 10)
    box.theirs.send_bytes(b"x" * 1034)
    assert box._next_message() == b"x" * 1034
    box.theirs.send_bytes(b"x" * 1035)
    assert box._next_message() is None and box.reason == UNREADABLE
    assert LARGEST_MESSAGE > 1 << 20


def test_what_it_reports_is_counted_in_all_its_sandboxes(box, monkeypatch):
    monkeypatch.setattr(sandbox, "LARGEST_SUM", 3 << 20)
    for length, counted in ((0, 1024), (1024, 2048), (2000, 4048)):  # each has its work
        box.theirs.send_bytes(b"x" * length)
        assert box._next_message() == b"x" * length and box._reported.bytes == counted
    box._reported.bytes = (3 << 20) - 1024
    box.theirs.send_bytes(b"")
    assert box._next_message() == b"" and not box._reported.is_too_much()
    box.theirs.send_bytes(b"")
    assert box._next_message() is None
    assert box.reason == "it reported more than 3 MB" and not box.alive


@pytest.mark.parametrize(
    "code, by_kernel, reason",
    [
        (None, True, "its sandbox ended"),
        (1, True, "its sandbox ended"),
        (-signal.SIGKILL, False, "its sandbox ended"),
        (-signal.SIGKILL, True, "it took more than 4 GB of memory"),
    ],
)
def test_an_end_has_its_reason(box, monkeypatch, code, by_kernel, reason):
    monkeypatch.setattr(
        confinement, "systemd_scope", lambda: "/opt/run" if by_kernel else None
    )
    box._process.code = code
    box.theirs.close()
    if code is None:
        box._process.wait = Process.wait.__get__(box._process)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box, "end", lambda reason: setattr(box, "reason", reason))
        assert box._next_message() is None
    assert box.reason == reason
    box.limits = Limits(sandboxed=False)
    assert box._how_it_ended() == "its sandbox ended"


@pytest.mark.parametrize(
    "sandboxed, scope, program, words",
    [
        (True, "/opt/run", b"x", "the kernel, in a cgroup of its own for each notebook"),
        (True, None, b"x", "a watcher that looks every 0.2 s, and a filter of system calls"),
        (True, None, b"", "a watcher that looks every 0.2 s"),
        (False, "/opt/run", b"x", "a watcher that looks every 0.2 s"),
    ],
)
def test_a_report_says_what_keeps_the_limits(monkeypatch, sandboxed, scope, program, words):
    monkeypatch.setattr(confinement, "systemd_scope", lambda: scope)
    monkeypatch.setattr(confinement, "system_call_filter", lambda: program)
    assert sandbox.limited_by(Limits(sandboxed=sandboxed)) == words


@pytest.mark.parametrize(
    "release, counts",
    [("5.14.0-1", True), ("5.13.19", False), ("6.1.0", True), ("4.99", False), ("odd", False)],
)
def test_which_kernels_count_the_tasks_of_a_sandbox_alone(monkeypatch, release, counts):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    sandbox._counts_tasks_by_user_namespace.cache_clear()
    assert sandbox._counts_tasks_by_user_namespace() == counts
    sandbox._counts_tasks_by_user_namespace.cache_clear()


class Scripted:
    """A sandbox from which these messages come."""

    def __init__(self, *messages):
        self.messages, self.sent, self.reason, self.deadline = list(messages), [], "", None

    def send(self, *messages):
        self.sent.append(messages)

    def receive(self):
        return self.messages.pop(0)

    def end(self, reason):
        self.reason = self.reason or reason


def ended(ending="exited", detail="exit code 0", printed="p", seconds=2.5):
    return "ended", dict(ending=ending, detail=detail, printed=printed, seconds=seconds)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(sandbox, "time", SimpleNamespace(monotonic=lambda: 100.0))


ORDER = {"limits": [3.0, 30.0]}


def test_a_run_is_sent_and_its_reports_are_answered(clock):
    box = Scripted(("report", 0.5, ["one"]), ("report", 1.0, ["two"]), ended())
    run = Run(box, ORDER, {"a": "b"}, (1, 2))
    assert box.sent == [(ORDER, {"a": "b"}, (1, 2))]
    assert box.deadline == 100.0 + 30.0 + sandbox.PATIENCE
    assert run.next() == ["one"] and run.seconds == 0.5
    assert len(box.sent) == 1  # nothing has been asked before
    assert run.next(4.0) == ["two"] and box.sent[1:] == [([4.0, BUSY * 4.0],)]
    assert box.deadline == 100.0 + BUSY * 4.0 + sandbox.PATIENCE
    assert run.next(4.0, clock=7.0) is None and box.sent[2:] == [([4.0, 7.0],)]
    assert (run.outcome.ending, run.outcome.detail) == ("exited", "exit code 0")
    assert (run.outcome.printed, run.seconds, box.deadline) == ("p", 2.5, float("inf"))
    assert run.next() is None and len(box.sent) == 3


@pytest.mark.parametrize(
    "words, end, expected",
    [
        (["returned"], ended(), ("returned", "", None)),
        (["exited", "exit(3)"], ended(), ("exited", "exit(3)", None)),
        (["raised", "KeyError", "KeyError: 'x'"], ended(), ("raised", "", "'x'")),
        (["raised", "KeyError", "KeyError"], ended(), ("raised", "", "")),
        (["returned"], ended(detail="exit code 1"), ("exited", "exit code 1", None)),
        (["returned"], ended("crashed", "Killed"), ("crashed", "Killed", None)),
        (["raised", "x"], ended(), None),
    ],
)
def test_the_last_words_count_only_if_it_ended_well(words, end, expected):
    """What looks like last words and is none is a report."""
    run = Run(Scripted(("report", 0.5, words), end), ORDER, {}, ())
    found = run.next()
    if expected is None:
        assert found == words
        return
    ending, detail, error = expected
    assert found is None and not run.starved
    assert (run.outcome.ending, run.outcome.detail) == (ending, detail)
    assert run.outcome.printed == "p"
    if error is not None:
        assert (type(run.outcome.error).__name__, str(run.outcome.error)) == (
            "KeyError",
            error,
        )


def test_a_compilers_error_comes_back_as_one():
    words = ["raised", "CompileError", "CompileError: line 3"]
    run = Run(Scripted(("report", 0.5, words), ended()), ORDER, {}, ())
    assert run.next() is None
    assert isinstance(run.outcome.error, CompileError) and str(run.outcome.error) == "line 3"


def test_last_words_are_answered_too(clock):
    box = Scripted(("report", 0.5, ["returned"]), ended())
    assert Run(box, ORDER, {}, ()).next(4.0) is None
    assert box.sent[1:] == [(None,)]  # and its limit was given once


@pytest.mark.parametrize(
    "came",
    [
        None,
        ("report", 0.5, None),
        ("report", 1, ["x"]),
        ("ended", {"ending": "exited"}),
        ("ended", ended()[1] | {"seconds": 1}),
        ("ended", ["exited"]),
    ],
)
def test_what_is_no_message_is_a_crash(came):
    box = Scripted(came)
    run = Run(box, ORDER, {}, ())
    assert run.next() is None
    assert (run.outcome.ending, run.outcome.detail) == ("crashed", UNREADABLE)


def test_only_the_clock_makes_it_starve():
    for ending, starved, shown in (
        ("starved", True, "timed out"),
        ("timed out", False, "timed out"),
    ):
        run = Run(Scripted(ended(ending, "3 s")), ORDER, {}, ())
        assert run.next() is None
        assert (run.starved, run.outcome.ending, run.outcome.detail) == (starved, shown, "3 s")


def test_to_stop_it_takes_all_that_still_comes(clock):
    box = Scripted(("report", 0.5, ["one"]), ("report", 1.0, ["two"]), ended("starved", "0 s"))
    run = Run(box, ORDER, {}, ())
    run.stop()
    assert not box.messages and not run.starved and run.outcome.ending == "timed out"
    assert box.sent[1:] == [([0.0, 0.0],)] * 2
    run.stop()  # once more does nothing
    assert len(box.sent) == 3


READY = "printf '\\0\\0\\0\\5ready'; exec cat > /dev/null"
ECHOES = READY.removesuffix(" > /dev/null")


@pytest.fixture
def python(monkeypatch, tmp_path):
    """Runs shell commands instead of the controller. `$seen` is a folder for their notes."""

    def does(commands: str):
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\nseen={shlex.quote(str(tmp_path))}\n{commands}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sandbox.sys, "executable", str(script))

    return does


def test_it_starts_in_a_folder_of_its_own_and_leaves_nothing(python, tmp_path):
    python(f'pwd > "$seen/pwd"; echo "$@" > "$seen/words"; env > "$seen/env"; {READY}')
    before = open_files()
    box = Sandbox(Limits(memory=8 * GB, disk=3 * GB, sandboxed=False), Reported())
    assert box.alive and not box.reason and box.deadline == float("inf")
    folder = (tmp_path / "pwd").read_text().strip()
    assert os.path.basename(folder).startswith("grade-") and os.path.isdir(folder)
    assert os.getsid(box._process.pid) == box._process.pid
    assert (tmp_path / "words").read_text().split()[:2] == ["-P", "-c"]
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    resources = json.loads(seen["LESSONS_GRADE_LIMITS"])
    assert resources == {
        "RLIMIT_DATA": 6 * GB,
        "RLIMIT_FSIZE": 3 * GB,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_CORE": 0,
    }
    assert {type(limit) for limit in resources.values()} == {int}  # as the system wants them
    assert seen["HOME"] == folder
    box.close()
    assert box.reason == "it was closed" and not os.path.exists(folder)
    assert open_files() <= before and box._process.poll() is not None


def test_orders_go_in_and_replies_come_out(python):
    python(ECHOES)
    box = Sandbox(Limits(sandboxed=False), Reported())
    box._orders.send_bytes(b"an order")
    assert box._next_message() == b"an order"
    box.close()


@pytest.mark.parametrize("counts", [True, False])
def test_in_a_sandbox_it_is_put_into_a_scope_and_then_into_bubblewrap(
    python, monkeypatch, tmp_path, counts
):
    python(f'env > "$seen/env"; {READY}')
    asked = {}

    @contextlib.contextmanager
    def command_line(disk, unseen):
        asked["mounts"] = disk, unseen
        yield ["env", "INNER=$OUTER"], ()

    def in_scope(memory, tasks):
        asked["scope"] = memory, tasks
        return ["env", "OUTER=1"]

    monkeypatch.setattr(confinement, "command_line", command_line)
    monkeypatch.setattr(confinement, "in_scope", in_scope)
    monkeypatch.setattr(sandbox, "_counts_tasks_by_user_namespace", lambda: counts)
    box = Sandbox(
        Limits(4 * GB, disk=GB, memory=2 * GB, processes=7, unseen=("x",)), Reported()
    )
    box.close()
    assert asked == {"mounts": (GB, ("x",)), "scope": (3 * GB, 7)}
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert (seen["OUTER"], seen["INNER"], seen["HOME"]) == ("1", "$OUTER", confinement.SCRATCH)
    limits = json.loads(seen["LESSONS_GRADE_LIMITS"])
    assert limits.get("RLIMIT_NPROC") == (28 if counts else None)


def test_what_it_said_when_it_could_not_be_started_is_told(python):
    before = open_files()
    python("printf 'x%.0s' $(seq 600) >&2; printf '\\377 no room \\n' >&2; exit 3")
    with pytest.raises(RuntimeError) as caught:
        Sandbox(Limits(sandboxed=False), Reported())
    words = "The sandbox could not be started: " + "x" * 490 + "\ufffd no room"
    assert str(caught.value) in (words, words.replace("x" * 490, "x" * 491))
    assert open_files() <= before


def test_one_that_says_something_else_is_none(python):
    python("printf '\\0\\0\\0\\5reedy'; exec cat > /dev/null")
    with pytest.raises(RuntimeError, match="The sandbox could not be started: $"):
        Sandbox(Limits(sandboxed=False), Reported())


def test_the_watcher_ends_it(python, monkeypatch, tmp_path):
    # they would end by themselves, so that a fault here ends too
    python(f"(sleep 20; touch $seen/end) & {READY.replace('cat', 'sleep 20')}")
    box = Sandbox(Limits(sandboxed=False), Reported())
    family = usage.tree(box._process.pid)
    assert family  # what it has started
    monkeypatch.setattr(box, "_too_much", lambda: "enough")
    assert box.receive() is None and box.reason == "enough" and not box.alive
    for process in family:
        process.wait()
    assert not (tmp_path / "end").exists()
    box.close()
    assert box.reason == "enough"


def test_its_end_is_waited_for(box):
    box.end("enough")
    assert (box._process.killed, box._process.waited) == (1, 1)


def test_what_is_missing_for_a_sandbox_is_asked_here():
    assert sandbox.missing() == confinement.missing()


def test_what_a_notebook_may_take_if_nothing_else_is_said():
    usual = Limits()
    assert (usual.cell_seconds, usual.notebook_seconds) == (60.0, 600.0)
    assert (usual.memory, usual.disk, usual.output) == (4 * GB, GB, 10 << 20)
    assert (usual.processes, usual.sandboxed, usual.unseen) == (64, True, ())


def test_one_that_does_not_get_ready_in_time_is_given_up(python, monkeypatch):
    python("exec sleep 20")  # it would end by itself, so that a fault here ends too
    monkeypatch.setattr(sandbox, "START_LIMIT", float("-inf"))
    with pytest.raises(RuntimeError, match="not be started: it did not react any more$"):
        Sandbox(Limits(sandboxed=False), Reported())
