"""Exercise 5.3: the four tensors of a batch."""

import random
from dataclasses import replace

import torch

from lessons_exercises import tensors
from lessons_exercises.second_device import SECOND, SecondDevice
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.metadata import BatchMetadata, build_metadata, cumulative_lengths
from paged_attention.slots import slot_mapping

OWN = Text("a block_table of its own")
VIEW = Text("a block_table that is a view of the manager's, and changes when that does")
NAMES = ("cu_seqlens_q", "seq_lens_kv", "block_table", "slot_mapping")


def int32(numbers):
    return torch.tensor(list(numbers), dtype=torch.int32)


def lengths(manager, scheduled):
    return [manager.get(seq_id).length for seq_id, _ in scheduled]


def slots_at(manager, scheduled, positions):
    """The slots of `positions(length, num_tokens)` of each sequence."""
    result = []
    for seq_id, num_tokens in scheduled:
        row = manager.get_block_table_for_seq(seq_id)
        result += [
            int(row[position // manager.block_size]) * manager.block_size
            + position % manager.block_size
            for position in positions(manager.get(seq_id).length, num_tokens)
        ]
    return torch.tensor(result)


def changed(**changes):
    """A wrong answer that is right but for some of the tensors.

    `changes`: their names, and functions that make them.
    """

    def wrong(manager, scheduled):
        return replace(
            build_metadata(manager, scheduled),
            **{name: make(manager, scheduled) for name, make in changes.items()},
        )

    return wrong


def batch_reordered(manager, scheduled):
    return build_metadata(
        manager, sorted(scheduled, key=lambda pair: manager.get(pair[0]).row)
    )


def rows_of_ids(manager, scheduled):
    return manager.block_table[[seq_id for seq_id, _ in scheduled]]


def slots_in_rows_of_ids(manager, scheduled):
    return torch.cat(
        [
            slot_mapping(
                row,
                torch.arange(
                    manager.get(seq_id).length - num_tokens, manager.get(seq_id).length
                ),
                manager.block_size,
            )
            for row, (seq_id, num_tokens) in zip(
                rows_of_ids(manager, scheduled), scheduled, strict=True
            )
        ]
    )


def first_rows(manager, scheduled):
    return manager.block_table[: len(scheduled)].clone()


def slots_in_first_rows(manager, scheduled):
    return torch.cat(
        [
            slot_mapping(
                row,
                torch.arange(
                    manager.get(seq_id).length - num_tokens, manager.get(seq_id).length
                ),
                manager.block_size,
            )
            for row, (seq_id, num_tokens) in zip(
                first_rows(manager, scheduled), scheduled, strict=True
            )
        ]
    )


def used_columns(manager, scheduled):
    table = build_metadata(manager, scheduled).block_table
    return table[:, : max(len(manager.blocks_of(seq_id)) for seq_id, _ in scheduled)]


def view_of_one_row(manager, scheduled):
    table = build_metadata(manager, scheduled).block_table
    row = manager.get(scheduled[0][0]).row
    return table if len(scheduled) > 1 else manager.block_table[row : row + 1]


def rows_between(manager, scheduled):
    """The manager's rows from that of the batch's first sequence to that of its last."""
    first, last = (manager.get(scheduled[index][0]).row for index in (0, -1))
    return manager.block_table[first : last + 1]


def positions_as(kind):
    """slot_mapping() gets the positions as a Python list or the like."""

    def slots(manager, scheduled):
        return torch.cat(
            [
                slot_mapping(
                    manager.get_block_table_for_seq(seq_id),
                    kind(range(manager.get(seq_id).length)[-num_tokens:]),
                    manager.block_size,
                )
                for seq_id, num_tokens in scheduled
            ]
        )

    return changed(slot_mapping=slots)


def name_shadowed(manager, scheduled):
    slot_mapping = []
    for seq_id, num_tokens in scheduled:
        length = manager.get(seq_id).length
        row = manager.get_block_table_for_seq(seq_id)
        slot_mapping.append(
            slot_mapping(row, torch.arange(length - num_tokens, length), manager.block_size)
        )
    return torch.cat(slot_mapping)


def name_shadowed_in_a_list(manager, scheduled):
    slot_mapping = torch.cat(
        [
            slot_mapping(
                manager.get_block_table_for_seq(seq_id),
                torch.arange(num_tokens),
                manager.block_size,
            )
            for seq_id, num_tokens in scheduled
        ]
    )
    return slot_mapping


def name_shadowed_in_a_generator(manager, scheduled):
    slot_mapping = torch.cat(
        list(
            slot_mapping(
                manager.get_block_table_for_seq(seq_id),
                torch.arange(num_tokens),
                manager.block_size,
            )
            for seq_id, num_tokens in scheduled
        )
    )
    return slot_mapping


def name_shadowed_in_a_loop(manager, scheduled):
    for seq_id, num_tokens in scheduled:
        row = manager.get_block_table_for_seq(seq_id)
        slot_mapping = slot_mapping(row, torch.arange(num_tokens), manager.block_size)
    return slot_mapping


def name_shadowed_by_a_tensor(manager, scheduled):
    slot_mapping = torch.empty(0)
    for seq_id, num_tokens in scheduled:
        row = manager.get_block_table_for_seq(seq_id)
        slot_mapping = torch.cat(
            [slot_mapping, slot_mapping(row, torch.arange(num_tokens), manager.block_size)]
        )
    return slot_mapping


def row_number_for_block_ids(manager, scheduled):
    return torch.cat(
        [
            slot_mapping(manager.get(seq_id).row, torch.arange(num_tokens), manager.block_size)
            for seq_id, num_tokens in scheduled
        ]
    )


def places_in_the_batch(manager, scheduled):
    starts = cumulative_lengths([num_tokens for _, num_tokens in scheduled]).tolist()
    return torch.cat(
        [
            slot_mapping(
                manager.get_block_table_for_seq(seq_id),
                torch.arange(start, end),
                manager.block_size,
            )
            for (seq_id, _), start, end in zip(scheduled, starts[:-1], starts[1:], strict=True)
        ]
    )


def as_a_list(name):
    """One of the four is a list of numbers or of tensors."""
    return changed(
        **{
            name: lambda manager, scheduled: list(
                getattr(build_metadata(manager, scheduled), name)
            )
        }
    )


def rows_without_padding(manager, scheduled):
    return torch.tensor(
        [manager.blocks_of(seq_id) for seq_id, _ in scheduled], dtype=torch.int32
    )


def on_the_cpu(*names):
    """These tensors are made on the CPU and stay there."""

    def stay(name):
        return lambda manager, scheduled: getattr(
            build_metadata(manager, scheduled), name
        ).cpu()

    return changed(**{name: stay(name) for name in names})


def places_on_the_cpu(manager, scheduled):
    return torch.cat(
        [
            slot_mapping(
                manager.get_block_table_for_seq(seq_id),
                torch.arange(manager.get(seq_id).length)[-num_tokens:],
                manager.block_size,
            )
            for seq_id, num_tokens in scheduled
        ]
    )


def tuple_returned(manager, scheduled):
    result = build_metadata(manager, scheduled)
    return tuple(getattr(result, name) for name in NAMES)


def appends_itself(manager, scheduled):
    manager.append_tokens(scheduled)
    return build_metadata(manager, scheduled)


def check_deleted(manager, scheduled):
    starts = [0]
    for _, num_tokens in scheduled:
        starts.append(starts[-1] + num_tokens)
    slots = slots_at(
        manager, scheduled, lambda length, num_tokens: range(length - num_tokens, length)
    )
    rows = [manager.get(seq_id).row for seq_id, _ in scheduled]
    made = (
        int32(starts),
        int32(lengths(manager, scheduled)),
        manager.block_table[rows],
        slots,
    )
    return BatchMetadata(*(tensor.to(manager.block_table.device) for tensor in made))


def fields_swapped(manager, scheduled):
    right = build_metadata(manager, scheduled)
    return replace(right, cu_seqlens_q=right.seq_lens_kv, seq_lens_kv=right.cu_seqlens_q)


def numbers_of_blocks(manager, scheduled):
    return int32(len(manager.blocks_of(seq_id)) for seq_id, _ in scheduled)


def previous_lengths(manager, scheduled):
    before = [
        length - num_tokens
        for length, (_, num_tokens) in zip(lengths(manager, scheduled), scheduled, strict=True)
    ]
    return int32(before)


# (block size, length of each sequence, the order in which they got their rows, the batch); the
# last row is nobody's
CASES = [
    (4, {0: 1}, [0], [(0, 1)]),
    (4, {0: 3}, [0], [(0, 3)]),
    (4, {0: 3}, [0], [(0, 1)]),
    (4, {0: 6}, [0], [(0, 1)]),
    (4, {0: 6}, [0], [(0, 3)]),
    (4, {0: 8, 1: 5}, [0, 1], [(0, 1), (1, 2)]),
    (4, {0: 4, 1: 9}, [1, 0], [(0, 4), (1, 1)]),
    (2, {0: 5, 1: 4, 2: 3}, [2, 0, 1], [(1, 1), (0, 2)]),
    (1, {0: 3, 1: 2}, [1, 0], [(1, 2), (0, 1)]),
    (3, {5: 7, 2: 6, 9: 1, 4: 4}, [9, 4, 5, 2], [(2, 6), (9, 1), (5, 3)]),
    (16, {0: 16, 1: 17, 2: 33, 3: 1}, [3, 1, 0, 2], [(2, 17), (0, 16), (3, 1), (1, 1)]),
]
ON_A_DEVICE = (4, {0: 6, 1: 3}, [1, 0], [(1, 2), (0, 1)], SECOND)
BAD_INPUT = [
    (4, {0: 6, 1: 3}, [0, 1], [(0, 1), (1, 1), (0, 1)]),
    (4, {0: 6, 1: 3}, [0, 1], [(1, 1), (0, 0)]),
    (4, {0: 6, 1: 3}, [0, 1], [(1, 4)]),
    (4, {0: 6}, [0], []),
]


def hidden(seed):
    """Any sequences, some of them in the batch.

    Then a batch with a number of tokens that its sequence has not.
    """
    chance = random.Random(seed)
    for number in range(14):
        block_size = chance.randint(1, 9)
        seq_ids = chance.sample(range(20), 1 + number // 3)
        by_id = {
            seq_id: (
                block_size * chance.randint(1, 3) + chance.choice((0, 0, 1, block_size - 1))
            )
            for seq_id in seq_ids
        }
        batch = [
            (seq_id, chance.choice((1, chance.randint(1, by_id[seq_id]), by_id[seq_id])))
            for seq_id in chance.sample(
                seq_ids, chance.randint((number + 3) // 6, len(seq_ids)) or 1
            )
        ]
        if number >= 12:
            seq_id = batch[-1][0]
            wrong = by_id[seq_id] + chance.randint(1, 9), -chance.randint(0, 9)
            batch[-1] = seq_id, wrong[number - 12]
        yield block_size, by_id, chance.sample(seq_ids, len(seq_ids)), batch


def is_bad(case):
    _, by_id, _, batch, *_ = case
    return len(dict(batch)) < max(1, len(batch)) or any(
        not 1 <= num_tokens <= by_id[seq_id] for seq_id, num_tokens in batch
    )


def make_manager(case):
    block_size, by_id, order, _, *device = case
    manager = PagedAttentionManager(
        num_blocks=24,
        block_size=block_size,
        num_kv_heads=1,
        head_size=1,
        max_num_seqs=6,
        max_blocks_per_seq=8,
        device=device[0] if device else "cpu",
    )
    taken = [manager.block_manager.allocate() for _ in range(24)]
    for index in torch.randperm(
        24, generator=torch.Generator().manual_seed(block_size)
    ).tolist():
        manager.block_manager.free(taken[index])
    manager.add_sequence("first", 2)
    for seq_id in order:
        manager.add_sequence(seq_id, by_id[seq_id])
    manager.free_sequence("first")
    manager.kv_cache.fill_(1.0)
    return manager


def observe(answer, case):
    """The four tensors, and whether the table is a copy.

    Or in words what else the call did.
    """
    if case == ON_A_DEVICE:
        return devices(answer, case)
    manager, scheduled = make_manager(case), list(case[3])
    before = state(manager)
    try:
        result = answer(manager, scheduled)
    except (ValueError, IndexError, RuntimeError) as error:
        if is_bad(case) and not isinstance(error, NotImplementedError):
            return Text(f"{type(error).__name__}")
        raise
    changes = [
        f"{name} changed from {before[name]} to {now}"
        for name, now in state(manager).items()
        if now != before[name]
    ]
    if scheduled != case[3]:
        return Text("the list of the batch has been changed")
    if changes:
        return Text(f"the manager has been changed: {changes[0]}")
    if not all(hasattr(result, name) for name in NAMES):
        return Text(f"{type(result).__name__} in place of a BatchMetadata")
    parts = tuple(getattr(result, name) for name in NAMES)
    found = tensors.values(parts, *NAMES)
    if isinstance(found, Text):
        return found
    manager.block_table.fill_(-5)
    manager.table.cpu.fill_(-5)
    return *found, OWN if torch.equal(parts[2], found[2].tensor) else VIEW


def devices(answer, case):
    """Which tensors are on the CPU although the manager's are not, or how it failed."""
    with SecondDevice():
        try:
            result = answer(make_manager(case), list(case[3]))
        except RuntimeError as error:
            return Text(f"{type(error).__name__}: {error}")
        stayed = [name for name in NAMES if getattr(result, name).device != SECOND]
    return Text(f"on the CPU: {', '.join(stayed)}" if stayed else f"all four on {SECOND}")


def state(manager):
    """Everything in the manager that a learner's function could change."""
    return {
        "the lengths of its sequences": {
            seq_id: sequence.length for seq_id, sequence in manager.sequences.items()
        },
        "its rows": {seq_id: sequence.row for seq_id, sequence in manager.sequences.items()},
        "its free blocks": manager.block_manager.get_num_free_blocks(),
        "its table": manager.block_table.tolist(),
        "its table on the CPU": manager.table.cpu.tolist(),
        "the sum of its pool": float(manager.kv_cache.abs().sum()),
    }


def describe(case):
    block_size, by_id, order, scheduled, *device = case
    manager = make_manager(case[:4])
    sequences = ", ".join(
        f"sequence {seq_id} with {counted(by_id[seq_id], 'token')} "
        f"in row {manager.get(seq_id).row}, blocks {manager.blocks_of(seq_id)}"
        for seq_id in order
    )
    where = f"a manager on a GPU, {device[0]} (played by the CPU); " if device else ""
    return f"{where}blocks of {block_size}; {sequences}; build_metadata(manager, {scheduled})"


EXERCISE = Exercise(
    id="5.3",
    title="four tensors for any batch",
    answer_name="build_metadata",
    reference=build_metadata,
    cases=lambda: [*CASES, ON_A_DEVICE, *BAD_INPUT],
    size=lambda case: (
        sum(case[1].values()),
        len(case[1]),
        sum(num_new for _, num_new in case[3]),
    ),
    hidden=hidden,
    observe=observe,
    describe=describe,
    # Other mistakes keep their names, whether the check stands in them or not.
    chancy=lambda case: case == ON_A_DEVICE or is_bad(case),
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "table-int64",
            "The block table is int64, and a kernel reads its entries as int32. "
            "PyTorch turns Python's integers into int64 unless you say otherwise; "
            "the manager's own table is int32.",
            changed(
                block_table=lambda manager, scheduled: build_metadata(
                    manager, scheduled
                ).block_table.long()
            ),
        ),
        Mistake(
            "whole-table",
            "The block table is the manager's whole table. "
            "The kernel expects row s to belong to sequence s of the batch, "
            "and only the sequences of the batch to be there.",
            changed(block_table=lambda manager, scheduled: manager.block_table.clone()),
            also=(changed(block_table=lambda manager, scheduled: manager.block_table),),
        ),
        Mistake(
            "first-rows",
            "The block table has as many rows as the batch, "
            "and they are the manager's first ones. A sequence's row is where it was put "
            "when it came: look at manager.get(seq_id).row.",
            changed(
                block_table=lambda manager, scheduled: manager.block_table[: len(scheduled)]
            ),
            also=(
                changed(block_table=first_rows),
                changed(block_table=first_rows, slot_mapping=slots_in_first_rows),
            ),
        ),
        Mistake(
            "zero-is-a-block",
            "The block table is padded with 0. "
            "Block 0 is a real block; an entry without a block is -1.",
            changed(
                block_table=lambda manager, scheduled: build_metadata(
                    manager, scheduled
                ).block_table.clamp(min=0)
            ),
        ),
        Mistake(
            "batch-reordered",
            "Each number is right, and they stand in another order than the batch. "
            "The queries lie in the order of `scheduled`, "
            "so all four tensors have to follow it.",
            batch_reordered,
            also=(
                lambda manager, scheduled: build_metadata(manager, sorted(scheduled)),
                lambda manager, scheduled: build_metadata(
                    manager, sorted(scheduled, key=lambda pair: pair[1])
                ),
                lambda manager, scheduled: build_metadata(
                    manager, sorted(scheduled, key=lambda pair: -pair[1])
                ),
            ),
        ),
        Mistake(
            "lengths-before-append",
            "seq_lens_kv counts the tokens that were there before. "
            "The new tokens are keys as well, at least their own: "
            "the manager has made room for them already, and its length includes them.",
            changed(seq_lens_kv=previous_lengths),
        ),
        Mistake(
            "new-tokens-added-twice",
            "seq_lens_kv is too large by the new tokens. "
            "The manager has made room for them already, and its length includes them.",
            changed(
                seq_lens_kv=lambda manager, scheduled: int32(
                    manager.get(seq_id).length + num_tokens for seq_id, num_tokens in scheduled
                )
            ),
        ),
        Mistake(
            "query-lengths-for-keys",
            "seq_lens_kv holds the numbers of queries. "
            "A sequence has a key for each of its tokens, also for those of earlier steps.",
            changed(
                seq_lens_kv=lambda manager, scheduled: int32(
                    num_tokens for _, num_tokens in scheduled
                )
            ),
        ),
        Mistake(
            "lengths-int64",
            "The numbers in seq_lens_kv are right, and their dtype is int64. "
            "It is int32, as in the block table.",
            changed(
                seq_lens_kv=lambda manager, scheduled: torch.tensor(
                    lengths(manager, scheduled)
                )
            ),
        ),
        Mistake(
            "cu-seqlens-of-keys",
            "cu_seqlens_q is summed over the lengths of the sequences. "
            "It describes the rows of q, and q holds the new tokens only.",
            changed(
                cu_seqlens_q=lambda manager, scheduled: cumulative_lengths(
                    lengths(manager, scheduled)
                )
            ),
        ),
        Mistake(
            "fields-swapped",
            "cu_seqlens_q and seq_lens_kv are in each other's place. Without names, "
            "BatchMetadata(…) takes its tensors in the order in which the class lists them.",
            fields_swapped,
        ),
        Mistake(
            "queries-not-summed",
            "cu_seqlens_q holds the numbers of new tokens. It says where each sequence's "
            "queries begin, which depends on all the sequences before it.",
            changed(
                cu_seqlens_q=lambda manager, scheduled: int32(
                    num_tokens for _, num_tokens in scheduled
                )
            ),
            also=(
                changed(
                    cu_seqlens_q=lambda manager, scheduled: int32(
                        [0, *(num_tokens for _, num_tokens in scheduled)]
                    )
                ),
            ),
        ),
        Mistake(
            "key-lengths-summed",
            "seq_lens_kv is a running sum. It holds one length for each sequence, by itself.",
            changed(
                seq_lens_kv=lambda manager, scheduled: cumulative_lengths(
                    lengths(manager, scheduled)
                )
            ),
            also=(
                changed(
                    seq_lens_kv=lambda manager, scheduled: cumulative_lengths(
                        lengths(manager, scheduled)
                    )[1:]
                ),
            ),
        ),
        Mistake(
            "blocks-for-key-lengths",
            "seq_lens_kv holds numbers of blocks. "
            "It counts tokens: the last block may be partly filled.",
            changed(seq_lens_kv=numbers_of_blocks),
        ),
        Mistake(
            "slots-of-all-tokens",
            "slot_mapping has a slot for every token of the sequences. "
            "Only the new ones are written in this step.",
            changed(
                slot_mapping=lambda manager, scheduled: slots_at(
                    manager, scheduled, lambda length, num_tokens: range(length)
                )
            ),
        ),
        Mistake(
            "slots-of-first-tokens",
            "slot_mapping has the slots of each sequence's first tokens. "
            "The new tokens are its last ones; written there, "
            "they would destroy what the sequence began with.",
            changed(
                slot_mapping=lambda manager, scheduled: slots_at(
                    manager, scheduled, lambda length, num_tokens: range(num_tokens)
                )
            ),
        ),
        Mistake(
            "slots-one-too-early",
            "slot_mapping is one token too early: the last new token has no slot, "
            "and one that was written before would be written over. "
            "Of a sequence with 6 tokens, the last has the place 5.",
            changed(
                slot_mapping=lambda manager, scheduled: slots_at(
                    manager,
                    scheduled,
                    lambda length, num_tokens: range(length - num_tokens - 1, length - 1),
                )
            ),
        ),
        Mistake(
            "slots-after-the-end",
            "slot_mapping begins behind the sequence's last token. "
            "The manager has made room for the new tokens already, "
            "and its length includes them: they are the last ones.",
            changed(
                slot_mapping=lambda manager, scheduled: slots_at(
                    manager,
                    scheduled,
                    lambda length, num_tokens: range(length, length + num_tokens),
                )
            ),
        ),
        Mistake(
            "sequence-ids-as-rows",
            "The ids of the sequences are used as rows of the manager's table. A row "
            "is given to a sequence when it comes, and manager.get(seq_id).row says which.",
            changed(block_table=rows_of_ids),
            also=(changed(block_table=rows_of_ids, slot_mapping=slots_in_rows_of_ids),),
        ),
        Mistake(
            "table-cut",
            "The block table ends behind the last column that this batch uses. "
            "Its shape is (num_seqs, max_blocks_per_seq) for every batch.",
            changed(block_table=used_columns),
        ),
        Mistake(
            "view-of-the-table",
            "The numbers are right, and the block table is a view of the manager's: "
            "it changes with it at the next step, while a kernel may still be reading. "
            "Give the batch a table of its own.",
            changed(block_table=view_of_one_row),
        ),
        Mistake(
            "rows-between",
            "The block table is one piece of the manager's, from the first sequence's row "
            "to the last one's. Other sequences may stand in between, "
            "and the batch may have another order than the rows. "
            "A slice is also a view: it changes with the manager's table.",
            changed(block_table=rows_between),
            also=(
                changed(
                    block_table=lambda manager, scheduled: rows_between(
                        manager, scheduled
                    ).clone()
                ),
            ),
        ),
        Mistake(
            "slot-mapping-shadowed",
            "Your function gives the name slot_mapping to a variable of its own. "
            "Then the function slot_mapping of lesson 02 cannot be reached "
            "by that name anywhere in it: use another name.",
            changed(slot_mapping=name_shadowed),
            also=(
                changed(slot_mapping=name_shadowed_in_a_list),
                changed(slot_mapping=name_shadowed_in_a_generator),
                changed(slot_mapping=name_shadowed_in_a_loop),
                changed(slot_mapping=name_shadowed_by_a_tensor),
            ),
        ),
        Mistake(
            "not-a-batch-metadata",
            "The four tensors have to come as one object: BatchMetadata(…), "
            "from the cell above.",
            tuple_returned,
            also=(
                lambda manager, scheduled: list(tuple_returned(manager, scheduled)),
                lambda manager, scheduled: vars(build_metadata(manager, scheduled)),
            ),
        ),
        Mistake(
            "appends-itself",
            "The manager has grown: your function makes room for the tokens once more. "
            "The caller has done that already; here the manager is only read.",
            appends_itself,
        ),
        Mistake(
            "check-deleted",
            "A batch that makes no sense is taken: one that names a sequence twice, "
            "or schedules 0 tokens or more than the sequence has. "
            "The line with check_scheduled, which refuses it, has to stay.",
            check_deleted,
        ),
        Mistake(
            "positions-not-slots",
            "slot_mapping holds the tokens' places in their sequences. "
            "Where that is in the pool, the block table says.",
            changed(
                slot_mapping=lambda manager, scheduled: torch.tensor(
                    [
                        position
                        for seq_id, num_tokens in scheduled
                        for position in range(
                            manager.get(seq_id).length - num_tokens, manager.get(seq_id).length
                        )
                    ]
                )
            ),
        ),
        Mistake(
            "row-number-for-block-ids",
            "slot_mapping() gets the number of a row. It needs what stands in that row "
            "of the block table: the ids of the sequence's blocks.",
            changed(slot_mapping=row_number_for_block_ids),
        ),
        Mistake(
            "positions-not-a-tensor",
            "slot_mapping() gets the positions as a Python list, a tuple or a range. "
            "It divides all of them at once, which a tensor can.",
            positions_as(list),
            also=(positions_as(tuple), positions_as(lambda positions: positions)),
        ),
        Mistake(
            "places-in-the-batch",
            "The new tokens' places are counted through the batch. "
            "slot_mapping() wants them counted in the sequence, from its own first token.",
            changed(slot_mapping=places_in_the_batch),
        ),
        Mistake(
            "one-slot-each",
            "There is one slot for each sequence, that of its last token. "
            "A chunk of a prompt has several new tokens.",
            changed(
                slot_mapping=lambda manager, scheduled: slots_at(
                    manager, scheduled, lambda length, num_tokens: range(length - 1, length)
                )
            ),
        ),
        Mistake(
            "list-for-a-tensor",
            "One of the four is a list. A kernel takes tensors: "
            "torch.tensor() makes one of numbers, torch.cat() one of several tensors.",
            as_a_list("slot_mapping"),
            also=tuple(map(as_a_list, NAMES[:3])),
        ),
        Mistake(
            "rows-without-padding",
            "The block table's rows are the sequences' block ids and nothing behind them. "
            "Rows of different lengths make no tensor: each has max_blocks_per_seq entries, "
            "with -1 behind the blocks.",
            changed(block_table=rows_without_padding),
        ),
        Mistake(
            "stays-on-the-cpu",
            "Tensors that are made from Python's numbers are on the CPU, "
            "and they stay there. A kernel reads all four on the manager's device, "
            "manager.block_table.device.",
            on_the_cpu("cu_seqlens_q"),
            also=(
                on_the_cpu("seq_lens_kv"),
                on_the_cpu("slot_mapping"),
                on_the_cpu("cu_seqlens_q", "seq_lens_kv"),
                on_the_cpu("block_table"),
                on_the_cpu("seq_lens_kv", "slot_mapping"),
                on_the_cpu("cu_seqlens_q", "seq_lens_kv", "slot_mapping"),
                on_the_cpu(*NAMES),
            ),
        ),
        Mistake(
            "two-devices",
            "A tensor on the manager's device meets one on the CPU. torch.arange() "
            "and torch.tensor() make theirs on the CPU, unless they are given a device.",
            changed(slot_mapping=places_on_the_cpu),
        ),
        Mistake(
            "slots-int32",
            "The slots are right, and their dtype is int32. slot_mapping is int64: "
            "it is used as an index, and a large pool has more numbers than int32 can count.",
            changed(
                slot_mapping=lambda manager, scheduled: build_metadata(
                    manager, scheduled
                ).slot_mapping.int()
            ),
        ),
    ),
    hints=(
        (
            "What does manager.get(seq_id) know? "
            "Its row says where the blocks stand, its length how many keys there are."
        ),
        (
            "Rows in batch order: index the manager's table with a list of rows. "
            "The index keeps the dtype."
        ),
        (
            "A sequence with length n that computes its last m tokens has them at the places "
            "n - m to n - 1. Which function of lesson 02 turns places into slots?"
        ),
    ),
)
