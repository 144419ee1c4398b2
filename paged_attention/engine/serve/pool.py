"""The pool of blocks as it is now, and what the chat page needs to draw it."""

import asyncio
from functools import partial

from lessons_lib import rooms
from paged_attention.engine.serve.engine_thread import StoppedError
from paged_attention.engine.serve.errors import ApiError
from paged_attention.engine.serve.handlers import Handler


def drawings():
    """The course's drawings, which are built on this package."""
    return rooms.load("pool on the chat page")


class Pool(Handler):
    """A recording with one step. It has no text of anybody's requests."""

    async def get(self) -> None:
        engine = self.serving.engine
        try:
            call = partial(drawings().recording_of, engine.engine)
            self.finish(await asyncio.wrap_future(engine.between_steps(call)))
        except StoppedError as error:
            raise ApiError(503, str(error)) from None


class Player(Handler):
    """What shows a recording. kind: "js" or "css"."""

    def get(self, kind: str) -> None:
        is_script = kind == "js"
        self.set_header("Content-Type", f"text/{'javascript' if is_script else 'css'}")
        self.finish(drawings().script() if is_script else drawings().style(20))
