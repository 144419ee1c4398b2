"""Lesson 07's benchmark: method, files, tables and pictures.

Only the last tests need a GPU.
"""

import dataclasses
import math
import re
import statistics
from collections import Counter

import matplotlib.pyplot as plt
import pytest
import torch

import lessons_draw.ladder
from benchmark_machine import LIMIT, Machine
from lessons_bench import backends, compare, ladder, ladder_runs
from lessons_bench.backends import BACKENDS, Backend, make_batch, reference
from lessons_bench.ladder_runs import Row, Run
from lessons_bench.workloads import VARIANTS, WORKLOADS, Workload
from paged_attention.ladder import FP8, RUNGS
from paged_attention.splits import SPLIT_COST, choose_num_splits

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
TINY = Workload("tiny", "a few tokens", 8, 2, 128, (33, 5, 16))
NAMES = [backend.name for backend in BACKENDS]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def backend(name, *results, **fields):
    """One that gives these functions' results, each for a cache: (batch, k_cache, v_cache) ->
    Tensor.
    """

    def build(batch):
        return [
            lambda k=k, v=v, result=results[number % len(results)]: result(batch, k, v)
            for number, (k, v) in enumerate(batch.caches)
        ]

    return Backend(name, f"title of {name}", build, **fields)


def right(batch, k_cache, v_cache):
    return reference(dataclasses.replace(batch, caches=[(k_cache, v_cache)])).to(batch.q.dtype)


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


# What is measured


@pytest.mark.parametrize(
    "name, megabytes",
    [
        ("gqa_b64_c1024", 268),
        ("gqa_b256_ragged", 1174),
        ("gqa_b1_c32768", 134),
        ("gqa_b8_c8192", 268),
        ("mha_b32_c1024", 537),
        ("gqa_b8_c512", 17),
    ],
)
def test_the_workloads_have_the_documented_sizes(name, megabytes):
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    assert (
        round(workload.kv_bytes() / 1e6) == megabytes
        and workload.kv_bytes(FP8) * 2 == workload.kv_bytes()
    )
    assert (workload.head_size, workload.block_size, workload.dtype) == (
        128,
        16,
        torch.float16,
    )


def test_there_are_six_workloads_and_every_variant_is_large_enough():
    assert len(WORKLOADS) == 6 and all(variant.kv_bytes() > 250e6 for variant in VARIANTS)
    assert max(Counter(workload.name for workload in (*WORKLOADS, *VARIANTS)).values()) == 1
    primes = next(variant for variant in VARIANTS if variant.name == "primes").context_lens
    assert all(
        length % factor for length in primes for factor in range(2, math.isqrt(length) + 1)
    )
    groups = {
        variant.num_q_heads // variant.num_kv_heads
        for variant in VARIANTS
        if variant.name.startswith("group_")
    }
    assert groups == {1, 2, 3, 5, 6, 7, 8, 12, 16}


def test_every_rung_is_a_backend_in_order():
    assert NAMES[: len(RUNGS)] == [f"rung {number}" for number in range(len(RUNGS))]
    assert [each.rung for each in BACKENDS if each.rung is not None] == [
        rung.number for rung in RUNGS
    ]
    assert [each.name for each in BACKENDS if each.fp8] == ["rung 8"]


def test_a_batch_uses_each_block_once_and_its_caches_differ():
    batch = make_batch(TINY, 3, "cpu")
    used = batch.block_table[batch.block_table >= 0]
    assert sorted(used.tolist()) == list(range(3 + 1 + 1)) and used.tolist() != sorted(
        used.tolist()
    )
    assert len(batch.caches) == 3 and not torch.equal(batch.caches[0][0], batch.caches[1][0])
    again = make_batch(TINY, 3, "cpu")
    assert torch.equal(batch.q, again.q) and torch.equal(
        batch.caches[2][1], again.caches[2][1]
    )


@pytest.mark.parametrize("chunk", [16, 48, 1 << 16])
@pytest.mark.parametrize("fp8", [False, True])
def test_the_reference_agrees_with_attention_written_out(chunk, fp8, monkeypatch):
    monkeypatch.setattr(backends, "CHUNK", chunk)
    batch = make_batch(
        dataclasses.replace(TINY, context_lens=(33, 1, 0, 16, 70)), 1, "cpu", fp8
    )
    out, (k_cache, v_cache) = reference(batch), batch.caches[0]
    for seq, context_len in enumerate(batch.workload.context_lens):
        for head in range(8):
            total, weights = torch.zeros(128, dtype=torch.float64), 0.0
            for token in range(context_len):
                place = batch.block_table[seq, token // 16], token % 16, head // 4
                k, v = (
                    cache[place].double()
                    * (1 if scales is None else scales[head // 4].double())
                    for cache, scales in ((k_cache, batch.k_scales), (v_cache, batch.v_scales))
                )
                weight = math.exp(float(k @ batch.q[seq, head].double()) / math.sqrt(128))
                total, weights = total + weight * v, weights + weight
            torch.testing.assert_close(out[seq, head], total / (weights or 1))


def test_rungs_and_others_are_measured_and_right():
    run = ladder.measure(
        [TINY], ["rung 3", "rung 7", "rung 8", "gather"], quick=True, machine=Machine()
    )
    assert [row.backend for row in run.rows] == ["rung 3", "rung 7", "rung 8", "gather + SDPA"]
    assert all(
        not row.reason and row.milliseconds == 2.0 and 0 < row.error < 1e-3 for row in run.rows
    )
    assert (
        run.row("tiny", "rung 7").kv_bytes
        == TINY.kv_bytes()
        == 2 * run.row("tiny", "rung 8").kv_bytes
    )
    assert run.row("tiny", "rung 7").gb_per_s == pytest.approx(TINY.kv_bytes() / 2.0 / 1e6)
    assert run.row("tiny", "rung 7").share_of_limit == pytest.approx(
        TINY.kv_bytes() / 2.0 / 1e6 / LIMIT
    )
    assert (run.card, run.read_limit_gb_per_s, run.variants) == ("A Card 3000", LIMIT, ())


def test_variants_are_measured_with_the_last_rung(monkeypatch):
    monkeypatch.setattr(ladder, "VARIANTS", (dataclasses.replace(TINY, name="other"),))
    run = ladder.measure([TINY], ["gather"], variants=True, quick=True, machine=Machine())
    assert [row.backend for row in run.rows] == ["gather + SDPA"]
    assert [(row.workload, row.backend) for row in run.variants][0] == (
        "other",
        "rung 7",
    ) and not run.variants[0].reason


# How it is measured


def test_backends_take_turns():
    assert list(compare.turns([3, 1, 2])) == [0, 1, 2, 0, 2, 0]
    assert list(compare.turns([])) == [] == list(compare.turns([0, 0]))


@pytest.mark.parametrize("num_backends", [1, 2, 3, 5])
def test_a_cache_is_read_again_only_when_all_others_have_been(num_backends):
    machine = Machine()
    compare.compare(
        machine, TINY, [backend(f"{number}", right) for number in range(num_backends)], LIMIT
    )
    caches = compare.num_caches(TINY.kv_bytes(), machine.l2_bytes())
    timed = machine.seen[num_backends:]  # the first of each says how long it takes
    assert [run // caches for run in timed] == list(range(num_backends)) * compare.ROUNDS
    assert [run % caches for run in timed] == [number % caches for number in range(len(timed))]


@pytest.mark.parametrize(
    "kv_bytes, l2_bytes, expected",
    [
        (17_000_000, 50_000_000, 13),
        (268_000_000, 50_000_000, 2),
        (200_000_000, 50_000_000, 2),
        (199_999_999, 50_000_000, 3),
        (0, 1, 5),
    ],
)
def test_there_are_so_many_caches_that_the_l2_forgets(kv_bytes, l2_bytes, expected):
    count = compare.num_caches(kv_bytes, l2_bytes)
    assert count == expected and (count - 1) * max(1, kv_bytes) >= 4 * l2_bytes


def test_the_time_is_the_median_and_slow_ones_run_less_often():
    times = iter([1.0] + [5.0, 1.0, 2.0] * 100)
    (row,) = compare.compare(
        Machine(lambda run: next(times)), TINY, [backend("fast", right)], LIMIT, quick=True
    )
    assert row.milliseconds == statistics.median([5.0, 1.0, 2.0] * 3)
    machine = Machine(lambda run: 50.0 if run < 2 else 1.0)
    slow, fast = compare.compare(
        machine, TINY, [backend("slow", right), backend("fast", right)], LIMIT
    )
    caches = len(machine.prepared) // 2
    assert caches == 2 and (slow.milliseconds, fast.milliseconds) == (50.0, 1.0)
    rounds = Counter(run // caches for run in machine.seen)
    assert rounds == {0: 1 + compare.ROUNDS_OF_SLOW, 1: 1 + compare.ROUNDS}


def compared(*results, **fields):
    (row,) = compare.compare(
        Machine(), TINY, [backend("rung 7", *results, **fields)], LIMIT, quick=True
    )
    return row


def test_a_wrong_result_is_reported_beside_its_time():
    row = compared(lambda *batch: right(*batch) + 0.5)
    assert (
        row.milliseconds == 2.0
        and row.reason == "the result is 5.0e-01 away from float64, and 2.0e-03 is allowed"
    )
    assert row.error == pytest.approx(0.5, rel=0.01)
    assert (
        compared(lambda *batch: right(*batch) + 0.004).reason
        and not compared(lambda *batch: right(*batch) + 5e-4).reason
    )
    row = compared(lambda *batch: right(*batch) * math.nan)
    assert row.reason == "the result holds NaN or infinity" and row.error is None


def test_a_result_that_changes_is_reported():
    count = iter(range(1000))
    row = compared(lambda *batch: right(*batch) + 5e-4 * (next(count) == 0))
    assert (
        re.fullmatch(r"two runs differ by \d.\de-0[34]", row.reason)
        and row.milliseconds == 2.0
    )


def test_a_replay_that_writes_nothing_is_found():
    class Stale(Machine):
        def prepare(self, call):
            result = call()
            self.prepared.append(lambda: result)
            return self.prepared[-1]

    (row,) = compare.compare(Stale(), TINY, [backend("rung 7", right)], LIMIT, quick=True)
    assert row.reason == "the result holds NaN or infinity"


def test_a_backend_that_fails_is_reported_and_the_others_go_on():
    def fails(*batch):
        raise RuntimeError("no such\n  kernel" + "!" * 1000)

    rows = compare.compare(
        Machine(),
        TINY,
        [
            backend("one", fails),
            backend("two", right),
            backend("three", right, missing=lambda: "three is not installed"),
        ],
        LIMIT,
    )
    assert (
        rows[0].reason.startswith("RuntimeError: no such kernel!")
        and len(rows[0].reason) < 310
    )
    assert (rows[0].milliseconds, rows[0].share_of_limit, rows[0].error) == (None, None, None)
    assert rows[1].milliseconds == 2.0 and not rows[1].reason
    assert rows[2].reason == "three is not installed" and rows[2].milliseconds is None


def test_one_that_fails_while_it_is_timed_has_no_time():
    def clock(run):
        clock.left -= 1
        if clock.left == 0:
            raise RuntimeError("the card fell off")
        return 1.0

    clock.left = 8
    rows = compare.compare(
        Machine(clock), TINY, [backend("one", right), backend("two", right)], LIMIT
    )
    assert [row.reason for row in rows] == ["", "RuntimeError: the card fell off"]
    assert [row.milliseconds for row in rows] == [1.0, None]


def test_too_little_memory_is_a_reason_for_all():
    class Full(Machine):
        def clean(self):
            raise torch.OutOfMemoryError("tried to allocate too much")

    rows = compare.compare(Full(), TINY, [backend("one", right), backend("two", right)], LIMIT)
    assert {row.reason for row in rows} == {
        "no tensors: OutOfMemoryError: tried to allocate too much"
    }


# What is recorded


def test_what_is_recorded_is_whole_and_right():
    for run in ladder.recorded():
        assert {row.workload for row in run.rows} == {workload.name for workload in WORKLOADS}
        assert not run.wrong_rungs() and run.command.startswith(
            "python -m lessons_bench.ladder"
        )
        for workload in run.workloads:
            numbers = [row.rung for row in run.rungs(workload)]
            assert numbers == list(range(len(numbers)))
            assert 8 in numbers and len(numbers) <= len(RUNGS)  # rung 9 is younger than some
        for row in (*run.rows, *run.variants):
            if row.milliseconds is not None:
                assert row.gb_per_s == pytest.approx(row.kv_bytes / row.milliseconds / 1e6)
                assert row.share_of_limit == pytest.approx(
                    row.gb_per_s / run.read_limit_gb_per_s
                )


# What a run says


def test_a_run_answers_and_names_what_it_has():
    run = made_up()
    assert run.milliseconds("gqa_b8_c512", "rung 7") == pytest.approx(
        16.777216e6 / (0.9 * LIMIT) / 1e6
    )
    assert [row.rung for row in run.rungs("gqa_b8_c512")] == [1, 7, 8]
    assert [row.backend for row in run.others("gqa_b8_c512")] == [*ladder_runs.FLASHINFER[:2]]
    assert run.flashinfer_row("gqa_b8_c512").backend == ladder_runs.FLASHINFER[0]
    with pytest.raises(
        KeyError,
        match="no workload 'large' in this run on A Card 3000; it has gqa_b64_c1024, ",
    ):
        run.milliseconds("large", "rung 7")
    with pytest.raises(
        KeyError, match="no backend 'rung 3' for gqa_b8_c512 .* it has rung 1, rung 7"
    ):
        run.milliseconds("gqa_b8_c512", "rung 3")
    with pytest.raises(
        ValueError, match="PyTorch varlen_attn has no time for gqa_b8_c512 .*: it fell over"
    ):
        run.milliseconds("gqa_b8_c512", "PyTorch varlen_attn")


def test_the_mean_of_ratios_is_geometric():
    assert ladder.geometric_mean([2.0, 8.0]) == pytest.approx(4.0) and ladder.geometric_mean(
        [0.5, 2.0]
    ) == pytest.approx(1.0)
    for numbers in ([], [1.0, 0.0], [-1.0]):
        with pytest.raises(ValueError, match="positive"):
            ladder.geometric_mean(numbers)


def test_ratios_are_of_right_results_only():
    run = made_up()
    assert set(run.ratios()) == set(run.workloads) and all(
        abs(ratio - 1.2) < 1e-9 for ratio in run.ratios().values()
    )
    wrong = tuple(
        (
            dataclasses.replace(row, reason="wrong")
            if row.backend == ladder_runs.FLASHINFER[0]
            else row
        )
        for row in run.rows
    )
    slower = dataclasses.replace(run, rows=wrong).ratios()
    assert all(abs(ratio - 1.8) < 1e-9 for ratio in slower.values())
    assert (
        made_up({"rung 7": 0.5}).ratios()
        == {}
        == made_up({"rung 7": None, "rung 8": 0.5}).fp8_ratios()
    )


def test_the_table_has_a_row_for_each_backend_and_a_column_for_each_workload():
    lines = ladder.table(made_up()).split("\n")
    assert lines[:3] == [
        "A Card 3000, driver 1.2, CUDA 13.0, PyTorch 2.11, no FlashInfer, 2026-01-02",
        "made up for a test",
        "Read limit: 4,000 GB/s",
    ]
    cells = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1:] for line in lines[4:]}
    assert cells["milliseconds, share of the limit"] == [
        workload.name for workload in WORKLOADS
    ]
    assert cells["bytes of K and V"] == [
        "268 MB",
        "1,174 MB",
        "134 MB",
        "268 MB",
        "537 MB",
        "17 MB",
    ]
    assert cells["at the limit"][0] == "0.0671 100 %"
    row = next(line for line in lines if line.startswith("rung 7"))
    assert (
        "balanced, one launch" in row
        and row.endswith("0.0047  90 %")
        and "0.0746  90 %" in row
    )
    assert cells["PyTorch varlen_attn"] == ["– !"] * 6
    assert cells["rung 1"][1] == "1.3422" and "gather + SDPA" not in cells
    assert len({len(line) for line in lines[4:13]}) == 1
    assert (
        lines[-1] == "! PyTorch varlen_attn (gqa_b64_c1024, gqa_b256_ragged, gqa_b1_c32768,"
        " gqa_b8_c8192, "
        "mha_b32_c1024, gqa_b8_c512): it fell over"
    )


def test_below_the_table_stands_the_comparison():
    text = ladder.table(made_up())
    assert (
        "FlashInfer's time (the fastest of its ways) over rung 7's: "
        "geometric mean 1.200, worst 1.200 ("
        in text
        and "over rung 7's, workload by workload: 0.56, 0.56," in text
        and "Largest distance of a number from float64: 1.0e-04" in text
    )
    assert "over rung 7" not in ladder.table(made_up({"rung 1": 0.1}))


def test_the_variants_have_a_table_of_their_own():
    shares = {"rung 7": 0.9, ladder_runs.FLASHINFER[0]: 0.45, ladder_runs.FLASHINFER[1]: None}
    lines = ladder.table(made_up(variants=made_up(shares, VARIANTS).rows)).split("\n")
    line = next(line for line in lines if line.startswith("12 query heads"))
    assert re.split(r"  +", line) == [
        "12 query heads for a KV head",
        "268 MB",
        "0.0746",
        "90 %",
        "0.1491",
        "45 %",
        "2.00",
        "1e-04",
    ]
    assert (
        sum(line.startswith("! FlashInfer CUDA cores (bf16, head_64, ") for line in lines) == 1
    )


# The command


def test_measure_refuses_names_that_there_are_not():
    with pytest.raises(ValueError, match="no workload 'huge'"):
        ladder.measure(["huge"], machine=Machine())
    with pytest.raises(ValueError, match="no backend 'slow'"):
        ladder.measure([TINY], ["slow"], machine=Machine())


@pytest.fixture
def keep(monkeypatch, tmp_path):
    """Measures a tiny workload by the command, and keeps the run in a folder of the test."""
    monkeypatch.setattr(ladder, "WORKLOADS", (TINY,))
    return ["--record", "--folder", f"{tmp_path}"]


def test_the_command_keeps_what_it_measured(keep, capsys, monkeypatch, tmp_path):
    two = tuple(each for each in BACKENDS if each.name in ("rung 7", "gather + SDPA"))
    monkeypatch.setattr(ladder, "BACKENDS", two)
    assert ladder.main([*keep, "--plot", f"{tmp_path}/run.png"], Machine()) == 0
    shown = capsys.readouterr()
    (run,) = Run.recorded(tmp_path)
    assert shown.out.startswith(ladder.table(run)) and "gather + SDPA" in shown.err
    assert run.command == "python -m lessons_bench.ladder"
    assert (tmp_path / run.file_name).name == "a-card-3000.json"
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_says_what_a_smaller_run_left_out(keep, tmp_path):
    words = ["--only", "Rung 7", "GATHER", "--quick", "--json", f"{tmp_path}/run.json"]
    assert ladder.main(words, Machine()) == 0
    (run,) = Run.recorded(tmp_path)
    assert run.command == "python -m lessons_bench.ladder --quick --only 'Rung 7' GATHER"


def test_a_wrong_rung_is_an_error_and_is_not_recorded(keep, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(
        ladder,
        "BACKENDS",
        (backend("rung 7", lambda *batch: right(*batch) + 1), backend("other", right)),
    )
    assert ladder.main(keep, Machine()) == 1
    shown = capsys.readouterr()
    assert (
        "! rung 7 (tiny): the result is 1.0e+00 away" in shown.out
        and "Not recorded" in shown.err
    )
    assert Run.recorded(tmp_path) == []
    monkeypatch.setattr(
        ladder,
        "BACKENDS",
        (backend("rung 7", right), backend("other", lambda *batch: right(*batch) + 1)),
    )
    assert (
        ladder.main([], Machine()) == 0
        and "! other (tiny): the result" in capsys.readouterr().out
    )


# The pictures


def bars(axes):
    return [(round(bar.get_width(), 6), bar.get_hatch()) for bar in axes.patches]


def test_the_ladder_has_a_bar_for_each_that_has_a_time():
    run = made_up()
    (axes,) = lessons_draw.ladder.ladder(run, "gqa_b64_c1024").axes
    assert bars(axes) == [
        (200.0, None),
        (3600.0, None),
        (3200.0, None),
        (3000.0, "///"),
        (2000.0, "///"),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "rung 1: parallel softmax",
        "rung 7: balanced, one launch",
        "rung 8: fp8 cache",
        *ladder_runs.FLASHINFER[:2],
    ]
    assert (
        axes.lines[0].get_xdata()[0] == LIMIT
        and axes.get_xlim()[1] > LIMIT
        and axes.yaxis_inverted()
    )
    texts = [text.get_text() for text in axes.texts]
    assert (
        texts[:2] == ["1.34 ms, 5%", "0.0746 ms, 90%"]
        and texts[-1] == "the limit:\n4,000 GB/s"
    )
    assert "A Card 3000" in axes.get_title(loc="left") and "GB/s" in axes.get_xlabel()


def test_the_ladder_grows_rung_by_rung():
    (axes,) = lessons_draw.ladder.ladder(
        made_up(), "gqa_b64_c1024", up_to=7, others=False
    ).axes
    assert bars(axes) == [(200.0, None), (3600.0, None)]
    with pytest.raises(ValueError, match="no rung up to 0 with a time for gqa_b64_c1024"):
        lessons_draw.ladder.ladder(made_up(), "gqa_b64_c1024", up_to=0)
    with pytest.raises(ValueError, match="its workloads are gqa_b64_c1024, "):
        lessons_draw.ladder.ladder(made_up(), "huge")


def test_a_wrong_result_is_marked_in_the_picture():
    run = made_up({"rung 7": 1.3})
    run = dataclasses.replace(run, rows=(dataclasses.replace(run.rows[0], reason="wrong"),))
    (axes,) = lessons_draw.ladder.ladder(run, "gqa_b64_c1024").axes
    assert (
        axes.texts[0].get_text().endswith("130% (wrong result)")
        and axes.get_xlim()[1] > 1.3 * LIMIT
    )


def test_the_last_rung_stands_beside_flashinfer_on_every_workload():
    (axes,) = lessons_draw.ladder.workloads(made_up()).axes
    assert bars(axes) == [(3600.0, None), (3000.0, "///")] * 6
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "rung 7",
        "FlashInfer, the fastest of its ways",
    ]
    (axes,) = lessons_draw.ladder.workloads(made_up({"rung 7": 0.9})).axes
    assert bars(axes) == [(3600.0, None)] * 6 and len(axes.get_legend().get_texts()) == 1
    with pytest.raises(ValueError, match="no time of rung 7"):
        lessons_draw.ladder.workloads(made_up({"rung 1": 0.1}))


def test_flashinfer_has_its_version_in_each_picture():
    run = dataclasses.replace(made_up(), flashinfer="0.7.2")
    (axes,) = lessons_draw.ladder.ladder(run, "gqa_b64_c1024").axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[3:] == [
        "FlashInfer 0.7.2 tensor cores",
        "FlashInfer 0.7.2 CUDA cores",
    ] and run.date in axes.get_title(loc="left")
    (axes,) = lessons_draw.ladder.workloads(run).axes
    assert (
        axes.get_legend().get_texts()[1].get_text()
        == "FlashInfer 0.7.2, the fastest of its ways"
    )
    assert run.date in axes.get_title(loc="left")


def test_the_overview_draws_what_there_is():
    assert [len(axes.patches) for axes in lessons_draw.ladder.overview(made_up()).axes] == [
        5,
        12,
    ]
    assert [
        len(axes.patches)
        for axes in lessons_draw.ladder.overview(made_up({"gather + SDPA": 0.2})).axes
    ] == [1]
    with pytest.raises(ValueError, match="no times to draw"):
        lessons_draw.ladder.overview(made_up({"rung 7": None}))


@pytest.mark.parametrize(
    "num_rows, num_tiles, multiprocessors", [(6, 16, 8), (5, 10, 4), (1, 7, 3), (9, 3, 4)]
)
def test_waves_end_when_choose_num_splits_thinks_so(num_rows, num_tiles, multiprocessors):
    splits = tuple(range(1, num_tiles + 1))
    panels = lessons_draw.ladder.waves(num_rows, num_tiles, multiprocessors, splits).axes
    ends = [axes.lines[0].get_xdata()[0] for axes in panels]
    assert splits[ends.index(min(ends))] == choose_num_splits(
        num_rows, num_tiles, multiprocessors
    )
    for num_splits, axes, end in zip(splits, panels, ends, strict=True):
        tiles = [bar for bar in axes.patches if bar.get_hatch() is None]
        costs = [bar for bar in axes.patches if bar.get_hatch()]
        assert (
            sum(bar.get_width() for bar in tiles) == num_rows * num_tiles
            and len(costs) == num_rows * num_splits
        )
        assert max(bar.get_x() + bar.get_width() for bar in costs) <= end
        assert f"{end} units of time" in axes.get_title(loc="left")


def test_equal_shares_end_together():
    num_tiles = [16, 5, 3, 30, 9, 1]
    (axes,) = lessons_draw.ladder.balanced(num_tiles, 8).axes
    costs = [bar for bar in axes.patches if bar.get_hatch()]
    assert [bar.get_x() for bar in costs] == [8] * 8 and {
        bar.get_width() for bar in costs
    } == {SPLIT_COST}
    assert sum(bar.get_width() for bar in axes.patches) == sum(num_tiles) + 8 * SPLIT_COST
    assert "12 units of time, 67% of it for tiles" in axes.get_title(loc="left")


# On a GPU


@needs_gpu
def test_the_read_limit_is_a_memory_bandwidth():
    assert 50 < ladder.read_limit() < 50_000


@needs_gpu
def test_a_small_workload_is_measured_on_the_gpu():
    workload = Workload("small", "16 sequences of 512 tokens", 32, 8, 128, (512,) * 16)
    run = ladder.measure([workload], ["rung 1", "rung 7", "rung 8", "gather"], quick=True)
    assert (
        not [row for row in run.rows if row.reason]
        and run.card == torch.cuda.get_device_name()
    )
    assert 0 < run.milliseconds("small", "rung 7") < run.milliseconds("small", "rung 1")
