"""Texts to tokens and back, for the model that is served."""

import re
from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Protocol

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.engine.files import check_pointers
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.tiny_qwen3 import tasks

NO_TEMPLATE = (
    "this model has no chat template, so it knows no messages; ask it for a completion, at "
    "/v1/completions"
)
# A vocabulary of bytes, as GPT-2's, writes each byte as a letter. A visible character of
# Latin-1 is the letter of its own byte. The other bytes have those from 256 on, in order.
VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [byte for byte in range(256) if byte not in VISIBLE]
BYTE_OF = {chr(byte): byte for byte in VISIBLE}
BYTE_OF |= {chr(256 + place): byte for place, byte in enumerate(OTHERS)}
CONTEXT = 8  # tokens of a prompt's end that an answer is decoded with, at least


class Words(Protocol):
    """The two ways between texts and tokens.

    special: the tokens that are no part of a text, each with its name.
    end_tokens: those that end an answer, besides the model's own.
    """

    special: Mapping[int, str]
    end_tokens: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Raises ValueError for a text that has no tokens."""

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """The prompt for the next message. Raises ValueError where there is none."""

    def decode(self, tokens: list[int]) -> str:
        """The text of these tokens, none of them special."""

    def bytes_of(self, token: int) -> bytes | None:
        """What a token adds to a text, in UTF-8: perhaps a part of a character.

        None for a special token.
        """


class Characters:
    """Of the small model: a token is a character."""

    special: Mapping[int, str] = {}
    end_tokens = frozenset[int]()
    encode = staticmethod(tasks.encode)
    decode = staticmethod(tasks.decode)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        raise ValueError(NO_TEMPLATE)

    def bytes_of(self, token: int) -> bytes | None:
        return self.decode([token]).encode()


class TokenizerWords:
    """Of a checkpoint with a tokenizer.

    Raises UnsupportedModelError for a folder without one.
    """

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer

        check_pointers(folder)
        if not any(folder.glob("*token*")) and not any(folder.glob("vocab*")):
            raise UnsupportedModelError(
                f"{str(folder)!r} holds no tokenizer; save it there too, with the "
                "tokenizer's own save_pretrained()"
            )
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        except Exception as error:  # transformers and its libraries raise many kinds
            words = " ".join(str(error).split())[:300]
            raise UnsupportedModelError(
                f"the tokenizer in {str(folder)!r} could not be read: {words}"
            ) from error
        added = self.tokenizer.added_tokens_decoder.items()
        self.special: Mapping[int, str] = {
            id: token.content for id, token in added if token.special
        }
        # These are in the vocabulary as they are, and not letter by letter as bytes.
        self.added = {id: token.content for id, token in added if not token.special}
        self.backend = getattr(self.tokenizer, "backend_tokenizer", None)
        self.is_of_bytes = "ByteLevel" in repr(getattr(self.backend, "decoder", None))
        end = self.tokenizer.eos_token_id
        self.end_tokens: frozenset[int] = frozenset() if end is None else frozenset({end})

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        if not self.tokenizer.chat_template:
            raise ValueError(NO_TEMPLATE)
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template may raise whatever its author wrote
            said = " ".join(str(error).split())[:300]
            raise ValueError(f"the model's chat template refuses these: {said}") from None
        # the template has the special tokens already
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, tokens: list[int]) -> str:
        # A clean-up would change what a stream has sent before.
        if self.backend is not None:  # the tokenizer's own does the same in ten times the time
            return self.backend.decode(tokens, skip_special_tokens=False)
        return str(self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def bytes_of(self, token: int) -> bytes | None:
        if token in self.special:
            return None
        if token in self.added:
            return self.added[token].encode()
        piece = str(self.tokenizer.convert_ids_to_tokens(token) or "")
        if self.is_of_bytes and BYTE_OF.keys() >= {*piece}:
            return bytes(BYTE_OF[letter] for letter in piece)
        if re.fullmatch("<0x[0-9A-F]{2}>", piece):
            return bytes.fromhex(piece[3:5])
        # the second time there is a text before it, so that it has its space
        once, twice = self.decode([token]), self.decode([token, token])
        return twice.removeprefix(once).encode()


class Decoded:
    """The text of an answer that grows: what it adds to its prompt's text.

    Each time only its last tokens are decoded: decoding all would take longer with each token.
    A token may look different after another one, and a character may have several tokens. So
    two pieces are decoded together. The first is settled when the end is a whole character. At
    the beginning, it is the end of the prompt.

    marks: special tokens that are to be seen, each with what is put into the text for it. The
        others leave no trace.
    """

    def __init__(
        self, words: Words, prompt: Sequence[int] = (), marks: Mapping[int, str] = {}
    ):
        self.words, self.marks, self.settled = words, marks, ""
        self.tokens, self.begin = self._end_of(prompt), 0
        self.middle = len(self.tokens)  # between the two pieces that are decoded together

    def add(self, tokens: Iterable[int]) -> str:
        """Takes in further tokens. Returns the text of all, which may end with "\ufffd"."""
        for token in tokens:
            if token in self.marks:
                self._settle(self._new())
                self.settled += self.marks[token]
            elif token not in self.words.special:
                self.tokens.append(token)
        new = self._new()
        text = self.settled + new
        if new and not new.endswith("\ufffd"):
            self._settle(new)
        return text

    def _new(self) -> str:
        """The text of the second piece."""
        before = self.words.decode(self.tokens[self.begin : self.middle])
        after = self.words.decode(self.tokens[self.begin :])
        # A part of a character at the end of `before` may have become another text.
        return after[len(commonprefix([before, after])) :]

    def _settle(self, new: str) -> None:
        if new:
            self.settled, self.begin = self.settled + new, self.middle
            self.middle = len(self.tokens)

    def _end_of(self, prompt: Sequence[int]) -> list[int]:
        """As many of its last tokens as have a text that begins with a whole character."""
        size = CONTEXT
        while True:
            found = [each for each in prompt[-size:] if each not in self.words.special]
            text = self.words.decode(found)
            if size >= len(prompt) or (text and not text.startswith("\ufffd")):
                return found
            size *= 2


def marks_of(stop: list[str], special: Mapping[int, str]) -> tuple[dict[int, str], list[str]]:
    """Lets stop texts be found that hold special tokens, which are no part of a text.

    Each such token gets half of a surrogate pair for a mark, which no text has.

    Returns the marks by token, and the stop texts, with those that have marks.
    """
    marks: dict[int, str] = {}
    marked = list(stop)
    for token, name in sorted(special.items(), key=lambda item: -len(item[1])):
        if name and any(name in each for each in stop):
            mark = marks[token] = chr(0xD800 + len(marks))
            marked = [each.replace(name, mark) for each in marked]
    return marks, [*stop, *(each for each in marked if each not in stop)]


def without_marks(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "", text)


def words_of(folder: Path) -> Words:
    return Characters() if folder.resolve() == SMALL_MODEL else TokenizerWords(folder)


def without_end(tokens: list[int], ends: Iterable[int]) -> list[int]:
    """Leaves out the token that ended the answer."""
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens
