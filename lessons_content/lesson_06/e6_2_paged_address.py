"""Exercise 6.2: from a token to its address.

There are three steps: which block of the sequence, which block of the pool, and where in that
block. You did this in lesson 02 with tensors, as a slot.

The pointer params.block_table points to the first row. To get to row seq, add seq times the
length of a row.

In a contiguous tensor with the sizes A, B, C, D, the offset of [a, b, c, 0] is ((a * B + b) *
C + c) * D. Which sizes are they here?
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise


@dataclass(frozen=True)
class Sizes:
    num_seqs: int
    max_blocks_per_seq: int
    block_size: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    num_blocks: int


def reference(table, sizes):
    """cache_offset() for every sequence, token and head: (num_seqs, tokens, num_kv_heads)."""
    token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
    blocks = table.long()[:, token // sizes.block_size]
    slots = blocks * sizes.block_size + token % sizes.block_size
    head = torch.arange(sizes.num_kv_heads)
    return (slots[..., None] * sizes.num_kv_heads + head) * sizes.head_size


def prepare(answer):
    library = kernels.build(answer, "paged_params", "address_check.cu")

    def addresses(table, sizes):
        num_tokens = sizes.max_blocks_per_seq * sizes.block_size
        out = torch.empty(sizes.num_seqs, num_tokens, sizes.num_kv_heads, dtype=torch.int64)
        fields = vars(sizes) | {"out": out, "block_table": table}
        fields["max_context_len"] = (num_tokens + 1) // 2  # the table may be wider than that
        del fields["num_blocks"]
        try:
            library.offsets(**kernels.paged_params(**fields))
        except kernels.KernelError as error:
            text = kernels.without_comments(answer)
            if "null pointer" in str(error) and "context_lens" in text:
                error.kind = "context-lens"
            raise
        return out

    return addresses


# a block, a row, rows; then other orders of the sizes, and a pool of more than 2^31 numbers
SIZES = [
    Sizes(1, 1, 1, 1, 1, 1, 4),
    Sizes(1, 1, 4, 1, 1, 1, 4),
    Sizes(1, 2, 4, 1, 1, 1, 5),
    Sizes(1, 3, 4, 1, 1, 8, 9),
    Sizes(2, 3, 4, 1, 1, 8, 9),
    Sizes(3, 2, 4, 4, 2, 8, 9),
    Sizes(2, 5, 3, 7, 7, 6, 40),
    Sizes(5, 2, 16, 6, 3, 64, 40),
    Sizes(4, 3, 5, 2, 1, 24, 30),
    Sizes(3, 4, 16, 14, 2, 128, 200),
    Sizes(2, 2, 16, 32, 8, 128, 1_000_000),
    Sizes(1, 2, 16, 8, 8, 256, 2_000_000_000),
]
CASES = [(sizes, seed) for seed, sizes in enumerate(SIZES)]


def hidden(chance):
    """Any sizes; then a pool of more than 2^31 numbers."""
    for number in range(12):
        num_seqs, row = chance.randint(1, 4), chance.randint(2, 5)
        num_kv_heads = chance.randint(1, 5)
        if number < 10:
            num_blocks = num_seqs * row + chance.randint(0, 20)
        else:
            num_blocks = chance.randint(2_000_000, 9_000_000)
        block_size = chance.randint(2, 16)
        num_q_heads = num_kv_heads * chance.randint(1, 4)
        head_size = chance.randint(2, 40) if number < 10 else 128
        heads = num_q_heads, num_kv_heads, head_size
        yield Sizes(num_seqs, row, block_size, *heads, num_blocks), chance.randrange(2**31)


def observe(subject, case):
    sizes, seed = case
    generator = torch.Generator().manual_seed(seed)
    count = sizes.num_seqs * sizes.max_blocks_per_seq
    if sizes.num_blocks < 1000:
        ids = torch.randperm(sizes.num_blocks, generator=generator)[:count]
    else:
        ids = sizes.num_blocks - 1 - torch.randperm(1000, generator=generator)[:count]
    table = ids.to(torch.int32).view(sizes.num_seqs, sizes.max_blocks_per_seq)
    return kernels.result_of(lambda: subject(table, sizes), names=("block_table",))


def describe(case):
    sizes, _ = case
    entries = counted(sizes.max_blocks_per_seq, "entry").replace("entrys", "entries")
    each = " each" if sizes.num_seqs > 1 else ""
    return (
        f"a block table of {counted(sizes.num_seqs, 'row')} with {entries}{each}, "
        f"{sizes.num_blocks:,} blocks of {sizes.block_size}, "
        f"{counted(sizes.num_kv_heads, 'KV head')} of size {sizes.head_size}; "
        "the result for each (sequence, token, KV head)"
    )


EXERCISE = exercise(
    globals(),
    kernels,
    answer_name="paged_address",
    size=lambda case: (case[0].num_seqs * case[0].max_blocks_per_seq, case[0].num_blocks),
)
