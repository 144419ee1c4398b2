"""Exercise 2.5: a sequence grows by a token."""

import functools

import torch

from lessons_exercises.lesson_02 import managers
from lessons_exercises.lesson_02.managers import SMALL
from lessons_lib.checks import Exercise, Mistake
from paged_attention.kv_cache import PagedAttentionManager


def append(
    self,
    seq_id,
    *,
    boundary=0,
    copy=True,
    copied=(slice(None), slice(None)),
    release=True,
    enter=True,
    count=True,
    new_block=True,
    check="first",
    copy_full=False,
    shared=lambda count: count > 1,
):
    """append_token with a place for each mistake."""
    sequence = self.get(seq_id)
    if check == "first":
        self.blocks_for(sequence.length + 1)
    index, offset = divmod(sequence.length, self.block_size)
    block_id = self.blocks_of(seq_id)[-1] if sequence.length else None
    if (
        copy
        and block_id is not None
        and (offset or copy_full)
        and shared(self.block_manager.get_ref_count(block_id))
    ):
        copy_id = self.block_manager.allocate()
        self.kv_cache[(*copied, copy_id)] = self.kv_cache[(*copied, block_id)]
        if release:
            self.block_manager.free(block_id)
        if enter:
            self.table.write(sequence.row, (sequence.length - 1) // self.block_size, [copy_id])
    if offset == boundary and new_block:
        block = self.block_manager.allocate()
        if check == "late":
            self.blocks_for(sequence.length + 1)
        self.table.write(sequence.row, index, [block])
    if count:
        sequence.length += 1
    last = self.table.cpu[sequence.row, index].item()
    return last * self.block_size + offset


def wrong(**differences):
    def method(self, seq_id):
        return append(self, seq_id, **differences)

    return method


def gives(result):
    """The right method with another result: result(slot, block_size)."""

    def method(self, seq_id):
        return result(PagedAttentionManager.append_token(self, seq_id), self.block_size)

    return method


def table_forgotten(self, seq_id):
    """As append(enter=False), but the slot is that of the copy."""
    sequence = self.get(seq_id)
    index, offset = divmod(sequence.length, self.block_size)
    if offset and self.block_manager.get_ref_count(block_id := self.blocks_of(seq_id)[-1]) > 1:
        slot = PagedAttentionManager.append_token(self, seq_id)
        self.table.write(sequence.row, index, [block_id])
        return slot
    return PagedAttentionManager.append_token(self, seq_id)


def copies_a_layer(self, seq_id):
    """Takes the pool's first dimension for the blocks."""
    sequence = self.get(seq_id)
    index, offset = divmod(sequence.length, self.block_size)
    if offset and self.block_manager.get_ref_count(block_id := self.blocks_of(seq_id)[-1]) > 1:
        copy_id = self.block_manager.allocate()
        self.kv_cache[copy_id] = self.kv_cache[block_id]
        self.block_manager.free(block_id)
        self.table.write(sequence.row, index, [copy_id])
        sequence.length += 1
        return copy_id * self.block_size + offset
    return PagedAttentionManager.append_token(self, seq_id)


def last_block_of_nothing(self, seq_id):
    self.blocks_of(seq_id)[-1]
    return PagedAttentionManager.append_token(self, seq_id)


def old_slot(self, seq_id):
    sequence = self.get(seq_id)
    before = self.blocks_of(seq_id)[-1:]
    offset = sequence.length % self.block_size
    slot = PagedAttentionManager.append_token(self, seq_id)
    return before[0] * self.block_size + offset if offset else slot


def device_forgotten(self, seq_id):
    before = self.table.on_device.clone()
    slot = PagedAttentionManager.append_token(self, seq_id)
    self.table.on_device.copy_(before)
    return slot


def refused_when_full(self, seq_id):
    self.get(seq_id)
    self.blocks_for(self.get(seq_id).length + 1)
    if self.block_manager.get_num_free_blocks() == 0:
        self.block_manager.allocate()
    return PagedAttentionManager.append_token(self, seq_id)


def one_too_early(self, seq_id):
    sequence = self.get(seq_id)
    self.blocks_for(sequence.length + 1)
    index, offset = divmod(sequence.length, self.block_size)
    if offset and self.block_manager.get_ref_count(self.blocks_of(seq_id)[-1]) > 1:
        return PagedAttentionManager.append_token(self, seq_id)
    if (sequence.length + 1) % self.block_size == 0:
        self.table.write(
            sequence.row,
            (sequence.length + 1) // self.block_size,
            [self.block_manager.allocate()],
        )
    sequence.length += 1
    return self.table.cpu[sequence.row, index].item() * self.block_size + offset


def length_counted_first(self, seq_id):
    sequence = self.get(seq_id)
    self.blocks_for(sequence.length + 1)
    sequence.length += 1
    try:
        sequence.length -= 1
        return PagedAttentionManager.append_token(self, seq_id)
    except MemoryError:
        sequence.length += 1
        raise


def freed_first(self, seq_id):
    sequence = self.get(seq_id)
    index, offset = divmod(sequence.length, self.block_size)
    self.blocks_for(sequence.length + 1)
    if offset and self.block_manager.get_ref_count(block_id := self.blocks_of(seq_id)[-1]) > 1:
        self.block_manager.free(block_id)
        copy_id = self.block_manager.allocate()
        self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
        self.table.write(sequence.row, index, [copy_id])
        sequence.length += 1
        return copy_id * self.block_size + offset
    return PagedAttentionManager.append_token(self, seq_id)


def in_place(
    self,
    seq_id,
    *,
    limit=True,
    copied=lambda pool, new, old: pool[:, :, new].copy_(pool[:, :, old]),
    row=lambda sequence, seq_id: sequence.row,
    index=lambda index, length: index,
    entered=True,
    slot=lambda block, offset, size, length: block * size + offset,
    every=False,
):
    """As `append`, in the form of the hints.

    The block is in a variable, and the slot is made from it.
    """
    sequence = self.get(seq_id)
    if limit:
        self.blocks_for(sequence.length + 1)
    entry, offset = divmod(sequence.length, self.block_size)
    blocks = self.table.cpu[sequence.row, : entry + 1].tolist()
    for number, block_id in enumerate(blocks[:-1] if every and offset else []):
        if self.block_manager.get_ref_count(block_id) > 1:
            copy_id = self.block_manager.allocate()
            self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
            self.block_manager.free(block_id)
            self.table.write(sequence.row, number, [copy_id])
    if offset == 0:
        block_id = self.block_manager.allocate()
        if entered:
            self.table.write(row(sequence, seq_id), index(entry, sequence.length), [block_id])
    else:
        block_id = blocks[-1]
        if self.block_manager.get_ref_count(block_id) > 1:
            copy_id = self.block_manager.allocate()
            copied(self.kv_cache, copy_id, block_id)
            self.block_manager.free(block_id)
            self.table.write(row(sequence, seq_id), entry, [copy_id])
            block_id = copy_id
    sequence.length += 1
    return slot(block_id, offset, self.block_size, sequence.length)


def other(**differences):
    def method(self, seq_id):
        return in_place(self, seq_id, **differences)

    return method


def halves_taken_for_blocks(pool, new, old):
    pool[:, new] = pool[:, old]


def cpu_forgotten(self, seq_id):
    before = self.table.cpu.clone()
    slot = PagedAttentionManager.append_token(self, seq_id)
    self.table.cpu.copy_(before)
    return slot


def length_first(offset_of):
    """Counts the token, and reads the blocks of the longer sequence."""

    def method(self, seq_id):
        sequence = self.get(seq_id)
        self.blocks_for(sequence.length + 1)
        sequence.length += 1
        entry, offset = divmod(offset_of(sequence.length), self.block_size)
        blocks = self.blocks_of(seq_id)
        if entry == len(blocks):
            block_id = self.block_manager.allocate()
            self.table.write(sequence.row, entry, [block_id])
        else:
            block_id = blocks[entry]
            if self.block_manager.get_ref_count(block_id) > 1:
                copy_id = self.block_manager.allocate()
                self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
                self.block_manager.free(block_id)
                self.table.write(sequence.row, entry, [copy_id])
                block_id = copy_id
        return block_id * self.block_size + offset

    return method


def when_full(result, new_block_only=False):
    """Catches the error and returns `result`."""

    def method(self, seq_id):
        sequence = self.get(seq_id)
        try:
            return PagedAttentionManager.append_token(self, seq_id)
        except MemoryError:
            if new_block_only and sequence.length % self.block_size:
                raise
            return result

    return method


def too_long(error):
    def method(self, seq_id):
        if self.get(seq_id).length >= self.max_blocks_per_seq * self.block_size:
            raise error
        return PagedAttentionManager.append_token(self, seq_id)

    return method


def new_entry(write):
    """The right method, but for how a new block gets into the table.

    write(self, sequence, seq_id, entry, block) puts it there.
    """

    def method(self, seq_id):
        sequence = self.get(seq_id)
        entry, offset = divmod(sequence.length, self.block_size)
        if offset:
            return PagedAttentionManager.append_token(self, seq_id)
        self.blocks_for(sequence.length + 1)
        block_id = self.block_manager.allocate()
        write(self, sequence, seq_id, entry, block_id)
        sequence.length += 1
        return block_id * self.block_size

    return method


def copied_on_the_device_only(self, seq_id):
    sequence = self.get(seq_id)
    entry, offset = divmod(sequence.length, self.block_size)
    before = self.table.cpu[sequence.row].clone()
    slot = PagedAttentionManager.append_token(self, seq_id)
    if offset:
        self.table.cpu[sequence.row] = before
    return slot


def counted_before_it_can_fail(self, seq_id):
    """Counts the token at once, and computes its place from the length before."""
    sequence = self.get(seq_id)
    sequence.length += 1
    try:
        sequence.length -= 1
        return PagedAttentionManager.append_token(self, seq_id)
    except (ValueError, MemoryError):
        sequence.length += 1
        raise


def new_block_kept_on_failure(self, seq_id):
    """Counts the token when it has a block, and makes the copy afterwards."""
    sequence = self.get(seq_id)
    try:
        return PagedAttentionManager.append_token(self, seq_id)
    except MemoryError:
        if sequence.length % self.block_size:
            sequence.length += 1
        raise


def last_of_the_old_blocks(self, seq_id):
    """Takes a new block into the table before the length has grown.

    Then it asks for the last block.
    """
    sequence = self.get(seq_id)
    entry, offset = divmod(sequence.length, self.block_size)
    self.blocks_for(sequence.length + 1)
    if offset == 0:
        self.table.write(sequence.row, entry, [self.block_manager.allocate()])
    block_id = self.blocks_of(seq_id)[-1]
    if self.block_manager.get_ref_count(block_id) > 1:
        copy_id = self.block_manager.allocate()
        self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
        self.block_manager.free(block_id)
        self.table.write(sequence.row, entry, [copy_id])
        block_id = copy_id
    sequence.length += 1
    return block_id * self.block_size + offset


def full(error, only=lambda offset: True):
    """Another error where no block is free.

    `only` for some offsets of the new token in its block.
    """

    def method(self, seq_id):
        offset = self.get(seq_id).length % self.block_size
        try:
            return PagedAttentionManager.append_token(self, seq_id)
        except MemoryError:
            if only(offset):
                raise error from None
            raise

    return method


def shared_blocks_first(self, seq_id):
    """Copies every shared block, a full last one too, and then places the token."""
    sequence = self.get(seq_id)
    self.blocks_for(sequence.length + 1)
    for entry, block_id in enumerate(self.blocks_of(seq_id)):
        if self.block_manager.get_ref_count(block_id) > 1:
            copy_id = self.block_manager.allocate()
            self.kv_cache[:, :, copy_id] = self.kv_cache[:, :, block_id]
            self.block_manager.free(block_id)
            self.table.write(sequence.row, entry, [copy_id])
    return PagedAttentionManager.append_token(self, seq_id)


ADD, FORK = "add_sequence", "fork_sequence"
ROOMY = {"num_blocks": 12, "block_size": 3, "max_num_seqs": 4, "max_blocks_per_seq": 6}
CASES = [
    (SMALL, [(ADD, 0, 0)], [(0,)]),
    (SMALL, [(ADD, 0, 1)], [(0,)]),
    (SMALL, [(ADD, 0, 2)], [(0,)]),
    (SMALL, [(ADD, 0, 0)], [(0,)] * 6),
    (SMALL, [(ADD, 0, 1), (ADD, 5, 2)], [(5,), (0,), (0,), (5,)]),
    (SMALL, [(ADD, 0, 6)], [(0,)]),
    (SMALL, [(ADD, 0, 4), (ADD, 1, 4)], [(0,), (1,)]),
    (SMALL, [], [(3,)]),
    (SMALL, [(ADD, 0, 1), (FORK, 0, 1)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 1), (FORK, 0, 1)], [(1,), (0,)]),
    (SMALL, [(ADD, 0, 2), (FORK, 0, 1)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), (ADD, 2, 4)], [(0,), (1,)]),
    (SMALL, [(ADD, 0, 3), (FORK, 0, 1), (ADD, 2, 3)], [(0,), (2,), (1,), (2,)]),
    (SMALL, [(ADD, 0, 5), (ADD, 1, 1)], [(0,), (0,), (1,), (1,)]),
    (
        ROOMY,
        [(ADD, 0, 7), (FORK, 0, 1), (FORK, 0, 2)],
        [(2,), (1,), (0,), (2,), (1,), (0,), (1,)],
    ),
    (
        ROOMY,
        [(ADD, 0, 4), ("free_sequence", 0), (ADD, 1, 5), (FORK, 1, 0)],
        [(0,), (1,), (0,), (1,)] * 2,
    ),
]

EXERCISE = Exercise(
    id="2.5",
    title="append a token",
    answer_name="append_token",
    reference=PagedAttentionManager.append_token,
    cases=lambda: CASES,
    size=functools.partial(managers.size, "append_token"),
    hidden=functools.partial(managers.hidden, "append_token"),
    arrange=managers.arrange,
    observe=functools.partial(managers.drive, "append_token"),
    describe=functools.partial(managers.describe, "append_token"),
    show=managers.show,
    points=2,
    mistakes=(
        Mistake(
            "block-boundary-off-by-one",
            "The new block comes one token too early. It is needed when the token to place "
            "is the first of its block: look at the length before the token is counted.",
            one_too_early,
        ),
        Mistake(
            "new-block-each-time",
            "Every token gets a block of its own. "
            "While the last block has an empty slot, the token goes there.",
            lambda self, seq_id: append(
                self, seq_id, boundary=self.get(seq_id).length % self.block_size
            ),
        ),
        Mistake(
            "no-new-block",
            "The last block is full, and you take no new one: the token has no place.",
            wrong(new_block=False),
        ),
        Mistake(
            "leak-on-failed-append",
            "The row is full, and a block has already been taken for it: "
            "nobody owns that block now. Do first what can fail.",
            wrong(check="late"),
        ),
        Mistake(
            "row-limit-forgotten",
            "The row has no entry left. You find out when the block is taken, or not at all. "
            "`blocks_for(length + 1)` raises before that.",
            wrong(check="never"),
            also=(other(limit=False),),
        ),
        Mistake(
            "refused-on-a-full-pool",
            "The pool is full, and you refuse a token that needs no block: "
            "its place is in the sequence's own last block.",
            refused_when_full,
        ),
        Mistake(
            "last-block-of-nothing",
            "A sequence without tokens has no last block to look at. It needs its first one.",
            last_block_of_nothing,
        ),
        Mistake(
            "device-table-forgotten",
            "The new entry is in the CPU's table only. `table.write` writes both.",
            device_forgotten,
            also=(
                new_entry(
                    lambda self, sequence, seq_id, entry, block: self.table.cpu[
                        sequence.row
                    ].__setitem__(entry, block)
                ),
            ),
        ),
        Mistake(
            "returns-old-slot",
            "The slot that you return lies in the shared block. "
            "The token's place is in the copy.",
            old_slot,
        ),
        Mistake(
            "copies-a-layer",
            "The blocks are the third dimension of the pool. `self.kv_cache[i]` is layer i, "
            "and `self.kv_cache[:, i]` is all keys or all values.",
            copies_a_layer,
            also=(other(copied=halves_taken_for_blocks),),
        ),
        Mistake(
            "length-counted-on-failure",
            "No block was free, and the sequence is a token longer all the same. "
            "Count the token when it has its place.",
            length_counted_first,
            also=(counted_before_it_can_fail, new_block_kept_on_failure),
        ),
        Mistake(
            "length-counted-first",
            "You count the token first. From then on `blocks_of` gives the blocks "
            "of the longer sequence, and the entry of the new token's block may still be -1.",
            length_first(lambda length: length - 1),
            also=(length_first(lambda length: length),),
        ),
        Mistake(
            "length-not-counted",
            "The sequence's length did not grow. The next token would overwrite this one.",
            wrong(count=False),
        ),
        Mistake(
            "writes-into-shared-block",
            "The slot lies in a block that another sequence uses too: "
            "writing there changes its text. Copy the block first, as in exercise 1.6.",
            wrong(copy=False),
        ),
        Mistake(
            "copies-unshared-block",
            "You copy a block that nobody else uses. "
            "That costs a block and a copy at every token.",
            wrong(shared=lambda count: True),
        ),
        Mistake(
            "copies-full-block",
            "The last block is shared and full. Nothing will be written into it, "
            "so it can stay shared: the token begins a new block.",
            wrong(copy_full=True),
        ),
        Mistake(
            "contents-not-copied",
            "The copy holds whatever the block held before: "
            "the tokens that stood beside the new one are lost.",
            wrong(copied=(slice(0, 0), slice(None))),
        ),
        Mistake(
            "copies-a-part",
            "Only a part of the block was copied. "
            "The copy needs every token that stands in the old block.",
            other(
                copied=lambda pool, new, old: pool[:, :, new, :1].copy_(pool[:, :, old, :1])
            ),
        ),
        Mistake(
            "copied-backwards",
            "You copied the new block over the shared one. "
            "In `a = b` the numbers go from b to a.",
            other(copied=lambda pool, new, old: pool[:, :, old].copy_(pool[:, :, new])),
        ),
        Mistake(
            "copies-every-shared-block",
            "You copy all blocks that are shared. Only the last one will be written to.",
            other(every=True),
            also=(shared_blocks_first,),
        ),
        Mistake(
            "copies-one-layer",
            "Only the first layer was copied. "
            "The pool has all layers, and one block table serves them all.",
            wrong(copied=(0, slice(None))),
        ),
        Mistake(
            "copies-keys-only",
            "The keys were copied and the values were not. "
            "The pool's second dimension holds both.",
            wrong(copied=(slice(None), 0)),
        ),
        Mistake(
            "old-block-not-released",
            "The sequence has left the shared block, and its count still includes it. "
            "The block will never be free again.",
            wrong(release=False),
        ),
        Mistake(
            "half-done-on-a-full-pool",
            "No block was free for the copy, "
            "and the sequence has let go of its old block already. Allocate first.",
            freed_first,
        ),
        Mistake(
            "table-not-updated",
            "The copy was made, and the block table still names the shared block.",
            wrong(enter=False),
            also=(table_forgotten,),
        ),
        Mistake(
            "new-block-not-entered",
            "A new block was taken, and the row of the table does not name it.",
            other(entered=False),
        ),
        Mistake(
            "cpu-table-forgotten",
            "The new entry is in the device's table only, and the manager reads the CPU's. "
            "`table.write` writes both.",
            cpu_forgotten,
            also=(
                copied_on_the_device_only,
                new_entry(
                    lambda self, sequence, seq_id, entry, block: self.table.on_device[
                        sequence.row
                    ].__setitem__(entry, block)
                ),
            ),
        ),
        Mistake(
            "id-for-row",
            "You write to the row whose number is the sequence's id. "
            "Its row is `self.get(seq_id).row`.",
            other(row=lambda sequence, seq_id: seq_id),
            also=(
                new_entry(
                    lambda self, sequence, seq_id, entry, block: self.table.write(
                        seq_id, entry, [block]
                    )
                ),
            ),
        ),
        Mistake(
            "first-entry-overwritten",
            "The new block stands in the first entry of the row, whatever was there. "
            "It comes behind the sequence's other blocks.",
            new_entry(
                lambda self, sequence, seq_id, entry, block: self.table.write(
                    sequence.row, 0, [block]
                )
            ),
        ),
        Mistake(
            "last-of-the-old-blocks",
            "`blocks_of` gives the blocks of the tokens that are counted. The new token "
            "is not counted yet, so a block that was taken for it is not among them.",
            last_of_the_old_blocks,
        ),
        Mistake(
            "shared-by-another-number",
            "A block with several users was written in place. "
            "Shared means more than one user, whatever the number.",
            wrong(shared=lambda count: count > 2),
            also=(wrong(shared=lambda count: count == 2),),
        ),
        Mistake(
            "another-error-when-full",
            "No block is free, and the error is not OutOfBlocksError. "
            "`allocate()` raises it by itself.",
            full(MemoryError),
            also=(
                full(RuntimeError),
                full(ValueError),
                full(IndexError),
                *(
                    full(error, only)
                    for error in (MemoryError, RuntimeError, ValueError)
                    for only in (lambda offset: offset == 0, lambda offset: offset > 0)
                ),
            ),
        ),
        Mistake(
            "position-for-index",
            "You write the new block to the entry whose number is the token's position. "
            "An entry stands for a whole block.",
            other(index=lambda index, length: length),
        ),
        Mistake(
            "another-error",
            "The row is full, and the error is not SequenceTooLongError. "
            "`blocks_for` raises the right one.",
            too_long(ValueError),
            also=(too_long(IndexError), too_long(MemoryError), too_long(RuntimeError)),
        ),
        Mistake(
            "error-swallowed",
            "No block is free, and your method returns something all the same. "
            "The error has to reach the caller.",
            when_full(None),
            also=(when_full(-1), when_full(None, True), when_full(-1, True)),
        ),
        Mistake(
            "returns-position",
            "You return the token's place in its block. The slot counts through the whole "
            "pool: block id times block_size, plus that place.",
            gives(lambda slot, block_size: slot % block_size),
        ),
        Mistake(
            "returns-pair",
            "You return the block and the offset. The slot is one number, made of both.",
            gives(divmod),
        ),
        Mistake(
            "returns-block",
            "You return the block. The slot is the place of one token in the pool.",
            gives(lambda slot, block_size: slot // block_size),
        ),
        Mistake(
            "returns-next-slot",
            "You return the slot behind the new token's. "
            "Its place is found from the length before it is counted.",
            gives(lambda slot, block_size: slot + 1),
            also=(
                other(slot=lambda block, offset, size, length: block * size + length % size),
            ),
        ),
        Mistake(
            "logical-for-physical",
            "You return the token's place in its sequence. "
            "Where its block lies in the pool, the block table says.",
            other(slot=lambda block, offset, size, length: length - 1),
        ),
        Mistake(
            "returns-tensor",
            "The slot is right, and it is a tensor. "
            "An entry of the table is a number after `.item()` or `.tolist()`.",
            gives(lambda slot, block_size: torch.tensor(slot)),
            also=(gives(lambda slot, block_size: torch.tensor(slot, dtype=torch.int32)),),
        ),
        Mistake(
            "returns-nothing",
            "The manager is right, and the method returns None. "
            "The caller needs the slot to write to.",
            gives(lambda slot, block_size: None),
        ),
    ),
    hints=(
        (
            "`divmod(sequence.length, self.block_size)` says where the new token goes: "
            "which entry of the row, which offset."
        ),
        (
            "Three situations: the offset is 0 (a new block), the last block is shared "
            "(a copy of it), neither (write in place)."
        ),
        (
            "Both `allocate()` calls can fail, and so can `blocks_for(length + 1)`. "
            "Nothing may have changed before them."
        ),
        "`self.kv_cache[:, :, block_id]` is the block in every layer, keys and values.",
    ),
)
