"""A completion: what the engine is asked, what the client gets, when it is cancelled."""

import asyncio
import json

import pytest

from paged_attention.engine.request import RequestError
from paged_attention.engine.serve.engine_thread import QueueFullError, StoppedError
from paged_attention.tiny_qwen3.tasks import encode
from serving_here import MODEL, Server, body, in_a_loop, settle

ERROR = RuntimeError("the card is hot")
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def only_this_test_runs() -> bool:
    """No handler is left that waits for something."""
    return asyncio.all_tasks() == {asyncio.current_task()}


@in_a_loop
async def test_each_answer_to_each_prompt_is_a_request_with_a_seed_of_its_own():
    server = Server()
    await server.ask(body(["Cab>", encode("Vab>")], n=2, seed=5, max_tokens=7, top_p=0.5))
    asked = [(prompt, params.seed) for prompt, params, _ in server.engine.asked]
    first, second = encode("Cab>"), encode("Vab>")
    assert asked == [(first, 5), (first, 6), (second, 5), (second, 6)]
    for _, params, _ in server.engine.asked:
        assert (params.max_new_tokens, params.temperature, params.top_p) == (7, 1.0, 0.5)


@in_a_loop
async def test_a_whole_answer_comes_when_its_last_part_has_ended():
    server = Server()
    client = await server.ask(body(["ab", "c"], n=2))
    for number, text, reason in (
        (2, "x", None),
        (0, "a1", "length"),
        (2, "y", "length"),
        (3, "b$", "length"),  # a token that does not end it here
    ):
        await server.tell(number, text, reason)
        assert not client.is_finished and client.data == b""
    await server.tell(1, "z$", "end")
    assert client.is_finished and client.status == 200
    answer = json.loads(client.data)
    assert answer["id"].startswith("cmpl-") and isinstance(answer["created"], int)
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)
    assert answer["choices"] == [
        {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
        for index, (text, reason) in enumerate(
            [("a1", "length"), ("z", "stop"), ("xy", "length"), ("b$", "length")]
        )
    ]
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 8,
        "total_tokens": 11,
    }
    assert only_this_test_runs()


@in_a_loop
async def test_a_stop_text_ends_its_request_and_the_others_go_on():
    server = Server()
    client = await server.ask(body(["ab", "ab"], stop="x"))
    await server.tell(0, "axb")
    assert server.engine.cancelled == [0]
    await server.tell(0, "c")  # the engine was a step ahead
    await server.tell(1, "b")
    assert server.engine.cancelled == [0] and not client.is_finished
    await server.tell(1, "c", "length")
    choices = json.loads(client.data)["choices"]
    found = [(choice["text"], choice["finish_reason"]) for choice in choices]
    assert found == [("a", "stop"), ("bc", "length")]


@in_a_loop
async def test_a_stream_sends_each_part_as_soon_as_it_comes():
    server = Server()
    client = await server.ask(body(["ab", "ab"], **WITH_USAGE, stop=["yz"]))
    parts = [
        (0, "q", None, "q"),
        (1, "r", None, "r"),
        (0, "y", None, None),  # this may become the stop text
        (0, "w", None, "yw"),
        (1, "$", "end", ""),
        (0, "v", "length", "v"),
    ]
    shown = []
    for number, text, reason, sent in parts:
        assert not client.is_finished
        await server.tell(number, text, reason)
        reason = reason and {"end": "stop"}.get(reason, reason)
        if sent is not None:
            choice = {"index": number, "text": sent, "logprobs": None}
            shown.append([choice | {"finish_reason": reason}])
        assert [event["choices"] for event in client.events()][: len(shown)] == shown
    *events, last = client.events()
    assert len(events) == len(shown) and all(event["usage"] is None for event in events)
    usage = {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
    assert (last["choices"], last["usage"]) == ([], usage)
    assert len({(each["id"], each["object"], each["model"]) for each in client.events()}) == 1
    assert client.is_finished and client.data.endswith(b"data: [DONE]\n\n")
    assert client.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert client.headers["Cache-Control"] == "no-cache"
    assert only_this_test_runs()


@in_a_loop
async def test_a_stream_has_the_numbers_of_tokens_only_where_they_were_asked_for():
    server = Server()
    client = await server.ask(body(stream=True))
    await server.tell(0, "a", "length")
    (event,) = client.events()
    assert "usage" not in event and event["choices"][0]["text"] == "a"
    assert client.data.endswith(b"data: [DONE]\n\n") and client.is_finished


@pytest.mark.parametrize("is_stream", [False, True])
@in_a_loop
async def test_an_answer_that_fails_before_its_first_word_has_the_errors_status(is_stream):
    server = Server()
    client = await server.ask(body(stream=is_stream))
    await server.tell(0, "", error=ERROR)
    assert client.status == 500 and client.is_finished
    assert client.error()["message"] == "the engine failed: RuntimeError: the card is hot"
    assert client.headers["Content-Type"].startswith("application/json")
    assert "Cache-Control" not in client.headers


@pytest.mark.parametrize("num_events", [1, 2])
@in_a_loop
async def test_a_stream_that_fails_later_says_so_in_its_last_event(num_events):
    server = Server()
    client = await server.ask(body(["a", "b"], stream=True))
    for _ in range(num_events):
        await server.tell(0, "a")
    await server.tell(1, "", "not finite")
    *events, last = client.events()
    assert len(events) == num_events and client.status == 200 and client.is_finished
    assert last["error"]["code"] == "not finite" and b"[DONE]" not in client.data
    assert set(server.engine.cancelled) == {0, 1}


@pytest.mark.parametrize(
    "error, status, code",
    [
        (QueueFullError("2 are waiting"), 429, "queue_full"),
        (StoppedError("it is ending"), 503, "server_is_ending"),
    ],
)
@in_a_loop
async def test_if_there_is_no_room_for_one_request_the_others_are_cancelled(
    error, status, code
):
    server = Server()
    server.engine.room, server.engine.error = 2, error
    client = await server.ask(body(n=3))
    assert (client.status, client.error()["code"]) == (status, code)
    assert client.error()["message"] == str(error) and client.headers["Retry-After"] == "1"
    assert server.engine.cancelled == [0, 1] and only_this_test_runs()


@in_a_loop
async def test_a_prompt_that_the_engine_refuses_is_named():
    server = Server()
    client = await server.ask(body())
    await server.tell(0, "", error=RequestError("request 7 is too long for request 8"))
    assert client.status == 400 and client.error()["param"] == "prompt"
    assert client.error()["message"] == "the prompt is too long for request 8"


@in_a_loop
async def test_a_prompt_without_tokens_asks_nothing_of_the_engine():
    server = Server()
    client = await server.ask(body(["ab", "É"]))
    assert client.status == 400 and client.error()["param"] == "prompt"
    assert client.error()["message"].startswith("prompt: the model knows the characters")
    assert not server.engine.asked


@in_a_loop
async def test_an_unknown_model_is_refused():
    server = Server()
    client = await server.ask(body() | {"model": "gpt"})
    assert (client.status, client.error()["code"]) == (404, "model_not_found")
    assert not server.engine.asked


@pytest.mark.parametrize("more, status", [(0, 200), (1, 413)])
@pytest.mark.parametrize("is_known", [True, False], ids=["length", "chunks"])
@in_a_loop
async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(is_known, more, status):
    text = json.dumps(body()).encode()
    server = Server(body=len(text) - more)
    pieces = [text[begin : begin + 10] for begin in range(0, len(text), 10)]
    length = {"Content_Length": str(len(text))} if is_known else {}
    client = await server.ask(pieces, **length)
    if status == 200:
        await server.tell(0, "a", "length")
    assert client.status == status and len(server.engine) == (status == 200)
    if status == 413:
        assert client.error()["message"] == f"a request may have {len(text) - 1:,} bytes"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("text", ["", "a"], ids=["before a word", "after one"])
@in_a_loop
async def test_a_client_that_leaves_cancels_its_requests_and_is_no_error(
    caplog, is_stream, text
):
    server = Server()
    client = await server.ask(body(n=2, stream=is_stream))
    await server.tell(0, text)
    assert not server.engine.cancelled
    client.close()
    await settle()
    assert set(server.engine.cancelled) == {0, 1} and only_this_test_runs()
    assert not caplog.records


@in_a_loop
async def test_a_client_that_leaves_before_it_takes_an_event_is_not_waited_for():
    server = Server(send_seconds=3600.0)
    client = await server.ask(body(stream=True))
    client.takes = False
    await server.tell(0, "a")
    client.close()
    await settle()
    assert server.engine.cancelled == [0]


@in_a_loop
async def test_a_client_that_takes_an_event_too_late_is_sent_nothing_more():
    server = Server(send_seconds=0.0)
    client = await server.ask(body(stream=True))
    client.takes = False
    for _ in range(3):
        server.say(0, "a")
    await settle()
    assert not client.is_open and len(client.events()) == 1
    assert 0 in server.engine.cancelled and only_this_test_runs()


@in_a_loop
async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing():
    server = Server()
    client = await server.ask([b"{"], is_whole=False, Content_Length="100")
    client.close()
    await settle()
    assert only_this_test_runs() and not server.engine.asked and client.data == b""
