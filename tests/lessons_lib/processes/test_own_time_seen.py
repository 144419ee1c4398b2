"""What is read about sessions and threads in the folder /proc, here one that a test made."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lessons_processes import own_time
from lessons_processes.own_time import Stopwatch

TICK = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def system(monkeypatch, tmp_path):
    """`system.sessions`: of each process. `system.put(place, ...)`: fills /proc."""
    system = SimpleNamespace(sessions={})

    def put(place: str, state: str = "S", name: bytes = b"(python)", **ticks: int):
        """ticks: `user` and `kernel`, and of ended children `user_ended`, `kernel_ended`."""
        before = [b"%d" % (1_000_000 * 10**number) for number in range(1, 11)]
        of_it = [
            b"%d" % ticks.get(kind, 0)
            for kind in ("user", "kernel", "user_ended", "kernel_ended")
        ]
        fields = [b"12", name, state.encode(), *before, *of_it, b"20000000", b"0"]
        file = tmp_path / "proc" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b" ".join(fields) + b"\n")

    def getsid(process: int) -> int:
        if process not in system.sessions:
            raise ProcessLookupError
        return system.sessions[process]

    system.put, system.folder = put, tmp_path / "proc"
    monkeypatch.setattr(own_time, "Path", lambda name: Path(f"{tmp_path}{name}"))
    monkeypatch.setattr(
        own_time,
        "os",
        SimpleNamespace(listdir=lambda name: os.listdir(f"{tmp_path}{name}"), getsid=getsid),
    )
    put("self/stat")
    return system


def test_a_session_has_worked_as_long_as_its_processes_and_their_ended_children(system):
    system.sessions = {5: 5, 6: 5, 7: 8}
    system.put("5/stat", user=1, kernel=20, user_ended=300, kernel_ended=4_000)
    system.put("5/task/5/stat")
    system.put("6/stat", user=50_000)
    system.put("6/task/6/stat")
    system.put("7/stat", user=600_000)
    system.put("7/task/7/stat", "R")
    system.put("9/stat", user=600_000)  # it has just ended
    worked, is_awake = own_time.observe_session(5)
    assert worked == pytest.approx(54_321 * TICK) and not is_awake


@pytest.mark.parametrize(
    "states, is_awake",
    [("S", False), ("R", True), ("D", True), ("SRS", True), ("RS", True), ("SZT", False)],
)
def test_a_session_is_awake_if_one_of_its_threads_is(system, states, is_awake):
    system.sessions = {5: 5, 6: 5}
    for process in (5, 6):
        system.put(f"{process}/stat")
    for thread, state in enumerate(states, 5):
        system.put(f"5/task/{thread}/stat", state)
    system.put("6/task/6/stat")
    assert own_time.observe_session(5)[1] is is_awake


def test_an_empty_session_has_not_worked(system):
    assert own_time.observe_session(5) == (0.0, False)


def test_where_there_is_no_such_folder_nothing_is_seen(system):
    (system.folder / "self/stat").unlink()
    assert own_time.observe_session(5) is None and own_time.observe_thread(5) is None


@pytest.mark.parametrize("state, is_awake", [("S", False), ("R", True), ("D", True)])
def test_a_thread_has_its_own_work_only(system, state, is_awake):
    system.put(
        "self/task/5/stat", state, user=1, kernel=20, user_ended=300, kernel_ended=4_000
    )
    worked, awake = own_time.observe_thread(5)
    assert worked == pytest.approx(21 * TICK) and awake is is_awake


@pytest.mark.usefixtures("plain_locale")
@pytest.mark.parametrize("name", [b"(a ) R 1)", b"(\xc3\xa9)", b"(\xff)"])
def test_a_process_may_have_any_name(system, name):
    system.put("self/task/5/stat", name=name, user=1)
    worked, is_awake = own_time.observe_thread(5)
    assert worked == pytest.approx(TICK) and not is_awake


@pytest.mark.parametrize(
    "text, own", [("7000000000 4000000000 300\n", 60), ("7000000000\n", 64), (None, 64)]
)
def test_the_own_clock_leaves_out_waiting_for_a_processor(monkeypatch, system, text, own):
    monkeypatch.setattr(own_time, "time", SimpleNamespace(monotonic=lambda: 64.0))
    if text is not None:
        (system.folder / "self/schedstat").write_text(text)
    assert own_time.own_clock() == own


def test_the_own_clock_counts_nanoseconds(monkeypatch, system):
    monkeypatch.setattr(own_time, "time", SimpleNamespace(monotonic=lambda: 1e9))
    (system.folder / "self/schedstat").write_text("0 1000000000000000000 0\n")
    assert own_time.own_clock() == 0


class Run:
    """A clock, and what it is seen to have worked since."""

    def __init__(self, seen, **every):
        self.now, self.seen = 100.0, seen
        self.stopwatch = Stopwatch(lambda: self.seen, clock=lambda: self.now, **every)

    def look_after(self, seconds: float, seen) -> float:
        self.now, self.seen = self.now + seconds, seen
        return self.stopwatch.look()


def test_a_look_is_due_after_half_of_a_tenth_of_a_second():
    run = Run((7.0, False))
    assert run.look_after(0.046, (7.0, False)) == 0
    assert run.look_after(0.005, (7.0, False)) == pytest.approx(0.051)


def test_a_run_that_cannot_be_seen_at_first_has_not_worked():
    run = Run(None)
    assert run.stopwatch.seconds == 0
    assert run.look_after(1.0, (0.5, True)) == pytest.approx(0.5)


def test_what_the_clock_says_adds_up_where_nothing_is_seen():
    run = Run(None)
    assert [run.look_after(1.0, None) for _ in range(3)] == [1, 2, 3]
    assert run.look_after(1.0, (0.25, True)) == 3.25


def test_work_that_was_counted_counts_no_second_time():
    run = Run((0.0, True), every=0.1)
    assert run.look_after(0.1, (0.05, True)) == pytest.approx(0.05)
    assert run.look_after(0.1, (0.05, True)) == pytest.approx(0.05)


def test_two_time_slices_may_be_counted_late_and_no_more():
    """After a second with ten seconds of work, two ticks of the rest count in the next."""
    run = Run((0.0, True), every=0.1)
    assert run.look_after(1.0, (10.0, True)) == 1
    assert run.look_after(1.0, (10.0, True)) == pytest.approx(1 + 2 * TICK)


@pytest.mark.parametrize("every, most", [(0.5, 1.0), (2.0, 4.0)])
def test_a_sleep_counts_for_two_looks_at_most(every, most):
    run = Run((0.0, True), every=every)
    assert run.look_after(60.0, (0.0, False)) == most


def test_time_that_is_left_out_adds_up():
    run = Run(None)
    run.stopwatch.leave_out(3.0)
    run.stopwatch.leave_out(4.0)
    assert run.look_after(8.0, None) == 1
