"""What each handler does, and those that need no engine."""

from pathlib import Path

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.settings import Serving

CHAT_PAGE = Path(__file__).with_name("chat.html")


@stream_request_body
class Handler(RequestHandler):
    """What all handlers do: check host, origin and size; send errors in OpenAI's form.

    A body is taken as it comes, so that none is in the memory before its size is known. Here
    nobody wants it.
    """

    def initialize(self, serving: Serving) -> None:
        self.serving = serving

    def prepare(self) -> None:
        if not self.serving.knows_host(self.request.host_name):
            name = self.request.host_name[:100]
            raise ApiError(403, f"this server is not called {name!r} (--allowed-host)")
        if not self.is_from_a_known_page():
            origin = self.request.headers["Origin"][:100]
            raise ApiError(
                403, f"a page of {origin!r} may not ask this server (--allowed-origin)"
            )
        self.let_the_page_read()
        length = self.request.headers.get("Content-Length", "0").split(",")[0]
        if not (length.isascii() and length.isdecimal()):
            raise ApiError(400, "Content-Length must be a whole number")
        # Python makes no number of thousands of digits.
        if len(length) > 18 or int(length) > self.serving.limits.body:
            raise self.too_large()

    def is_from_a_known_page(self) -> bool:
        """A browser names the site of the page that asks; programs name none."""
        origin = self.request.headers.get("Origin")
        return origin is None or self.serving.knows_origin(origin, self.request.host_name)

    def let_the_page_read(self) -> None:
        if "Origin" in self.request.headers:
            self.set_header("Access-Control-Allow-Origin", self.request.headers["Origin"])
            self.set_header("Vary", "Origin")

    def options(self, *_: str) -> None:
        """A browser asks whether a page on another port or host may send JSON."""
        asked = self.request.headers.get("Access-Control-Request-Headers", "")
        self.set_header("Access-Control-Allow-Headers", asked)
        self.set_header("Access-Control-Allow-Methods", "GET, POST")
        self.set_status(204)

    def data_received(self, chunk: bytes) -> None:
        pass

    def too_large(self) -> ApiError:
        return ApiError(413, f"a request may have {self.serving.limits.body:,} bytes")

    def write_error(self, status_code: int, **named) -> None:
        error = named["exc_info"][1] if "exc_info" in named else None
        if not isinstance(error, ApiError):
            words = error.log_message if isinstance(error, HTTPError) else None
            error = ApiError(status_code, words or self._reason)
        self.set_status(error.status)
        if error.status != 403:
            self.let_the_page_read()
        if error.status in (429, 503):
            self.set_header("Retry-After", "1")
        if error.status == 413:  # the rest of the body is not read
            self.set_header("Connection", "close")
        self.finish(error.body())

    def log_exception(self, kind, value, traceback) -> None:
        if not isinstance(value, (ApiError, StreamClosedError)):
            super().log_exception(kind, value, traceback)


class NotFound(Handler):
    def prepare(self) -> None:
        super().prepare()
        raise ApiError(404, f"there is nothing at {self.request.path[:200]}")


class Health(Handler):
    def get(self) -> None:
        self.finish({"status": "ok", "requests": len(self.serving.engine)})


class Page(Handler):
    """A page to talk to the model. It loads nothing from elsewhere."""

    def get(self) -> None:
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(CHAT_PAGE.read_text(encoding="utf-8"))


class Models(Handler):
    def get(self, name: str | None = None) -> None:
        serving = self.serving
        about = {"id": serving.model, "object": "model", "created": serving.started}
        about["owned_by"] = "this server"
        if name is None:
            self.finish({"object": "list", "data": [about]})
        else:
            check_model(name, serving)
            self.finish(about)


def check_model(name: str, serving: Serving) -> None:
    if name != serving.model:
        raise ApiError(
            404,
            f"there is no model {name[:200]!r}; this server has {serving.model!r}",
            "model",
            "model_not_found",
        )
