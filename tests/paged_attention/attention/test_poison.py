"""What belongs to no sequence reaches no result, on any path of the engine.

Here free blocks, slots past a sequence's last token, blocks of other sequences and block 0
hold NaN, infinities and 3e38.
"""

from dataclasses import replace
from itertools import accumulate

import pytest
import torch

from dense_attention import pool_attention
from paged_attention.attention.metadata import build_metadata
from paged_attention.engine.paths import PATHS
from paged_attention.pool.kv_cache import PagedAttentionManager
from poison import POISONS, fill_where, on_each_device, owned_slots
from poisoned_paths import FOR_16_BITS, by_poison, on_each_path, skip_where_missing
from rounding import assert_within_rounding

HALF = torch.float16
BFLOAT = torch.bfloat16
FLOAT = torch.float32

pytestmark = pytest.mark.usefixtures("one_thread")


# Paths


SEQUENCES = {
    "prompt": (0, 5),
    "single": (20, 1),
    "full block": (15, 1),
    "first of a block": (16, 1),
    "chunk": (13, 7),
    # tokens before, and new ones
    "one token": (0, 1),
    "longest": (30, 1),
    "bystander": (11, 3),
}
BATCH = [(name, new) for name, (_, new) in SEQUENCES.items() if name != "bystander"]
BLOCK_SIZE = 8


def scene(device, dtype):
    """A manager whose pool is almost full (block 0 is free), queries and metadata."""
    generator = torch.Generator().manual_seed(5)
    manager = PagedAttentionManager(23, BLOCK_SIZE, 2, 64, 8, 5, dtype=dtype, device=device)
    free = [manager.block_manager.allocate() for _ in range(23)]
    # what is freed first is taken last
    for block_id in [0, *(1 + torch.randperm(22, generator=generator)).tolist()]:
        manager.block_manager.free(free[block_id])
    for name, (past, new) in SEQUENCES.items():
        manager.add_sequence(name, past + new)
    assert not owned_slots(manager)[0].any()
    manager.kv_cache.copy_(torch.randn(manager.kv_cache.shape, generator=generator))
    metadata = build_metadata(manager, BATCH)
    q = torch.randn(len(metadata.slot_mapping), 4, 64, generator=generator).to(device, dtype)
    return manager, q, metadata


def slots_of_no_one_here(manager):
    """Past each last token, in the free blocks, of which 0 is one, and in the bystander's."""
    where = ~owned_slots(manager)
    where[manager.blocks_of("bystander")] = True
    return where


@on_each_device
@on_each_path
@pytest.mark.parametrize("dtype", [FLOAT, HALF, BFLOAT], ids=str)
def test_a_path_reads_what_its_sequences_own_and_nothing_else(path, device, dtype):
    if path in FOR_16_BITS and dtype == FLOAT:
        pytest.skip(f"path {path} takes 16-bit numbers")
    if path == "in_place" and dtype == HALF:
        pytest.skip("path in_place takes float32 and bfloat16")
    skip_where_missing(path, device)
    manager, q, metadata = scene(device, dtype)
    caches, where = manager.kv_cache[0], slots_of_no_one_here(manager)
    expected = PATHS[path](metadata)(q, *caches)
    assert_within_rounding(expected, q, pool_attention(q, *caches, metadata))
    if path in ("gather", "blockwise"):
        with torch.device("meta"):  # what is made without a device cannot be read
            again = PATHS[path](metadata)(q, *caches)
        # a GPU adds segments in any order
        torch.testing.assert_close(
            again, expected, **({"rtol": 0, "atol": 0} if device == "cpu" else {})
        )
    padding = metadata.block_table < 0
    for poison in POISONS.values():
        fill_where(caches, where, poison)
        for entry in (-1, 0, manager.blocks_of("bystander")[0]):
            table = metadata.block_table.masked_fill(padding, entry)
            o = PATHS[path](replace(metadata, block_table=table))(q, *caches)
            torch.testing.assert_close(o, expected)  # a GPU may add in another order


@on_each_device
@on_each_path
@by_poison
def test_the_others_do_not_notice_what_one_of_the_batch_has_in_its_own_blocks(
    path, device, poison
):
    skip_where_missing(path, device)
    manager, q, metadata = scene(device, BFLOAT if path in FOR_16_BITS else FLOAT)
    caches = manager.kv_cache[0]
    expected = PATHS[path](metadata)(q, *caches)
    q_lens = [new for _, new in BATCH]
    for index, (name, q_len) in enumerate(BATCH):
        poisoned = caches.clone()
        where = torch.zeros(caches.shape[1:3], dtype=torch.bool)
        where[manager.blocks_of(name)] = True
        fill_where(poisoned, where, poison)
        o = PATHS[path](metadata)(q, *poisoned)
        end = list(accumulate(q_lens))[index]
        others = torch.ones(len(q), dtype=torch.bool)
        others[end - q_len : end] = False
        torch.testing.assert_close(o[others], expected[others], rtol=1e-5, atol=1e-6)


# Path "fast" alone


@pytest.mark.parametrize(
    "dtype, head_size, block_size, num_q_heads",
    [(FLOAT, 64, 8, 4), (HALF, 32, 8, 4), (HALF, 64, 4, 4), (HALF, 64, 8, 34)],
    ids=["float32", "heads of 32", "blocks of 4", "17 query heads"],
)
def test_chunks_that_the_kernel_is_not_made_for_are_gathered(
    dtype, head_size, block_size, num_q_heads
):
    manager = PagedAttentionManager(9, block_size, 2, head_size, 8, 5, dtype=dtype)
    for name, length in (("prompt", 5), ("chunk", 14)):
        manager.add_sequence(name, length)
    manager.kv_cache.normal_(generator=torch.Generator().manual_seed(0))
    metadata = build_metadata(manager, [("prompt", 5), ("chunk", 7)])
    q = torch.randn(12, num_q_heads, head_size).to(dtype)
    fast, gathered = (
        PATHS[path](metadata)(q, *manager.kv_cache[0]) for path in ("fast", "gather")
    )
    assert torch.equal(fast, gathered)


@pytest.mark.gpu
def test_a_long_prompt_is_right_on_the_gpu():
    manager = PagedAttentionManager(520, 16, 1, 64, 1, 520, dtype=BFLOAT, device="cuda")
    manager.add_sequence("prompt", 8192)
    manager.kv_cache.normal_()
    metadata = build_metadata(manager, [("prompt", 8192)])
    q = torch.randn(8192, 2, 64, device="cuda").to(BFLOAT)
    fast, gathered = (
        PATHS[path](metadata)(q, *manager.kv_cache[0]) for path in ("fast", "gather")
    )
    torch.testing.assert_close(fast, gathered, rtol=0.02, atol=0.02)
