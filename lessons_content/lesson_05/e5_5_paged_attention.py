"""Exercise 5.5: paged attention for any batch.

Do it for one sequence first. Which rows of q are its own? Which blocks hold its kv_len tokens,
and how many blocks are that?

k_cache[block_ids] is (blocks, block_size, num_kv_heads, head_size). Flatten its first two
dimensions, cut the tail off, and it is a plain list of keys. From here on it is the attention
of lesson 03 with another mask.

Heads to the front for the matrix products: (num_q_heads, q_len, head_size) with (num_q_heads,
head_size, kv_len). And the tokens to the front again before the sequences are put together.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons_content.exercises.kit import Text, changed, counted, exercise, tensors
from paged_attention.attention import metadata
from paged_attention.pool.block_table import NO_BLOCK
from paged_attention.pool.slots import slot_mapping

POISON = 1e4  # in every slot that holds no token
# kinds of cases, as they are described
USUAL = ""
NAN = "; NaN in the slots that hold none of their tokens"
LARGE = "; q has large numbers, so the scores are in the tens of thousands"
INT64 = "; block_table is int64"
DOUBLE = "; all in float64"


class Case(NamedTuple):
    """lengths: the queries and the keys of each sequence."""

    seed: int
    block_size: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    lengths: list
    kind: str = USUAL


@functools.wraps(metadata.attn_paged_torch)
def in_double(q, *about):
    return tensors.in_double(metadata.attn_paged_torch)(q, *about).to(q.dtype)


CASES = [
    Case(1, 4, 1, 1, 2, [(1, 1)]),
    Case(2, 4, 1, 1, 2, [(2, 2)]),
    Case(3, 4, 1, 1, 2, [(1, 3)]),
    Case(4, 4, 1, 1, 4, [(2, 4)]),
    Case(5, 4, 1, 1, 4, [(1, 5)]),
    Case(6, 4, 2, 2, 4, [(3, 3)]),
    Case(7, 4, 6, 2, 4, [(1, 6)]),
    Case(8, 4, 6, 2, 4, [(3, 7)]),
    Case(9, 4, 2, 1, 8, [(1, 4), (1, 9)]),
    Case(10, 4, 6, 2, 3, [(1, 11), (4, 4), (3, 8)]),
    Case(11, 1, 3, 3, 8, [(2, 5), (1, 3)]),
    Case(60, 16, 5, 1, 2, [(17, 17), (1, 32), (1, 16), (15, 33)]),
    Case(63, 16, 6, 2, 3, [(1, 1), (16, 48), (5, 5)]),
    Case(14, 4, 2, 1, 4, [(1, 3), (2, 6)], NAN),
    Case(43, 4, 1, 1, 4, [(3, 3), (2, 5)], LARGE),
    Case(4, 4, 1, 1, 4, [(2, 4)], INT64),
    Case(9, 4, 2, 1, 8, [(1, 4), (1, 9)], DOUBLE),
]


def hidden(chance):
    """Batches of up to four sequences: usual ones, two with NaN, one with an int64 table."""
    for number, kind in enumerate([USUAL] * 10 + [NAN, NAN, INT64]):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        more, lengths = (1, block_size - 1, block_size), []
        for _ in range(1 + number // 3 % 4):
            kv_len = block_size * chance.randint(0, 3) + chance.choice(more)
            lengths.append((chance.choice((1, kv_len, chance.randint(1, kv_len))), kv_len))
        seed, num_q_heads = chance.randrange(2**31), num_kv_heads * chance.randint(1, 5)
        heads = num_q_heads, num_kv_heads, chance.choice((2, 4, 8, 24))
        yield Case(seed, block_size, *heads, lengths, kind)


def is_printed(case):
    """Whether q, keys and values are few enough to be read in a message, all in one block."""
    fits = len(case.lengths) == 1 and case.lengths[0][1] <= case.block_size
    return fits and case.kind == USUAL and size(case)[0] <= 8


def make_batch(case):
    """The arguments. The blocks are in any order, and no sequence has the last one."""
    generator = torch.Generator().manual_seed(case.seed)
    q_lens, kv_lens = map(list, zip(*case.lengths, strict=True))
    counts = [-(-kv_len // case.block_size) for kv_len in kv_lens]
    num_blocks = sum(counts) + 2
    head = case.num_kv_heads, case.head_size
    poison = math.nan if case.kind == NAN else POISON
    caches = torch.full((2, num_blocks, case.block_size, *head), poison)
    block_table = torch.full((len(counts), max(counts) + 1), NO_BLOCK, dtype=torch.int32)
    unused = torch.randperm(num_blocks - 1, generator=generator).to(torch.int32)
    slots = []
    for row, count, kv_len in zip(block_table, counts, kv_lens, strict=True):
        row[:count], unused = unused[:count], unused[count:]
        slots.append(slot_mapping(row, torch.arange(kv_len), case.block_size))
        shape = kv_len, *head
        if is_printed(case):
            keys = torch.randint(-1, 3, shape, generator=generator)
            tens = 10 * torch.arange(1, kv_len + 1)
            values = tens[:, None, None] + torch.arange(case.head_size)
        else:
            keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
        for cache, rows in zip(caches, (keys, values), strict=True):
            cache.flatten(0, 1)[slots[-1]] = rows.float()
    shape = sum(q_lens), case.num_q_heads, case.head_size
    if is_printed(case):
        q = torch.randint(1, 3, shape, generator=generator).float()
    else:
        q = 2 * torch.randn(shape, generator=generator)
    if case.kind == LARGE:
        q *= 5_000
    if case.kind == DOUBLE:
        q, caches = q.double(), caches.double()
    about = metadata.BatchMetadata(
        metadata.cumulative_lengths(q_lens),
        torch.tensor(kv_lens, dtype=torch.int32),
        block_table.long() if case.kind == INT64 else block_table,
        torch.cat([mine[-q_len:] for mine, q_len in zip(slots, q_lens, strict=True)]),
    )
    return q, *caches, about


def arguments(q, k_cache, v_cache, about):
    return {"q": q, "k_cache": k_cache, "v_cache": v_cache} | {
        f"metadata.{name}": tensor for name, tensor in vars(about).items()
    }


def observe(answer, case):
    batch = make_batch(case)
    try:
        result = answer(*batch)
    except TypeError:
        if case.kind == INT64:
            return Text("TypeError")
        raise
    if names := changed(arguments(*make_batch(case)), arguments(*batch)):
        return Text(f"{names[0]} has been changed")
    is_float = isinstance(result, torch.Tensor) and result.is_floating_point()
    if is_float and result.dtype != batch[0].dtype:
        return Text(f"a result of {result.dtype}, and q is {batch[0].dtype}")
    return tensors.values(result)


def size(case):
    """How many numbers q and the sequences' keys have, and the tokens."""
    q_lens, kv_lens = zip(*case.lengths, strict=True)
    num_vectors = sum(q_lens) * case.num_q_heads + sum(kv_lens) * case.num_kv_heads
    return num_vectors * case.head_size, sum(kv_lens)


def describe(case):
    q, *caches, about = make_batch(case)
    sequences = ", ".join(f"{q_len} of {kv_len}" for q_len, kv_len in case.lengths)
    numbers = ""
    if is_printed(case):
        block, kv_len = about.block_table[0, 0], case.lengths[0][1]
        keys, values = (cache[block, :kv_len].int().tolist() for cache in caches)
        numbers = f"; q = {q.int().tolist()}, keys = {keys}, values = {values}"
    return (
        f"new tokens of each sequence: {sequences}; block_size {case.block_size}, "
        f"block_table {about.block_table.tolist()}, "
        f"{counted(case.num_q_heads, 'query head')}, {counted(case.num_kv_heads, 'KV head')}, "
        f"head_size {case.head_size}{numbers}{case.kind}"
    )


EXERCISE = exercise(
    globals(),
    tensors,
    reference=in_double,
    # what a mistake makes of NaN or overflow depends on details
    chancy=lambda case: case.kind != USUAL,
    points=3,
)
