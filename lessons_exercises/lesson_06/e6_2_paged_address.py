"""Exercise 6.2: from a token to its address, through the block table."""

import random
import re
from dataclasses import dataclass

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import build, result_of, show
from lessons_exercises.mistakes import Bank
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise
from lessons_lib.cuda_on_cpu.reports import KernelError


@dataclass(frozen=True)
class Sizes:
    num_seqs: int
    max_blocks_per_seq: int
    block_size: int
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    num_blocks: int


def offsets(table, sizes):
    """cache_offset() for every sequence, token and head: (num_seqs, tokens, num_kv_heads)."""
    token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
    blocks = table.long()[:, token // sizes.block_size]
    slots = blocks * sizes.block_size + token % sizes.block_size
    head = torch.arange(sizes.num_kv_heads)
    return (slots[..., None] * sizes.num_kv_heads + head) * sizes.head_size


def prepare(answer):
    library = build(answer, "paged_params.cuh", wrapper="address_check.cu")

    def native(table, sizes):
        num_tokens = sizes.max_blocks_per_seq * sizes.block_size
        out = torch.empty(sizes.num_seqs, num_tokens, sizes.num_kv_heads, dtype=torch.int64)
        pointers = dict.fromkeys(("q", "k_cache", "v_cache", "context_lens", "scores"))
        try:
            library.offsets(
                out=out,
                block_table=table,
                **pointers,
                q_stride=0,
                num_seqs=sizes.num_seqs,
                num_q_heads=sizes.num_q_heads,
                num_kv_heads=sizes.num_kv_heads,
                head_size=sizes.head_size,
                block_size=sizes.block_size,
                max_blocks_per_seq=sizes.max_blocks_per_seq,
                max_context_len=(num_tokens + 1) // 2,  # the table may be wider than that
                dtype=0,
                scale=1.0,
            )
        except KernelError as error:
            if "null pointer" in str(error) and "context_lens" in re.sub(
                r"//.*|/\*[\s\S]*?\*/", "", answer
            ):
                error.kind = "context-lens"
            raise
        return out

    return native


def cases():
    """(sizes, seed): a block, a row, rows.

    Then other orders of the sizes, and a pool of more than 2^31 numbers.
    """
    for seed, sizes in enumerate(
        (
            (1, 1, 1, 1, 1, 1, 4),
            (1, 1, 4, 1, 1, 1, 4),
            (1, 2, 4, 1, 1, 1, 5),
            (1, 3, 4, 1, 1, 8, 9),
            (2, 3, 4, 1, 1, 8, 9),
            (3, 2, 4, 4, 2, 8, 9),
            (2, 5, 3, 7, 7, 6, 40),
            (5, 2, 16, 6, 3, 64, 40),
            (4, 3, 5, 2, 1, 24, 30),
            (3, 4, 16, 14, 2, 128, 200),
            (2, 2, 16, 32, 8, 128, 1_000_000),
            (1, 2, 16, 8, 8, 256, 2_000_000_000),
        )
    ):
        yield Sizes(*sizes), seed


def hidden(seed):
    """Any sizes; then a pool of more than 2^31 numbers."""
    chance = random.Random(seed)
    for number in range(12):
        num_seqs = chance.randint(1, 4)
        row = chance.randint(2, 5)
        num_kv_heads = chance.randint(1, 5)
        num_blocks = (
            num_seqs * row + chance.randint(0, 20)
            if number < 10
            else chance.randint(2_000_000, 9_000_000)
        )
        yield (
            Sizes(
                num_seqs,
                row,
                chance.randint(2, 16),
                num_kv_heads * chance.randint(1, 4),
                num_kv_heads,
                chance.randint(2, 40) if number < 10 else 128,
                num_blocks,
            ),
            chance.randrange(2**31),
        )


def observe(subject, case):
    sizes, seed = case
    generator = torch.Generator().manual_seed(seed)
    count = sizes.num_seqs * sizes.max_blocks_per_seq
    if sizes.num_blocks < 1000:
        ids = torch.randperm(sizes.num_blocks, generator=generator)[:count]
    else:
        ids = sizes.num_blocks - 1 - torch.randperm(1000, generator=generator)[:count]
    table = ids.to(torch.int32).view(sizes.num_seqs, sizes.max_blocks_per_seq)
    return result_of(lambda: subject(table, sizes), names=("block_table",))


def describe(case):
    sizes, _ = case
    each = " each" if sizes.num_seqs > 1 else ""
    return (
        f"a block table of {counted(sizes.num_seqs, 'row')} "
        f"with {counted(sizes.max_blocks_per_seq, 'entry')}{each}, {sizes.num_blocks:,} "
        f"blocks of {sizes.block_size}, {counted(sizes.num_kv_heads, 'KV head')} "
        f"of size {sizes.head_size}; the result for each (sequence, token, KV head)".replace(
            "entrys", "entries"
        )
    )


EXERCISE = Exercise(
    id="6.2",
    title="from a token to its address",
    answer_name="paged_address",
    language="cuda",
    reference=offsets,
    prepare=prepare,
    cases=cases,
    size=lambda case: (case[0].num_seqs * case[0].max_blocks_per_seq, case[0].num_blocks),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show,
    mistakes=Bank("6.2", "paged_address", __file__, globals(), prepare),
    hints=(
        (
            "There are three steps: which block of the sequence, which block of the pool, "
            "and where in that block. You did this in lesson 02 with tensors, as a slot."
        ),
        (
            "The pointer params.block_table points to the first row. To get to row seq, "
            "add seq times the length of a row."
        ),
        (
            "In a contiguous tensor with the sizes A, B, C, D, the offset of [a, b, c, "
            "0] is ((a * B + b) * C + c) * D. Which sizes are they here?"
        ),
    ),
)
