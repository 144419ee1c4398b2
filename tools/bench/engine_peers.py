"""Times our engine beside others: `python -m tools.bench engine_peers`, on a GPU.

All load the same random weights in the shapes of a Qwen3 model. Our engine and one peer are
ready at the same time, each in its process. They serve the same requests in turns. So a
machine that slows down slows both. The first turn of each is a warm-up and does not count.
Then the next peer replaces the first. `tools.bench.engine_peers_setup` installs nano-vllm and
Mini-SGLang, `tools.bench.vllm_setup` vLLM. The peer `serve` is our own engine in its HTTP
server. After nano-vllm or Mini-SGLang, calls of a decode kernel are timed on the host: ours
and FlashInfer's.
"""

import importlib.util
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for, processor
from lessons_content.lesson_08.bench.servers import random_model
from lessons_content.lesson_10.bench import engine_peers_runs as runs
from lessons_content.lesson_10.bench.engine_peers_runs import PeerRow, Run
from lessons_content.lesson_10.bench.fast_engine import Trace
from lessons_content.lesson_10.bench.host_calls import host_calls
from tools.bench import engine_peers_servers as servers
from tools.bench import engine_peers_traces as traces
from tools.bench import our_servers
from tools.bench.engine_peers_servers import RemoteServer, ServerFailed, seconds_left
from tools.bench.engine_peers_setup import SOURCES
from tools.bench.vllm_server import VllmServer

Say = Callable[[str], None]
Start = Callable[[str], RemoteServer]


def compare(
    peer: str, tasks: traces.Tasks, turns: int, start: Start, say: Say, left=seconds_left()
) -> Iterator[PeerRow]:
    """Lets our engine and a peer serve each trace in turns. If a peer fails, its row says why.

    start: makes a server, given its name.
    left: says how many seconds are left. A turn that would not fit is left out.
    Raises ServerFailed if our engine fails.
    """
    try:
        theirs = start(peer)
    except ServerFailed as error:
        for trace, _ in tasks:
            yield PeerRow(trace.name, peer, sum(trace.new_tokens), reason=f"{error}")
        return
    with closing(theirs):
        say(f"{peer} is ready after {theirs.ready:.0f} s")
        with closing(start("ours")) as ours:
            make = partial(_row, ours, theirs, turns, say, left)
            for trace, shares in tasks:
                rate = 0.0
                if None not in shares:
                    yield (row := make(trace))
                    if row.reason:
                        continue
                    rate = _slower_rate(row, trace)
                for number, share in enumerate(shares, 1):
                    at = f"{100 * share:g} % of the slower's rate" if share else "all at once"
                    named = replace(trace, name=f"{trace.name}, {at}")
                    # No turn's prompts begin as those of another one.
                    yield (row := make(named, number * (turns + 1), rate * (share or 0)))
                    if row.reason:
                        break
                    rate = rate or _slower_rate(row, trace)


def _slower_rate(row: PeerRow, trace: Trace) -> float:
    """The requests a second of the slower one."""
    return len(trace.prompts) * min(row.our_rate, row.their_rate) / row.tokens


def _row(
    ours: RemoteServer,
    theirs: RemoteServer,
    turns: int,
    say: Say,
    left: servers.Left,
    trace: Trace,
    first: int = 0,
    per_second: float | None = None,
) -> PeerRow:
    """first: the first turn's number. per_second: None if all are there at the start."""
    row = PeerRow(trace.name, theirs.name, sum(trace.new_tokens), per_second=per_second or 0.0)
    times = None
    if per_second is not None:
        times = traces.poisson_times(per_second, len(trace.prompts))
    longest, pairs = 2 * times[-1] if times else 0.0, []
    for turn in range(first, first + turns + 1):
        before = left()
        if before <= longest:
            break
        mine = ours.serve(trace, turn, times)
        try:
            other = theirs.serve(trace, turn, times)
        except ServerFailed as error:
            return replace(row, reason=f"{error}")
        longest = max(longest, before - left())
        if turn == first:
            continue  # the warm-up
        pairs.append((mine, other))
        rates = (f"{row.tokens / each.seconds:,.0f}" for each in pairs[-1])
        say(f"{trace.name}: ours {{}}, {theirs.name} {{}} tokens/s".format(*rates))
    if not pairs:
        return replace(row, reason="no time was left for a counted turn")
    answers = [each for pair in pairs for each in zip(*(turn.answers for turn in pair))]
    cached = sum(map(len, trace.prompts)), mine.cached, other.cached
    return replace(
        row,
        ours=tuple(mine.seconds for mine, _ in pairs),
        theirs=tuple(other.seconds for _, other in pairs),
        our_ready=ours.ready,
        their_ready=theirs.ready,
        same_first=sum(a[0] == b[0] for a, b in answers) / len(answers),
        cached=cached if any(cached[1:]) and not times else None,
        our_waits=waits([mine for mine, _ in pairs], times) if times else None,
        their_waits=waits([other for _, other in pairs], times) if times else None,
    )


def waits(turns: Sequence[servers.Turn], times: Sequence[float]) -> runs.Waits:
    """Of all requests of all turns together, which were due at these times."""
    pairs = [pair for turn in turns for pair in zip(times, turn.answers, strict=True)]
    first = [came[0] - due for due, came in pairs]
    # Tokens that came together have no time between them.
    between = [gap for _, came in pairs for gap in np.diff(came).tolist() if gap > 0] or [0.0]
    found = [np.percentile(each, [50, 99], method="higher") for each in (first, between)]
    return tuple(found[0].tolist()), tuple(found[1].tolist())


def makers(peer: str, names: list[str], folder: Path, site: Path) -> dict[str, Callable]:
    """The makers of our server and of the peer's, for traces of one group."""
    # Beside vLLM the pool is the same, whatever is chosen.
    sizing = traces.TRACES if peer == "vLLM" else names
    pool = [trace for name in sizing for trace in traces.TRACES[name]]
    caching = peer == "serve" or names[0] in traces.CACHING
    ours = partial(our_servers.OurServer, folder, pool, caching)
    if peer != "vLLM":
        kinds = servers.SERVERS | {"serve": our_servers.HttpServer}
        return {"ours": ours, peer: partial(kinds[peer], folder, pool)}
    has_room = torch.cuda.get_device_properties(0).total_memory > 120e9
    options: dict = {
        "is_async": caching or names[0] in traces.SHARES,
        "gpu_memory_utilization": 0.6 if has_room else 0.5,
        "num_gpu_blocks_override": our_servers.len_pool(pool) + 1,  # it never uses one
        "enable_prefix_caching": caching,
    }
    return {"ours": ours, peer: partial(VllmServer, site / "vllm", folder, **options)}


def measure(arguments: Namespace, command: str, left: servers.Left) -> Run:
    """If our engine fails or the time ends, what there is remains, and a note says why."""
    rows: list[PeerRow] = []
    conditions: dict[str, dict[str, str]] = {}
    note = ""

    def start(name: str) -> RemoteServer:
        server = RemoteServer(name, making[name], left)
        settings.update(server.settings)
        return server

    has_room = shutil.disk_usage("/dev/shm").free > 20e9  # in memory, for the largest model
    with tempfile.TemporaryDirectory(dir="/dev/shm" if has_room else None) as folder:
        model = random_model(**traces.SIZES[arguments.size])
        model.save_pretrained(folder, max_shard_size="4GB")
        del model
        torch.cuda.empty_cache()
        try:
            for peer, names in traces.groups(arguments.peers, arguments.traces):
                making = makers(peer, names, Path(folder), arguments.site)
                settings = conditions.setdefault(f"{peer}: {', '.join(names)}", {})
                tasks = [
                    (t, traces.SHARES.get(n, ())) for n in names for t in traces.TRACES[n]
                ]
                for row in compare(peer, tasks, arguments.turns, start, say, left):
                    rows.append(row)
        except ServerFailed as error:
            note = f"It ended early: {error}"
    commits = {peer: SOURCES[peer].commit[:7] for peer in arguments.peers if peer in SOURCES}
    others = ["FlashInfer-python"] if commits else ["transformers", "triton", "tornado"]
    return Run(
        **facts_for(Run),
        command=command,
        model=f"shapes of Qwen3-{arguments.size}, random weights, bfloat16",
        versions=commits | {each.removesuffix("-python"): version(each) for each in others},
        rows=tuple(rows),
        calls=tuple(host_calls()) if commits else (),
        size=arguments.size,
        processor=processor(),
        conditions=conditions,
        note=note,
    )


def missing(peers: Sequence[str], site: Path) -> list[str]:
    """The packages that are not installed."""
    if peers == ["vLLM"]:
        return [] if (site / "vllm").is_dir() else [f"{site}/vllm"]
    packages = [SOURCES[peer].package for peer in peers if peer in SOURCES]
    packages += ["flashinfer"] * bool(packages)
    return [package for package in packages if importlib.util.find_spec(package) is None]


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command(
        "engine_peers",
        "Times our engine on a GPU, in turns with others.",
        Run,
        runs.table,
        _overview,
    )
    add = command.parser.add_argument
    add("--turns", type=int, default=5, help="counted turns of each engine")
    peers: dict = dict(
        nargs="+", choices=list(traces.GROUPS), default=list(SOURCES), metavar="NAME"
    )
    alone = "%(choices)s; vLLM or serve is the only one of its run"
    add("--peers", type=lambda text: text.replace("vllm", "vLLM"), help=alone, **peers)
    add("--size", choices=list(traces.SIZES), default="0.6B", help="of the model")
    add("--traces", nargs="+", choices=sum(traces.GROUPS["vLLM"], []), help="beside vLLM")
    add("--limit", type=float, default=servers.FOREVER, help="seconds; it keeps what it has")
    add("--site", type=Path, help="the folder into which vllm_setup has unpacked vLLM")
    arguments = command.parse(words)
    if arguments.turns < 1:
        command.parser.error(f"--turns must be 1 or more, not {arguments.turns}")
    if len(arguments.peers) > 1 and {*runs.ALONE} & {*arguments.peers}:
        command.parser.error(f"--peers: {' or '.join(runs.ALONE)} is the only one of its run")
    if arguments.traces and arguments.peers != ["vLLM"]:
        command.parser.error("--traces are chosen beside vLLM only")
    if arguments.peers == ["vLLM"] and not (arguments.site or arguments.recorded):
        command.parser.error("--site: say where vllm_setup has unpacked vLLM")
    if arguments.recorded:
        kept = Run.recorded(arguments.folder)
        print(*filter(None, (runs.ratios(kept, peer) for peer in runs.ALONE)), sep="\n\n")
        return command.show(arguments)
    command.needs_gpu()
    if absent := missing(arguments.peers, arguments.site):
        command.parser.error(
            f"{', '.join(absent)}: not installed; engine_peers_setup or vllm_setup brings it"
        )
    line = command.line(arguments, "turns", "peers", "size", "traces")
    run = measure(arguments, line, seconds_left(arguments.limit))
    return command.keep(run, arguments, "" if run.rows else f"nothing is measured. {run.note}")


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.engine_peers import overview

    return overview(run)


if __name__ == "__main__":
    sys.exit(main())
