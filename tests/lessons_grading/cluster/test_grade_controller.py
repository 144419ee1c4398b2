"""What the first process of a sandbox makes of a run: its output, its reports, its end."""

import fcntl
import io
import os
import signal

import pytest

from controlled import START, Exited, Judge, system  # noqa: F401
from graded import open_files
from lessons_grading import controller
from lessons_grading.controller import LENGTH, REPORT, SECONDS

NO_LIMIT = 1 << 40
CUT = "\n… (cut: too long)"


def start(system, *answers: bytes, seconds=4.0, clock=8.0, output=NO_LIMIT, thinks=0.0):
    """A run whose judge gives these answers. `system.run` is the process."""
    judge = Judge(system, *answers, thinks=thinks)
    order = {"function": "build", "limits": [seconds, clock], "output_limit": output}
    return controller._Run(order, judge, judge), judge


def prints(system, text: bytes, output: int = NO_LIMIT) -> dict:
    run, _ = start(system, output=output)
    system.run.print(text)
    system.run.end()
    return run.follow()


ENDS = {
    0: ("exited", "exit code 0"),
    1 << 8: ("exited", "exit code 1"),
    7 << 8: ("exited", "exit code 7"),
    signal.SIGKILL: ("crashed", "Killed"),
    32: ("crashed", "signal 32"),  # a number without a name
}


@pytest.mark.parametrize("code, ending", ENDS.items())
def test_how_a_run_ends_is_told(system, code, ending):
    run, _ = start(system)
    system.run.print(b"text")
    system.watch.seconds = 1.25
    system.run.end(code)
    assert run.follow() == {
        "ending": ending[0],
        "detail": ending[1],
        "printed": "text",
        "seconds": 1.25,
    }


def test_nothing_stays_open(system):
    before = open_files()
    run, _ = start(system)
    system.run.close()
    system.run.end()
    run.follow()
    assert open_files() <= before


def test_the_end_of_a_run_is_not_that_of_an_orphan_that_it_has_left(system):
    system.parents |= {60: system.pid, 61: system.pid}
    run, _ = start(system)
    system.parents[62] = system.pid
    for pid, code in {60: 0, 61: 5 << 8, 62: 6 << 8}.items():
        system.end(pid, code)
    system.script = [lambda: None, lambda: system.run.end(2 << 8)]
    assert run.follow()["detail"] == "exit code 2"
    assert not system.parents  # and no ended process is left either


def test_what_has_ended_is_not_waited_for(system):
    run, _ = start(system)
    system.script = [lambda: system.run.end()]
    run.follow()
    assert system.now == START + 0.1


@pytest.mark.parametrize(
    "text, printed",
    [
        (b"x" * 2000, "x" * 2000),
        (b"x" * 2001, "x" * 2000 + CUT),
        (b"\xff!", "\ufffd!"),
        (b"", ""),
    ],
    ids=["all", "too long", "no UTF-8", "nothing"],
)
def test_the_start_of_its_output_is_kept(system, text, printed):
    assert prints(system, text)["printed"] == printed


def test_output_in_parts_is_counted_and_kept_in_order(system):
    run, _ = start(system, output=3002)
    system.script = [
        lambda: system.run.print(b"a" * 1000),
        lambda: system.run.print(b"b" * 1001),
        lambda: system.run.print(b"c" * 1001),
        lambda: system.run.end(),
    ]
    ended = run.follow()
    assert ended["printed"] == "a" * 1000 + "b" * 1000 + CUT and ended["ending"] == "exited"


@pytest.mark.parametrize("size, ending", [(10, "exited"), (11, "flooded")])
def test_it_may_print_up_to_its_limit(system, size, ending):
    ended = prints(system, b"x" * size, output=10)
    assert ended["ending"] == ending and ended["printed"] == "x" * size
    assert ending == "exited" or ended["detail"] == "10 bytes"


def test_the_limits_are_looked_at_again_after_a_part(system):
    run, _ = start(system)
    fcntl.fcntl(system.run.output, fcntl.F_SETPIPE_SZ, 1 << 18)
    system.run.print(b"x" * (1 << 17))
    assert run._read(0.0) and run.num_printed == 64 * 1024
    assert run._read(0.0) and run.num_printed == 128 * 1024


def test_what_it_printed_and_reported_before_its_end_arrives_in_whatever_parts(
    system, monkeypatch
):
    monkeypatch.setattr(controller, "AT_ONCE", 3)
    run, judge = start(system, b"null")
    system.run.print(b"all of this")
    system.run.report(b"and all of that")
    system.run.end()
    assert run.follow()["printed"] == "all of this"
    assert [message[1 + SECONDS.size :] for message in judge.got] == [b"and all of that"]


def test_a_pipe_that_the_run_has_read_empty_holds_nothing_up(system):
    run, _ = start(system)
    system.drained = {run.reports}
    system.run.print(b"said")
    assert run._read(0.0) and run.printed == b"said"
    assert not run._read(0.0)


def test_a_run_may_close_what_it_reports_and_prints_to(system):
    run, _ = start(system)
    system.script = [
        system.run.close,
        lambda: None,
        lambda: None,
        lambda: system.run.end(3 << 8),
    ]
    assert run.follow()["detail"] == "exit code 3"
    assert system.now == pytest.approx(START + 0.4)  # it does not spin


def test_reports_go_to_the_judge_as_they_are_with_the_own_seconds(system):
    run, judge = start(system, b"null", b"null", b"null")
    system.watch.seconds = 2.5
    system.run.report(b"first")
    system.run.report(b"")
    system.run.report(b"third")
    system.script = [lambda: system.run.end()]
    ended = run.follow()
    begin = REPORT + SECONDS.pack(2.5)
    assert judge.got == [begin + b"first", begin, begin + b"third"]
    assert ended["ending"] == "exited"
    assert system.now == START + 0.1  # it does not wait while there are reports


def test_a_report_may_come_in_parts(system):
    run, judge = start(system, b"null")
    whole = LENGTH.pack(10) + b"0123456789"
    system.script = [
        *(
            lambda part=part: os.write(system.run.reports, part)
            for part in (whole[:3], whole[3:4], whole[4:9], whole[9:])
        ),
        lambda: system.run.end(),
    ]
    run.follow()
    assert [message[1 + SECONDS.size :] for message in judge.got] == [b"0123456789"]
    assert system.now == pytest.approx(START + 0.5)


def test_an_empty_report_is_one_too(system):
    run, judge = start(system, b"null")
    system.run.report(b"")
    system.run.end()
    run.follow()
    assert judge.got == [REPORT + SECONDS.pack(0.5)]


def test_a_report_without_its_end_goes_nowhere(system):
    run, judge = start(system)
    os.write(system.run.reports, LENGTH.pack(10) + b"012345678")
    system.run.end()
    assert run.follow()["ending"] == "exited" and not judge.got


def test_a_run_is_told_that_its_report_was_read(system):
    run, _ = start(system, b"null")
    os.set_blocking(system.run.answers, False)
    told = []
    system.run.report(b"x")
    system.script = [
        lambda: told.append(os.read(system.run.answers, 9)),
        lambda: system.run.end(),
    ]
    run.follow()
    assert told == [b"\n"]


def test_a_run_that_takes_no_answers_goes_on(system):
    run, judge = start(system, b"null", b"null")
    os.close(system.run.answers)
    system.run.answers = os.dup(system.run.output)
    system.run.report(b"x")
    system.run.report(b"y")
    system.run.end()
    assert run.follow()["ending"] == "exited" and len(judge.got) == 2


@pytest.mark.parametrize("size, ending", [(104, "timed out"), (105, "exited")])
def test_a_report_has_a_largest_size(system, monkeypatch, size, ending):
    assert controller.LARGEST_MESSAGE == 16 * 1024 * 1024
    monkeypatch.setattr(controller, "LARGEST_MESSAGE", 100)
    run, _ = start(system)
    os.write(system.run.reports, b"\xff" * size)

    def pass_time():
        system.watch.seconds = 9.0

    system.script = [pass_time]
    ended = run.follow()
    assert ended["ending"] == ending
    assert ending == "timed out" or ended["detail"] == "with a message that is too long"


def sets(thing, name, value):
    return lambda: setattr(thing, name, value)


def test_it_may_take_its_own_seconds_and_no_more(system):
    run, _ = start(system, seconds=4.0, clock=100.0)
    system.script = [
        sets(system.watch, "seconds", 4.5),  # of which 0.5 were before it began
        sets(system.watch, "seconds", 4.75),
    ]
    ended = run.follow()
    assert (ended["ending"], ended["detail"]) == ("timed out", "4 s")
    assert not system.script and ended["seconds"] == 4.75


def test_it_may_take_its_seconds_by_the_clock_and_no_more(system):
    run, _ = start(system, seconds=4.0, clock=8.5)
    system.script = [
        sets(system, "now", START + 8.5),
        sets(system, "now", START + 8.75),
    ]
    ended = run.follow()
    assert (ended["ending"], ended["detail"]) == ("starved", "8.5 s by the clock")
    assert not system.script


def test_its_time_is_looked_at_ten_times_a_second(system):
    run, _ = start(system)
    system.script = [lambda: None] * 9 + [lambda: system.run.end()]
    run.follow()
    assert system.now == pytest.approx(START + 1.0)


def test_the_time_that_the_judge_takes_is_not_the_runs(system):
    run, _ = start(system, b"null", b"null", clock=8.0, thinks=100.0)
    system.run.report(b"x")
    system.run.report(b"y")
    system.script = [
        sets(system, "now", START + 208.0),
        sets(system, "now", START + 208.25),
    ]
    assert run.follow()["ending"] == "starved" and not system.script
    assert system.watch.left_out == 200.0


def test_the_judges_answer_may_set_new_limits(system):
    run, _ = start(system, b"[2.0, 300.0]", b"null", seconds=4.0, clock=8.0, thinks=16.0)
    system.watch.seconds = 3.0
    system.run.report(b"x")
    system.run.report(b"y")
    system.script = [
        sets(system, "now", START + 300.0),
        sets(system.watch, "seconds", 5.0),
        sets(system.watch, "seconds", 5.25),
    ]
    ended = run.follow()
    assert (ended["ending"], ended["detail"]) == ("timed out", "2 s")
    assert not system.script


def test_without_a_judge_everything_ends(system):
    before = open_files()
    run, judge = start(system)
    system.run.report(b"x")
    system.run.close()
    with pytest.raises(SystemExit):
        run.follow()
    assert len(judge.got) == 1 and open_files() <= before


def test_a_new_process_becomes_the_run(system, monkeypatch):
    became = []

    def be_the_run(*arguments):
        became.extend(arguments)
        raise Exited

    monkeypatch.setattr(controller, "_be_the_run", be_the_run)
    system.is_run = True
    with pytest.raises(Exited):
        start(system)
    function, judge, *ends = became
    assert function == "build" and isinstance(judge, Judge)
    pipes = list(system.pipes)  # from the run to us, from us to the run, and its output
    assert ends == [pipes[1], pipes[2], pipes[5]]


class Worker:
    """worker.py, whose functions only try their pipes."""

    def __init__(self):
        self.called = None

    def run(self, function, arguments, reports, answers):
        assert isinstance(reports, io.FileIO) and isinstance(answers, io.FileIO)
        reports.write(b"report")
        self.called = function, arguments, answers.readline()


def test_the_run_has_only_its_own_pipes_and_may_be_interrupted(system, monkeypatch):
    worker = Worker()
    monkeypatch.setattr(
        controller.importlib,
        "import_module",
        {"lessons_grading.worker": worker}.get,
    )
    (ours, reports), (answers, theirs), (shown, output) = (os.pipe() for _ in range(3))
    os.write(theirs, b"go on\n")
    with pytest.raises(Exited):
        controller._be_the_run("build", Judge(system, b"[1, 2]"), reports, answers, output)
    assert worker.called == ("build", [1, 2], b"go on\n")
    assert os.read(ours, 99) == b"report"
    assert system.joined == dict.fromkeys((1, 2), os.readlink(f"/proc/self/fd/{output}"))
    assert system.closed == set(range(3, 256)) - {reports, answers}
    assert system.sessions == 1 and system.exits == [1]
    assert system.asked == {4: 1, 1: signal.SIGKILL}  # to be dumpable, and to die with us
    assert system.handlers == {signal.SIGINT: signal.default_int_handler}
    for end in (ours, theirs, shown, output):
        os.close(end)
