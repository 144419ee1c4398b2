"""Times our engine beside others: `python -m tools.bench engine_peers`, on a GPU.

All load the same random weights in the shapes of a Qwen3 model. Our engine and one peer are
ready at the same time, each in its process. They serve the same requests in turns. So a
machine that slows down slows both. The first turn of each is a warm-up and does not count.
Then the next peer replaces the first.

`tools.bench.engine_peers_setup` installs nano-vllm and Mini-SGLang, `tools.bench.vllm_setup`
vLLM. Beside vLLM both engines have a pool of the same number of blocks. vLLM is `LLM` where
all requests are there at once, and else AsyncLLM, as `vllm serve` has it, without HTTP. The
peer `serve` is our own engine behind its HTTP server.

At the end of a run beside nano-vllm or Mini-SGLang, calls of a decode kernel are timed on the
host: ours and FlashInfer's.
"""

import argparse
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for, processor
from lessons_content.lesson_10.bench.engine_peers_runs import (
    ALONE,
    ArrivalRow,
    PeerRow,
    Run,
    ratios,
    table,
)
from lessons_content.lesson_10.bench.fast_engine import Trace
from lessons_content.lesson_10.bench.host_calls import host_calls
from tools.bench import vllm_setup
from tools.bench.engine_peers_servers import MAX_MODEL_LEN, SERVERS, OurServer, len_pool
from tools.bench.engine_peers_setup import SOURCES
from tools.bench.engine_peers_traces import CACHING, SIZES, Arrivals, tasks, trace_of, weights
from tools.bench.engine_peers_turns import Row, compare
from tools.bench.peer_process import ServerFailed
from tools.bench.remote_server import (
    FOREVER,
    Launch,
    Left,
    RemoteServer,
    in_python,
    in_vllm,
    seconds_left,
)

TASKS = tasks()
ONLINE = [name for name, (task, *_) in TASKS.items() if isinstance(task, Arrivals)]
AT_ONCE = [name for name in TASKS if name not in (*ONLINE, *CACHING)]
SERVED = {  # by each peer
    **dict.fromkeys(SOURCES, AT_ONCE),
    "vLLM": [*TASKS],
    "serve": ["streams"],
}
USUAL = dict.fromkeys(SOURCES, AT_ONCE[:2]) | {
    "vLLM": [name for name in TASKS if name != "streams"],
    "serve": ["streams"],
}
NAMES = {name.lower(): name for name in SERVED}


def groups(peer: str, names: Sequence[str]) -> list[list[str]]:
    """The tasks, those together that the same two servers serve."""
    if peer != "vLLM":
        return [list(names)]
    kinds = AT_ONCE, [name for name in ONLINE if name not in CACHING], CACHING
    found = ([name for name in names if name in kind] for kind in kinds)
    return [*filter(None, found)]


def launches(peer: str, names: Sequence[str], folder: Path, site: Path) -> dict[str, Launch]:
    """How the two servers of a group are launched."""
    # Beside vLLM the pool is the same, whatever is chosen.
    sizing = TASKS if peer == "vLLM" else names
    pool = [trace_of(task) for name in sizing for task in TASKS[name]]
    caching = peer == "serve" or names[0] in CACHING
    ours = in_python(OurServer, folder, pool, caching)
    if peer != "vLLM":
        return {OurServer.name: ours, peer: in_python(SERVERS[peer], folder, pool)}
    online, options = names[0] not in AT_ONCE, vllm_options(pool, caching)
    return {OurServer.name: ours, peer: in_vllm(site / "vllm", folder, online, **options)}


def vllm_options(pool: Sequence[Trace], caching: bool) -> dict:
    """The options that are not vLLM's defaults."""
    has_room = torch.cuda.get_device_properties(0).total_memory > 120e9
    return {
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "dtype": "bfloat16",
        "max_model_len": MAX_MODEL_LEN,
        "gpu_memory_utilization": 0.6 if has_room else 0.5,
        # It never uses one of its blocks.
        "num_gpu_blocks_override": len_pool(pool) + 1,
        "enable_prefix_caching": caching,
    }


def measure(arguments: argparse.Namespace, command: str, left: Left) -> Run:
    """If our engine fails or the time ends, what there is remains, and a note says why."""
    versions = _versions(arguments.peers)
    rows: list[Row] = []
    conditions: dict[str, dict[str, str]] = {}
    note = ""
    with weights(arguments.size) as folder:
        try:
            for peer in arguments.peers:
                for names in groups(peer, arguments.traces or USUAL[peer]):
                    launch = launches(peer, names, folder, arguments.site)
                    settings = conditions.setdefault(f"{peer}: {', '.join(names)}", {})
                    start = partial(_started, launch, settings, left)
                    served = [task for name in names for task in TASKS[name]]
                    for row in compare(peer, served, arguments.turns, start, say, left):
                        rows.append(row)
        except ServerFailed as error:
            note = f"It ended early: {error}"
    return Run(
        **facts_for(Run),
        command=command,
        model=f"shapes of Qwen3-{arguments.size}, random weights, bfloat16",
        rows=tuple(row for row in rows if isinstance(row, PeerRow)),
        size=arguments.size,
        processor=processor(),
        arrivals=tuple(row for row in rows if isinstance(row, ArrivalRow)),
        conditions=conditions,
        note=note,
        versions=versions,
        calls=tuple(host_calls()) if "FlashInfer" in versions else (),
    )


def _started(
    launch: dict[str, Launch], settings: dict[str, str], left: Left, name: str
) -> RemoteServer:
    server = RemoteServer(name, launch[name], left)
    settings |= server.settings
    return server


def _versions(peers: Sequence[str]) -> dict[str, str]:
    """Of the peers, and of packages that they use."""
    version = importlib.metadata.version
    if peers == ["vLLM"]:
        others = {name: version(name) for name in ("transformers", "triton")}
        return {"vLLM": vllm_setup.VERSION} | others
    if peers == ["serve"]:
        return {"tornado": version("tornado")}
    commits = {peer: SOURCES[peer].commit[:7] for peer in peers}
    return commits | {"FlashInfer": version("flashinfer-python")}


def missing(peers: Sequence[str], site: Path) -> list[str]:
    """The packages that are not installed, and the setup that brings them."""
    absent = []
    if "vLLM" in peers and not (site / "vllm" / "vllm").is_dir():
        absent.append(f"{site / 'vllm'}: there is no vLLM; tools.bench.vllm_setup brings it")
    small = [SOURCES[peer].package for peer in peers if peer in SOURCES]
    packages = ["flashinfer", *small] if small else []
    packages = [package for package in packages if importlib.util.find_spec(package) is None]
    if packages:
        names = ", ".join(packages)
        absent.append(f"{names}: not installed; tools.bench.engine_peers_setup brings it")
    return absent


def _arguments(command: Command, words: Sequence[str] | None) -> argparse.Namespace:
    add = command.parser.add_argument
    add("--turns", type=int, default=5, help="counted turns of each engine")
    add(
        "--peers",
        nargs="+",
        type=lambda text: NAMES.get(text.lower(), text),
        choices=list(SERVED),
        default=list(SOURCES),
        metavar="NAME",
        help="%(choices)s; vLLM or serve is the only one of its run",
    )
    add("--size", choices=list(SIZES), default="0.6B", help="of the model; %(default)s")
    add("--traces", nargs="+", choices=list(TASKS), metavar="NAME", help="%(choices)s")
    add(
        "--limit",
        type=float,
        default=FOREVER,
        help="seconds in which it ends; it keeps what it has",
    )
    add("--site", type=Path, default=Path("/tmp/site"), help="where vLLM is; %(default)s")
    arguments = command.parse(words)
    error = command.parser.error
    if arguments.turns < 1:
        error(f"--turns must be 1 or more, not {arguments.turns}")
    if len(arguments.peers) > 1 and {*ALONE} & {*arguments.peers}:
        error(f"--peers: {' or '.join(ALONE)} is the only one of its run")
    for peer in arguments.peers:
        if others := [name for name in arguments.traces or () if name not in SERVED[peer]]:
            served = ", ".join(SERVED[peer])
            error(f"--traces: {peer} serves {served}, not {', '.join(others)}")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command(
        "engine_peers",
        "Times our engine on a GPU, in turns with others.",
        Run,
        table,
        _overview,
    )
    arguments = _arguments(command, words)
    if arguments.recorded:
        for peer in ALONE:
            if text := ratios(Run.recorded(arguments.folder), peer):
                print(f"{text}\n\n")
        return command.show(arguments)
    command.needs_gpu()
    if absent := missing(arguments.peers, arguments.site):
        command.parser.error("; ".join(absent))
    left = seconds_left(arguments.limit)
    names = ["turns", "peers", "size", *["traces"] * bool(arguments.traces)]
    run = measure(arguments, command.line(arguments, *names), left)
    fault = "" if run.peers else f"nothing was measured. {run.note}"
    return command.keep(run, arguments, fault)


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.engine_peers import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
