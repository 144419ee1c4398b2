"""How likely tokens were, and prompts that answers begin with, as OpenAI's API says it."""

import json
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.logprobs import PIECE, TokenLogprobs
from paged_attention.engine.serve.answer import Answer
from paged_attention.engine.serve.echo import Echo
from paged_attention.engine.serve.engine_thread import News
from paged_attention.engine.serve.scored_tokens import chat_form, completion_form
from paged_attention.engine.serve.token_text import TokenizerWords
from paged_attention.tiny_qwen3.tasks import encode
from serving import MODEL, RunningServer, body, head_of, wait_until
from tiny_checkpoints import KINDS, byte_level, checkpoint

QUESTION = [{"role": "user", "content": "naïve?"}]
CHATS = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server():
    with RunningServer() as running:
        yield running
        wait_until(running.is_free)


@pytest.fixture(scope="module")
def completions(server):
    return server.client().completions


@torch.inference_mode()
def by_transformers(text: str) -> torch.Tensor:
    """Of each character but the first, the whole vocabulary's log-probabilities."""
    logits = load_model()(input_ids=torch.tensor([encode(text)])).logits[0, :-1]
    return logits.float().log_softmax(-1)


# Completions


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 1.5, "top_p": 0.6, "seed": 5},
        {"temperature": 2, "seed": 5, "stop": ["7"]},
    ],
    ids=str,
)
def test_a_completion_has_the_models_own_whatever_the_temperature(completions, fields):
    for num_top in (0, 3):
        asked = {"prompt": "Cq7b>", "model": MODEL, "logprobs": num_top} | fields
        (choice,) = completions.create(**asked, echo=True).choices
        assert choice.text.startswith("Cq7b>")
        found, rows = choice.logprobs, by_transformers(choice.text)
        assert found.tokens == list(choice.text)
        assert found.text_offset == list(range(len(choice.text)))
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        each = zip(encode(choice.text)[1:], rows, found.token_logprobs[1:], strict=True)
        for token, row, logprob in each:
            assert logprob == pytest.approx(float(row[token]), abs=1e-3)
        each = zip(encode(choice.text)[1:], rows, found.top_logprobs[1:], strict=True)
        for token, row, top in each:
            likeliest = {int(other) for other in row.topk(num_top).indices}
            assert {*encode("".join(top))} == {token, *likeliest}
            for name, logprob in top.items():
                assert logprob == pytest.approx(float(row[encode(name)[0]]), abs=1e-3)


def test_without_an_echo_only_the_answer_is_told_of(completions):
    asked = {"model": MODEL, "prompt": "Cq7b>", "temperature": 0, "logprobs": 1}
    (whole,) = completions.create(**asked, echo=True).choices
    (choice,) = completions.create(**asked).choices
    assert choice.text == "q7b" and whole.text == "Cq7b>q7b"
    assert choice.logprobs.tokens == ["q", "7", "b"]  # and not the token that ended it
    assert choice.logprobs.text_offset == [0, 1, 2]
    assert choice.logprobs.token_logprobs == whole.logprobs.token_logprobs[5:]
    (unasked,) = completions.create(**asked | {"logprobs": None}, echo=True).choices
    assert unasked.text == whole.text and unasked.logprobs is None


@pytest.mark.parametrize("prompt", ["Cq7b>", [encode("Cq7b>"), encode("C")], ["Ca>", "Cb>"]])
def test_a_stream_says_the_same_piece_by_piece(completions, prompt):
    asked = {"model": MODEL, "prompt": prompt, "n": 2, "seed": 3, "max_tokens": 12}
    asked |= {"logprobs": 2, "echo": True, "stop": ["4b", "d"]}
    whole = completions.create(**asked).choices
    chunks = [chunk.choices[0] for chunk in completions.create(**asked, stream=True)]
    for index, choice in enumerate(whole):
        own = [chunk for chunk in chunks if chunk.index == index]
        assert "".join(chunk.text for chunk in own) == choice.text
        assert own[0].text.startswith(choice.text[:1])
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            told = [each for chunk in own for each in getattr(chunk.logprobs, name)]
            expected = getattr(choice.logprobs, name)
            assert told == expected if "prob" not in name else len(told) == len(expected)
        assert "".join(choice.logprobs.tokens) == choice.text
        for chunk in own:  # a token comes with its text
            assert "".join(chunk.logprobs.tokens) == chunk.text


LONG = {"prompt": "K" + "." * 400, "max_tokens": 1, "logprobs": 0, "echo": True}


def test_a_long_prompt_is_given_up_when_its_client_leaves():
    """It has four pieces, and the client leaves in the first one."""
    pieces, gate = [], threading.Event()

    def hook(module, given, named):
        if named.get("logits_to_keep") is None:  # no step of the engine
            pieces.append(named["input_ids"].shape)
            gate.wait(60)

    with RunningServer() as server:  # its own: other tests' clients leave connections open
        server.engine.runner.model.register_forward_pre_hook(hook, with_kwargs=True)
        sent = json.dumps({"model": MODEL} | LONG).encode()
        with server.connect() as client:
            client.sendall(head_of(len(sent)) + sent)
            wait_until(lambda: pieces)
        wait_until(lambda: not server.server._connections)
        gate.set()
        wait_until(server.is_free)
    assert pieces == [(1, PIECE)]


def test_a_model_that_fails_at_a_prompt_is_said(server):
    def hook(module, given, named):
        if named.get("logits_to_keep") is None:
            raise torch.OutOfMemoryError("the card is full")

    handle = server.engine.runner.model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        status, answer = server.ask({"model": MODEL} | LONG)
    finally:
        handle.remove()
    assert status == 500 and "the card is full" in answer["error"]["message"]
    assert server.ask({"model": MODEL} | LONG)[0] == 200


def test_a_prompt_that_is_refused_is_not_looked_at(server):
    sent = body("C" * 600, echo=True, logprobs=1)
    for stream in (False, True):
        status, answer = server.ask(sent | {"stream": stream})
        assert status == 400 and "has room for 512" in answer["error"]["message"]


# Chats


def test_a_chat_has_each_token_with_its_bytes(speaking):
    (choice,) = (
        speaking.client()
        .chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, logprobs=True, top_logprobs=2
        )
        .choices
    )
    assert choice.message.content == "the cat 😀" and choice.logprobs.refusal is None
    content = choice.logprobs.content
    names = [each.token for each in content]
    assert names == ["the", " cat", r" \xf0\x9f\x98", r"\x80"]  # no end token
    assert bytes(sum((each.bytes for each in content), [])).decode() == "the cat 😀"
    for each in content:
        first, second = each.top_logprobs
        assert (first.token, first.bytes) == (each.token, each.bytes)
        assert first.logprob == each.logprob > second.logprob
    usual = speaking.client().chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0
    )
    assert usual.choices[0].logprobs is None


def test_a_streamed_chat_has_each_token_with_its_text(speaking):
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 0, "n": 2}
    asked |= {"logprobs": True, "top_logprobs": 20}
    chats = speaking.client().chat.completions
    whole = chats.create(**asked).choices
    with speaking.paced():
        chunks = [chunk.choices[0] for chunk in chats.create(**asked, stream=True)]
    for index, choice in enumerate(whole):
        own = [chunk for chunk in chunks if chunk.index == index]
        told = [[each.token for each in chunk.logprobs.content] for chunk in own]
        # a part of a character comes with the text before it
        assert told == [["the"], [" cat"], [r" \xf0\x9f\x98"], [r"\x80"], []]
        assert sum(told, []) == [each.token for each in choice.logprobs.content]
        assert all(len(each.top_logprobs) == 20 for each in choice.logprobs.content)


@pytest.mark.parametrize(
    "fields, tokens",
    [({"stop": " cat"}, ["the"]), ({"stop": "at"}, ["the", " cat"]), ({"stop": "the"}, [])],
)
def test_a_token_is_told_of_where_some_of_its_text_was_sent(speaking, fields, tokens):
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 0, "logprobs": True}
    (choice,) = speaking.client().chat.completions.create(**asked, **fields).choices
    assert [each.token for each in choice.logprobs.content] == tokens


def test_a_special_token_has_a_name_and_no_bytes(tmp_path):
    words = byte_level()
    a, b, c = words.encode("abc")
    turn = words.convert_tokens_to_ids("<turn>")
    words.chat_template = "a"
    following = {a: turn, turn: b, b: c, c: words.eos_token_id}
    checkpoint(tmp_path, following, words)
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 0, "logprobs": True}
    with RunningServer(folder=tmp_path) as server:
        _, answer = server.ask(asked, CHATS)
        _, echoed = server.ask(body([a, turn, b], echo=True, logprobs=0))
    (choice,) = answer["choices"]
    told = [(each["token"], each["bytes"]) for each in choice["logprobs"]["content"]]
    assert told == [("<turn>", None), ("b", [98]), ("c", [99])]
    assert choice["message"]["content"] == "bc"
    (choice,) = echoed["choices"]
    assert (choice["text"], choice["logprobs"]["tokens"]) == ("abc", ["a", "<turn>", "b", "c"])
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"top_logprobs": 2}, "top_logprobs is for logprobs: true only"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs must be a whole number from 0"),
        ({"logprobs": 1}, "logprobs must be true or false"),
    ],
    ids=str,
)
def test_what_a_chat_cannot_be_asked_is_refused_by_name(speaking, fields, words):
    status, answer = speaking.ask({"model": MODEL, "messages": QUESTION} | fields, CHATS)
    assert status == 400 and words in answer["error"]["message"]
    assert answer["error"]["param"] in fields


# Any tokens, of any tokenizer


def told_of(words, tokens, cuts, stop=(), prompt=()) -> tuple[str, list[list], list[str]]:
    """The text of an answer that comes in pieces, what is told, and the text of each piece."""
    answer = Answer(list(prompt), list(stop), words, [], num_top=0)
    told, texts = [], []
    places = [0, *sorted(cuts), len(tokens)]
    for begin, end in zip(places, places[1:]):
        own = [TokenLogprobs(-1.0, [])] * (end - begin)
        reason = "length" if end == len(tokens) else None
        text, has_ended = answer.take(News(tokens[begin:end], reason, logprobs=own))
        texts.append(text)
        told.append(answer.tell())
        if has_ended:
            break
    return answer.text, told, texts


@settings(max_examples=40)
@given(text=st.text("aé世😀 the cat\n", max_size=12), data=st.data())
def test_the_bytes_of_all_tokens_are_the_text(byte_words, text, data):
    tokens = byte_words.encode(text)
    prompt = byte_words.encode(data.draw(st.text("aé世 ", max_size=4)))
    cuts = data.draw(st.lists(st.integers(0, len(tokens)), max_size=4))
    sent, told, texts = told_of(byte_words, tokens, cuts, prompt=prompt)
    flat = sum(told, [])
    assert sent == text and [each.token for each in flat] == tokens
    content = chat_form(flat, byte_words)["content"]
    assert bytes(sum((each["bytes"] for each in content), [])).decode() == text
    num_sent = 0
    for those, own in zip(told, texts):  # none comes before its text, and none too late
        assert all(num_sent <= each.offset for each in those)
        num_sent += len(own)
        assert all(each.offset < num_sent for each in those)


@settings(max_examples=30)
@given(data=st.data())
def test_each_token_of_an_answer_is_told_of_once_and_in_order(words, data):
    """Also where tokens are special, unknown, or parts of no character."""
    tokens = data.draw(st.lists(st.integers(0, len(words.tokenizer) + 2), max_size=14))
    cuts = data.draw(st.lists(st.integers(0, len(tokens)), max_size=4))
    sent, told, _ = told_of(words, tokens, cuts)
    flat = sum(told, [])
    assert [each.token for each in flat] == tokens
    offsets = [each.offset for each in flat]
    assert offsets == sorted(offsets) and all(each <= len(sent) for each in offsets)
    found = completion_form(flat, words)
    assert len(found["tokens"]) == len(tokens)
    for name in found["tokens"]:
        name.encode()  # a text, and no half of a surrogate pair


@pytest.mark.parametrize(
    "kind, text, names",
    [
        ("bytes", "the 😀", ["the", r"bytes: \xf0\x9f\x98", r"bytes:\x80"]),
        ("bytes for the rest", "the é", [" the", " ", r"bytes:\xc3", r"bytes:\xa9"]),
        ("▁ first", "the cat", [" the", " cat"]),
        ("pieces of words", "cats", [" cat", "s"]),
    ],
)
def test_a_token_has_a_name_by_each_kind_of_tokenizer(tmp_path, kind, text, names):
    KINDS[kind]().save_pretrained(tmp_path)
    words = TokenizerWords(tmp_path)
    _, told, _ = told_of(words, words.encode(text), [])
    assert completion_form(sum(told, []), words)["tokens"] == names


def test_an_added_token_is_as_it_was_added(tmp_path):
    tokenizer = byte_level()
    tokenizer.add_tokens(["é!"])  # which would be other letters as bytes
    tokenizer.save_pretrained(tmp_path)
    words = TokenizerWords(tmp_path)
    (token,) = words.encode("é!")
    assert words.bytes_of(token) == "é!".encode()


def test_a_prompt_that_ends_within_a_character_is_echoed_without_it(byte_words):
    first, second = byte_words.encode("ü")
    prompt = [*byte_words.encode("a"), first]
    echo = Echo(prompt, None, byte_words, None)
    answer = Answer(prompt, [], byte_words, [], echo=echo)
    assert answer.take(News([second], "length")) == ("aü", True)
