"""The inside of a server's process in the benchmark of peers: it serves and measures turns.

vLLM's process runs this too, and there the course's folders must not hide packages. So this
imports nothing of the course.
"""

import gc
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

Prompts = Sequence[list[int]]
# Of each request: when new tokens came, in seconds, and how many.
Events = list[list[tuple[float, int]]]


@dataclass(frozen=True)
class Turn:
    """A trace, served once. first: the first new token of each request.

    cached: how many of the prompts' tokens a prefix cache had.
    """

    seconds: float
    first: tuple[int, ...]
    cached: int = 0


class ServerFailed(Exception):
    """A server could not be made, or has ended. The text says why."""


def measured_turn(server, prompts: Prompts, new_tokens: Sequence[int]) -> Turn:
    """All requests are there at the start."""
    _wait()
    start = time.perf_counter()
    answers = server.generate(prompts, new_tokens)
    _wait()
    seconds = time.perf_counter() - start
    _check([len(answer) for answer in answers], new_tokens)
    first = tuple(answer[0] for answer in answers)
    return Turn(seconds, first, getattr(server, "cached", 0))


def measured_arrivals(
    server, prompts: Prompts, new_tokens: Sequence[int], times: Sequence[float]
) -> Events:
    """Each request comes at its time, in seconds after the start."""
    _wait()
    gc.collect()
    events = server.arrive(prompts, new_tokens, times)
    _check([sum(count for _, count in those) for those in events], new_tokens)
    return events


ACTIONS: dict[str, Callable] = {"turn": measured_turn, "arrivals": measured_arrivals}


def work(words: Connection, make: Callable) -> None:
    """Makes a server and lets it serve until nobody asks any more.

    At first it sends the seconds that this took, and the server's settings.
    """
    server = None
    try:
        start = time.perf_counter()
        server = make()
        words.send((time.perf_counter() - start, getattr(server, "settings", {})))
        while True:
            action, *arguments = words.recv()
            words.send(ACTIONS[action](server, *arguments))
    except EOFError:
        return
    except BaseException as error:
        traceback.print_exc()
        words.send(ServerFailed(f"{type(error).__name__}: {error}"[:300]))
    finally:
        if hasattr(server, "close"):
            server.close()


def _check(lengths: list[int], new_tokens: Sequence[int]) -> None:
    if lengths != list(new_tokens):
        raise ValueError(f"{lengths} new tokens, not {list(new_tokens)}")


def _wait() -> None:
    if torch.cuda.is_initialized():  # vLLM has the GPU in another process
        torch.cuda.synchronize()
