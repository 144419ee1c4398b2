"""The benchmark of path B without a GPU: what it notices, its files, and builds ahead."""

import dataclasses
import os

import pytest
import torch

from lessons_content.lesson_07.bench import build_ahead
from lessons_content.lesson_08.bench import path_b_runs
from lessons_content.lesson_08.bench.path_b_runs import PathBRun, PathRow
from paged_attention.attention.metadata import attn_paged_torch, visible_keys
from tools.bench import path_b
from tools.bench.path_b import (
    Batch,
    compare_batches,
)

HALF = torch.float16


RUN = path_b_runs.recorded()[0]


def with_batch(**changes) -> dict:
    """A recorded run's fields, with one batch whose figures are these."""
    batch = dataclasses.replace(RUN.batches[0], name="a mix", dtype="float16", **changes)
    return {"batches": (batch,)}


# The batches


def reads_on(q, k_cache, v_cache, metadata):
    """As attn_paged_torch for one sequence, but it masks the scores only: 0 × NaN = NaN."""
    _, block_size, num_kv_heads, head_size = k_cache.shape
    ids = metadata.block_table[0][metadata.block_table[0] >= 0]
    k, v = (
        cache[ids].flatten(0, 1).repeat_interleave(q.shape[1] // num_kv_heads, 1)
        for cache in (k_cache, v_cache)
    )
    kv_len = int(metadata.seq_lens_kv[0])
    visible = torch.zeros(len(q), len(k), dtype=torch.bool)
    visible[:, :kv_len] = visible_keys(len(q), kv_len)
    scores = torch.einsum("qhd,khd->hqk", q, k) / head_size**0.5
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def test_what_leaks_from_unused_slots_is_seen():
    leaky, tight = (
        compare_batches("one", [Batch(((599, 1),), HALF, 64, 16, device="cpu")], fused=fused)
        for fused in (reads_on, attn_paged_torch)
    )
    assert leaky.difference < 4e-3 and not leaky.same_when_poisoned
    assert tight.same_when_poisoned


def test_the_worst_of_several_batches_counts():
    batches = [Batch(((5, 1),), HALF, 64, 16, seed=seed, device="cpu") for seed in range(3)]
    wrong = batches[1].metadata

    def sometimes_off(q, k_cache, v_cache, metadata):
        return attn_paged_torch(q, k_cache, v_cache, metadata) + (metadata is wrong)

    row = compare_batches("three", batches, fused=sometimes_off)
    assert 0.9 < row.difference < 1.1
    assert 0.9 < row.error < 1.1
    assert row.error_of_torch < 4e-3
    assert row.num_batches == 3


# A run


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (with_batch(difference=0.01), "a mix in float16: 1.0e-02 away from attn_paged"),
        (with_batch(difference=float("nan")), "a mix in float16: nan away from attn_"),
        (with_batch(error=0.005), "a mix in float16: 5.0e-03 away from float64"),
        (with_batch(same_when_poisoned=False), "unused slots reach the result"),
        (
            {"paths": (PathRow("fused", ("a",), {"alone": True, "together": False}),)},
            "path fused, together: other tokens",
        ),
        ({"margin": 1.9}, "a choice leads by 1.9 times its rounding only"),
        ({"margin": float("nan")}, "a choice leads by nan times"),
    ],
)
def test_a_run_names_what_is_not_as_it_should_be(fields, problem):
    (found,) = dataclasses.replace(RUN, **fields).problems()
    assert problem in found


def test_a_run_is_kept_when_all_is_well_and_only_then(monkeypatch, tmp_path, capsys):
    words = ["--record", "--folder", f"{tmp_path}/kept", "--json", f"{tmp_path}/run.json"]
    margins = iter([1.0, RUN.margin])
    monkeypatch.setattr(
        path_b, "measure", lambda say: dataclasses.replace(RUN, margin=next(margins))
    )
    assert path_b.main(words) == 1
    assert "Not recorded: a choice leads by 1.0" in capsys.readouterr().err
    assert PathBRun.load(tmp_path / "run.json").margin == 1.0
    assert path_b.main(words) == 0
    assert path_b_runs.recorded(tmp_path / "kept") == [RUN]


# Builds ahead


def test_all_builds_run_and_one_that_fails_stops_nobody(tmp_path):
    build_ahead.build_ahead(
        os.mkdir,
        [(f"{tmp_path}/no/such/folder",), *((f"{tmp_path}/{number}",) for number in range(3))],
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    build_ahead.build_ahead(os.mkdir, [])
