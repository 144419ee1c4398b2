"""Exercise 5.5: paged attention for any batch, in PyTorch."""

import math
import random
from dataclasses import replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons_exercises import tensors
from lessons_exercises.mistakes import Bank
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Text
from paged_attention.attention import share_heads
from paged_attention.block_table import NO_BLOCK
from paged_attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
    visible_keys,
)
from paged_attention.softmax_state import NO_KEY
from paged_attention.validate import check_paged_attention

POISON = 1e4  # in every slot that holds no token
USUAL, NAN, LARGE, INT64, DOUBLE = "usual", "nan", "large", "int64", "double"  # kinds of cases


def in_double(q, k_cache, v_cache, metadata):
    o = attn_paged_torch(q.double(), k_cache.double(), v_cache.double(), metadata)
    return o.to(q.dtype)


# (seed, block size, query heads, KV heads, head size, the sequences: queries and keys of
# each), then the kind
CASES = [
    (*case, USUAL)
    for case in (
        (1, 4, 1, 1, 2, [(1, 1)]),
        (2, 4, 1, 1, 2, [(2, 2)]),
        (3, 4, 1, 1, 2, [(1, 3)]),
        (4, 4, 1, 1, 4, [(2, 4)]),
        (5, 4, 1, 1, 4, [(1, 5)]),
        (6, 4, 2, 2, 4, [(3, 3)]),
        (7, 4, 6, 2, 4, [(1, 6)]),
        (8, 4, 6, 2, 4, [(3, 7)]),
        (9, 4, 2, 1, 8, [(1, 4), (1, 9)]),
        (10, 4, 6, 2, 8, [(1, 11), (4, 4), (3, 8)]),
        (11, 1, 3, 3, 8, [(2, 5), (1, 3)]),
        (12, 16, 7, 1, 4, [(17, 17), (1, 32), (1, 16), (15, 33)]),
        (13, 16, 6, 2, 8, [(1, 1), (16, 48), (5, 5)]),
    )
] + [
    (14, 4, 2, 1, 4, [(1, 3), (2, 6)], NAN),
    (43, 4, 1, 1, 4, [(3, 3), (2, 5)], LARGE),
    (4, 4, 1, 1, 4, [(2, 4)], INT64),
    (9, 4, 2, 1, 8, [(1, 4), (1, 9)], DOUBLE),
]


def hidden(seed):
    """Batches of up to four sequences.

    Usual ones, then two with NaN and one with an int64 table.
    """
    chance = random.Random(seed)
    for number in range(13):
        block_size = chance.randint(2, 9)
        num_kv_heads = chance.randint(1, 3)
        lengths = []
        for _ in range(1 + number // 3 % 4):
            kv_len = block_size * chance.randint(0, 3) + chance.choice(
                (1, block_size - 1, block_size)
            )
            lengths.append((chance.choice((1, kv_len, chance.randint(1, kv_len))), kv_len))
        yield (
            chance.randrange(2**31),
            block_size,
            num_kv_heads * chance.randint(1, 5),
            num_kv_heads,
            chance.choice((2, 4, 8, 24)),
            lengths,
            {10: NAN, 11: NAN, 12: INT64}.get(number, USUAL),
        )


def is_printed(case):
    """Whether q, keys and values are few enough to be read in a message, all in one block."""
    _, block_size, _, _, _, lengths, kind = case
    fits = len(lengths) == 1 and lengths[0][1] <= block_size
    return fits and kind == USUAL and size(case)[0] <= 8


def make_batch(case):
    """q, k_cache, v_cache and the metadata.

    Every sequence's blocks lie scattered, and the last block is nobody's.
    """
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths, kind = case
    poison = math.nan if kind == NAN else POISON
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-kv_len // block_size) for _, kv_len in lengths]
    num_blocks = sum(counts) + 2
    k_cache, v_cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_size), poison)
    block_table = torch.full((len(lengths), max(counts) + 1), NO_BLOCK, dtype=torch.int32)
    unused = torch.randperm(num_blocks - 1, generator=generator).to(torch.int32)
    slots = []
    for s, ((q_len, kv_len), count) in enumerate(zip(lengths, counts, strict=True)):
        block_table[s, :count], unused = unused[:count], unused[count:]
        position = torch.arange(kv_len)
        mine = (
            block_table[s, position // block_size].long() * block_size + position % block_size
        )
        shape = kv_len, num_kv_heads, head_size
        if is_printed(case):
            keys = torch.randint(-1, 3, shape, generator=generator)
            values = 10 * torch.arange(1, kv_len + 1)[:, None, None] + torch.arange(head_size)
        else:
            keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
        for cache, rows in ((k_cache, keys), (v_cache, values)):
            cache.view(-1, num_kv_heads, head_size)[mine] = rows.float()
        slots.append(mine[kv_len - q_len :])
    shape = sum(q_len for q_len, _ in lengths), num_q_heads, head_size
    if is_printed(case):
        q = torch.randint(1, 3, shape, generator=generator).float()
    else:
        q = 2 * torch.randn(shape, generator=generator)
    if kind == LARGE:
        q *= 5_000
    if kind == DOUBLE:
        q = q.double()
        k_cache = k_cache.double()
        v_cache = v_cache.double()
    metadata = BatchMetadata(
        cumulative_lengths([q_len for q_len, _ in lengths]),
        torch.tensor([kv_len for _, kv_len in lengths], dtype=torch.int32),
        block_table,
        torch.cat(slots),
    )
    if kind == INT64:
        metadata = replace(metadata, block_table=block_table.long())
    return q, k_cache, v_cache, metadata


def arguments(q, k_cache, v_cache, metadata):
    return {"q": q, "k_cache": k_cache, "v_cache": v_cache} | {
        f"metadata.{name}": tensor for name, tensor in vars(metadata).items()
    }


def observe(answer, case):
    batch = make_batch(case)
    try:
        result = answer(*batch)
    except TypeError:
        if case[-1] == INT64:
            return Text("TypeError")
        raise
    given, before = arguments(*batch), arguments(*make_batch(case))
    changed = [
        name
        for name, tensor in before.items()
        if not torch.equal(given[name].nan_to_num(7.0), tensor.nan_to_num(7.0))
    ]
    if changed:
        return Text(f"{changed[0]} has been changed")
    if (
        isinstance(result, torch.Tensor)
        and result.is_floating_point()
        and result.dtype != batch[0].dtype
    ):
        return Text(f"a result of {result.dtype}, and q is {batch[0].dtype}")
    return tensors.values(result)


KINDS = {
    USUAL: "",
    NAN: "; NaN in the slots that hold none of their tokens",
    LARGE: "; q has large numbers, so the scores are in the tens of thousands",
    INT64: "; block_table is int64",
    DOUBLE: "; all in float64",
}


def size(case):
    """How many numbers q and the sequences' keys have, and the tokens."""
    _, _, num_q_heads, num_kv_heads, head_size, lengths, _ = case
    return sum(
        q_len * num_q_heads + kv_len * num_kv_heads for q_len, kv_len in lengths
    ) * head_size, sum(kv_len for _, kv_len in lengths)


def describe(case):
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths, kind = case
    q, k_cache, v_cache, metadata = make_batch(case)
    sequences = ", ".join(f"{q_len} of {kv_len}" for q_len, kv_len in lengths)
    numbers = ""
    if is_printed(case):
        block = metadata.block_table[0, 0]
        keys, values = (
            cache[block, : lengths[0][1]].int().tolist() for cache in (k_cache, v_cache)
        )
        numbers = f"; q = {q.int().tolist()}, keys = {keys}, values = {values}"
    return (
        f"new tokens of each sequence: {sequences}; block_size {block_size}, "
        f"block_table {metadata.block_table.tolist()}, "
        f"{counted(num_q_heads, 'query head')}, {counted(num_kv_heads, 'KV head')}, "
        f"head_size {head_size}{numbers}{KINDS[kind]}"
    )


EXERCISE = Exercise(
    id="5.5",
    title="paged attention for any batch",
    answer_name="attn_paged_torch",
    reference=in_double,
    cases=lambda: CASES,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    # what a mistake makes of NaN or overflow depends on details
    chancy=lambda case: case[-1] != USUAL,
    same=tensors.same,
    show=tensors.show,
    points=3,
    mistakes=Bank("5.5", "attn_paged_torch", __file__, globals()),
    hints=(
        (
            "Do it for one sequence first. Which rows of q are its own? "
            "Which blocks hold its kv_len tokens, and how many blocks are that?"
        ),
        (
            "k_cache[block_ids] is (blocks, block_size, num_kv_heads, head_size). "
            "Flatten its first two dimensions, cut the tail off, and it is a plain list "
            "of keys. From here on it is the attention of lesson 03 with another mask."
        ),
        (
            "Heads to the front for the matrix products: "
            "(num_q_heads, q_len, head_size) with (num_q_heads, head_size, kv_len). "
            "And the tokens to the front again before the sequences are put together."
        ),
    ),
)
