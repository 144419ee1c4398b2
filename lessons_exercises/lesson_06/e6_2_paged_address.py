"""Exercise 6.2: from a token to its address, through the block table."""

import random
import re
from dataclasses import dataclass

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import Found, build, result_of, show
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
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


def offsets(
    block_id=lambda table, seq, index, sizes: table[seq, index],
    slot=lambda block, offset, size: block * size + offset,
    place=lambda slot, head, sizes: (slot * sizes.num_kv_heads + head) * sizes.head_size,
):
    """cache_offset() for every sequence, token and head, with some of its parts replaced."""

    def wrong(table, sizes):
        table = table.long()
        token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
        index, offset = token // sizes.block_size, token % sizes.block_size
        head = torch.arange(sizes.num_kv_heads)
        rows = [
            place(
                slot(block_id(table, seq, index, sizes), offset, sizes.block_size)[:, None],
                head,
                sizes,
            )
            for seq in range(sizes.num_seqs)
        ]
        return torch.stack(rows)

    return wrong


def stride_of(size):
    """The table's rows are taken to be as long as another size."""

    def block_id(table, seq, index, sizes):
        places = seq * getattr(sizes, size) + index
        if int(places.max()) >= table.numel():
            raise Found("out-of-bounds", "block_table")
        return table.flatten()[places]

    return offsets(block_id)


def heads_first(table, sizes):
    """As if each block held its first head's rows, then its second head's."""

    def place(pair, head, sizes):
        block, offset = pair[..., 0], pair[..., 1]
        return (
            (block * sizes.num_kv_heads + head) * sizes.block_size + offset
        ) * sizes.head_size

    def slot(block, offset, size):
        return torch.stack([block, offset], -1)

    return offsets(slot=slot, place=place)(table, sizes)


def one_head_a_slot(table, sizes):
    """Blocks have the right distance, but slots the distance that they have with one head."""

    def place(pair, head, sizes):
        first = pair[..., 0] * sizes.block_size * sizes.num_kv_heads
        return (first + pair[..., 1] + head) * sizes.head_size

    def slot(block, offset, size):
        return torch.stack([block, offset], -1)

    return offsets(slot=slot, place=place)(table, sizes)


def all_heads_first(num_blocks):
    """As if the cache held all rows of one head, then those of the next.

    Each head has num_blocks(sizes) blocks of them.
    """
    return offsets(
        place=lambda slot, head, sizes: (
            (head * num_blocks(sizes) * sizes.block_size + slot) * sizes.head_size
        )
    )


def entry_before(table, seq, index, sizes):
    """The entry of token - 1. In C++, -1 divided by more than 1 is 0."""
    if sizes.block_size == 1:
        raise Found("out-of-bounds", "block_table")
    before = torch.arange(len(index)) - 1
    return table[seq, before.div(sizes.block_size, rounding_mode="trunc")]


def place_before(block, offset, size):
    """The place of token - 1 in its block, a negative one for token 0."""
    return block * size + (torch.arange(len(offset)) - 1).fmod(size)


def context_len_read(table, sizes):
    raise Found("context-lens")


def in_32_bits(table, sizes):
    return offsets()(table, sizes).int().long()


def in_32_bits_without_sign(table, sizes):
    return offsets()(table, sizes) & 0xFFFFFFFF


def slot_in_32_bits(table, sizes):
    return offsets(slot=lambda block, offset, size: (block * size + offset).int().long())(
        table, sizes
    )


def swapped(table, sizes):
    """Quotient and remainder exchanged.

    The remainder may be a place past the end of the table's row.
    """
    token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
    row = torch.arange(sizes.num_seqs)[:, None] * sizes.max_blocks_per_seq
    index = (token % sizes.block_size)[None] + row
    if int(index.max()) >= table.numel():
        raise Found("out-of-bounds", "block_table")
    slots = table.flatten().long()[index] * sizes.block_size + token // sizes.block_size
    return (
        slots[..., None] * sizes.num_kv_heads + torch.arange(sizes.num_kv_heads)
    ) * sizes.head_size


def token_in_the_pool(table, sizes):
    """The place in the block is taken to be the token's number in the sequence."""
    token = torch.arange(sizes.max_blocks_per_seq * sizes.block_size)
    blocks = table.long()[:, token // sizes.block_size]
    slots = blocks * sizes.block_size + token
    return (
        slots[..., None] * sizes.num_kv_heads + torch.arange(sizes.num_kv_heads)
    ) * sizes.head_size


def entry_too_far(table, sizes):
    """Where a block has several slots, some token is looked up past the last row."""
    if sizes.block_size > 1:
        raise Found("out-of-bounds", "block_table")
    return offsets()(table, sizes)


def transposed(row_length):
    """The table's entries are taken to be side by side for the sequences.

    For the blocks they are taken to be one below the other.
    """

    def block_id(table, seq, index, sizes):
        return table.flatten()[index * row_length(sizes) + seq]

    def wrong(table, sizes):
        if (sizes.max_blocks_per_seq - 1) * row_length(sizes) + sizes.num_seqs > table.numel():
            raise Found("out-of-bounds", "block_table")
        return offsets(block_id)(table, sizes)

    return wrong


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
                max_context_len=num_tokens,
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


ROW = "int64_t(seq) * params.max_blocks_per_seq"
ENTRY = "row[token / params.block_size]"
LAST_LINE = "return (slot * params.num_kv_heads + kv_head) * params.head_size;"

EXERCISE = Exercise(
    id="6.2",
    title="from a token to its address",
    answer_name="paged_address",
    language="cuda",
    reference=offsets(),
    prepare=prepare,
    cases=cases,
    size=lambda case: (case[0].num_seqs * case[0].max_blocks_per_seq, case[0].num_blocks),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show,
    mistakes=(
        Mistake(
            "block-table-unread",
            "You take block token / block_size of the pool. "
            "But that number counts the blocks of the sequence. "
            "The block table says which block of the pool it is.",
            offsets(lambda table, seq, index, sizes: index),
            ((ENTRY, "token / params.block_size"),),
        ),
        Mistake(
            "row-forgotten",
            "Every sequence uses the first row of the block table. "
            "Row seq begins further on. How many entries does each row before it have?",
            offsets(lambda table, seq, index, sizes: table[0, index]),
            ((f" + {ROW}", ""),),
        ),
        Mistake(
            "wrong-table-stride",
            "The rows of the block table are longer or shorter than your code takes them "
            "to be. So from the second sequence on you read a wrong entry. "
            "How many entries does a row have? The comments of the struct say.",
            stride_of("num_q_heads"),
            ((ROW, "int64_t(seq) * params.num_q_heads"),),
            also=(stride_of("num_seqs"), stride_of("num_kv_heads"), stride_of("block_size")),
        ),
        Mistake(
            "wrong-layout",
            "The address would be right in a cache with another layout. "
            "The order of the dimensions is (num_blocks, block_size, num_kv_heads, "
            "head_size). Within a block, all heads of one token lie together. "
            "Then comes the next token.",
            heads_first,
            (
                (
                    LAST_LINE,
                    (
                        "return ((int64_t(row[token / params.block_size]) "
                        "* params.num_kv_heads + kv_head) "
                        "* params.block_size + token % params.block_size) * params.head_size;"
                    ),
                ),
            ),
            also=(
                all_heads_first(lambda sizes: sizes.num_blocks),
                all_heads_first(lambda sizes: sizes.max_blocks_per_seq),
                all_heads_first(lambda sizes: sizes.max_blocks_per_seq * sizes.num_seqs),
                offsets(slot=lambda block, offset, size: 2 * block * size + offset),
            ),
        ),
        Mistake(
            "offset-in-block-forgotten",
            "All tokens of a block get the same address: that of the block's first token. "
            "A token's place within its block is token % block_size.",
            offsets(slot=lambda block, offset, size: block * size + 0 * offset),
            ((" + token % params.block_size", ""),),
        ),
        Mistake(
            "quotient-and-remainder-swapped",
            "token / block_size says which block of the sequence it is. "
            "token % block_size says which place in that block. The two have changed places.",
            swapped,
            (
                (ENTRY, "row[token % params.block_size]"),
                ("+ token % params.block_size", "+ token / params.block_size"),
            ),
        ),
        Mistake(
            "kv-head-forgotten",
            "All KV heads get the address of head 0.",
            offsets(
                place=lambda slot, head, sizes: (
                    (slot * sizes.num_kv_heads + 0 * head) * sizes.head_size
                )
            ),
            (("(slot * params.num_kv_heads + kv_head)", "(slot * params.num_kv_heads)"),),
        ),
        Mistake(
            "head-size-forgotten",
            "The result counts heads, but it should count numbers. "
            "Each token has head_size numbers for each head.",
            offsets(place=lambda slot, head, sizes: slot * sizes.num_kv_heads + head),
            ((LAST_LINE, "return slot * params.num_kv_heads + kv_head;"),),
        ),
        Mistake(
            "offset-overflows",
            "In a large pool the offset passes 2^31, and an int cannot hold it. "
            "A product of two ints is an int, whatever you assign it to. "
            "One factor has to be an int64_t before the multiplication.",
            in_32_bits,
            (
                (
                    "int64_t slot = int64_t(row[token / params.block_size])",
                    "int slot = row[token / params.block_size]",
                ),
            ),
            also=(slot_in_32_bits, in_32_bits_without_sign),
        ),
        Mistake(
            "bytes-in-place-of-elements",
            "The result counts bytes. If you add 1 to a pointer to float, "
            "it moves on by one whole float. A pointer to half moves on by one half. "
            "So count numbers, whatever their size.",
            offsets(
                place=lambda slot, head, sizes: (
                    4 * ((slot * sizes.num_kv_heads + head) * sizes.head_size)
                )
            ),
            ((LAST_LINE, LAST_LINE.replace("return", "return sizeof(float) *")),),
            also=(
                offsets(
                    place=lambda slot, head, sizes: (
                        2 * ((slot * sizes.num_kv_heads + head) * sizes.head_size)
                    )
                ),
            ),
        ),
        Mistake(
            "query-heads-for-kv-heads",
            "A slot of the cache has a row for each KV head, "
            "but you step over a row for each query head. There may be more query heads. "
            "The comment beside k_cache gives its dimensions.",
            offsets(
                place=lambda slot, head, sizes: (
                    (slot * sizes.num_q_heads + head) * sizes.head_size
                )
            ),
            ((LAST_LINE, LAST_LINE.replace("num_kv_heads", "num_q_heads")),),
        ),
        Mistake(
            "place-in-the-sequence",
            "A token's place is counted through the whole sequence. "
            "It has to be counted within its block: each block begins at place 0 again.",
            token_in_the_pool,
            (("+ token % params.block_size", "+ token"),),
        ),
        Mistake(
            "entry-too-far",
            "The table is read past the sequence's entries. Each entry is for a whole block. "
            "Tokens 0 to block_size - 1 have entry 0, the next ones have entry 1, "
            "and the last token has the last entry.",
            entry_too_far,
            ((ENTRY, "row[token]"),),
        ),
        Mistake(
            "table-transposed",
            "The table is read with rows and columns exchanged. A row is a sequence: "
            "its entries lie side by side.",
            transposed(lambda sizes: sizes.max_blocks_per_seq),
            (
                (f" + {ROW}", " + seq"),
                (ENTRY, "row[token / params.block_size * params.max_blocks_per_seq]"),
            ),
            also=(transposed(lambda sizes: sizes.num_seqs),),
        ),
        Mistake(
            "block-size-forgotten",
            "Block number and place are added. But b whole blocks lie before block b. "
            "How many slots are those?",
            offsets(slot=lambda block, offset, size: block + offset),
            ((") * params.block_size + token", ") + token"),),
        ),
        Mistake(
            "slot-not-offset",
            "The result counts slots, but it should count numbers. What does a slot hold?",
            offsets(place=lambda slot, head, sizes: slot + 0 * head),
            ((LAST_LINE, "return slot;"),),
            also=(offsets(place=lambda slot, head, sizes: slot + head),),
        ),
        Mistake(
            "entry-not-looked-up",
            "You take the entry's position in the table for the block. "
            "What the entry holds says which block of the pool it is.",
            offsets(lambda table, seq, index, sizes: seq * sizes.max_blocks_per_seq + index),
            ((ENTRY, f"({ROW} + token / params.block_size)"),),
        ),
        Mistake(
            "head-counted-as-a-number",
            "You take the next KV head to begin one number further on. "
            "How many numbers does a head have?",
            offsets(
                place=lambda slot, head, sizes: (
                    slot * sizes.num_kv_heads * sizes.head_size + head
                )
            ),
            ((LAST_LINE, "return slot * params.num_kv_heads * params.head_size + kv_head;"),),
        ),
        Mistake(
            "one-head-a-slot",
            "Within a block, you take the next token to be one head further on. "
            "All KV heads of a token lie between it and the next token.",
            one_head_a_slot,
            (
                (
                    LAST_LINE,
                    (
                        "int64_t first = slot - token % params.block_size;\n"
                        "  return (first * params.num_kv_heads + token % params.block_size + "
                        "kv_head) * params.head_size;"
                    ),
                ),
            ),
        ),
        Mistake(
            "kv-head-divided",
            "kv_head is already the number of a KV head. You divide it once more, "
            "as if it were the number of a query head.",
            offsets(
                place=lambda slot, head, sizes: (
                    (
                        slot * sizes.num_kv_heads
                        + head // (sizes.num_q_heads // sizes.num_kv_heads)
                    )
                    * sizes.head_size
                )
            ),
            (
                (
                    LAST_LINE,
                    LAST_LINE.replace(
                        "kv_head)", "kv_head / (params.num_q_heads / params.num_kv_heads))"
                    ),
                ),
            ),
        ),
        Mistake(
            "token-counted-from-1",
            "You subtract 1, as if tokens were counted from 1. "
            "Both the tokens of a sequence and the places in a block are counted from 0: "
            "token 0 has entry 0 and place 0.",
            offsets(entry_before),
            ((ENTRY, "row[(token - 1) / params.block_size]"),),
            also=(
                offsets(entry_before, place_before),
                offsets(slot=place_before),
                offsets(slot=lambda block, offset, size: block * size + offset - 1),
            ),
        ),
        Mistake(
            "context-len-read",
            "You read context_lens, but there is none here. "
            "Where a token lies does not depend on how many tokens its sequence has. "
            "The caller of cache_offset() gives it a token of the context.",
            context_len_read,
            ((LAST_LINE, f"if (token >= params.context_lens[seq]) return 0;\n  {LAST_LINE}"),),
        ),
    ),
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
