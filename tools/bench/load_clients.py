"""Clients that ask a server for completions at random times, and note when tokens arrive."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

import numpy as np

from paged_attention.tiny_qwen3.tasks import TASKS

MOST_TOKENS = 64  # of an answer, at most
MOST_SECONDS = 600.0  # for an answer; a later answer counts as lost


@dataclass(frozen=True)
class Question:
    """A prompt or its tokens, its right answer, and the second at which it is asked."""

    prompt: str | list[int]
    answer: str
    at: float
    max_tokens: int = MOST_TOKENS


@dataclass
class Heard:
    """The results of one client.

    times: of each event with text, in seconds since the question was due.
    reason: the finish reason; None if none came.
    problem: why there is no whole answer; empty if there is one.
    is_refused: whether the server refused the request because it was full.
    """

    question: Question
    times: list[float] = field(default_factory=list)
    text: str = ""
    reason: str | None = None
    num_tokens: int = 0
    is_done: bool = False
    problem: str = ""
    is_refused: bool = False

    @property
    def first(self) -> float:
        return self.times[0]

    @property
    def between(self) -> list[float]:
        return np.diff(self.times).tolist()

    def take(self, event: bytes, since: float) -> None:
        """Reads one event of the stream. since: seconds since the question was due."""
        if event == b"[DONE]":
            self.is_done = True
            return
        message = json.loads(event)
        if "error" in message:
            self.problem = message["error"]["message"]
            return
        if message.get("usage"):
            self.num_tokens = message["usage"]["completion_tokens"]
        for choice in message["choices"]:
            self.reason = choice["finish_reason"] or self.reason
            self.text += choice["text"]
            if choice["text"]:
                self.times.append(since)


def questions(times: Sequence[float], seed: int) -> list[Question]:
    """The small model's four tasks in turn, of all sizes. times: when each is asked."""
    random, makers = np.random.default_rng(seed), [*TASKS.values()]
    return [
        Question(*makers[i % len(makers)](random, random.random()), at)
        for i, at in enumerate(times)
    ]


def random_arrivals(per_second: float, seconds: float, seed: int) -> list[float]:
    """Arrival times of requests that are independent of each other (a Poisson process).

    There is at least one arrival, even at a low rate.
    """
    random, times, now = np.random.default_rng(seed), [], 0.0
    while not times or now < seconds:
        now += float(random.exponential(1 / per_second))
        if now < seconds or not times:
            times.append(now)
    return times


async def ask_all(url: str, model: str, asked: Sequence[Question]) -> list[Heard]:
    """Asks each question at its time, even if earlier questions are still open.

    url: of the server, such as http://127.0.0.1:8000.
    """
    requests = [_request(url, model, each) for each in asked]  # before the time begins
    where, begin = urlsplit(url), time.perf_counter()
    received = await asyncio.gather(
        *(_receive(where, *each, begin) for each in zip(requests, asked))
    )
    return [_heard(each, *what, begin) for each, what in zip(asked, received)]


def _request(url: str, model: str, question: Question) -> bytes:
    body = {
        "model": model,
        "prompt": question.prompt,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    content = json.dumps(body).encode()
    head = [
        "POST /v1/completions HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content


class Received(asyncio.Protocol):
    """Sends a request and keeps what comes back, with the time.

    It does not parse it: many streams share this process, and the server must not wait.
    """

    def __init__(self, request: bytes):
        self.request, self.ended = request, asyncio.get_running_loop().create_future()
        self.pieces: list[bytes] = []
        self.times: list[float] = []

    def connection_made(self, transport) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.times.append(time.perf_counter())
        self.pieces.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.ended.done():
            return  # it was given up
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    @property
    def whole(self) -> bytes:
        return b"".join(self.pieces)

    def events(self) -> list[tuple[bytes, float]]:
        """Each event of the answer, and when its end came."""
        found = [*re.finditer(rb"data: (.*)\n\n", self.whole)]
        ends = np.cumsum([len(each) for each in self.pieces])
        pieces = np.searchsorted(ends, [each.end() for each in found])
        return [(each[1], self.times[piece]) for each, piece in zip(found, pieces)]


async def _receive(
    where: SplitResult, request: bytes, question: Question, begin: float
) -> tuple[Received, OSError | None]:
    """What came, and why not all of it did."""
    received, transport = Received(request), None
    await asyncio.sleep(question.at - (time.perf_counter() - begin))
    try:
        async with asyncio.timeout(MOST_SECONDS):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: received, where.hostname, where.port
            )
            await received.ended
    except OSError as error:  # TimeoutError too
        return received, error
    finally:
        if transport is not None:
            transport.close()
    return received, None


def _heard(
    question: Question, received: Received, error: OSError | None, begin: float
) -> Heard:
    heard = Heard(question)
    _, _, status = received.whole.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if error is None and status.startswith("200"):
        try:
            for event, when in received.events():
                heard.take(event, when - begin - question.at)
        except (ValueError, KeyError) as no_event:
            error = no_event
        if not heard.problem and not (heard.is_done and heard.reason and heard.times):
            heard.problem = "the stream ended early"
    else:
        heard.problem = status or "it hung up"
        heard.is_refused = status[:3] in ("429", "503")
    if error is not None:
        heard.problem = f"{type(error).__name__}: {error}"
    return heard
