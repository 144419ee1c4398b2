"""Records host and GPU in decode steps: `python -m tools.bench timeline`, on a GPU.

Three steps in the middle of a run are profiled, in lesson 08's engine and in some engines with
fast parts. The engines themselves are not changed: the marks for the host's work are added
from outside.
"""

import contextlib
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from lessons_content.lesson_08.bench.servers import random_model
from lessons_content.lesson_08.bench.serving import MODELS
from lessons_content.lesson_10.bench.fast_engine import decoding, engines, timed
from lessons_content.lesson_10.bench.timeline_runs import (
    HOST,
    Run,
    Spans,
    Timeline,
    is_wait,
    length,
    table,
)

# Titles of fast_engine's engines. Each has all parts up to the one in its title.
ENGINES = ("lesson 08", "+ graphs", "+ plan", "+ sampling", "+ ahead")
NUM_SEQS, CONTEXT = 64, 610
NUM_STEPS = 3
SETTLING = 2  # profiled steps before the recorded ones
MERGED_BELOW = 2.0  # µs
STEP = "other"  # marks a whole step: host time within it that no other mark covers
STARTING_CALLS = ("Launch", "Memcpy", "Memset")
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace's events
HOST_CALLS = ("cuda_runtime", "cuda_driver")


def digest(trace: Iterable[dict], first: int = SETTLING, num_steps: int = NUM_STEPS) -> dict:
    """Takes a Timeline's fields, except engine and step, from the events of a Chrome trace.

    trace: of a profile in which the host's work is `marked`.
    first: how many steps of the trace to leave out.
    Raises ValueError for a trace without enough steps, or without a kernel in them.
    """
    events = [event for event in trace if event.get("ph") == "X" and "dur" in event]
    marks = {what: _named(events, "user_annotation", what) for what in HOST}
    starts = sorted(event["ts"] for event in marks[STEP])[first : first + num_steps + 1]
    if len(starts) <= num_steps:
        raise ValueError(f"the trace has no {num_steps} steps with another one after them")
    start, end = starts[0], starts[-1] - starts[0]

    def spans(chosen: Iterable[dict]) -> Spans:
        times = ((event["ts"] - start, event["ts"] + event["dur"] - start) for event in chosen)
        return merged((max(a, 0.0), min(b, end)) for a, b in times if b > 0 and a < end)

    def begun(chosen: Iterable[dict]) -> list[dict]:
        return [event for event in chosen if 0 <= event["ts"] - start < end]

    calls = [event for event in events if event.get("cat") in HOST_CALLS]
    gpu = spans(event for event in events if event.get("cat") in GPU_WORK)
    kernels = begun(event for event in events if event.get("cat") == "kernel")
    if not kernels:
        raise ValueError("the trace has no kernel in its steps")
    taken = spans(_waiting(calls, events))
    host = {"waits": taken}
    for what in HOST:  # the mark of a whole step comes last
        if what != "waits":
            host[what] = without(spans(marks[what]), taken)
            taken = merged((*taken, *host[what]))
    names = [event["name"] for event in begun(calls) if _counts(event["name"])]
    return dict(
        starts=tuple(round(each - start, 1) for each in starts[:-1]),
        end=round(end, 1),
        host={what: _rounded(host[what]) for what in HOST},
        gpu=_rounded(merged(gpu, MERGED_BELOW)),
        busy=round(length(gpu) / end, 4),
        kernels=round(len(kernels) / num_steps, 2),
        calls={name: round(names.count(name) / num_steps, 2) for name in sorted({*names})},
    )


def _named(events: list[dict], category: str, name: str) -> list[dict]:
    return [event for event in events if (event.get("cat"), event["name"]) == (category, name)]


def _counts(call: str) -> bool:
    return is_wait(call) or any(word in call for word in STARTING_CALLS)


def _waiting(calls: list[dict], events: list[dict]) -> Iterator[dict]:
    """The calls that return only when the GPU has done its work.

    Some calls do nothing but wait. A copy to or from memory that is not pinned waits too,
    inside the call.
    """
    copied = {
        event["args"].get("correlation"): event["ts"] + event["dur"]
        for event in events
        if event.get("cat") == "gpu_memcpy" and "Pageable" in event["name"]
    }
    for call in calls:
        end = copied.get(call.get("args", {}).get("correlation"))
        late = end is not None and "Memcpy" in call["name"] and call["ts"] + call["dur"] >= end
        if late or is_wait(call["name"]):
            yield call


def merged(spans: Iterable[tuple[float, float]], below: float = 0.0) -> Spans:
    """The spans in order.

    Spans that overlap, touch or have a shorter gap than `below` are one.
    """
    result: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if result and (begin <= result[-1][1] or begin - result[-1][1] < below):
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((begin, end))
    return tuple(result)


def without(spans: Spans, taken: Spans) -> Spans:
    """The parts of `spans` outside `taken`. Both have to be merged."""
    left = []
    for begin, end in spans:
        for first, last in taken:
            if last <= begin or first >= end:
                continue
            if first > begin:
                left.append((begin, first))
            begin = last
        if begin < end:
            left.append((begin, end))
    return tuple(left)


def _rounded(spans: Spans) -> Spans:
    """The spans, rounded to tenths of a microsecond. Spans of length zero are left out."""
    rounded = ((round(begin, 1), round(end, 1)) for begin, end in spans)
    return tuple((begin, end) for begin, end in rounded if begin < end)


@contextlib.contextmanager
def marked(engine) -> Iterator[None]:
    """Marks in a profile of the engine's steps what the host does.

    Waiting needs no mark, because a profile has the calls that wait.
    """
    parts = (
        (engine, "step", STEP),
        (engine.scheduler, "schedule", "schedules"),
        (engine.runner, "run", "launches"),
        (engine, "_complete", "completes"),
    )
    for owner, name, what in parts:
        setattr(owner, name, record_function(what)(getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, _ in parts:
            delattr(owner, name)  # then the class's own method is found again


def profiled(engine) -> list[dict]:
    """The events of a trace of some steps. One more step follows the recorded ones."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with marked(engine), profile(activities=activities) as profiler:
        for _ in range(SETTLING + NUM_STEPS + 1):
            engine.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8"), strict=False)["traceEvents"]


def measure(command: str, say: Callable[[str], None] = lambda line: None) -> Run:
    model, timelines = random_model(), []
    for title in ENGINES:
        engine = decoding(model, NUM_SEQS, CONTEXT, engines()[title])
        step = timed(engine)
        timelines.append(Timeline.packed(title, round(step, 3), **digest(profiled(engine))))
        say(f"{title}: {step:.2f} ms, profiled {timelines[-1].profiled:.2f} ms")
        del engine
        gc.collect()
        torch.cuda.empty_cache()
    return Run(
        **facts_for(Run),
        command=command,
        model=MODELS["cuda"],
        num_seqs=NUM_SEQS,
        context=CONTEXT,
        merged_below=MERGED_BELOW,
        timelines=tuple(timelines),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if nothing is recorded."""
    command = Command(
        "timeline",
        "Profiles decode steps of the engine on a GPU: what host and GPU do when.",
        Run,
        table,
        _overview,
    )
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    command.needs_gpu()
    return command.keep(measure(command.line(arguments), say), arguments)


def _overview(run: Run):
    from lessons_content.lesson_10.pictures.host_and_gpu import host_and_gpu

    return host_and_gpu(run)


if __name__ == "__main__":
    sys.exit(main())
