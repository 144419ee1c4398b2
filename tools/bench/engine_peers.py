"""Times our engine, nano-vllm and Mini-SGLang: `python -m tools.bench engine_peers`.

It needs a GPU and both peers (`tools.bench.engine_peers_setup` installs them). All load the
same random weights in the shapes of Qwen3-0.6B. Our engine and one peer are ready at the same
time, each in its process. They serve the traces of the benchmark `fast_engine` in turns. So a
machine that slows down slows both. The first turn of each is a warm-up and does not count.
Then the next peer replaces the first. At the end, calls of a decode kernel are timed on the
host: ours and FlashInfer's.
"""

import importlib.metadata
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_08.bench.servers import random_model
from lessons_content.lesson_08.bench.serving import MODELS
from lessons_content.lesson_10.bench.engine_peers_runs import PeerRow, Run, table
from lessons_content.lesson_10.bench.fast_engine import Trace, traces
from lessons_content.lesson_10.bench.host_calls import host_calls
from tools.bench.engine_peers_servers import SERVERS, OurServer, RemoteServer, ServerFailed
from tools.bench.engine_peers_setup import SOURCES

Say = Callable[[str], None]
Start = Callable[[str], RemoteServer]


def compare(
    peer: str, tasks: Sequence[Trace], turns: int, start: Start, say: Say
) -> list[PeerRow]:
    """Lets our engine and a peer serve each trace in turns. If a peer fails, its row says why.

    start: makes a server, given its name.
    Raises ServerFailed if our engine fails.
    """
    theirs = None
    try:
        theirs = start(peer)
        say(f"{peer} is ready after {theirs.ready:.0f} s")
        ours = start(OurServer.name)
    except ServerFailed as error:
        if theirs is not None:
            theirs.close()
            raise
        return [
            PeerRow(task.name, peer, sum(task.new_tokens), reason=f"{error}") for task in tasks
        ]
    try:
        return [
            _row(task, number, ours, theirs, turns, say) for number, task in enumerate(tasks)
        ]
    finally:
        ours.close()
        theirs.close()


def _row(
    task: Trace, number: int, ours: RemoteServer, theirs: RemoteServer, turns: int, say: Say
) -> PeerRow:
    tokens = sum(task.new_tokens)
    our_seconds: list[float] = []
    their_seconds: list[float] = []
    same = 0
    for turn in range(turns + 1):
        mine = ours.serve(number, turn)
        try:
            other = theirs.serve(number, turn)
        except ServerFailed as error:
            return PeerRow(task.name, theirs.name, tokens, reason=f"{error}")
        if turn == 0:
            continue  # the warm-up
        our_seconds.append(mine.seconds)
        their_seconds.append(other.seconds)
        same += sum(a == b for a, b in zip(mine.first, other.first, strict=True))
        rates = (f"{tokens / seconds:,.0f}" for seconds in (mine.seconds, other.seconds))
        say(f"{task.name}: ours {{}}, {theirs.name} {{}} tokens/s".format(*rates))
    return PeerRow(
        trace=task.name,
        peer=theirs.name,
        tokens=tokens,
        ours=tuple(our_seconds),
        theirs=tuple(their_seconds),
        our_ready=ours.ready,
        their_ready=theirs.ready,
        same_first=same / (turns * len(task.prompts)),
    )


def measure(peers: Sequence[str], turns: int, command: str, say: Say) -> Run:
    """Raises ServerFailed if our engine fails."""
    torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(device="cpu")
        model.save_pretrained(folder)
        tasks = traces(model.config.vocab_size)
        del model

        def start(name: str) -> RemoteServer:
            return RemoteServer(name, SERVERS[name], Path(folder), tasks)

        rows = [row for peer in peers for row in compare(peer, tasks, turns, start, say)]
    return Run(
        **facts_for(Run),
        command=command,
        model=MODELS["cuda"],
        versions={peer: SOURCES[peer].commit[:7] for peer in peers}
        | {"FlashInfer": importlib.metadata.version("flashinfer-python")},
        rows=tuple(rows),
        calls=tuple(host_calls()),
    )


def missing(peers: Sequence[str]) -> list[str]:
    """The packages that are not installed."""
    packages = ["flashinfer", *(SOURCES[peer].package for peer in peers)]
    return [package for package in packages if importlib.util.find_spec(package) is None]


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command(
        "engine_peers",
        "Times our engine on a GPU, in turns with nano-vllm and Mini-SGLang.",
        Run,
        table,
        _overview,
    )
    add = command.parser.add_argument
    add("--turns", type=int, default=5, help="counted turns of each engine")
    add("--peers", nargs="+", choices=list(SOURCES), default=list(SOURCES), metavar="NAME")
    arguments = command.parse(words)
    if arguments.turns < 1:
        command.parser.error(f"--turns must be 1 or more, not {arguments.turns}")
    if arguments.recorded:
        return command.show(arguments)
    command.needs_gpu()
    if absent := missing(arguments.peers):
        command.parser.error(
            f"{', '.join(absent)}: not installed; tools.bench.engine_peers_setup brings it"
        )
    line = command.line(arguments, "turns", "peers")
    return command.keep(measure(arguments.peers, arguments.turns, line, say), arguments)


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.engine_peers import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
