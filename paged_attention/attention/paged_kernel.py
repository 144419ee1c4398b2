"""The course's paged kernel as a function of tensors (lesson 06).

It checks all arguments, and then launches the kernel.
"""

import functools
import math

import torch
from torch import Tensor

from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from paged_attention.validate import KERNEL_DTYPES, check_paged_decode

# A thread block gets 48 KiB of shared memory without asking for more. The query and the
# reductions need a part of it.
SHARED_BYTES_FOR_SCORES = 46 * 1024
KERNEL_FILES = (
    "numbers.cuh",
    "paged_params.cuh",
    "paged_address.cuh",
    "block_reduce.cuh",
    "paged_scores.cuh",
    "paged_values.cuh",
    "paged_attention.cu",
)


@functools.cache
def paged_attention_library(target: str | None = None) -> CudaLibrary:
    """Builds the course's own kernel, once for each target.

    target: "gpu", "fast" or "checked"; None takes what `build_cuda` chooses.
    """
    return build_cuda(
        *map(read_kernel, KERNEL_FILES),
        names=KERNEL_FILES,
        target=target,
        name="paged_attention",
    )


def attn_paged_cuda(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    library: CudaLibrary | None = None,
    scale: float | None = None,
) -> Tensor:
    """Computes paged attention of a decode step: one query of each sequence over its context.

    The arguments are not changed.

    q: float32, float16 or bfloat16 (num_seqs, num_q_heads, head_size), with any distance
        between sequences.
    k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size) of q's dtype.
    block_table: int32 (num_seqs, max_blocks_per_seq). Entries that a context does not need may
        be anything.
    context_lens: int32 (num_seqs,). An empty context gives zeros.
    library: what `build_cuda` made of a kernel with the interface of
        kernels/paged_attention.cu; None takes the course's own, built for q's device.
    scale: the factor for the scores; None takes 1 / sqrt(head_size).
    Returns (num_seqs, num_q_heads, head_size) of q's dtype.
    Raises TypeError or ValueError naming the argument that does not fit, before the launch.
    Raises KernelError when the launch fails.
    """
    check_paged_decode(q, k_cache, v_cache, block_table, context_lens)
    if library is None:
        library = paged_attention_library("gpu" if q.is_cuda else "fast")
    num_seqs, num_q_heads, head_size = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    max_context_len = int(context_lens.max())
    scores = None
    if max_context_len * torch.float32.itemsize > SHARED_BYTES_FOR_SCORES:
        scores = torch.empty(
            num_seqs, num_q_heads, max_context_len, dtype=torch.float32, device=q.device
        )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    library.paged_attention(
        out=out,
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_table=block_table,
        context_lens=context_lens,
        scores=scores,
        q_stride=q.stride(0),
        num_seqs=num_seqs,
        num_q_heads=num_q_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        max_blocks_per_seq=block_table.shape[1],
        max_context_len=max_context_len,
        dtype=KERNEL_DTYPES.index(q.dtype),
        scale=1 / math.sqrt(head_size) if scale is None else scale,
    )
    return out
