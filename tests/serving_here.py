"""The server without sockets or an engine: a test plays the client, and the engine too."""

import asyncio
import functools
import json
from types import SimpleNamespace

from tornado.httputil import HTTPConnection, HTTPHeaders, RequestStartLine
from tornado.iostream import StreamClosedError

from paged_attention.engine.serve.engine_thread import News
from paged_attention.engine.serve.server import make_server
from paged_attention.engine.serve.settings import Limits, Serving
from paged_attention.engine.serve.words import Characters
from paged_attention.tiny_qwen3.tasks import END, encode

MODEL = "small"


def in_a_loop(test):
    """Lets pytest run an asynchronous test."""

    @functools.wraps(test)
    def run(*args, **named):
        asyncio.run(test(*args, **named))

    return run


async def settle() -> None:
    """Gives all tasks so much time that they wait for something; 50 turns are enough here."""
    for _ in range(50):
        await asyncio.sleep(0)


class Client(HTTPConnection):
    """A client, as the server sees it.

    takes: whether it takes what is sent to it.
    """

    def __init__(self):
        self.status, self.headers, self.data = 0, HTTPHeaders(), b""
        self.takes, self.is_open, self.is_finished = True, True, False
        self.stream = self  # of the connection: what the server closes
        self._left = None

    def set_close_callback(self, callback) -> None:
        self._left = callback

    def write_headers(self, start_line, headers, chunk=b"") -> asyncio.Future:
        self.status, self.headers = start_line.code, headers
        return self.write(chunk)

    def write(self, chunk) -> asyncio.Future:
        self.data += chunk
        taken = asyncio.Future()
        if not self.is_open:
            taken.set_exception(StreamClosedError())
            taken.exception()  # else asyncio complains if nobody asks for it
        elif self.takes:
            taken.set_result(None)
        return taken

    def finish(self) -> None:
        self.is_finished = True

    def close(self) -> None:
        self.is_open = False
        if self._left:
            asyncio.get_running_loop().call_soon(self._left)

    def error(self) -> dict:
        return json.loads(self.data)["error"]

    def events(self) -> list:
        """The events of a stream that have come, without the closing [DONE]."""
        *events, rest = self.data.decode().split("\n\n")
        assert rest == "" and all(event.startswith("data: ") for event in events)
        found = [event.removeprefix("data: ") for event in events]
        return [json.loads(event) for event in found if event != "[DONE]"]


class Engine:
    """Takes requests. Once it has `room` of them, it raises `error` instead."""

    def __init__(self):
        self.engine = SimpleNamespace(end_tokens=frozenset(encode(END)))
        self.asked, self.cancelled = [], []
        self.room, self.error = 1000, RuntimeError()

    def submit(self, prompt, params, tell) -> int:
        if len(self.asked) == self.room:
            raise self.error
        self.asked.append((prompt, params, tell))
        return len(self.asked) - 1

    def cancel(self, number) -> None:
        self.cancelled.append(number)

    def __len__(self) -> int:
        return len(self.asked)


class Server:
    def __init__(self, **limits):
        self.engine = Engine()
        self.serving = Serving(self.engine, Characters(), MODEL, Limits(**limits))

    async def ask(
        self, body=None, path="/v1/completions", method="", is_whole=True, **more
    ) -> Client:
        """Asks, and waits until the server waits.

        body: sent as JSON; a list is sent piece by piece, without a Content-Length.
        is_whole: whether the body ends here.
        more: headers; "_" is for "-".
        """
        client, pieces = Client(), []
        headers = HTTPHeaders({"Host": "localhost"})
        if isinstance(body, list):
            pieces = body
        elif body is not None:
            pieces = [json.dumps(body).encode()]
            headers["Content-Length"] = str(len(pieces[0]))
        for name, value in more.items():
            headers[name.replace("_", "-")] = value
        request = make_server(self.serving).start_request(object(), client)
        line = RequestStartLine(
            method or ("GET" if body is None else "POST"), path, "HTTP/1.1"
        )
        await request.headers_received(line, headers)
        for piece in pieces:
            if not client.is_finished:  # else the rest is not read
                request.data_received(piece)
        if is_whole and not client.is_finished:
            request.finish()
        await settle()
        return client

    def say(self, number: int, text: str, reason: str | None = None, error=None) -> None:
        """Says what the engine has for a request."""
        _, _, tell = self.engine.asked[number]
        tell(News(encode(text), reason, error))

    async def tell(
        self, number: int, text: str, reason: str | None = None, error=None
    ) -> None:
        """Says it, and waits until the server waits."""
        self.say(number, text, reason, error)
        await settle()


def body(prompt="Cq7b>", **fields) -> dict:
    return {"model": MODEL, "prompt": prompt} | fields
