"""The paths that attention can take from a batch's metadata to its output.

All give the same numbers. A path plans once a step: `attend = path(metadata)`. Then every
layer calls `attend(q, k_cache, v_cache)`.

q: (num_tokens, num_q_heads, head_size).
k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
Returns the shape of q.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lessons_lib.cuda.library import CudaLibrary
from paged_attention.attention.decode import block_attention, combine_segments, dispatch
from paged_attention.attention.fused import Attend, FusedAttention, fused_needs
from paged_attention.attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
    each_query,
    visible_keys,
)
from paged_attention.attention.paged_kernel import attn_paged_cuda
from paged_attention.engine.cpu.attention import in_place
from paged_attention.ladder.decode import PagedDecode, Shape, check_card, check_shape
from paged_attention.prefill.kernels import PagedPrefill
from paged_attention.prefill.rungs import best_prefill_rung

FAST_RUNG = 7  # of lesson 07's ladder: the last one for caches of the model's dtype


def gather(metadata: BatchMetadata) -> Attend:
    """Attends with PyTorch's attention to one sequence after another.

    Each sequence's blocks are copied into a contiguous tensor first.
    """
    starts = metadata.cu_seqlens_q.tolist()
    kv_lens = metadata.seq_lens_kv.tolist()

    def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        return torch.cat(
            [
                attend_one(
                    q[starts[s] : starts[s + 1]],
                    metadata.block_table[s],
                    kv_len,
                    k_cache,
                    v_cache,
                )
                for s, kv_len in enumerate(kv_lens)
            ]
        )

    return attend


def attend_one(
    q: Tensor, table_row: Tensor, kv_len: int, k_cache: Tensor, v_cache: Tensor
) -> Tensor:
    """Computes attention of one sequence's last tokens.

    q: (q_len, num_q_heads, head_size).
    table_row: the sequence's row of the block table.
    kv_len: the sequence's number of keys.
    """
    block_ids = table_row[: -(-kv_len // k_cache.shape[1])]
    k, v = (
        cache.index_select(0, block_ids).flatten(0, 1)[:kv_len].transpose(0, 1)
        for cache in (k_cache, v_cache)
    )
    whole = len(q) == kv_len
    with q.device:  # the mask is made where it is used
        visible = None if whole else visible_keys(len(q), kv_len)
    return scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k[None],
        v[None],
        attn_mask=visible,
        is_causal=whole,
        enable_gqa=True,
    )[0].transpose(0, 1)


def paged_torch(metadata: BatchMetadata, attn_paged_torch=attn_paged_torch) -> Attend:
    """Lesson 05's attention through the block table."""
    return lambda q, k_cache, v_cache: attn_paged_torch(q, k_cache, v_cache, metadata)


def blockwise(
    metadata: BatchMetadata,
    dispatch=dispatch,
    block_attention=block_attention,
    combine_segments=combine_segments,
) -> Attend:
    """Lesson 04's attention: each block gives (o, m, l), and a query's parts are combined."""
    block_table, context_lens = each_query(metadata)

    def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        block_size = k_cache.shape[1]
        num_blocks = (context_lens.long() + block_size - 1) // block_size  # (num_tokens,)
        index = torch.arange(block_table.shape[1], device=q.device)
        used = index < num_blocks[:, None]  # (num_tokens, max_blocks_per_seq)
        num_valid = (context_lens[:, None] - index * block_size).clamp(max=block_size)[used]
        block_ids = block_table[used]
        parts = block_attention(
            dispatch(q, num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid
        )
        return combine_segments(*parts, num_blocks)[0].to(q.dtype)

    return attend


def kernel(metadata: BatchMetadata, library: CudaLibrary | None = None) -> Attend:
    """Lesson 06's CUDA kernel. Without a GPU, the same text runs on the CPU.

    library: as for attn_paged_cuda.
    """
    block_table, context_lens = each_query(metadata)
    return lambda q, k_cache, v_cache: attn_paged_cuda(
        q.contiguous(), k_cache, v_cache, block_table, context_lens, library
    )


def batched(metadata: BatchMetadata) -> Attend:
    """Computes all single new tokens in a few calls of PyTorch's attention.

    Sequences of similar length go together. Chunks go one by one.
    """
    # A group reaches from one power of two to the next, so no context is padded to twice its
    # length.
    return split(metadata, Padded, gather, group_of=lambda kv_len: (kv_len - 1).bit_length())


def fast(metadata: BatchMetadata, target: str | None = None) -> Attend:
    """Computes a batch in two calls of the course's last kernels. For a GPU.

    All single new tokens go through the last rung of lesson 07's ladder, and all chunks
    through the last rung of the prefill ladder.

    target: as for PagedDecode and PagedPrefill.
    """
    return split(
        metadata,
        partial(FastDecode, target=target),
        partial(FastPrefill, target=target),
        group_of=lambda kv_len: 0,
    )


def split(
    metadata: BatchMetadata,
    singles: Callable[[BatchMetadata], Attend],
    chunks: Callable[[BatchMetadata], Attend],
    group_of: Callable[[int], int],
) -> Attend:
    """Sends sequences with one new token to one path, and the others to another.

    singles, chunks: the two paths.
    group_of: gives the group for a number of keys. Of the sequences with one new token, a
        group is planned together.
    """
    starts = metadata.cu_seqlens_q.tolist()
    groups: dict[int | None, list[int]] = {}  # None: the chunks
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        is_chunk = starts[s + 1] - starts[s] > 1
        groups.setdefault(None if is_chunk else group_of(kv_len), []).append(s)
    if len(groups) == 1:
        return (chunks if None in groups else singles)(metadata)
    # rows of q, and their attention
    parts: list[tuple[slice | Tensor, Attend]] = []
    for group, seqs in groups.items():
        rows, part = part_of(metadata, seqs, starts)
        parts.append((rows, (chunks if group is None else singles)(part)))

    def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        o = torch.empty_like(q)
        for rows, attend_rows in parts:
            o[rows] = attend_rows(q[rows], k_cache, v_cache)
        return o

    return attend


def part_of(
    metadata: BatchMetadata, seqs: list[int], starts: list[int]
) -> tuple[slice | Tensor, BatchMetadata]:
    """Returns the rows of some sequences in q, and the metadata of a batch of only these.

    seqs: the sequences, ascending.
    starts: cu_seqlens_q on the host.
    """
    device = metadata.block_table.device
    rows: slice | Tensor
    if seqs[-1] - seqs[0] < len(seqs):  # no others between them: a view will do
        rows = slice(starts[seqs[0]], starts[seqs[-1] + 1])
    else:
        each = [row for s in seqs for row in range(starts[s], starts[s + 1])]
        rows = torch.tensor(each, device=device)
    lengths = cumulative_lengths([starts[s + 1] - starts[s] for s in seqs])
    return rows, BatchMetadata(
        cu_seqlens_q=lengths.to(device),
        seq_lens_kv=metadata.seq_lens_kv[seqs],
        block_table=metadata.block_table[seqs],
        slot_mapping=metadata.slot_mapping[rows],
    )


class Padded:
    """Attention of single queries over contexts that are gathered and padded to the longest.

    The padding is whatever the pool holds there. In the copy it becomes 0. A mask alone is not
    enough: it is added to the scores, and NaN - inf is NaN. A weight of 0 times an infinite
    value is NaN too.
    """

    def __init__(self, metadata: BatchMetadata):
        self.kv_lens, self.block_table = metadata.seq_lens_kv, metadata.block_table
        self.visible: Tensor | None = None

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        num_seqs, num_q_heads, head_size = q.shape
        _, block_size, num_kv_heads, _ = k_cache.shape
        if self.visible is None:  # the same in all layers
            num_blocks = -(-int(self.kv_lens.max()) // block_size)
            # Where there is no block, any will do: its slots are hidden.
            self.block_ids = self.block_table[:, :num_blocks].clamp(min=0).flatten()
            self.visible = (
                torch.arange(num_blocks * block_size, device=q.device)
                < self.kv_lens[:, None, None, None]
            )
            # (num_hidden,): slots of the copy
            self.hidden = (~self.visible).flatten().nonzero().flatten()
        # Query heads that share a KV head are the queries of one small attention, as in lesson
        # 07.
        q = q.reshape(num_seqs, num_kv_heads, num_q_heads // num_kv_heads, head_size)
        k, v = (
            self.gather(cache).view(num_seqs, -1, num_kv_heads, head_size).transpose(1, 2)
            for cache in (k_cache, v_cache)
        )
        return scaled_dot_product_attention(q, k, v, attn_mask=self.visible).reshape(
            num_seqs, num_q_heads, head_size
        )

    def gather(self, cache: Tensor) -> Tensor:
        """Copies the blocks, slot after slot, with 0 in the hidden slots."""
        # several times as fast as cache[block_ids]
        slots = cache.index_select(0, self.block_ids).flatten(0, 1)
        return slots.index_fill_(0, self.hidden, 0.0)


def sizes_of(q: Tensor, k_cache: Tensor) -> dict[str, Any]:
    """The sizes that both ladders are planned for."""
    _, block_size, num_kv_heads, head_size = k_cache.shape
    return dict(
        num_q_heads=q.shape[1],
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
    )


class FastDecode:
    """Attention of single queries with the ladder's last rung, planned once for all layers."""

    def __init__(self, metadata: BatchMetadata, target: str | None = None):
        self.metadata, self.target = metadata, target
        self.decode: PagedDecode | None = None

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        if self.decode is None:
            self.decode = PagedDecode(
                FAST_RUNG,
                self.metadata.seq_lens_kv,
                **sizes_of(q, k_cache),
                dtype=q.dtype,
                target=self.target,
            )
        return self.decode(q.contiguous(), k_cache, v_cache, self.metadata.block_table)


class FastPrefill:
    """Attention of chunks with the prefill ladder's best rung, planned once for all layers.

    What the ladder is not made for goes through `gather`: numbers of 32 bits, and block sizes
    and heads of other shapes. So does one long prompt on a Hopper card.
    """

    def __init__(self, metadata: BatchMetadata, target: str | None = None):
        self.metadata, self.target = metadata, target
        self.attend: Attend | None = None

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        if self.attend is None:
            self.attend = self.plan(q, k_cache)
        return self.attend(q, k_cache, v_cache)

    def plan(self, q: Tensor, k_cache: Tensor) -> Attend:
        _, block_size, num_kv_heads, head_size = k_cache.shape
        shape = Shape(q.dtype, head_size, q.shape[1] // num_kv_heads, block_size)
        try:
            number = best_prefill_rung(shape, self.target or _place(q.device))
        except (TypeError, ValueError):
            return gather(self.metadata)
        if is_hopper(q.device) and is_one_long_prompt(self.metadata):
            return gather(self.metadata)
        prefill = PagedPrefill(
            number,
            self.metadata.cu_seqlens_q,
            self.metadata.seq_lens_kv,
            **sizes_of(q, k_cache),
            dtype=q.dtype,
            target=self.target,
        )
        table = self.metadata.block_table
        return lambda q, k_cache, v_cache: prefill(q.contiguous(), k_cache, v_cache, table)


LONG_PROMPT = 16384


def _place(device: torch.device) -> str:
    return "gpu" if device.type == "cuda" else "fast"


def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


def is_one_long_prompt(metadata: BatchMetadata) -> bool:
    """Whether PyTorch computes this batch faster on a Hopper card, with cuDNN's attention.

    It knows no block table and takes one prompt after another, so only a single long prompt is
    faster there. On an H200, in bfloat16 with 32 query heads, a prompt of 8,192 tokens takes
    0.90 ms there and 0.92 ms by rung 5, one of 16,384 3.47 and 3.54, and one of 30,000 11.9
    and 13.3. Its keys have to be gathered before, which was not counted here.
    """
    if len(metadata.seq_lens_kv) != 1:
        return False
    num_keys = int(metadata.seq_lens_kv[0])
    return num_keys >= LONG_PROMPT and metadata.cu_seqlens_q.tolist() == [0, num_keys]


def fused(metadata: BatchMetadata) -> Attend:
    """Computes the whole batch in one call of FlashInfer. For a GPU."""
    return FusedAttention(metadata)


PATHS: dict[str, Callable[..., Attend]] = {
    "gather": gather,
    "paged_torch": paged_torch,
    "blockwise": blockwise,
    "kernel": kernel,
    "batched": batched,
    "in_place": in_place,
    "fast": fast,
    "fused": fused,
}
CPU_ONLY = frozenset({"in_place"})
NEEDS = {"fused": fused_needs}  # some machines cannot take these: what this one lacks, or None


def choose_path(shape: Shape, device: torch.device) -> str:
    """Chooses the engine's path: "fast" or "batched".

    "fast" is for a GPU that can compile and run lesson 07's last kernel, and a shape that this
    kernel is made for. Everything else gets "batched", with a warning where a shape would fit
    and the GPU cannot. Chunks do not count: path "fast" has a way for each shape.
    """
    if device.type != "cuda":
        return "batched"
    try:
        check_shape(FAST_RUNG, shape)
    except (TypeError, ValueError):
        return "batched"
    try:
        check_card(FAST_RUNG, "gpu")
    except (ValueError, RuntimeError) as error:
        warnings.warn(f'The engine takes the path "batched": {error}', stacklevel=3)
        return "batched"
    return "fast"


def find_path(name: str) -> Callable[..., Attend]:
    """Returns the path with that name.

    Raises ValueError for an unknown name.
    Raises RuntimeError for a path that this machine cannot take.
    """
    if name not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)}, not {name!r}")
    if name in NEEDS and (needs := NEEDS[name]()):
        raise RuntimeError(f"path {name!r} needs {needs}")
    return PATHS[name]
