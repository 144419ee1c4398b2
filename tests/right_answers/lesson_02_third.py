"""Lesson 02's known mistakes as a third learner wrote them."""

from right_answers.lesson_02_second import (
    ADD,
    APPEND,
    CLEAR,
    COPY,
    COUNT,
    EACH,
    ENTER_COPY,
    ENTER_NEW,
    FORK,
    FREE,
    LIMIT,
    LOOP,
    REFUSAL,
    SLOT,
    changed,
)

PIECES = """
def count_pieces(view):
    run = 1
    for d in reversed(range(view.dim())):
        if view.shape[d] == 1:
            continue
        if view.stride(d) != run:
            break
        run *= view.shape[d]
    return view.numel() // run, run * view.element_size()
"""
PIECES_FROM_THE_LEFT = """
def count_pieces(view):
    for d in range(view.dim()):
        rest = view[(0,) * (d + 1)].numel()
        if view.stride(d) != rest:
            return view.shape[d], view.stride(d) * view.element_size()
    return 1, view.nbytes
"""
SLOTS = """
def slot_mapping(block_ids, positions, block_size):
    blocks = positions // block_size
    return block_ids[blocks].long() * block_size + positions % block_size
"""
SLOTS_ONE_BY_ONE = """
def slot_mapping(block_ids, positions, block_size):
    slots = [block_ids[p // block_size].long() * block_size + p % block_size for p in positions]
    return torch.stack(slots)
"""
WRITE = """
def write_kv(k_cache, v_cache, slots, k, v):
    flat_k, flat_v = k_cache.view(-1, *k.shape[1:]), v_cache.view(-1, *v.shape[1:])
    for i, slot in enumerate(slots):
        flat_k[slot] = k[i]
        flat_v[slot] = v[i]
"""
AT_ONCE = """
def write_kv(k_cache, v_cache, slots, k, v):
    flat_k, flat_v = k_cache.view(-1, *k.shape[1:]), v_cache.view(-1, *v.shape[1:])
    flat_k[slots] = k
    flat_v[slots] = v
"""
START = "self.start(seq_id, num_tokens, blocks)"
TAKE = "blocks.append(self.block_manager.allocate())"
CAUGHT = """
def add_sequence(self, seq_id, num_tokens):
    self.check_new(seq_id)
    needed, blocks = self.blocks_for(num_tokens), []
    try:
        while len(blocks) < needed:
            blocks.append(self.block_manager.allocate())
    except OutOfBlocksError:
        for block in blocks:
            self.block_manager.free(block)
        raise
    self.start(seq_id, num_tokens, blocks)
"""
IN_A_ROW = "row = self.table.free_rows[-1]; self.sequences[{0}] = Sequence(row, {1}); self.table.write(row, 0, blocks)"

RIGHT_ANSWERS = {}
WRONG_ANSWERS = {
    "2.1": {
        "stride-for-the-piece": [
            changed(PIECES, ("            break",
                             "            return view.numel() // run, view.stride(d) * view.element_size()")),
            changed(PIECES_FROM_THE_LEFT)],
        "place-added": [changed(PIECES, ("run * view.element_size()", "view.storage_offset() + run * view.element_size()"))],
        "tensors-not-ints": [
            changed(PIECES, ("run = 1", "run = torch.tensor(1)"), ("view.stride(d) != run", "view.stride(d) != run.item()")),
            changed(PIECES, ("return view.numel() // run, run * view.element_size()",
                             "return torch.tensor(view.numel() // run), torch.tensor(run * view.element_size())"))],
        "strides-in-bytes": [changed(PIECES, ("run = 1", "run = view.element_size()"), (
            "view.numel() // run, run * view.element_size()", "view.numel() * view.element_size() // run, run"))],
        "gaps-in-the-pieces": [changed(PIECES, (
            "return view.numel() // run, run * view.element_size()",
            "pieces = view.numel() // run; return pieces, view.untyped_storage().nbytes() // pieces"))],
    },
    "2.2": {
        "positions-sorted": [changed(SLOTS, ("    blocks =", "    positions, _ = torch.sort(positions)\n    blocks ="))],
        "entry-too-early": [changed(SLOTS, ("block_ids[blocks]", "block_ids[blocks - 1]"))],
        "rounds-to-nearest": [changed(SLOTS, ("positions // block_size", "torch.round(positions / block_size).int()"))],
        "float-index": [changed(SLOTS, ("positions // block_size", "positions / block_size"))],
        "row-length-for-block-size": [changed(SLOTS, (".long() * block_size", ".long() * block_ids.numel()"))],
        "offset-multiplied": [changed(SLOTS, ("block_size + positions % block_size", "(block_size + positions % block_size)"))],
        "block-zero-forgotten": [changed(SLOTS, ("    blocks =", "    block_ids = block_ids[block_ids.nonzero()[:, 0]]\n"
                                                                 "    block_ids = block_ids[block_ids >= 0]\n    blocks ="))],
        "column-for-row": [changed(SLOTS, ("    blocks =", "    positions = positions.unsqueeze(1)\n    blocks ="))],
        "changed-before-use": [changed(SLOTS, ("    blocks =", "    positions %= block_size\n    blocks ="))],
        "nothing-to-join": [changed(SLOTS_ONE_BY_ONE)],
        "float-slots": [changed(SLOTS, ("block_ids[blocks].long()", "block_ids[blocks].to(torch.float32)"),
                                ("positions % block_size", "(positions % block_size)"), ("return ", "return 0 + torch.Tensor.long("),
                                ("(positions % block_size)", "(positions % block_size))"))],
    },
    "2.3": {
        "reads-at-the-slots": [changed(AT_ONCE, ("flat_k[slots] = k", "flat_k[:] = k[slots]"),
                                       ("flat_v[slots] = v", "flat_v[:] = v[slots]"))],
        "slot-zero-forgotten": [changed(WRITE, ("slots):\n", "slots):\n        if not slot:\n            continue\n")),
                                changed(AT_ONCE, ("    flat_k, ", "    used = slots > 0\n    slots = slots[used]\n"
                                                                  "    k, v = k[used], v[used]\n    flat_k, "))],
        "all-else-wiped": [changed(AT_ONCE, ("    flat_k, ", "    k_cache.zero_(); v_cache.zero_()\n    flat_k, ")),
                           changed(AT_ONCE, ("flat_k[slots] = k", "new = 0 * flat_k; new[slots] = k; flat_k.copy_(new)"),
                                   ("flat_v[slots] = v", "new = 0 * flat_v; new[slots] = v; flat_v.copy_(new)"))],
        "writes-into-a-copy": [changed(AT_ONCE, ("k_cache.view", "k_cache.transpose(0, 1).reshape"),
                                       ("v_cache.view", "v_cache.transpose(0, 1).reshape"))],
        "numbers-for-slots": [changed(AT_ONCE, ("k_cache.view(-1, *k.shape[1:]), v_cache.view(-1, *v.shape[1:])",
                                                "k_cache.view(-1), v_cache.view(-1)"), ("] = k", "] = k.view(-1)"),
                                      ("] = v", "] = v.view(-1)"))],
        "slot-for-token": [changed(WRITE, ("k[i]", "k[slot]"), ("v[i]", "v[slot]"))],
        "returns-inside-the-loop": [changed(WRITE, ("flat_v[slot] = v[i]", "flat_v[slot] = v[i]\n        return k_cache, v_cache"))],
        "first-head-only": [changed(WRITE, ("flat_k[slot] = k[i]", "flat_k[slot][0] = k[i][0]"),
                                    ("flat_v[slot] = v[i]", "flat_v[slot][0] = v[i][0]"))],
        "both-into-the-keys": [changed(WRITE, ("v_cache.view(-1, *v.shape[1:])", "k_cache.view(-1, *v.shape[1:])"))],
    },
    "2.4": {
        "number-for-blocks": [changed(ADD, (START, "self.start(seq_id, num_tokens, needed)")),
                              changed(ADD, (START, "self.start(seq_id, num_tokens, len(blocks))"))],
        "start-arguments-swapped": [changed(ADD, (START, "self.start(num_tokens, seq_id, blocks)"))],
        "partial-allocation": [changed(CAUGHT)],
        "row-taken-first": [changed(ADD, ("    needed =", "    row = self.table.free_rows.pop()\n    needed ="), (
            START, "self.sequences[seq_id] = Sequence(row, num_tokens); self.table.write(row, 0, blocks)"))],
        "row-left-in-the-list": [changed(ADD, (START, IN_A_ROW.format("seq_id", "num_tokens")))],
        "looks-for-the-new-one": [changed(ADD, ("self.check_new(seq_id)", "sequence = self.get(seq_id)"))],
        "nothing-for-no-tokens": [changed(ADD, (f"    {START}", f"    if blocks:\n        {START}"))],
        "sequence-not-entered": [changed(ADD, (START, "self.table.write(self.table.free_rows.pop(), 0, blocks)"))],
        "length-not-set": [changed(ADD, (START, "self.start(seq_id, 0, blocks)"))],
        "counted-twice": [changed(ADD, (TAKE, f"{TAKE}; self.block_manager.increase_ref_count(blocks[-1])"))],
        "cpu-table-forgotten": [changed(ADD, (START, "self.start(seq_id, num_tokens, []); self.block_table[self.sequences["
                                                     "seq_id].row, :needed] = torch.tensor(blocks, dtype=torch.int32)"))],
        "positions-for-ids": [changed(ADD, (TAKE, "blocks.append(len(blocks))"))],
        "blocks-in-reverse": [changed(ADD, (TAKE, "blocks.insert(0, self.block_manager.allocate())"))],
        "whole-row-taken": [changed(ADD, ("range(needed)", "range(self.max_blocks_per_seq)"))],
    },
    "2.5": {
        "copies-a-part": [changed(APPEND, (COPY, "self.kv_cache[:, :, copy, 0] = self.kv_cache[:, :, block, 0]"))],
        "first-entry-overwritten": [changed(APPEND, (ENTER_NEW, "self.table.write(sequence.row, 0, [block])"))],
        "shared-by-another-number": [changed(APPEND, ("(block) > 1", "(block) > 2")), changed(APPEND, ("(block) > 1", "(block) == 2"))],
        "another-error-when-full": [changed(APPEND, (
            "        block = self.block_manager.allocate()", "        if not self.block_manager.get_num_free_blocks():\n"
            "            raise MemoryError('full')\n        block = self.block_manager.allocate()"), (
            "            copy = self.block_manager.allocate()", "            if not self.block_manager.get_num_free_blocks():\n"
            "                raise MemoryError('full')\n            copy = self.block_manager.allocate()")),
            changed(APPEND, ("        block = self.block_manager.allocate()",
                             "        if self.block_manager.get_num_free_blocks() < 1:\n"
                             "            raise MemoryError('full')\n        block = self.block_manager.allocate()"))],
        "returns-pair": [changed(APPEND, (SLOT, "return (block, offset)"))],
        "id-for-row": [changed(APPEND, (ENTER_NEW, "self.table.write(seq_id, index, [block])"))],
        "device-table-forgotten": [changed(APPEND, (ENTER_NEW, "self.table.cpu[sequence.row, index] = block"))],
        "cpu-table-forgotten": [changed(APPEND, (ENTER_COPY, "self.block_table[sequence.row, index] = copy")),
                                changed(APPEND, (ENTER_NEW, "self.block_table[sequence.row, index] = block"))],
        "last-of-the-old-blocks": [changed(
            APPEND, ("    else:\n        block = blocks[index]\n        if", "    block = self.blocks_of(seq_id)[-1]\n    if"),
            ("            copy = ", "        copy = "), (f"            {COPY}", f"        {COPY}"),
            ("            self.block_manager.free", "        self.block_manager.free"),
            (f"            {ENTER_COPY}", f"        {ENTER_COPY}"), ("            block = copy", "        block = copy"))],
        "length-counted-on-failure": [
            changed(APPEND, (COUNT, ""), (LIMIT, COUNT + LIMIT.replace(" + 1", "")), ("divmod(sequence.length,",
                    "divmod(sequence.length - 1,"), ("blocks = self.blocks_of(seq_id)", "blocks = self.table.cpu[sequence.row, "
                    ": -(-(sequence.length - 1) // self.block_size)].tolist()"))],
    },
    "2.6": {
        "other-blocks-counted": [
            changed(FORK, ("for block in blocks", "for block in filter(self.block_manager.get_ref_count, "
                                                  "range(len(self.kv_cache[0, 0])))")),
            changed(FORK, ("for block in blocks", "for block in sum(map(self.blocks_of, self.sequences), [])"))],
        "duplicate-ignored": [changed(FORK, ("    self.check_new(child_id)\n", "    if child_id in self.sequences:\n"
                                                                                "        return\n"
                                                                                "    self.check_new(child_id)\n"))],
        "checked-after-start": [
            changed(FORK, ("    self.check_new(child_id)\n", "    self.start(child_id, parent.length, [])\n"
                                                              "    self.check_new(child_id)\n")),
            changed(FORK, ("    self.check_new(child_id)\n", ""),
                    (", blocks)\n", ", blocks)\n    self.check_new(child_id)\n"))],
        "parent-freed": [changed(FORK, (", blocks)\n", ", blocks)\n    self.free_sequence(seq_id)\n"))],
        "own-blocks-lost": [changed(FORK, ("    self.check_new(child_id)\n", "    self.add_sequence(child_id, parent.length)\n"), (
            "self.start(child_id, parent.length, blocks)", "self.table.write(self.sequences[child_id].row, 0, blocks)"))],
        "id-for-row": [changed(FORK, ("self.start(child_id, parent.length, blocks)", "self.sequences[child_id] = Sequence("
                                      "child_id, parent.length); self.table.write(child_id, 0, blocks)"))],
        "row-left-in-the-list": [changed(FORK, ("self.start(child_id, parent.length, blocks)",
                                                IN_A_ROW.format("child_id", "parent.length")))],
        "cpu-table-forgotten": [changed(FORK, (", blocks)\n", ", [])\n    self.block_table[self.sequences[child_id].row] = "
                                                              "self.block_table[parent.row]\n"))],
        "block-zero-forgotten": [changed(FORK, ("self.blocks_of(seq_id)\n", "self.get_block_table_for_seq(seq_id)\n"
                                                "    blocks = blocks[blocks > 0].tolist()\n")),
                                 changed(FORK, (EACH, EACH.replace("blocks:", "filter(None, blocks):")))],
        "shares-the-row": [changed(FORK, (", blocks)\n", ", blocks)\n    self.sequences[child_id] = parent\n"))],
    },
    "2.7": {
        "block-zero-kept": [changed(FREE, (LOOP, "for block in self.table.cpu[self.get(seq_id).row].tolist():\n        if block > 0:\n"
                                                 "            self.block_manager.free(block)\n"))],
        "id-for-row": [changed(FREE, (CLEAR, "self.table.clear(seq_id)\n    del self.sequences[seq_id]"))],
        "sequence-not-forgotten": [
            changed(FREE, (CLEAR, "self.table.clear(self.get(seq_id).row)\n    self.get(seq_id).length = 0")),
            changed(FREE, (CLEAR, "self.table.clear(self.get(seq_id).row)\n    self.sequences[seq_id] = None"))],
    },
}
