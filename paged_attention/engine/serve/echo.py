"""A prompt that its answers begin with."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from paged_attention.engine.logprobs import prompt_logprobs
from paged_attention.engine.serve.engine_thread import EngineThread
from paged_attention.engine.serve.scored_tokens import ScoredToken
from paged_attention.engine.serve.token_text import Decoded, Words


class Echo:
    """A prompt that its answers begin with.

    tokens: the prompt's, one or more.
    text: as it was asked; None if only tokens were.
    num_top: how many of the likeliest tokens are told with each; None tells of none.
    `text`: as its answers have it. `scored`: its tokens, after score().
    """

    def __init__(self, tokens: list[int], text: str | None, words: Words, num_top: int | None):
        self.tokens, self.words, self.num_top = tokens, words, num_top
        self.scored: list[ScoredToken] = []
        # a character that has begun will be the answer's
        self.text = whole(Decoded(words).add(tokens)) if text is None else text

    async def score(self, engine: EngineThread) -> AsyncIterator[None]:
        """Finds how likely its tokens were, once, in pieces between the engine's steps.

        Yields after each piece, so that it can be given up.
        Raises StoppedError, and whatever the model raises.
        """
        if self.scored or self.num_top is None:
            return
        decoded = Decoded(self.words)
        told = [ScoredToken(self.tokens[0], 0, None)]
        length = len(whole(decoded.add(self.tokens[:1])))
        pieces = prompt_logprobs(engine.engine.runner.model, self.tokens, self.num_top)
        next_piece = partial(next, pieces, [])
        while piece := await asyncio.wrap_future(engine.between_steps(next_piece)):
            for logprobs in piece:
                token = self.tokens[len(told)]
                told.append(ScoredToken(token, length, logprobs))
                length = len(whole(decoded.add([token])))
            yield
        self.scored = told


def whole(text: str) -> str:
    """Leaves out a character at its end that is not whole yet."""
    return text.rstrip("\ufffd")
