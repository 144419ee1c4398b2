"""Calls that write decode steps into the same tensors, one after the other, for 10.2."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lessons_content.exercises.kit import Text, changed
from lessons_content.lesson_10 import named_numbers, step_tensors
from lessons_content.lesson_10.named_numbers import MOST_SHOWN, in_words, short
from lessons_content.lesson_10.watch import HostRead
from paged_attention.engine.fast.state import PADDING

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


def observe(answer, case):
    """What a recorded step sees after each call, as (name, numbers)."""
    tables = case.tables()
    if case.elsewhere:
        given = *case.given(0).values(), case.calls[0].size
        error = step_tensors.on_a_device(answer, tables[0], case.block_size, *given)
        return error or Text("no error")
    state, found = step_tensors.BareState(tables[0].clone(), case.block_size), []
    step = step_tensors.RecordedStep(state)
    for number, (call, table) in enumerate(zip(case.calls, tables)):
        state.table.copy_(table)
        before, others = step.sees(), step.others()
        given = case.given(number)
        if error := step_tensors.error_of(answer, state, *given.values(), call.size):
            return error
        if replaced := step.replaced(case.when(number)):
            return replaced
        seen = [*seen_in(case, call, before, step.sees())]
        names = changed(others, step.others())
        if noted(call, others["rows"]) == state.rows.tolist():  # set_rows() was called
            names = [name for name in names if name != "rows"]
        seen.append(("changed tensors", words_for([f"self.{name}" for name in names])))
        seen.append(("changed lists", words_for(changed(case.given(number), given))))
        found += [(case.when(number) + name, numbers) for name, numbers in seen]
    return found


def seen_in(case, call, before, seen):
    """(name, numbers) of all that a recorded step sees of a call.

    The blocks of padding, and entries after a row's last block, may be anything.
    """
    for name, tensor in seen.items():
        if name != "block_table":
            yield name, tensor[: call.size].tolist()
    for place, length in enumerate(call.lengths):
        blocks = seen["block_table"][place, : case.num_blocks(length)]
        yield f"block_table[{place}]", blocks.tolist()
    same = [before[name][call.size :].equal(seen[name][call.size :]) for name in seen]
    yield f"the places from [{call.size}] on", Text("as before" if all(same) else "changed")


def noted(call, rows: list[int]) -> list[int]:
    """`rows` of a state, after set_rows()."""
    padding = [PADDING] * (call.size - len(call.rows))
    return [*call.rows, *padding, *rows[call.size :]]


def words_for(names: list[str]) -> Text:
    return step_tensors.Changed(", ".join(names)) if names else Text("none")


def show(expected, actual):
    """The first numbers that differ."""
    if isinstance(actual, step_tensors.Replaced):
        ours = [pair for pair in expected if pair[0].startswith(actual.when + actual.name)]
        sees = f", and the recorded step sees {in_words(*ours[0], ours[0][1])}" if ours else ""
        return f"the same tensor{sees}", str(actual)
    if not isinstance(actual, list):
        reads = isinstance(actual, HostRead)
        return "nothing is read on the host" if reads else "no error", str(actual)
    return named_numbers.show(expected, actual)


def describe(case):
    calls, tables = [], case.tables()
    for number, (call, table) in enumerate(zip(case.calls, tables)):
        blocks = [
            f"{row}: {short(table[row, : case.num_blocks(length)].tolist())}"
            for row, length in zip(call.rows[:MOST_SHOWN], call.lengths)
        ]
        calls.append(
            f"fill(rows={short(call.rows)}, tokens={short(case.tokens(number))}, "
            f"lengths={short(call.lengths)}, size={call.size}) "
            f"with the blocks of row {', '.join(blocks)}"
        )
    where = ", on a GPU" if case.elsewhere else ""
    shape = tuple(tables[0].shape)
    return f"blocks of {case.block_size}, table {shape}{where}; {'; then '.join(calls)}"
