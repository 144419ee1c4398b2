"""Asks the server at random times, with more and more load: `python -m tools.bench load`.

It starts the server with the small model in a separate process. The clients are in this
process. All share the machine's cores.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np
import torch

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_11.bench.load_runs import LoadRow, LoadRun, table
from tools.bench.load_clients import Heard, ask_all, questions, random_arrivals

RATES = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
MODEL = "the course's small model"


@contextmanager
def started_server(*options: str) -> Iterator[tuple[str, str]]:
    """Starts the server in a separate process. Gives its model's name and its address.

    Raises RuntimeError if it does not start.
    """
    command = [sys.executable, "-P", "-m", "paged_attention.engine.serve", "--port", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if len(words) != 4:
                raise RuntimeError("the server did not start; its own words are above")
            yield words[1], words[3]
        finally:
            process.terminate()


def measure(
    url: str,
    model: str,
    rates: Sequence[float] = RATES,
    seconds: float = 20.0,
    at_once: int = 200,
    seed: int = 26,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[LoadRow, ...]:
    """Asks at each rate of arrivals, and at the end all at once.

    The first request is a warm-up and does not count.

    rates: requests a second.
    seconds: how long new requests arrive, at each rate.
    at_once: clients that come at the same time; 0 leaves this out.
    """
    asyncio.run(ask_all(url, model, questions([0.0], seed)))
    loads: list[float | None] = [*rates, *[None] * bool(at_once)]
    rows = []
    for load in loads:
        times = [0.0] * at_once if load is None else random_arrivals(load, seconds, seed)
        heard = asyncio.run(ask_all(url, model, questions(times, seed)))
        rows.append(summary(load, heard))
        say(f"{rows[-1].name}: {rows[-1].requests} requests, {rows[-1].lost} lost")
    return tuple(rows)


def summary(per_second: float | None, heard: Sequence[Heard]) -> LoadRow:
    """The clients' results in one row. per_second: None if all clients came at once."""
    whole = [each for each in heard if not each.problem]
    ends = [each.question.at + each.times[-1] for each in whole]
    begin = min(each.question.at for each in heard)
    changes = sorted(
        [(each.question.at, 1) for each in whole] + [(end, -1) for end in ends],
        key=lambda change: (change[0], -change[1]),
    )
    return LoadRow(
        per_second,
        requests=len(heard),
        refused=sum(each.is_refused for each in heard),
        lost=sum(bool(each.problem) and not each.is_refused for each in heard),
        right=sum(each.text == each.question.answer for each in whole),
        most_open=int(np.cumsum([0, *(step for _, step in changes)]).max()),
        tokens=sum(each.num_tokens for each in whole),
        seconds=max(ends, default=begin) - begin or 1e-9,
        first=_percentiles([each.first for each in whole]),
        between=_percentiles([gap for each in whole for gap in each.between]),
        reasons=tuple(dict.fromkeys(each.problem for each in heard if each.problem)),
    )


def _percentiles(times: list[float]) -> tuple[float, float] | None:
    """p50 and p99. Each is one of the measured times."""
    if not times:
        return None
    middle, late = np.percentile(times, [50, 99], method="higher").tolist()
    return middle, late


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if a request was lost, if nothing is recorded or without a server."""
    command = Command(
        "load",
        "Starts the server with the small model and asks it at random times: "
        "time to the first token and between tokens, against requests a second.",
        LoadRun,
        table,
        _overview,
    )
    add = command.parser.add_argument
    add("--rates", type=float, nargs="+", default=RATES, metavar="N", help="a second")
    add("--seconds", type=float, default=20.0, help="of arrivals, at each rate")
    add("--at-once", type=int, default=200, metavar="N", help="clients at the end; 0: none")
    arguments = command.parse(words)
    if min(arguments.rates) <= 0 or arguments.seconds <= 0 or arguments.at_once < 0:
        command.parser.error(
            "--rates and --seconds must be more than 0, and --at-once 0 or more"
        )
    if arguments.recorded:
        return command.show(arguments)
    try:
        run = _measure(arguments, command.line(arguments, "rates", "seconds", "at_once"))
    except RuntimeError as error:
        print(f"Nothing was measured: {error}", file=sys.stderr)
        return 1
    command.keep(run, arguments)
    return 1 if any(row.lost for row in run.rows) else 0


def _overview(run: LoadRun):
    from lessons_content.lesson_11.pictures.arrivals import waiting

    return waiting(run)


def _measure(arguments: argparse.Namespace, command: str) -> LoadRun:
    with started_server() as (model, url):
        rows = measure(
            url,
            model,
            arguments.rates,
            arguments.seconds,
            arguments.at_once,
            say=say,
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return LoadRun(
        **facts_for(LoadRun, device),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        python=platform.python_version(),
        tornado=version("tornado"),
        command=command,
        model=MODEL,
        rows=rows,
    )


if __name__ == "__main__":
    sys.exit(main())
