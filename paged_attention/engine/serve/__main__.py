"""Serves a model over HTTP: `python -m paged_attention.engine.serve --help`."""

import argparse
import asyncio
import ipaddress
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tornado.netutil import bind_sockets

from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import fast_engine
from paged_attention.engine.serve.server import make_server, start
from paged_attention.engine.serve.settings import LOOPBACK, Limits
from paged_attention.engine.serve.words import words_of


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m paged_attention.engine.serve",
        description="Answers OpenAI's completions API over HTTP, with streaming.",
    )
    add = parser.add_argument
    add("--model", type=Path, default=SMALL_MODEL, help="a folder; else the small model")
    add("--name", help="what clients call the model; else the folder's name")
    add("--host", default="127.0.0.1", help="where it listens; else this machine only")
    add("--port", type=int, default=8000, help="0 takes a free one")
    add("--allowed-host", nargs="+", default=[], metavar="NAME", help="its further names")
    add("--requests", type=int, default=Limits.requests, help="that wait or run at once")
    add("--connections", type=int, default=Limits.connections, help="open at once")
    add("--body-seconds", type=float, default=Limits.body_seconds, help="for a body to come")
    add("--num-blocks", type=int, default=1024, help="blocks of the pool")
    add("--max-num-seqs", type=int, default=64, help="requests in a step")
    arguments = parser.parse_args(words)
    for name in ("requests", "connections", "num_blocks", "max_num_seqs", "body_seconds"):
        if getattr(arguments, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be more than 0")
    return arguments


def make_engine(arguments: argparse.Namespace) -> Engine:
    sizes = {"num_blocks": arguments.num_blocks, "max_num_seqs": arguments.max_num_seqs}
    if torch.cuda.is_available():
        model = load_model(arguments.model, torch.bfloat16, "cuda")
        return fast_engine(model, token_budget=8192, **sizes)
    return Engine(load_model(arguments.model), **sizes)


def room_for(connections: int) -> int:
    """How many of these the system lets this process have, each with its descriptor.

    It asks for more descriptors where there are too few.
    """
    other_files = 128  # that the process may have open besides
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + other_files
    if least != resource.RLIM_INFINITY and least < wanted:
        least = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
        if least < wanted:
            connections = max(1, least - other_files)
            words = f"The system lets this process have {connections} connections (ulimit -n)"
            print(words, file=sys.stderr)
    return connections


async def serve(arguments: argparse.Namespace) -> None:
    # Before the model, which takes long to load: the port may be taken.
    sockets = bind_sockets(arguments.port, arguments.host, backlog=1024)
    engine = make_engine(arguments)
    limits = Limits(
        connections=room_for(arguments.connections),
        requests=arguments.requests,
        body_seconds=arguments.body_seconds,
    )
    host, port = sockets[0].getsockname()[:2]
    serving = start(
        engine,
        words_of(arguments.model),
        arguments.name or arguments.model.name,
        limits,
        hosts=frozenset(
            {*LOOPBACK, *map(str.lower, (arguments.host, *arguments.allowed_host))}
        ),
        any_address=ipaddress.ip_address(host).is_unspecified,
    )
    server = make_server(serving)
    server.add_sockets(sockets)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    address = f"[{host}]" if ":" in host else host
    print(f"Serving {serving.model} on http://{address}:{port}", flush=True)
    await ended.wait()
    server.stop()
    await asyncio.to_thread(serving.engine.stop)  # each stream hears of it
    await asyncio.sleep(0.1)
    await server.close_all_connections()


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 after Ctrl-C, and 2 if it cannot listen or has no model."""
    arguments = _arguments(words)
    try:
        asyncio.run(serve(arguments))
    except (OSError, ValueError) as error:
        print(f"Cannot serve: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
