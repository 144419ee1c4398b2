"""Runs of the timeline's benchmark: the work of host and GPU, in files and as a table.

Thousands of spans are stored in a small form: as text, with times in tenths of a microsecond,
each as the distance from the one before.
"""

import itertools
from dataclasses import dataclass

from lessons_content.bench_records.recorded_runs import Record
from lessons_content.bench_records.tables import aligned

# A host's work in a step. "other": all that has no name, such as the step's bookkeeping.
HOST = ("schedules", "launches", "waits", "completes", "other")
WAITING_CALLS = ("Synchronize",)  # a Timeline's other calls start something

Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Timeline:
    """The work of host and GPU in some decode steps of an engine, one after another.

    All times are in µs from the start of the first step. They are from a profile, which slows
    the host; `step` is not.

    step: milliseconds of a step without the profiler, from start to start.
    starts: when each step began on the host.
    end: when the step after them began.
    host: for each word of HOST, the times of that work, packed. A call counts as waiting only
        if it returns when the GPU has done its work.
    gpu: the times of kernels, and of copies and fills of memory, packed. Short gaps are left
        out.
    busy: the share of time with such work, with each gap counted.
    kernels: how many began in a step.
    calls: the host's calls in a step that start something on the GPU or wait for it, by name.
    """

    engine: str
    step: float
    starts: tuple[float, ...]
    end: float
    host: dict[str, str]
    gpu: str
    busy: float
    kernels: float
    calls: dict[str, float]

    @classmethod
    def packed(cls, *facts, host: dict[str, Spans], gpu: Spans, **more) -> "Timeline":
        """A timeline from spans that are not packed yet."""
        text = {what: pack(spans) for what, spans in host.items()}
        return cls(*facts, host=text, gpu=pack(gpu), **more)

    @property
    def profiled(self) -> float:
        """Milliseconds of a step with the profiler."""
        return self.end / len(self.starts) / 1000

    @property
    def gpu_time(self) -> float:
        """The GPU's milliseconds of work in a step."""
        return self.busy * self.profiled

    def host_time(self, what: str) -> float:
        """The milliseconds of a step in which the host does this, with the profiler."""
        return length(unpack(self.host.get(what, ""))) / len(self.starts) / 1000

    @property
    def waits(self) -> float:
        """How often the host waits for the GPU in a step."""
        return sum(number for name, number in self.calls.items() if is_wait(name))

    @property
    def launches(self) -> float:
        """How often the host starts something on the GPU in a step."""
        return sum(self.calls.values()) - self.waits


def is_wait(call: str) -> bool:
    """Whether a call of the CUDA runtime does nothing but wait."""
    return any(word in call for word in WAITING_CALLS)


@dataclass(frozen=True)
class Run(Record, kept_in="timeline"):
    """The results of one call of the benchmark.

    num_seqs, context: the sequences of a step, and their mean length.
    merged_below: µs; shorter gaps between the GPU's spans are left out.
    """

    card: str
    driver: str
    torch: str
    date: str
    command: str
    model: str
    num_seqs: int
    context: int
    merged_below: float
    timelines: tuple[Timeline, ...]


def pack(spans: Spans) -> str:
    """Spans as text: the gap before each and its length, in tenths of a microsecond."""
    times = [round(10 * time) for span in spans for time in span]
    return " ".join(str(after - time) for time, after in itertools.pairwise([0, *times]))


def unpack(text: str) -> Spans:
    """The spans in a text of `pack`. Their times are rounded to tenths."""
    times = [time / 10 for time in itertools.accumulate(map(int, text.split()))]
    return tuple(zip(times[::2], times[1::2], strict=True))


recorded = Run.recorded


def table(run: Run) -> str:
    """All results, as text."""
    steps = [["a decode step", "ms", "profiled", "GPU", "busy", "kernels", "starts", "waits"]]
    host = [["the host, profiled, ms", *HOST]]
    for timeline in run.timelines:
        counts = timeline.kernels, timeline.launches, timeline.waits
        steps.append(
            [
                timeline.engine,
                f"{timeline.step:.2f}",
                f"{timeline.profiled:.2f}",
                f"{timeline.gpu_time:.2f}",
                f"{100 * timeline.busy:.0f} %",
                *(f"{count:,.0f}" for count in counts),
            ]
        )
        host.append([timeline.engine, *(f"{timeline.host_time(what):.2f}" for what in HOST)])
    return (
        f"{run.card}, driver {run.driver}, PyTorch {run.torch}, {run.date}\n"
        f"{run.command_today}\n"
        f"{run.model}; {run.num_seqs} sequences of {run.context} tokens on average\n\n"
        f"{aligned(steps)}\n\n{aligned(host)}\n\n"
        "ms: without the profiler, which slows the host. All else is from the profile.\n"
        "GPU: the milliseconds in which it works. busy: their share of the profiled step.\n"
        "starts: calls of the host that start kernels, copies or recorded steps."
    )


def length(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)
