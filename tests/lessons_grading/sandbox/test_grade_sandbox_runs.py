"""What a sandbox is told to run, how it is watched, and how much it may report."""

import io
import json
import os
import sys
import threading
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest
from test_grade_sandbox import (  # noqa: F401, three are fixtures
    GB,
    ORDER,
    READY,
    Process,
    Scripted,
    box,
    clock,
    ended,
    message,
    parts,
    python,
)

from graded import open_files
from lessons_grading import confinement, sandbox, usage
from lessons_grading.controller import ENDED
from lessons_grading.sandbox import BUSY, Limits, Reported, Run, Sandbox


def test_a_submission_may_report_64_mb():
    reported = Reported()
    reported.bytes = 64 << 20
    assert not reported.is_too_much()
    reported.bytes += 1
    assert reported.is_too_much()


@pytest.mark.parametrize("count, is_read", [(200_000, True), (200_001, False)])
def test_a_message_may_have_200_000_parts(box, count, is_read):
    data = message(ENDED, parts(count))
    sender = threading.Thread(target=box.theirs.send_bytes, args=(data,))  # more than a pipe
    sender.start()
    assert (box.receive() is not None) == is_read
    sender.join()


def test_of_what_it_said_the_last_500_characters_of_64_kb_are_told(box):
    box._errors = io.BytesIO(b"a" * ((1 << 16) - 1) + b"b" + b"c" * 100)
    assert box._read_errors() == "a" * 499 + "b"


def test_what_it_is_to_run_is_sent(box, clock):
    sent, box._orders = Pipe(duplex=False)
    order = {"function": "f", "limits": [3.0, BUSY * 3.0], "clean": False}
    run = box.run("f", 1, "x", files={"a": "b"}, seconds=3.0)
    received = [json.loads(sent.recv_bytes()) for _ in range(3)]
    assert received == [order | {"output_limit": sys.maxsize}, {"a": "b"}, [1, "x"]]
    assert (run.seconds, run.starved, run.outcome) == (0.0, False, None)
    box.run("f", files={}, seconds=3.0, output_limit=5.0, clean=True)
    assert json.loads(sent.recv_bytes()) == order | {"output_limit": 5.0, "clean": True}
    sent.close()
    box.send({})  # it has ended: `receive` says so
    box._orders.close()


def test_it_counts_as_dead_a_minute_after_its_longest_time(clock):
    given = Scripted(ended())
    Run(given, ORDER, {}, ())
    assert given.deadline == 100.0 + 30.0 + 60.0


@pytest.mark.parametrize("came", [ended(), None])
def test_between_runs_nothing_is_waited_for(came):
    given = Scripted(came)
    assert Run(given, ORDER, {}, ()).next() is None
    assert given.deadline == float("inf")


def test_one_that_is_stopped_has_not_starved(clock):
    run = Run(Scripted(ended("starved", "0 s")), ORDER, {}, ())
    run.stop()
    assert run.starved is False


def test_the_name_of_an_error_has_at_most_100_letters():
    words = ["raised", "x" * 200, "no"]
    run = Run(Scripted(("report", 0.5, words), ended()), ORDER, {}, ())
    assert run.next() is None
    assert type(run.outcome.error).__name__ == "x" * 100


def test_it_is_looked_at_five_times_a_second_until_it_ends(box, monkeypatch):
    looks, pauses = [], []

    def look() -> str:
        looks.append(box.alive)
        assert len(looks) < 4, "it goes on"
        return "enough" if len(looks) == 3 else ""

    monkeypatch.setattr(box, "_too_much", look)
    monkeypatch.setattr(sandbox, "time", SimpleNamespace(sleep=pauses.append))
    box._watch()
    assert looks == [True] * 3 and pauses == [0.2] * 3 and box.reason == "enough"
    box._watch()  # it has ended
    box.alive, box._process.code = True, 0
    box._watch()  # its process has ended
    assert len(looks) == 3


def test_it_may_use_all_of_its_time_and_memory(box, clock, monkeypatch):
    box.deadline = 100.0
    assert box._too_much() == ""
    box.limits = Limits(memory=25 * GB, sandboxed=False)
    monkeypatch.setattr(usage, "tree", lambda pid: [1] * 25)
    for name, value in {"num_threads": 1, "memory": GB, "share": 0}.items():
        monkeypatch.setattr(usage, name, lambda process, value=value: value)
    assert box._too_much() == ""


def test_waiting_for_its_end_has_a_limit(box):
    class Stuck(Process):
        def wait(self, timeout=None):
            assert timeout is not None
            return super().wait(timeout)

    box._process = Stuck()
    assert box._how_it_ended() == "its sandbox ended"


def test_one_that_is_open_has_two_pipes_and_keeps_no_process_alive(python):
    python(READY)
    before, threads = open_files(), set(threading.enumerate())
    opened = Sandbox(Limits(sandboxed=False), Reported())
    assert len(open_files() - before) == 2
    assert all(each.daemon for each in set(threading.enumerate()) - threads)
    opened.close()


def test_bubblewrap_gets_the_descriptors_that_it_needs(
    python,
    monkeypatch,
    tmp_path,
):
    python(f'cat "/dev/fd/$filter" > "$seen/read"; {READY}')
    end, other = os.pipe()
    os.write(other, b"the filter")
    os.close(other)

    class Words:
        def __enter__(self):
            return ["env", f"filter={end}"], (end,)

        def __exit__(self, *_):
            os.close(end)

    monkeypatch.setattr(confinement, "command_line", lambda disk, unseen: Words())
    monkeypatch.setattr(confinement, "in_scope", lambda memory, tasks: [])
    Sandbox(Limits(), Reported()).close()
    assert (tmp_path / "read").read_text() == "the filter"
