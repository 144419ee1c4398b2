"""Requests that come over time: how an engine serves them, and how long they wait."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from lessons_content.bench_records.percentiles import Percentiles, percentiles
from lessons_content.lesson_10.bench.engine_peers_runs import Latency
from tools.bench.peer_process import Events


def step_through(
    engine,
    requests: Sequence[tuple],
    times: Sequence[float],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Events:
    """Adds each request at its time, and steps as long as there is work.

    A token has come when the step that returns it has returned.

    requests: what engine.add() takes after a request's id. times: in seconds, in order.
    """
    events: Events = [[] for _ in requests]
    has_work, given, start = engine.scheduler.has_work, 0, clock()
    while given < len(requests) or has_work():
        while given < len(requests) and times[given] <= clock() - start:
            engine.add(given, *requests[given])
            given += 1
        if not has_work():
            sleep(max(0.0, times[given] - (clock() - start)))
            continue
        tokens = engine.step()
        now = clock() - start
        for request, _ in tokens:
            events[request.id].append((now, 1))
    return events


def latency(passes: Sequence[Events], times: Sequence[float]) -> Latency:
    """All requests of all passes together. A time to the first token counts from when the
    request was due.
    """
    first, between, tokens, seconds = [], [], 0, 0.0
    for events in passes:
        for due, those in zip(times, events, strict=True):
            first.append(those[0][0] - due)
            between += [after - before for (before, _), (after, _) in pairwise(those)]
            tokens += sum(count for _, count in those)
        seconds += max(those[-1][0] for those in events) - times[0]
    return Latency(_found(first), _found(between), tokens / seconds)


def _found(times: Sequence[float]) -> Percentiles:
    return percentiles(times) or (0.0, 0.0)
