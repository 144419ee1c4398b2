"""The reports of a sandbox, as JSON: the one schema that they have to fit.

A run in the sandbox sends reports, and none of them is trusted. One that does not fit ends
the sandbox, and the points that were earned by then are final.
"""

import struct
from typing import Literal, TypedDict

import msgspec

LARGEST_MESSAGE = 16 << 20  # bytes
# how messages to the judge begin; after REPORT come the own seconds, as SECONDS
REPORT, ENDED = b"R", b"E"
SECONDS = struct.Struct(">d")
# The exit code of a process in which a cell took too long. No report could say so if the cell
# was stopped while it wrote into our pipe.
STOPPED = 113


class _Report(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """["name", part, …]"""


class Begun(_Report, tag="cell"):
    """The cell of this number begins."""

    number: int


class CellFailed(_Report, tag="error"):
    """It has raised an error or was stopped: in words, which come after its number."""

    number: int
    words: str


class Packed(TypedDict, total=False):
    """An answer on its way. It has one of these.

    text: in C++ or CUDA.
    pickle: in Python, as base64.
    refused: the slug of a mistake and its message, for what is no answer.
    """

    text: str
    pickle: str
    refused: tuple[str, str]


class Answer(_Report, tag="answer"):
    """A cell has given an exercise this answer."""

    exercise: str
    packed: Packed


class Ready(_Report, tag="ready"):
    """The answer is built and loaded. Its cases come next."""


class Case(_Report, tag="case"):
    """The result of an answer on a case: what result_codec.encode gives, as JSON."""

    number: int
    result: str


class Refused(_Report, tag="refused"):
    """The answer was not tried."""

    mistake: str
    message: str


class Finished(_Report, tag="finished"):
    """The function has come to its end.

    ending: "returned", "raised" or "exited".
    words: of the error, which begin with the name of its type; or how it has exited.
    """

    ending: Literal["returned", "raised", "exited"]
    words: str = ""


Report = Begun | CellFailed | Answer | Ready | Case | Refused | Finished


class Ended(msgspec.Struct):
    """How a run has ended: the sandbox's first process says it, and the run cannot."""

    ending: str
    detail: str
    printed: str
    seconds: float


def plain(text: str) -> str:
    """The text without halves of characters, which no message and no file can hold."""
    return text.encode(errors="backslashreplace").decode()


def read(message: bytes) -> tuple[float, Report] | Ended | None:
    """A message of the sandbox: its own seconds and a report, or how the run has ended.

    None if it does not fit.
    """
    try:
        if message[:1] == ENDED:
            return msgspec.json.decode(message[1:], type=Ended)
        (seconds,) = SECONDS.unpack(message[1 : 1 + SECONDS.size])
        return seconds, msgspec.json.decode(message[1 + SECONDS.size :], type=Report)
    except (msgspec.MsgspecError, struct.error, RecursionError, UnicodeDecodeError):
        return None
