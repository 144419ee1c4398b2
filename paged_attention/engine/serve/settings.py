"""What the server takes, and what its handlers share."""

import asyncio
import ipaddress
import time
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from paged_attention.engine.serve.engine_thread import EngineThread
from paged_attention.engine.serve.mailbox import Mailbox
from paged_attention.engine.serve.token_text import Words

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Limits:
    """What the server takes.

    body: bytes of a request.
    body_seconds: for a body to arrive.
    send_seconds: for an event to be taken by the client.
    idle_seconds: for a request line and its headers, and between two requests.
    connections: open at once; more are refused.
    requests: answers that wait or run at once.
    """

    body: int = 1 << 20
    body_seconds: float = 20.0
    send_seconds: float = 30.0
    idle_seconds: float = 60.0
    connections: int = 1000
    requests: int = 512


@dataclass
class Serving:
    """What the handlers share.

    hosts: names under which the server may be asked.
    any_address: whether it may be asked by any IP address.
    origins: of pages that may ask it, as "https://hub.example"; besides those of its own host.
    """

    engine: EngineThread
    words: Words
    model: str
    limits: Limits
    hosts: frozenset[str] = frozenset(LOOPBACK)
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    started: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def mailbox(self) -> Mailbox:
        """Carries what the engine tells the handlers. Their event loop must be running."""
        return Mailbox(asyncio.get_running_loop())

    def knows_host(self, name: str) -> bool:
        """Whether it may be asked by this name.

        A page of another site may have a name that leads here, and must not ask.
        """
        name = name.strip("[]").lower()
        return name in self.hosts or (self.any_address and _is_address(name))

    def knows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may ask it.

        A browser lets any page send texts to any server, though it may not read the answer.

        host: the name under which the server is asked. Its other ports are as near to it.
        """
        try:
            of_page = urlsplit(origin).hostname
        except ValueError:
            return False
        return origin.lower() in self.origins or of_page == host.strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
