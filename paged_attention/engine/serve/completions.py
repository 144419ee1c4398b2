"""Completions: what was asked goes to the engine, and its news to the client."""

import asyncio
import contextlib
import json
import time
import uuid
from dataclasses import replace
from functools import partial

from tornado.iostream import StreamClosedError

from paged_attention.engine.serve.answer import Answer, as_api_error, usage
from paged_attention.engine.serve.echo import Echo
from paged_attention.engine.serve.engine_thread import (
    Asking,
    News,
    QueueFullError,
    StoppedError,
    TooManyError,
)
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.handlers import Handler, check_model
from paged_attention.engine.serve.request_body import Asked, read_completion
from paged_attention.engine.serve.scored_tokens import completion_form
from paged_attention.engine.serve.settings import Serving


class Completions(Handler):
    """A completion, as a whole or as a stream of server-sent events."""

    id, kind, kind_of_piece = "cmpl", "text_completion", "text_completion"
    parameter = "prompt"  # that has the prompt
    read, form = staticmethod(read_completion), staticmethod(completion_form)

    def initialize(self, serving: Serving) -> None:
        super().initialize(serving)
        self.body, self.num_bytes = bytearray(), 0
        self.numbers: list[int] = []  # the engine's, of each answer
        # which answer, and what is new of it; None when the client has left
        self.news: asyncio.Queue[tuple[int, News] | None] = asyncio.Queue()
        self.has_begun = False  # to send events
        self.has_left = False  # the client

    def data_received(self, chunk: bytes) -> None:
        """What is too much is counted and thrown away; the answer comes at its end."""
        self.num_bytes += len(chunk)
        if self.num_bytes <= self.serving.limits.body:
            self.body += chunk

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.cancel()
        self.has_left = True
        self.news.put_nowait(None)

    def on_finish(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        for number in self.numbers:
            self.serving.engine.cancel(number)

    async def post(self) -> None:
        if self.num_bytes > self.serving.limits.body:
            raise self.too_large()
        asked = self.read(bytes(self.body))
        check_model(asked.model, self.serving)
        answers = self.submit(asked)
        about = {
            "id": f"{self.id}-{uuid.uuid4().hex}",
            "object": self.kind_of_piece if asked.stream else self.kind,
            "created": int(time.time()),
            "model": asked.model,
        }
        with contextlib.suppress(StreamClosedError):  # the client has left
            await (self.stream if asked.stream else self.complete)(asked, answers, about)

    def submit(self, asked: Asked) -> list[Answer]:
        """Gives all answers that were asked for to the engine."""
        serving, put = self.serving, self.serving.mailbox.put
        answers: list[Answer] = []
        for index, prompt in enumerate(asked.prompts):
            name = f"prompt[{index}]" if len(asked.prompts) > 1 else "the prompt"
            tokens = self.tokens_of(prompt, name)
            self.check(tokens, name)
            echo = None
            if asked.echo:
                text = prompt if isinstance(prompt, str) else None
                echo = Echo(tokens, text, serving.words, asked.num_top)
            for _ in range(asked.num_answers):
                how = serving.words, serving.engine.engine.end_tokens, name
                answers.append(Answer(tokens, asked.stop, *how, asked.num_top, echo))

        def tell(index: int, news: News) -> None:
            put(partial(self.news.put_nowait, (index, news)))

        requests: list[Asking] = []
        for index, answer in enumerate(answers):
            seed = asked.params.seed + index % asked.num_answers
            params = replace(asked.params, seed=seed)
            if asked.fills_context:  # a prompt that fills it alone is refused by the engine
                room = max(1, self.most_tokens() - len(answer.prompt))
                params = replace(params, max_new_tokens=room)
            requests.append((answer.prompt, params, partial(tell, index)))
        try:
            self.numbers = serving.engine.submit(requests, asked.num_top)
        except TooManyError as error:
            raise ApiError(
                400, str(error), "n" if asked.num_answers > 1 else "prompt"
            ) from None
        except QueueFullError as error:
            raise ApiError(429, str(error), code="queue_full") from None
        except StoppedError as error:
            raise as_api_error(error) from None
        return answers

    def check(self, tokens: list[int], name: str) -> None:
        """As the engine does it later: a text of these tokens is needed before."""
        if not tokens:
            raise ApiError(400, f"{name} is empty; it needs one token or more", self.parameter)
        most = self.serving.engine.engine.vocab_size - 1
        for token in tokens:
            if not 0 <= token <= most:
                raise ApiError(
                    400, f"{name} has the token {token}; the model's are 0 to {most}", "prompt"
                )

    def most_tokens(self) -> int:
        """Of a prompt and its answer together."""
        return min(self.serving.engine.engine.most_tokens.values())

    def tokens_of(self, prompt, name: str) -> list[int]:
        """prompt: a text, or its tokens."""
        if isinstance(prompt, list):
            return prompt
        try:
            return self.serving.words.encode(prompt)
        except ValueError as error:
            raise ApiError(400, f"{name}: {error}", "prompt") from None

    def choice(self, index: int, answer: Answer) -> dict:
        """A whole answer, in the API's form."""
        return self.piece(index, answer, answer.text, False)

    def piece(self, index: int, answer: Answer, text: str, is_first: bool) -> dict:
        """What is new of an answer."""
        return {"index": index, "text": text} | self.ended(answer)

    def ended(self, answer: Answer) -> dict:
        """How likely its new tokens were, if that was asked, and why it has ended."""
        told = answer.tell()
        logprobs = None if told is None else self.form(told, self.serving.words)
        return {"logprobs": logprobs, "finish_reason": answer.reason or None}

    async def texts(self, answers: list[Answer]):
        """Yields (index, answer, text) as it comes, until all answers have ended.

        All that has come of an answer since the last event is one text. When the loop falls
        behind the engine, it sends fewer and longer events.
        """
        while not all(answer.reason for answer in answers):
            texts: dict[int, str] = {}
            error: Exception | None = None
            news = [await self.news.get()]
            while not self.news.empty():
                news.append(self.news.get_nowait())
            for what in news:
                try:
                    self.take(answers, what, texts)
                except (ApiError, StreamClosedError) as raised:
                    error = raised
                    break
            for index, text in texts.items():
                answer = answers[index]
                if answer.echo is not None:
                    await self.score(answer.echo)
                if text or answer.reason:
                    yield index, answer, text
            if error is not None and not all(answer.reason for answer in answers):
                raise error

    def take(
        self, answers: list[Answer], what: tuple[int, News] | None, texts: dict[int, str]
    ):
        """Adds what is new of an answer to `texts`.

        Raises ApiError as the engine says, and StreamClosedError if the client has left.
        """
        if what is None:
            raise StreamClosedError
        index, news = what
        answer = answers[index]
        if answer.reason:
            return  # a stop text has ended it, and the engine was a step ahead
        if news.error is not None:
            raise as_api_error(news.error, answer.name, self.parameter)
        text, has_ended = answer.take(news)
        if has_ended:
            self.serving.engine.cancel(self.numbers[index])
        texts[index] = texts.get(index, "") + text

    async def score(self, echo: Echo) -> None:
        """Finds how likely the tokens of an echo were, if that was asked."""
        try:
            async for _ in echo.score(self.serving.engine):
                if self.has_left:
                    break
        except Exception as error:
            raise as_api_error(error) from None
        if self.has_left:
            raise StreamClosedError

    async def complete(self, asked: Asked, answers: list[Answer], about: dict) -> None:
        async for _ in self.texts(answers):
            pass
        choices = [self.choice(index, answer) for index, answer in enumerate(answers)]
        self.finish(about | {"choices": choices, "usage": usage(answers, asked.num_answers)})

    async def stream(self, asked: Asked, answers: list[Answer], about: dict) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        no_usage = {"usage": None} if asked.include_usage else {}
        begun: set[int] = set()
        try:
            async for index, answer, text in self.texts(answers):
                choices = [self.piece(index, answer, text, index not in begun)]
                begun.add(index)
                await self.send(about | {"choices": choices} | no_usage)
            if asked.include_usage:
                total = usage(answers, asked.num_answers)
                await self.send(about | {"choices": [], "usage": total})
            self.write("data: [DONE]\n\n")
        except ApiError as error:
            if not self.has_begun:  # then it can have its status
                raise
            await self.send(error.body())

    async def send(self, event: dict) -> None:
        """Waits until the client has taken it, so that a slow one does not fill the memory.

        Raises StreamClosedError for one that takes too long.
        """
        self.has_begun = True
        self.write(f"data: {json.dumps(event)}\n\n")
        sent = self.flush()
        if sent.done():  # as nearly always
            return sent.result()
        try:
            await asyncio.wait_for(sent, self.serving.limits.send_seconds)
        except TimeoutError:
            self.request.connection.stream.close()  # type: ignore[union-attr]
            raise StreamClosedError from None
