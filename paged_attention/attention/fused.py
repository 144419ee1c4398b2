"""Paged attention in one call of a library's kernel (lesson 05).

It needs a GPU and the library. The course has run and recorded FlashInfer. The other two
follow their libraries' signatures and are tested against them. They have not run on a GPU yet.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast

import torch
from torch import Tensor

from paged_attention.attention.metadata import BatchMetadata, cumulative_lengths
from paged_attention.validate import check_contiguous, check_devices, check_paged_attention

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # attend(q, k_cache, v_cache)
DEVICE = "cuda"
WORKSPACE_BYTES = 128 << 20  # FlashInfer's advice; it holds parts of split sequences


def plan_flashinfer(metadata: BatchMetadata, q: Tensor, k_cache: Tensor):
    """Plans a batch with FlashInfer. Returns attend(q, k_cache, v_cache)."""
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    _, block_size, num_kv_heads, head_size = k_cache.shape
    num_blocks = (metadata.seq_lens_kv + block_size - 1) // block_size  # (num_seqs,)
    used = torch.arange(metadata.block_table.shape[1], device=q.device) < num_blocks[:, None]
    # Each plan has its own workspace. PyTorch keeps freed memory for the next one.
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    wrapper = BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")  # the order in our blocks
    wrapper.plan(
        qo_indptr=metadata.cu_seqlens_q,
        paged_kv_indptr=cumulative_lengths(num_blocks.tolist()).to(q.device),
        paged_kv_indices=metadata.block_table[used],  # the ids of all blocks in one row
        paged_kv_last_page_len=(metadata.seq_lens_kv - 1) % block_size + 1,
        num_qo_heads=q.shape[1],
        num_kv_heads=num_kv_heads,
        head_dim_qk=head_size,
        page_size=block_size,
        causal=True,
        q_data_type=q.dtype,
        kv_data_type=k_cache.dtype,
    )
    return lambda q, k_cache, v_cache: wrapper.run(q, (k_cache, v_cache))


def plan_flash_attn_decodes(metadata: BatchMetadata):
    """Plans a batch of decodes with flash_attn. Returns attend(q, k_cache, v_cache)."""
    from flash_attn import flash_attn_with_kvcache

    def attend(q, k_cache, v_cache):
        o = flash_attn_with_kvcache(
            q[:, None],  # (num_seqs, 1, num_q_heads, head_size)
            k_cache,
            v_cache,
            cache_seqlens=metadata.seq_lens_kv,
            # If it looks past a sequence's blocks, it still finds a block.
            block_table=metadata.block_table.clamp(min=0),
            causal=True,
        )
        return o[:, 0]

    return attend


def plan_flash_attn(metadata: BatchMetadata, q: Tensor, k_cache: Tensor) -> Attend:
    """Plans a batch with flash_attn. It reads the block table itself."""
    from flash_attn import flash_attn_varlen_func

    if len(q) == len(metadata.seq_lens_kv):
        return plan_flash_attn_decodes(metadata)
    kv_lens = metadata.seq_lens_kv.tolist()
    arguments = dict(
        cu_seqlens_q=metadata.cu_seqlens_q,
        cu_seqlens_k=cumulative_lengths(kv_lens).to(q.device),
        max_seqlen_q=int(metadata.cu_seqlens_q.diff().max()),
        max_seqlen_k=max(kv_lens),
        causal=True,
        block_table=metadata.block_table.clamp(min=0),
    )
    return lambda q, k_cache, v_cache: flash_attn_varlen_func(q, k_cache, v_cache, **arguments)


def plan_varlen_attn(metadata: BatchMetadata, q: Tensor, k_cache: Tensor) -> Attend:
    """Plans a batch with PyTorch's varlen_attn.

    num_splits=1 because long sequences, when split, leave rows unwritten
    (github.com/pytorch/pytorch/issues/194167).
    """
    from torch.nn.attention.varlen import varlen_attn

    kv_lens = metadata.seq_lens_kv.tolist()
    arguments = dict(
        cu_seq_q=metadata.cu_seqlens_q,
        cu_seq_k=cumulative_lengths(kv_lens).to(q.device),
        max_q=int(metadata.cu_seqlens_q.diff().max()),
        max_k=max(kv_lens),
        seqused_k=metadata.seq_lens_kv,
        block_table=metadata.block_table.clamp(min=0),
        window_size=(-1, 0),
        enable_gqa=True,
        num_splits=1,
    )
    # It gives a tuple only where `return_aux` asks for one.
    return lambda q, k_cache, v_cache: cast(
        Tensor, varlen_attn(q, k_cache, v_cache, **arguments)
    )


@dataclass(frozen=True)
class Way:
    """A library's paged attention.

    missing: says what this machine lacks for it, or None.
    plan: gives a step's `attend`.
    fits: says whether it takes a head size.
    head_sizes: the head sizes that it takes, in words.
    block_sizes: it takes block sizes that are multiples of this one.
    """

    missing: Callable[[], str | None]
    plan: Callable[[BatchMetadata, Tensor, Tensor], Attend]
    fits: Callable[[int], bool]
    head_sizes: str
    block_sizes: int = 1


def missing_package(module: str, distribution: str) -> Callable[[], str | None]:
    return lambda: (
        None if find_spec(module) else f"the package {distribution}, which is not installed"
    )


def missing_varlen_attn() -> str | None:
    try:
        # Here, because it takes a second to import and most runs do not need it.
        from torch.nn.attention.varlen import varlen_attn

        takes_blocks = "block_table" in inspect.signature(varlen_attn).parameters
    except ImportError:
        takes_blocks = False
    if takes_blocks:
        return None
    return f"a PyTorch whose varlen_attn takes a block_table; this one is {torch.__version__}"


def of_eights(head_size: int) -> bool:
    return head_size % 8 == 0 and head_size <= 256


WAYS = {
    "flashinfer": Way(
        missing_package("flashinfer", "flashinfer-python"),
        plan_flashinfer,
        (64, 128, 256).__contains__,
        "64, 128 or 256",
    ),
    "flash_attn": Way(
        missing_package("flash_attn", "flash-attn"),
        plan_flash_attn,
        of_eights,
        "a multiple of 8 up to 256",
        block_sizes=256,
    ),
    "varlen_attn": Way(
        missing_varlen_attn,
        plan_varlen_attn,
        of_eights,
        "a multiple of 8 up to 256",
        block_sizes=256,
    ),
}


def fused_needs(way: str = "flashinfer") -> str | None:
    """Says what this machine lacks for attn_paged_fused(), or None.

    Raises ValueError for an unknown way.
    """
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(WAYS)}, not {way!r}")
    if not torch.cuda.is_available():
        return "a CUDA GPU"
    if torch.cuda.get_device_capability() < (8, 0):
        return "a GPU of compute capability 8.0 or more"
    return WAYS[way].missing()


class FusedAttention:
    """Runs a batch's paged attention in all layers. The first layer's call plans it.

    Raises RuntimeError naming what the machine lacks.
    Raises ValueError for an unknown way.

    A call raises what attn_paged_fused() raises. It also raises ValueError for tensors unlike
    those of the first call.
    """

    def __init__(self, metadata: BatchMetadata, way: str = "flashinfer"):
        if needs := fused_needs(way):
            raise RuntimeError(f"attn_paged_fused by {way} needs {needs}")
        self.metadata, self.way = metadata, way
        self.attend: Attend | None = None
        self.planned_for: list[tuple] = []

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        given = [
            (tuple(tensor.shape), tensor.dtype, tensor.device)
            for tensor in (q, k_cache, v_cache)
        ]
        # a library may launch on the current GPU; for a tensor on the CPU this does nothing
        with torch.cuda.device_of(q):
            if self.attend is None:
                check_fused(q, k_cache, v_cache, self.metadata, self.way)
                self.attend = WAYS[self.way].plan(self.metadata, q, k_cache)
                self.planned_for = given
            elif given != self.planned_for:
                raise ValueError(
                    "this batch was planned for q, "
                    f"k_cache and v_cache of {self.planned_for}, not of {given}"
                )
            return self.attend(q.contiguous(), k_cache, v_cache)


def attn_paged_fused(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    metadata: BatchMetadata,
    way: str = "flashinfer",
) -> Tensor:
    """Computes what attn_paged_torch() computes, without copying the keys and values.

    The whole batch is one call. All tensors are on one GPU; q and the caches are float16 or
    bfloat16.

    way: "flashinfer" (head_size 64, 128 or 256; any block_size), "flash_attn" or "varlen_attn"
        (block_size 256 or a multiple of it).
    Raises RuntimeError naming what this machine lacks.
    Raises TypeError or ValueError naming the argument that does not fit.
    """
    return FusedAttention(metadata, way)(q, k_cache, v_cache)


def check_fused(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, metadata: BatchMetadata, way: str
) -> None:
    """Checks the arguments for a way, which takes less than attn_paged_torch() does."""
    check_paged_attention(q, k_cache, v_cache, metadata)
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"q must be torch.float16 or torch.bfloat16 for {way}, not {q.dtype}")
    block_size, head_size = k_cache.shape[1], k_cache.shape[3]
    if not WAYS[way].fits(head_size):
        raise ValueError(
            f"head_size, q's last dimension, must be {WAYS[way].head_sizes} for {way}, "
            f"not {head_size}"
        )
    if block_size % WAYS[way].block_sizes:
        raise ValueError(
            f"block_size must be a multiple of {WAYS[way].block_sizes} for {way}, "
            f"not {block_size}"
        )
    if q.device.type != DEVICE:
        raise ValueError(f"q must be on a GPU for {way}, not on {q.device}")
    check_devices(
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        cu_seqlens_q=metadata.cu_seqlens_q,
        seq_lens_kv=metadata.seq_lens_kv,
        block_table=metadata.block_table,
    )
    for name, tensor in (
        ("k_cache", k_cache),
        ("v_cache", v_cache),
        ("cu_seqlens_q", metadata.cu_seqlens_q),
        ("seq_lens_kv", metadata.seq_lens_kv),
        ("block_table", metadata.block_table),
    ):
        check_contiguous(name, tensor)
