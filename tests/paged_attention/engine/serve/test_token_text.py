"""The text of an answer: what it adds to its prompt, by transformers, however it comes."""

from os.path import commonprefix

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import SMALL_MODEL
from paged_attention.engine.serve.answer import Answer
from paged_attention.engine.serve.engine_thread import News
from paged_attention.engine.serve.token_text import Characters, Decoded, words_of
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.tiny_qwen3.tasks import encode
from serving import RunningServer, body
from tiny_checkpoints import byte_level, bytes_for_the_rest, checkpoint


def text_of(words, tokens) -> str:
    return words.tokenizer.decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def continuation(words, prompt, tokens) -> str:
    """What transformers' text of both has after that of the prompt."""
    before, both = text_of(words, prompt), text_of(words, prompt + tokens)
    return both[len(commonprefix([before, both])) :]


def streamed(answer: Answer, pieces: list[list[int]], reason: str) -> str:
    """All that is sent of an answer whose tokens come in these pieces."""
    sent = ""
    for number, tokens in enumerate(pieces):
        new, has_ended = answer.take(
            News(tokens, reason if number == len(pieces) - 1 else None)
        )
        sent += new
        if has_ended:
            break
    assert sent == answer.text
    return sent


def cut(data, tokens: list[int]) -> list[list[int]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
    return [tokens[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(tokens)])]


@settings(max_examples=40)
@given(data=st.data())
def test_what_was_sent_is_the_continuation_of_the_prompt(words, data):
    """Of any tokens, also special ones and some that the tokenizer does not know."""
    some = st.lists(st.integers(0, len(words.tokenizer) + 2), max_size=14)
    prompt, tokens = data.draw(some), data.draw(some)
    expected = continuation(words, prompt, tokens)
    sent = streamed(Answer(prompt, [], words, []), cut(data, tokens), "length")
    if "\ufffd" in expected + sent:
        # Bytes that are no character: their number decides how many signs replace them.
        # What is before them is the same.
        expected, sent = expected.partition("\ufffd")[0], sent.partition("\ufffd")[0]
        assert expected.startswith(sent) or sent.startswith(expected)
    else:
        assert sent == expected


@settings(max_examples=40)
@given(data=st.data())
def test_a_stop_text_is_found_in_the_continuation(words, data):
    """Also one that begins with a space, and one that is a special token."""
    alphabet = [token for token in range(len(words.tokenizer)) if token not in (0, 1, 2)]
    prompt = data.draw(st.lists(st.sampled_from(alphabet), min_size=1, max_size=6))
    tokens = data.draw(st.lists(st.sampled_from(alphabet), max_size=14))
    text = continuation(words, prompt, tokens)
    if "\ufffd" in text or "\ufffd" in text_of(words, prompt):
        return
    stop = data.draw(st.sampled_from([" ", " t", " the", "at", "<turn>", "t<turn>"]))
    sent = streamed(Answer(prompt, [stop], words, []), [[each] for each in tokens], "length")
    turn = words.tokenizer.convert_tokens_to_ids("<turn>")
    if "<turn>" not in stop:
        assert sent == text.partition(stop)[0]
    elif stop == "<turn>" and turn in tokens:
        assert sent == continuation(words, prompt, tokens[: tokens.index(turn)])
    elif turn not in tokens:
        assert sent == text


def test_a_stop_text_may_hold_a_special_token_and_more(byte_words):
    turn = byte_words.tokenizer.convert_tokens_to_ids("<turn>")
    cat, mat = byte_words.encode(" cat"), byte_words.encode(" mat")
    for stop, sent, reason in (
        ("<turn>", " cat", "stop"),
        ("cat<turn>", " ", "stop"),
        ("<turn> m", " cat", "stop"),
        ("<turn> x", " cat mat", "length"),
        ("mat<turn>", " cat mat", "length"),
        ("urn", " cat mat", "length"),  # within the token's name, which is no text
    ):
        answer = Answer(byte_words.encode("the"), [stop], byte_words, [])
        tokens = [*cat, turn, *mat]
        assert streamed(answer, [[each] for each in tokens], "length") == sent
        assert answer.reason == reason
    typed = [byte_words.encode(letter) for letter in "<turn>"]
    answer = Answer([], ["<turn>"], byte_words, [])
    assert streamed(answer, typed, "length") == "" and answer.reason == "stop"


def test_a_long_answer_is_not_decoded_again_and_again():
    lengths = []

    class Counted(Characters):
        @staticmethod
        def decode(tokens):
            lengths.append(len(tokens))
            return Characters.decode(tokens)

    decoded = Decoded(Counted(), [5] * 1000)
    for _ in range(1000):
        text = decoded.add([7])
    assert text == Characters.decode([7]) * 1000 and max(lengths) < 16


@pytest.mark.parametrize(
    "text, reason, shown, finish",
    [("b$", "end", "b", "stop"), ("b$", "length", "b$", "length"), ("$", "end", "", "stop")],
)
def test_only_the_token_that_ended_an_answer_is_left_out_of_its_text(
    text, reason, shown, finish
):
    answer = Answer(encode("Cab>"), [], Characters(), encode("$"))
    assert streamed(answer, [encode("a$"), encode(text)], reason) == f"a${shown}"
    assert answer.reason == finish
    assert answer.tokens == encode(f"a${text}")  # it counts all the same


# Whole servers


def chain(tokens: list[int]) -> dict[int, int]:
    return dict(zip(tokens, tokens[1:] + tokens[:1]))


def asked(folder, prompt: str, *each: dict) -> list[tuple[str, str]]:
    """The text and the reason of a completion with each of these fields, also as a stream."""
    found = []
    with RunningServer(folder=folder) as server:
        completions = server.client().completions
        for fields in each:
            fields = body(prompt, **fields)
            (choice,) = completions.create(**fields).choices
            parts = [part.choices[0] for part in completions.create(**fields, stream=True)]
            assert "".join(part.text for part in parts) == choice.text
            assert parts[-1].finish_reason == choice.finish_reason
            found.append((choice.text, choice.finish_reason))
    return found


def test_an_end_token_that_only_the_tokenizer_names_ends_an_answer(tmp_path):
    words = byte_level()
    a, b, c = words.encode("abc")
    turn = words.convert_tokens_to_ids("<turn>")
    checkpoint(tmp_path, chain([a, b, turn, c, words.eos_token_id]), words)
    stops = [{}, {"stop": ["<turn>"]}, {"stop": ["b<turn>c"]}, {"max_tokens": 2}]
    expected = [("bc", "stop"), ("b", "stop"), ("", "stop"), ("b", "length")]
    assert asked(tmp_path, "a", *stops) == expected


def test_a_completion_goes_on_where_its_prompt_ends(tmp_path):
    """With a tokenizer that leaves out the space before a text's first word."""
    words = bytes_for_the_rest()
    the, cat = words.convert_tokens_to_ids(["▁the", "▁cat"])
    checkpoint(tmp_path, chain([the, cat, words.eos_token_id]), words, eos_token_id=2)
    assert asked(tmp_path, "the", {}, {"stop": " cat"}) == [(" cat", "stop"), ("", "stop")]


def test_the_small_model_has_its_characters_by_any_path():
    for folder in (SMALL_MODEL, SMALL_MODEL / ".." / SMALL_MODEL.name):
        assert words_of(folder).encode("Cab>") == encode("Cab>")


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    for saved, words in (
        (None, "holds no tokenizer; save it there too"),
        ("{", "the tokenizer in .* could not be read"),
        (pointer, "tokenizer.json .* only Git LFS's pointer"),
    ):
        if saved:
            (tmp_path / "tokenizer.json").write_text(saved)
        with pytest.raises(UnsupportedModelError, match=words):
            words_of(tmp_path)
