"""Attention of single tokens over whole contexts, where rung 9 does not take the heads."""

import pytest
import torch

from paged_attention.engine.fast.decode import WholeContexts

LONGEST_IN_SHARED_MEMORY = 46 * 1024 // 4


@pytest.mark.parametrize(
    "longest", [12, LONGEST_IN_SHARED_MEMORY, LONGEST_IN_SHARED_MEMORY + 1]
)
def test_each_sequence_attends_to_its_whole_context(longest):
    """Its queries are a part of a larger tensor."""
    generator = torch.Generator().manual_seed(1)
    k_cache, v_cache = torch.randn(2, 9, 4, 2, 32, generator=generator)
    q = torch.randn(3, 10, 32, generator=generator)[:, :6]
    table = torch.tensor([[8, 2, 1, 3], [5, 3, 0, 1], [4, 7, 6, 8]], dtype=torch.int32)
    lengths = [5, 1, 12]
    found = WholeContexts(
        4,
        longest,
        torch.device("cpu"),
        num_q_heads=6,
        num_kv_heads=2,
        head_size=32,
        block_size=4,
        dtype=torch.float32,
        target="checked",
    )
    assert (found.scores is None) == (longest <= LONGEST_IN_SHARED_MEMORY)
    found.plan(torch.tensor(lengths, dtype=torch.int32))
    out = torch.zeros(3, 6, 32)
    assert found(q, k_cache, v_cache, table, out=out) is out
    for own, row, length, result in zip(q, table, lengths, out):
        k, v = (cache[row].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        for head in range(6):
            scores = k[:, head // 3] @ own[head] / 32**0.5
            torch.testing.assert_close(result[head], scores.softmax(0) @ v[:, head // 3])
