"""Exercise 5.3: four tensors for any batch.

What does manager.get(seq_id) know? Its row says where the blocks are, its length how many keys
there are.

Rows in batch order: index the manager's table with a list of rows. The index keeps the dtype.

A sequence with length n that computes its last m tokens has them at the places n - m to n - 1.
Which function of lesson 02 turns places into slots?
"""

from dataclasses import replace

import torch

from lessons_content.exercises.kit import Text, counted, exercise, tensors
from lessons_content.exercises.pools import lengths_of, make_free
from lessons_content.exercises.second_device import SECOND, SecondDevice
from paged_attention.attention.metadata import build_metadata
from paged_attention.pool.kv_cache import PagedAttentionManager

OWN = Text("a block_table of its own")
VIEW = Text("a block_table that is a view of the manager's, and changes when that does")
NAMES = ("cu_seqlens_q", "seq_lens_kv", "block_table", "slot_mapping")


# (block size, length of each sequence, the order in which they got their rows, the batch); no
# sequence has the last row
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
CASES += [
    ON_A_DEVICE,
    # bad input
    (4, {0: 6, 1: 3}, [0, 1], [(0, 1), (1, 1), (0, 1)]),
    (4, {0: 6, 1: 3}, [0, 1], [(1, 1), (0, 0)]),
    (4, {0: 6, 1: 3}, [0, 1], [(1, 4)]),
    (4, {0: 6}, [0], []),
]


def hidden(chance):
    """Any sequences, some of them in the batch; then too many or too few tokens for one."""
    for number in range(14):
        block_size = chance.randint(1, 9)
        more = 0, 0, 1, block_size - 1
        seq_ids = chance.sample(range(20), 1 + number // 3)
        lengths = [block_size * chance.randint(1, 3) + chance.choice(more) for _ in seq_ids]
        by_id, batch = dict(zip(seq_ids, lengths, strict=True)), []
        num_seqs = chance.randint((number + 3) // 6, len(seq_ids)) or 1
        for seq_id in chance.sample(seq_ids, num_seqs):
            length = by_id[seq_id]
            batch.append((seq_id, chance.choice((1, chance.randint(1, length), length))))
        if number >= 12:
            seq_id, _ = batch[-1]
            wrong = by_id[seq_id] + chance.randint(1, 9), -chance.randint(0, 9)
            batch[-1] = seq_id, wrong[number - 12]
        yield block_size, by_id, chance.sample(seq_ids, len(seq_ids)), batch


def is_bad(case):
    by_id, batch = case[1], case[3]
    fits = all(1 <= num_tokens <= by_id[seq_id] for seq_id, num_tokens in batch)
    return len(dict(batch)) < max(1, len(batch)) or not fits


def make_manager(case):
    block_size, by_id, order, _, *device = case
    sizes = {"num_kv_heads": 1, "head_size": 1, "max_num_seqs": 6, "max_blocks_per_seq": 8}
    where = {"device": device[0]} if device else {}
    manager = PagedAttentionManager(24, block_size, **sizes, **where)
    generator = torch.Generator().manual_seed(block_size)
    make_free(manager, torch.randperm(24, generator=generator).tolist())
    manager.add_sequence("first", 2)
    for seq_id in order:
        manager.add_sequence(seq_id, by_id[seq_id])
    manager.free_sequence("first")
    manager.kv_cache.fill_(1.0)
    return manager


def observe(answer, case):
    """The four tensors, and whether the table is a copy; or in words what else was done."""
    if case == ON_A_DEVICE:
        return devices(answer, case)
    manager, scheduled = make_manager(case), list(case[3])
    before = state(manager)
    try:
        result = answer(manager, scheduled)
    except ValueError:
        if is_bad(case):
            return Text("a ValueError")
        raise
    if scheduled != case[3]:
        return Text("the list of the batch has been changed")
    for name, now in state(manager).items():
        if now != before[name]:
            change = f"{name} changed from {before[name]} to {now}"
            return Text(f"the manager has been changed: {change}")
    if not all(hasattr(result, name) for name in NAMES):
        return Text(f"{type(result).__name__} instead of a BatchMetadata")
    parts = tuple(getattr(result, name) for name in NAMES)
    found = tensors.values(parts, *NAMES)
    if isinstance(found, Text):
        return found
    manager.block_table.fill_(-5)
    manager.table.cpu.fill_(-5)
    return *found, OWN if torch.equal(parts[2], found[2].tensor) else VIEW


def devices(answer, case):
    """Which tensors are on the CPU although the manager's are not."""
    with SecondDevice():
        result = answer(make_manager(case), list(case[3]))
        stayed = [name for name in NAMES if getattr(result, name).device != SECOND]
    return Text(f"on the CPU: {', '.join(stayed)}" if stayed else f"all four on {SECOND}")


def state(manager):
    """Everything in the manager that a learner's function could change."""
    return {
        "the lengths of its sequences": lengths_of(manager),
        "its rows": {name: each.row for name, each in manager.sequences.items()},
        "its free blocks": manager.block_manager.get_num_free_blocks(),
        "its table": manager.block_table.tolist(),
        "its table on the CPU": manager.table.cpu.tolist(),
        "the sum of its pool": float(manager.kv_cache.abs().sum()),
    }


def size(case):
    """Tokens, sequences, new tokens."""
    return sum(case[1].values()), len(case[1]), sum(num_new for _, num_new in case[3])


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


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="build_metadata",
    # Other mistakes keep their names, with the check and without it.
    chancy=lambda case: case == ON_A_DEVICE or is_bad(case),
    points=2,
)
