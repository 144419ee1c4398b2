"""Every rung of the prefill ladder against attention in float64, on the CPU and on a GPU."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paged_kernel import device_of, on_each_target, one_thread  # noqa: F401

from lessons_bench import prefill as bench
from lessons_lib.cuda import KernelError
from paged_attention.ladder import Shape
from paged_attention.metadata import BatchMetadata, attn_paged_torch
from paged_attention.prefill import (
    PREFILL_RUNGS,
    PagedPrefill,
    attn_paged_prefill,
    prefill_library,
)
from poison import POISONS, needs_gpu, poison_of, poisons

few = settings(max_examples=12, deadline=None, derandomize=True)
HALF, BFLOAT = torch.float16, torch.bfloat16
FAR = 2**31 - 1  # a block that no pool has
ROUNDING = {HALF: 2**-11, BFLOAT: 2**-8}  # of the weights, and of the result
NUMBERS = range(len(PREFILL_RUNGS))
on_rungs = pytest.mark.parametrize("number", NUMBERS)


@dataclass(frozen=True)
class Batch:
    """The sizes of a batch.

    lens: each sequence's queries and keys.
    gap: how many numbers lie between the rows of two tokens in q.
    garbage: what the table holds after the blocks of a context.
    poison: what every slot without a key holds, and every gap.
    shared: how many first blocks the sequences have in common, as far as they are full.
    """

    lens: tuple[tuple[int, int], ...]
    num_q_heads: int = 4
    num_kv_heads: int = 1
    head_size: int = 128
    block_size: int = 16
    dtype: torch.dtype = HALF
    gap: int = 0
    garbage: int = -1
    seed: int = 0
    poison: float = math.nan
    shared: int = 0

    def tensors(self, target="fast"):
        """q, the caches and the metadata: blocks in any order, and poison."""
        generator = torch.Generator().manual_seed(self.seed)
        needed = [-(-keys // self.block_size) for _, keys in self.lens]
        num_blocks = sum(needed) + 2
        poison = poison_of(self.poison, self.dtype)
        caches = torch.full(
            (2, num_blocks, self.block_size, self.num_kv_heads, self.head_size), poison
        )
        table = torch.full(
            (len(needed), max(needed, default=0) + 1), self.garbage, dtype=torch.int32
        )
        ids = torch.randperm(num_blocks, generator=generator, dtype=torch.int32)
        for row, (count, end) in enumerate(zip(needed, accumulate(needed), strict=True)):
            table[row, :count] = ids[end - count : end]
            full = min(self.shared, self.lens[row][1] // self.block_size)
            table[row, :full] = ids[-2:][:full]
        for row, (_, num_keys) in enumerate(self.lens):
            for first in range(0, num_keys, self.block_size):
                size = min(self.block_size, num_keys - first)
                caches[:, table[row, first // self.block_size], :size] = torch.randn(
                    2, size, self.num_kv_heads, self.head_size, generator=generator
                )
        num_tokens, row_numbers = (
            sum(q_len for q_len, _ in self.lens),
            self.num_q_heads * self.head_size,
        )
        q = torch.full((num_tokens, row_numbers + self.gap), poison, dtype=self.dtype)
        q[:, :row_numbers] = torch.randn(num_tokens, row_numbers, generator=generator)
        q = q.to(device_of(target))[:, :row_numbers]
        metadata = metadata_of(self.lens, table, device_of(target))
        caches = caches.to(self.dtype).to(device_of(target))
        return q.unflatten(1, (self.num_q_heads, self.head_size)), *caches, metadata


def metadata_of(lens, table, device="cpu"):
    starts = [0, *accumulate(q_len for q_len, _ in lens)]
    return BatchMetadata(
        cu_seqlens_q=torch.tensor(starts, dtype=torch.int32, device=device),
        seq_lens_kv=torch.tensor([n for _, n in lens], dtype=torch.int32, device=device),
        block_table=table.to(device),
        slot_mapping=torch.empty(0, dtype=torch.int64, device=device),
    )


def attention(q, k_cache, v_cache, metadata, scale=None):
    """Each sequence by itself in float64, over its gathered keys."""
    scale = 1 / math.sqrt(q.shape[2]) if scale is None else scale
    out = torch.zeros(q.shape, dtype=torch.float64)
    starts, block_size = metadata.cu_seqlens_q.tolist(), k_cache.shape[1]
    group = q.shape[1] // k_cache.shape[2]
    for seq, num_keys in enumerate(metadata.seq_lens_kv.tolist()):
        begin, end = starts[seq : seq + 2]
        blocks = metadata.block_table[seq, : -(-num_keys // block_size)].long()
        keys, values = (
            cache[blocks].flatten(0, 1)[:num_keys].cpu().double().repeat_interleave(group, 1)
            for cache in (k_cache, v_cache)
        )
        scores = scale * torch.einsum("qhd,khd->hqk", q[begin:end].cpu().double(), keys)
        last = torch.arange(num_keys - (end - begin), num_keys)[:, None]
        hidden = torch.arange(num_keys) > last
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        out[begin:end] = torch.einsum("hqk,khd->qhd", weights, values)
    return out


def assert_right(out, q, expected):
    assert (out.dtype, out.shape, out.device) == (q.dtype, q.shape, q.device)
    # Errors add up as the values do: they are compared with the size of their row.
    size = expected.square().mean(-1, keepdim=True).sqrt()
    worst = ((out.cpu().double() - expected).abs() / (size + 1e-30)).max()
    # NaN is not, either
    assert worst <= 8 * ROUNDING[q.dtype], f"off by {worst:.3g} of the row's size"


def planned(number, batch, metadata, target, **how):
    return PagedPrefill(
        number,
        metadata.cu_seqlens_q,
        metadata.seq_lens_kv,
        num_q_heads=batch.num_q_heads,
        num_kv_heads=batch.num_kv_heads,
        head_size=batch.head_size,
        block_size=batch.block_size,
        dtype=batch.dtype,
        target=target,
        **how,
    )


def check(number, batch, target, **how):
    q, k_cache, v_cache, metadata = batch.tensors(target)
    prefill = planned(number, batch, metadata, target, **how)
    out = prefill(q, k_cache, v_cache, metadata.block_table)
    assert_right(out, q, attention(q, k_cache, v_cache, metadata))
    # every bit the same
    assert torch.equal(prefill(q, k_cache, v_cache, metadata.block_table), out)
    return prefill


# Whole prompts, chunks, single tokens, edges of blocks and tiles, sequences without queries.
MIXED = ((1, 1), (0, 5), (16, 16), (17, 40), (1, 65), (0, 0), (33, 33), (7, 64), (2, 100))
MIX = Batch(MIXED)  # the shape that most tests use, so that it is built once
SHAPES = (
    Batch(((40, 40), (3, 130), (1, 9)), 8, 1, 64, 8, BFLOAT, gap=8, garbage=FAR, shared=1),
    Batch(((20, 33), (1, 65), (0, 0), (5, 5)), 7, 1, 256, 32, BFLOAT),
    Batch(((65, 65), (1, 128)), 2, 2, 128, 64, HALF, gap=16),
    Batch(((9, 70), (1, 17)), 32, 2, 128, 24, BFLOAT, garbage=FAR),
    Batch(((30, 64), (2, 31)), 4, 2, 64, 16, HALF, shared=1),
)


def name_of(batch):
    dtype = str(batch.dtype).removeprefix("torch.")
    heads = f"{batch.num_q_heads}:{batch.num_kv_heads}"
    return f"{dtype}-{batch.head_size}-{heads}-{batch.block_size}"


on_shapes = pytest.mark.parametrize("batch", SHAPES, ids=name_of)


@pytest.mark.sampled(4)
@on_each_target
@on_rungs
def test_a_mixed_batch(number, target):
    check(number, MIX, target)


@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=needs_gpu)])
@on_rungs
def test_several_tiles_of_queries_and_of_keys(number, target):
    check(number, replace(MIX, lens=((130, 250), (40, 40))), target)


def made_for(number, batch):
    """Rung 5 copies whole blocks into tiles."""
    return number != 5 or batch.block_size in (8, 16, 32, 64)


OTHERS = [(n, SHAPES[n % len(SHAPES)]) for n in NUMBERS] + [(5, SHAPES[1])]


@pytest.mark.parametrize("number, batch", OTHERS)
def test_each_rung_in_another_shape(number, batch):
    check(number, batch, "fast")


@pytest.mark.slow
@on_rungs
@on_shapes
@pytest.mark.parametrize("target", ["fast", "checked"])
def test_every_rung_in_every_shape(number, batch, target):
    if made_for(number, batch):
        check(number, batch, target)


@pytest.mark.parametrize("block_size", [12, 24, 48])
def test_rung_5_is_not_made_for_blocks_that_do_not_fill_a_tile(block_size):
    with pytest.raises(ValueError, match=f"8, 16, 32 or 64 for rung 5, not {block_size}$"):
        prefill_library(5, Shape(HALF, 128, 4, block_size), "fast")


@needs_gpu
@on_rungs
@on_shapes
def test_every_rung_in_every_shape_on_the_gpu(number, batch):
    if made_for(number, batch):
        check(number, batch, "gpu")


@on_each_target
@pytest.mark.parametrize("number, most_tiles", [(4, 1), (4, 2), (5, 1)])
def test_contexts_in_parts(number, most_tiles, target):
    batch = replace(
        MIX, lens=((40, 200), (1, 300), (0, 9), (3, 3)), num_q_heads=8, num_kv_heads=2
    )
    prefill = check(number, batch, target, most_tiles=most_tiles)
    assert prefill.plan.num_parts > 2


@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=needs_gpu)])
@on_rungs
@few
@given(data=st.data(), seed=st.integers(0, 10**6), poison=poisons)
def test_any_batch(number, target, data, seed, poison):
    lens = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, 1, 2, 15, 33]), st.sampled_from([0, 1, 15, 16, 48, 63])
            ).map(lambda pair: (pair[0], sum(pair))),
            max_size=5,
        )
    )
    num_kv_heads = data.draw(st.sampled_from([1, 2]))
    batch = replace(
        MIX,
        lens=tuple(lens),
        num_q_heads=4 * num_kv_heads,
        num_kv_heads=num_kv_heads,
        gap=data.draw(st.sampled_from([0, 8])),
        garbage=data.draw(st.sampled_from([-1, 0, FAR])),
        shared=data.draw(st.sampled_from([0, 2])),
        seed=seed,
        poison=poison,
    )
    how = {}
    if number >= 4:
        how["most_tiles"] = data.draw(st.sampled_from([None, 1]))
    if target == "fast":
        prefill_library(number, Shape(HALF, 128, 4, 16), target).options(seed=seed % 3)
    if sum(q_len for q_len, _ in lens):
        check(number, batch, target, **how)
    else:
        q, k_cache, v_cache, metadata = batch.tensors(target)
        out = planned(number, batch, metadata, target)(
            q, k_cache, v_cache, metadata.block_table
        )
        assert out.shape == (0, 4 * num_kv_heads, 128)


@on_rungs
@pytest.mark.parametrize("target", ["fast", pytest.param("gpu", marks=needs_gpu)])
def test_what_no_sequence_owns_changes_no_bit(number, target):
    clean = outcome(number, replace(MIX, poison=0.0, garbage=0), target)
    for poison in POISONS.values():
        batch = replace(MIX, poison=poison, garbage=FAR)
        assert torch.equal(outcome(number, batch, target), clean)


def outcome(number, batch, target):
    q, k_cache, v_cache, metadata = batch.tensors(target)
    return attn_paged_prefill(q, k_cache, v_cache, metadata, target=target, number=number)


@on_each_target
def test_the_function_is_lesson_05s_attention(target):
    batch = replace(MIX, lens=tuple(pair for pair in MIXED if pair[0]))
    tensors = batch.tensors(target)
    out = attn_paged_prefill(*tensors, target=target)
    wide = [tensor.double() for tensor in tensors[:3]]
    assert_right(out, tensors[0], attn_paged_torch(*wide, tensors[3]).cpu())


@on_rungs
@pytest.mark.parametrize("factor", [300.0, 0.0, -1.0])
def test_other_scales_and_a_given_output(number, factor):
    """Scores that expf cannot take, the mean of the values, and the other way round."""
    q, k_cache, v_cache, metadata = replace(MIX, lens=((5, 40), (20, 20))).tensors()
    prefill = planned(number, MIX, metadata, "fast")
    out, scale = torch.full_like(q, 7.0), factor / math.sqrt(128)
    assert prefill(q, k_cache, v_cache, metadata.block_table, scale=scale, out=out) is out
    assert_right(out, q, attention(q, k_cache, v_cache, metadata, scale))


def test_after_an_error_the_next_call_is_right():
    q, k_cache, v_cache, metadata = MIX.tensors()
    prefill = planned(4, MIX, metadata, "checked")
    wrong = metadata.block_table.clone()
    wrong[3, 1] = len(k_cache)
    with pytest.raises(KernelError) as caught:
        prefill(q, k_cache, v_cache, wrong)
    assert caught.value.kind in ("block-table", "out-of-bounds"), caught.value
    out = prefill(q, k_cache, v_cache, metadata.block_table)
    assert_right(out, q, attention(q, k_cache, v_cache, metadata))


@needs_gpu
@on_rungs
def test_a_cuda_graph_holds_the_call_on_the_gpu(number):
    q, k_cache, v_cache, metadata = MIX.tensors("gpu")
    prefill, graph = planned(number, MIX, metadata, "gpu"), torch.cuda.CUDAGraph()
    query = torch.zeros_like(q)
    prefill(query, k_cache, v_cache, metadata.block_table)
    with torch.cuda.graph(graph):
        out = prefill(query, k_cache, v_cache, metadata.block_table)
    query.copy_(q)
    graph.replay()
    torch.cuda.synchronize()
    assert_right(out, q, attention(q, k_cache, v_cache, metadata))


@needs_gpu
@pytest.mark.slow
def test_a_million_keys_on_the_gpu():
    """The values of the first and the last key are large, so that a missing one shows."""
    batch = replace(MIX, lens=((3, 1_000_000), (100, 100)))
    q, k_cache, v_cache, metadata = batch.tensors("gpu")
    for token in (0, 999_999):
        v_cache[metadata.block_table[0, token // 16], token % 16] *= 1000
    out = attn_paged_prefill(q, k_cache, v_cache, metadata)
    assert_right(out, q, attention(q, k_cache, v_cache, metadata))


def test_an_empty_batch_gives_nothing():
    q, k_cache, v_cache, _ = MIX.tensors()
    metadata = metadata_of((), torch.zeros(0, 3, dtype=torch.int32))
    for number in NUMBERS:
        out = attn_paged_prefill(q[:0], k_cache, v_cache, metadata, number=number)
        assert out.shape == (0, 4, 128)


@on_rungs
def test_a_launch_for_other_tiles_is_refused(number):
    if number == 0:
        return
    q, k_cache, v_cache, metadata = MIX.tensors()
    prefill = planned(number, MIX, metadata, "fast")
    prefill.workspace["planned_rows"] += 1
    with pytest.raises(KernelError):
        prefill(q, k_cache, v_cache, metadata.block_table)


def test_the_benchmark_knows_the_batch():
    lens = ((6, 40), (20, 20), (1, 33))
    workload = bench.PrefillWorkload("", lens, 4, 1, dtype=HALF)
    batch = bench.make_batch(workload, "cpu")
    tokens, expected = bench.reference(batch)
    assert tokens.tolist() == [2, 3, 4, 5, 22, 23, 24, 25, 26]
    out = bench.plan_rung(4, batch)(batch.q, batch.k_cache, batch.v_cache, batch.block_table)
    assert_right(out[tokens], batch.q[tokens], expected)
    pairs = sum(sum(range(keys - queries + 1, keys + 1)) for queries, keys in lens)
    assert workload.operations() == 4 * 4 * 128 * pairs
