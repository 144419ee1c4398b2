# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 · Block tables
#
# **You build** the memory of a server: a pool that holds keys and values, and a
# `PagedAttentionManager` that knows which block holds which token of which sequence. Sequences
# come, grow, fork and end, and no call leaves anything half done. Then you measure how much
# memory this saves.
#
# PICTURE opening
#
# **You need** lesson [01](01_block_manager.ipynb): block ids, reference counts, copy on write.
# **It takes** 60 to 90 minutes. Words that you meet again are in the
# [glossary](glossary.ipynb).

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("02")

# %% [markdown]
# The picture shows four sequences and one pool. Each sequence has a row in the **block
# table**: a list of block ids, in the order of its tokens. An arrow leads from each entry to
# its block, wherever that is. A **slot** is the place of one token: coloured slots hold a
# token, and grey slots with a stroke are empty. Orange blocks, marked ×2, belong to two
# sequences.
#
# Look at sequences 0 and 3. They share their first block. Both have since written into the
# second, so sequence 3 has its own copy of it.
#
# The table and the pool will be PyTorch tensors:

# %%
import torch
from torch import Tensor

# %% [markdown]
# ## The block table
#
# The table has a row for each sequence, with an entry for each of its blocks. An entry without
# a block is -1. Filling it with 0 would be a trap, because 0 is a block.
#
# A **kernel**, the program that computes attention on the GPU, reads the table. So the table is
# in the GPU's memory. The CPU reads it too, and must not wait for the GPU each time. So there
# are two copies, and every change is made to both at once.

# %%
# INCLUDE paged_attention/pool/block_table.py NO_BLOCK


# INCLUDE paged_attention/pool/block_table.py BlockTable


# %% [markdown]
# The block ids come from your own block manager: the answers of lesson 01 that have passed,
# each checked once more. Where one is missing, the course's takes its place.

# %%
from paged_attention.own_answers import own_block_manager, show_parts

BlockManager, parts = own_block_manager()
show_parts(parts)

# %% [markdown]
# Now see a table fill. Here we do by hand what your code will do at the end of this lesson. A
# block has room for four tokens:

# %%
block_manager = BlockManager(8)
table = BlockTable(max_num_seqs=3, max_blocks_per_seq=4)
film = draw.Film()

table.write(0, 0, [block_manager.allocate(), block_manager.allocate()])
film.add_table(table, "A sequence comes with 6 tokens: two blocks", {0: 6})
table.write(1, 0, [block_manager.allocate()])
film.add_table(table, "A second one comes with 4 tokens, which fill a block", {0: 6, 1: 4})
table.write(0, 2, [block_manager.allocate()])
film.add_table(table, "The first one grows to 9 tokens, and needs a third block", {0: 9, 1: 4})
block_manager.free(2)
table.clear(1)
film.add_table(table, "The second one ends: its row and its block are free", {0: 9})
table.write(1, 0, [block_manager.allocate(), block_manager.allocate()])
film.add_table(table, "A third one comes with 7 tokens, and gets what is free", {0: 9, 1: 7})
assert torch.equal(table.cpu, table.on_device)
film

# %% [markdown]
# The third sequence has the row of the second, and blocks from here and there. They do not have
# to be side by side. That is the whole idea of paging.
#
# How long should a row be? The longest sequence decides: `max_blocks_per_seq` blocks. It would
# be wasteful to give it as many entries as the pool has blocks. With 10,000 blocks and 256
# rows the table would have 2.56 million entries, and nearly all of them would stay -1.

# %% [markdown]
# ## Slots
#
# Slots are numbered through the whole pool: block 0 has slots 0 to `block_size - 1`, block 1
# has the next ones, and so on.
#
# $$\text{slot} = \text{block id} \times \text{block size} + \text{offset}$$
#
# The sequence's row of the block table says which block, and the offset is the token's place
# in it. With blocks of 4 and the row `[5, 0, 2]`, the token at position 6 is in the row's
# entry 1, at offset 2. That entry is block 0, so the slot is 0 × 4 + 2 = 2.
#
# ### Exercise 2.2: slots
#
# Write it for many positions at once, because a prompt has many tokens. (Exercise 2.1 comes
# later, in an aside.)

# %% exercise="2.2"
# INCLUDE paged_attention/pool/slots.py slot_mapping


# %% check="2.2"
check("2.2", slot_mapping)

# %%
row = torch.tensor([5, 0, 2, -1], dtype=torch.int32)
print("slots of positions 0 to 9:", slot_mapping(row, torch.arange(10), block_size=4).tolist())

# %% [markdown]
# ## One pool for everything
#
# A model has many layers, and each layer has its own keys and values for every token. They are
# all in one tensor, `kv_cache`, which is allocated once, when the server starts:
#
# | dimension | meaning | in Qwen3-8B |
# |---|---|---|
# | `num_layers` | layers of the model | 36 |
# | two halves | keys, values | 2 |
# | `num_blocks` | blocks, as many as memory allows | 10,000, say |
# | `block_size` | tokens in a block | 16 |
# | `num_kv_heads` | heads that have keys and values | 8 |
# | `head_size` | numbers in one head's key | 128 |
#
# One layer's halves are `k_cache` and `v_cache`, of shape
# `(num_blocks, block_size, num_kv_heads, head_size)`. All layers use the same block ids, so
# one block table serves them all. (Other projects say *page* where we say *block*.)

# %% [markdown]
# ## Writing through a flat view
#
# The model computes keys and values for the tokens of a step, in one tensor
# `(num_tokens, num_kv_heads, head_size)`. They have to go to their slots. But `k_cache` counts
# blocks in its first dimension, and offsets in its second. The numbers in memory do not care:
# the same memory can be seen as one long list of slots.

# %%
cache = torch.arange(12).view(3, 2, 1, 2)  # three blocks, two slots, one head, two numbers
flat = cache.view(-1, 1, 2)
print("as blocks:", tuple(cache.shape), "· as slots:", tuple(flat.shape))
print("block 1, offset 1:", cache[1, 1].tolist(), "· slot 3:", flat[3].tolist())
flat[3] = -1
print("after a write to slot 3, block 1 is", cache[1].tolist())

# %% [markdown]
# ### Exercise 2.3: write keys and values
#
# `check_write` looks at the arguments first. A wrong slot would overwrite another sequence's
# tokens, and nobody would notice. The caches are contiguous, and often in bfloat16.

# %%
from paged_attention.validate import check_write

# %% exercise="2.3"
# INCLUDE paged_attention/pool/slots.py write_kv


# %% check="2.3"
check("2.3", write_kv)

# %% [markdown]
# This is what `check_write` is for:

# %%
k_cache, v_cache = torch.zeros(2, 3, 4, 1, 2)
new = torch.ones(2, 1, 2)
wrong_writes = {
    "slots in int32": (torch.tensor([0, 1], dtype=torch.int32), new),
    "a slot outside": (torch.tensor([0, 12]), new),
    "a slot below 0": (torch.tensor([-1, 3]), new),
    "one slot twice": (torch.tensor([3, 3]), new),
    "three keys, two slots": (torch.tensor([0, 1]), torch.ones(3, 1, 2)),
}
for what, (slots, keys) in wrong_writes.items():
    try:
        write_kv(k_cache, v_cache, slots, keys, keys)
    except (TypeError, ValueError) as error:
        print(f"{what + ':':23}{error}")
assert not k_cache.any()

# %% [markdown]
# ## The manager
#
# The manager puts the parts together. Most of it is bookkeeping, and that is given: your class
# has it from `Bookkeeping`, a class of the course. You will use all of this:
#
# | name | what it is or does |
# |---|---|
# | `block_manager` | yours: `allocate()`, `free(block_id)`, `increase_ref_count(block_id)`, `get_ref_count(block_id)`, `get_num_free_blocks()` |
# | `kv_cache`, `table` | the pool of all layers, and the `BlockTable` from above |
# | `block_size`, `max_blocks_per_seq` | tokens in a block, and entries in a row |
# | `sequences` | a dict: a `Sequence` for each id, with its `row` and its `length` |
# | `get(seq_id)` | the `Sequence` with this id, or an error |
# | `blocks_of(seq_id)` | its block ids, in the order of its tokens |
# | `blocks_for(num_tokens)` | how many blocks these tokens need, or an error if a row is too short |
# | `check_new(seq_id)` | an error unless the id and a row are free |
# | `start(seq_id, length, blocks)` | gives a new sequence a row, and writes its blocks there |

# %%
from paged_attention.pool.block_manager import OutOfBlocksError
from paged_attention.pool.kv_cache import (
    Bookkeeping,
    DuplicateSequenceError,
    OutOfRowsError,
    Sequence,
    SequenceTooLongError,
    UnknownSequenceError,
)


class PagedAttentionManager(Bookkeeping):
    """Starts, grows, forks and ends sequences. A call that raises an error changes nothing."""


# %% [markdown]
# The errors, and when they are raised:
#
# | error | Python base | when |
# |---|---|---|
# | `DuplicateSequenceError` | `ValueError` | the id is taken |
# | `UnknownSequenceError` | `LookupError` | there is no sequence with that id |
# | `SequenceTooLongError` | `ValueError` | the sequence needs more blocks than a row has entries |
# | `OutOfRowsError` | `MemoryError` | every row is in use |
# | `OutOfBlocksError` | `MemoryError` | too few free blocks |
#
# In Python each takes a message of your choice:
# `raise OutOfBlocksError("3 blocks needed, 2 are free")`. A block manager built from C++ has
# its own `OutOfBlocksError`, besides the Python one. Both derive from `MemoryError`, so that
# is what a caller catches.
#
# You write four of the methods that change something. (A fifth, `append_tokens`, makes room
# for a whole batch; you write it in lesson 05.) Here each one is a function, and the last line
# of its cell makes it a method of the class. A check calls it on our own manager. If you want a
# helper, write a function, or add one more method in the same way: it comes with your answer.
#
# One rule holds for all of them: **all or nothing**. When a call raises an error, the tables,
# the counts and the pool are as they were. If a call is wrong in two ways, it does not matter
# which error comes first.
#
# ### Exercise 2.4: add a sequence
#
# A new sequence gets a row, and as many blocks as its prompt needs, in the order in which
# `allocate()` hands them out. Count before you take.

# %% exercise="2.4"
# INCLUDE paged_attention/pool/kv_cache.py PagedAttentionManager.add_sequence


PagedAttentionManager.add_sequence = add_sequence

# %% check="2.4"
check("2.4", add_sequence)

# %% [markdown]
# Here is a block table filled by your method. Your block manager is one of the arguments:


# %%
def small_manager():
    return PagedAttentionManager(
        num_blocks=8,
        block_size=4,
        num_kv_heads=1,
        head_size=2,
        max_num_seqs=4,
        max_blocks_per_seq=4,
        block_manager=BlockManager,
    )


manager = small_manager()
manager.add_sequence(0, 6)
manager.add_sequence(7, 9)
print("row of sequence 7:", manager.get_block_table_for_seq(7).tolist())
for seq_id, num_tokens in ((7, 1), (2, 20), (2, 13)):
    try:
        manager.add_sequence(seq_id, num_tokens)
    except (MemoryError, ValueError) as error:
        print(f"add_sequence({seq_id}, {num_tokens}): {type(error).__name__}: {error}")
print("free blocks:", manager.block_manager.get_num_free_blocks())

# %% [markdown]
# ### Exercise 2.5: append a token
#
# Each step of the model gives a sequence one more token. Usually the last block has an empty
# slot. When it is full, the sequence needs another block. And when the last block is shared,
# it must be copied first, in all layers, keys and values. This is exercise 1.6 with the real
# pool.

# %% exercise="2.5"
# INCLUDE paged_attention/pool/kv_cache.py PagedAttentionManager.append_token


PagedAttentionManager.append_token = append_token

# %% check="2.5"
check("2.5", append_token)

# %%
manager = small_manager()
manager.add_sequence(0, 6)
manager.add_sequence(1, 4)
print("slots of the next four tokens:", [manager.append_token(0) for _ in range(4)])
print("row:", manager.get_block_table_for_seq(0).tolist())

# %% [markdown]
# ### Exercise 2.6: fork a sequence and its row
#
# This is exercise 1.5 with the block table: the child gets its own row with the same block
# ids, and each block has one more user.

# %% exercise="2.6"
# INCLUDE paged_attention/pool/kv_cache.py PagedAttentionManager.fork_sequence


PagedAttentionManager.fork_sequence = fork_sequence

# %% check="2.6"
check("2.6", fork_sequence)

# %% [markdown]
# ### Exercise 2.7: free a sequence
#
# Each of its blocks loses a user, and its row becomes free for another sequence.

# %% exercise="2.7"
# INCLUDE paged_attention/pool/kv_cache.py PagedAttentionManager.free_sequence


PagedAttentionManager.free_sequence = free_sequence

# %% check="2.7"
check("2.7", free_sequence)

# %% [markdown]
# ## Watch it work
#
# Here is your manager at work. `live.manager` is an object of your class, and each call of it
# is a step. Point at an entry of the table to see its block.

# %%
live = draw.LiveTables(PagedAttentionManager, BlockManager, num_blocks=8, block_size=4)
manager = live.manager
manager.add_sequence(0, 6)
manager.add_sequence(1, 4)  # its block is full
manager.append_token(1)
manager.fork_sequence(0, 2)  # nothing is copied
manager.append_token(2)  # now it is
manager.free_sequence(1)
manager.add_sequence(5, 12)  # it gets what is free
live

# %% [markdown]
# Go on with the buttons, which call your methods. Another block size begins anew. With which
# one are the fewest slots empty?
#
# A call for something that does not fit, or does not exist, must change nothing. Here is a
# pool that is nearly full:

# %%
manager = small_manager()
for seq_id, num_tokens in ((0, 6), (2, 7), (5, 12)):
    manager.add_sequence(seq_id, num_tokens)
table_before = manager.table.cpu.clone()
free_before = manager.block_manager.get_num_free_blocks()
wrong_calls = {
    "add_sequence(8, 9)": lambda: manager.add_sequence(8, 9),
    "fork_sequence(0, 5)": lambda: manager.fork_sequence(0, 5),
    "append_token(6)": lambda: manager.append_token(6),
    "free_sequence(6)": lambda: manager.free_sequence(6),
}
for call, make in wrong_calls.items():
    try:
        make()
    except (MemoryError, LookupError, ValueError) as error:
        print(f"{call:20} {type(error).__name__}: {error}")
assert torch.equal(manager.table.cpu, table_before)
assert torch.equal(manager.block_table, table_before)
assert manager.block_manager.get_num_free_blocks() == free_before
assert sorted(manager.sequences) == [0, 2, 5]

# %% [markdown]
# ## Keys and values of a sequence, there and back
#
# Now we use all parts together: we write twelve keys and values of sequence 5 through its
# slots, and read them back block by block.

# %%
torch.manual_seed(0)
k, v = torch.randn(2, 12, 1, 2)
k_cache, v_cache = manager.kv_cache[0]
row = manager.get_block_table_for_seq(5)
write_kv(k_cache, v_cache, slot_mapping(row, torch.arange(12), manager.block_size), k, v)
read_back = torch.cat([k_cache[block_id] for block_id in row[:3].tolist()])
assert torch.equal(read_back, k)
print("twelve keys written to blocks", row[:3].tolist(), "and read back")

# %% [markdown]
# ## An aside: does the order of the pool's dimensions matter?
#
# For the result, no. For speed, yes: memory is fast when it is read in long pieces. Which
# numbers lie side by side depends on the **strides**. `stride(i)` says how far apart two
# neighbours along dimension `i` are, counted in numbers.

# %%
pool = torch.zeros(3, 4, 2)  # three blocks of four slots, two numbers in each
print("the pool:             shape", tuple(pool.shape), "strides", pool.stride())
print("slot 1 of each block: shape", tuple(pool[:, 1].shape), "  strides", pool[:, 1].stride())

# %% [markdown]
# A slot has 2 numbers, and the next slot begins 2 numbers further on. A block has 8, and the
# next block begins 8 further on. There are no gaps, so the pool is one piece of 24 numbers. In
# `pool[:, 1]` each slot has 2 numbers, and the next one begins 8 further on. That leaves gaps:
# three pieces of two numbers.
#
# ### Exercise 2.1: pieces of memory

# %% exercise="2.1"
# INCLUDE lessons_content/lesson_02/e2_1_pieces.py count_pieces


# %% check="2.1"
check("2.1", count_pieces)

# %% [markdown]
# Now compare three layouts for one layer, in float16. The kernel reads *one head's keys in a
# block*. The model writes *one token's keys, all heads*. A copy on write moves *all keys in a
# block*. Into how many pieces does each layout cut them?

# %%
num_blocks, block_size, heads, head_size = 4, 16, 8, 128
beside = torch.zeros(num_blocks, block_size, 2, heads, head_size, dtype=torch.float16)
by_head = torch.zeros(num_blocks, 2, heads, block_size, head_size, dtype=torch.float16)
halves = torch.zeros(2, num_blocks, block_size, heads, head_size, dtype=torch.float16)
views = {
    "one head's keys in a block": (beside[2, :, 0, 5], by_head[2, 0, 5], halves[0, 2, :, 5]),
    "one token's keys, all heads": (beside[2, 7, 0], by_head[2, 0, :, 7], halves[0, 2, 7]),
    "all keys in a block": (beside[2, :, 0], by_head[2, 0], halves[0, 2]),
}
print(f"{'':28}{'K beside V':>18}{'head by head':>18}{'two halves':>18}")
for what, of_layouts in views.items():
    counts = [count_pieces(view) for view in of_layouts]
    print(f"{what:28}" + "".join(f"{pieces:>8} × {size:>5} B" for pieces, size in counts))

# %% [markdown]
# Here are the same three layouts as strips of memory, small enough to see: four blocks of four
# slots, two heads, two numbers in each head. Block 1 is grey. The keys of its head 0 are blue
# and dotted.

# %%
first = torch.zeros(4, 4, 2, 2, 2)
second = torch.zeros(4, 2, 2, 4, 2)
third = torch.zeros(2, 4, 4, 2, 2)
# for each layout: the whole layer, its block 1, the keys of head 0 in that block
draw.layouts(
    (first, first[1], first[1, :, 0, 0]),
    (second, second[1], second[1, 0, 0]),
    (third, third[:, 1], third[0, 1, :, 0]),
)

# %% [markdown]
# No layout is best at everything. *Head by head* reads a head in one piece, but cuts every
# write into eight. The other two write in one piece, but read a head in pieces of 256 bytes.
# That is long enough: a GPU fetches memory in sectors of 32 bytes, so nothing is fetched in
# vain.
#
# This course uses **two halves**. A token's keys are written in one piece, its values in
# another. A block's keys are copied in one piece, its values in another. And each half is an
# ordinary tensor, in the shape that PyTorch's own paged attention takes (lesson 05).

# %% [markdown]
# ## What it saves
#
# Before paging, a server gave each request one contiguous stretch of memory. It had to be long
# enough for the whole answer, and nobody knows in advance how long that will be. (A
# **request** is what a user sends: a prompt to be answered. While it runs, it is a sequence in
# the manager.) The paper that introduced PagedAttention compares three ways to guess:
#
# - **reserve the maximum** (`max`): as many slots as the model can ever use;
# - **reserve a power of two** (`pow2`): the prompt, and the answer's true length rounded up to
#   a power of two;
# - **reserve what will be needed** (`oracle`): the true length, which no real server knows.
#
# Let us replay the same requests through all of them, and through your manager. The contiguous
# allocator comes first. It takes the first hole that is long enough:


# %%
class ContiguousAllocator:
    """Gives each request one stretch of slots, reserve(request) of them."""

    def __init__(self, num_slots, reserve):
        self.num_slots, self.reserve, self.taken = num_slots, reserve, {}

    def holes(self):
        """Returns (start, length) of each stretch of free slots."""
        end, found = 0, []
        for start, length in sorted(self.taken.values()):
            found.append((end, start - end))
            end = start + length
        return [*found, (end, self.num_slots - end)]

    def come(self, request):
        size = self.reserve(request)
        start = next((start for start, length in self.holes() if length >= size), None)
        if start is not None:
            self.taken[request.id] = (start, size)
        return start is not None

    def grow(self, request):
        return True  # the slot is reserved already

    def leave(self, request):
        del self.taken[request.id]

    def held(self, request):
        return self.taken[request.id][1]


# %% [markdown]
# Now your manager, with the same methods. A request comes in only if a free block is then left
# for every running request, because all of them will grow.


# %%
class Paged:
    def __init__(self, num_slots, block_size=16):
        self.manager = PagedAttentionManager(
            num_slots // block_size,
            block_size,
            num_kv_heads=1,
            head_size=1,
            max_num_seqs=256,
            max_blocks_per_seq=128,
            block_manager=BlockManager,
        )

    def come(self, request):
        free = self.manager.block_manager.get_num_free_blocks()
        if free - self.manager.blocks_for(request.prompt) < len(self.manager.sequences):
            return False  # each running sequence will soon need a block
        self.manager.add_sequence(request.id, request.prompt)
        return True

    def grow(self, request):
        try:
            self.manager.append_token(request.id)
        except MemoryError:
            return False
        return True

    def leave(self, request):
        self.manager.free_sequence(request.id)

    def held(self, request):
        return len(self.manager.blocks_of(request.id)) * self.manager.block_size

    def holes(self):
        return [(0, 16)] * self.manager.block_manager.get_num_free_blocks()


# %% [markdown]
# Now the requests. The lengths of real conversations have a long tail: most are short, and a
# few are very long. In the ShareGPT conversations that the paper uses (figure 11), a prompt
# has 161 tokens on average, and an answer 338. Here are 200 requests drawn from a similar
# distribution.

# %%
import random
from dataclasses import dataclass


@dataclass
class Request:
    id: int
    prompt: int
    answer: int
    length: int = 0  # tokens so far

    @property
    def final_length(self):
        return self.prompt + self.answer


def draw_requests(count, seed=0):
    lengths = random.Random(seed)
    return [
        Request(
            number,
            prompt=min(1024, 1 + int(lengths.lognormvariate(4.5, 1.1))),
            answer=min(1024, 1 + int(lengths.lognormvariate(5.4, 0.9))),
        )
        for number in range(count)
    ]


requests = draw_requests(200)
for what in ("prompt", "answer"):
    sizes = sorted(getattr(request, what) for request in requests)
    mean = sum(sizes) / len(sizes)
    print(f"{what}: median {sizes[100]}, mean {mean:.0f}, longest {sizes[-1]} tokens")

# %% [markdown]
# And last, the server. In each step, waiting requests come in while there is room, and every
# running request grows by one token. When paging runs out of blocks in the middle of a step,
# the request that came last gives way, or is **preempted**: its blocks go back, and it waits
# again. Its tokens have to be computed again. That is the price of not reserving, and we will
# count it.

# %%
from collections import deque, namedtuple

Step = namedtuple("Step", "running waiting tokens kept unused free largest_hole")


def replay(memory, requests, num_slots):
    waiting = deque(requests)
    running = []
    gave_way = []
    history = []
    while waiting or running:
        while waiting and memory.come(waiting[0]):
            running.append(waiting.popleft())
            running[-1].length = running[-1].prompt
        for request in list(running):
            while request in running and not memory.grow(request):
                last = running.pop()
                memory.leave(last)
                waiting.appendleft(last)
                gave_way.append(last.length)
            request.length += 1
        tokens = sum(request.length for request in running)
        held = sum(memory.held(request) for request in running)
        final = sum(min(memory.held(request), request.final_length) for request in running)
        largest_hole = max((length for _, length in memory.holes()), default=0)
        slots = tokens, final - tokens, held - final, num_slots - held
        history.append(Step(len(running), len(waiting), *slots, largest_hole))
        for request in [each for each in running if each.length == each.final_length]:
            running.remove(request)
            memory.leave(request)
    return history, gave_way


# %%
num_slots, longest = 16_384, 2_048
memories = {
    "max": ContiguousAllocator(num_slots, lambda request: longest),
    "pow2": ContiguousAllocator(
        num_slots, lambda request: request.prompt + 2 ** (request.answer - 1).bit_length()
    ),
    "oracle": ContiguousAllocator(num_slots, lambda request: request.final_length),
    "paged": Paged(num_slots),
}
replays = {
    name: replay(memory, draw_requests(200), num_slots) for name, memory in memories.items()
}
histories = {name: history for name, (history, _) in replays.items()}
shares = {}
for name, history in histories.items():
    # while a request waits, unused memory is a loss
    busy = [step for step in history if step.waiting]
    average = Step(*(sum(values) / len(busy) for values in zip(*busy)))
    parts = {part: getattr(average, part) for part in ("tokens", "kept", "unused", "free")}
    shares[name] = {part: 100 * slots / num_slots for part, slots in parts.items()}
    print(
        f"{name:7} {len(history):5} steps · {average.running:5.1f} requests "
        f"at once · {shares[name]['tokens']:5.1f} % of the pool holds tokens"
    )

# %%
draw.memory_use(shares)

# %% [markdown]
# Our requests are not the paper's, and neither is our allocator (theirs gives out memory in
# powers of two). So the figures differ. But the order is the same, and so is the leap at the
# end. Only slots with tokens are useful. The rest is lost in three ways:
#
# - **kept for later tokens**: needed at the end, empty until then;
# - **never used**: reserved, but the answer is shorter (*internal fragmentation*);
# - **free**, but useless: every hole is too short for the next request (*external
#   fragmentation*).
#
# Paging loses at most 15 slots in the last block of each sequence, and the few blocks that it
# leaves free for the running requests. This is its price:

# %%
gave_way = replays["paged"][1]
again, once = sum(gave_way), sum(request.final_length for request in requests)
print(f"{len(gave_way)} times a request gave way, and {again:,} tokens were computed anew,")
print(f"compared with the {once:,} tokens of all requests")
assert not any(replays[name][1] for name in ("max", "pow2", "oracle"))

# %% [markdown]
# Try it: in `Paged.come`, put `0` instead of `len(self.manager.sequences)`, and run the cells
# from that one down to here again. Then no block is left free for the running requests, and a
# request gives way 403 times, with 65,327 tokens computed again. Which request is let in, and
# which gives way, is the scheduler's decision. You write a scheduler in lesson 08.

# %%
draw.memory_over_time(histories)

# %% [markdown]
# The left plot shows what a server gains: more requests at once from the same memory, and all
# of them done sooner. Those on the right show external fragmentation: the free slots are
# scattered, and the largest hole is only a part of them. (With the maximum reserved, no slot
# is free until the end.) Blocks have no such curve, because any free block is as good as any
# other.

# %%
useful = {name: parts["tokens"] for name, parts in shares.items()}
assert useful["max"] < useful["pow2"] < useful["oracle"] < useful["paged"]
assert useful["paged"] > 90
steps = {name: len(history) for name, history in histories.items()}
share = 100 * steps["paged"] / steps["max"]
print(f"paging is done in {share:.0f} % of the steps that reserving the maximum takes")

# %% [markdown]
# ## What you built
#
# The memory of a server: a pool whose layout has a reason, slots and a flat view to write
# through, a block table on the CPU and on the device, and a manager that does all that it is
# asked, or nothing.
#
# ## Ask yourself
#
# <details><summary>A block table means a lookup for every key that a kernel reads. Why is that
# not slow?</summary>
#
# One entry serves a whole block. In Qwen3-8B, 4 bytes are looked up for 64 KiB of keys and
# values in each layer (16 tokens × 8 heads × 128 numbers × 2 bytes, twice). And the entries of
# a row lie side by side.
# </details>
#
# <details><summary>Why is the block size 16, and not 1, or 256?</summary>
#
# Blocks of 1 waste no slot, but the table is as long as the sequence, and each lookup serves
# only one token. With blocks of 256, about half of the last block's slots are empty in each
# sequence, and only whole blocks can be found again and shared (lesson 08). The paper measured
# several sizes: on long conversations 16 to 128 were best, and on short ones large blocks hurt.
# It settles on 16.
# </details>
#
# <details><summary>The block table is filled with 0 where there is no block. When is the
# mistake found?</summary>
#
# Late, or never. The kernel reads block 0, which may be another sequence's, and no error is
# raised. A check cannot tell a 0 from a real entry. It can tell a -1. (Left to itself, PyTorch
# takes an index of -1 for the last block. So check.)
# </details>
#
# <details><summary><code>append_token</code> takes a block first, and then sees that the row
# is full. What is lost?</summary>
#
# The block. Its count is 1 and no sequence knows it, so it will never be freed. After as many
# failures as there are blocks, none is left.
# </details>
#
# <details><summary>Why does the manager, and not its caller, keep each sequence's
# length?</summary>
#
# If two places keep the same number, one day they will differ. Then a block is taken too
# early, or a token is written into another sequence's block.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section 3
#   and figure 2 for the waste, sections 4.2 to 4.4 for block tables and sharing, section 6.1
#   for ShareGPT's lengths, section 7.2 for the block size.
# - PyTorch's documentation, “Tensor Views”; NVIDIA's *CUDA C++ Best Practices Guide*,
#   “Coalesced Access to Global Memory”.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [03 · Prefill](03_prefill.ipynb). Several prompts at once, attention over their
# blocks, and their keys and values in this pool.
