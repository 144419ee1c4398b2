"""Texts to tokens and back, for the model that is served."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.tiny_qwen3 import tasks


class Words(Protocol):
    """Raises ValueError for a text that has no tokens."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: list[int]) -> str: ...


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


def words_of(folder: Path) -> Words:
    return Characters() if folder == SMALL_MODEL else TokenizerWords(folder)


def without_end(tokens: list[int], ends: Iterable[int]) -> list[int]:
    """Leaves out the token that ended the answer."""
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens
