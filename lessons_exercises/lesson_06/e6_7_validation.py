"""Exercise 6.7: what a block table must be before a kernel may follow it."""

import random
from dataclasses import dataclass, replace

import torch

from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.validate import check_block_table, check_tensor

NAMES = ("block_table", "context_lens")
TOO_LONG = ("context_lens", "block_table")


@dataclass(frozen=True)
class Case:
    """A table and lengths.

    `blame`: the argument that an error must name, and others that it may name before that one;
    none where all is well.
    """

    table: tuple[tuple[int, ...], ...]
    context_lens: tuple[int, ...]
    blame: tuple[str, ...] = ()
    num_blocks: int = 6
    block_size: int = 4
    table_dtype: torch.dtype = torch.int32


GOOD = [
    Case(((2,),), (1,)),
    Case(((5,),), (4,)),
    Case(((2, 0),), (5,)),
    Case(((2, 0),), (8,)),
    Case(((2, -1, -1),), (4,)),
    Case(((-1, -1),), (0,)),
    Case(((3, 6, -7),), (3,)),
    Case(((3, 1), (4, -1)), (6, 2)),
    Case(((3, 1), (3, 0)), (7, 8)),
    Case(((0, 1, 2), (-1, -1, -1), (4, 99, 5)), (9, 0, 4)),
    Case(((5, 2, 0, -1),), (3,), block_size=1),
    Case(((16, 3), (0, 9)), (33, 17), num_blocks=17, block_size=17),
    Case(((), ()), (0, 0)),
]
BAD = [
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


def hidden(seed):
    """Good tables with anything behind the blocks in use, and the same with one fault."""
    chance = random.Random(seed)
    for number in range(20):
        num_rows, width, block_size, num_blocks = (
            chance.randint(low, 5) for low in (1, 2, 2, 3)
        )
        lengths = [chance.randint(number % 6 > 0, block_size * width) for _ in range(num_rows)]
        table = [
            [chance.choice((-1, num_blocks, -9)) for _ in range(width)]
            for _ in range(num_rows)
        ]
        for row, length in zip(table, lengths, strict=True):
            row[: -(-length // block_size)] = chance.choices(
                range(num_blocks), k=-(-length // block_size)
            )
        row, blame = chance.randrange(num_rows), ("block_table",)
        if number % 6 == 1:
            table[row][(lengths[row] - 1) // block_size] = chance.choice(
                (-1, -2, num_blocks + 9)
            )
        elif number % 6 == 2:
            table[row][0] = num_blocks
        elif number % 6 == 3:
            lengths[row], blame = -chance.randint(1, 9), ("context_lens",)
        elif number % 6 == 4:
            lengths[row], blame = block_size * width + chance.randint(1, 9), TOO_LONG
            table = [chance.choices(range(num_blocks), k=width) for _ in table]
        elif number % 6 == 5:
            lengths, blame = [*lengths, 1], NAMES
        made = Case(
            tuple(map(tuple, table)),
            tuple(lengths),
            blame if number % 6 else (),
            num_blocks,
            block_size,
        )
        yield (
            replace(made, table_dtype=torch.int64, blame=("block_table",))
            if number == 12
            else made
        )


def observe(answer, case):
    """Whether it is taken or refused, and which argument an error names."""
    width = len(case.table[0])
    block_table = torch.tensor(case.table, dtype=case.table_dtype).reshape(
        len(case.table), width
    )
    context_lens = torch.tensor(case.context_lens, dtype=torch.int32)
    before = block_table.clone(), context_lens.clone()
    try:
        result = answer(block_table, context_lens, case.num_blocks, case.block_size)
    except NotImplementedError:
        raise
    except Exception as error:
        return Refusal(error, case.blame)
    for name, tensor, copy in zip(NAMES, (block_table, context_lens), before, strict=True):
        if not torch.equal(tensor, copy):
            return Text(f"no error, and {name} has been changed")
    if (
        isinstance(result, Exception)
        or isinstance(result, type)
        and issubclass(result, Exception)
    ):
        return Text("no error: it returns one, and does not raise it")
    return Text("no error, and returns False" if result is False else "no error")


class Refusal(Text):
    """An error as a result.

    Two are equal when they name the same argument first; the learner sees what it says.
    """

    def __new__(cls, error, blame):
        refusal = super().__new__(cls, _refusal(error, blame))
        last = error.__traceback__
        while (
            last.tb_next
            and last.tb_next.tb_frame.f_code.co_filename == last.tb_frame.f_code.co_filename
            or last.tb_frame.f_code.co_filename == __file__
            and last.tb_next
        ):
            last = last.tb_next
        refusal.message = (
            f"{type(error).__name__}: {error}".rstrip(": ") + f" (line {last.tb_lineno})"
        )
        return refusal

    def __repr__(self):
        if not self.startswith("an error"):
            return self.message
        return f"{self}: {self.message}" if self.endswith("no argument") else str(self)


def _refusal(error, blame):
    if not isinstance(error, ValueError | TypeError):
        return type(error).__name__
    named = sorted((name for name in NAMES if name in str(error)), key=str(error).index)
    if not named:
        return "an error that names no argument"
    right = named[0] in blame and blame[0] in named
    return (
        f"an error that names {blame[0]}" if right else f"an error that names {named[0]} first"
    )


def describe(case):
    dtype = "" if case.table_dtype == torch.int32 else f" ({case.table_dtype})"
    return (
        f"block_table {[list(row) for row in case.table]}{dtype}, "
        f"context_lens {list(case.context_lens)}, "
        f"in a pool of {case.num_blocks} blocks of {case.block_size}"
    )


def blocks_for(context_len, block_size):
    return -(-context_len // block_size)


def check_lengths(block_table, context_lens, block_size):
    for context_len in context_lens.tolist():
        if context_len < 0 or blocks_for(context_len, block_size) > block_table.shape[1]:
            raise ValueError("context_lens")


def with_tensors_checked(check):
    """A model, with the lines that the learner is given in front of it."""

    def model(block_table, context_lens, num_blocks, block_size):
        check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
        check_tensor(
            "block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32
        )
        return check(block_table, context_lens, num_blocks, block_size)

    return model


def entries(is_bad, needed=blocks_for, lengths=check_lengths):
    """The model of an answer that looks at the first entries of each row.

    It looks at `needed` of them, for one that `is_bad`.
    """

    def check(block_table, context_lens, num_blocks, block_size):
        lengths(block_table, context_lens, block_size)
        for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True):
            if any(
                is_bad(entry, num_blocks)
                for entry in row[: max(needed(context_len, block_size), 0)]
            ):
                raise ValueError("block_table")

    return with_tensors_checked(check)


def outside(entry, num_blocks):
    return not 0 <= entry < num_blocks


def everything(context_len, block_size):
    return 1 << 30


def lengths_if(is_bad):
    """The model of lengths that are refused.

    They are where `is_bad(context_len, needed, width, block_size)`.
    """

    def lengths(block_table, context_lens, block_size):
        for context_len in context_lens.tolist():
            if is_bad(
                context_len,
                blocks_for(context_len, block_size),
                block_table.shape[1],
                block_size,
            ):
                raise ValueError("context_lens")

    return entries(outside, lengths=lengths)


@with_tensors_checked
def up_to_minus_one(block_table, context_lens, num_blocks, block_size):
    check_lengths(block_table, context_lens, block_size)
    for row in block_table.tolist():
        if any(
            outside(entry, num_blocks)
            for entry in (row[: row.index(-1)] if -1 in row else row)
        ):
            raise ValueError("block_table")


@with_tensors_checked
def longest_for_all(block_table, context_lens, num_blocks, block_size):
    check_lengths(block_table, context_lens, block_size)
    longest = blocks_for(int(context_lens.max()), block_size)
    if any(
        outside(entry, num_blocks)
        for row in block_table[:, :longest].tolist()
        for entry in row
    ):
        raise ValueError("block_table")


@with_tensors_checked
def first_sequence_only(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table[:1], context_lens[:1], num_blocks, block_size)


@with_tensors_checked
def entries_of_the_first(block_table, context_lens, num_blocks, block_size):
    """All lengths, and the first sequence's entries."""
    check_lengths(block_table, context_lens, block_size)
    check_block_table(block_table[:1], context_lens[:1], num_blocks, block_size)


@with_tensors_checked
def last_entry_alone(block_table, context_lens, num_blocks, block_size):
    check_lengths(block_table, context_lens, block_size)
    for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True):
        if context_len and outside(row[blocks_for(context_len, block_size) - 1], num_blocks):
            raise ValueError("block_table")


@with_tensors_checked
def slots_for_blocks(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table, context_lens, num_blocks * block_size, block_size)


def error_by_accident(lengths):
    """An index in place of a slice.

    Where the row ends, Python or PyTorch raises what it raises.
    """

    def check(block_table, context_lens, num_blocks, block_size):
        for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True):
            lengths(context_len)
            for index in range(blocks_for(context_len, block_size)):
                if outside(row[index], num_blocks):
                    raise ValueError("block_table")

    return with_tensors_checked(check)


def not_negative(context_len):
    if context_len < 0:
        raise ValueError("context_lens")


def largest_of_none(error, together=False, is_bad=outside):
    """min() or max() over a row's entries, of which there may be none.

    together: over those of all rows.
    """

    def check(block_table, context_lens, num_blocks, block_size):
        check_lengths(block_table, context_lens, block_size)
        for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True):
            if context_len == 0 and not (together and context_lens.any()):
                raise error("max() of nothing")
            if any(
                is_bad(entry, num_blocks)
                for entry in row[: blocks_for(context_len, block_size)]
            ):
                raise ValueError("block_table")

    return with_tensors_checked(check)


@with_tensors_checked
def table_repaired(block_table, context_lens, num_blocks, block_size):
    check_lengths(block_table, context_lens, block_size)
    block_table.clamp_(0, num_blocks - 1)


@with_tensors_checked
def no_block_twice(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table, context_lens, num_blocks, block_size)
    used = [
        entry
        for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True)
        for entry in row[: blocks_for(context_len, block_size)]
    ]
    if len(set(used)) < len(used):
        raise ValueError("block_table")


@with_tensors_checked
def garbage_refused(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table, context_lens, num_blocks, block_size)
    if any(not -1 <= entry < num_blocks for row in block_table.tolist() for entry in row):
        raise ValueError("block_table")


@with_tensors_checked
def padding_overwritten(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table, context_lens, num_blocks, block_size)
    for seq, context_len in enumerate(context_lens.tolist()):
        block_table[seq, blocks_for(context_len, block_size) :] = 0


@with_tensors_checked
def contexts_overwritten(block_table, context_lens, num_blocks, block_size):
    check_block_table(block_table, context_lens, num_blocks, block_size)
    context_lens.add_(block_size - 1).floor_divide_(block_size)


def rounded_up_in_32_bits(context_len, block_size):
    return ((context_len + block_size - 1 + 2**31) % 2**32 - 2**31) // block_size


def lengths_in_32_bits(block_table, context_lens, block_size):
    for context_len in context_lens.tolist():
        if (
            context_len < 0
            or rounded_up_in_32_bits(context_len, block_size) > block_table.shape[1]
        ):
            raise ValueError("context_lens")


def refusing_with(refuse, known=check_block_table, blamed=NAMES):
    """The model of an answer that refuses what `known` refuses.

    It refuses in another way where one of `blamed` is at fault.
    """

    def check(block_table, context_lens, num_blocks, block_size):
        try:
            known(block_table, context_lens, num_blocks, block_size)
        except ValueError as error:
            if not any(name in str(error) for name in blamed):
                raise
            return refuse()

    return with_tensors_checked(check)


def in_part(refuse):
    """Forms of refusing_with(refuse).

    For one of the arguments alone, or by an answer that does not see every fault.
    """
    seen = (
        lambda entry, num_blocks: entry >= num_blocks,
        lambda entry, num_blocks: entry < 0,
        lambda entry, num_blocks: False,
    )
    return (
        *(refusing_with(refuse, entries(outside), (name,)) for name in NAMES),
        *(refusing_with(refuse, entries(is_bad)) for is_bad in seen),
        refusing_with(refuse, entries(outside, lengths=lambda *case: None)),
    )


def compared_with(room_of):
    """The model of an answer that compares the contexts with room_of(block_table).

    That is a number of entries for each row.
    """

    def lengths(block_table, context_lens, block_size):
        for context_len, room in zip(
            context_lens.tolist(), room_of(block_table).tolist(), strict=True
        ):
            if context_len < 0 or blocks_for(context_len, block_size) > room:
                raise ValueError("context_lens")

    return entries(outside, lengths=lengths)


def least_of_all(room_of):
    def room_of_all(block_table):
        room = room_of(block_table)
        return room.min().expand(len(room))

    return room_of_all


def not_minus_one(block_table):
    return (block_table != -1).sum(1)


def not_negative_ids(block_table):
    return (block_table >= 0).sum(1)


def number_of_rows(block_table):
    return torch.full((len(block_table),), len(block_table))


def lengths_rounded_down(block_table, context_lens, block_size):
    for context_len in context_lens.tolist():
        if context_len < 0 or context_len // block_size > block_table.shape[1]:
            raise ValueError("context_lens")


def short_rows_blamed(block_table, context_lens, block_size):
    for context_len in context_lens.tolist():
        if context_len < 0:
            raise ValueError("context_lens")
        if blocks_for(context_len, block_size) > block_table.shape[1]:
            raise ValueError("block_table")


def blaming(text):
    def refuse():
        raise ValueError(text)

    return refusing_with(refuse)


def assertion():
    raise AssertionError("block_table")


def without_a_name():
    raise ValueError("an entry is out of range")


def contexts_within_the_pool(block_table, context_lens, num_blocks, block_size):
    if int(context_lens.min()) < 0 or int(context_lens.max()) > num_blocks * block_size:
        raise ValueError("context_lens")
    for row, context_len in zip(block_table.tolist(), context_lens.tolist(), strict=True):
        if any(
            outside(entry, num_blocks) for entry in row[: blocks_for(context_len, block_size)]
        ):
            raise ValueError("block_table")


def without_the_given_lines(block_table, context_lens, num_blocks, block_size):
    for seq, context_len in enumerate(context_lens.tolist()):
        check_block_table(
            block_table[seq : seq + 1].int(),
            context_lens[seq : seq + 1],
            num_blocks,
            block_size,
        )


EXERCISE = Exercise(
    id="6.7",
    title="refuse a bad block table",
    answer_name="check_block_table",
    reference=check_block_table,
    cases=lambda: GOOD + BAD,
    size=lambda case: (sum(map(len, case.table)), sum(map(abs, case.context_lens))),
    hidden=hidden,
    observe=observe,
    describe=describe,
    points=1,
    mistakes=(
        Mistake(
            "no-name-in-the-error",
            "It refuses what is wrong, and the message does not say which argument that was. "
            "Whoever reads it has five tensors to choose from: "
            "write block_table or context_lens into the text.",
            refusing_with(without_a_name),
        ),
        Mistake(
            "returned-not-raised",
            "The error is made, and returned to a caller who does not look at it. "
            "An error has to be raised.",
            refusing_with(lambda: ValueError("block_table")),
        ),
        Mistake(
            "room-of-the-entries-in-use",
            "A context is compared with the number of a row's entries, "
            "and -1 is not counted as one. A row has as many entries as the table is wide. "
            "A -1 where the context needs a block is a fault of block_table.",
            compared_with(not_minus_one),
            also=(
                compared_with(not_negative_ids),
                compared_with(least_of_all(not_minus_one)),
                compared_with(least_of_all(not_negative_ids)),
            ),
        ),
        Mistake(
            "names-the-wrong-argument",
            "The error names an argument that is not at fault, "
            "or names both whatever the fault is. "
            "context_lens is at fault where a length is negative or needs more blocks "
            "than a row has entries, block_table where an entry is no block of the pool.",
            blaming("block_table"),
            also=(
                blaming("context_lens"),
                blaming("block_table or context_lens"),
                blaming("context_lens or block_table"),
                entries(outside, lengths=short_rows_blamed),
            ),
        ),
        Mistake(
            "refuses-padding",
            "A good table is refused for the -1 behind a sequence's blocks. "
            "The kernel reads as many entries of a row as the context has blocks; "
            "those behind are nobody's business.",
            entries(outside, everything),
        ),
        Mistake(
            "longest-context-for-all",
            "A good table is refused: where one sequence is longer than another, "
            "the padding of the shorter one is looked at. Each row has a context of its own.",
            longest_for_all,
        ),
        Mistake(
            "minus-one-accepted",
            "An entry that the context needs is -1, and it is taken. "
            "Behind the context -1 says that there is no block; "
            "within it the kernel would read in front of the pool.",
            entries(lambda entry, num_blocks: not -1 <= entry < num_blocks),
            also=(
                up_to_minus_one,
                entries(lambda entry, num_blocks: not -1 <= entry < num_blocks, everything),
            ),
        ),
        Mistake(
            "garbage-behind-refused",
            "A good table is refused for what stands behind a sequence's blocks, where any "
            "number may be left from before. Look only at the entries that the context needs.",
            garbage_refused,
            also=(entries(lambda entry, num_blocks: entry >= num_blocks, everything),),
        ),
        Mistake(
            "table-not-checked",
            "A table is taken whose entries are no blocks of the pool. "
            "Check those that the context needs.",
            entries(lambda entry, num_blocks: False),
        ),
        Mistake(
            "negative-ids-accepted",
            "An id below 0 is taken. The kernel would multiply it by the size of a block "
            "and read in front of the pool.",
            entries(lambda entry, num_blocks: entry >= num_blocks),
        ),
        Mistake(
            "large-ids-accepted",
            "An id that the pool does not have is taken. "
            "The kernel would read behind the pool.",
            entries(lambda entry, num_blocks: entry < 0),
        ),
        Mistake(
            "one-id-too-many",
            "The id num_blocks is taken. Ids begin at 0: which is the last one?",
            entries(lambda entry, num_blocks: not 0 <= entry <= num_blocks),
        ),
        Mistake(
            "last-block-not-checked",
            "The last block of a context is not looked at when it is not full. "
            "How many blocks do 5 tokens need, in blocks of 4?",
            entries(outside, lambda context_len, block_size: context_len // block_size),
            also=(
                entries(
                    outside,
                    lambda context_len, block_size: context_len // block_size,
                    lengths_rounded_down,
                ),
            ),
        ),
        Mistake(
            "one-block-too-many",
            "One entry too many is looked at, or asked for, when the last block "
            "is exactly full. How many blocks do 4 tokens need, in blocks of 4?",
            entries(outside, lambda context_len, block_size: context_len // block_size + 1),
            also=(
                entries(
                    outside,
                    lambda context_len, block_size: context_len // block_size + 1,
                    lambda block_table, context_lens, block_size: check_lengths(
                        block_table,
                        context_lens + (context_lens % block_size == 0).int(),
                        block_size,
                    ),
                ),
            ),
        ),
        Mistake(
            "refuses-an-empty-context",
            "A context of 0 tokens is refused. "
            "It needs no block, and the kernel's answer to it is zeros.",
            lengths_if(
                lambda context_len, needed, width, block_size: (
                    context_len <= 0 or needed > width
                )
            ),
        ),
        Mistake(
            "negative-context-accepted",
            "A negative context length is taken. No sequence has fewer than 0 tokens.",
            lengths_if(lambda context_len, needed, width, block_size: needed > width),
        ),
        Mistake(
            "context-beyond-the-row",
            "A context is taken that needs more blocks than its row has entries. "
            "The kernel would go on reading in the next sequence's row. "
            "A slice in Python ends quietly where the row ends; it does not tell you.",
            lengths_if(lambda context_len, needed, width, block_size: context_len < 0),
            also=(with_tensors_checked(contexts_within_the_pool),),
        ),
        Mistake(
            "refuses-longer-rows",
            "A good table is refused because its rows are longer than the context needs. "
            "The table is as wide as the longest sequence that the manager allows.",
            lengths_if(
                lambda context_len, needed, width, block_size: (
                    context_len < 0 or needed != width
                )
            ),
        ),
        Mistake(
            "tokens-taken-for-blocks",
            "A good context is refused: its tokens are compared with the number of entries "
            "in a row. An entry is a block.",
            lengths_if(
                lambda context_len, needed, width, block_size: (
                    context_len < 0 or context_len > width
                )
            ),
        ),
        Mistake(
            "contexts-not-checked",
            "The lengths are not looked at. "
            "A context may be negative, or need more blocks than its row has entries. "
            "A slice in Python ends quietly where the row ends; it does not tell you.",
            entries(outside, lengths=lambda *case: None),
        ),
        Mistake(
            "full-row-refused",
            "A good context is refused: it fills its row to the last place, "
            "or needs every entry of it, and has them. How many blocks do 4 tokens need, "
            "in blocks of 4? And if it was check_range(): that takes low … high - 1.",
            lengths_if(
                lambda context_len, needed, width, block_size: (
                    context_len < 0 or needed >= width
                )
            ),
            also=(
                lengths_if(
                    lambda context_len, needed, width, block_size: not 0 <= needed < width
                ),
                lengths_if(
                    lambda context_len, needed, width, block_size: (
                        context_len < 0 or context_len >= width * block_size
                    )
                ),
            ),
        ),
        Mistake(
            "tokens-for-entries",
            "As many entries are looked at as the context has tokens. "
            "An entry is a whole block of tokens.",
            entries(outside, lambda context_len, block_size: context_len),
        ),
        Mistake(
            "last-entry-alone",
            "Of each row only the last entry that the context needs is looked at. "
            "The kernel follows those before it too.",
            last_entry_alone,
        ),
        Mistake(
            "slots-for-blocks",
            "The entries are compared with the number of slots. "
            "An entry is a block, and the pool has num_blocks of them.",
            slots_for_blocks,
        ),
        Mistake(
            "error-by-accident",
            "Where a context is too long for its row, an IndexError comes up by itself. "
            "It names no argument: look at the length first, and raise a ValueError.",
            error_by_accident(not_negative),
            also=(error_by_accident(lambda context_len: None),),
        ),
        Mistake(
            "largest-of-none",
            "A good table is refused, by an error that comes up by itself: "
            "an empty context has no entries, and there is no largest or smallest among none.",
            largest_of_none(RuntimeError),
            also=(
                *map(largest_of_none, (IndexError, TypeError, ValueError)),
                *(
                    largest_of_none(error, together=True)
                    for error in (RuntimeError, IndexError, ValueError)
                ),
                largest_of_none(
                    RuntimeError, is_bad=lambda entry, num_blocks: entry >= num_blocks
                ),
            ),
        ),
        Mistake(
            "first-sequence-only",
            "Only the first sequence is looked at. Each row has entries of its own.",
            first_sequence_only,
            also=(entries_of_the_first,),
        ),
        Mistake(
            "refuses-shared-blocks",
            "A good table is refused because two sequences have the same block. "
            "Forked sequences share blocks; that is what the reference counts are for.",
            no_block_twice,
        ),
        Mistake(
            "padding-overwritten",
            "The table has been changed. A check looks, and leaves everything as it was.",
            padding_overwritten,
            also=(table_repaired,),
        ),
        Mistake(
            "contexts-overwritten",
            "The context lengths have been changed. A check looks, and leaves everything "
            "as it was: work out the numbers of blocks in a tensor of their own.",
            contexts_overwritten,
        ),
        Mistake(
            "rounded-up-past-int32",
            "A context of nearly 2^31 tokens is taken. The tensor has 32 bits: "
            "block_size - 1 added to so large a number gives one below 0. "
            "Look at the lengths first, or round up in another way.",
            entries(outside, rounded_up_in_32_bits, lengths_in_32_bits),
        ),
        Mistake(
            "block-0-refused",
            "A good table is refused: block 0 is a block like any other.",
            entries(lambda entry, num_blocks: not 0 < entry < num_blocks),
        ),
        Mistake(
            "last-block-of-the-pool-refused",
            "A good table is refused: the pool has a block num_blocks - 1. "
            "check_range() takes low … high - 1.",
            entries(lambda entry, num_blocks: not 0 <= entry < num_blocks - 1),
        ),
        Mistake(
            "given-lines-deleted",
            "A table of another dtype, or for another number of sequences, is taken. "
            "The two lines with check_tensor, which refuse it, have to stay.",
            without_the_given_lines,
        ),
        Mistake(
            "rows-for-entries",
            "A context is compared with the number of rows, and there "
            "is one for each sequence. It has to fit into the entries of its own row. "
            "Which dimension of block_table are those?",
            compared_with(number_of_rows),
        ),
        Mistake(
            "every-context-refused",
            "Every context is refused, even one that fits. If it was check_range(): "
            "it takes the smallest number first, and then one more than the largest.",
            lengths_if(lambda *case: True),
        ),
        # Some forms of these two take what they should refuse: the mistakes that say what is
        # taken come first.
        Mistake(
            "assert-in-place-of-raise",
            "An assert refuses the input. Python leaves asserts out when it runs with -O, "
            "and whoever catches ValueError does not catch them: raise a ValueError.",
            refusing_with(assertion),
            also=in_part(assertion),
        ),
        Mistake(
            "returns-a-verdict",
            "It returns False where it should raise. A return value can be overlooked, "
            "and then the kernel is launched: raise a ValueError.",
            refusing_with(lambda: False),
            also=in_part(lambda: False),
        ),
    ),
    hints=(
        (
            "Which entries of a row does the kernel read for a context of n tokens? "
            "You wrote the expression in exercise 6.2: the last token is n - 1."
        ),
        (
            "Three questions for each sequence: is its length possible, "
            "is its row long enough, and are the entries that it needs blocks of the pool? "
            "Raise at the first no."
        ),
        (
            "`context_lens.tolist()` gives Python numbers. "
            "For a row, a slice has the entries that count; `.tolist()` works there too."
        ),
    ),
)
