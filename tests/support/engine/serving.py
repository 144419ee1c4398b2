"""A server in a thread of this process, for tests."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import openai
from tornado.netutil import bind_sockets

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.serve.server import Limits, make_server, start
from paged_attention.engine.serve.token_text import words_of

MODEL = "small"


class RunningServer:
    """It ends with the `with` that it begins. `engine`: to look into. `address`: its URL."""

    def __init__(
        self, limits: Limits = Limits(), folder=SMALL_MODEL, send_buffer: int = 0, **named
    ):
        """send_buffer: bytes that the system keeps of what a client has not read; 0: many."""
        self.engine = Engine(load_model(folder), num_blocks=512, prefix_sharing=False)
        self.serving = start(self.engine, words_of(folder), MODEL, limits, **named)
        (listening,) = bind_sockets(0, "127.0.0.1", backlog=1024)
        if send_buffer:  # those of its connections too
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._loop, self._is_ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        self._is_ready.wait()

    def _run(self, listening) -> None:
        asyncio.set_event_loop(self._loop)

        async def begin():
            self.server = make_server(self.serving)
            self.server.add_sockets([listening])
            self._is_ready.set()

        self._loop.run_until_complete(begin())
        self._loop.run_forever()

    def stop(self) -> None:
        self.serving.engine.stop()

        async def end():
            self.server.stop()
            await self.server.close_all_connections()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.stop()

    def client(self, max_retries: int = 0) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.address}/v1", api_key="none", max_retries=max_retries
        )

    def ask(self, body, path="/v1/completions", **headers) -> tuple[int, dict]:
        """Returns the status and the answer's JSON. body: what becomes JSON, or bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def answered(self, *pieces: bytes) -> tuple[int, dict]:
        """The status and the JSON of the first answer to these bytes."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, json.load(answer)

    def answer_to(
        self, method: str, path: str, sent=None, **headers
    ) -> http.client.HTTPResponse:
        """An answer with its headers, read to its end: `text` has its body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = sent if sent is None or isinstance(sent, bytes) else json.dumps(sent)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        answer.text = answer.read()
        connection.close()
        return answer

    @contextlib.contextmanager
    def paced(self):
        """Each step of the engine waits until the loop has sent the tokens of the last."""

        async def nothing():
            pass

        def settle(engine, scheduled):
            # the news are delivered, a handler wakes and sends them, and waits again
            for _ in range(4):
                asyncio.run_coroutine_threadsafe(nothing(), self._loop).result(60)

        self.engine.history = settle
        try:
            yield
        finally:
            self.engine.history = None

    def in_loop(self, function: Callable[[], object]) -> None:
        """Has the event loop call it, which does nothing else meanwhile."""
        self._loop.call_soon_threadsafe(function)

    def is_free(self) -> bool:
        """Whether no request and no block is left."""
        used = self.engine.manager.block_manager.get_num_free_blocks() != 512
        return not len(self.serving.engine) and not self.engine.requests and not used


def wait_until(true: Callable[[], bool]) -> None:
    """Fails after a time that no machine needs."""
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"{true} has not come true in a minute")


def head_of(length, path: str = "/v1/completions") -> bytes:
    """What comes before a body."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
    )


def body(prompt="Cq7b>", **fields) -> dict:
    return {"model": MODEL, "prompt": prompt, "temperature": 0} | fields
