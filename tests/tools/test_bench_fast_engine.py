"""The fast engine's benchmark: its engines, its traces."""

import dataclasses

from lessons_content.lesson_10.bench.fast_engine import ORDER, engines, traces
from paged_attention.engine.fast import FastParts


def test_each_engine_has_one_part_more_and_the_last_has_all_that_the_record_knows():
    """Of the others, the benchmark few_rows has two."""
    with_parts = [parts for parts in engines().values() if parts is not None]
    counts = [sum(dataclasses.astuple(parts)) for parts in with_parts]
    assert counts == list(range(1, len(ORDER) + 1))
    last = dataclasses.replace(FastParts(), few_rows=False, early=False, pieces=False)
    assert with_parts[-1] == last
    assert {*ORDER, "few_rows", "early", "pieces"} == {
        field.name for field in dataclasses.fields(FastParts)
    }


def test_the_traces_are_those_that_others_serve():
    short, long = traces(151_936)
    assert (len(short.prompts), sum(map(len, short.prompts))) == (64, 34_960)
    assert set(short.new_tokens) == {128}
    assert len(long.prompts) == len(long.new_tokens) == 256
    for lengths in (long.new_tokens, list(map(len, long.prompts))):
        assert min(lengths) >= 100 and max(lengths) <= 1024
    assert sum(long.new_tokens) == 150_245
