"""Exercise 10.2: write into the tensors.

Say that a batch of two runs in the step for four. Which of the four places does your code
write, in which of the tensors? And who wrote last into the other places?

`self.tokens[:n]` is a part of the tensor, in the same memory. `send_into` writes into it.
`self.tokens = …` makes the name mean something else, and the recorded step does not go by
names.

The new token of a sequence of 5 goes to position 4. With blocks of 4, in which column of its
row is the block, and at which offset in that block? Ask the same for a length of 4.

With `blocks = self.table[…]` for the rows of the batch, `blocks.gather(1, columns)` takes one
block of each, for `columns` of the shape (n, 1). A block times self.block_size, plus the
offset, is a slot; make it int64 before you multiply. Then write 0 into the places from n to
size, and PADDING into those of self.slots.
"""

from lessons_content.exercises.kit import changed, exercise
from lessons_content.lesson_10 import fill_calls
from lessons_content.lesson_10.fill_calls import OLD_BLOCK, Call, Case
from lessons_content.lesson_10.named_numbers import short
from paged_attention.engine.fast.state import PADDING, StepState
from paged_attention.pool.block_table import NO_BLOCK


def one(row, length, size=1):
    return Call((row,), (length,), size)


CASES = [
    Case(4, (one(0, 1),)),
    Case(4, (one(0, 3),)),
    Case(4, (one(1, 1),)),
    Case(4, (one(2, 4),), after=NO_BLOCK),
    Case(4, (one(1, 5),)),
    Case(4, (one(3, 7),)),
    Case(4, (one(1, 8),), spare=0),  # the last column, and it is full
    Case(4, (one(0, 8),)),
    Case(4, (one(1, 6),), spare=0),
    Case(3, (one(2, 8),)),
    Case(1, (one(1, 6),)),
    Case(5, (one(1, 10),), spare=3),
    Case(4, (one(0, 1, 2),)),
    Case(4, (one(1, 6, 2),)),
    Case(4, (one(0, 3, 4),), after=NO_BLOCK),
    Case(4, (Call((0, 1), (3, 2), 2),)),
    Case(4, (Call((1, 0), (2, 5), 2),)),
    Case(4, (Call((2, 0), (8, 4), 4),)),
    Case(4, (Call((3, 1, 2), (2, 9, 5), 4),)),
    Case(3, (Call((1, 3, 0, 2), (7, 3, 10, 5), 4),), spare=0),
    Case(4, (one(1, 2), one(1, 3))),
    Case(4, (one(1, 4), one(1, 5))),
    Case(4, (one(1, 6), one(1, 2))),  # of another sequence
    Case(4, (one(1, 2), Call((3, 1), (5, 3), 2))),
    Case(4, (Call((1, 3), (3, 5), 2), one(3, 6, 1))),
    Case(4, (Call((1, 3), (3, 5), 2), one(3, 6, 2))),
    Case(4, (Call((0, 1, 2), (3, 5, 9), 4), one(2, 10, 2))),
    Case(4, (Call((0, 1, 2), (3, 5, 9), 4), Call((2, 1, 0), (10, 6, 4), 4))),
    Case(4, (Call((0, 1, 2, 3), (3, 5, 9, 1), 4), one(1, 6, 4))),
    Case(3, (Call((2, 0), (6, 4), 2), one(0, 5), Call((3, 0, 1), (9, 6, 1), 4))),
    # slots past 2^31
    Case(16, (Call((1, 0), (3, 20), 2),), first_block=200_000_000),
    Case(16, (Call((*range(9, 0, -1),), (*range(40, 13, -3),), 16),), num_rows=24),
    Case(7, (Call((*range(20),), (*range(1, 200, 10),), 24), one(8, 91, 8)), num_rows=24),
    Case(4, (Call((3, 0), (6, 2), 2),), elsewhere=True),
]


def hidden(chance):
    """Up to four calls, in each of which some sequences go on and others begin."""
    for number in range(20):
        block_size = chance.choice((1, 2, 3, 4, 6, 7, 16))
        num_rows = chance.randint(1, 2 + number // 2)
        lengths, calls = [0] * num_rows, []
        for _ in range(1 + number % 4):
            rows = chance.sample(range(num_rows), chance.randint(1, num_rows))
            for row in rows:
                new = block_size * chance.randint(1, 5) + chance.choice((-1, 0, 1, 2))
                lengths[row] = chance.choice((lengths[row] + 1, max(1, new)))
            size = chance.randint(len(rows), num_rows)
            calls.append(Call(tuple(rows), tuple(lengths[row] for row in rows), size))
        spare, after = chance.choice((0, 1, 4)), chance.choice((NO_BLOCK, OLD_BLOCK))
        yield Case(block_size, tuple(calls), num_rows, spare, after)


def size(case):
    lengths = sum(sum(call.lengths) for call in case.calls)
    return sum(call.size for call in case.calls), lengths, case.num_rows


EXERCISE = exercise(
    globals(),
    fill_calls,
    reference=StepState.fill,
    # Most wrong answers may be wrong there too, whatever else is wrong with them.
    chancy=lambda case: case.elsewhere or case.first_block > 0,
)
