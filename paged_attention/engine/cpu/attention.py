"""Attention on a CPU that reads the pool in place."""

import torch
from torch import Tensor

from paged_attention.attention.fused import Attend
from paged_attention.attention.metadata import BatchMetadata, each_query
from paged_attention.engine.cpu.library import NUMBERS, bits_of, cpu_library


def in_place(metadata: BatchMetadata) -> Attend:
    """A path for a CPU: each query reads its keys and values where they are in the pool.

    The pool has numbers of float32 or bfloat16; sums are float32.
    """
    block_table, context_lens = each_query(metadata)
    table, lengths = block_table.int().contiguous(), context_lens.int().contiguous()
    library = cpu_library()

    def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        if k_cache.device.type != "cpu":
            raise ValueError(f"this path is for a pool on the CPU, not on {k_cache.device}")
        if k_cache.dtype not in NUMBERS:
            raise TypeError(
                f"the pool has numbers of {k_cache.dtype}; "
                f"this path reads {' and '.join(map(str, NUMBERS))}"
            )
        num_tokens, num_q_heads, head_size = q.shape
        _, block_size, num_kv_heads, _ = k_cache.shape
        wide = q.float()
        if wide.stride()[1:] != (head_size, 1):
            wide = wide.contiguous()
        out = torch.empty(q.shape, dtype=torch.float32)
        library(
            "attend",
            *(out, wide, wide.stride(0), k_cache, v_cache, table, lengths),
            *(num_tokens, table.shape[1], block_size, num_q_heads, num_kv_heads, head_size),
            bits_of(k_cache),
        )
        return out.to(q.dtype)

    return attend
