"""A server of the benchmark of peers in its own process, seen from outside."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lessons_content.lesson_10.bench.fast_engine import Trace
from tools.bench.peer_process import Events, ServerFailed, Turn, work

FOREVER = 1e6  # seconds
PATIENCE = 20  # seconds for a server to end by itself
VLLM_SCRIPT = Path(__file__).with_name("vllm_server.py")
VLLM_ENVIRONMENT = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"),
    **dict.fromkeys(("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"), "1"),
    **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo"),
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is not installed; greedy requests never use it
}

Left = Callable[[], float]
Launch = Callable[[Connection], Any]  # gives a process its end, and returns the process


def seconds_left(limit: float = FOREVER) -> Left:
    """A function that says how much of a time is left, in seconds. The time begins now."""
    end = time.perf_counter() + limit
    return lambda: end - time.perf_counter()


def in_python(make: Callable, *arguments) -> Launch:
    """Launches a server that `make` makes, in a process as this one."""

    def launch(words: Connection):
        context = multiprocessing.get_context("spawn")
        made = partial(make, *arguments)
        process = context.Process(target=work, args=(words, made), daemon=True)
        process.start()
        return process

    return launch


class Program(subprocess.Popen):
    """A program, its children with it, and with the methods of multiprocessing's processes."""

    exitcode = property(lambda self: self.returncode)

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def is_alive(self) -> bool:
        return self.poll() is None


def in_vllm(site: Path, folder: Path, online: bool, **options) -> Launch:
    """Launches vLLM in a process that has its own packages, and none of the course's.

    site: the folder of vLLM and of what it needs. folder: of the model.
    online: whether it is AsyncLLM, not LLM. options: the engine's.
    """

    def launch(words: Connection):
        settings = options | {"model": str(folder), "online": online}
        descriptor = words.fileno()
        script = [str(VLLM_SCRIPT), str(descriptor), json.dumps(settings)]
        return Program(
            [sys.executable, "-P", *script],
            pass_fds=[descriptor],
            env=os.environ | VLLM_ENVIRONMENT | {"PYTHONPATH": str(site)},
            cwd=folder,
            stdout=2,  # it talks; the benchmark's table is alone on stdout
            start_new_session=True,
        )

    return launch


class RemoteServer:
    """`ready`: seconds until it could take a request. `settings`: what it says of itself.

    left: says how many seconds an answer may take.
    Raises ServerFailed, here and in `serve` and `arrive`.
    """

    def __init__(self, name: str, launch: Launch, left: Left = seconds_left()):
        self.name, self._left = name, left
        self._failed: ServerFailed | None = None
        self._words, theirs = multiprocessing.get_context("spawn").Pipe()
        self._process = launch(theirs)
        theirs.close()
        self.ready, self.settings = self._answer()

    def serve(self, trace: Trace, turn: int) -> Turn:
        """Each turn's prompts begin with another token."""
        return self._ask("turn", trace, turn)

    def arrive(self, trace: Trace, turn: int, times: Sequence[float]) -> Events:
        """The same, with requests that come at their times, in seconds."""
        return self._ask("arrivals", trace, turn, times)

    def close(self) -> None:
        self._words.close()  # by which it ends
        self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()

    def _ask(self, action: str, trace: Trace, turn: int, *others):
        if self._failed:
            raise self._failed
        prompts = [[turn, *prompt[1:]] for prompt in trace.prompts]
        with suppress(ConnectionError):  # it has ended, and _answer() says so
            self._words.send((action, prompts, trace.new_tokens, *others))
        return self._answer()

    def _answer(self):
        answer: Any
        try:
            if not self._words.poll(max(0.0, self._left())):
                answer = ServerFailed("no time was left for its answer")
                self._process.kill()
            else:
                answer = self._words.recv()
        except (EOFError, ConnectionError):
            self._process.join(PATIENCE)
            answer = ServerFailed(f"its process ended with {self._process.exitcode}")
        if isinstance(answer, ServerFailed):
            self.close()
            self._failed = answer
            raise answer
        return answer
