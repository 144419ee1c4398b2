"""Paged attention in one call of PyTorch's own (lesson 05), where the machine has a GPU for it."""

import inspect

import torch
from torch import Tensor

from paged_attention.metadata import BatchMetadata, cumulative_lengths

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:
    varlen_attn = None


def fused_needs() -> str | None:
    """What this machine lacks for attn_paged_fused(), or None."""
    if varlen_attn is None or "block_table" not in inspect.signature(varlen_attn).parameters:
        return f"a PyTorch whose varlen_attn takes a block_table; this one is {torch.__version__}"
    if not torch.cuda.is_available():
        return "a CUDA GPU"
    return None if torch.cuda.get_device_capability() >= (8, 0) else "a GPU of compute capability 8.0 or more"


def attn_paged_fused(q: Tensor, k_cache: Tensor, v_cache: Tensor, metadata: BatchMetadata) -> Tensor:
    """What attn_paged_torch() computes, for the whole batch at once, without a copy of the keys and values.

    All on a GPU, in float16 or bfloat16, with a block_size of 256 or a multiple of it.
    """
    kv_lens = metadata.seq_lens_kv.tolist()
    return varlen_attn(
        q, k_cache, v_cache,
        cu_seq_q=metadata.cu_seqlens_q, cu_seq_k=cumulative_lengths(kv_lens).to(q.device),
        max_q=metadata.cu_seqlens_q.diff().max().item(), max_k=max(kv_lens),
        seqused_k=metadata.seq_lens_kv, block_table=metadata.block_table,
        window_size=(-1, 0), enable_gqa=True, num_splits=1,
    )
