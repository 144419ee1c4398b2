"""The work of host and GPU of some engines, moment by moment, for the player."""

from collections.abc import Mapping

from lessons_content.lesson_10.bench.timeline_runs import HOST, Run, Spans, Timeline, unpack
from lessons_content.lesson_10.pictures.host_and_gpu import GPU, WORDS
from lessons_lib.drawing.player import Bar, Lanes, Numbers, Player, Recording, View

LOOKS = dict(zip(HOST, ("look-3", "look-0", "empty", "look-2", "shared"), strict=True))
SHORT = 20  # µs; shorter gaps are closed, and shorter spans left out
APART = 100  # µs between two moments, at least


def played(run: Run, engines: Mapping[str, str]) -> Player:
    """A host's lane and a GPU's lane for each engine, in milliseconds.

    engines: by an engine's title, its name here.
    """
    by_title = {timeline.engine: timeline for timeline in run.timelines}
    timelines = {words: by_title[title] for title, words in engines.items()}
    bars = {words: _bars(timeline) for words, timeline in timelines.items()}
    lanes = Lanes(
        "time",
        "milliseconds; from left to right",
        [f"{what}, {words}" for words in timelines for what in ("host", "GPU")],
        max(timeline.end for timeline in timelines.values()) / 1000,
        [(WORDS[what][0], LOOKS[what]) for what in HOST] + [(GPU[0], "look-1")],
        [
            Bar(
                2 * place + lane, start / 1000, end / 1000, kind, tells=f"{end - start:.0f} µs"
            )
            for place, parts in enumerate(bars.values())
            for lane, start, end, kind in parts
        ],
        unit="ms",
    )
    done = {f"steps{place}": f"steps done {words}" for place, words in enumerate(bars)}
    numbers = Numbers("numbers", done)
    title = f"Decode steps of {run.num_seqs} sequences on one {run.card} ({run.date})"
    recording = Recording(title, [View("", [lanes, numbers], wide=True)], pace=600)
    for now in _moments(bars, max(timeline.end for timeline in timelines.values())):
        said = [_said(words, parts, timelines[words], now) for words, parts in bars.items()]
        counts = {
            f"steps{place}": f"{_steps(timeline, now)}"
            for place, timeline in enumerate(timelines.values())
        }
        words = f"{now / 1000:.1f} ms. {' '.join(said)}"
        recording.step(words, lanes.at(now / 1000), numbers.at(**counts))
    busy = "; ".join(
        f"{words}, a step takes {timeline.step:.1f} ms and the GPU is busy for"
        f" {100 * timeline.busy:.0f} % of it"
        for words, timeline in timelines.items()
    )
    first_done = min(timeline.end for timeline in timelines.values()) / 1000
    return recording.player(
        f"Pairs of lanes over time, the host above and the GPU below: {busy}.",
        still=[step["set"]["time/now"] >= first_done for step in recording.steps].index(True),
    )


def _bars(timeline: Timeline) -> list[tuple[int, float, float, int]]:
    """(lane, start, end, kind) of the work of host (lane 0) and GPU."""
    host = [
        (0, start, end, kind)
        for kind, what in enumerate(HOST)
        for start, end in _whole(unpack(timeline.host[what]))
    ]
    return host + [(1, start, end, len(HOST)) for start, end in _whole(unpack(timeline.gpu))]


def _whole(spans: Spans) -> list[tuple[float, float]]:
    joined: list[list[float]] = []
    for start, end in spans:
        if joined and start - joined[-1][1] < SHORT:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return [(start, end) for start, end in joined if end - start >= SHORT]


def _moments(bars: dict, end: float) -> list[float]:
    """The times at which a host or a GPU begins something, and the end."""
    moments = [0.0]
    for start in sorted(start for parts in bars.values() for _, start, _, _ in parts):
        if start - moments[-1] >= APART:
            moments.append(start)
    return [*moments, end]


def _steps(timeline: Timeline, now: float) -> int:
    """How many steps have ended on the host."""
    return sum(now >= end for end in (*timeline.starts[1:], timeline.end))


def _said(words: str, parts: list, timeline: Timeline, now: float) -> str:
    if now >= timeline.end:
        return f"{words.capitalize()}: all {len(timeline.starts)} steps are done."
    doing = {lane: kind for lane, start, end, kind in parts if start <= now + SHORT < end}
    host = WORDS[HOST[doing[0]]][0] if 0 in doing else WORDS["other"][0]
    gpu = "the GPU works" if 1 in doing else "the GPU has nothing to do"
    return f"{words.capitalize()}: the {host}, {gpu}."
