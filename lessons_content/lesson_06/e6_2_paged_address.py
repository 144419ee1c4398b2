"""Exercise 6.2: from a token to its address.

There are three steps: which block of the sequence, which block of the pool, and where in that
block. You did this in lesson 02 with tensors, as a slot.

The pointer params.block_table points to the first row. To get to row seq, add seq times the
length of a row.

In a contiguous tensor with the sizes A, B, C, D, the offset of [a, b, c, 0] is ((a * B + b) *
C + c) * D. Which sizes are they here?
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import counted, exercise
from lessons_content.lesson_06 import addresses
from lessons_content.lesson_06.addresses import Sizes

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
    addresses,
    kernels,
    answer_name="paged_address",
    size=lambda case: (case[0].num_seqs * case[0].max_blocks_per_seq, case[0].num_blocks),
)
