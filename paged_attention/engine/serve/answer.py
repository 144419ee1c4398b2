"""An answer on its way to a client: its tokens so far, its text, what was sent of it."""

import re
from collections import deque
from collections.abc import Iterable, Sequence

from paged_attention.engine.logprobs import TokenLogprobs
from paged_attention.engine.request import RequestError
from paged_attention.engine.serve.echo import Echo, whole
from paged_attention.engine.serve.engine_thread import News, StoppedError
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.scored_tokens import ScoredToken
from paged_attention.engine.serve.stop_texts import next_event
from paged_attention.engine.serve.token_text import (
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
    num_top: how many of the likeliest tokens are told with each; None tells of none.
    echo: what its text begins with.
    `text`: what was sent. `reason`: its finish reason, "" until it has one.
    """

    def __init__(
        self,
        prompt: list[int],
        stop: list[str],
        words: Words,
        ends: Iterable[int],
        name: str = "the prompt",
        num_top: int | None = None,
        echo: Echo | None = None,
    ):
        self.prompt, self.ends, self.name = prompt, frozenset(ends), name
        self.num_top, self.echo = num_top, echo
        marks, self.stop = marks_of(stop, words.special)
        self.decoded = Decoded(words, prompt, marks)
        self.tokens: list[int] = []
        self.num_seen = 0  # characters, with marks
        self.text = self.reason = ""
        self._untold: deque[ScoredToken] = deque()
        self._is_whole = self._has_told = False  # whether all of its text was sent

    def take(self, news: News) -> tuple[str, bool]:
        """Takes in what the engine says. Returns the text to send now, and whether it ended.

        Raises ApiError if the engine could not end it.
        """
        self.tokens += news.tokens
        if news.reason is not None and news.reason not in REASONS:
            raise ApiError(500, f"the answer ended early: {news.reason}", code=news.reason)
        ended = news.reason and REASONS[news.reason]
        new_tokens = news.tokens if ended != "stop" else without_end(news.tokens, self.ends)
        text = self._decode(new_tokens, news.logprobs)
        new, reason = next_event(text, self.num_seen, self.stop, ended)
        self.num_seen += len(new)
        new = without_marks(new)
        if self.echo and not self.text:
            new = self.echo.text + new
        self.text += new
        self.reason = reason or ""
        self._is_whole = ended is not None and self.num_seen == len(text)
        return new, reason is not None

    def _decode(self, tokens: list[int], logprobs: Sequence[TokenLogprobs]) -> str:
        """The text of all its tokens. Where there are logprobs, notes where each begins."""
        text = self.decoded.add([] if logprobs else tokens)
        before = len(self.echo.text) if self.echo else 0
        for token, own in zip(tokens, logprobs):  # the token that ended it has no text
            offset = before + len(without_marks(whole(text)))
            self._untold.append(ScoredToken(token, offset, own))
            text = self.decoded.add([token])
        return text

    def tell(self) -> list[ScoredToken] | None:
        """The tokens that begin in what was sent, and that no earlier call has told.

        Returns None if nobody asked how likely they were.
        """
        if self.num_top is None:
            return None
        if self.echo and not self._has_told:
            self._untold.extendleft(reversed(self.echo.scored))
        self._has_told, told = True, []
        while self._untold and (self._is_whole or self._untold[0].offset < len(self.text)):
            told.append(self._untold.popleft())
        return told


def usage(answers: list[Answer], num_answers: int) -> dict[str, int]:
    """The numbers of tokens. num_answers: for each prompt, which counts once."""
    prompts = sum(len(answer.prompt) for answer in answers[::num_answers])
    completions = sum(len(answer.tokens) for answer in answers)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": completions,
        "total_tokens": prompts + completions,
    }


def as_api_error(
    error: Exception, prompt: str = "the prompt", parameter: str = "prompt"
) -> ApiError:
    """What a client is told of an error of the engine's, whose prompt has this name."""
    if isinstance(error, StoppedError):
        return ApiError(503, str(error), code="server_is_ending")
    if isinstance(error, (RequestError, TypeError)):
        # the engine's own number for the request says nothing to a client
        return ApiError(400, re.sub(r"^request \d+", prompt, str(error)), parameter)
    return ApiError(500, f"the engine failed: {type(error).__name__}: {error}")
