"""Which attention decodes, and the one that takes whole contexts."""

import math
from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine.fast import decode
from paged_attention.engine.fast.decode import NarrowDecode, WholeContexts, decode_attention
from paged_attention.engine.served import UnsupportedModelError
from paged_attention.rungs import FP8

META = torch.device("meta")
LONGEST_IN_SHARED_MEMORY = 46 * 1024 // 4
SIZES = dict(num_q_heads=6, num_kv_heads=2, head_size=64, block_size=16, target="a target")


def pool(dtype=torch.float16):
    """A pool for 8 sequences, each with 5 blocks at most."""
    return SimpleNamespace(
        kv_cache=torch.empty(3, 2, 9, 16, 2, 64, dtype=dtype, device=META),
        block_table=torch.empty(8, 5, device=META),
        max_blocks_per_seq=5,
    )


class Rung9:
    """A stand-in for SelfPlannedDecode."""

    takes = True

    def __init__(self, max_num_seqs, **sizes):
        if not self.takes:
            raise ValueError("heads of 64 are not taken")
        self.max_num_seqs, self.sizes, self.device = max_num_seqs, sizes, sizes["device"]

    def plan(self, context_lens):
        return "planned"

    def __call__(self, q, k_cache, v_cache, block_table, k_scales, v_scales, out=None):
        self.seen = q.dtype, k_cache, v_cache, block_table, k_scales, v_scales
        return torch.full_like(q, 3) if out is None else out.fill_(3)


@pytest.fixture
def rung_9(monkeypatch):
    monkeypatch.setattr(Rung9, "takes", True)
    monkeypatch.setattr(decode, "SelfPlannedDecode", Rung9)
    monkeypatch.setattr(decode, "paged_attention_library", lambda target: target)
    return Rung9


def chosen(dtype=torch.float16, plans=True, heads=6):
    return decode_attention(pool(dtype), heads, torch.float16, "a target", plans)


def test_rung_9_decodes_what_it_takes(rung_9):
    found, reason = chosen()
    assert type(found) is Rung9 and reason == "" and found.max_num_seqs == 8
    assert found.sizes == SIZES | {"dtype": torch.float16, "device": META}


def test_what_rung_9_does_not_take_has_a_kernel_for_whole_contexts_and_a_reason(rung_9):
    rung_9.takes = False
    found, reason = chosen()
    assert type(found) is WholeContexts and reason == "heads of 64 are not taken"
    assert found.library == "a target"
    assert found.sizes == dict(
        num_q_heads=6,
        num_kv_heads=2,
        head_size=64,
        block_size=16,
        max_context_len=5 * 16,
        dtype=1,
        scale=1 / 8,
    )


def test_without_the_part_that_plans_there_is_no_reason_to_say(rung_9):
    found, reason = chosen(plans=False)
    assert type(found) is WholeContexts and reason == ""


def test_a_pool_of_8_bits_is_read_by_rung_9_alone(rung_9):
    found, reason = chosen(FP8)
    assert type(found) is NarrowDecode and reason == ""
    assert found.decode.max_num_seqs == 8
    assert found.decode.sizes == SIZES | {
        "dtype": torch.float16,
        "kv_dtype": FP8,
        "device": META,
    }
    with pytest.raises(ValueError, match="a pool of fp8 needs the part `plan`"):
        chosen(FP8, plans=False)
    rung_9.takes = False
    with pytest.raises(UnsupportedModelError, match="does not take this: heads of 64"):
        chosen(FP8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_numbers_of_8_bits_are_read_with_queries_of_float16(rung_9, dtype):
    found = NarrowDecode(8, dtype=dtype, num_kv_heads=2, device=torch.device("cpu"))
    assert found.plan(None) == "planned"
    q, out = torch.zeros(2, 6, 64, dtype=dtype), torch.zeros(2, 6, 64, dtype=dtype)
    assert found(q, "keys", "values", "table", out=out) is out and (out == 3).all()
    assert found.decode.seen[:4] == (torch.float16, "keys", "values", "table")
    for scales in found.decode.seen[4:]:
        assert scales.tolist() == [1.0, 1.0] and scales.dtype == torch.float32


def test_the_scales_of_8_bits_are_where_the_kernel_runs(rung_9):
    found = NarrowDecode(8, dtype=torch.float16, num_kv_heads=2, device=META)
    assert found.scales.device == META


# ---- Whole contexts


def whole(longest, device=META, **others):
    return WholeContexts(3, longest, device, **SIZES | {"dtype": torch.float32} | others)


def test_scores_lie_in_memory_only_if_the_longest_context_has_too_many(rung_9):
    assert whole(LONGEST_IN_SHARED_MEMORY).scores is None
    scores = whole(LONGEST_IN_SHARED_MEMORY + 1).scores
    assert scores.shape == (3, 6, LONGEST_IN_SHARED_MEMORY + 1)
    assert (scores.device, scores.dtype) == (META, torch.float32)


@pytest.mark.parametrize("longest", [12, LONGEST_IN_SHARED_MEMORY + 1])
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
    found.plan(torch.tensor(lengths, dtype=torch.int32))
    out = torch.zeros(3, 6, 32)
    assert found(q, k_cache, v_cache, table, out=out) is out
    for own, row, length, result in zip(q, table, lengths, out):
        k, v = (cache[row].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        for head in range(6):
            scores = k[:, head // 3] @ own[head] / math.sqrt(32)
            torch.testing.assert_close(result[head], scores.softmax(0) @ v[:, head // 3])
