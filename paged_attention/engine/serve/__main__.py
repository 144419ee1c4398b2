"""Serves a model over HTTP: `python -m paged_attention.engine.serve --help`."""

import argparse
import asyncio
import ipaddress
import os
import re
import resource
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import torch
from tornado.netutil import bind_sockets

from lessons_lib.cuda.compiler_errors import CompileError
from paged_attention.engine.checkpoint import SMALL_MODEL, load_model, read_config
from paged_attention.engine.cpu.parts import CpuParts
from paged_attention.engine.cpu.runner import CpuRunner
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import fast_engine
from paged_attention.engine.learner_engine import assemble
from paged_attention.engine.serve.server import make_server, start
from paged_attention.engine.serve.settings import LOOPBACK, Limits
from paged_attention.engine.serve.token_text import words_of
from paged_attention.engine.speaking import speaking_model
from paged_attention.engine.supported_models import head_size_of
from paged_attention.own_answers import THE_COURSES, YOURS


def _within(kind: type, least: float, most: float) -> Callable[[str], float]:
    """Reads a number from least to most."""

    def read(text: str):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least:,} to {most:,}, not {text}")
        return value

    read.__name__ = "whole number" if kind is int else "number"  # argparse's words name it
    return read


def _host(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "must be a name or an address; 0.0.0.0 is all of them"
        )
    return text


def _origin(text: str) -> str:
    found = re.fullmatch(r"(https?://[^/?#@\s]+)/?|null", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"must be like https://hub.example, not {text!r}")
    plain = found[1] or "null"
    return plain.removesuffix(":443" if plain.startswith("https") else ":80")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m paged_attention.engine.serve",
        description="Answers OpenAI's completions and chats over HTTP, with streaming.",
    )
    add, count = parser.add_argument, _within(int, 1, 10**6)
    add(
        "--model",
        default=SMALL_MODEL,
        help="a folder, a name on Hugging Face's hub, or smollm2, which speaks; else the "
        "course's small one",
    )
    add("--download", action="store_true", help="fetch the model if it is not here")
    add("--mine", action="store_true", help="take your own answers for the engine's parts")
    add("--name", help="what clients call the model; else the folder's name")
    add("--browser", action="store_true", help="open a page there to talk to the model")
    add("--host", type=_host, default="127.0.0.1", help="where it listens; else here only")
    port = _within(int, 0, 65_535)
    add("--port", type=port, default=8000, help="0 takes a free one")
    add("--allowed-host", nargs="+", default=[], metavar="NAME", help="its further names")
    origins: dict = {"nargs": "+", "default": [], "metavar": "URL", "type": _origin}
    add("--allowed-origin", **origins, help="sites whose pages may ask it, as a hub's proxy")
    add("--requests", type=count, default=Limits.requests, help="that wait or run at once")
    add("--connections", type=count, default=Limits.connections, help="open at once")
    seconds = _within(float, 0.001, 86_400)
    add("--body-seconds", type=seconds, default=Limits.body_seconds, help="for a body to come")
    blocks = _within(int, 1, 2**31 - 1)  # block ids are int32
    add("--num-blocks", type=blocks, default=1024, help="blocks of the pool")
    add("--max-num-seqs", type=_within(int, 1, 65_536), default=64, help="requests in a step")
    return parser.parse_args(words)


def make_engine(arguments: argparse.Namespace, folder: Path) -> Engine:
    """Raises ValueError if the pool does not fit into the memory."""
    sizes = {"num_blocks": arguments.num_blocks, "max_num_seqs": arguments.max_num_seqs}
    has_card = torch.cuda.is_available()
    dtype = torch.bfloat16
    if not has_card and (arguments.mine or read_config(folder).dtype != dtype):
        dtype = torch.float32  # answers were checked with it, and need not take another
    model = load_model(folder, dtype, "cuda" if has_card else "cpu")
    check_room(model, arguments.num_blocks)
    if has_card and not arguments.mine:
        return fast_engine(model, token_budget=8192, **sizes)
    engine = engine_of_yours(model, **sizes) if arguments.mine else Engine(model, **sizes)
    if not has_card:
        try:
            engine.runner = CpuRunner(engine.runner, CpuParts(attention=not arguments.mine))
        except CompileError as error:
            reason = str(error).splitlines()[0]
            print(f"It goes on without its kernels for a CPU: {reason}", file=sys.stderr)
    return engine


def engine_of_yours(model, **sizes: int) -> Engine:
    """The engine of the learner's answers, which are named."""
    engine, parts = assemble(model, **sizes)
    for whose in (YOURS, THE_COURSES):
        found = [part.exercise for part in parts if part.whose == whose]
        print(f"Parts that are {whose}: {', '.join(found) or 'none'}")
    return engine


def check_room(model, num_blocks: int, block_size: int = 16) -> None:
    """Raises ValueError if the memory has no room for these blocks of keys and values."""
    config = model.config
    numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size_of(config)
    size = numbers * block_size * model.dtype.itemsize
    on_card = model.device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_card else psutil.virtual_memory().available
    if num_blocks * size > free:
        raise ValueError(
            f"--num-blocks {num_blocks:,} needs {num_blocks * size / 2**30:,.1f} GiB for keys "
            f"and values, and {free / 2**30:,.1f} GiB of memory are free; "
            f"{free // size:,} blocks would fill it"
        )


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
    try:
        sockets = bind_sockets(arguments.port, arguments.host, backlog=1024)
    except OSError as error:
        where = f"{arguments.host} port {arguments.port}"
        raise OSError(f"it cannot listen on {where}: {error.strerror or error}") from None
    folder = speaking_model(arguments.model, arguments.download)
    engine = make_engine(arguments, folder)
    limits = Limits(
        connections=room_for(arguments.connections),
        requests=arguments.requests,
        body_seconds=arguments.body_seconds,
    )
    host, port = sockets[0].getsockname()[:2]
    serving = start(
        engine,
        words_of(folder),
        arguments.name or Path(os.path.abspath(arguments.model)).name,
        limits,
        hosts=frozenset(
            {*LOOPBACK, *map(str.lower, (arguments.host, *arguments.allowed_host))}
        ),
        origins=frozenset(arguments.allowed_origin),
        any_address=ipaddress.ip_address(host).is_unspecified,
    )
    server = make_server(serving)
    server.add_sockets(sockets)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    address = f"[{host}]" if ":" in host else host
    print(f"Serving {serving.model} on http://{address}:{port}", flush=True)
    if arguments.browser:
        # one in the terminal, as over SSH, does not come back before it ends
        page = (f"http://{address}:{port}",)
        threading.Thread(target=webbrowser.open, args=page, daemon=True).start()
    await ended.wait()
    server.stop()
    await asyncio.to_thread(serving.engine.stop)  # each stream hears of it
    await asyncio.sleep(0.1)
    await server.close_all_connections()


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 after Ctrl-C, and 2 if it cannot listen, or has no model or no room for it."""
    arguments = _arguments(words)
    sys.setswitchinterval(0.001)  # s: the engine's thread and the loop's take turns in Python
    try:
        asyncio.run(serve(arguments))
    except (OSError, ValueError, MemoryError, torch.OutOfMemoryError) as error:
        print(f"Cannot serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while the model was loaded
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
