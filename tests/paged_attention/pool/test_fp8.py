"""Keys and values of 8 bits, without an engine: what is written, and what attention reads."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from batch_metadata import metadata_of
from int32 import integers
from paged_attention.engine.attention import PagedStep, paged_attention_forward
from paged_attention.engine.fp8 import WidenedBlocks, narrow, narrowed, widened, with_kv_dtype
from paged_attention.engine.paths import gather
from paged_attention.ladder.rungs import FP8
from paged_attention.pool.block_table import NO_BLOCK

BLOCK_SIZE, NUM_BLOCKS = 4, 7


def pool(num_kv_heads=2):
    """All different, as far as there are numbers of 8 bits."""
    shape = 1, 2, NUM_BLOCKS, BLOCK_SIZE, num_kv_heads, 8
    return (torch.arange(math.prod(shape)) % 125).to(torch.uint8).view(shape).view(FP8)


MODEL = SimpleNamespace(dtype=torch.float16)


@pytest.mark.parametrize("kv_dtype", [None, torch.float16])
def test_the_models_numbers_change_nothing(kv_dtype):
    assert with_kv_dtype(kv_dtype, MODEL, 4, len, max) == (torch.float16, len, max)


GIVEN = metadata_of(
    ((2, 6), (1, 4), (3, 3)), integers(5, 2, -1, 0, 9, 9, 2, -1, -1).view(3, 3)
)


def queries():
    return torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(0))


def test_with_8_bits_a_path_attends_over_them():
    numbers, plan, forward = with_kv_dtype(FP8, MODEL, BLOCK_SIZE, gather, None)
    assert numbers == FP8
    q, (k_cache, v_cache) = queries(), pool()[0]
    expected = gather(GIVEN)(q, k_cache.float(), v_cache.float())
    assert torch.equal(plan(GIVEN)(q, k_cache, v_cache), expected)
    assert torch.equal(widened(gather, BLOCK_SIZE)(GIVEN)(q, k_cache, v_cache), expected)


@pytest.mark.parametrize(
    "made",
    [narrowed, lambda forward: with_kv_dtype(FP8, MODEL, BLOCK_SIZE, gather, forward)[2]],
    ids=["narrowed", "with a dtype"],
)
def test_a_layer_writes_8_bits_and_attends_over_the_whole_pool(made):
    def attend(q, *caches):
        assert {cache.dtype for cache in caches} == {FP8}
        seen.extend(cache.float() for cache in caches)
        return q

    seen, own = [], pool()
    query, key, value = (
        torch.randn(1, heads, 3, 8, generator=torch.Generator().manual_seed(heads))
        for heads in (4, 2, 2)
    )
    slots, before = torch.tensor([9, 2, 17]), own.float()
    step = PagedStep(own, slots, attend)
    o, weights = made(paged_attention_forward)(
        SimpleNamespace(layer_idx=0), query, key, value, None, paged=step, scaling=1.0
    )
    assert torch.equal(o, query.transpose(1, 2)) and weights is None
    before = before.view(1, 2, -1, 2, 8)
    for place, heads in enumerate((key, value)):
        before[0, place, slots] = narrow(heads[0].transpose(0, 1)).float()
    expected = before.view(own.shape)
    assert torch.equal(own.float(), expected)
    assert torch.equal(torch.stack(seen), expected[0])


def test_a_block_is_copied_once_and_found_again():
    table = np.array([[5, 2, -1], [0, 9, 9], [2, -1, -1]], np.int32)
    blocks = WidenedBlocks(table, np.array([5, 4, 1]), BLOCK_SIZE, torch.device("cpu"))
    assert blocks.blocks.tolist() == [0, 2, 5] and blocks.blocks.dtype == torch.int64
    assert blocks.table.tolist() == [[2, 1], [0, NO_BLOCK], [1, NO_BLOCK]]
    assert blocks.table.dtype == torch.int32
    cache = pool()[0, 0]
    copies = blocks.widen(cache, torch.float16)
    assert torch.equal(copies, cache.float()[[0, 2, 5]].half()) and copies.dtype == torch.half


def test_more_blocks_than_sequences_and_a_last_block_with_one_key():
    table = np.array([[3, 1, 6, 4, -1]], np.int32)
    blocks = WidenedBlocks(table, np.array([13]), BLOCK_SIZE, torch.device("cpu"))
    assert blocks.table.tolist() == [[1, 0, 3, 2]]
    assert blocks.blocks.tolist() == [1, 3, 4, 6]
