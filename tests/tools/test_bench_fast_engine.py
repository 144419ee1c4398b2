"""The fast engine's benchmark: its engines, its traces, its files and its table."""

import dataclasses

import pytest

from lessons_bench.fast_engine import ORDER, engines, traces
from lessons_bench.fast_engine_runs import recorded
from paged_attention.engine.fast import FastParts


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
