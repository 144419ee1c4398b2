"""The fast engine's benchmark: its engines, its traces, its files and its table."""

import dataclasses

import matplotlib.pyplot as plt
import pytest

from lessons_bench.fast_engine import ORDER, engines, traces
from lessons_bench.fast_engine_runs import Run, StepRow, TraceRow, recorded, table
from lessons_draw.fast_engine import overview
from paged_attention.engine.fast import FastParts

ROWS = (
    TraceRow("a trace", "lesson 08", (), 1_000, (2.0, 1.0, 4.0), 0.5, None, 1.0),
    TraceRow("a trace", "+ graphs", ("graphs",), 1_000, (0.5,), 3.25, 3 * 2**20, 0.75),
    TraceRow("another", "lesson 08", (), 1_000, (), 0.5, None, 0.0, "too little memory"),
)
STEP = StepRow(64, 610, 1.33, 2.61, 2.5, {"attention": 1.4, "products": 0.7})
RUN = Run(
    card="NVIDIA H200",
    driver="1",
    torch="2",
    date="2026-11-24",
    command="python -m lessons_bench.fast_engine",
    model="a model",
    read_limit=4390.0,
    rows=ROWS,
    steps=(STEP,),
)


def test_each_engine_has_one_part_more_and_the_last_has_all():
    with_parts = [parts for parts in engines().values() if parts is not None]
    counts = [sum(dataclasses.astuple(parts)) for parts in with_parts]
    assert counts == list(range(1, len(ORDER) + 1)) and with_parts[-1] == FastParts()
    assert set(ORDER) == {field.name for field in dataclasses.fields(FastParts)}


def test_the_traces_are_those_that_others_serve():
    short, long = traces(151_936)
    assert (len(short.prompts), sum(map(len, short.prompts))) == (64, 34_960)
    assert set(short.new_tokens) == {128}
    assert len(long.prompts) == len(long.new_tokens) == 256
    for lengths in (long.new_tokens, list(map(len, long.prompts))):
        assert min(lengths) >= 100 and max(lengths) <= 1024
    assert sum(long.new_tokens) == 150_245


def test_the_median_turn_counts():
    assert ROWS[0].tokens_per_second == 500 and ROWS[2].tokens_per_second is None


def test_the_table_says_all_of_it():
    text = table(RUN)
    for words in (
        "NVIDIA H200, driver 1, PyTorch 2, 2026-11-24",
        "reads 4,390 GB/s",
        "a trace\nengine",
        "3 MiB",
        "75 %",
        "64 x 610",
        "attention",
        "80 %",
        "! lesson 08, another: too little memory",
    ):
        assert words in text
    assert all(len(line) <= 95 for line in text.splitlines())


def test_a_run_is_drawn():
    figure = overview(RUN)
    above, below = figure.axes
    assert [bar.get_width() for bar in above.patches] == [500, 2_000]
    assert [bar.get_width() for bar in below.patches] == pytest.approx([1.4, 0.7, 0.51])
    assert below.lines[0].get_xdata().tolist() == [1.33, 1.33]
    plt.close("all")


@pytest.mark.parametrize("run", recorded(), ids=lambda run: run.card)
def test_what_is_recorded_has_every_engine_and_both_steps(run):
    traces = list(dict.fromkeys(row.trace for row in run.rows))
    titles = [[row.engine for row in run.rows if row.trace == trace] for trace in traces]
    assert titles == [list(engines()), [list(engines())[0], list(engines())[-1]]]
    assert all(row.seconds and not row.reason for row in run.rows)
    of_16_bits = [step for step in run.steps if step.kv_bits == 16]
    assert [(step.num_seqs, step.context) for step in of_16_bits] == [(64, 610), (256, 850)]
    for step in run.steps:
        assert step.limit < step.step and sum(step.budget.values()) <= 1.02 * step.step
