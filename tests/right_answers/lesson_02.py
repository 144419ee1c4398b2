"""Lesson 02."""

import math

import torch

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import Sequence
from paged_attention.validate import check_write


def pieces_by_addresses(view):
    """Writes down every number's address and counts the jumps."""
    addresses = torch.zeros(view.shape, dtype=torch.int64)
    for dimension, (size, stride) in enumerate(zip(view.shape, view.stride())):
        shape = [1] * view.dim()
        shape[dimension] = size
        addresses += (torch.arange(size) * stride).view(shape)
    jumps = addresses.flatten().diff() != 1
    pieces = 1 + int(jumps.sum())
    return pieces, view.numel() * view.element_size() // pieces


def pieces_by_flattening(view):
    sizes = [(size, stride) for size, stride in zip(view.shape, view.stride()) if size > 1]
    length = 1
    while sizes and sizes[-1][1] == length:
        length *= sizes.pop()[0]
    return math.prod(size for size, _ in sizes), length * view.element_size()


def pieces_recursively(view):
    if view.dim() == 0:
        return 1, view.element_size()
    size, stride = view.shape[0], view.stride(0)
    pieces, length = pieces_recursively(view[0])
    if size == 1:
        return pieces, length
    if pieces == 1 and stride * view.element_size() == length:
        return 1, length * size
    return pieces * size, length


def slots_one_by_one(block_ids, positions, block_size):
    slots = []
    for position in positions.tolist():
        index, offset = divmod(position, block_size)
        slots.append(block_ids[index].item() * block_size + offset)
    return torch.tensor(slots, dtype=torch.long)


def slots_from_every_slot(block_ids, positions, block_size):
    every = block_ids.to(torch.int64)[:, None] * block_size + torch.arange(block_size)
    return every.flatten()[positions]


def slots_with_numpy(block_ids, positions, block_size):
    index, offset = divmod(positions.numpy(), block_size)
    return torch.from_numpy(block_ids.numpy().astype("int64")[index] * block_size + offset)


def slots_with_gather(block_ids, positions, block_size):
    blocks = torch.gather(block_ids.long(), 0, torch.div(positions, block_size, rounding_mode="floor"))
    return torch.add(positions.remainder(block_size), blocks, alpha=block_size)


def write_by_block_and_offset(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    block_size = k_cache.size(1)
    k_cache[slots // block_size, slots % block_size] = k
    v_cache[slots // block_size, slots % block_size] = v


def write_token_by_token(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    for token, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, k_cache.shape[1])
        k_cache[block, offset] = k[token]
        v_cache[block][offset].copy_(v[token])


def write_with_index_copy(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    k_cache.flatten(0, 1).index_copy_(0, slots, k)
    v_cache.flatten(0, 1).index_copy_(0, slots, v)


def write_with_own_checks(k_cache, v_cache, slots, k, v):
    num_slots = k_cache.shape[0] * k_cache.shape[1]
    if k.dtype != k_cache.dtype or v.dtype != v_cache.dtype or slots.dtype != torch.int64:
        raise TypeError("another dtype")
    if any(slot not in range(num_slots) for slot in slots.tolist()) or len(set(slots.tolist())) < len(slots):
        raise ValueError("a slot outside the pool, or one named twice")
    index = slots[:, None, None].expand_as(k)
    k_cache.view(num_slots, *k.shape[1:]).scatter_(0, index, k)
    v_cache.view(num_slots, *v.shape[1:]).scatter_(0, index, v)


def add_counting_first(self, seq_id, num_tokens):
    self.check_new(seq_id)
    count = self.blocks_for(num_tokens)
    free = self.block_manager.get_num_free_blocks()
    if free < count:
        raise OutOfBlocksError("too few")
    mine = []
    while len(mine) < count:
        mine.append(self.block_manager.allocate())
    row = self.table.free_rows.pop(0)
    self.table.write(row, 0, mine)
    self.sequences[seq_id] = Sequence(length=num_tokens, row=row)


def add_giving_back(self, seq_id, num_tokens):
    """Takes the blocks, and gives them back when there are too few."""
    self.check_new(seq_id)
    taken, wanted = [], self.blocks_for(num_tokens)
    try:
        for _ in range(wanted):
            taken.append(self.block_manager.allocate())
    except MemoryError:
        while taken:
            self.block_manager.free(taken.pop())
        raise
    self.start(seq_id, num_tokens, taken)


def add_then_grow(self, seq_id, num_tokens):
    self.check_new(seq_id)
    if self.blocks_for(num_tokens) > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError
    self.start(seq_id, 0, [])
    for _ in range(num_tokens):
        self.append_token(seq_id)


def append_in_three_cases(self, seq_id):
    sequence = self.get(seq_id)
    if sequence.length == self.max_blocks_per_seq * self.block_size:
        self.blocks_for(sequence.length + 1)
    blocks = self.blocks_of(seq_id)
    if sequence.length == len(blocks) * self.block_size:
        last = self.block_manager.allocate()
        self.table.write(sequence.row, len(blocks), [last])
    elif self.block_manager.get_ref_count(blocks[-1]) == 1:
        last = blocks[-1]
    else:
        last = self.block_manager.allocate()
        for layer in self.kv_cache:
            for half in layer:
                half[last].copy_(half[blocks[-1]])
        self.table.write(sequence.row, len(blocks) - 1, [last])
        self.block_manager.free(blocks[-1])
    offset = sequence.length % self.block_size
    self.sequences[seq_id] = Sequence(sequence.row, sequence.length + 1)
    return last * self.block_size + offset


def append_through_the_table(self, seq_id):
    sequence = self.get(seq_id)
    self.blocks_for(sequence.length + 1)
    index = sequence.length // self.block_size
    entry = self.table.cpu[sequence.row, index].item()
    if entry == -1:
        self.table.write(sequence.row, index, [self.block_manager.allocate()])
    elif self.block_manager.get_ref_count(entry) != 1:
        fresh = self.block_manager.allocate()
        self.kv_cache[:, :, fresh] = self.kv_cache[:, :, entry].clone()
        self.table.cpu[sequence.row, index] = fresh
        self.table.on_device[sequence.row, index] = fresh
        self.block_manager.free(entry)
    sequence.length += 1
    return self.table.cpu[sequence.row, index].item() * self.block_size + (sequence.length - 1) % self.block_size


def append_tensor_slot(self, seq_id):
    """Finds the slot as exercise 2.2 does."""
    sequence = self.get(seq_id)
    needed = self.blocks_for(sequence.length + 1)
    held = self.blocks_for(sequence.length)
    if needed > held:
        self.table.write(sequence.row, held, [self.block_manager.allocate()])
    else:
        shared = self.blocks_of(seq_id)[held - 1]
        if self.block_manager.get_ref_count(shared) > 1:
            own = self.block_manager.allocate()
            self.kv_cache.index_copy_(2, torch.tensor([own]), self.kv_cache[:, :, [shared]])
            self.block_manager.free(shared)
            self.table.write(sequence.row, held - 1, [own])
    position = torch.tensor([sequence.length])
    sequence.length = sequence.length + 1
    return slots_one_by_one(self.table.cpu[sequence.row], position, self.block_size).item()


def fork_checking_first(self, seq_id, child_id):
    parent = self.get(seq_id)
    self.check_new(child_id)
    shared = self.blocks_of(seq_id)
    [self.block_manager.increase_ref_count(block) for block in shared]
    row = self.table.free_rows.pop()
    self.table.write(row, 0, shared)
    self.sequences[child_id] = Sequence(row, parent.length)


def fork_by_row(self, seq_id, child_id):
    parent = self.get(seq_id)
    self.check_new(child_id)
    row = self.table.cpu[parent.row]
    for block in row[row >= 0].tolist():
        self.block_manager.increase_ref_count(block)
    self.start(child_id, parent.length, row.tolist())


def fork_undoing(self, seq_id, child_id):
    blocks = self.blocks_of(seq_id)
    for block in blocks:
        self.block_manager.increase_ref_count(block)
    try:
        self.check_new(child_id)
    except Exception:
        for block in blocks:
            self.block_manager.free(block)
        raise
    self.start(child_id, self.sequences[seq_id].length, blocks)


def free_backwards(self, seq_id):
    for block in reversed(self.blocks_of(seq_id)):
        self.block_manager.free(block)
    row = self.sequences[seq_id].row
    del self.sequences[seq_id]
    self.table.clear(row)


def free_by_row(self, seq_id):
    sequence = self.get(seq_id)
    for block in self.table.cpu[sequence.row].tolist():
        if block == -1:
            break
        self.block_manager.free(block)
    self.sequences.pop(seq_id)
    self.table.clear(sequence.row)


def free_by_hand(self, seq_id):
    row, blocks = self.get(seq_id).row, self.blocks_of(seq_id)
    self.sequences.pop(seq_id)
    self.table.cpu[row, :] = -1
    self.table.on_device[row] = torch.full_like(self.table.on_device[row], -1)
    self.table.free_rows.insert(0, row)
    while blocks:
        self.block_manager.free(blocks.pop())


RIGHT_ANSWERS = {
    "2.1": [pieces_by_addresses, pieces_by_flattening, pieces_recursively],
    "2.2": [slots_one_by_one, slots_from_every_slot, slots_with_numpy, slots_with_gather],
    "2.3": [write_by_block_and_offset, write_token_by_token, write_with_index_copy, write_with_own_checks],
    "2.4": [add_counting_first, add_giving_back, add_then_grow],
    "2.5": [append_in_three_cases, append_through_the_table, append_tensor_slot],
    "2.6": [fork_checking_first, fork_by_row, fork_undoing],
    "2.7": [free_backwards, free_by_row, free_by_hand],
}
