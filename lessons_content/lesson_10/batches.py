"""Calls that move batches of sequences one token on, and what each does, for 10.3."""

import random
from dataclasses import dataclass

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import changed
from lessons_content.exercises.naming_words import listed
from lessons_content.lesson_10 import named_numbers
from lessons_content.lesson_10.named_numbers import NOT_WRITTEN, short
from paged_attention.pool.block_table import NO_BLOCK

PADDING = -1
OLD_BLOCK = 9999  # after a row's last block, left from another sequence
BATCH = ("tokens", "positions", "context_lens", "slots")


@dataclass(frozen=True)
class Case:
    """Some calls, one after the other. Before each, every sequence has a new token.

    lengths: by row of the block table.
    batches: for each call the rows of its batch.
    spare_blocks: entries of each row after the last block that its calls need.
    after: what these hold.
    first_block: the smallest id that a block has.
    """

    lengths: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    block_size: int
    spare_blocks: int = 1
    after: int = NO_BLOCK
    first_block: int = 0

    @property
    def width(self) -> int:
        """max_blocks_per_seq."""
        return max(map(self.num_blocks, range(len(self.lengths)))) + self.spare_blocks

    def num_blocks(self, row: int) -> int:
        """That a sequence has after all calls."""
        length = self.lengths[row] + sum(row in batch for batch in self.batches)
        return -(-length // self.block_size)

    def block_table(self) -> torch.Tensor:
        """Row r has shuffled blocks from 10 r on; from 1000 r on if a row is long."""
        table = torch.full((len(self.lengths), self.width), self.after, dtype=torch.int32)
        step = 10 if self.width <= 10 else 1000
        for row in range(len(self.lengths)):
            first, count = self.first_block + step * row, self.num_blocks(row)
            blocks = random.Random(row).sample(range(first, first + step), count)
            table[row, :count] = torch.tensor(blocks, dtype=torch.int32)
        return table

    def last_tokens(self, call: int) -> list[int]:
        return [1000 * (call + 1) + row for row in range(len(self.lengths))]

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of AdvanceParams, before the first call."""
        num_places = max(map(len, self.batches))

        def batch(dtype, *more):
            return torch.full((num_places, *more), NOT_WRITTEN, dtype=dtype)

        return dict(
            last_tokens=torch.zeros(len(self.lengths), dtype=torch.int64),
            lengths=torch.tensor(self.lengths, dtype=torch.int32),
            block_table=self.block_table(),
            rows=torch.full((num_places,), PADDING, dtype=torch.int32),
            tokens=batch(torch.int64),
            positions=batch(torch.int64),
            slots=batch(torch.int64),
            context_lens=batch(torch.int32),
            batch_table=batch(torch.int32, self.width),
        )


def advance(num_seqs, max_blocks_per_seq, block_size, **tensors):
    """As the kernel, one sequence after the other."""
    lengths, table = tensors["lengths"], tensors["block_table"]
    for seq, row in enumerate(tensors["rows"][:num_seqs].tolist()):
        numbers = 0, 0, 0, -1
        if row >= 0:
            position = int(lengths[row])
            block, offset = divmod(position, block_size)
            slot = int(table[row, block]) * block_size + offset
            numbers = int(tensors["last_tokens"][row]), position, position + 1, slot
            tensors["batch_table"][seq, : block + 1] = table[row, : block + 1]
            lengths[row] += 1
        for name, number in zip(BATCH, numbers):
            tensors[name][seq] = number


def size(case):
    return sum(map(len, case.batches)), sum(case.lengths), case.width * len(case.lengths)


def describe(case):
    batches = listed(map(short, case.batches))
    calls = "1 call, rows" if len(case.batches) == 1 else f"{len(case.batches)} calls, rows"
    given = listed(short(case.last_tokens(call)) for call in range(len(case.batches)))
    table = case.block_table()
    return (
        f"{calls} {batches}; lengths {short(case.lengths)}; last_tokens {given}; "
        f"block_size {case.block_size}; block_table {tuple(table.shape)} "
        f"{short(list(map(short, table.tolist())))}"
    )


INPUTS = ("last_tokens", "rows", "block_table")


def prepare(answer):
    library = kernels.build(answer)

    def advance_checked(**arguments):
        with kernels.on_stream(library, kernels.STREAM):
            kernels.with_misplaced_barriers(lambda: library.advance(**arguments), answer)

    return advance_checked


def observe(subject, case):
    """What the tensors hold after each call, as (name, numbers)."""
    tensors, lengths, found = case.tensors(), list(case.lengths), []
    sizes = dict(max_blocks_per_seq=case.width, block_size=case.block_size)
    for call, rows in enumerate(case.batches):
        tensors["last_tokens"][:] = torch.tensor(case.last_tokens(call))
        tensors["rows"][: len(rows)] = torch.tensor(rows, dtype=torch.int32)
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        try:
            subject(**tensors, num_seqs=len(rows), **sizes)
        except kernels.KernelError as error:
            is_race = kernels.kind_of(error) in ("several-writers", "order")
            return kernels.Finding(error, ("batch_table",) if is_race else tuple(tensors))
        when = f" after call {call + 1}" if len(case.batches) > 1 else ""
        found += [(name + when, tensors[name].tolist()) for name in BATCH]
        for place, blocks in enumerate(tensors["batch_table"]):
            if place < len(rows) and (row := rows[place]) != PADDING:
                used = lengths[row] // case.block_size + 1
                found.append((f"batch_table[{place}]{when}", blocks[:used].tolist()))
                lengths[row] += 1
            else:
                written = blocks[blocks != before["batch_table"][place]].tolist()
                found.append((f"numbers written to batch_table[{place}]{when}", written))
        found.append((f"lengths{when}", tensors["lengths"].tolist()))
        inputs = {name: before[name] for name in INPUTS}
        found.append((f"inputs that were changed{when}", changed(inputs, tensors)))
    return found


def show(expected, actual):
    if not isinstance(actual, list):
        return kernels.NO_FAULT, repr(actual)
    return named_numbers.show(expected, actual)
