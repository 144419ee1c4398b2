"""An answer on its way to a client: its tokens so far, its text, what was sent of it."""

import re
from collections.abc import Iterable

from paged_attention.engine.request import RequestError
from paged_attention.engine.serve.engine_thread import News, StoppedError
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.events import next_event
from paged_attention.engine.serve.words import (
    Decoded,
    Words,
    marks_of,
    without_end,
    without_marks,
)

# The engine's reasons in the API's words.
REASONS = {"end": "stop", "length": "length"}


class Answer:
    """One answer to one prompt.

    name: of its prompt, for a sentence.
    `text`: what was sent. `reason`: its finish reason, "" until it has one.
    """

    def __init__(
        self,
        prompt: list[int],
        stop: list[str],
        words: Words,
        ends: Iterable[int],
        name: str = "the prompt",
    ):
        self.prompt, self.ends, self.name = prompt, frozenset(ends), name
        marks, self.stop = marks_of(stop, words.special)
        self.decoded = Decoded(words, prompt, marks)
        self.tokens: list[int] = []
        self.num_seen = 0  # characters, with marks
        self.text = self.reason = ""

    def take(self, news: News) -> tuple[str, bool]:
        """Takes in what the engine says. Returns the text to send now, and whether it ended.

        Raises ApiError if the engine could not serve it.
        """
        if news.error is not None:
            raise as_api_error(news.error, self.name)
        self.tokens += news.tokens
        if news.reason is not None and news.reason not in REASONS:
            raise ApiError(500, f"the answer ended early: {news.reason}", code=news.reason)
        ended = news.reason and REASONS[news.reason]
        new_tokens = news.tokens if ended != "stop" else without_end(news.tokens, self.ends)
        text = self.decoded.add(new_tokens)
        new, reason = next_event(text, self.num_seen, self.stop, ended)
        self.num_seen += len(new)
        new = without_marks(new)
        self.text += new
        self.reason = reason or ""
        return new, reason is not None


def usage(answers: list[Answer], num_answers: int) -> dict[str, int]:
    """The numbers of tokens. num_answers: for each prompt, which counts once."""
    prompts = sum(len(answer.prompt) for answer in answers[::num_answers])
    completions = sum(len(answer.tokens) for answer in answers)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": completions,
        "total_tokens": prompts + completions,
    }


def as_api_error(error: Exception, prompt: str = "the prompt") -> ApiError:
    if isinstance(error, StoppedError):
        return ApiError(503, str(error), code="server_is_ending")
    if isinstance(error, (RequestError, TypeError)):
        # the engine's own number for the request says nothing to a client
        return ApiError(400, re.sub(r"^request \d+", prompt, str(error)), "prompt")
    return ApiError(500, f"the engine failed: {type(error).__name__}: {error}")
