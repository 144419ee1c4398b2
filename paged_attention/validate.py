"""Checks of arguments, before anything changes.

An error names what does not fit, what was expected and what was given.
"""

import math
import operator

import torch
from torch import Tensor


def as_integer(name: str, value) -> int:
    """Returns the value as an int. Raises TypeError for anything else, even for a float."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, not {type(value).__name__}: {value!r}"
        ) from None


def check_positive(**sizes: int) -> None:
    """Raises ValueError naming the first size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, not {size}")


def check_tensor(
    name: str, tensor: Tensor, shape: tuple, dtype: torch.dtype | None = None
) -> None:
    """Checks the type, shape and dtype of a tensor.

    shape: the sizes; a string fits any size.
    Raises TypeError for the wrong type or dtype.
    Raises ValueError for the wrong shape.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    fits = tensor.dim() == len(shape) and all(
        isinstance(size, str) or size == actual
        for size, actual in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        expected = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        raise ValueError(f"{name} must have the shape {expected}, not {tuple(tensor.shape)}")
    if dtype is not None and tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")


def check_caches(k_cache: Tensor, v_cache: Tensor) -> None:
    """Checks that both caches have the same dtype, and the same shape.

    The shape is (num_blocks, block_size, num_kv_heads, head_size).
    """
    check_tensor("k_cache", k_cache, ("num_blocks", "block_size", "num_kv_heads", "head_size"))
    check_tensor("v_cache", v_cache, tuple(k_cache.shape), k_cache.dtype)


def check_range(name: str, values: Tensor, low: int, high: int, what: str) -> None:
    """Raises ValueError naming the first of `values` that is not in low … high - 1."""
    outside = ((values < low) | (values >= high)).flatten()
    if outside.any():
        index = int(outside.nonzero()[0])
        raise ValueError(
            f"{name} holds {values.flatten()[index]} (entry {index}); {what} are {low} "
            f"to {high - 1}"
        )


def check_write(k_cache: Tensor, v_cache: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Checks the arguments of `write_kv`."""
    check_caches(k_cache, v_cache)
    check_tensor("slots", slots, ("num_tokens",), torch.int64)
    check_tensor("k", k, (len(slots), *k_cache.shape[2:]), k_cache.dtype)
    check_tensor("v", v, (len(slots), *k_cache.shape[2:]), k_cache.dtype)
    check_range(
        "slots", slots, 0, k_cache.shape[0] * k_cache.shape[1], "the slots of this pool"
    )
    if len(slots.unique()) != len(slots):
        twice = next(slot for slot in slots.tolist() if (slots == slot).sum() > 1)
        raise ValueError(
            f"slots holds {twice} more than once; one token would overwrite another"
        )


def check_seq_ids(seq_ids: list[int]) -> None:
    """Checks that there is at least one sequence, and that none is named twice."""
    if len(seq_ids) == 0:
        raise ValueError("the batch is empty; it must hold at least one sequence")
    twice = [seq_id for index, seq_id in enumerate(seq_ids) if seq_id in seq_ids[:index]]
    if twice:
        raise ValueError(f"sequence {twice[0]} is named more than once in the batch")


def check_layer(layer, manager) -> None:
    """Checks that the layer has the pool's heads, and that the pool has a part for it."""
    num_layers, _, _, _, num_kv_heads, head_size = manager.kv_cache.shape
    if (layer.num_kv_heads, layer.head_size) != (num_kv_heads, head_size):
        raise ValueError(
            f"layer must have the pool's {num_kv_heads} KV heads of size {head_size}, "
            f"not {layer.num_kv_heads} of size {layer.head_size}"
        )
    if not 0 <= layer.index < num_layers:
        raise ValueError(
            f"layer.index must be one of the pool's layers, 0 to {num_layers - 1}, "
            f"not {layer.index}"
        )


def check_prefill(
    layer, x: Tensor, request_num_blocks: list[int], seq_ids: list[int], manager
) -> None:
    """Checks the arguments of `forward_prefill`."""
    check_seq_ids(seq_ids)
    check_layer(layer, manager)
    if len(request_num_blocks) != len(seq_ids):
        raise ValueError(
            "request_num_blocks must have an entry "
            f"for each of the {len(seq_ids)} sequences, not {len(request_num_blocks)} entries"
        )
    for seq_id, num_blocks in zip(seq_ids, request_num_blocks, strict=True):
        length = manager.get(seq_id).length
        if num_blocks != manager.blocks_for(length):
            raise ValueError(
                f"request_num_blocks gives sequence {seq_id} {num_blocks} blocks, "
                f"and its {length} tokens fill {manager.blocks_for(length)}"
            )
    check_tensor(
        "x",
        x,
        (sum(request_num_blocks), manager.block_size, layer.wq.shape[1]),
        manager.kv_cache.dtype,
    )


def check_decoding(layer, x: Tensor, seq_ids: list[int], manager) -> None:
    """Checks the arguments of `forward_decoding`."""
    check_seq_ids(seq_ids)
    check_layer(layer, manager)
    check_tensor("x", x, (len(seq_ids), layer.wq.shape[1]), manager.kv_cache.dtype)
    for seq_id in seq_ids:
        if manager.get(seq_id).length == 0:
            raise ValueError(
                f"sequence {seq_id} has no token; append its new token before you decode it"
            )


def check_scheduled(scheduled: list[tuple[int, int]], manager=None) -> None:
    """Checks a batch of (seq_id, num_tokens) pairs.

    With a manager, it also checks that the sequences have at least that many tokens.
    """
    check_seq_ids([seq_id for seq_id, _ in scheduled])
    for seq_id, num_tokens in scheduled:
        if operator.index(num_tokens) < 1:
            raise ValueError(
                f"sequence {seq_id} is scheduled with {num_tokens} tokens; "
                "it must be 1 or more"
            )
        if manager is not None and num_tokens > manager.get(seq_id).length:
            raise ValueError(
                f"sequence {seq_id} is scheduled with {num_tokens} tokens, "
                f"and it has {manager.get(seq_id).length}; make room for them first"
            )


def check_paged_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, metadata) -> None:
    """Checks the arguments of a paged kernel.

    It reads the metadata's values, so on a GPU it waits for them.
    """
    check_caches(k_cache, v_cache)
    num_blocks, block_size, num_kv_heads, head_size = k_cache.shape
    check_tensor("q", q, ("num_tokens", "num_q_heads", head_size), k_cache.dtype)
    if q.shape[1] == 0 or q.shape[1] % num_kv_heads:
        raise ValueError(
            f"q must have a multiple of the cache's {num_kv_heads} KV heads, "
            f"not {q.shape[1]} heads"
        )
    check_tensor("seq_lens_kv", metadata.seq_lens_kv, ("num_seqs",), torch.int32)
    num_seqs = len(metadata.seq_lens_kv)
    if num_seqs == 0:
        raise ValueError("seq_lens_kv is empty; a batch holds at least one sequence")
    check_tensor("cu_seqlens_q", metadata.cu_seqlens_q, (num_seqs + 1,), torch.int32)
    check_tensor(
        "block_table", metadata.block_table, (num_seqs, "max_blocks_per_seq"), torch.int32
    )
    starts = metadata.cu_seqlens_q.tolist()
    kv_lens = metadata.seq_lens_kv.tolist()
    if starts[0] != 0 or starts[-1] != len(q):
        raise ValueError(
            f"cu_seqlens_q must run from 0 to the {len(q)} tokens of q, "
            f"not from {starts[0]} to {starts[-1]}"
        )
    for s, kv_len in enumerate(kv_lens):
        q_len, num_needed = starts[s + 1] - starts[s], -(-kv_len // block_size)
        if q_len < 1:
            raise ValueError(
                f"cu_seqlens_q gives sequence {s} {q_len} queries; it must be 1 or more"
            )
        if kv_len < q_len:
            raise ValueError(
                f"seq_lens_kv gives sequence {s} {kv_len} keys, fewer than its {q_len} queries"
            )
        if num_needed > metadata.block_table.shape[1]:
            raise ValueError(
                f"seq_lens_kv gives sequence {s} {kv_len} keys, "
                f"which need {num_needed} blocks, "
                f"and block_table has {metadata.block_table.shape[1]} entries in a row"
            )
        check_range(
            f"block_table, row {s},",
            metadata.block_table[s, :num_needed],
            0,
            num_blocks,
            "the blocks of this pool",
        )


def check_contiguous(name: str, tensor: Tensor) -> None:
    """Raises ValueError for a tensor that is not contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous, and its strides are {tensor.stride()} "
            f"for the shape {tuple(tensor.shape)}; {name}.contiguous() makes a copy that is"
        )


def check_launch(
    block_size: int,
    longest: int,
    *,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    out: Tensor,
    **others: Tensor,
) -> None:
    """Checks what every launch of a paged kernel needs, once the shapes are right.

    longest: tokens of the longest context.
    others: further tensors, on the same device.
    Raises ValueError naming the argument.
    """
    rows = math.prod(k_cache.shape[:3])
    if rows >= MOST_CACHE_ROWS:
        raise ValueError(
            f"k_cache has {rows} rows of head_size numbers, "
            f"and the kernels take less than {MOST_CACHE_ROWS}"
        )
    entries = block_table.shape[1]
    if entries * block_size < longest:
        raise ValueError(
            f"block_table has {entries} entries in a row, and the longest context "
            f"of {longest} tokens needs {-(-longest // block_size)}"
        )
    tensors = dict(k_cache=k_cache, v_cache=v_cache, block_table=block_table, out=out)
    check_devices(**others, q=q, **tensors)
    for name, tensor in tensors.items():
        check_contiguous(name, tensor)
    if len(q) and not q[0].is_contiguous():
        raise ValueError(
            "q must hold the heads of each row one after the other, "
            f"and its strides are {q.stride()} for the shape {tuple(q.shape)}; "
            "q.contiguous() makes a copy that does"
        )


def check_chunks(**tensors: Tensor) -> None:
    """Raises ValueError for a tensor whose rows cannot be loaded in chunks of 16 bytes."""
    for name, tensor in tensors.items():
        if tensor.data_ptr() % 16 or tensor.stride(0) * tensor.element_size() % 16:
            raise ValueError(
                f"{name} must begin, with each of its rows, at a multiple of 16 bytes; "
                "a clone does"
            )


def signature_of(tensor: Tensor | None) -> tuple | type:
    """What must be the same for a check to hold for another tensor, except its address."""
    if not isinstance(tensor, Tensor):
        return type(tensor)
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def check_devices(**tensors: Tensor) -> None:
    """Raises ValueError naming the first tensor that is not on the first one's device."""
    (first, expected), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != expected.device:
            raise ValueError(
                f"{name} must be on {first}'s device, {expected.device}, "
                f"not on {tensor.device}"
            )


def check_block_table(
    block_table: Tensor, context_lens: Tensor, num_blocks: int, block_size: int
) -> None:
    """Refuses a block table through which a kernel would read outside the pool.

    The pool has num_blocks blocks of block_size tokens, with ids from 0. Entries that a
    context does not need are not looked at.

    block_table: int32 (num_seqs, max_blocks_per_seq).
    context_lens: int32 (num_seqs,), the tokens of each sequence.
    Raises ValueError naming context_lens if a context is negative.
    Raises ValueError naming context_lens if a context needs more blocks than a row has
        entries.
    Raises ValueError naming block_table if an entry that a context needs is no block of the
        pool.
    """
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor(
        "block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32
    )
    # BEGIN SOLUTION 6.7
    for seq, context_len in enumerate(context_lens.tolist()):
        num_needed = -(-context_len // block_size)
        if context_len < 0:
            raise ValueError(
                f"context_lens holds {context_len} for sequence {seq}; "
                "a context has 0 tokens or more"
            )
        if num_needed > block_table.shape[1]:
            raise ValueError(
                f"context_lens gives sequence {seq} {context_len} tokens, "
                f"which need {num_needed} blocks, "
                f"and block_table has {block_table.shape[1]} entries in a row"
            )
        needed = block_table[seq, :num_needed]
        check_range(
            f"block_table, row {seq},", needed, 0, num_blocks, "the blocks of this pool"
        )
    # END SOLUTION


def table_fits(
    block_table: Tensor, context_lens: Tensor, num_blocks: int, block_size: int
) -> bool:
    """Whether `check_block_table` would refuse nothing.

    It looks at all sequences at once, so that a GPU is waited for only once.

    The arguments are those of `check_block_table`, with the right shapes and dtypes.
    """
    lens = context_lens.long()[:, None]
    num_tokens = block_table.shape[1] * block_size
    first_tokens = torch.arange(0, num_tokens, block_size, device=block_table.device)
    is_right = (block_table >= 0) & (block_table.long() < num_blocks) | (first_tokens >= lens)
    return bool(is_right.all() & ((lens >= 0) & (lens <= num_tokens)).all())


# A dtype's place here is its number in the kernel.
MOST_CACHE_ROWS = 2**31  # the kernels count them in 32 bits
KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGEST_HEAD_SIZE = 256


def check_paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    kv_dtype: torch.dtype | None = None,
) -> None:
    """Checks the arguments of `attn_paged_cuda`.

    It reads the table and the lengths, so on a GPU it waits for them.

    kv_dtype: of the caches; None means q's.
    """
    check_decode_tensors(q, k_cache, v_cache, block_table, context_lens, kv_dtype)
    num_blocks, block_size, _, _ = k_cache.shape
    if not table_fits(block_table, context_lens, num_blocks, block_size):
        check_block_table(block_table, context_lens, num_blocks, block_size)  # names the entry


def check_decode_tensors(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    kv_dtype: torch.dtype | None = None,
) -> None:
    """Checks everything but what the table and the lengths hold. It waits for nothing.

    The arguments are those of `check_paged_decode`.
    """
    check_tensor("q", q, ("num_seqs", "num_q_heads", "head_size"))
    if q.dtype not in KERNEL_DTYPES:
        raise TypeError(
            f"q must be torch.float32, torch.float16 or torch.bfloat16, not {q.dtype}"
        )
    num_seqs, num_q_heads, head_size = q.shape
    check_tensor(
        "k_cache",
        k_cache,
        ("num_blocks", "block_size", "num_kv_heads", head_size),
        kv_dtype or q.dtype,
    )
    check_tensor("v_cache", v_cache, tuple(k_cache.shape), k_cache.dtype)
    _, block_size, num_kv_heads, _ = k_cache.shape
    if num_seqs == 0:
        raise ValueError("q is empty; a batch holds at least one sequence")
    if not 1 <= head_size <= LARGEST_HEAD_SIZE:
        raise ValueError(
            f"head_size, q's last dimension, must be 1 to {LARGEST_HEAD_SIZE}, not {head_size}"
        )
    if block_size == 0 or num_kv_heads == 0:
        raise ValueError(
            "k_cache must have a slot in each block and a KV head, "
            f"not the shape {tuple(k_cache.shape)}"
        )
    if num_q_heads == 0 or num_q_heads % num_kv_heads:
        raise ValueError(
            f"q must have a multiple of the cache's {num_kv_heads} KV heads, "
            f"not {num_q_heads} heads"
        )
    check_tensor("context_lens", context_lens, (num_seqs,), torch.int32)
    check_tensor("block_table", block_table, (num_seqs, "max_blocks_per_seq"), torch.int32)
    check_devices(
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_table=block_table,
        context_lens=context_lens,
    )
    if not q[0].is_contiguous():
        raise ValueError(
            "q must hold each sequence's heads one after the other, "
            f"and its strides are {q.stride()} for the shape {tuple(q.shape)}; "
            "q.contiguous() makes a copy that does"
        )
    for name, tensor in (
        ("k_cache", k_cache),
        ("v_cache", v_cache),
        ("block_table", block_table),
        ("context_lens", context_lens),
    ):
        check_contiguous(name, tensor)
