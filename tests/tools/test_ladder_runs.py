"""What a run of lesson 07's benchmark says, and its pictures."""

import dataclasses

import matplotlib.pyplot as plt
import pytest

from benchmark_machine import LIMIT, Machine
from lessons_content.lesson_07.bench import ladder_runs
from lessons_content.lesson_07.bench.backends import BACKENDS
from lessons_content.lesson_07.bench.ladder_runs import Row, Run
from lessons_content.lesson_07.bench.workloads import WORKLOADS
from lessons_content.lesson_07.pictures import ladder as ladder_chart
from paged_attention.ladder.decode import FP8
from paged_attention.ladder.splits import SPLIT_COST, choose_num_splits
from refused import refused


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def made_up(shares=None, workloads=WORKLOADS, **fields):
    """A run with these shares of the limit, {backend: share}; what is None has failed."""
    shares = shares or {
        "rung 1": 0.05,
        "rung 7": 0.9,
        "rung 8": 0.8,
        ladder_runs.FLASHINFER[0]: 0.75,
        ladder_runs.FLASHINFER[1]: 0.5,
        "PyTorch varlen_attn": None,
    }
    rows = []
    for workload in workloads:
        for each in (each for each in BACKENDS if each.name in shares):
            size = workload.kv_bytes(FP8 if each.fp8 else None)
            share = shares[each.name]
            measured = (
                (None, size, None, None, None, "it fell over")
                if share is None
                else (size / (share * LIMIT) / 1e6, size, share * LIMIT, share, 1e-4)
            )
            rows.append(Row(workload.name, each.name, each.title, *measured))
    facts = {
        "date": "2026-01-02",
        "command": "made up for a test",
        "read_limit_gb_per_s": LIMIT,
        "rows": tuple(rows),
    }
    return Run(**Machine().facts() | facts | fields)


# What a run says


def test_a_run_answers_and_names_what_it_has():
    run = made_up()
    milliseconds = 16.777216e6 / (0.9 * LIMIT) / 1e6
    assert run.milliseconds("gqa_b8_c512", "rung 7") == pytest.approx(milliseconds)
    assert [row.rung for row in run.rungs("gqa_b8_c512")] == [1, 7, 8]
    assert [row.backend for row in run.others("gqa_b8_c512")] == [*ladder_runs.FLASHINFER[:2]]
    assert run.flashinfer_row("gqa_b8_c512").backend == ladder_runs.FLASHINFER[0]


def test_what_a_run_does_not_have_is_named():
    time, name = made_up().milliseconds, "gqa_b8_c512"
    words = "no workload 'large' in this run on A Card 3000; it has gqa_b64_c1024, "
    refused(KeyError, words, time, "large", "rung 7")
    words = f"no backend 'rung 3' for {name} .* it has rung 1, rung 7"
    refused(KeyError, words, time, name, "rung 3")
    words = f"PyTorch varlen_attn has no time for {name} .*: it fell over"
    refused(ValueError, words, time, name, "PyTorch varlen_attn")


def test_ratios_are_of_right_results_only():
    run = made_up()
    assert set(run.ratios()) == set(run.workloads)
    assert all(abs(ratio - 1.2) < 1e-9 for ratio in run.ratios().values())
    rows = [
        dataclasses.replace(row, reason="wrong" * (row.backend == ladder_runs.FLASHINFER[0]))
        for row in run.rows
    ]
    slower = dataclasses.replace(run, rows=tuple(rows)).ratios()
    assert all(abs(ratio - 1.8) < 1e-9 for ratio in slower.values())
    assert made_up({"rung 7": 0.5}).ratios() == {}
    assert made_up({"rung 7": None, "rung 8": 0.5}).fp8_ratios() == {}


# The pictures


def bars(axes):
    return [(round(bar.get_width(), 6), bar.get_hatch()) for bar in axes.patches]


def test_the_ladder_has_a_bar_for_each_that_has_a_time():
    (axes,) = ladder_chart.ladder(made_up(), "gqa_b64_c1024").axes
    widths = {"rung 1": 200.0, "rung 7": 3600.0, "rung 8": 3200.0}
    widths |= zip(ladder_runs.FLASHINFER, (3000.0, 2000.0))
    labels = [label.get_text().partition(":")[0] for label in axes.get_yticklabels()]
    assert labels == [*widths]
    assert bars(axes) == [
        (width, None if "rung" in name else "///") for name, width in widths.items()
    ]
    assert axes.lines[0].get_xdata()[0] == LIMIT < axes.get_xlim()[1]
    assert axes.yaxis_inverted()
    texts = [text.get_text() for text in axes.texts]
    assert texts[:2] == ["1.34 ms, 5%", "0.0746 ms, 90%"]
    assert texts[-1] == "the limit:\n4,000 GB/s" and "GB/s" in axes.get_xlabel()
    assert "A Card 3000" in axes.get_title(loc="left")


def test_the_ladder_grows_rung_by_rung():
    (axes,) = ladder_chart.ladder(made_up(), "gqa_b64_c1024", up_to=7, others=False).axes
    assert bars(axes) == [(200.0, None), (3600.0, None)]
    with pytest.raises(ValueError, match="no rung up to 0 with a time for gqa_b64_c1024"):
        ladder_chart.ladder(made_up(), "gqa_b64_c1024", up_to=0)
    with pytest.raises(ValueError, match="its workloads are gqa_b64_c1024, "):
        ladder_chart.ladder(made_up(), "huge")


def test_a_wrong_result_is_marked_in_the_picture():
    run = made_up({"rung 7": 1.3})
    run = dataclasses.replace(run, rows=(dataclasses.replace(run.rows[0], reason="wrong"),))
    (axes,) = ladder_chart.ladder(run, "gqa_b64_c1024").axes
    assert axes.texts[0].get_text().endswith("130% (wrong result)")
    assert axes.get_xlim()[1] > 1.3 * LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_rows, num_tiles, multiprocessors", [(6, 16, 8), (5, 10, 4), (1, 7, 3), (9, 3, 4)]
)
def test_waves_end_when_choose_num_splits_thinks_so(num_rows, num_tiles, multiprocessors):
    splits = tuple(range(1, num_tiles + 1))
    panels = ladder_chart.waves(num_rows, num_tiles, multiprocessors, splits).axes
    ends = [axes.lines[0].get_xdata()[0] for axes in panels]
    chosen = choose_num_splits(num_rows, num_tiles, multiprocessors)
    assert splits[ends.index(min(ends))] == chosen
    for num_splits, axes, end in zip(splits, panels, ends, strict=True):
        tiles = [bar for bar in axes.patches if bar.get_hatch() is None]
        costs = [bar for bar in axes.patches if bar.get_hatch()]
        assert sum(bar.get_width() for bar in tiles) == num_rows * num_tiles
        assert len(costs) == num_rows * num_splits
        assert max(bar.get_x() + bar.get_width() for bar in costs) <= end
        assert f"{end} units of time" in axes.get_title(loc="left")


def test_equal_shares_end_together():
    num_tiles = [16, 5, 3, 30, 9, 1]
    (axes,) = ladder_chart.balanced(num_tiles, 8).axes
    costs = [bar for bar in axes.patches if bar.get_hatch()]
    assert [bar.get_x() for bar in costs] == [8] * 8
    assert {bar.get_width() for bar in costs} == {SPLIT_COST}
    assert sum(bar.get_width() for bar in axes.patches) == sum(num_tiles) + 8 * SPLIT_COST
    assert "12 units of time, 67% of it for tiles" in axes.get_title(loc="left")
