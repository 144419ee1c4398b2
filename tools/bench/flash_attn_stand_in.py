"""nano-vllm's attention on a machine without flash-attn.

Building flash-attn takes hours. So prompts use PyTorch's own FlashAttention-2, and decodes use
FlashInfer's XQA, which is faster.
"""

import torch
from torch import Tensor

WORKSPACE_BYTES = 512 << 20
SEMAPHORE_BYTES = 8 << 20


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: Tensor,
    max_seqlen_k: int,
    cu_seqlens_k: Tensor,
    softmax_scale: float,
    causal: bool,
    block_table: Tensor | None = None,
) -> Tensor:
    """Attention of whole prompts.

    q: (num_tokens, num_q_heads, head_size).
    k, v: (num_tokens, num_kv_heads, head_size).
    Raises NotImplementedError for a block table: no prompt of the benchmark begins as another.
    """
    if block_table is not None:
        raise NotImplementedError("the stand-in for flash-attn serves whole prompts only")
    group = q.shape[1] // k.shape[1]
    k, v = (
        heads.repeat_interleave(group, 1) for heads in (k, v)
    )  # (num_tokens, num_q_heads, …)
    return torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        0.0,
        causal,
        False,
        scale=softmax_scale,
    )[0]


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cache_seqlens: Tensor,
    block_table: Tensor,
    softmax_scale: float,
    causal: bool,
) -> Tensor:
    """Attention of one new token for each sequence.

    q: (num_seqs, 1, num_q_heads, head_size).
    k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
    cache_seqlens: int32 (num_seqs,).
    block_table: int32 (num_seqs, max_blocks_per_seq).
    softmax_scale: XQA has its own, 1/√head_size.
    """
    from flashinfer.xqa import xqa

    out = torch.empty_like(q)
    xqa(
        q.contiguous(),
        k_cache,
        v_cache,
        block_table.clamp(min=0),
        cache_seqlens.clamp(min=1).view(torch.uint32)[:, None],
        out,
        *_buffers(q.device),
        k_cache.shape[2],
        k_cache.shape[1],
    )
    return out


_buffers_of: dict[torch.device, tuple[Tensor, Tensor]] = {}


def _buffers(device: torch.device) -> tuple[Tensor, Tensor]:
    """XQA's workspace and semaphores.

    They are made once: recorded steps keep their addresses.
    """
    if device not in _buffers_of:
        workspace, semaphores = (
            torch.zeros(size, dtype=torch.uint8, device=device)
            for size in (WORKSPACE_BYTES, SEMAPHORE_BYTES)
        )
        _buffers_of[device] = workspace, semaphores.view(torch.uint32)
    return _buffers_of[device]
