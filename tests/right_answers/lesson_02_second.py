"""Lesson 02's known mistakes as a second learner wrote them."""

import math

import torch
from right_answers.lesson_02 import append_in_three_cases

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.kv_cache import Sequence
from paged_attention.validate import check_write


def one_piece_whatever(view):
    return (1, view.element_size() * math.prod(view.shape))


def rows_are_pieces(view):
    rows = math.prod(view.shape[:-1])
    if view.stride()[-1] != 1:
        return view.numel(), view.element_size()
    return rows, view.shape[-1] * view.element_size()


def slots_in_the_tables_type(block_ids, positions, block_size):
    return (block_ids[positions // block_size] * block_size + positions % block_size).to(torch.int32)


def slots_from_the_first_block(block_ids, positions, block_size):
    return int(block_ids[0]) * block_size + positions


def write_at_slots(k_cache, v_cache, slots, k, v):
    for token, slot in enumerate(slots.tolist()):
        k_cache[slot] = k[token]
        v_cache[slot] = v[token]


def write_only_k(k_cache, v_cache, slots, k, v):
    k_cache.flatten(0, 1)[slots] = k


def add_taking_at_once(self, seq_id, num_tokens):
    self.check_new(seq_id)
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(self.blocks_for(num_tokens))])


def add_rounding_down(self, seq_id, num_tokens):
    self.check_new(seq_id)
    self.blocks_for(num_tokens)
    count, _ = divmod(num_tokens, self.block_size)
    if self.block_manager.get_num_free_blocks() < count:
        raise OutOfBlocksError("full")
    self.start(seq_id, num_tokens, [self.block_manager.allocate() for _ in range(count)])


def append_ignoring_sharing(self, seq_id):
    sequence = self.get(seq_id)
    needed = self.blocks_for(sequence.length + 1)
    if needed > len(self.blocks_of(seq_id)):
        self.table.write(sequence.row, needed - 1, [self.block_manager.allocate()])
    sequence.length += 1
    return self.blocks_of(seq_id)[-1] * self.block_size + (sequence.length - 1) % self.block_size


def append_allocating_before_looking(self, seq_id):
    sequence = self.get(seq_id)
    if sequence.length % self.block_size:
        return append_in_three_cases(self, seq_id)
    block = self.block_manager.allocate()
    needed = self.blocks_for(sequence.length + 1)
    self.table.write(sequence.row, needed - 1, [block])
    sequence.length += 1
    return block * self.block_size


def fork_without_counting(self, seq_id, child_id):
    parent = self.get(seq_id)
    self.check_new(child_id)
    self.start(child_id, parent.length, self.blocks_of(seq_id))


def fork_counting_too_soon(self, seq_id, child_id):
    blocks = self.blocks_of(seq_id)
    for block in blocks:
        self.block_manager.increase_ref_count(block)
    self.check_new(child_id)
    self.start(child_id, self.get(seq_id).length, blocks)


def free_to_zero(self, seq_id):
    row, blocks = self.get(seq_id).row, self.blocks_of(seq_id)
    for block in blocks:
        self.block_manager.free(block)
    self.table.cpu[row].fill_(0)
    self.table.on_device[row].fill_(0)
    self.table.free_rows.append(row)
    self.sequences.pop(seq_id)


def free_without_blocks(self, seq_id):
    self.get(seq_id)
    self.table.clear(self.sequences.pop(seq_id).row)


def pieces_of_the_last_size(view):
    *others, last = view.shape
    return math.prod(others), last * view.element_size()


def pieces_in_half_precision(view):
    length = 1
    for dimension in reversed(range(view.dim())):
        if view.shape[dimension] > 1:
            if view.stride(dimension) != length:
                break
            length *= view.shape[dimension]
    return view.numel() // length, length * 2


def pieces_from_the_front(view):
    length = 1
    for dimension in range(view.dim()):
        if view.stride(dimension) != length:
            break
        length *= view.shape[dimension]
    return view.numel() // length, length * view.element_size()


def jumps_between_addresses(view):
    addresses = torch.arange(view.untyped_storage().nbytes() // view.element_size()).as_strided(
        view.shape, view.stride(), view.storage_offset()).flatten().tolist()
    jumps = sum(after != before + 1 for before, after in zip(addresses, addresses[1:]))
    return jumps, len(addresses) // (jumps + 1) * view.element_size()


def slots_counted_from_one(block_ids, positions, block_size):
    before = positions - 1
    return block_ids[before // block_size].long() * block_size + before % block_size


def slots_in_a_changed_row(block_ids, positions, block_size):
    block_ids.mul_(block_size)
    return positions % block_size + block_ids[positions // block_size].long()


def slots_as_int32_list(block_ids, positions, block_size):
    slots = [int(block_ids[position // block_size]) * block_size + position % block_size for position in positions.tolist()]
    return torch.tensor(slots, dtype=torch.int32)


def slots_of_the_first_tokens(block_ids, positions, block_size):
    parts = [torch.arange(block_size) + block * block_size for block in block_ids.tolist()]
    return torch.cat(parts)[: len(positions)]


def slots_in_order(block_ids, positions, block_size):
    return torch.sort(block_ids[positions // block_size].long() * block_size + positions % block_size)[0]


def slots_in_one_block(block_ids, positions, block_size):
    block = block_ids[positions // block_size][0].long()
    return block * block_size + positions % block_size


def slots_of_sixteen(block_ids, positions, block_size):
    return block_ids[positions // 16].long() * 16 + positions % 16


def slots_listed(block_ids, positions, block_size):
    return [block_ids[position // block_size].item() * block_size + position % block_size for position in positions.tolist()]


def write_keys_twice(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    k_cache.flatten(0, 1)[slots] = k
    v_cache.flatten(0, 1)[slots] = k


def write_by_number_of_blocks(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    num_blocks = len(k_cache)
    block, offset = slots // num_blocks, slots % num_blocks
    k_cache[block, offset] = k
    v_cache[block, offset] = v


def write_as_in_the_example(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    flat_k, flat_v = k_cache.view(-1, 1, k_cache.shape[-1]), v_cache.view(-1, 1, v_cache.shape[-1])
    flat_k[slots] = k
    flat_v[slots] = v


def write_to_single_numbers(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    k_cache.flatten()[slots] = k
    v_cache.flatten()[slots] = v


def write_at_the_front(k_cache, v_cache, slots, k, v):
    check_write(k_cache, v_cache, slots, k, v)
    k_cache.flatten(0, 1)[: len(slots)] = k
    v_cache.flatten(0, 1)[: len(slots)] = v


def write_unguarded(k_cache, v_cache, slots, k, v):
    k_cache.flatten(0, 1).index_copy_(0, slots, k)
    v_cache.flatten(0, 1).index_copy_(0, slots, v)


def write_guarded_too_late(k_cache, v_cache, slots, k, v):
    block_size = k_cache.shape[1]
    k_cache[slots // block_size, slots % block_size] = k
    v_cache[slots // block_size, slots % block_size] = v
    check_write(k_cache, v_cache, slots, k, v)


ADD = """
def add_sequence(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed = self.blocks_for(num_tokens)
    free = self.block_manager.get_num_free_blocks()
    if needed > free:
        raise OutOfBlocksError(f"{needed} blocks needed, {free} are free")
    blocks = []
    for _ in range(needed):
        blocks.append(self.block_manager.allocate())
    self.start(seq_id, num_tokens, blocks)
"""
APPEND = """
def append_token(self, seq_id):
    sequence = self.get(seq_id)
    self.blocks_for(sequence.length + 1)
    index, offset = divmod(sequence.length, self.block_size)
    blocks = self.blocks_of(seq_id)
    if index == len(blocks):
        block = self.block_manager.allocate()
        self.table.write(sequence.row, index, [block])
    else:
        block = blocks[index]
        if self.block_manager.get_ref_count(block) > 1:
            copy = self.block_manager.allocate()
            self.kv_cache[:, :, copy] = self.kv_cache[:, :, block]
            self.block_manager.free(block)
            self.table.write(sequence.row, index, [copy])
            block = copy
    sequence.length += 1
    return block * self.block_size + offset
"""
FORK = """
def fork_sequence(self, seq_id, child_id):
    parent, blocks = self.get(seq_id), self.blocks_of(seq_id)
    self.check_new(child_id)
    for block in blocks:
        self.block_manager.increase_ref_count(block)
    self.start(child_id, parent.length, blocks)
"""
FREE = """
def free_sequence(self, seq_id):
    for block in self.blocks_of(seq_id):
        self.block_manager.free(block)
    self.table.clear(self.sequences.pop(seq_id).row)
"""


def changed(text, *edits):
    """The function in `text` after the (old, new) edits."""
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    namespace = {"__name__": __name__, "OutOfBlocksError": OutOfBlocksError, "torch": torch, "Sequence": Sequence}
    exec(text, namespace)
    return namespace[text.split("(")[0].split()[1]]


REFUSAL = 'raise OutOfBlocksError(f"{needed} blocks needed, {free} are free")'
LIMIT = "    self.blocks_for(sequence.length + 1)\n"
COUNT = "    sequence.length += 1\n"
ENTER_NEW, ENTER_COPY = "self.table.write(sequence.row, index, [block])", "self.table.write(sequence.row, index, [copy])"
COPY = "self.kv_cache[:, :, copy] = self.kv_cache[:, :, block]"
SLOT = "return block * self.block_size + offset"
EACH = "    for block in blocks:\n        self.block_manager.increase_ref_count(block)\n"
CLEAR = "self.table.clear(self.sequences.pop(seq_id).row)"
LOOP = "for block in self.blocks_of(seq_id):\n        self.block_manager.free(block)\n"

RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "2.1": {
        "gaps-unnoticed": [one_piece_whatever],
        "last-dimension-only": [rows_are_pieces, pieces_of_the_last_size],
        "two-bytes-always": [pieces_in_half_precision],
        "from-the-first-dimension": [pieces_from_the_front],
        "gaps-not-pieces": [jumps_between_addresses],
    },
    "2.2": {
        "slots-int32": [slots_in_the_tables_type, slots_as_int32_list],
        "pages-assumed-contiguous": [slots_from_the_first_block],
        "block-boundary-off-by-one": [slots_counted_from_one],
        "inputs-changed": [slots_in_a_changed_row],
        "positions-assumed-from-zero": [slots_of_the_first_tokens],
        "slots-sorted": [slots_in_order],
        "one-block-for-all": [slots_in_one_block],
        "block-size-ignored": [slots_of_sixteen],
        "list-for-tensor": [slots_listed],
    },
    "2.3": {
        "write-selects-whole-blocks": [write_at_slots],
        "keys-only": [write_only_k],
        "keys-in-both": [write_keys_twice],
        "divided-by-another-size": [write_by_number_of_blocks],
        "one-head-in-the-view": [write_as_in_the_example],
        "numbers-for-slots": [write_to_single_numbers],
        "slots-ignored": [write_at_the_front],
        "arguments-unchecked": [write_unguarded],
        "checked-after-writing": [write_guarded_too_late],
    },
    "2.4": {
        "partial-allocation": [add_taking_at_once],
        "floor-division": [add_rounding_down],
        "block-boundary-off-by-one": [changed(ADD, ("self.blocks_for(num_tokens)", "num_tokens // self.block_size + 1"))],
        "length-in-blocks": [changed(ADD, ("num_tokens, blocks)", "len(blocks), blocks)"))],
        "tokens-for-blocks": [changed(ADD, ("if needed > free", "if num_tokens > free"))],
        "no-tokens-refused": [changed(ADD, ("    self.check_new", """    if not num_tokens > 0:
        raise ValueError("no tokens")
    self.check_new"""))],
        "another-error": [changed(ADD, (REFUSAL, "raise RuntimeError('the pool is full')"))],
        "refused-in-silence": [changed(ADD, (REFUSAL, "return None"))],
        "started-before-the-check": [changed(
            ADD, ("    if needed", "    self.start(seq_id, num_tokens, [])\n    if needed"),
            ("self.start(seq_id, num_tokens, blocks)", "self.table.write(self.sequences[seq_id].row, 0, blocks)"))],
        "one-block-for-all": [changed(ADD, ("    for _", "    block = self.block_manager.allocate()\n    for _"),
                                      ("blocks.append(self.block_manager.allocate())", "blocks.append(block)"))],
        "positions-for-ids": [changed(ADD, ("for _", "for index"), ("blocks.append(self.block_manager.allocate())",
                                                                    "self.block_manager.allocate(); blocks.append(index)"))],
        "whole-row-taken": [changed(ADD, ("    free =", "    needed = len(self.table.cpu[0])\n    free ="))],
        "id-for-row": [changed(ADD, ("self.start(seq_id, num_tokens, blocks)", "self.sequences[seq_id] = Sequence(seq_id, "
                                     "num_tokens); self.table.write(seq_id, 0, blocks)"))],
    },
    "2.5": {
        "writes-into-shared-block": [append_ignoring_sharing],
        "leak-on-failed-append": [append_allocating_before_looking],
        "row-limit-forgotten": [changed(APPEND, (LIMIT, ""))],
        "copies-a-layer": [changed(APPEND, (COPY, "self.kv_cache[:, copy] = self.kv_cache[:, block]"))],
        "length-counted-first": [changed(APPEND, (COUNT, ""), (LIMIT, LIMIT + COUNT))],
        "copied-backwards": [changed(APPEND, (COPY, "self.kv_cache[:, :, block] = self.kv_cache[:, :, copy]"))],
        "copies-every-shared-block": [changed(
            APPEND, ("        block = blocks[index]\n", """        for number in range(index):
            if self.block_manager.get_ref_count(blocks[number]) > 1:
                own = self.block_manager.allocate()
                self.kv_cache[:, :, own] = self.kv_cache[:, :, blocks[number]]
                self.block_manager.free(blocks[number])
                self.table.write(sequence.row, number, [own])
        block = blocks[index]
"""))],
        "new-block-not-entered": [changed(APPEND, (ENTER_NEW, "pass"))],
        "cpu-table-forgotten": [changed(APPEND, (ENTER_NEW, "self.block_table[sequence.row, index] = block"),
                                        (ENTER_COPY, "self.block_table[sequence.row, index] = copy"))],
        "id-for-row": [changed(APPEND, (ENTER_NEW, "self.table.write(seq_id, index, [block])"),
                               (ENTER_COPY, "self.table.write(seq_id, index, [copy])"))],
        "position-for-index": [changed(APPEND, (ENTER_NEW, "self.table.write(sequence.row, sequence.length, [block])"))],
        "another-error": [changed(APPEND, (LIMIT, "    if sequence.length // self.block_size == self.max_blocks_per_seq:\n"
                                                  "        raise ValueError('the row is full')\n"))],
        "error-swallowed": [changed(APPEND, ("        block = self.block_manager.allocate()\n", """        try:
            block = self.block_manager.allocate()
        except MemoryError:
            return -1
"""))],
        "returns-next-slot": [changed(APPEND, (SLOT, "return block * self.block_size + sequence.length % self.block_size"))],
        "logical-for-physical": [changed(APPEND, (SLOT, "return index * self.block_size + offset"))],
        "returns-tensor": [changed(APPEND, (SLOT, "return torch.tensor([block])[0] * self.block_size + offset"))],
    },
    "2.6": {
        "counts-not-increased": [fork_without_counting],
        "half-done-fork": [fork_counting_too_soon],
        "length-in-blocks": [changed(FORK, ("parent.length", "len(blocks)"))],
        "copies-blocks": [changed(FORK, (EACH, """    new = []
    for block in blocks:
        new.append(self.block_manager.allocate())
        self.kv_cache[:, :, new[-1]] = self.kv_cache[:, :, block]
"""), ("parent.length, blocks)", "parent.length, new)"))],
        "last-block-left-out": [changed(FORK, ("    self.check_new(child_id)\n", """    self.check_new(child_id)
    full = parent.length // self.block_size
    blocks = blocks[:full]
"""), ("parent.length, blocks)", "full * self.block_size, blocks)"))],
        "positions-for-ids": [changed(FORK, ("for block in blocks", "for block in range(len(blocks))"))],
        "block-zero-forgotten": [changed(FORK, ("for block in blocks:", "for block in filter(None, blocks):"))],
        "not-every-block-counted": [changed(FORK, ("for block in blocks:", "for block in blocks[:-1]:"))],
        "counts-twice": [changed(FORK, (EACH, EACH + EACH))],
        "parent-and-child-swapped": [changed(FORK, ("check_new(child_id)", "check_new(seq_id)"))],
        "free-blocks-asked-for": [changed(FORK, (EACH, f"""    if self.block_manager.get_num_free_blocks() < len(blocks):
        raise OutOfBlocksError('full')
{EACH}"""))],
        "key-error": [changed(FORK, ("self.get(seq_id)", "self.sequences[seq_id]"))],
        "device-table-forgotten": [changed(FORK, ("parent.length, blocks)", """parent.length, [])
    self.table.cpu[self.get(child_id).row] = self.table.cpu[parent.row]"""))],
    },
    "2.7": {
        "zero-is-a-block": [free_to_zero],
        "blocks-not-freed": [free_without_blocks, changed(FREE, (LOOP, ""))],
        "only-the-last-block": [changed(FREE, ("self.blocks_of(seq_id):", "self.blocks_of(seq_id)[-1:]:"))],
        "last-block-kept": [changed(FREE, ("self.blocks_of(seq_id):",
                                           "self.blocks_of(seq_id)[: self.get(seq_id).length // self.block_size]:"))],
        "positions-for-ids": [changed(FREE, ("in self.blocks_of(seq_id)", "in range(len(self.blocks_of(seq_id)))"))],
        "frees-shared-outright": [changed(FREE, ("        self.block_manager.free(block)\n",
                                                 "        while self.block_manager.get_ref_count(block):\n"
                                                 "            self.block_manager.free(block)\n"))],
        "row-not-given-back": [changed(FREE, (CLEAR, "del self.sequences[seq_id]"))],
        "cpu-table-forgotten": [changed(FREE, (CLEAR, "row = self.sequences.pop(seq_id).row; self.block_table[row] = -1; "
                                                      "self.table.free_rows.append(row)"))],
        "row-listed-twice": [changed(FREE, (CLEAR, "row = self.sequences.pop(seq_id).row; self.table.free_rows.append(row); "
                                                   "self.table.clear(row)"))],
        "cleared-in-the-loop": [changed(FREE, (CLEAR, "self.sequences.pop(seq_id)"), (
            "self.block_manager.free(block)", "self.block_manager.free(block); self.table.clear(self.get(seq_id).row)"))],
        "contents-wiped": [changed(FREE, ("self.block_manager.free(block)",
                                          "self.kv_cache[:, :, block] = 0; self.block_manager.free(block)"))],
        "key-error": [changed(FREE, ("    for block", "    row = self.sequences[seq_id].row\n    for block"),
                              (CLEAR, "self.table.clear(row); del self.sequences[seq_id]"))],
        "forgotten-before-read": [changed(FREE, ("    for block", "    row = self.sequences.pop(seq_id).row\n    for block"),
                                          (CLEAR, "self.table.clear(row)"))],
        "cleared-before-read": [changed(FREE, ("    for block", "    self.table.clear(self.get(seq_id).row)\n    for block"),
                                        (CLEAR, "self.sequences.pop(seq_id)"))],
    },
}
