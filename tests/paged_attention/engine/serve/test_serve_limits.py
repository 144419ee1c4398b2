"""What a client can do to the server: too much, too slowly, and leave at a bad moment."""

import asyncio
import json
import resource
import socket

import pytest

from paged_attention.engine.serve.server import Limits
from serving import MODEL, RunningServer, body, wait_until

CHUNKED = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    running = RunningServer(Limits(send_seconds=0.5, body=100_000), send_buffer=4096)
    yield running
    running.stop()


def response(connection: socket.socket) -> tuple[int, dict]:
    """The status and the JSON of the only answer on a connection."""
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
        chunk = connection.recv(65536)
        assert chunk, f"closed after {data!r}"
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest)


def test_a_body_in_chunks_that_is_too_large_is_thrown_away(server):
    """100 MB, in which the body's length comes last."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with server.connect() as client:
        client.sendall(CHUNKED % b"/v1/completions")
        for _ in range(100):
            client.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        status, answer = response(client)
    assert status == 413 and "100,000 bytes" in answer["error"]["message"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50 << 10  # KiB
    assert server.ask(body())[0] == 200


def test_a_body_in_chunks_is_taken(server):
    text = json.dumps(body()).encode()
    with server.connect() as client:
        client.sendall(CHUNKED % b"/v1/completions")
        for part in (text[:5], text[5:]):
            client.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        client.sendall(b"0\r\n\r\n")
        status, answer = response(client)
    assert (status, answer["choices"][0]["text"]) == (200, "q7b")


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nothing"])
def test_other_paths_take_no_large_body_either(server, path):
    with server.connect() as client:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**8}\r\n\r\n"
        client.sendall(head.encode())
        assert response(client)[0] == 413


def test_one_that_reads_nothing_is_dropped_in_time(server):
    """Its buffers are small here, so that they fill soon."""
    asked = {"model": MODEL, "prompt": "K..", "max_tokens": 400, "n": 16, "stream": True}
    text = json.dumps(asked)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(text), text.encode())
        )
        wait_until(lambda: server.engine.requests)
        wait_until(lambda: server.is_free() and not server.server._connections)


def test_the_last_news_may_come_with_the_end_of_the_connection(server, caplog):
    """A client that leaves in the same moment is no error."""

    class Leaving(asyncio.Queue):
        async def get(self):
            what = await super().get()
            if what is not None and what[1].reason:
                handlers[0].on_connection_close()
            return what

    handlers = []
    (rule,) = [
        each
        for each in server.server.request_callback.wildcard_router.rules
        if each.matcher.regex.match("/v1/completions")
    ]
    completions = rule.target

    class Handler(completions):
        def initialize(self, serving):
            super().initialize(serving)
            self.news = Leaving()
            handlers.append(self)

    rule.target = Handler
    try:
        assert server.ask(body())[0] == 200
    finally:
        rule.target = completions
    assert not caplog.records
    wait_until(server.is_free)


@pytest.mark.parametrize("size, is_answered", [(10_000, True), (40_000, False)])
def test_headers_have_a_limit(server, size, is_answered):
    with server.connect() as client:
        words = f"GET /health HTTP/1.1\r\nHost: localhost\r\nX-More: {'x' * size}\r\n\r\n"
        client.sendall(words.encode())
        answer = client.recv(100)
    assert answer.startswith(b"HTTP/1.1 200 ") == is_answered
    assert server.ask(None, "/health")[0] == 200
