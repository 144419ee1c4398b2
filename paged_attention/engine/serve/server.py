"""OpenAI's APIs of completions and chats on tornado, and a limit of connections."""

import sys

from tornado.httpserver import HTTPServer
from tornado.web import Application

from paged_attention.engine.engine import Engine
from paged_attention.engine.serve.chats import Chats
from paged_attention.engine.serve.completions import Completions
from paged_attention.engine.serve.engine_thread import EngineThread
from paged_attention.engine.serve.handlers import Health, Models, NotFound, Page
from paged_attention.engine.serve.pool import Player, Pool
from paged_attention.engine.serve.settings import Limits, Serving
from paged_attention.engine.serve.token_text import Words

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n"
)


class LimitedServer(HTTPServer):
    """Refuses connections above a number at once, before anything is read."""

    most_connections: int

    def handle_stream(self, stream, address) -> None:
        if len(self._connections) >= self.most_connections:
            stream.write(REFUSAL).add_done_callback(lambda _: stream.close())
            return
        super().handle_stream(stream, address)


def make_server(serving: Serving) -> LimitedServer:
    given = {"serving": serving}
    application = Application(
        [
            (r"/", Page, given),
            (r"/v1/chat/completions", Chats, given),
            (r"/v1/completions", Completions, given),
            (r"/v1/models", Models, given),
            (r"/v1/models/(.+)", Models, given),
            (r"/health", Health, given),
            (r"/pool", Pool, given),
            (r"/player\.(js|css)", Player, given),
        ],
        default_handler_class=NotFound,
        default_handler_args=given,
        log_function=lambda handler: None,
    )
    limits = serving.limits
    server = LimitedServer(
        application,
        max_header_size=1 << 14,
        max_body_size=sys.maxsize,  # the handlers keep the limit, and say so
        body_timeout=limits.body_seconds,
        idle_connection_timeout=limits.idle_seconds,
    )
    server.most_connections = limits.connections
    return server


def start(engine: Engine, words: Words, model: str, limits: Limits = Limits(), **named):
    """Starts the engine's thread. Returns what the handlers share.

    An end token that only the tokenizer knows ends an answer too.
    """
    engine.end_tokens |= words.end_tokens
    return Serving(EngineThread(engine, limits.requests), words, model, limits, **named)
