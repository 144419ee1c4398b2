"""The benchmark of path B without a GPU: its batches, what it notices, its files; and how
FlashInfer is packed and built.
"""

import dataclasses
import io
import os
import sys
import types
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lessons_bench import (
    build_ahead,
    flashinfer_backends,
    flashinfer_setup,
    path_b,
    path_b_runs,
)
from lessons_bench.backends import make_batch, reference
from lessons_bench.path_b import (
    SCENARIOS,
    SET_UPS,
    SHAPES,
    Batch,
    compare_batches,
    random_batches,
)
from lessons_bench.path_b_runs import BatchRow, PathBRun, PathRow
from lessons_bench.workloads import Workload
from paged_attention.engine.paths import PATHS
from paged_attention.metadata import attn_paged_torch, visible_keys

HALF = torch.float16


def made_up(**fields):
    batch = BatchRow(
        "a mix", "float16", 64, (16,), 1, ((3, 1), (0, 4)), 0.001, 0.0012, 0.0011, True
    )
    paths = tuple(
        PathRow(name, ("ab", "c"), {"alone": True, "together": True})
        for name in ("gather", "fused")
    )
    facts = dict(
        card="A Card 3000",
        driver="1.2",
        cuda="13.0",
        torch="2.11",
        flashinfer="0.7",
        transformers="5",
        date="2026-01-02",
        command="made up for a test",
        model="small",
        dtype="float16",
        num_tokens=24,
        lead=1.0,
        margin=9.0,
        expected=("ab", "c"),
        batches=(batch,),
        paths=paths,
    )
    return PathBRun(**facts | fields)


# The batches


@given(
    sequences=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=5
    ),
    block_size=st.integers(1, 20),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_slot_is_of_one_token_or_of_nobody(sequences, block_size, seed):
    batch = Batch(sequences, HALF, 64, block_size, seed=seed, device="cpu")
    kv_lens = [cached + new for cached, new in sequences]
    assert batch.metadata.seq_lens_kv.tolist() == kv_lens and int(
        (~batch.unused).sum()
    ) == sum(kv_lens)
    table = batch.metadata.block_table
    blocks = [-(-kv_len // block_size) for kv_len in kv_lens]
    used = [
        entry
        for row, count in zip(table.tolist(), blocks, strict=True)
        for entry in row[:count]
    ]
    assert (
        len(set(used)) == len(used)
        and min(used) >= 0
        and (table == -1).sum() == table.numel() - len(used)
    )
    assert not batch.unused.flatten()[batch.metadata.slot_mapping].any()
    assert batch.unused.all(dim=1).sum() >= path_b.SPARE_BLOCKS and len(batch.q) == sum(
        new for _, new in sequences
    )


def test_the_scenarios_are_a_prefill_a_decode_and_a_mix():
    one, other, mix = SCENARIOS.values()
    assert (
        [cached for cached, _ in one] == [0]
        and [new for _, new in other] == [1]
        and len(mix) > 2
    )
    assert {new == 1 for _, new in mix} == {cached == 0 for cached, _ in mix} == {True, False}


def test_random_mixes_have_every_block_size_and_many_shapes():
    batches = [*random_batches(HALF, 64, device="cpu")]
    assert {batch.kv_cache.shape[2] for batch in batches} == set(path_b.RANDOM_BLOCK_SIZES)
    assert len({batch.q.shape[1] // batch.kv_cache.shape[3] for batch in batches}) > 4


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
    row = compare_batches(
        "one", [Batch(((599, 1),), HALF, 64, 16, device="cpu")], fused=reads_on
    )
    assert row.difference < 4e-3 and not row.same_when_poisoned
    assert compare_batches(
        "one", [Batch(((599, 1),), HALF, 64, 16, device="cpu")], fused=attn_paged_torch
    ).same_when_poisoned


def test_the_worst_of_several_batches_counts():
    batches = [Batch(((5, 1),), HALF, 64, 16, seed=seed, device="cpu") for seed in range(3)]
    wrong = batches[1].metadata

    def sometimes_off(q, k_cache, v_cache, metadata):
        return attn_paged_torch(q, k_cache, v_cache, metadata) + (metadata is wrong)

    row = compare_batches("three", batches, fused=sometimes_off)
    assert (
        0.9 < row.difference < 1.1
        and 0.9 < row.error < 1.1
        and row.error_of_torch < 4e-3
        and row.num_batches == 3
    )


# A run


@pytest.mark.parametrize(
    "fields, problem",
    [
        (
            {"batches": (dataclasses.replace(made_up().batches[0], difference=0.01),)},
            "a mix in float16: 1.0e-02 away from attn_paged",
        ),
        (
            {"batches": (dataclasses.replace(made_up().batches[0], difference=float("nan")),)},
            "a mix in float16: nan away from attn_",
        ),
        (
            {"batches": (dataclasses.replace(made_up().batches[0], error=0.005),)},
            "a mix in float16: 5.0e-03 away from float64",
        ),
        (
            {
                "batches": (
                    dataclasses.replace(made_up().batches[0], same_when_poisoned=False),
                )
            },
            "unused slots reach the result",
        ),
        (
            {"paths": (PathRow("fused", ("a",), {"alone": True, "together": False}),)},
            "path fused, together: other tokens",
        ),
        ({"margin": 1.9}, "a choice leads by 1.9 times its rounding only"),
        ({"margin": float("nan")}, "a choice leads by nan times"),
    ],
)
def test_a_run_names_what_is_not_as_it_should_be(fields, problem):
    assert made_up().problems() == []
    (found,) = made_up(**fields).problems()
    assert problem in found


def test_tables_are_for_a_cell_of_a_notebook():
    lines = path_b_runs.batches_table(made_up()).split("\n")
    assert lines[1].split() == [
        "a",
        "mix",
        "float16",
        "64",
        "16",
        "0.00100",
        "0.00120",
        "0.00110",
    ]
    run = made_up(paths=(PathRow("fused", (), {"alone": True, "together": False}),))
    assert path_b_runs.paths_table(run).split("\n")[1].split() == [
        "fused",
        "the",
        "same",
        "NOT",
        "THE",
        "SAME",
    ]
    assert "FlashInfer 0.7" in path_b_runs.origin(run) and "2026-01-02" in path_b_runs.origin(
        run
    )
    assert len({len(line) for line in lines}) == 1
    row = dataclasses.replace(made_up().batches[0], block_sizes=(1, 16, 256))
    assert "  1 to 256  " in path_b_runs.batches_table(made_up(batches=(row,)))


def test_what_is_recorded_is_whole_and_right():
    for run in path_b_runs.recorded():
        assert (
            run.problems() == []
            and run.num_tokens >= 20
            and all(len(text) == run.num_tokens for text in run.expected)
        )
        assert {row.path for row in run.paths} == set(PATHS) and all(
            set(row.same) == set(SET_UPS) for row in run.paths
        )
        assert all(row.texts == run.expected for row in run.paths)
        shapes = {(row.dtype, row.head_size) for row in run.batches}
        assert len(shapes) >= 3 and shapes <= {
            (str(dtype).removeprefix("torch."), head_size) for dtype, head_size in SHAPES
        }
        for shape in shapes:
            rows = [row for row in run.batches if (row.dtype, row.head_size) == shape]
            assert {
                row.name: row.sequences for row in rows if row.num_batches == 1
            } == SCENARIOS
            assert any(row.num_batches == path_b.NUM_RANDOM for row in rows)
        assert max(map(len, path_b_runs.batches_table(run).split("\n"))) <= 95


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_what_it_needs(capsys):
    assert (
        path_b.main([]) == 2
        and capsys.readouterr().err == "Nothing was run: path B needs a CUDA GPU.\n"
    )


def test_a_run_is_kept_when_all_is_well_and_only_then(monkeypatch, tmp_path, capsys):
    words = ["--record", "--folder", f"{tmp_path}/kept", "--json", f"{tmp_path}/run.json"]
    monkeypatch.setattr(path_b, "measure", lambda say: made_up(margin=1.0))
    assert path_b.main(words) == 1
    assert "Not recorded: a choice leads by 1.0" in capsys.readouterr().err
    assert PathBRun.load(tmp_path / "run.json").margin == 1.0
    monkeypatch.setattr(path_b, "measure", lambda say: made_up())
    assert path_b.main(words) == 0
    assert path_b_runs.recorded(tmp_path / "kept") == [made_up()]


# FlashInfer, packed and built


def wheel(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in files:
            archive.writestr(name, name)
    return content.getvalue()


KERNELS = [
    f"flashinfer/{pattern.replace('*', 'x')}/kernel.cu"
    for pattern in flashinfer_setup.LEFT_OUT
]


def test_what_is_packed_comes_out_without_what_attention_does_not_need(tmp_path, monkeypatch):
    asked = []

    def download(folder, packages, *options):
        asked.append((packages, options))
        if packages == [f"flashinfer-python=={flashinfer_setup.VERSION}"]:
            (folder / "flashinfer_python-1-py3-none-any.whl").write_bytes(
                wheel(
                    [
                        "flashinfer/__init__.py",
                        "flashinfer/data/csrc/batch_prefill.cu",
                        *KERNELS,
                    ]
                )
            )

    monkeypatch.setattr(flashinfer_setup, "download", download)
    monkeypatch.setattr(
        flashinfer_setup.subprocess, "run", lambda command, check: asked.append(command)
    )
    flashinfer_setup.main(["pack", f"{tmp_path}/carried", "--python", "3.12"])
    (tmp_path / "carried" / "needed-1-py3-none-any.whl").touch()
    flashinfer_setup.main(["unpack", f"{tmp_path}/carried", f"{tmp_path}/site"])
    files = sorted(
        f"{path.relative_to(tmp_path / 'site')}"
        for path in (tmp_path / "site").rglob("*")
        if path.is_file()
    )
    assert files == ["flashinfer/__init__.py", "flashinfer/data/csrc/batch_prefill.cu"]
    assert (
        asked[0][0] == flashinfer_setup.NEEDS
        and "3.12" in asked[0][1]
        and "manylinux_2_28_x86_64" in asked[0][1]
    )
    assert asked[-1][-1].endswith("needed-1-py3-none-any.whl") and "--no-index" in asked[-1]


def test_another_version_that_looks_otherwise_is_an_error(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"has no data/csrc/cake_\*; LEFT_OUT was written for another version",
    ):
        flashinfer_setup.leave_out(tmp_path)


def test_all_builds_run_and_one_that_fails_stops_nobody(tmp_path):
    build_ahead.build_ahead(
        os.mkdir,
        [(f"{tmp_path}/no/such/folder",), *((f"{tmp_path}/{number}",) for number in range(3))],
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    build_ahead.build_ahead(os.mkdir, [])


def test_xqa_gets_what_it_asks_for(monkeypatch):
    """A stand-in with XQA's signature, which computes from its arguments."""
    workload = Workload("tiny", "", 8, 2, 64, (33, 5, 90), torch.float16)
    batch = make_batch(workload, 2, "cpu")

    def xqa(
        q,
        k_cache,
        v_cache,
        page_table,
        seq_lens,
        output,
        workspace_buffer,
        semaphores,
        num_kv_heads,
        page_size,
    ):
        assert (
            page_table.shape[1] % 4 == 0
            and page_table.dtype == torch.int32
            and (page_table >= 0).all()
        )
        assert (
            seq_lens.dtype == torch.uint32
            and seq_lens.shape == (3, 1)
            and q.shape == output.shape == (3, 1, 8, 64)
        )
        assert (
            workspace_buffer.dtype == torch.uint8
            and semaphores.dtype == torch.uint32
            and not semaphores.any()
        )
        assert (num_kv_heads, page_size) == (2, 16)
        table = torch.where(
            torch.arange(page_table.shape[1]) * 16 < seq_lens.int(), page_table, -1
        )
        given = dataclasses.replace(
            batch, q=q[:, 0], caches=[(k_cache, v_cache)], block_table=table
        )
        output[:, 0] = reference(given).to(output.dtype)

    package = types.ModuleType("flashinfer.xqa")
    package.xqa = xqa
    monkeypatch.setitem(sys.modules, "flashinfer", types.ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.xqa", package)
    for call, caches in zip(flashinfer_backends.xqa(batch), batch.caches, strict=True):
        expected = reference(dataclasses.replace(batch, caches=[caches])).half()
        torch.testing.assert_close(call(), expected)


def test_what_is_not_installed_is_named(monkeypatch):
    found = set()
    monkeypatch.setattr(
        flashinfer_backends.importlib.util, "find_spec", lambda name: name in found or None
    )
    assert [
        flashinfer_backends.no_flashinfer(),
        flashinfer_backends.no_xqa(),
        flashinfer_backends.no_cudnn(),
    ] == ["FlashInfer is not installed"] * 3
    found.add("flashinfer")
    assert (
        flashinfer_backends.no_flashinfer(),
        flashinfer_backends.no_xqa(),
        flashinfer_backends.no_cudnn(),
    ) == (
        "",
        "this FlashInfer has no XQA",
        "the package nvidia-cudnn-frontend is not installed",
    )
    found.update(("flashinfer.xqa", "cudnn"))
    assert (flashinfer_backends.no_xqa(), flashinfer_backends.no_cudnn()) == ("", "")
