"""Clients that ask a server for completions at random times, and note when tokens arrive."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

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
        content = event.removeprefix(b"data: ").strip()
        if content == b"[DONE]":
            self.is_done = True
            return
        message = json.loads(content)
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
    client = SimpleAsyncHTTPClient(force_instance=True, max_clients=len(asked))
    begin = time.perf_counter()
    try:
        return await asyncio.gather(*(_ask(client, url, model, each, begin) for each in asked))
    finally:
        client.close()


async def _ask(
    client: SimpleAsyncHTTPClient, url: str, model: str, question: Question, begin: float
) -> Heard:
    heard, rest = Heard(question), bytearray()

    def take(chunk: bytes) -> None:
        since = time.perf_counter() - begin - question.at
        rest.extend(chunk)
        *events, left = bytes(rest).split(b"\n\n")
        rest[:] = left
        for event in events:
            heard.take(event, since)

    await asyncio.sleep(question.at - (time.perf_counter() - begin))
    body = {
        "model": model,
        "prompt": question.prompt,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        answer = await client.fetch(
            HTTPRequest(
                f"{url}/v1/completions",
                method="POST",
                headers={"Content-Type": "application/json"},
                body=json.dumps(body),
                streaming_callback=take,
                connect_timeout=MOST_SECONDS,
                request_timeout=MOST_SECONDS,
            ),
            raise_error=False,
        )
    except (OSError, ValueError, KeyError) as error:  # it hung up, or sent no valid event
        heard.problem = f"{type(error).__name__}: {error}"
        return heard
    if answer.code != 200:
        heard.problem = f"{answer.code} {answer.reason}"
        heard.is_refused = answer.code in (429, 503)
    elif not heard.problem and not (heard.is_done and heard.reason and heard.times):
        heard.problem = "the stream ended early"
    return heard
