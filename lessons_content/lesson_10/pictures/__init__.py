"""The pictures of lesson 10: host and GPU over time, and the engine's parts one by one."""

from collections.abc import Mapping, Sequence

from lessons_content.lesson_10.bench import engine_peers_runs, few_rows_runs, timeline_runs
from lessons_content.lesson_10.bench.fast_engine_runs import Run
from lessons_content.lesson_10.pictures import engine_peers, fast_engine, turns, weights
from lessons_content.lesson_10.pictures import host_and_gpu as lanes
from lessons_lib.drawing import Picture, show
from lessons_lib.drawing.player import Player


def opening() -> Picture:
    """A step of lesson 08's engine, and of the engine with all parts, on one axis."""
    names = {"lesson 08": "lesson 08's engine", "+ ahead": "the same with this lesson's parts"}
    return host_and_gpu([*names], until=60, names=names)


def host_and_gpu(
    engines: list[str],
    until: float | None = None,
    names: Mapping[str, str] | None = None,
) -> Picture:
    """The work of host and GPU in three steps of some engines.

    until: the end of the axis, in ms; None: when the last engine is done.
    names: by an engine's title, the name in the picture; None shows its title.
    """
    run = timeline_runs.recorded()[0]
    timelines = {timeline.engine: timeline for timeline in run.timelines}
    words = ". ".join(lanes.heading(timelines[title], names) for title in engines)
    return show(
        lanes.host_and_gpu(run, engines, until, names),
        alt=f"Pairs of lanes over time, the host above and the GPU below. {words}.",
    )


def in_turns_and_ahead() -> Player:
    """Host and GPU of the engine without and with its last part, moment by moment."""
    run = timeline_runs.recorded()[0]
    return turns.played(run, {"+ sampling": "in turns", "+ ahead": "a step ahead"})


def ladder(run: Run) -> Picture:
    """The first trace, with one more part in each row, and the decode steps below it."""
    rows = [row for row in run.rows if row.trace == run.rows[0].trace]
    first, last = (row.tokens_per_second for row in (rows[0], rows[-1]))
    return show(
        fast_engine.overview(run),
        alt=(
            f"Above, a bar for each engine, from {first:,.0f} tokens a second in lesson 08 to"
            f" {last:,.0f} with all parts. Below, decode steps cut into attention, products of"
            " matrices and smaller parts, with a dashed line where all bytes would be read"
            " once."
        ),
    )


def rates(run: few_rows_runs.Run) -> Picture:
    """The rate of reading weights in small batches, with PyTorch's products and with ours."""
    batches = "; ".join(
        f"{rows[0].model} with {rows[0].num_seqs}: "
        + ", ".join(f"{row.tokens_per_second:,.0f}" for row in rows)
        for rows in run.batches()
    )
    return show(
        weights.rates(run),
        alt=(
            "Bars of gigabytes of weights a second, three for each model and number of"
            f" sequences: cuBLAS, few rows, early. In tokens a second: {batches}."
        ),
    )


def reads_over_time(run: few_rows_runs.Run) -> Picture:
    """The card's reads over time, without and with kernels that begin early."""
    lengths = [max(map(len, reads.kilobytes)) for reads in run.reads]
    return show(
        weights.reads_over_time(run),
        alt=(
            f"Two rows over time, {run.reads_layers} layers each, in four colours for four"
            " products. Above, there are gaps between the products, and each begins slowly."
            " Below, the gaps are smaller, and the layers end after"
            f" {lengths[1]} microseconds instead of {lengths[0]}."
        ),
    )


def beside(runs: Sequence[engine_peers_runs.Run]) -> Picture:
    """Our rate, × a peer's, for each trace and size of the model."""
    words = ". ".join(
        f"{run.size}: {', '.join(f'{row.ratio:.2f}' for row in run.rows)}" for run in runs
    )
    return show(
        engine_peers.ratios(runs),
        alt=(
            "A group of bars for each trace, a bar for each size of the model, and a dashed "
            f"line where both are equally fast. From above to below, {words}."
        ),
    )
