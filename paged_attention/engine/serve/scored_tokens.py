"""Tokens with how likely they were, in the forms of both APIs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from paged_attention.engine.logprobs import TokenLogprobs
from paged_attention.engine.serve.token_text import Words


class ScoredToken(NamedTuple):
    """A token of an answer or its prompt, and how likely it was.

    offset: of the first of its characters in the text.
    logprobs: None for the first token of a prompt.
    """

    token: int
    offset: int
    logprobs: TokenLogprobs | None


def name_of(token: int, words: Words, before_bytes: str = "") -> str:
    """A token as a text. One that is only a part of a character is written like "\\xf0\\x9f".

    before_bytes: what is put in front of such a part.
    """
    found = words.bytes_of(token)
    if found is None:
        return words.special[token]
    try:
        return found.decode()
    except UnicodeDecodeError:
        return before_bytes + found.decode(errors="backslashreplace")


def chat_form(tokens: Sequence[ScoredToken], words: Words) -> dict[str, Any]:
    """As a chat has them: each token with its bytes, and with the likeliest ones."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        found = words.bytes_of(token)
        own = {"token": name_of(token, words), "logprob": logprob}
        return own | {"bytes": None if found is None else list(found)}

    content = [
        entry(each.token, each.logprobs.logprob)
        | {"top_logprobs": [entry(*pair) for pair in each.logprobs.likeliest]}
        for each in tokens
        if each.logprobs is not None
    ]
    return {"content": content, "refusal": None}


def completion_form(tokens: Sequence[ScoredToken], words: Words) -> dict[str, list]:
    """As a completion has them: a list for each kind of number.

    The likeliest tokens are by their names, and the token itself is always among them.
    """

    def name(token: int) -> str:
        return name_of(token, words, "bytes:")

    def likeliest(token: int, logprobs: TokenLogprobs | None) -> dict[str, float] | None:
        if logprobs is None:
            return None
        found: dict[str, float] = {}
        for other, logprob in [*logprobs.likeliest, (token, logprobs.logprob)]:
            found.setdefault(name(other), logprob)  # of two with one name, the likelier one
        return found

    return {
        "tokens": [name(each.token) for each in tokens],
        "token_logprobs": [each.logprobs and each.logprobs.logprob for each in tokens],
        "top_logprobs": [likeliest(each.token, each.logprobs) for each in tokens],
        "text_offset": [each.offset for each in tokens],
    }
