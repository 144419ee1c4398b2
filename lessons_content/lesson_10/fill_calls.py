"""Calls that write decode steps into the same tensors, one after the other, for 10.2."""

from dataclasses import dataclass

import torch
from torch import Tensor

OLD_BLOCK = 999  # after a row's last block, left from another sequence
NUM_BLOCKS = 2003  # a prime number, so that steps of 7 reach all of them
TIMES = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class Call:
    """A row whose length does not grow is another sequence's from this call on."""

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Case:
    """Some calls, one after the other, on the same tensors.

    spare: how many columns the table has besides those that the longest sequence needs.
    after: what a row has after its last block.
    first_block: the smallest id that a block has.
    elsewhere: whether the tensors are on another device than the CPU.
    """

    block_size: int
    calls: tuple[Call, ...]
    num_rows: int = 4
    spare: int = 1
    after: int = OLD_BLOCK
    first_block: int = 0
    elsewhere: bool = False

    def num_blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    def tables(self) -> list[Tensor]:
        """The block table at each call. Blocks are given to rows as they need them."""
        longest = max(length for call in self.calls for length in call.lengths)
        shape = self.num_rows, self.num_blocks(longest) + self.spare
        table = torch.full(shape, self.after, dtype=torch.int32)
        known, given, tables = [0] * self.num_rows, 0, []
        for call in self.calls:
            for row, length in zip(call.rows, call.lengths, strict=True):
                first = self.num_blocks(known[row]) if length > known[row] else 0
                for column in range(first, self.num_blocks(length)):
                    table[row, column] = self.first_block + 7 * given % NUM_BLOCKS
                    given += 1
                known[row] = length
            tables.append(table.clone())
        return tables

    def tokens(self, number: int) -> list[int]:
        """Of a call: in the first one, row 3 feeds the token 103."""
        return [100 * (number + 1) + row for row in self.calls[number].rows]

    def given(self, number: int) -> dict[str, list[int]]:
        """A call's lists."""
        call = self.calls[number]
        return {
            "rows": [*call.rows],
            "tokens": self.tokens(number),
            "lengths": [*call.lengths],
        }

    def when(self, number: int) -> str:
        return f"after the {TIMES[number]} call, " if len(self.calls) > 1 else ""
