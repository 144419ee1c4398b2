"""The server: OpenAI's completions API on tornado, and limits for those who ask."""

import asyncio
import ipaddress
import json
import time
import uuid
from dataclasses import dataclass, field, replace

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from paged_attention.engine.engine import Engine
from paged_attention.engine.serve.answer import Answer, as_api_error, usage
from paged_attention.engine.serve.asked import Asked, read
from paged_attention.engine.serve.engine_thread import (
    EngineThread,
    News,
    QueueFullError,
    StoppedError,
)
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.words import Words

LOOPBACK = ("localhost", "127.0.0.1", "::1")
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n"
)


@dataclass(frozen=True)
class Limits:
    """What the server takes.

    body: bytes of a request.
    body_seconds: for a body to arrive.
    idle_seconds: for a request line and its headers, and between two requests.
    connections: open at once; more are refused.
    requests: answers that wait or run at once.
    """

    body: int = 1 << 20
    body_seconds: float = 20.0
    idle_seconds: float = 60.0
    connections: int = 1000
    requests: int = 512


@dataclass
class Serving:
    """What the handlers share.

    hosts: names under which the server may be asked.
    any_address: whether it may be asked by any IP address.
    """

    engine: EngineThread
    words: Words
    model: str
    limits: Limits
    hosts: frozenset[str] = frozenset(LOOPBACK)
    any_address: bool = False
    started: int = field(default_factory=lambda: int(time.time()))

    def knows_host(self, name: str) -> bool:
        """Whether a page of another site, whose name leads here, is kept out."""
        name = name.strip("[]").lower()
        return name in self.hosts or (self.any_address and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Handler(RequestHandler):
    """What all handlers do: check the host, and send errors in OpenAI's form."""

    def initialize(self, serving: Serving) -> None:
        self.serving = serving

    def prepare(self) -> None:
        if not self.serving.knows_host(self.request.host_name):
            name = self.request.host_name[:100]
            raise ApiError(403, f"this server is not called {name!r} (--allowed-host)")

    def write_error(self, status_code: int, **named) -> None:
        error = named["exc_info"][1] if "exc_info" in named else None
        if not isinstance(error, ApiError):
            words = error.reason or error.log_message if isinstance(error, HTTPError) else None
            error = ApiError(status_code, words or self._reason)
        self.set_status(error.status)
        if error.status in (429, 503):
            self.set_header("Retry-After", "1")
        self.finish(error.body())

    def log_exception(self, kind, value, traceback) -> None:
        if not isinstance(value, (ApiError, StreamClosedError)):
            super().log_exception(kind, value, traceback)


class NotFound(Handler):
    def prepare(self) -> None:
        super().prepare()
        raise ApiError(404, f"there is nothing at {self.request.path[:200]}")


class Health(Handler):
    def get(self) -> None:
        self.finish({"status": "ok", "requests": len(self.serving.engine)})


class Models(Handler):
    def get(self, name: str | None = None) -> None:
        serving = self.serving
        about = {"id": serving.model, "object": "model", "created": serving.started}
        about["owned_by"] = "this server"
        if name is None:
            self.finish({"object": "list", "data": [about]})
        else:
            check_model(name, serving)
            self.finish(about)


def check_model(name: str, serving: Serving) -> None:
    if name != serving.model:
        raise ApiError(
            404,
            f"there is no model {name[:200]!r}; this server has {serving.model!r}",
            "model",
            "model_not_found",
        )


@stream_request_body
class Completions(Handler):
    """A completion, as a whole or as a stream of server-sent events."""

    def initialize(self, serving: Serving) -> None:
        super().initialize(serving)
        self.body = bytearray()
        self.numbers: list[int] = []  # the engine's, of what is not finished
        # which answer, and what is new of it; None when the client has left
        self.news: asyncio.Queue[tuple[int, News] | None] = asyncio.Queue()
        self.num_events = 0

    def prepare(self) -> None:
        super().prepare()
        length = self.request.headers.get("Content-Length", "0")
        if length.isdecimal():
            self._check_size(int(length))

    def data_received(self, chunk: bytes) -> None:
        self._check_size(len(self.body) + len(chunk))
        self.body += chunk

    def _check_size(self, size: int) -> None:
        if size > self.serving.limits.body:
            self.set_header("Connection", "close")
            raise ApiError(413, f"a request may have {self.serving.limits.body:,} bytes")

    def on_connection_close(self) -> None:
        self.cancel()
        self.news.put_nowait(None)

    def on_finish(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        for number in self.numbers:
            self.serving.engine.cancel(number)
        self.numbers = []

    async def post(self) -> None:
        asked = read(bytes(self.body))
        check_model(asked.model, self.serving)
        answers = self.submit(asked)
        about = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": asked.model,
        }
        try:
            await (self.stream if asked.stream else self.complete)(asked, answers, about)
        except StreamClosedError:
            return  # the client has left

    def submit(self, asked: Asked) -> list[Answer]:
        """Gives all answers that were asked for to the engine."""
        serving, loop = self.serving, asyncio.get_running_loop()
        answers: list[Answer] = []
        for prompt in asked.prompts:
            tokens = prompt if isinstance(prompt, list) else self.encode(prompt)
            for _ in range(asked.num_answers):
                ends = serving.engine.engine.end_tokens
                answers.append(Answer(tokens, asked.stop, serving.words, ends))
        for index, answer in enumerate(answers):

            def tell(news: News, index=index) -> None:
                loop.call_soon_threadsafe(self.news.put_nowait, (index, news))

            seed = asked.params.seed + index % asked.num_answers
            params = replace(asked.params, seed=seed)
            try:
                self.numbers.append(serving.engine.submit(answer.prompt, params, tell))
            except QueueFullError as error:
                raise ApiError(429, str(error), code="queue_full") from None
            except StoppedError as error:
                raise as_api_error(error) from None
        return answers

    def encode(self, text: str) -> list[int]:
        try:
            return self.serving.words.encode(text)
        except ValueError as error:
            raise ApiError(400, f"prompt: {error}", "prompt") from None

    async def texts(self, answers: list[Answer]):
        """Yields (index, answer, text) as it comes, until all answers have ended."""
        left = len(answers)
        while left:
            what = await self.news.get()
            if what is None:
                raise StreamClosedError
            index, news = what
            answer = answers[index]
            if answer.reason:
                continue  # a stop text has ended it, and the engine was a step ahead
            text, has_ended = answer.take(news)
            if has_ended:
                left -= 1
                self.serving.engine.cancel(self.numbers[index])
            if text or has_ended:
                yield index, answer, text

    async def complete(self, asked: Asked, answers: list[Answer], about: dict) -> None:
        async for _ in self.texts(answers):
            pass
        choices = [answer.choice(index, answer.text) for index, answer in enumerate(answers)]
        self.finish(about | {"choices": choices, "usage": usage(answers, asked.num_answers)})

    async def stream(self, asked: Asked, answers: list[Answer], about: dict) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        no_usage = {"usage": None} if asked.include_usage else {}
        try:
            async for index, answer, text in self.texts(answers):
                choices = [answer.choice(index, text)]
                await self.send(about | {"choices": choices} | no_usage)
            if asked.include_usage:
                total = usage(answers, asked.num_answers)
                await self.send(about | {"choices": [], "usage": total})
            self.write("data: [DONE]\n\n")
        except ApiError as error:
            if self.num_events == 0:  # then it can have its status
                self.clear_header("Content-Type")
                raise
            await self.send(error.body())
        await self.finish()

    async def send(self, event: dict) -> None:
        """Waits until the client has taken it, so that a slow one does not fill the memory."""
        self.num_events += 1
        self.write(f"data: {json.dumps(event)}\n\n")
        await self.flush()


class LimitedServer(HTTPServer):
    """Refuses connections above a number at once, before anything is read."""

    most_connections = Limits.connections

    def handle_stream(self, stream, address) -> None:
        if len(self._connections) >= self.most_connections:
            stream.write(REFUSAL).add_done_callback(lambda _: stream.close())
            return
        super().handle_stream(stream, address)


def make_server(serving: Serving) -> LimitedServer:
    given = {"serving": serving}
    application = Application(
        [
            (r"/v1/completions", Completions, given),
            (r"/v1/models", Models, given),
            (r"/v1/models/(.+)", Models, given),
            (r"/health", Health, given),
        ],
        default_handler_class=NotFound,
        default_handler_args=given,
        log_function=lambda handler: None,
    )
    limits = serving.limits
    server = LimitedServer(
        application,
        max_header_size=1 << 14,
        max_body_size=limits.body,
        body_timeout=limits.body_seconds,
        idle_connection_timeout=limits.idle_seconds,
    )
    server.most_connections = limits.connections
    return server


def start(engine: Engine, words: Words, model: str, limits: Limits = Limits(), **named):
    """Starts the engine's thread. Returns what the handlers share."""
    return Serving(EngineThread(engine, limits.requests), words, model, limits, **named)
