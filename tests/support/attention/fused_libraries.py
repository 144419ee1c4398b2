"""Stand-ins for the three libraries that compute paged attention in one call, on the CPU.

Each takes the arguments that the course gives, under its library's names, and asks for what
the library's documentation asks for. It computes in float64 and in its own way, so a wrong
argument gives a wrong result. test_fused.py compares the names with the libraries' own, where
these are there.
"""

import contextlib
import math
import sys
import types
from importlib.machinery import ModuleSpec

import pytest
import torch

from dense_attention import dense_attention


def assert_index(tensor, *shape):
    assert tensor.dtype == torch.int32 and tensor.is_contiguous()
    assert tuple(tensor.shape) == shape


class FlashInferWrapper:
    """flashinfer.BatchPrefillWithPagedKVCacheWrapper of 0.7.2."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        assert float_workspace_buffer.dtype == torch.uint8
        assert len(float_workspace_buffer) >= 128 * 1024 * 1024
        assert kv_layout == "NHD"

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        causal=False,
        q_data_type="float16",
        kv_data_type=None,
    ):
        num_seqs = len(qo_indptr) - 1
        assert_index(qo_indptr, num_seqs + 1)
        assert_index(paged_kv_indptr, num_seqs + 1)
        assert_index(paged_kv_indices, int(paged_kv_indptr[-1]))
        assert_index(paged_kv_last_page_len, num_seqs)
        assert paged_kv_indptr[0] == 0 and (paged_kv_indptr.diff() >= 1).all()
        assert (paged_kv_indices >= 0).all()
        assert (paged_kv_last_page_len >= 1).all()
        assert (paged_kv_last_page_len <= page_size).all()
        assert causal
        self.planned = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        self.sizes = num_qo_heads, num_kv_heads, head_dim_qk, page_size
        self.dtypes = q_data_type, kv_data_type or q_data_type

    def run(self, q, paged_kv_cache):
        k_cache, v_cache = paged_kv_cache
        _, page_size, num_kv_heads, head_size = k_cache.shape
        assert self.sizes == (q.shape[1], num_kv_heads, head_size, page_size)
        assert self.dtypes == (q.dtype, k_cache.dtype) and q.is_contiguous()
        assert k_cache.shape == v_cache.shape and k_cache.stride() == v_cache.stride()
        starts, firsts, ids, last_lens = (tensor.tolist() for tensor in self.planned)
        outputs = []
        for seq, last_len in enumerate(last_lens):
            pages = ids[firsts[seq] : firsts[seq + 1]]
            length = (len(pages) - 1) * page_size + last_len
            k, v = (cache[pages].flatten(0, 1)[:length] for cache in paged_kv_cache)
            outputs.append(dense_attention(q[starts[seq] : starts[seq + 1]], k, v))
        return torch.cat(outputs).to(q.dtype)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    causal=False,
    block_table=None,
):
    """flash_attn's, of 2.8: the mask is aligned to the last query and the last key; blocks are
    of 256 tokens.
    """
    assert causal
    return through_table(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table
    )


def flash_attn_with_kvcache(
    q, k_cache, v_cache, cache_seqlens=None, block_table=None, causal=False
):
    """flash_attn's, of 2.8, where every sequence has the same number of queries."""
    num_seqs, num_queries = q.shape[:2]
    assert causal
    assert_index(cache_seqlens, num_seqs)
    starts = num_queries * torch.arange(num_seqs + 1, dtype=torch.int32)
    ends = torch.cat([starts[:1], cache_seqlens.cumsum(0).int()])
    most = int(cache_seqlens.max())
    o = through_table(
        q.flatten(0, 1), k_cache, v_cache, starts, ends, num_queries, most, block_table
    )
    return o.unflatten(0, (num_seqs, num_queries))


def varlen_attn(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """PyTorch's, of 2.12 and 2.13."""
    assert window_size == (-1, 0) and enable_gqa and num_splits == 1
    assert_index(seqused_k, len(cu_seq_q) - 1)
    assert torch.equal(cu_seq_k.diff(), seqused_k)
    return through_table(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, block_table)


def through_table(q, k_cache, v_cache, starts, ends, max_q, max_k, table):
    num_seqs, block_size = len(starts) - 1, k_cache.shape[1]
    for tensor in (starts, ends):
        assert_index(tensor, num_seqs + 1)
    assert_index(table, num_seqs, table.shape[1])
    assert block_size % 256 == 0 and (table >= 0).all() and (table < len(k_cache)).all()
    for most, each in ((max_q, starts), (max_k, ends)):
        assert type(most) is int and most == each.diff().max()
    assert q.is_contiguous() and k_cache.stride(-1) == v_cache.stride(-1) == 1
    outputs = []
    for seq, length in enumerate(ends.diff().tolist()):
        blocks = table[seq, : math.ceil(length / block_size)]
        k, v = (cache[blocks].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        outputs.append(dense_attention(q[starts[seq] : starts[seq + 1]], k, v))
    return torch.cat(outputs).to(q.dtype)


@contextlib.contextmanager
def stand_ins():
    """All three libraries can be imported here."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, content in (
            ("flashinfer", {"BatchPrefillWithPagedKVCacheWrapper": FlashInferWrapper}),
            (
                "flash_attn",
                {
                    "flash_attn_varlen_func": flash_attn_varlen_func,
                    "flash_attn_with_kvcache": flash_attn_with_kvcache,
                },
            ),
        ):
            module = types.ModuleType(name)
            # transformers looks for libraries by their spec
            vars(module).update(content, __spec__=ModuleSpec(name, None))
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
        yield
