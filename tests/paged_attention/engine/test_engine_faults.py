"""Each planted fault is the one that its name says, and nothing else."""

import pytest
import torch

from batch_metadata import metadata_of
from echo import EchoModel
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.faults import fill_with_leftovers, plant
from paged_attention.engine.request import SamplingParams

pytestmark = pytest.mark.usefixtures("one_thread")

BLOCK_SIZE, NUM_BLOCKS = 8, 40
# A fault: a batch's new tokens and keys, its table, and the table that attention reads.
SEEN = [
    (
        "table one step late",
        ((20, 20), (1, 16), (1, 17), (1, 9), (9, 17)),
        [[1, 2, 3], [4, 5, -1], [6, 7, 8], [9, 10, -1], [11, 12, 13]],
        # the first is in its first step
        [[1, 2, 3], [4, 5, 0], [6, 7, 0], [9, 0, 0], [11, 0, 0]],
    ),
    (
        "a block of another sequence",  # the pool's next one
        ((1, 9), (1, 5), (2, 20)),
        [[3, 7, -1], [4, -1, -1], [5, NUM_BLOCKS - 1, 9]],
        [[3, 8, -1], [4, -1, -1], [5, 0, 9]],
    ),
    ("a block of another sequence", ((1, 5),), [[4]], [[4]]),
    ("a block of another sequence", ((1, 9), (1, 5)), [[3, 0], [7, -1]], [[3, 1], [7, -1]]),
    (
        "full blocks permuted",  # those of single tokens
        ((1, 25), (1, 24), (1, 17), (2, 25), (1, 16)),
        [[1, 2, 3, 4], [5, 6, 7, -1], [8, 9, 10, -1], [11, 12, 13, 14], [15, 16, -1, -1]],
        [[3, 2, 1, 4], [6, 5, 7, -1], [9, 8, 10, -1], [11, 12, 13, 14], [15, 16, -1, -1]],
    ),
]


@pytest.mark.parametrize("fault, lengths, table, expected", SEEN)
def test_attention_reads_another_table(fault, lengths, table, expected):
    seen, given = [], metadata_of(lengths, table)
    sizes = dict(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    engine = Engine(EchoModel(), path=seen.append, **sizes)
    plant(engine, fault)
    engine.runner.plan(given)
    assert given.block_table.tolist() == table  # where it writes stays as it is
    assert torch.equal(seen[0].seq_lens_kv, given.seq_lens_kv)
    assert seen[0].block_table.tolist() == expected


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
    own_blocks = own.manager.kv_cache.transpose(0, 2).flatten(1)
    assert any(torch.equal(blocks[0], each) for each in own_blocks)


def test_an_engine_at_work_keeps_what_it_has():
    busy = engine()
    busy.add("a", [1, 2, 3], SamplingParams(max_new_tokens=4))
    busy.step()
    before = busy.manager.kv_cache.clone()
    with pytest.raises(ValueError, match="the engine has requests"):
        fill_with_leftovers(busy, [[1, 2]])
    assert torch.equal(busy.manager.kv_cache, before)
