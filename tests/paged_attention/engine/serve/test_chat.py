"""Chats over HTTP: messages go through the model's own template, and OpenAI's client reads
the answer.
"""

import re

import pytest

from serving import MODEL, RunningServer
from tiny_checkpoints import byte_level, save_model_that_speaks

QUESTION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "naïve?"},
]


@pytest.fixture(scope="module")
def chats(speaking):
    return speaking.client().chat.completions


def test_openais_client_gets_a_message(chats):
    answer = chats.create(model=MODEL, messages=QUESTION, temperature=0)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "the cat 😀")
    assert (choice.finish_reason, choice.index, answer.model) == ("stop", 0, MODEL)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")


def test_the_messages_go_through_the_models_own_template(chats):
    tokenizer = byte_level()
    text = "<turn>system:Be brief.<turn>user:naïve?<turn>assistant:"
    answer = chats.create(model=MODEL, messages=QUESTION, temperature=0, max_tokens=3)
    expected = tokenizer.encode(text, add_special_tokens=False)
    assert answer.usage.prompt_tokens == len(expected)
    assert answer.usage.completion_tokens == 3 and answer.choices[0].finish_reason == "length"


def test_openais_client_streams_messages_side_by_side(chats):
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 0, "n": 2}
    whole = chats.create(**asked)
    with chats.create(**asked, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream
    for index in range(2):
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert "".join(choice.delta.content for choice in own) == "the cat 😀"
        assert [choice.delta.role for choice in own] == ["assistant"] + [None] * (len(own) - 1)
        assert [choice.finish_reason for choice in own] == [None] * (len(own) - 1) + ["stop"]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert last.choices == [] and last.usage == whole.usage


@pytest.mark.parametrize(
    "fields, text, reason",
    [
        ({"stop": " cat"}, "the", "stop"),
        ({"max_completion_tokens": 1}, "the", "length"),
        ({"max_tokens": 1}, "the", "length"),
        ({"max_tokens": 9, "max_completion_tokens": 1}, "the", "length"),
        ({"seed": 3, "temperature": 1e-9, "top_p": 0.5}, "the cat 😀", "stop"),
        ({"tools": [], "response_format": {"type": "text"}}, "the cat 😀", "stop"),
    ],
)
def test_what_the_client_may_set(speaking, fields, text, reason):
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 0} | fields
    status, answer = speaking.ask(asked, "/v1/chat/completions")
    (choice,) = answer["choices"]
    assert status == 200
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, reason)


def test_a_message_may_come_in_parts_and_a_developer_is_the_system(speaking):
    parts = [{"type": "text", "text": "na"}, {"type": "text", "text": "ïve?"}]
    messages = [QUESTION[0] | {"role": "developer"}, {"role": "user", "content": parts}]
    usages = [
        speaking.ask({"model": MODEL, "messages": each}, "/v1/chat/completions")[1]["usage"]
        for each in (QUESTION, messages)
    ]
    assert usages[0]["prompt_tokens"] == usages[1]["prompt_tokens"]


def one(**fields):
    return {"messages": [{"role": "user", "content": "a"} | fields]}


@pytest.mark.parametrize(
    "fields, words",
    [
        ({}, "messages is missing"),
        ({"messages": []}, "messages must be a list of one message or more"),
        ({"messages": ["hello"]}, "messages[0] must be an object"),
        ({"messages": [*QUESTION, {"role": "user"}]}, "messages[2] has no content"),
        (one(content=None), "messages[0] has no content"),
        (one(content=[]), "messages[0] has no content"),
        (one(role="king"), "has the role 'king'; it must be one of system"),
        (one(role="tool"), "is about a tool"),
        (one(tool_calls=[{"id": "1"}]), "is about a tool"),
        (one(content=[{"type": "image_url"}]), "a part of type 'image_url'"),
        (one(content=["a"]), "a part of type 'None'"),
        (one(content="no"), "template refuses these: not so"),
        (one(content="a" * 300), "context"),
        (one() | {"tools": [{"type": "function"}]}, "tools is not supported"),
        (one() | {"response_format": {"type": "json_object"}}, "response_format is not"),
        (one() | {"prompt": "a"}, "'prompt' is no argument of a chat"),
        (one() | {"max_completion_tokens": 0}, "max_completion_tokens must be"),
        (b'{"model": "small", "messages": [{"role": "user", "content": "\\ud800"}]}', "half"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_answered_is_refused_by_name(speaking, fields, words):
    asked = fields if isinstance(fields, bytes) else {"model": MODEL} | fields
    status, answer = speaking.ask(asked, "/v1/chat/completions")
    error = answer["error"]
    assert status == 400 and words in error["message"]
    assert error["type"] == "invalid_request_error"
    named = re.match(r"messages|the prompt|the model's chat template", error["message"])
    assert not named or error["param"] == "messages"


@pytest.mark.parametrize("template", [None, "{{ 1 / 0 }}"])
def test_a_model_whose_template_is_missing_or_wrong(tmp_path, template):
    save_model_that_speaks(tmp_path, template)
    with RunningServer(folder=tmp_path) as running:
        asked = {"model": MODEL, "messages": QUESTION}
        status, answer = running.ask(asked, "/v1/chat/completions")
    words = "template refuses these" if template else "no chat template"
    assert status == 400 and words in answer["error"]["message"]
