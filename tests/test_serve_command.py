"""The command that serves a model: what it starts, in what order, and how it ends."""

import asyncio
import io
import runpy
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.engine.serve import __main__ as command
from paged_attention.engine.serve.settings import LOOPBACK
from serving_here import settle

EVERY_NAME = {*LOOPBACK, "0.0.0.0", "my.example"}


class Loop(asyncio.SelectorEventLoop):
    """Takes handlers of signals, and calls none by itself."""

    def __init__(self):
        super().__init__()
        self.handlers = {}

    def add_signal_handler(self, number, callback, *args):
        self.handlers[number] = callback


class Shown(io.StringIO):
    """Shows what was written as soon as somebody flushes it."""

    shown = ""

    def flush(self):
        self.shown = self.getvalue()


class Parts:
    """Stand-ins for all that the command starts. They note what happens."""

    def __init__(self, monkeypatch, address):
        self.happened, self.given, self.pause = [], {}, 0.0
        self.sockets = [SimpleNamespace(getsockname=lambda: address)]
        self.shown, self.wait = Shown(), asyncio.sleep
        monkeypatch.setattr(sys, "stdout", self.shown)
        monkeypatch.setattr(command, "room_for", lambda connections: connections - 1)
        monkeypatch.setattr(command, "words_of", lambda folder: f"words of {folder}")
        for name in ("bind_sockets", "make_engine", "start", "make_server"):
            monkeypatch.setattr(command, name, getattr(self, name))
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    def note(self, what):
        self.happened.append(what)

    def bind_sockets(self, port, host, backlog):
        self.note(f"listens on {host}:{port} for {backlog}")
        return self.sockets

    def make_engine(self, arguments):
        self.note("loads the model")
        return "the engine"

    def start(self, engine, words, model, limits, hosts, any_address):
        self.given = {"engine": engine, "words": words, "hosts": hosts, "limits": limits}
        self.given["any_address"] = any_address
        return SimpleNamespace(model=model, engine=SimpleNamespace(stop=self.stop))

    def make_server(self, serving):
        async def close_all_connections():
            self.note("closes the connections")

        def add_sockets(sockets):
            assert sockets is self.sockets
            self.note("serves")

        stop = self.stop_listening
        return SimpleNamespace(
            add_sockets=add_sockets, stop=stop, close_all_connections=close_all_connections
        )

    def stop_listening(self):
        self.note("takes no more connections")

    def stop(self):
        assert threading.current_thread() is not threading.main_thread()
        self.note("ends the engine")

    async def sleep(self, seconds):
        if seconds:
            assert 0 < seconds < 1
            self.note("lets the streams hear of it")
        await self.wait(0)


def serve(parts: Parts, *words: str, number=signal.SIGTERM) -> list[list[str]]:
    """What has happened before the signal, and after it."""

    async def run():
        serving = asyncio.create_task(command.serve(command._arguments(words)))
        await settle()
        before, parts.happened = parts.happened, []
        assert not serving.done() and parts.shown.shown.startswith("Serving")
        asyncio.get_running_loop().handlers[number]()
        await serving
        return [before, parts.happened]

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(run())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(monkeypatch, number):
    parts = Parts(monkeypatch, ("127.0.0.1", 4321))
    before, after = serve(parts, "--port", "0", number=number)
    assert before == ["listens on 127.0.0.1:0 for 1024", "loads the model", "serves"]
    assert after == [
        "takes no more connections",
        "ends the engine",
        "lets the streams hear of it",
        "closes the connections",
    ]
    assert parts.shown.shown == f"Serving {SMALL_MODEL.name} on http://127.0.0.1:4321\n"


def test_what_was_asked_for_is_what_the_server_gets(monkeypatch):
    parts = Parts(monkeypatch, ("0.0.0.0", 80))
    options = ["--host", "0.0.0.0", "--allowed-host", "My.Example", "--name", "mine"]
    options += ["--model", "a/folder", "--connections", "8", "--requests", "3"]
    serve(parts, *options, "--body-seconds", "0.5")
    limits = parts.given.pop("limits")
    assert (limits.connections, limits.requests, limits.body_seconds) == (7, 3, 0.5)
    assert parts.given == {
        "engine": "the engine",
        "words": f"words of {Path('a/folder')}",
        "hosts": EVERY_NAME,
        "any_address": True,
    }
    assert parts.shown.shown == "Serving mine on http://0.0.0.0:80\n"


def test_an_ipv6_address_is_in_brackets_and_a_model_has_its_folders_name(monkeypatch):
    parts = Parts(monkeypatch, ("::1", 80, 0, 0))
    serve(parts, "--host", "::1", "--model", "a/folder")
    assert parts.shown.shown == "Serving folder on http://[::1]:80\n"
    assert parts.given["any_address"] is False and parts.given["hosts"] == set(LOOPBACK)


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_what_it_cannot_serve_is_a_sentence(monkeypatch, capsys, kind):
    async def serve(arguments):
        raise kind(f"port {arguments.port} is taken")

    monkeypatch.setattr(command, "serve", serve)
    assert command.main(["--port", "7"]) == 2
    assert capsys.readouterr() == ("", "Cannot serve: port 7 is taken\n")


def test_an_end_that_was_asked_for_is_no_failure(monkeypatch, capsys):
    served = []

    async def serve(arguments):
        served.append(arguments.port)

    monkeypatch.setattr(command, "serve", serve)
    assert command.main(["--port", "7"]) == 0 and served == [7]
    assert capsys.readouterr() == ("", "")


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["it", "--requests", "0"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(command.__file__, run_name="__main__")
    assert "--requests must be more than 0" in capsys.readouterr().err


def test_the_help_says_what_it_does(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())  # however wide the terminal is
    assert shown.startswith("usage: python -m paged_attention.engine.serve ")
    assert "OpenAI's completions API" in shown and "--allowed-host NAME [NAME ...]" in shown


def test_one_of_each_is_enough(capsys):
    for name in ("requests", "connections", "num-blocks", "max-num-seqs"):
        found = vars(command._arguments([f"--{name}", "1"]))
        assert found[name.replace("-", "_")] == 1
        with pytest.raises(SystemExit, match="2"):
            command._arguments([f"--{name}", "0"])
    assert "--max-num-seqs must be more than 0" in capsys.readouterr().err


def engine_of(monkeypatch, has_card: bool) -> tuple:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_card)
    monkeypatch.setattr(command, "load_model", lambda *given: given)
    monkeypatch.setattr(command, "Engine", lambda *given, **named: (given, named))
    monkeypatch.setattr(command, "fast_engine", lambda *given, **named: ("fast", given, named))
    words = ["--model", "here", "--num-blocks", "9", "--max-num-seqs", "3"]
    return command.make_engine(command._arguments(words))


def test_a_card_runs_the_fast_engine_in_bfloat16_with_long_steps(monkeypatch):
    sizes = {"token_budget": 8192, "num_blocks": 9, "max_num_seqs": 3}
    model = Path("here"), torch.bfloat16, "cuda"
    assert engine_of(monkeypatch, True) == ("fast", (model,), sizes)


def test_a_processor_runs_the_plain_engine(monkeypatch):
    sizes = {"num_blocks": 9, "max_num_seqs": 3}
    assert engine_of(monkeypatch, False) == (((Path("here"),),), sizes)


NO_LIMIT = -1
FILES = {  # most open files now, and ever; connections there may be; most files asked for
    "enough": (5000, 9000, 1000, None),
    "just enough": (1128, 9000, 1000, None),
    "one too few": (1127, 9000, 1000, 1128),
    "any number": (NO_LIMIT, NO_LIMIT, 1000, None),
    "any number if it asks": (256, NO_LIMIT, 1000, 1128),
    "just enough if it asks": (256, 1128, 1000, 1128),
    "too few in any case": (200, 600, 472, 600),
    "fewer than it has itself": (50, 100, 1, 100),
}


@pytest.mark.parametrize("now, ever, room, asked", FILES.values(), ids=FILES)
def test_there_are_no_more_connections_than_open_files(
    monkeypatch, capsys, now, ever, room, asked
):
    calls = []
    files = SimpleNamespace(
        RLIM_INFINITY=NO_LIMIT,
        RLIMIT_NOFILE="files",
        getrlimit={"files": (now, ever)}.get,
        setrlimit=lambda which, limits: calls.append((which, limits)),
    )
    monkeypatch.setattr(command, "resource", files)
    assert command.room_for(1000) == room
    assert calls == ([("files", (asked, ever))] if asked else [])
    shown = f"The system lets this process have {room} connections (ulimit -n)\n"
    assert capsys.readouterr() == ("", shown if room < 1000 else "")
