"""What the server answers without its engine, what it logs, and what it does not take."""

import asyncio
import json

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from paged_attention.engine.serve import server, settings
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.handlers import Handler
from paged_attention.engine.serve.server import make_server
from paged_attention.engine.serve.settings import Limits, Serving
from paged_attention.engine.serve.words import Characters
from serving_here import MODEL, Server, body, in_a_loop

SECONDS = 60  # more than any machine needs


@in_a_loop
async def test_models_are_listed_and_shown(monkeypatch):
    monkeypatch.setattr(settings.time, "time", lambda: 1234.9)
    about = {"id": MODEL, "object": "model", "created": 1234, "owned_by": "this server"}
    here = Server()
    listed = await here.ask(path="/v1/models")
    assert listed.status == 200
    assert json.loads(listed.data) == {"object": "list", "data": [about]}
    assert json.loads((await here.ask(path=f"/v1/models/{MODEL}")).data) == about


@in_a_loop
async def test_an_unknown_model_is_named_by_its_first_200_characters():
    client = await Server().ask(path=f"/v1/models/{'x' * 300}")
    assert client.status == 404 and client.error() == {
        "message": f"there is no model {'x' * 200!r}; this server has 'small'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@in_a_loop
async def test_its_health_has_the_number_of_its_requests():
    here = Server()
    await here.ask(body(n=3))
    client = await here.ask(path="/health")
    assert json.loads(client.data) == {"status": "ok", "requests": 3}


@in_a_loop
async def test_an_unknown_path_is_an_error_in_openais_form(caplog):
    client = await Server().ask(path=f"/{'y' * 300}")
    words = {"message": f"there is nothing at /{'y' * 199}", "type": "invalid_request_error"}
    assert client.status == 404 and client.error() == words | {"param": None, "code": None}
    assert not caplog.records and not {"Retry-After", "Connection"} & set(client.headers)


@pytest.mark.parametrize("path", ["/v1/completions", "/nothing"])
@in_a_loop
async def test_a_request_to_another_host_is_refused(path):
    here = Server()
    client = await here.ask(body(), path, Host=f"{'z' * 200}:80")
    words = f"this server is not called {'z' * 100!r} (--allowed-host)"
    assert (client.status, client.error()["message"]) == (403, words)
    assert not here.engine.asked


@in_a_loop
async def test_a_wrong_method_is_refused_in_tornados_words():
    client = await Server().ask(path="/v1/completions")
    assert (client.status, client.error()["message"]) == (405, "Method Not Allowed")


@in_a_loop
async def test_what_tornado_says_of_a_wrong_path_is_handed_on():
    client = await Server().ask(path="/v1/models/%ff")
    assert client.status == 400
    assert client.error()["message"] == r"Invalid unicode in url: b'\xff'"


@in_a_loop
async def test_an_error_without_words_gets_those_of_its_status(monkeypatch):
    monkeypatch.setattr(Handler, "get", lambda handler: handler.send_error(500), raising=False)
    client = await Server().ask(path="/v1/completions")
    assert client.error()["message"] == "Internal Server Error"
    assert client.error()["type"] == "server_error" and client.status == 500


@in_a_loop
async def test_an_unexpected_error_is_logged_and_no_word_of_it_is_sent(caplog):
    here = Server()
    here.engine.room, here.engine.error = 0, RuntimeError("a secret")
    client = await here.ask(body())
    assert (client.status, client.error()["message"]) == (500, "Internal Server Error")
    (record,) = caplog.records
    assert str(record.exc_info[1]) == "a secret"


@pytest.mark.parametrize("path", ["/v1/completions", "/health", "/v1/models", "/nothing"])
@pytest.mark.parametrize("length, is_refused", [(100, False), (101, True), ("1e9", False)])
@in_a_loop
async def test_a_body_that_is_too_large_is_refused_before_it_comes(path, length, is_refused):
    here = Server(body=100)
    client = await here.ask([], path, "POST", is_whole=False, Content_Length=str(length))
    if is_refused:
        assert client.status == 413 and client.headers["Connection"] == "close"
        assert client.error()["message"] == "a request may have 100 bytes"
    else:
        assert client.status == (404 if path == "/nothing" else 0)


@pytest.mark.parametrize("status, may_pass", [(429, True), (503, True), (500, False)])
@in_a_loop
async def test_an_error_that_may_pass_says_when_to_try_again(monkeypatch, status, may_pass):
    def get(handler):
        raise ApiError(status, "words")

    monkeypatch.setattr(Handler, "get", get, raising=False)
    client = await Server().ask(path="/v1/completions")
    assert client.status == status
    assert client.headers.get("Retry-After") == ("1" if may_pass else None)


@pytest.mark.parametrize(
    "status, kind",
    [
        (400, "invalid_request_error"),
        (429, "rate_limit_error"),
        (499, "invalid_request_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_each_status_has_its_kind_of_error(status, kind):
    error = ApiError(status, "words", "n", "a code")
    body = {"message": "words", "type": kind, "param": "n", "code": "a code"}
    assert error.body() == {"error": body} and str(error) == "words"
    assert ApiError(status, "words").body()["error"] == body | {"param": None, "code": None}


KNOWN = [
    ("localhost", False, True),
    ("LocalHost", False, True),
    ("127.0.0.1", False, True),
    ("[::1]", False, True),
    ("192.168.0.7", False, False),
    ("evil.example", False, False),
    ("192.168.0.7", True, True),
    ("[fe80::1]", True, True),
    ("evil.example", True, False),
    ("localhost", True, True),
]


@pytest.mark.parametrize("name, any_address, is_known", KNOWN)
def test_it_answers_to_its_own_names_only(name, any_address, is_known):
    here = Serving(None, None, MODEL, Limits(), any_address=any_address)
    assert here.knows_host(name) is is_known


def test_it_does_not_answer_to_an_address_that_it_was_not_given():
    here = Serving(None, None, MODEL, Limits(), frozenset({"here"}))
    assert here.knows_host("HERE") is True and here.knows_host("10.0.0.1") is False


class Stream:
    """A connection that was just opened."""

    def __init__(self):
        self.data, self.is_open, self.taken = b"", True, asyncio.Future()

    def write(self, data):
        self.data += data
        return self.taken

    def close(self):
        self.is_open = False


@in_a_loop
async def test_one_connection_too_many_hears_why_and_is_closed(monkeypatch):
    taken = []
    monkeypatch.setattr(HTTPServer, "handle_stream", lambda *given: taken.append(given))
    made = make_server(Server(connections=2).serving)
    made._connections.add("one")
    stream = Stream()
    made.handle_stream(stream, "its address")
    assert taken == [(made, stream, "its address")] and stream.data == b""
    made._connections.add("two")
    made.handle_stream(stream, "its address")
    assert len(taken) == 1 and stream.is_open
    assert stream.data.startswith(b"HTTP/1.1 503 ") and stream.data.endswith(b"\r\n\r\n")
    stream.taken.set_result(None)
    await asyncio.sleep(0)
    assert not stream.is_open


async def answered(limits: dict, words: bytes) -> bytes:
    """All that a server says over a socket until it closes the connection."""
    made = make_server(Server(**limits).serving)
    (listening,) = bind_sockets(0, "127.0.0.1")
    made.add_sockets([listening])
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(words)
        try:
            return await asyncio.wait_for(reader.read(), SECONDS)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
    finally:
        made.stop()
        await made.close_all_connections()


HEAD = b"%s /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


@pytest.mark.parametrize("size, is_answered", [(16_000, True), (17_000, False)])
@in_a_loop
async def test_headers_have_16_kib(size, is_answered):
    words = HEAD % b"GET" + b"X-More: %s\r\n\r\n" % (b"x" * size)
    assert (b"200 OK" in await answered({}, words)) is is_answered


@in_a_loop
async def test_a_limit_of_tornados_own_does_not_come_first():
    words = HEAD % b"POST" + b"Content-Length: %d\r\n\r\n" % 10**12
    assert b"a request may have 1,048,576 bytes" in await answered({}, words)
    limits = {"body": 10**12, "body_seconds": 1e-9}
    assert await answered(limits, words) == b""  # it would be taken, if it came


@pytest.mark.parametrize(
    "limits, words",
    [
        ({"body_seconds": 1e-9}, HEAD % b"POST" + b"Content-Length: 9\r\n\r\n"),
        ({"idle_seconds": 1e-9}, b""),
    ],
    ids=["a body", "a request"],
)
@in_a_loop
async def test_a_request_that_does_not_come_in_time_is_not_waited_for(limits, words):
    assert await answered(limits, words) == b""


def test_the_engines_thread_takes_as_many_requests_as_the_limits_say(monkeypatch):
    monkeypatch.setattr(server, "EngineThread", lambda *given: given)
    words, limits = Characters(), Limits(requests=7)
    made = server.start("an engine", words, "its name", limits, any_address=True)
    assert made.engine == ("an engine", 7) and made.words is words
    assert (made.model, made.limits, made.any_address) == ("its name", limits, True)
