"""What a client can do to the server: too much, too slowly, and leave at a bad moment."""

import asyncio
import json
import resource
import socket

import pytest

from paged_attention.engine.serve.server import Limits
from serving import MODEL, RunningServer, body, head_of, wait_until

CHUNKED = head_of(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


@pytest.fixture(scope="module")
def server():
    limits = Limits(send_seconds=0.5, body=100_000)
    with RunningServer(limits, send_buffer=4096) as running:
        yield running


def chunk_of(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_a_body_in_chunks_that_is_too_large_is_thrown_away(server):
    """100 MB, in which the body's length comes last."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunks = [chunk_of(bytes(1 << 20))] * 100
    status, answer = server.answered(CHUNKED, *chunks, chunk_of(b""))
    assert status == 413 and "100,000 bytes" in answer["error"]["message"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50 << 10  # KiB
    assert server.ask(body())[0] == 200


def test_a_body_in_chunks_is_taken(server):
    text = json.dumps(body()).encode()
    status, answer = server.answered(CHUNKED, *map(chunk_of, (text[:5], text[5:], b"")))
    assert (status, answer["choices"][0]["text"]) == (200, "q7b")


def test_one_that_reads_nothing_is_dropped_in_time(server):
    """Its buffers are small here, so that they fill soon."""
    asked = {"model": MODEL, "prompt": "K..", "max_tokens": 400, "n": 16, "stream": True}
    text = json.dumps(asked).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(head_of(len(text)) + text)
        wait_until(lambda: server.engine.requests)
        wait_until(lambda: server.is_free() and not server.server._connections)


def test_the_last_news_may_come_with_the_end_of_the_connection(server, caplog):
    """A client that leaves in the same moment is no error."""

    class Leaving(asyncio.Queue):
        def get_nowait(self):
            what = super().get_nowait()
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
