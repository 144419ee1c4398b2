"""Texts to tokens and back, for the model that is served."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.tiny_qwen3 import tasks


class Words(Protocol):
    """The two ways between texts and tokens."""

    def encode(self, text: str) -> list[int]:
        """Raises ValueError for a text that has no tokens."""

    def decode(self, tokens: list[int]) -> str:
        """The text of these tokens."""


class Characters:
    """Of the small model: a token is a character."""

    encode = staticmethod(tasks.encode)
    decode = staticmethod(tasks.decode)


class TokenizerWords:
    """Of a checkpoint with a tokenizer."""

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


class Decoded:
    """The text of an answer that grows.

    Each time only its last tokens are decoded: decoding all would take longer with each token.
    A token may look different after another one, and a character may have several tokens. So
    two pieces are decoded together. The first is settled when the end is a whole character.
    """

    def __init__(self, words: Words):
        self.words, self.tokens, self.settled = words, list[int](), ""
        self.begin = self.middle = 0  # of the two pieces that are decoded together

    def add(self, tokens: list[int]) -> str:
        """Takes in further tokens. Returns the text of all, which may end with "\ufffd"."""
        self.tokens += tokens
        before = self.words.decode(self.tokens[self.begin : self.middle])
        after = self.words.decode(self.tokens[self.begin :])
        text = self.settled + after[len(before) :]
        if not after.endswith("\ufffd") and len(after) > len(before):
            self.settled, self.begin, self.middle = text, self.middle, len(self.tokens)
        return text


def words_of(folder: Path) -> Words:
    return Characters() if folder == SMALL_MODEL else TokenizerWords(folder)


def without_end(tokens: list[int], ends: Iterable[int]) -> list[int]:
    """Leaves out the token that ended the answer."""
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens
