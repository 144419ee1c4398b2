"""Exercise 1.6: write to a block that may be shared."""

import random
import re

import torch

from lessons_exercises.lesson_01.e1_5_fork import BlockManager
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.block_manager import OutOfBlocksError


def write(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks[index] = block_id = copy_id
    pool[block_id, offset] = value


def writes_into_shared_block(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    pool[blocks[index], offset] = value


def copies_unshared_block(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    copy_id = manager.allocate()
    pool[copy_id] = pool[blocks[index]]
    manager.free(blocks[index])
    blocks[index] = copy_id
    pool[copy_id, offset] = value


def contents_not_copied(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        copy_id = manager.allocate()
        manager.free(blocks[index])
        blocks[index] = copy_id
    pool[blocks[index], offset] = value


def old_block_not_released(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    if manager.get_ref_count(blocks[index]) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[blocks[index]]
        blocks[index] = copy_id
    pool[blocks[index], offset] = value


def list_not_updated(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        block_id = copy_id
    pool[block_id, offset] = value


def writes_before_copying(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    pool[blocks[index], offset] = value
    if manager.get_ref_count(blocks[index]) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = copy_id


def frees_before_allocating(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        manager.free(block_id)
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        blocks[index] = block_id = copy_id
    pool[block_id, offset] = value


def boundary_off_by_one(manager, pool, blocks, position, value):
    write(manager, pool, blocks, position + 1, value)


def always_the_last_block(manager, pool, blocks, position, value):
    write(
        manager,
        pool,
        blocks,
        (len(blocks) - 1) * pool.shape[1] + position % pool.shape[1],
        value,
    )


def value_into_old_block(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    block_id = blocks[index]
    if manager.get_ref_count(block_id) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks[index] = copy_id
    pool[block_id, offset] = value


def copying(
    manager,
    pool,
    blocks,
    position,
    value,
    *,
    index=None,
    offset=None,
    block_id=None,
    shared=lambda count: count > 1,
    allocates_first=False,
    copy=None,
    enter=None,
    counted=False,
):
    """Our write with a place for each mistake."""
    index = position // pool.shape[1] if index is None else index
    offset = position % pool.shape[1] if offset is None else offset
    block_id = blocks[index] if block_id is None else block_id
    spare = manager.allocate() if allocates_first else None
    if shared(manager.get_ref_count(block_id)):
        copy_id = manager.allocate() if spare is None else spare
        spare = None
        if counted:
            manager.increase_ref_count(copy_id)
        if copy:
            copy(pool, copy_id, block_id, offset)
        else:
            pool[copy_id] = pool[block_id]
        manager.free(block_id)
        if enter:
            enter(blocks, copy_id)
        else:
            blocks[index] = copy_id
        block_id = copy_id
    if spare is not None:
        manager.free(spare)
    pool[block_id, offset] = value


def wrong(**differences):
    """`copying` with differences.

    Those that are functions of (pool, blocks, position) are called first.
    """

    def answer(manager, pool, blocks, position, value):
        found = {
            name: (
                difference(pool, blocks, position)
                if name in ("index", "offset", "block_id")
                else difference
            )
            for name, difference in differences.items()
        }
        copying(manager, pool, blocks, position, value, **found)

    return answer


def copied_backwards(pool, copy_id, block_id, offset):
    pool[block_id] = pool[copy_id]


def exchanged(pool, copy_id, block_id, offset):
    pool[[copy_id, block_id]] = pool[[block_id, copy_id]]


def copied_within_the_pool(pool, copy_id, block_id, offset):
    pool.index_copy_(0, torch.tensor([copy_id]), pool[block_id : block_id + 1])  # raises


def copied_until(end):
    def copy(pool, copy_id, block_id, offset):
        pool[copy_id, : offset + end] = pool[block_id, : offset + end]

    return copy


def every_shared_block(manager, pool, blocks, position, value):
    for index in range(len(blocks)):
        write(manager, pool, blocks, index * pool.shape[1], pool[blocks[index], 0].item())
    write(manager, pool, blocks, position, value)


def into_a_copy_of_the_pool(manager, pool, blocks, position, value):
    write(manager, pool.clone(), blocks, position, value)


def gives_up(manager, pool, blocks, position, value):
    try:
        write(manager, pool, blocks, position, value)
    except MemoryError:
        return


def writes_after_all(manager, pool, blocks, position, value):
    try:
        write(manager, pool, blocks, position, value)
    except MemoryError:
        pool[blocks[position // pool.shape[1]], position % pool.shape[1]] = value


def written_shared_block(manager, pool, blocks, position, value):
    """As every_shared_block, but looks at the others only if the block is shared."""
    if manager.get_ref_count(blocks[position // pool.shape[1]]) > 1:
        every_shared_block(manager, pool, blocks, position, value)
    else:
        write(manager, pool, blocks, position, value)


def appended_and_written_to_the_old(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    if manager.get_ref_count(block_id := blocks[index]) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks.append(copy_id)
    pool[block_id, offset] = value


def counts_of_the_entry(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    if manager.get_ref_count(index) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[blocks[index]]
        manager.free(blocks[index])
        blocks[index] = copy_id
    pool[blocks[index], offset] = value


def list_replaced_and_read(manager, pool, blocks, position, value):
    """As with the list replaced, and the block to write to is looked up in it after that.

    It may not be there.
    """
    index, offset = divmod(position, pool.shape[1])
    if manager.get_ref_count(block_id := blocks[index]) > 1:
        copy_id = manager.allocate()
        pool[copy_id] = pool[block_id]
        manager.free(block_id)
        blocks[:] = [copy_id]
    pool[blocks[index], offset] = value


def releasing(chosen):
    """Our write, but lets go of chosen(old, copy)."""

    def wrong(manager, pool, blocks, position, value):
        index, offset = divmod(position, pool.shape[1])
        if manager.get_ref_count(old := blocks[index]) > 1:
            copy_id = manager.allocate()
            pool[copy_id] = pool[old]
            manager.free(chosen(old, copy_id))
            blocks[index] = copy_id
        pool[blocks[index], offset] = value

    return wrong


def releasing_both(manager, pool, blocks, position, value):
    """As `write`, and lets go of the new block at the end."""
    index = position // pool.shape[1]
    old = blocks[index]
    write(manager, pool, blocks, position, value)
    if blocks[index] != old:
        manager.free(blocks[index])


def freed_while_used(manager, pool, blocks, position, value):
    index = position // pool.shape[1]
    old = blocks[index]
    write(manager, pool, blocks, position, value)
    while blocks[index] != old and manager.get_ref_count(old):
        manager.free(old)


def one_block_kept_back(error):
    def wrong(manager, pool, blocks, position, value):
        shared = manager.get_ref_count(blocks[position // pool.shape[1]]) > 1
        if shared and manager.get_num_free_blocks() <= 1:
            raise error("no block is free")
        write(manager, pool, blocks, position, value)

    return wrong


def value_into_both_blocks(manager, pool, blocks, position, value):
    index, offset = divmod(position, pool.shape[1])
    old = blocks[index]
    write(manager, pool, blocks, position, value)
    pool[old, offset] = value


def fills_the_block(manager, pool, blocks, position, value):
    write(manager, pool, blocks, position, value)
    pool[blocks[position // pool.shape[1]]] = value


def with_another_error(error):
    def wrong(manager, pool, blocks, position, value):
        try:
            write(manager, pool, blocks, position, value)
        except MemoryError:
            raise error("no block is free") from None

    return wrong


def position_for_slot(manager, pool, blocks, position, value):
    block_size = pool.shape[1]
    if manager.get_ref_count(blocks[position // block_size]) > 1:
        write(
            manager,
            pool,
            blocks,
            position,
            pool[blocks[position // block_size], position % block_size].item(),
        )
    pool.view(-1)[position] = value


# (blocks in the pool, block size, blocks of the writer, further users of them, position to
# write, value)
CASES = [
    (2, 4, [0], [], 0, 70),
    (2, 4, [0], [0], 0, 70),
    (2, 4, [0], [0], 3, 71),
    (3, 4, [0, 1], [0, 1], 4, 72),
    (3, 4, [0, 1], [0], 3, 73),
    (3, 4, [0, 1], [0], 5, 0),
    (1, 4, [0], [0], 2, 74),
    (1, 4, [0], [], 3, 75),
    (2, 4, [1, 0], [1], 1, 76),
    (3, 4, [0], [0, 0], 1, 77),
    (3, 1, [2, 0], [2], 0, 78),
    (3, 1, [2, 0], [2], 1, 79),
    (4, 3, [3, 1], [1, 1, 3], 5, 80),
    (6, 4, [4, 1, 3], [4, 1], 6, 81),
    (6, 4, [4, 1, 3], [4, 1], 11, 82),
    (6, 16, [5, 2, 0], [5, 2, 0], 32, 83),
    (6, 4, [5, 2, 0], [5, 2, 0, 5, 2, 0], 8, 84),
]


def hidden(seed):
    """By turns with a block to spare and without.

    Of each four writes three go to a shared block.
    """
    chance = random.Random(seed)
    for number in range(16):
        length, block_size = chance.randint(1, 4), chance.randint(1, 6)
        num_blocks = length + number % 2
        blocks = chance.sample(range(num_blocks), length)
        position = chance.randrange(length * block_size)
        further_users = (
            chance.choices(blocks, k=chance.randint(0, 3))
            + blocks[position // block_size :][: number % 4]
        )
        yield num_blocks, block_size, blocks, further_users, position, chance.randint(100, 999)


def rows(num_blocks, block_size):
    return torch.arange(1, num_blocks * block_size + 1).reshape(num_blocks, block_size)


def observe(answer, case):
    num_blocks, block_size, parent, further_users, position, value = case
    manager, blocks = BlockManager(num_blocks), list(parent)
    for _ in range(num_blocks):
        manager.allocate()
    for block_id in sorted(set(range(num_blocks)) - set(parent), reverse=True):
        manager.free(block_id)
    for block_id in further_users:
        manager.increase_ref_count(block_id)
    pool = rows(num_blocks, block_size)
    try:
        answer(manager, pool, blocks, position, value)
        ending = "no error"
    except NotImplementedError:
        raise
    except Exception as error:
        ending = f"{type(error).__name__}: {error}"
    counts = [manager.get_ref_count(block_id) for block_id in range(num_blocks)]
    return Text(f"{ending}; blocks {blocks}; pool {pool.tolist()}; reference counts {counts}")


def same(expected, actual):
    """Errors are compared by their class: the words are the business of whoever raises them.

    Only PyTorch's own words on what it does not support count.
    """
    return _without_words(expected) == _without_words(actual)


def _without_words(result):
    return re.sub(
        r"^(\w+): (?!unsupported operation).*?; blocks",
        r"\1; blocks",
        str(result),
        flags=re.DOTALL,
    )


def describe(case):
    num_blocks, block_size, parent, further_users, position, value = case
    counts = [
        parent.count(block_id) + further_users.count(block_id)
        for block_id in range(num_blocks)
    ]
    return (
        f"pool {rows(num_blocks, block_size).tolist()}, reference counts {counts}; "
        f"write(manager, pool, blocks={parent}, position={position}, value={value})"
    )


EXERCISE = Exercise(
    id="1.6",
    title="copy on write",
    answer_name="write",
    reference=write,
    cases=lambda: CASES,
    size=lambda case: (case[0] * case[1], len(case[3]), case[4]),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    points=2,
    mistakes=(
        Mistake(
            "writes-into-shared-block",
            "The value went into a block that another sequence reads too: "
            "its text changes behind its back. Look at the reference count before you write.",
            writes_into_shared_block,
        ),
        Mistake(
            "copies-unshared-block",
            "You copy the block although nobody else uses it. That costs a block "
            "and a copy at every write, and it fails on a full pool where no copy was needed.",
            copies_unshared_block,
        ),
        Mistake(
            "contents-not-copied",
            "The new block is empty but for the value: "
            "the tokens that stood beside it are lost. Copy the whole block first.",
            contents_not_copied,
        ),
        Mistake(
            "old-block-not-released",
            "The writer has left the old block, and its count still includes the writer. "
            "It will never return to the pool: a leak of one block at each such write.",
            old_block_not_released,
        ),
        Mistake(
            "list-not-updated",
            "The value stands in the copy, and the sequence's list still names the old "
            "block, so the sequence will not read what it wrote.",
            list_not_updated,
        ),
        Mistake(
            "value-into-old-block",
            "The copy is made and stands in the list, and then the value goes into the old "
            "block, which others read. After the copy, the block to write to is another one.",
            value_into_old_block,
        ),
        Mistake(
            "writes-before-copying",
            "You write first and copy afterwards. "
            "The copy is right, but the shared block was changed on the way.",
            writes_before_copying,
        ),
        Mistake(
            "value-into-both-blocks",
            "The value stands in the copy, and in the old block too. Others read that one.",
            value_into_both_blocks,
        ),
        Mistake(
            "half-done-on-a-full-pool",
            "When no block is left for the copy, "
            "your function has let go of the old block already: "
            "the sequence still lists a block that it no longer owns. Do first what can fail.",
            frees_before_allocating,
        ),
        Mistake(
            "block-boundary-off-by-one",
            "Your value is one slot too far, which at the end of a block is the next block. "
            "Position p lies in block p // block_size, "
            "in slot p % block_size, both counted from 0.",
            boundary_off_by_one,
        ),
        Mistake(
            "positions-from-one",
            "Your value is one slot too early, as if positions began at 1. "
            "Position 0 is the first slot of the first block.",
            wrong(
                index=lambda pool, blocks, position: (position - 1) // pool.shape[1],
                offset=lambda pool, blocks, position: (position - 1) % pool.shape[1],
            ),
        ),
        Mistake(
            "index-and-offset-swapped",
            "Quotient and remainder have changed places: the quotient of position "
            "and block_size is the entry of the list, the remainder is the slot in the block.",
            wrong(
                index=lambda pool, blocks, position: position % pool.shape[1],
                offset=lambda pool, blocks, position: position // pool.shape[1],
            ),
        ),
        Mistake(
            "always-the-last-block",
            "The slot is right, but the value is in the last block of the sequence. "
            "Position p lies in block p // block_size of its list.",
            always_the_last_block,
        ),
        Mistake(
            "shared-by-another-number",
            "A block with several users was written in place. "
            "Shared means more than one user, whatever the number.",
            wrong(shared=lambda count: count == 2),
            also=(wrong(shared=lambda count: count > 2),),
        ),
        Mistake(
            "rows-for-block-size",
            "You divide the position by the number of blocks. "
            "The pool's shape is (num_blocks, block_size).",
            wrong(
                index=lambda pool, blocks, position: position // pool.shape[0],
                offset=lambda pool, blocks, position: position % pool.shape[0],
            ),
            also=(
                wrong(
                    index=lambda pool, blocks, position: position // len(blocks),
                    offset=lambda pool, blocks, position: position % len(blocks),
                ),
            ),
        ),
        Mistake(
            "position-for-index",
            "You look up the list's entry number `position`. "
            "An entry stands for a whole block of tokens.",
            wrong(index=lambda pool, blocks, position: position),
        ),
        Mistake(
            "logical-for-physical",
            "You take the number of the block within the sequence for its id. "
            "The id stands in `blocks`.",
            wrong(block_id=lambda pool, blocks, position: position // pool.shape[1]),
        ),
        Mistake(
            "position-for-slot",
            "The value went to the place number `position` of the whole pool. "
            "The sequence's block may lie elsewhere.",
            position_for_slot,
        ),
        Mistake(
            "copied-backwards",
            "You copied the new block over the old one. "
            "In `a = b` the numbers go from b to a.",
            wrong(copy=copied_backwards),
        ),
        Mistake(
            "copies-a-part",
            "You copied a part of the block. "
            "A position may be anywhere in it: the tokens behind it are copied as well.",
            wrong(copy=copied_until(0)),
            also=(wrong(copy=copied_until(1)),),
        ),
        Mistake(
            "appended-to-the-list",
            "The copy's id stands at the end of the list, and the old id is still "
            "in its place. The copy takes the place of the block that it replaces.",
            wrong(enter=lambda blocks, copy_id: blocks.append(copy_id)),
            also=(appended_and_written_to_the_old,),
        ),
        Mistake(
            "copies-every-shared-block",
            "You copy all blocks of the sequence that are shared. "
            "Only the one that is written to needs a copy.",
            every_shared_block,
            also=(written_shared_block,),
        ),
        Mistake(
            "count-of-the-entry",
            "You ask for the reference count of the entry's number. "
            "`get_ref_count` takes a block id, and that is what stands in the entry.",
            counts_of_the_entry,
        ),
        Mistake(
            "position-for-offset",
            "Block and copy are right, and the place in the block is the whole position. "
            "In each block the places begin at 0 again.",
            wrong(offset=lambda pool, blocks, position: position),
        ),
        Mistake(
            "block-size-fixed",
            "Your blocks always have the same size. "
            "How many tokens a block holds, the pool's shape says.",
            wrong(
                index=lambda pool, blocks, position: position // 4,
                offset=lambda pool, blocks, position: position % 4,
            ),
            also=(
                wrong(
                    index=lambda pool, blocks, position: position // 16,
                    offset=lambda pool, blocks, position: position % 16,
                ),
            ),
        ),
        Mistake(
            "fills-the-block",
            "The value stands in every place of the block. It is one token, with one place.",
            fills_the_block,
        ),
        Mistake(
            "new-block-released",
            "You let go of the new block, and it is in the list: "
            "it is free, and the next `allocate()` gives it to somebody else. "
            "The one that the writer leaves is the old block.",
            releasing(lambda old, copy_id: copy_id),
            also=(releasing_both,),
        ),
        Mistake(
            "frees-shared-outright",
            "The old block became free, and another sequence still uses it. "
            "Call `free` once: it takes away one user.",
            freed_while_used,
        ),
        Mistake(
            "last-free-block-refused",
            "One block is free, and you refuse the write. "
            "A copy takes one block, so the last free one will do.",
            one_block_kept_back(MemoryError),
            also=(
                one_block_kept_back(OutOfBlocksError),
                one_block_kept_back(RuntimeError),
                one_block_kept_back(ValueError),
            ),
        ),
        Mistake(
            "another-error",
            "No block is free, and the error is not the manager's OutOfBlocksError. "
            "`allocate()` raises it by itself.",
            with_another_error(MemoryError),
            also=(with_another_error(RuntimeError), with_another_error(ValueError)),
        ),
        Mistake(
            "allocates-unasked",
            "You take a block before you know whether you need one. "
            "A write in place needs none, and on a full pool it fails for nothing.",
            wrong(allocates_first=True),
        ),
        Mistake(
            "new-block-counted-twice",
            "The new block has two users. `allocate()` has counted its only one already.",
            wrong(counted=True),
        ),
        Mistake(
            "error-swallowed",
            "No block is free, and the caller does not hear of it: "
            "your function catches the error. It has to pass.",
            gives_up,
            also=(writes_after_all,),
        ),
        Mistake(
            "writes-into-a-copy-of-the-pool",
            "The counts and the list changed, and the pool did not: "
            "you wrote into a copy of it.",
            into_a_copy_of_the_pool,
        ),
        Mistake(
            "list-of-one-block",
            "After the copy the list holds the new id and nothing else: "
            "the sequence's other blocks are lost. The copy takes the place of one block.",
            wrong(enter=lambda blocks, copy_id: blocks.__setitem__(slice(None), [copy_id])),
            also=(list_replaced_and_read,),
        ),
        Mistake(
            "contents-exchanged",
            "The old and the new block have exchanged what they hold. "
            "Others read the old block: it stays as it is.",
            wrong(copy=exchanged),
        ),
        Mistake(
            "reads-what-it-writes-to",
            "PyTorch refuses your copy: this operation may not write into the pool "
            "while it reads from the pool itself. An assignment to a row of the pool may.",
            wrong(copy=copied_within_the_pool),
        ),
    ),
    hints=(
        (
            "`divmod(position, block_size)` gives both: which block of the list, "
            "and which slot in it."
        ),
        (
            "Only a block with a reference count above 1 is copied. "
            "The copy takes four steps: "
            "allocate, copy the contents, free the old one, put the new id into the list."
        ),
        "Of those four steps one can fail. It comes first, so that nothing is half done.",
    ),
)
