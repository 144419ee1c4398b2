"""Exercise 10.3: one token on.

Which block of threads has which place in the batch, and where does it find the row of the
sequence there? If the row is -1, nothing may be read at that row.

Say that a sequence has a length of 4, and blocks have 4 tokens. The cache has its tokens at
the positions 0 to 3. At which position is the new one, how long is its context, and how many
blocks does that take? Ask the same for a length of 3.

For the slot, take the position apart: the quotient by block_size says which entry of the row,
the remainder which place in that block. A block's id times block_size may be too large for an
int.

All threads need the length, and one thread changes it. A row may have more blocks than there
are threads, so copy them in a loop: i from threadIdx.x on, in steps of blockDim.x. Then let
all threads wait at __syncthreads(). After that, a single thread writes the other numbers.
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import exercise
from lessons_content.lesson_10 import batches
from lessons_content.lesson_10.batches import OLD_BLOCK, PADDING, Case, advance
from paged_attention.pool.block_table import NO_BLOCK

ONE = ((0,),)  # one call, for the sequence in row 0
CASES = [
    Case((0,), ONE, 4),
    Case((1,), ONE, 4),
    Case((2,), ONE, 4),
    Case((3,), ONE, 4, spare_blocks=0),  # the block is full then, and so is the table
    Case((4,), ONE, 4),  # the first token of a new block
    Case((5,), ONE, 4, after=OLD_BLOCK),
    Case((7,), ONE, 4, spare_blocks=2),
    Case((8,), ONE, 4, spare_blocks=0),
    Case((8,), ONE, 3, after=OLD_BLOCK),
    Case((6,), ONE, 1),
    Case((3,), ((PADDING,),), 4),
    Case((2, 5), ((1,),), 4),
    Case((5, 2), ((1,),), 4),
    Case((6, 9), ((1, 0),), 4),
    Case((7, 7), ((0, 1),), 4, spare_blocks=0),  # full rows
    Case((3, 6), ((0, PADDING),), 4),
    Case((3, 8), ((PADDING, 1),), 4),
    Case((9, 4, 2), ((2, PADDING, 0),), 4),
    Case((9, 4, 2), ((PADDING, PADDING, 1),), 5, after=OLD_BLOCK),
    Case((3, 14, 8, 0), ((1, 3, 2),), 6),
    Case((5, 0, 12, 7), ((3, 2, 0, 1),), 3),
    # slots past 2^31, and past 2^32
    Case((9,), ONE, 16, first_block=200_000_000),
    Case((35, 4), ((1, 0),), 16, first_block=500_000_000),
    Case((2,), ONE * 2, 4),
    Case((3,), ONE * 3, 4),
    Case((2, 7), ((1, PADDING), (PADDING, 1), (0, 1)), 4),
    Case((4, 4, 11), ((2, 0, 1), (1,), (0, PADDING)), 4, after=OLD_BLOCK),
    Case((127,), ONE, 1),  # 128 blocks for 128 threads
    Case((128,), ONE, 1),
    Case((300, 700), ((1, PADDING, 0),), 2, after=OLD_BLOCK),
    Case((1500,), ONE * 2, 3),
    Case((5, 1, 9) * 45, (tuple(range(130, -1, -1)),), 4),
]


def hidden(chance):
    """Any rows, with padding anywhere; lengths around whole blocks; a few calls."""
    for number in range(16):
        block_size = chance.choice((1, 2, 3, 5, 7, 16, 48))
        num_rows = chance.randint(1, 3 + number)
        most = chance.choice((2, 5, 140, 300)) if number % 3 == 0 else 4
        lengths = [
            max(0, block_size * chance.randint(0, most) + chance.choice((-1, 0, 1, 2)))
            for _ in range(num_rows)
        ]
        of_calls = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            batch = chance.sample(range(num_rows), chance.randint(1, num_rows))
            batch += [PADDING] * chance.choice((0, 1, 2))
            of_calls.append(tuple(chance.sample(batch, len(batch))))
        yield Case(
            tuple(lengths),
            tuple(of_calls),
            block_size,
            chance.choice((0, 1, 4)),
            chance.choice((NO_BLOCK, OLD_BLOCK)),
            chance.choice((0, 0, 2**31 // block_size)) if block_size > 1 else 0,
        )


EXERCISE = exercise(
    globals(),
    batches,
    kernels,
    answer_name="advance",
)
