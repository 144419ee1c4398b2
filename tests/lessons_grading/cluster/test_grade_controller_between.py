"""What the first process of a sandbox does before a run and after it: it limits itself, puts
the course's files in place, and ends and deletes what a run has left.
"""

import errno
import json
import os
import signal
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from controlled import RUN, START, Exited, Judge, system  # noqa: F401
from lessons_grading import controller
from lessons_grading.controller import ENDED

ME, FIRST = 50, 1  # the process as a plain one, and as a sandbox's first
FOLDERS = ["kernels", "lessons_exercises", "paged_attention"]
TICK = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def course(system):
    """The folders of the course that a sandbox has, each with an old file. We are its first
    process.
    """
    system.pid = FIRST
    for folder in FOLDERS:
        (controller.ROOT / folder).mkdir(parents=True)
        (controller.ROOT / folder / "old").touch()
    return controller.ROOT


def content(folder) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def judge(system, monkeypatch):
    """The judge's ends of the pipes, and what the controller did, in order, as its `log`."""
    orders, ours = Pipe(duplex=False)
    theirs, replies = Pipe(duplex=False)
    system.descriptors = {0: orders.fileno(), 1: replies.fileno()}
    log = []

    class Run:
        def __init__(self, order, orders, replies):
            self.order = order
            replies.send_bytes(b"from a run")

        def follow(self):
            log.append(f"runs {self.order['function']}")
            return {"ending": "exited"}

    def place(orders):
        log.append(f"places {orders.recv_bytes().decode()}")

    monkeypatch.setenv("LESSONS_GRADE_FOLDER", "/scratch")
    monkeypatch.setattr(controller, "_Run", Run)
    monkeypatch.setattr(controller, "_place", place)
    monkeypatch.setattr(controller, "_protect", lambda: log.append("protects itself"))
    monkeypatch.setattr(controller, "_clear", lambda folder: log.append(f"clears {folder}"))
    monkeypatch.setattr(controller, "_end_what_is_left", lambda: log.append("ends the rest"))
    monkeypatch.setattr(controller.importlib, "import_module", log.append)
    monkeypatch.setattr(controller.gc, "freeze", lambda: log.append("freezes"))
    yield SimpleNamespace(orders=ours, replies=theirs, log=log)
    for end in (orders, ours, theirs, replies):
        end.close()


def serve(judge, *orders: dict):
    """Whatever the judge has sent is served, then the judge is gone."""
    for order in orders:
        judge.orders.send_bytes(json.dumps(order).encode())
        judge.orders.send_bytes(b"files")
    judge.orders.close()
    controller.serve()
    while judge.replies.poll():
        yield judge.replies.recv_bytes()


def test_it_gets_ready_once_and_then_takes_orders(system, judge):
    orders = [
        {"function": "build", "clean": False},
        {"function": "observe", "clean": True},
    ]
    assert list(serve(judge, *orders)) == [
        b"ready",
        b"from a run",
        ENDED + b'{"ending": "exited"}',
        b"from a run",
        ENDED + b'{"ending": "exited"}',
    ]
    begin, imported = judge.log.index("freezes"), judge.log[1 : judge.log.index("freezes")]
    assert judge.log[0] == "protects itself"
    assert {"torch", "lessons_grading.worker"} <= set(imported)
    assert judge.log[begin + 1 :] == [
        *("places files", "runs build", "ends the rest"),
        *("clears /scratch", "places files", "runs observe", "ends the rest"),
    ]


def test_its_own_descriptors_lead_nowhere(system, judge):
    list(serve(judge))
    assert system.joined == dict.fromkeys((0, 1, 2), os.devnull)


def test_it_is_ready_only_when_all_is_imported(system, judge, monkeypatch):
    def freeze():
        assert not judge.replies.poll()
        judge.log.append("freezes")

    monkeypatch.setattr(controller.gc, "freeze", freeze)
    assert list(serve(judge)) == [b"ready"] and judge.log[-1] == "freezes"


def test_it_limits_itself_and_all_that_it_will_start(system, monkeypatch):
    limits = {"RLIMIT_DATA": 7, "RLIMIT_CORE": 13, "RLIMIT_NOFILE": 0}
    monkeypatch.setenv("LESSONS_GRADE_LIMITS", json.dumps(limits))
    controller._protect()
    assert system.limits == {"data": (7, 7), "files": (0, 0)}  # 13 is too much here
    assert "LESSONS_GRADE_LIMITS" not in os.environ
    assert system.niceness == 10
    assert system.handlers == {signal.SIGINT: signal.SIG_DFL}
    # prctl(2): killed with its parent; not dumpable; a parent of orphans
    assert system.asked == {1: signal.SIGKILL, 4: 0, 36: 1}


def place(files: bytes, system):
    system.is_run = True  # the helper
    with pytest.raises(Exited):
        controller._place(Judge(system, files))
    return system.exits[0]


def test_the_files_of_a_run_replace_those_of_the_course(system, course):
    files = {
        "kernels/new.h": "// ü\r\n",
        "kernels/a/b/c.h": "c",
        "kernels/a/b/d.h": "d",
        "paged_attention/e.py": "e",
        "paged_attention_too/f.py": "f",
        "lessons_grading/judge.py": "g",
    }
    (course / "lessons_grading").mkdir()
    assert place(json.dumps(files).encode(), system) == 0
    assert content(course) == dict(list(files.items())[:4])
    assert all((course / folder).is_dir() for folder in FOLDERS)


def test_without_a_sandbox_the_course_stays_as_it_is(system, course):
    system.pid = ME
    assert place(b'{"kernels/new.h": "n"}', system) == 0
    assert content(course) == {f"{folder}/old": "" for folder in FOLDERS}


def test_files_that_cannot_be_put_in_place_are_told_by_an_exit_code(system, course):
    (course / "kernels" / "old").unlink()
    (course / "kernels").rmdir()
    (course / "kernels").touch()
    assert place(b'{"kernels/new.h": "n"}', system) == 1 and len(system.exits) == 1


def test_the_files_are_not_read_by_the_process_that_runs_are_copied_from(system, course):
    judge = Judge(system, b"{}")
    controller._place(judge)
    assert judge.answers and system.exits == []
    assert RUN not in system.parents  # it was waited for
    assert system.invalidated == 1


def test_a_sandbox_that_cannot_be_cleaned_ends(system, course):
    system.helper_code = 1 << 8
    with pytest.raises(Exited):
        controller._place(Judge(system, b"{}"))
    assert system.exits == [1]


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A folder in which a run may write. The sandbox has put nothing there."""
    monkeypatch.setattr(controller, "_mounts", lambda: [])
    folder = tmp_path / "left"
    folder.mkdir()
    return folder


def test_everything_that_is_left_is_deleted_but_not_what_it_points_to(
    system, left, tmp_path, monkeypatch
):
    # No program is started for a link: there may be very many.
    monkeypatch.setattr(controller, "subprocess", None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (left / "a" / "b").mkdir(parents=True)
    (left / "a" / "b" / "file").touch()
    (left / "file").touch()
    (left / "link to a file").symlink_to(elsewhere / "kept")
    (left / "link to a folder").symlink_to(elsewhere)
    (left / "link to nothing").symlink_to(left / "gone")
    controller._clear(left)
    assert not list(left.iterdir()) and (elsewhere / "kept").exists()


def test_what_the_sandbox_itself_has_put_there_stays(system, left, monkeypatch):
    mounts = [f"{left}/b", f"{left}/c/deep/mount", "/"]
    monkeypatch.setattr(controller, "_mounts", lambda: mounts)
    for folder in (
        "a",
        "b",
        "c/deep/mount",
        "c/other",
        "c/deep/mounted",
        "cc/deep/mount",
        "d",
    ):
        (left / folder).mkdir(parents=True)
        (left / folder / "file").touch()
    controller._clear(str(left))
    assert set(content(left)) == {"b/file", "c/deep/mount/file"}
    assert {path.name for path in left.iterdir()} == {"b", "c"}
    assert [path.name for path in (left / "c" / "deep").iterdir()] == ["mount"]


@pytest.mark.parametrize(
    "error",
    [RecursionError(), OSError(errno.EMFILE, "too many open files")],
    ids=["recursion", "open files"],
)
def test_folders_too_deep_for_a_plain_deletion_go_too(system, left, monkeypatch, error):
    def rmtree(folder, **how):
        raise error

    monkeypatch.setattr(controller, "shutil", SimpleNamespace(rmtree=rmtree))
    for name in ("a", "b b"):
        (left / name / "deep").mkdir(parents=True)
    controller._clear(left)
    assert not list(left.iterdir())


def test_mounts_are_read_as_the_system_writes_them(system):
    (system.proc / "self").mkdir(parents=True)
    (system.proc / "self" / "mountinfo").write_text(
        "22 27 0:20 / / rw - ext4 /dev/root rw\n"
        "23 27 0:21 /x /a\\040b\\134c rw,nosuid shared:7 - tmpfs tmpfs rw,size=4k\n"
    )
    assert controller._mounts() == ["/", "/a b\\c"]


def test_without_a_list_of_mounts_there_are_none(system):
    assert controller._mounts() == []


@pytest.mark.parametrize(
    "pid, folders", [(ME, ["/x"]), (2, ["/x"]), (FIRST, ["/x", "/tmp", "/dev/shm"])]
)
def test_a_sandbox_clears_its_temporary_folders_others_only_their_own(
    system, monkeypatch, pid, folders
):
    monkeypatch.setenv("LESSONS_GRADE_FOLDER", "/x")
    system.pid = pid
    assert controller._writable() == folders


def pids(processes) -> list[int]:
    return sorted(process.pid for process in processes)


def test_in_a_sandbox_all_processes_but_the_first_are_of_runs(system):
    system.pid, system.parents = FIRST, {1: 0, 2: 1, 3: 2}
    assert pids(controller._of_runs()) == [2, 3]


def test_a_plain_process_counts_only_what_descends_from_it(system):
    system.parents = {1: 0, 2: 1, 51: ME, 52: 51, 53: 52, 54: 2}
    assert pids(controller._of_runs()) == [51, 52, 53]


def test_everything_that_a_run_has_started_is_ended_and_nothing_else(system):
    system.parents = {1: 0, 2: 1, 51: ME, 52: 51, 53: 52, 54: 2}
    controller._end_what_is_left()
    assert system.parents == {1: 0, 2: 1, 54: 2} and not system.codes and not system.exits


def test_in_a_sandbox_all_are_ended_at_once_so_that_none_starts_another(system):
    system.pid, system.parents = FIRST, {1: 0, 2: 1, 3: 2, 4: 1}
    system.bombs = {2, 3, 4}
    controller._end_what_is_left()
    assert system.parents == {1: 0} and not system.exits


def test_processes_that_have_ended_already_cost_no_time(system):
    system.parents, system.codes = {51: ME, 52: ME, 53: ME}, {51: 0, 52: 1, 53: 0}
    controller._end_what_is_left()
    assert system.now == START and not system.parents


def test_a_process_that_ends_by_itself_meanwhile_is_no_error(system, monkeypatch):
    system.parents = {51: ME, 52: ME}
    processes = system.processes()
    del system.parents[51]
    looks = iter([processes, []])
    monkeypatch.setattr(controller, "_of_runs", lambda: next(looks))
    controller._end_what_is_left()
    assert not system.parents


def test_if_they_start_faster_than_they_can_be_ended_the_sandbox_ends(system):
    system.parents, system.bombs = {51: ME}, {51}
    with pytest.raises(Exited):
        controller._end_what_is_left()
    assert system.exits == [1] and system.now == pytest.approx(START + 1.0)


def stat(state: str, *ticks: int, name: bytes = b"python") -> bytes:
    """A line as in proc(5): 10 numbers come between the state and the times."""
    numbers = [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, *ticks, 20000]
    return b"51 (%s) %s %s" % (name, state.encode(), " ".join(map(str, numbers)).encode())


def add(system, pid: int, line: bytes, *threads: bytes):
    system.parents[pid] = ME
    files = {f"task/{pid + number}/stat": text for number, text in enumerate(threads)}
    for place, text in {"stat": line, **files}.items():
        path = system.proc / str(pid) / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


SLEEPS, WORKS, ON_DISK = stat("S", 0, 0, 0, 0), stat("R", 0, 0, 0, 0), stat("D", 0, 0, 0, 0)


def test_the_seconds_of_all_runs_count_in_all_ways_that_the_system_counts(system):
    add(system, 51, stat("S", 1, 20, 300, 4000), SLEEPS)
    add(system, 52, stat("S", 50000, 0, 0, 0), SLEEPS)
    assert controller._observe() == (pytest.approx(8.5 + 54321 * TICK), False)


@pytest.mark.parametrize(
    "threads, is_awake",
    [
        ([[SLEEPS]], False),
        ([[WORKS]], True),
        ([[SLEEPS, WORKS, SLEEPS]], True),
        ([[WORKS], [SLEEPS]], True),
        ([[SLEEPS], [WORKS]], True),
        ([[ON_DISK]], False),  # a process that waits for its child in vfork looks like this
        ([], False),
    ],
    ids=["asleep", "at work", "one thread", "the first", "the last", "disk", "none"],
)
def test_runs_are_awake_if_any_thread_works(system, threads, is_awake):
    for number, each in enumerate(threads):
        add(system, 100 + 10 * number, SLEEPS, *each)
    assert controller._observe() == (8.5, is_awake)


@pytest.mark.parametrize("name", [b"a) R 1 2 (b", b"\xff\xfe", b"two words"])
def test_the_name_of_a_process_may_hold_anything(system, name):
    line = stat("S", 1, 1, 1, 1, name=name)
    add(system, 51, line, line)
    assert controller._observe() == (8.5 + 4 * TICK, False)


def test_a_process_that_has_just_ended_is_left_out(system):
    system.parents[51] = ME
    add(system, 52, stat("S", 1, 1, 1, 1), WORKS)
    assert controller._observe() == (pytest.approx(8.5 + 4 * TICK), True)
