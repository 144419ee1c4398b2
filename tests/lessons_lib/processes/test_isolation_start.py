"""How a run gets its process and how that ends, with stand-ins for processes."""

import gc
import importlib.util
import multiprocessing
import os
import pickle
import runpy
import sys
import threading
from multiprocessing import Pipe, forkserver, spawn
from types import ModuleType, SimpleNamespace

import pytest

from lessons_processes import isolation
from lessons_processes.isolation import Outcome

MOST_CALLS = 2_000  # whatever does more of them would never end


class Process:
    """What the forkserver would start, as `isolation._context.Process`."""

    failure = None

    def __init__(self, target=None, args=None, name=None, daemon=None):
        self.target, self.args, self.daemon = target, args, daemon
        self.name = name or "ForkServerProcess-1"
        self.pid, self.done = None, []

    def start(self):
        if self.failure:
            raise self.failure
        self.pid = 77
        self.is_open = [not end.closed for end in self.args]

    def is_alive(self):
        return not self.done

    def kill(self):
        self.done.append("killed")

    def join(self):
        self.done.append("joined")


@pytest.fixture
def family(monkeypatch):
    """left: how many processes a run has left. looks: whose family was looked for."""
    family = SimpleNamespace(left=2, looks=[])

    def kill(pid) -> bool:
        family.looks.append(pid)
        assert len(family.looks) < MOST_CALLS
        family.left -= 1
        return family.left >= 0

    monkeypatch.setattr(isolation.process_family, "kill", kill)
    return family


@pytest.fixture
def processes(monkeypatch, family):
    context = SimpleNamespace(Process=Process, Pipe=Pipe)
    monkeypatch.setattr(isolation, "_context", context)


def test_a_process_waits_at_pipes_of_which_only_it_has_the_other_ends(processes):
    child = isolation._Child()
    assert child.process.target is isolation.one_call.serve
    assert child.process.is_open == [True, True]  # when it started
    assert all(end.closed for end in child.process.args)
    assert child.process.daemon
    child.end()


def test_a_process_waits_for_a_run_from_the_place_where_it_was_started(
    monkeypatch, processes, tmp_path
):
    monkeypatch.setattr(isolation, "_waiting", [child := isolation._Child()])
    assert isolation._take_waiting() is child
    isolation._waiting.append(child)
    monkeypatch.chdir(tmp_path)
    assert isolation._take_waiting() is None and child.process.done == ["killed", "joined"]


def test_a_run_cannot_read_what_it_has_printed(processes):
    child = isolation._Child()
    assert child.output.readable and not child.output.writable
    child.end()


def test_a_process_that_cannot_start_leaves_nothing_open(monkeypatch, processes, family):
    ends = []

    def pipe(**words):
        ends.extend(Pipe(**words))
        return ends[-2:]

    isolation._context.Pipe = pipe
    monkeypatch.setattr(Process, "failure", EOFError())
    with pytest.raises(EOFError):
        isolation._Child()
    assert len(ends) == 4 and all(end.closed for end in ends)
    assert not family.looks


def test_a_process_ends_with_all_that_it_has_left(processes, family):
    child = isolation._Child()
    child.end()
    assert family.looks == [77, 77, 77]
    assert child.process.done == ["killed", "joined"]
    assert child.results.closed and child.output.closed


def test_a_run_that_starts_more_and_more_is_ended_after_a_thousand_rounds(processes, family):
    family.left = MOST_CALLS
    child = isolation._Child()
    child.end()
    assert len(family.looks) == 1_000 and child.process.done == ["killed", "joined"]


@pytest.mark.parametrize("spec", [None, SimpleNamespace(name="a_program.__main__")])
def test_our_processes_do_not_import_the_program_again(monkeypatch, processes, spec):
    main = ModuleType("__main__")
    main.__file__, main.__spec__ = "/a/program.py", spec
    monkeypatch.setitem(sys.modules, "__main__", main)
    ours = spawn.get_preparation_data(isolation._Child().process.name)
    others = spawn.get_preparation_data("of somebody else")
    names = {"init_main_from_name", "init_main_from_path"}
    assert not names & set(ours) and names & set(others)
    assert ours["name"] and others["name"] == "of somebody else"


class Child:
    """A process that waits, as isolation._Child makes them."""

    def __init__(self, place=("here",), alive=True, results=None):
        self.place, self.ended, self.joined = place, 0, []
        self.process = SimpleNamespace(is_alive=lambda: alive, join=self.joined.append)
        self.results = results

    def end(self):
        self.ended += 1


@pytest.fixture
def waiting(monkeypatch):
    """The list of processes that wait, and no thread that starts one."""
    monkeypatch.setattr(isolation, "_waiting", list(isolation._waiting[:0]))
    monkeypatch.setattr(isolation, "_starting", threading.RLock())
    monkeypatch.setattr(isolation, "_starter", None)
    monkeypatch.setattr(isolation, "_Child", Child)
    monkeypatch.setattr(isolation, "_place", lambda: ("here",))
    return isolation._waiting


@pytest.mark.parametrize(
    "place, alive, is_taken",
    [("here", True, True), ("here", False, False), ("there", True, False)],
)
def test_a_process_that_waits_is_taken_if_a_new_one_would_be_like_it(
    waiting, place, alive, is_taken
):
    waiting.append(child := Child((place,), alive))
    assert isolation._take_waiting() is (child if is_taken else None)
    assert not waiting and child.ended == (not is_taken)


def test_where_none_waits_none_is_taken(waiting):
    assert isolation._take_waiting() is None


def test_one_waits_at_most(waiting):
    isolation._start_waiting()
    (child,) = waiting
    isolation._start_waiting()
    assert waiting == [child]


@pytest.mark.parametrize("error", [EOFError, OSError])
def test_a_process_that_cannot_wait_is_no_trouble(monkeypatch, waiting, error):
    def fail():
        raise error

    monkeypatch.setattr(isolation, "_Child", fail)
    isolation._start_waiting()
    assert not waiting


def test_the_next_process_is_started_by_a_thread_and_ended_at_the_end(waiting):
    isolation._start_soon()
    assert isolation._starter.daemon  # it keeps no program from ending
    isolation._starter.join()
    (child,) = waiting
    isolation.end_waiting()
    assert not waiting and child.ended == 1


def test_where_no_thread_can_be_started_the_next_run_starts_its_process(monkeypatch, waiting):
    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    isolation._start_soon()
    assert isolation._starter is None and not waiting
    isolation.end_waiting()


def test_a_process_that_is_still_being_started_is_ended_too(waiting):
    child = Child()
    isolation._starter = SimpleNamespace(join=lambda: waiting.append(child))
    isolation.end_waiting()
    assert not waiting and child.ended == 1


def test_a_fork_leaves_what_waits_to_its_parent(waiting):
    waiting.append(child := Child())
    isolation._starter = SimpleNamespace(join=lambda: pytest.fail("not ours"))
    isolation._starting.acquire()
    isolation._forget_waiting()
    assert is_free(isolation._starting)
    isolation.end_waiting()
    assert not waiting and not child.ended


def is_free(lock) -> bool:
    """Whether another thread could take it."""
    answers = []

    def take():
        answers.append(lock.acquire(blocking=False))
        if answers[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return answers == [True]


def test_at_the_end_of_the_program_nothing_is_started_any_more(waiting):
    waiting.append(child := Child())
    isolation._end_waiting_for_good()
    assert child.ended == 1 and not is_free(isolation._starting)


def test_a_place_is_the_current_folder_and_where_modules_are_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert isolation._place() == (str(tmp_path), *sys.path)
    monkeypatch.setattr(isolation, "os", SimpleNamespace(getcwd=lambda: os.stat("/not there")))
    assert isolation._place() == (None, *sys.path)


@pytest.fixture
def followed(monkeypatch, waiting):
    """What is done for a run, in order. `followed.ending` is how it ends."""
    followed = SimpleNamespace(done=[], ending="returned")

    class Noted(Child):
        def __init__(self):
            super().__init__(results=self)

        def send(self, call):
            followed.done.append(("sent", call))

        def end(self):
            followed.done.append(("ended", self.joined))

    def follow(child, *words):
        followed.done.append(("followed", *words))
        if isinstance(followed.ending, str):
            return Outcome(followed.ending)
        raise followed.ending

    monkeypatch.setattr(isolation, "_Child", Noted)
    monkeypatch.setattr(isolation, "_follow", follow)
    monkeypatch.setattr(isolation, "_start_soon", lambda: followed.done.append("next"))
    return followed


CALL = isolation.Call(b"", 2.0, False, False)


@pytest.mark.parametrize(
    "ending, waits", [("returned", [1.0]), ("raised", []), ("crashed", [])]
)
def test_only_a_run_that_returned_has_a_second_to_end_by_itself(followed, ending, waits):
    followed.ending = ending
    assert isolation._run(CALL, print, 100).ending == ending
    assert followed.done == [
        ("sent", CALL),
        ("followed", 2.0, print, 100),
        ("ended", waits),
        "next",
    ]


def test_a_run_takes_the_process_that_waits(followed, waiting):
    waiting.append(child := isolation._Child())
    child.send = lambda call: followed.done.append("to the one that waits")
    isolation._run(CALL, None, 100)
    assert followed.done[0] == "to the one that waits" and not waiting


def test_a_run_that_fails_is_ended_too(followed):
    followed.ending = EOFError()
    with pytest.raises(EOFError):
        isolation._run(CALL, None, 100)
    assert followed.done[-2:] == [("ended", []), "next"]


@pytest.fixture
def asked(monkeypatch):
    """The calls of isolation._run, and the seconds between them. Raises `failures` first."""
    asked = SimpleNamespace(calls=[], slept=[], failures=[])

    def run(call, on_report, output_limit):
        asked.calls.append((call, on_report, output_limit))
        assert len(asked.calls) < MOST_CALLS
        if asked.failures:
            raise asked.failures.pop()
        return Outcome("returned", 5)

    monkeypatch.setattr(isolation, "_run", run)
    monkeypatch.setattr(isolation, "time", SimpleNamespace(sleep=asked.slept.append))
    return asked


def test_a_run_is_a_function_with_its_arguments_and_ten_seconds(asked):
    assert isolation.run_isolated(divmod, 7, 2).value == 5
    ((call, on_report, output_limit),) = asked.calls
    assert pickle.loads(call.data) == (divmod, (7, 2))
    assert call[1:] == (10.0, False, False)
    assert (on_report, output_limit) == (None, float("inf")) and not asked.slept


def test_a_run_has_what_it_asks_for(asked):
    isolation.run_isolated(
        divmod, 7, 2, time_limit=3.0, report=True, on_report=print, output_limit=9
    )
    ((call, on_report, output_limit),) = asked.calls
    assert call[1:] == (3.0, True, True) and (on_report, output_limit) == (print, 9)


@pytest.mark.parametrize("error", [EOFError, ConnectionError, BrokenPipeError])
def test_a_process_that_did_not_start_is_tried_again(asked, error):
    asked.failures = [error("no forkserver")] * 19
    assert isolation.run_isolated(divmod, 7, 2).value == 5
    assert len(asked.calls) == 20 and asked.slept == [0.2] * 19


def test_after_twenty_attempts_it_is_given_up(asked):
    asked.failures = [EOFError("no forkserver")] * MOST_CALLS
    with pytest.raises(RuntimeError, match=r"in: EOFError\('no forkserver'\). Restart"):
        isolation.run_isolated(divmod, 7, 2)
    assert len(asked.calls) == 20


class Hostile:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize(
    "error, words",
    [
        (ValueError("it has a lock"), "it has a lock"),
        (ValueError("an odd ValueError: "), "an odd ValueError"),
        (SystemExit("it leaves"), "SystemExit: it leaves"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_what_cannot_travel_says_why(asked, error, words):
    with pytest.raises(TypeError) as raised:
        isolation.run_isolated(print, Hostile(error))
    assert str(raised.value) == f"This cannot be sent to another process: {words}"
    assert not asked.calls


def test_the_main_module_is_hidden_for_a_while():
    main = sys.modules["__main__"]
    with pytest.raises(ZeroDivisionError), isolation.without_main_module():
        hidden = sys.modules["__main__"]
        assert (type(hidden), hidden.__name__) == (ModuleType, "__main__")
        assert hidden is not main and not hasattr(hidden, "__file__")
        raise ZeroDivisionError
    assert sys.modules["__main__"] is main


def test_the_forkserver_starts_without_the_main_module(monkeypatch):
    main, seen = sys.modules["__main__"], []
    monkeypatch.setattr(
        forkserver, "ensure_running", lambda: seen.append(sys.modules["__main__"])
    )
    isolation.warm_up()
    (there,) = seen
    assert there is not main and sys.modules["__main__"] is main


def test_an_import_prepares_the_forkserver_and_forks(monkeypatch):
    preloaded, in_forks = [], []
    context = SimpleNamespace(set_forkserver_preload=preloaded.extend)
    kind = {"forkserver": context}
    monkeypatch.setattr(multiprocessing, "get_context", kind.get)
    monkeypatch.setattr(
        os, "register_at_fork", lambda *, after_in_child: in_forks.append(after_in_child)
    )
    monkeypatch.setattr(isolation.atexit, "register", lambda function: function)
    monkeypatch.setattr(spawn, "get_preparation_data", spawn.get_preparation_data)
    spec = importlib.util.spec_from_file_location("another_isolation", isolation.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert {"torch", "lessons_lib.checks", "lessons_processes.frozen"} < set(preloaded)
    assert in_forks == [module._forget_waiting]
    assert not module._waiting and not module._starter and is_free(module._starting)


def test_a_run_does_not_look_for_garbage_in_what_the_server_has_imported(monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    runpy.run_module("lessons_processes.frozen")
    assert frozen == [True]
