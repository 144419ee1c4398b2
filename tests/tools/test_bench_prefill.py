"""Lesson 09's benchmark: what it measures, its files, its table, its pictures."""

import json
import math
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch

from benchmark_machine import Machine
from lessons_content.lesson_09 import pictures
from lessons_content.lesson_09.bench import prefill
from lessons_content.lesson_09.bench.prefill import Backend, PrefillWorkload
from lessons_content.lesson_09.bench.prefill_judge import Ladder
from lessons_content.lesson_09.bench.prefill_runs import of_the_ladder, of_the_peers, recorded
from lessons_content.lesson_09.bench.prefill_workloads import WORKLOADS
from lessons_content.lesson_09.pictures.prefill import batches, ladder, overview
from lessons_lib.cuda.inline import read_kernel
from prose import prose
from tools.bench.two_gpus_ranks import QWEN3_8B

TINY = PrefillWorkload("tiny", ((5, 20), (1, 33)), 4, 1, 64, dtype=torch.float16)
COMMAND = "python -m tools.bench prefill"


def backend(name, change=lambda out: out, **fields):
    """One whose results are right but for a change: attention in float64, of the rows that are
    compared.
    """

    def right(batch):
        tokens, expected = prefill.reference(batch)
        out = torch.full(batch.q.shape, math.nan, dtype=batch.q.dtype)
        out[tokens] = expected.to(out.dtype)
        return out

    return Backend(name, lambda batch: lambda: change(right(batch)), **fields)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The command with a tiny workload, backends of our own and its records in a folder."""
    monkeypatch.setattr(prefill, "WORKLOADS", (TINY,))
    monkeypatch.setattr(prefill, "BACKENDS", (backend("rung 0"), backend("other")))
    yield tmp_path
    plt.close("all")


def test_the_rate_counts_what_queries_see(small):
    run = prefill.measure([TINY], prefill.BACKENDS, machine=Machine(lambda run: 0.5))
    pairs = sum(range(16, 21)) + 33
    assert {row.backend for row in run.rows} == {"rung 0", "other"}
    for row in run.rows:
        assert (row.milliseconds, row.reason) == (0.5, "") and row.error < 1e-3
        assert row.teraflops == pytest.approx(4 * pairs * 4 * 64 / 0.5e-3 / 1e12)


@pytest.mark.parametrize(
    "result, reason",
    [
        (lambda out: out + 1, "wrong"),
        (lambda out: out * math.nan, "wrong"),
        (lambda out: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_or_fails_says_so_and_the_others_go_on(small, result, reason):
    pair = [backend("rung 0", result), backend("other")]
    wrong, other = prefill.measure([TINY], pair, machine=Machine()).rows
    assert (wrong.reason, other.reason, other.milliseconds) == (reason, "", 2.0)


def test_a_record_has_nothing_of_what_is_not_installed(small, monkeypatch):
    without = "FlashInfer is not installed"
    monkeypatch.setattr(prefill, "no_flashinfer", lambda: without)
    peer = backend("FlashInfer FA2", missing=lambda: without)
    monkeypatch.setattr(prefill, "BACKENDS", (*prefill.BACKENDS, peer))
    assert prefill.main(["--record", "--folder", f"{small}"], Machine()) == 0
    (run,) = recorded(small)
    assert [row.backend for row in run.rows] == ["rung 0", "other"]
    assert run.command == COMMAND and run.file_name == "a-card-3000.json"
    assert replace(run, flashinfer="0.7.2").file_name == "a-card-3000-flashinfer.json"


def test_a_wrong_rung_is_an_error_and_is_not_recorded(small, capsys, monkeypatch):
    wrong = backend("rung 0", lambda out: out + 1)
    monkeypatch.setattr(prefill, "BACKENDS", (wrong, backend("other")))
    assert prefill.main(["--record", "--folder", f"{small}"], Machine()) == 1
    assert "Not recorded: a rung failed or is wrong" in capsys.readouterr().err
    assert recorded(small) == []
    wrong = backend("other", lambda out: out + 1)
    monkeypatch.setattr(prefill, "BACKENDS", (backend("rung 0"), wrong))
    assert prefill.main([], Machine()) == 0
    assert "! other, tiny: wrong" in capsys.readouterr().out


def test_a_run_names_what_it_has():
    run = of_the_ladder(recorded())
    with pytest.raises(KeyError, match="it has 1 prompt of 8,192"):
        run.rows_of("huge")
    with pytest.raises(KeyError, match=r"no time of 'rung 9'.*it has rung 0"):
        run.row("1 prompt of 8,192", "rung 9")
    with pytest.raises(LookupError, match="none of the 0 recorded runs has rung 0"):
        of_the_ladder([])


def widths(figure):
    return [round(bar.get_width(), 3) for bar in figure.axes[0].patches]


def test_a_bar_is_as_long_as_the_rate():
    run, name = of_the_ladder(recorded()), WORKLOADS[0].name
    rates = [round(row.teraflops, 3) for row in run.rows_of(name) if row.rung is not None]
    assert widths(ladder(run, name, 2, 989)) == rates[:3]
    peers = of_the_peers(recorded())
    rows = peers.rows_of(name)
    assert widths(batches(peers, (name,))) == [round(row.teraflops, 3) for row in rows]
    assert len(overview(peers).axes[0].patches) == 5 * len(peers.workloads)
    plt.close("all")


@pytest.mark.parametrize("is_right", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_judge_takes_a_notebooks_text_and_refuses_a_wrong_one(capsys, is_right):
    ladder, file = Ladder(), "prefill/1_tiles.cu"
    scale = "1 * params.scale" if is_right else "2 * params.scale"
    ladder.texts[file] = read_kernel(file).replace("params.scale", scale)
    if is_right:
        ladder.judge(1)
        said = "rung 1: no fault found, and less than 0.004 from float64\n"
        assert capsys.readouterr().out == said
    else:
        with pytest.raises(AssertionError, match="rung 1 is .* from float64"):
            ladder.judge(1)


# What lesson 09 says of the records


def test_a_user_waits_as_long_as_lesson_09_says():
    run, text = of_the_ladder(recorded()), prose("09")
    hidden, inner = QWEN3_8B["hidden_size"], QWEN3_8B["intermediate_size"]
    heads = (32 + 8 + 8 + 32) * QWEN3_8B["head_dim"]
    layers = QWEN3_8B["num_hidden_layers"]
    assert layers == pictures.LAYERS
    weights = layers * hidden * (heads + 3 * inner)
    assert weights == pytest.approx(pictures.WEIGHTS_IN_LAYERS, rel=1e-3)
    seconds = layers * run.row("1 prompt of 8,192", "rung 0").milliseconds / 1000
    products = 2 * 8192 * weights / run.multiply_limit_teraflops / 1e12
    assert seconds > 2 and seconds > 10 * products
    assert "the user waits for more than two seconds, nearly all of it for attention" in text


def test_what_each_rung_gained_is_as_lesson_09_says():
    run, text = of_the_ladder(recorded()), prose("09")

    def gains(number):
        return [
            run.row(name, f"rung {number - 1}").milliseconds
            / run.row(name, f"rung {number}").milliseconds
            for name in ("1 prompt of 8,192", "8 chunks of 512 at 8,192", WORKLOADS[-1].name)
        ]

    prompt, chunks, _ = gains(1)
    assert 0.98 < prompt < 1.02 and "It gained nothing on the whole prompt, because" in text
    assert 1.8 < chunks < 2 and "On the chunks, rung 1 is nearly twice as fast" in text
    prompt, chunks, mix = gains(2)
    assert min(prompt, chunks) > 15 > mix and "first two gained more than 15 times" in text
    rates = [run.row("8 chunks of 512 at 8,192", f"rung {n}").teraflops for n in (1, 2)]
    assert f"rung 1 had {rates[0]:.0f} of 67 TFLOP/s" in text
    share = f"{100 * rates[1] / 989:.0f} %"
    assert f"rung 2 has {rates[1]:.0f} of 989 TFLOP/s, {share} of its limit" in text
    prompt, chunks, mix = gains(3)
    losses = [f"{100 * (1 / gain - 1):.0f} %" for gain in (prompt, chunks)]
    assert f"They take {losses[0]} and {losses[1]} longer" in text
    assert f"The mix is {mix:.1f} times as fast" in text
    prompt, chunks, mix = gains(4)
    assert 2 < prompt < 2.2 and "The prompt gained a little more than twice." in text
    assert f"had 3 % to save, and gained {100 * (chunks - 1):.0f} %" in text
    prompt, chunks, mix = gains(5)
    assert f"{prompt:.1f}" == f"{chunks:.1f}" == "1.8"
    assert "the chunks gained 1.8 times" in text
    rates = [row.teraflops for row in run.rows if row.backend == "rung 5"]
    shares = [rate / run.multiply_limit_teraflops for rate in (rates[0], *rates[3:5])]
    assert f"run at {100 * min(shares):.0f} to {100 * max(shares):.0f} % of" in text
    assert f"The mix gained {mix:.1f} times." in text


def test_the_peers_are_as_far_as_lesson_09_says():
    run, text = of_the_peers(recorded()), prose("09")

    def ratio(name, way, rung=4):
        ours = run.row(name, f"rung {rung}").milliseconds
        return run.row(name, f"FlashInfer {way}").milliseconds / ours

    *pictured, mixed = (workload.name for workload in WORKLOADS)
    ratios = [ratio(name, "FA2") for name in pictured]
    assert max(*ratios, *(1 / each for each in ratios)) < 1.08
    assert "the two are within 8 % of each other" in text
    assert ratio(mixed, "FA2") > 1.4
    ahead = [name for name in pictured if ratio(name, "FA3", 5) < 1]
    assert ahead == ["8 chunks of 512 at 8,192", "a chunk of 2,048 at 32,768"]
    most = max(1 / ratio(name, "FA3", 5) for name in ahead)
    assert f"FA3 is ahead by up to {100 * (most - 1):.0f} % on long contexts" in text
    best = [min(ratio(name, way, 5) for way in ("FA2", "FA3")) for name in run.workloads]
    assert min(best[:6]) > 0.9 and math.prod(best[:6]) > 1 and min(best[6:]) > 0.85
    assert min(ratio(mixed, way) for way in ("FA2", "FA3")) > 1.4


def test_the_picture_of_the_limits_says_where_the_lines_cross():
    alt = pictures.limits().alt
    assert "about 60 new tokens" in alt and "about 550 tokens" in alt
    plt.close("all")


def test_the_data_sheets_rate_is_the_same_everywhere():
    assert f"{pictures.DATA_SHEET} TFLOPS in BFLOAT16" in prose("09")
    assert json.dumps(pictures.DATA_SHEET) in prose("09")
