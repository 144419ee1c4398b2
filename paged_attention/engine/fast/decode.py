"""Attention of decode steps without a plan on the host: any lengths in one recorded step."""

import math

import torch
from torch import Tensor

from paged_attention.attention.paged_kernel import (
    SHARED_BYTES_FOR_SCORES,
    paged_attention_library,
)
from paged_attention.engine.supported_models import UnsupportedModelError
from paged_attention.ladder.rungs import FP8
from paged_attention.ladder.self_planned import SelfPlannedDecode
from paged_attention.validate import KERNEL_DTYPES

FLOAT16 = torch.float16


def decode_attention(manager, config_heads: int, dtype, target: str, plans: bool, early: bool):
    """Chooses the fastest attention for a pool, of those that need no plan on the host.

    config_heads: the number of query heads.
    plans: whether rung 9 may be taken, which plans on the device.
    early: whether rung 9 may begin before the kernel before it has ended.
    Returns the attention, and why it is not rung 9: "" if it is, or may not be.
    Raises UnsupportedModelError if the pool is of fp8 and rung 9 cannot be taken.
    """
    *_, block_size, num_kv_heads, head_size = manager.kv_cache.shape
    device, max_num_seqs = manager.kv_cache.device, len(manager.block_table)
    sizes = dict(
        num_q_heads=config_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=dtype,
        target=target,
    )
    if manager.kv_cache.dtype == FP8:
        if not plans:
            raise ValueError("a pool of fp8 needs the part `plan`: only rung 9 reads one")
        try:
            return NarrowDecode(max_num_seqs, device=device, early=early, **sizes), ""
        except (TypeError, ValueError) as error:
            raise UnsupportedModelError(
                f"only rung 9 decodes from a pool of fp8, and it does not take this: {error}"
            ) from error
    reason = ""
    if plans:
        try:
            decode = SelfPlannedDecode(max_num_seqs, device=device, early=early, **sizes)
            return decode, reason
        except (TypeError, ValueError) as error:
            reason = str(error)
    longest = manager.max_blocks_per_seq * block_size
    return WholeContexts(max_num_seqs, longest, device, **sizes), reason


class NarrowDecode:
    """Rung 9 over keys and values of 8 bits, which it widens to float16.

    Queries of another dtype become float16 before, and the result has their dtype again.
    """

    def __init__(self, max_num_seqs: int, *, dtype: torch.dtype, num_kv_heads: int, **sizes):
        """The arguments are those of SelfPlannedDecode. dtype: of the queries."""
        self.decode = SelfPlannedDecode(
            max_num_seqs, dtype=FLOAT16, kv_dtype=FP8, num_kv_heads=num_kv_heads, **sizes
        )
        self.plan, self.dtype = self.decode.plan, dtype
        self.scales = torch.ones(num_kv_heads, device=self.decode.device)

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table, out: Tensor):
        tensors = k_cache, v_cache, block_table, self.scales, self.scales
        if self.dtype == FLOAT16:
            return self.decode(q, *tensors, out=out)
        return out.copy_(self.decode(q.to(FLOAT16), *tensors))


class WholeContexts:
    """Lesson 06's kernel, for contexts of any length up to the longest.

    A block of threads takes a whole context, so there is nothing to plan.
    """

    def __init__(
        self,
        max_num_seqs: int,
        longest: int,
        device: torch.device,
        *,
        num_q_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        dtype: torch.dtype,
        target: str,
    ):
        self.library, self.scores = paged_attention_library(target), None
        self.sizes = dict(
            num_q_heads=num_q_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            block_size=block_size,
            max_context_len=longest,
            dtype=KERNEL_DTYPES.index(dtype),
            scale=1 / math.sqrt(head_size),
        )
        if longest * torch.float32.itemsize > SHARED_BYTES_FOR_SCORES:
            self.scores = torch.empty(max_num_seqs, num_q_heads, longest, device=device)

    def plan(self, context_lens: Tensor) -> None:
        """context_lens: int32 (num_seqs,), read by each call that follows."""
        self.context_lens = context_lens

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table, out: Tensor):
        self.library.paged_attention(
            out=out,
            q=q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_table=block_table,
            context_lens=self.context_lens,
            scores=self.scores,
            q_stride=q.stride(0),
            num_seqs=len(q),
            max_blocks_per_seq=block_table.shape[1],
            **self.sizes,
        )
        return out
