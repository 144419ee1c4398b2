"""Exercise 6.7: refuse a bad block table.

Which entries of a row does the kernel read for a context of n tokens? You wrote the expression
in exercise 6.2: the last token is n - 1.

Three questions for each sequence: is its length possible, is its row long enough, and are the
entries that it needs blocks of the pool? Raise at the first no.

`context_lens.tolist()` gives Python numbers. For a row, a slice has the entries that count;
`.tolist()` works there too.
"""

from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import Raised, Text, exercise, raised
from paged_attention.validate import check_block_table

NAMES = ("block_table", "context_lens")
# Errors that an answer raises by accident. Others are compared by the argument that they name.
SLIPS = (NameError, AttributeError, KeyError, ArithmeticError)
TOO_LONG = ("context_lens", "block_table")


@dataclass(frozen=True)
class Case:
    """blame: the argument that an error must name, and what it may name first, if any."""

    table: tuple[tuple[int, ...], ...]
    context_lens: tuple[int, ...]
    blame: tuple[str, ...] = ()
    num_blocks: int = 6
    block_size: int = 4
    table_dtype: torch.dtype = torch.int32


CASES = [
    Case(((2,),), (1,)),
    Case(((5,),), (4,)),
    Case(((2, 0),), (5,)),
    Case(((2, 0),), (8,)),
    Case(((2, -1, -1),), (4,)),
    Case(((-1, -1),), (0,)),
    Case(((3, 6, -7),), (3,)),
    Case(((3, 1, -1),), (3,)),
    Case(((3, 1), (4, -1)), (6, 2)),
    Case(((3, 1), (3, 0)), (7, 8)),
    Case(((0, 1, 2), (-1, -1, -1), (4, 99, 5)), (9, 0, 4)),
    Case(((5, 2, 0, -1),), (3,), block_size=1),
    Case(((16, 3), (0, 9)), (33, 17), num_blocks=17, block_size=17),
    Case(((), ()), (0, 0)),
    # to be refused
    Case(((-1,),), (1,), ("block_table",)),
    Case(((6,),), (1,), ("block_table",)),
    Case(((7,),), (3,), ("block_table",)),
    Case(((-2,),), (2,), ("block_table",)),
    Case(((2, -1),), (5,), ("block_table",)),
    Case(((2, 24),), (8,), ("block_table",)),
    Case(((2, 0), (6, 1)), (3, 5), ("block_table",)),
    Case(((2, 0), (1, -1), (3, 4)), (5, 5, 2), ("block_table",)),
    Case(((2,),), (-1,), ("context_lens",)),
    Case(((2, 1), (3, 0)), (5, -4), ("context_lens",)),
    Case(((2, 1), (3, 0)), (5, -3), ("context_lens",)),
    Case(((2,),), (5,), TOO_LONG),
    Case(((2, 3), (1, 4)), (8, 9), TOO_LONG),
    Case(((),), (1,), TOO_LONG),
    Case(((2, 1),), (2**31 - 1,), TOO_LONG),
    Case(((2, 0), (1, -1)), (5,), NAMES),
    Case(((2, 0),), (5,), ("block_table",), table_dtype=torch.int64),
]


def hidden(chance):
    """Good tables with anything after the blocks in use, and the same with one fault."""
    for number in range(20):
        fault = number % 6  # 0: none
        num_rows, width = chance.randint(1, 5), chance.randint(2, 5)
        block_size, num_blocks = chance.randint(2, 5), chance.randint(3, 5)
        lengths = [chance.randint(fault > 0, block_size * width) for _ in range(num_rows)]
        unused = (-1, num_blocks, -9)
        table = [[chance.choice(unused) for _ in range(width)] for _ in range(num_rows)]
        for row, length in zip(table, lengths, strict=True):
            num_used = -(-length // block_size)
            row[:num_used] = chance.choices(range(num_blocks), k=num_used)
        row, blame = chance.randrange(num_rows), ("block_table",)
        dtype = torch.int32
        if fault == 1:
            last = (lengths[row] - 1) // block_size
            table[row][last] = chance.choice((-1, -2, num_blocks + 9))
        elif fault == 2:
            table[row][0] = num_blocks
        elif fault == 3:
            lengths[row], blame = -chance.randint(1, 9), ("context_lens",)
        elif fault == 4:
            lengths[row], blame = block_size * width + chance.randint(1, 9), TOO_LONG
            table = [chance.choices(range(num_blocks), k=width) for _ in table]
        elif fault == 5:
            lengths, blame = [*lengths, 1], NAMES
        elif number == 12:
            dtype = torch.int64
        else:
            blame = ()
        rows = tuple(map(tuple, table))
        yield Case(rows, tuple(lengths), blame, num_blocks, block_size, dtype)


def observe(answer, case):
    """Whether it is taken or refused, and which argument an error names."""
    block_table = torch.tensor(case.table, dtype=case.table_dtype)
    context_lens = torch.tensor(case.context_lens, dtype=torch.int32)
    before = block_table.clone(), context_lens.clone()
    try:
        result = answer(block_table, context_lens, case.num_blocks, case.block_size)
    except NotImplementedError:
        raise
    except Exception as error:
        return raised(error) if isinstance(error, SLIPS) else Refusal(error, case.blame)
    for name, tensor, copy in zip(NAMES, (block_table, context_lens), before, strict=True):
        if not torch.equal(tensor, copy):
            return Text(f"no error, and {name} has been changed")
    kind = result if isinstance(result, type) else type(result)
    if issubclass(kind, Exception):
        return Text("no error: it returns one, and does not raise it")
    return Text("no error, and returns False" if result is False else "no error")


class Refusal(Raised):
    """An error as a result. A message shows what the error says.

    Two are equal if they name the same argument first.
    """

    def __new__(cls, error, blame):
        told = raised(error)
        refusal = super().__new__(cls, _words(error, blame))
        refusal.message, refusal.where = str(told), told.where
        return refusal

    def __repr__(self):
        if not self.startswith("an error"):
            return self.message
        return f"{self}: {self.message}" if self.endswith("no argument") else str(self)


def _words(error, blame):
    if not isinstance(error, ValueError | TypeError):
        return type(error).__name__
    named = sorted((name for name in NAMES if name in str(error)), key=str(error).index)
    if not named:
        return "an error that names no argument"
    if named[0] in blame and blame[0] in named:
        return f"an error that names {blame[0]}"
    return f"an error that names {named[0]} first"


def size(case):
    """Entries and tokens. Rows without entries come last."""
    num_entries, num_tokens = sum(map(len, case.table)), sum(map(abs, case.context_lens))
    return not num_entries, num_entries, num_tokens


def describe(case):
    dtype = "" if case.table_dtype == torch.int32 else f" ({case.table_dtype})"
    return (
        f"block_table {[list(row) for row in case.table]}{dtype}, "
        f"context_lens {list(case.context_lens)}, "
        f"in a pool of {case.num_blocks} blocks of {case.block_size}"
    )


EXERCISE = exercise(
    globals(),
    answer_name="check_block_table",
)
