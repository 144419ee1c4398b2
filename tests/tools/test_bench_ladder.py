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

from benchmark_machine import LIMIT, Machine
from lessons_content.lesson_07.bench import compare, ladder
from lessons_content.lesson_07.bench.backends import BACKENDS, Backend, make_batch, reference
from lessons_content.lesson_07.bench.ladder_runs import Run
from lessons_content.lesson_07.bench.workloads import Workload

TINY = Workload("tiny", "a few tokens", 8, 2, 128, (33, 5, 16))


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def backend(name, change=lambda out: out, **fields):
    """One whose results are right but for a change, for each of a batch's caches."""

    def build(batch):
        alone = [dataclasses.replace(batch, caches=[cache]) for cache in batch.caches]
        return [lambda one=one: change(reference(one).to(one.q.dtype)) for one in alone]

    return Backend(name, f"title of {name}", build, **fields)


# What is measured


def test_a_batch_uses_each_block_once_and_its_caches_differ():
    batch = make_batch(TINY, 3, "cpu")
    used = batch.block_table[batch.block_table >= 0]
    assert sorted(used.tolist()) == list(range(3 + 1 + 1))
    assert used.tolist() != sorted(used.tolist())
    assert len(batch.caches) == 3 and not torch.equal(batch.caches[0][0], batch.caches[1][0])
    again = make_batch(TINY, 3, "cpu")
    assert torch.equal(batch.q, again.q)
    assert torch.equal(batch.caches[2][1], again.caches[2][1])


def test_rungs_and_others_are_measured_and_right():
    names = ["rung 3", "rung 8", "gather"]
    run = ladder.measure([TINY], names, quick=True, machine=Machine())
    assert [row.backend for row in run.rows] == ["rung 3", "rung 8", "gather + SDPA"]
    for row in run.rows:
        assert not row.reason and row.milliseconds == 2.0 and 0 < row.error < 1e-3
    rung, of_8_bits = run.row("tiny", "rung 3"), run.row("tiny", "rung 8")
    assert rung.kv_bytes == TINY.kv_bytes() == 2 * of_8_bits.kv_bytes
    assert rung.gb_per_s == pytest.approx(TINY.kv_bytes() / 2.0 / 1e6)
    assert rung.share_of_limit == pytest.approx(rung.gb_per_s / LIMIT)
    assert (run.card, run.read_limit_gb_per_s, run.variants) == ("A Card 3000", LIMIT, ())


# How it is measured


@pytest.mark.parametrize("num_backends", [1, 2, 3, 5])
def test_a_cache_is_read_again_only_when_all_others_have_been(num_backends):
    machine = Machine()
    compare.compare(
        machine, TINY, [backend(f"{number}") for number in range(num_backends)], LIMIT
    )
    caches = compare.num_caches(TINY.kv_bytes(), machine.l2_bytes())
    timed = machine.seen[num_backends:]  # the first of each says how long it takes
    assert [run // caches for run in timed] == list(range(num_backends)) * compare.ROUNDS
    assert [run % caches for run in timed] == [number % caches for number in range(len(timed))]


def test_the_time_is_the_median_and_slow_ones_run_less_often():
    times = iter([1.0] + [5.0, 1.0, 2.0] * 100)
    (row,) = compare.compare(
        Machine(lambda run: next(times)), TINY, [backend("fast")], LIMIT, quick=True
    )
    assert row.milliseconds == statistics.median([5.0, 1.0, 2.0] * 3)
    machine = Machine(lambda run: 50.0 if run < 2 else 1.0)
    slow, fast = compare.compare(machine, TINY, [backend("slow"), backend("fast")], LIMIT)
    caches = len(machine.prepared) // 2
    assert caches == 2 and (slow.milliseconds, fast.milliseconds) == (50.0, 1.0)
    rounds = Counter(run // caches for run in machine.seen)
    assert rounds == {0: 1 + compare.ROUNDS_OF_SLOW, 1: 1 + compare.ROUNDS}


def compared(change):
    (row,) = compare.compare(Machine(), TINY, [backend("rung 7", change)], LIMIT, quick=True)
    return row


def test_a_wrong_result_is_reported_beside_its_time():
    row = compared(lambda out: out + 0.5)
    assert row.milliseconds == 2.0
    assert row.reason == "the result is 5.0e-01 away from float64, and 2.0e-03 is allowed"
    assert row.error == pytest.approx(0.5, rel=0.01)
    assert compared(lambda out: out + 0.004).reason
    assert not compared(lambda out: out + 5e-4).reason
    row = compared(lambda out: out * math.nan)
    assert row.reason == "the result holds NaN or infinity" and row.error is None


def test_a_result_that_changes_is_reported():
    count = iter(range(1000))
    row = compared(lambda out: out + 5e-4 * (next(count) == 0))
    assert re.fullmatch(r"two runs differ by \d.\de-0[34]", row.reason)
    assert row.milliseconds == 2.0


def test_a_replay_that_writes_nothing_is_found():
    class Stale(Machine):
        def prepare(self, call):
            result = call()
            self.prepared.append(lambda: result)
            return self.prepared[-1]

    (row,) = compare.compare(Stale(), TINY, [backend("rung 7")], LIMIT, quick=True)
    assert row.reason == "the result holds NaN or infinity"


def test_a_backend_that_fails_is_reported_and_the_others_go_on():
    def fails(out):
        raise RuntimeError("no such\n  kernel" + "!" * 1000)

    rows = compare.compare(
        Machine(),
        TINY,
        [
            backend("one", fails),
            backend("two"),
            backend("three", missing=lambda: "three is not installed"),
        ],
        LIMIT,
    )
    assert rows[0].reason.startswith("RuntimeError: no such kernel!")
    assert len(rows[0].reason) < 310
    assert (rows[0].milliseconds, rows[0].share_of_limit, rows[0].error) == (None, None, None)
    assert rows[1].milliseconds == 2.0 and not rows[1].reason
    assert rows[2].reason == "three is not installed" and rows[2].milliseconds is None


# The command


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
    assert run.command == "python -m tools.bench ladder"
    assert (tmp_path / run.file_name).name == "a-card-3000.json"
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_rung_is_an_error_and_is_not_recorded(keep, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(
        ladder,
        "BACKENDS",
        (backend("rung 7", lambda out: out + 1), backend("other")),
    )
    assert ladder.main(keep, Machine()) == 1
    shown = capsys.readouterr()
    assert "! rung 7 (tiny): the result is 1.0e+00 away" in shown.out
    assert "Not recorded" in shown.err
    assert Run.recorded(tmp_path) == []
    monkeypatch.setattr(
        ladder,
        "BACKENDS",
        (backend("rung 7"), backend("other", lambda out: out + 1)),
    )
    assert ladder.main([], Machine()) == 0
    assert "! other (tiny): the result" in capsys.readouterr().out


# On a GPU


@pytest.mark.gpu
def test_the_read_limit_is_a_memory_bandwidth():
    assert 50 < ladder.read_limit() < 50_000


@pytest.mark.gpu
def test_a_small_workload_is_measured_on_the_gpu():
    workload = Workload("small", "16 sequences of 512 tokens", 32, 8, 128, (512,) * 16)
    run = ladder.measure([workload], ["rung 1", "rung 7", "rung 8", "gather"], quick=True)
    assert not [row for row in run.rows if row.reason]
    assert run.card == torch.cuda.get_device_name()
    assert 0 < run.milliseconds("small", "rung 7") < run.milliseconds("small", "rung 1")
