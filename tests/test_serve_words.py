"""The text of an answer that grows is the text of all its tokens."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.engine.serve import __main__ as command
from paged_attention.engine.serve.settings import Limits
from paged_attention.engine.serve.words import (
    Characters,
    Decoded,
    TokenizerWords,
    without_end,
    words_of,
)

TEXTS = ["the cat sat on the mat", "naïve café, déjà vu", "世界 你好 😀😃", "a  b\nc"] * 3


def trained() -> PreTrainedTokenizerFast:
    """Tokens of bytes, as most models have them: a character may have several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<end>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    trained().save_pretrained(folder)
    return TokenizerWords(folder)


@given(text=st.text("aé世😀 the\n", max_size=12), data=st.data())
def test_it_is_the_text_of_all_tokens_however_they_come(words, text, data):
    tokens = words.encode(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
    decoded, shown = Decoded(words), ""
    for begin, end in zip([0, *cuts], [*cuts, len(tokens)]):
        shown = decoded.add(tokens[begin:end])
        assert shown.rstrip("\ufffd") == words.decode(tokens[:end]).rstrip("\ufffd")
    assert shown == text


def test_a_token_without_a_text_is_no_beginning():
    """Some tokenizers leave out the space before the first word, and only there."""

    class Spaces:
        def decode(self, tokens):
            return "".join(("", " cat")[token] for token in tokens).removeprefix(" ")

    decoded = Decoded(Spaces())
    assert [decoded.add([token]) for token in (1, 0, 1, 0, 0, 1)] == [
        *("cat", "cat", "cat cat", "cat cat", "cat cat"),
        "cat cat cat",
    ]


def test_tokens_for_the_model_alone_are_no_text(words):
    tokens = words.encode("the cat")
    assert words.decode([*tokens, *words.encode("<end>")]) == "the cat"
    assert isinstance(words_of(SMALL_MODEL), Characters)
    assert words_of(SMALL_MODEL).decode(words_of(SMALL_MODEL).encode("Cab>")) == "Cab>"


def test_a_folder_has_the_words_of_its_tokenizer(tmp_path):
    trained().save_pretrained(tmp_path)
    found = words_of(tmp_path)
    assert found.decode(found.encode("the mat")) == "the mat"


def test_a_long_answer_is_not_decoded_again_and_again():
    lengths = []

    class Counted(Characters):
        @staticmethod
        def decode(tokens):
            lengths.append(len(tokens))
            return Characters.decode(tokens)

    decoded = Decoded(Counted())
    for _ in range(1000):
        text = decoded.add([7])
    assert text == Characters.decode([7]) * 1000 and max(lengths) == 2


def test_only_the_token_that_ended_an_answer_is_left_out():
    for tokens, left in (
        ([], []),
        ([7], [7]),
        ([9], []),
        ([9, 7], [9, 7]),
        ([7, 9, 9], [7, 9]),
    ):
        assert without_end(tokens, {8, 9}) == left


def test_each_option_of_the_command_says_what_it_is(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    shown = capsys.readouterr().out.partition("options:")[2]
    options = re.findall(
        r"^  (?:-h, )?(--[\w-]+)(?: [A-Z]\S*)?(?: \[[^]]*\])?(?:\n? {2,}(\S.*))?", shown, re.M
    )
    assert len(options) >= 11 and all(words for _, words in options), options


def test_the_server_that_nothing_is_said_about():
    assert vars(command._arguments([])) == {
        "model": SMALL_MODEL,
        "name": None,
        "host": "127.0.0.1",
        "port": 8000,
        "allowed_host": [],
        "requests": 512,
        "connections": 1000,
        "body_seconds": 20.0,
        "num_blocks": 1024,
        "max_num_seqs": 64,
    }
    limits = Limits()
    assert (limits.body, limits.body_seconds, limits.send_seconds) == (1 << 20, 20.0, 30.0)
    assert (limits.idle_seconds, limits.connections, limits.requests) == (60.0, 1000, 512)


@pytest.mark.parametrize("name", ["requests", "connections", "num-blocks", "body-seconds"])
def test_nothing_can_be_none_of_it(name, capsys):
    for value in ("0", "-1"):
        with pytest.raises(SystemExit, match="2"):
            command._arguments([f"--{name}", value])
        assert f"--{name} must be more than 0" in capsys.readouterr().err


def test_options_are_read_as_what_they_are():
    options = {
        "port": 0,
        "requests": 7,
        "connections": 9,
        "num_blocks": 11,
        "max_num_seqs": 13,
    }
    words = [
        word
        for name, value in (options | {"body_seconds": 2.5}).items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    read = vars(command._arguments([*words, "--model", "here", "--allowed-host", "a", "b"]))
    assert all(read[name] == value for name, value in options.items())
    assert (read["body_seconds"], read["model"], read["allowed_host"]) == (
        2.5,
        Path("here"),
        ["a", "b"],
    )
