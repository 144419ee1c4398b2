"""Each planted fault is the one that its name says, and nothing else."""

from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.faults import each_alone, fill_with_leftovers, plant
from paged_attention.engine.request import SamplingParams
from paged_attention.metadata import BatchMetadata, attn_paged_torch

BLOCK_SIZE, NUM_BLOCKS = 8, 40


def metadata(query_lens: list[int], kv_lens: list[int], table: list[list[int]]):
    return BatchMetadata(
        torch.tensor([0, *query_lens]).cumsum(0).int(),
        torch.tensor(kv_lens, dtype=torch.int32),
        torch.tensor(table, dtype=torch.int32),
        torch.zeros(sum(query_lens), dtype=torch.int64),
    )


def table_seen(fault: str, given: BatchMetadata) -> list[list[int]]:
    """The block table that attention reads through if this fault is planted."""
    seen: list[BatchMetadata] = []
    engine = SimpleNamespace(
        runner=SimpleNamespace(plan=seen.append),
        manager=SimpleNamespace(
            block_size=BLOCK_SIZE, kv_cache=torch.zeros(1, 2, NUM_BLOCKS, BLOCK_SIZE, 1, 2)
        ),
    )
    plant(engine, fault)
    before = given.block_table.clone()
    engine.runner.plan(given)
    assert torch.equal(given.block_table, before)  # where it writes stays as it is
    assert torch.equal(seen[0].seq_lens_kv, given.seq_lens_kv)
    return seen[0].block_table.tolist()


def test_a_block_of_this_step_is_not_in_the_table_yet():
    given = metadata(
        [20, 1, 1, 1, 9],
        [20, 16, 17, 9, 17],
        [[1, 2, 3], [4, 5, -1], [6, 7, 8], [9, 10, -1], [11, 12, 13]],
    )
    assert table_seen("table one step late", given) == [
        [1, 2, 3],  # its first step
        [4, 5, 0],
        [6, 7, 0],
        [9, 0, 0],
        [11, 0, 0],
    ]


def test_the_second_block_is_the_next_one_of_the_pool():
    given = metadata([1, 1, 2], [9, 5, 20], [[3, 7, -1], [4, -1, -1], [5, NUM_BLOCKS - 1, 9]])
    assert table_seen("a block of another sequence", given) == [
        [3, 8, -1],
        [4, -1, -1],
        [5, 0, 9],
    ]
    assert table_seen("a block of another sequence", metadata([1], [5], [[4]])) == [[4]]
    two = metadata([1, 1], [9, 5], [[3, 0], [7, -1]])
    assert table_seen("a block of another sequence", two) == [[3, 1], [7, -1]]


def test_full_blocks_of_single_tokens_are_in_reverse_order():
    given = metadata(
        [1, 1, 1, 2, 1],
        [25, 24, 17, 25, 16],
        [[1, 2, 3, 4], [5, 6, 7, -1], [8, 9, 10, -1], [11, 12, 13, 14], [15, 16, -1, -1]],
    )
    assert table_seen("full blocks permuted", given) == [
        [3, 2, 1, 4],
        [6, 5, 7, -1],
        [9, 8, 10, -1],
        [11, 12, 13, 14],
        [15, 16, -1, -1],
    ]


def test_only_single_tokens_get_the_next_position():
    def flatten_batch(scheduled):
        return [5, 6, 7, 8, 9], [3, 0, 1, 2, 11], [0, 3, 4]

    engine = SimpleNamespace(runner=SimpleNamespace(flatten_batch=flatten_batch))
    plant(engine, "position + 1 at decode")
    scheduled = [("a", 1), ("b", 3), ("c", 1)]
    assert engine.runner.flatten_batch(scheduled) == (
        [5, 6, 7, 8, 9],
        [4, 0, 1, 2, 12],
        [0, 3, 4],
    )
    with pytest.raises(ValueError, match="zip"):
        engine.runner.flatten_batch(scheduled[:2])


@pytest.fixture
def batch():
    """A chunk, single tokens, and a prompt, with NaN in what belongs to no sequence."""
    generator = torch.Generator().manual_seed(4)
    given = metadata(
        [3, 1, 1, 10], [13, 8, 17, 10], [[1, 2, -1], [3, -1, -1], [4, 5, 6], [7, 8, -1]]
    )
    shape = NUM_BLOCKS, BLOCK_SIZE, 2, 4
    caches = [torch.randn(shape, generator=generator) for _ in range(2)]
    for cache in caches:
        cache[0] = cache[9:] = torch.nan
    return torch.randn(15, 6, 4, generator=generator) * 3, *caches, given


def test_without_a_fault_it_is_attention(batch):
    torch.testing.assert_close(each_alone(*batch), attn_paged_torch(*batch))


def test_the_last_query_sees_its_block_to_the_end(batch):
    q, k_cache, v_cache, given = batch
    found = each_alone(*batch, mask_tail=False)
    expected = attn_paged_torch(*batch)
    for row, (last, length) in enumerate([(2, 16), (3, 8), (4, 24), (14, 16)]):
        alone = metadata([1], [length], given.block_table[row : row + 1].tolist())
        expected[last] = attn_paged_torch(q[last : last + 1], k_cache, v_cache, alone)[0]
    torch.testing.assert_close(found, expected)


def test_the_sum_so_far_keeps_its_scale(batch):
    q, k_cache, v_cache, given = batch
    found = each_alone(*batch, rescale=False)
    torch.testing.assert_close(found[3], attn_paged_torch(*batch)[3])  # one block: no fault
    keys, values = (
        cache[given.block_table[2].long()].flatten(0, 1)[:17].repeat_interleave(3, 1)
        for cache in (k_cache, v_cache)
    )  # of the third sequence: (17, num_q_heads, head_size)
    scores = torch.einsum("hd,thd->ht", q[4], keys) / 2
    largest = torch.stack([scores[:, :end].amax(1) for end in (8, 16, 17)], 1)
    own = largest.repeat_interleave(torch.tensor([8, 8, 1]), 1)
    o = torch.einsum("ht,thd->hd", torch.exp(scores - own), values)
    l = torch.exp(scores - largest[:, -1:]).sum(1)
    torch.testing.assert_close(found[4], o / l[:, None])


def engine():
    return Engine(
        load_model(), path="gather", block_size=BLOCK_SIZE, num_blocks=12, max_num_seqs=2
    )


def test_leftovers_are_whole_blocks_of_the_prompts():
    filled, prompt = engine(), list(range(2, 17))
    fill_with_leftovers(filled, [prompt])
    blocks = filled.manager.kv_cache.transpose(0, 2).flatten(1)
    assert blocks.isfinite().all() and len(blocks.unique(dim=0)) == 1  # 15 tokens fill one
    assert filled.manager.block_manager.get_num_free_blocks() == 12
    assert not filled.prefix_cache.blocks
    own = engine()
    own.generate([prompt], SamplingParams(max_new_tokens=1))
    assert any(
        torch.equal(blocks[0], each)
        for each in own.manager.kv_cache.transpose(0, 2).flatten(1)
    )


def test_of_several_prompts_all_blocks_are_left_in_turn():
    filled = engine()
    fill_with_leftovers(filled, [list(range(1, 10)), list(range(20, 44))])
    blocks = filled.manager.kv_cache.transpose(0, 2).flatten(1)
    assert blocks.isfinite().all() and len(blocks.unique(dim=0)) == 4
    assert torch.equal(blocks[:4], blocks[4:8]) and torch.equal(blocks[:4], blocks[8:])


def test_an_engine_at_work_keeps_what_it_has():
    busy = engine()
    busy.add("a", [1, 2, 3], SamplingParams(max_new_tokens=4))
    busy.step()
    before = busy.manager.kv_cache.clone()
    with pytest.raises(ValueError, match="the engine has requests"):
        fill_with_leftovers(busy, [[1, 2]])
    assert torch.equal(busy.manager.kv_cache, before)
