# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 · One batch of everything: the metadata
#
# **You build** four tensors that describe any batch, whatever its sequences are doing, and the
# paged attention that reads them. It is slow, in plain PyTorch, and right for every mix. The
# kernels of the next lessons are compared with it. At the end you find a bug in a model that
# talks nonsense.
#
# PICTURE opening
#
# **You need** lessons [02](02_block_tables.ipynb) to [04](04_decode.ipynb): block tables and
# slots, causal attention, decoding. **It takes** 60 to 90 minutes. Words that you meet again
# are in the [glossary](glossary.ipynb).

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("05")

# %% [markdown]
# ## What a server computes in one step
#
# Lesson 03 computed whole prompts, lesson 04 single new tokens. A server has both at once. One
# sequence is in the middle of its answer and needs one token. Another has just arrived with a
# prompt of four tokens. A third has a prompt so long that it is computed in **chunks**, one at
# each step, so that the others need not wait.
#
# All of this goes into one batch, so that the model's weights are read only once. Here such
# batches are made, token by token. The second one is that of the picture above:

# %%
draw.from_the_queue()

# %% [markdown]
# Point at a place of the batch, and its token in the sequence lights up. Now look at the
# picture at the top once more. Each row is a **query**, a token that is computed in this step.
# Each column is a key. A coloured square with a dot means that the query sees the key.
#
# A decodes: one query, seven keys. B gets a chunk of three tokens; two more are already in the
# pool. C gets its whole prompt. The bold keys belong to tokens of this step; the other keys
# were written in earlier steps. No query ever looks at another sequence.
#
# The four tensors at the bottom of the picture say all of this. Blocks have four slots here.
# A's last token, number 6, is at offset 2 of the sequence's second block, which is block 0 of
# the pool. So its slot is 2. This lesson builds the tensors one by one. It uses PyTorch, and
# parts that you have built in the last three lessons:

# %%
import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paged_attention.attention import share_heads
from paged_attention.pool.kv_cache import OutOfBlocksError, PagedAttentionManager
from paged_attention.pool.slots import slot_mapping, write_kv
from paged_attention.attention.softmax_state import NO_KEY
from paged_attention.validate import check_paged_attention, check_scheduled

# %% [markdown]
# ## Rows without padding
#
# Tensors are rectangles, and the sequences have different numbers of queries. You could pad
# them to equal length. Look at what that costs and what is done instead:

# %%
query_lens = [5, 1, 1, 3]
draw.padded_and_packed(query_lens)

# %% [markdown]
# With one prompt of 1,000 tokens and 63 sequences that decode, 64,000 places would hold 1,063
# queries. So the queries are stored one after another, without gaps, and a short tensor says
# where the boundaries are. Its usual name is `cu_seqlens_q`: the cumulative lengths of the
# sequences' queries. The queries of sequence `s` are
# `q[cu_seqlens_q[s] : cu_seqlens_q[s + 1]]`.
#
# The kernels that follow read it as int32, so it has to be int32.
#
# ### Exercise 5.1: where each sequence's queries begin

# %% exercise="5.1"
# INCLUDE paged_attention/attention/metadata.py cumulative_lengths


# %% check="5.1"
check("5.1", cumulative_lengths)

# %%
starts = cumulative_lengths(query_lens)
rows = torch.arange(10)
print("cu_seqlens_q:", starts.tolist())
print("the rows of sequence 3:", rows[starts[3] : starts[4]].tolist())

# %% [markdown]
# One thing to know about such tensors: `starts[3]` is not a number. It is a tensor without
# dimensions. It slices and adds like a number, but elsewhere it does not behave like one:

# %%
names = {7: "D begins here"}
found = [names.get(key, "not found") for key in (starts[3], starts.tolist()[3])]
print(type(starts[3]).__name__, *found, sep=" · ")

# %% [markdown]
# Worse, on a GPU, reading such a value makes the CPU wait for the GPU each time. So turn the
# whole tensor into Python integers once, with `.tolist()`, before the loop. (For a single
# value, `.item()` does it.)
#
# ## Room for the whole batch
#
# Before a batch is computed, each of its sequences needs slots for its new tokens. Lesson 02's
# `append_token` makes room for one token. Suppose the scheduler calls it in a loop, and the
# pool is nearly full. (From here on sequences are called A, B and C, to make the pictures
# easier to read. The manager uses an id only as a key.)


# %%
def pool_of(num_blocks):
    """Makes a pool with blocks of four slots, and one head of two numbers."""
    return PagedAttentionManager(
        num_blocks, 4, num_kv_heads=1, head_size=2, max_num_seqs=8, max_blocks_per_seq=4
    )


def tight_pool():
    manager = pool_of(num_blocks=3)
    manager.add_sequence("A", 4)
    manager.add_sequence("B", 4)
    return manager


def one_by_one(manager):
    for seq_id in ("A", "B"):
        manager.append_token(seq_id)


def show_error(call, *arguments):
    try:
        call(*arguments)
    except (OutOfBlocksError, TypeError) as error:
        print(f"{type(error).__name__}: {error}")


manager = tight_pool()
show_error(one_by_one, manager)
print("A has", manager.get("A").length, "tokens, B has", manager.get("B").length)

# %% [markdown]
# A has grown by a token that nobody will compute, because the batch as a whole failed. Its
# next step would attend to a slot that was never written. So the batch must get **all or
# nothing**: count what it needs before changing anything.
#
# ### Exercise 5.2: room for a whole batch, or for none of it
#
# The given line `check_scheduled` raises the `ValueError`s. The other errors are up to you.
# You can use these parts of `self`:
#
# | call | gives |
# |---|---|
# | `self.get(seq_id)` | the sequence; `.length` is its number of tokens. Raises `UnknownSequenceError` |
# | `self.blocks_of(seq_id)` | list of int: its block ids, in the order of its tokens |
# | `self.blocks_for(num_tokens)` | int: how many blocks the tokens fill. Raises `SequenceTooLongError` if a row is too short |
# | `self.append_token(seq_id)` | room for one token: in a new block if the last is full, in a copy if the last is shared |
# | `self.block_size` | int: the slots of a block |
# | `self.block_manager.get_num_free_blocks()` | int |
# | `self.block_manager.get_ref_count(block_id)` | int: how many sequences use the block |
#
# Forked sequences are the hard part. Writing into a shared block costs a block for the copy.
# But think it through: A and B share their last block, and both write. The first to write
# takes a copy. Which of them use the old block then?

# %% exercise="5.2"
# INCLUDE paged_attention/pool/kv_cache.py PagedAttentionManager.append_tokens


# %% check="5.2"
check("5.2", append_tokens)

# %% [markdown]
# From here on your function is a method of the manager:

# %%
PagedAttentionManager.append_tokens = append_tokens

manager = tight_pool()
show_error(manager.append_tokens, [("A", 1), ("B", 1)])
print("A has", manager.get("A").length, "tokens, B has", manager.get("B").length)

# %% [markdown]
# ## Four tensors
#
# This is all that a paged kernel is told about a batch:

# %%
# INCLUDE paged_attention/attention/metadata.py BatchMetadata


# %% [markdown]
# They describe any batch:
#
# | what happens | `cu_seqlens_q` | `seq_lens_kv` | `block_table` |
# |---|---|---|---|
# | one prompt of N tokens | `[0, N]` | `[N]` | `[[b0, b1, …]]` |
# | one sequence decodes, N tokens with the new one | `[0, 1]` | `[N]` | `[[b0, b1, …]]` |
# | A decodes, B gets a chunk of n tokens | `[0, 1, 1 + n]` | `[len_A, len_B]` | `[[A's blocks], [B's blocks]]` |
#
# Prefill and decode are no longer two cases. A decode is a chunk of one token. A whole prompt
# is a chunk with nothing before it.
#
# ### Exercise 5.3: four tensors for any batch
#
# The manager has already made room for the new tokens. Row `s` of the block table belongs to
# sequence `s` of the batch. In the manager's own table, a sequence has row
# `manager.get(seq_id).row`. `check_scheduled` raises the errors.
#
# Use your `cumulative_lengths`, and `slot_mapping(block_ids, positions, block_size)` from
# lesson 02. There `block_ids` is a row of the table, and `positions` is an int64 tensor of
# places in the sequence. Do not call a local variable `slot_mapping`: in your function that
# name must remain the function.
#
# `cumulative_lengths` gives a tensor on the CPU, and so do `torch.tensor` and `torch.arange`
# without a `device`. All four tensors belong on the manager's device,
# `manager.block_table.device`. The batch also gets its own table, because the manager's
# changes with the next step.

# %% exercise="5.3"
# INCLUDE paged_attention/attention/metadata.py build_metadata


# %% check="5.3"
check("5.3", build_metadata)

# %% [markdown]
# Here is your function at work on the table's third line. `batch_of` makes a pool for a batch;
# you will use it again.


# %%
def batch_of(*sequences):
    """Builds the metadata of a batch.

    sequences: (name, number of new tokens, number of all tokens) for each sequence.
    """
    manager = pool_of(num_blocks=64)
    for name, num_new, num_all in sequences:
        manager.add_sequence(name, num_all - num_new)
    scheduled = [(name, num_new) for name, num_new, _ in sequences]
    manager.append_tokens(scheduled)
    return build_metadata(manager, scheduled)


print(draw.tensors_text(batch_of(("A", 1, 6), ("B", 3, 5))))

# %% [markdown]
# The entries of -1 mean “no block”. Nothing stops you from reading one: PyTorch takes the
# index -1 for the pool's last block.

# %%
blocks = torch.tensor([[10, 11], [20, 21], [30, 31]])  # three blocks of two slots
print("blocks 0 and -1:", blocks[torch.tensor([0, -1])].tolist())

# %% [markdown]
# There is no error, only another sequence's data. A reader of the table has to stop by itself
# after `seq_lens_kv` keys.
#
# ## What each query sees
#
# A sequence has `kv_len` tokens, and the last `q_len` of them are its queries. Query 0 is then
# the token at position `kv_len - q_len`, and query `q` is the one at `kv_len - q_len + q`. It
# sees its own key and all keys before it:
#
# $$\text{query } q \text{ sees the keys } 0, \dots, \text{kv\_len} - \text{q\_len} + q$$

# %%
q_len, kv_len = 3, 5
for query in range(q_len):
    position = kv_len - q_len + query
    keys = list(range(position + 1))
    print(f"query {query} is the token at position {position}, and sees the keys {keys}")

# %% [markdown]
# This one rule is causal attention for whole prompts, chunks and decodes alike. PyTorch's own
# `is_causal=True` is a different rule. It puts query 0 at position 0, which is right for a
# whole prompt only:

# %%
# the values are chosen so that the output shows which keys were seen
zeros, ones = torch.zeros(1, 5, 5), torch.eye(5)[None]
o = scaled_dot_product_attention(zeros[:, :3], zeros, ones, is_causal=True)
print((o[0] > 0).int())

# %% [markdown]
# The three queries see one, two and three keys. They should see three, four and five.
#
# ### Exercise 5.4: which query sees which key

# %% exercise="5.4"
# INCLUDE paged_attention/attention/metadata.py visible_keys


# %% check="5.4"
check("5.4", visible_keys)

# %% [markdown]
# Here are the three lines of the table in “Four tensors”, drawn by your two functions:

# %%
one_prompt, new_token = batch_of(("A", 5, 5)), batch_of(("A", 1, 6))
decode_and_chunk = batch_of(("A", 1, 6), ("B", 3, 5))
draw.three_batches(one_prompt, new_token, decode_and_chunk, visible_keys)

# %% [markdown]
# Now a batch of your own. Change the list and run the cell again. What does a chunk of one
# token look like? And two sequences that both decode?

# %%
mine = [("A", 1, 7), ("B", 4, 6), ("C", 3, 3)]  # (name, new tokens, all tokens)

lengths_fit = all(1 <= num_new <= num_all <= 16 for _, num_new, num_all in mine)
assert lengths_fit, "1 to 16 tokens, at least one of them new"
picture_fits = len(mine) <= 5 and sum(num_all for _, _, num_all in mine) <= 32
assert picture_fits, "more than 5 sequences or 32 keys do not fit the picture"
metadata, num_queries = batch_of(*mine), sum(num_new for _, num_new, _ in mine)
assert metadata.cu_seqlens_q[-1] == len(metadata.slot_mapping) == num_queries
print(draw.tensors_text(metadata))
draw.my_batch(mine, metadata, visible_keys)

# %% [markdown]
# ## Attention for any batch
#
# Sequence by sequence: take its queries, gather its blocks, cut off the tail, attend with the
# mask. It is slow on purpose: you can read each line and print what it gives. Every kernel of
# this course has to give the same result.
#
# ### Exercise 5.5: paged attention for any batch
#
# `share_heads(k, num_q_heads)` is from lesson 03. It gives keys or values with one head for
# each query head. `NO_KEY` is -inf. `check_paged_attention` has checked the arguments, so you
# need not.

# %% exercise="5.5"
# INCLUDE paged_attention/attention/metadata.py attn_paged_torch


# %% check="5.5"
check("5.5", attn_paged_torch)

# %% [markdown]
# A prompt may now come in pieces of any size. Here are 37 tokens: all at once, in chunks, and
# token by token. PyTorch's dense attention is the judge.

# %%
generator = torch.Generator().manual_seed(5)
q = torch.randn(37, 6, 16, generator=generator)
k, v = torch.randn(2, 37, 2, 16, generator=generator)


def in_chunks(chunks):
    """Computes attention over the 37 tokens, chunk by chunk, through a pool."""
    manager = PagedAttentionManager(
        10, 4, num_kv_heads=2, head_size=16, max_num_seqs=1, max_blocks_per_seq=10
    )
    manager.add_sequence("A", 0)
    pieces = []
    for rows in torch.arange(37).split(chunks):
        manager.append_tokens([("A", len(rows))])
        metadata = build_metadata(manager, [("A", len(rows))])
        write_kv(*manager.kv_cache[0], metadata.slot_mapping, k[rows], v[rows])
        pieces.append(attn_paged_torch(q[rows], *manager.kv_cache[0], metadata))
    return torch.cat(pieces)


# %%
heads_first = [x.transpose(0, 1)[None] for x in (q, k, v)]  # (1, heads, 37, 16)
o = scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True)
expected = o[0].transpose(0, 1)
ways = {
    "whole prompt": [37],
    "chunks of 16, 16, 5": [16, 16, 5],
    "chunks of 1, 20, 15, 1": [1, 20, 15, 1],
    "token by token": [1] * 37,
}
for name, chunks in ways.items():
    difference = (in_chunks(chunks) - expected).abs().max().item()
    assert difference < 1e-5
    print(f"{name}: differs from dense attention by less than 0.00001")

# %% [markdown]
# That is what makes chunked prefill possible: a scheduler may cut a prompt wherever it likes,
# and the result is the same.
#
# ### A dtype that a kernel cannot forgive
#
# `check_paged_attention` looks at shapes and dtypes before anything is computed. Here is the
# most common slip, a block table that has become int64 along the way:

# %%
metadata = batch_of(("A", 1, 6))
wrong = replace(metadata, block_table=metadata.block_table.long())
caches = torch.zeros(2, 64, 4, 1, 2)
show_error(attn_paged_torch, torch.zeros(1, 1, 2), *caches, wrong)

# %% [markdown]
# In PyTorch, int64 would work as well. A kernel gets an address and reads 4 bytes for each
# entry. This is what it sees of an int64 table:

# %%
print(torch.tensor([5, 9, 7], dtype=torch.int64).view(torch.int32).tolist())

# %% [markdown]
# Block 5, then block 0, which belongs to another sequence. So the reference is as strict as
# the kernels will be.
#
# ## Why the reference is not enough
#
# Lesson 04 counted the bytes of one layer: `k_cache[block_ids]` is a **gather**, and copies
# what a kernel would read in place. Your reference does this for every sequence, in each layer
# and each step, even when only one token is new. What does that add up to for a whole server?
#
# ### Exercise 5.6: what a gather moves
#
# How many bytes of keys and values does one step copy for one sequence? `bytes_per_number` is
# 2 in 16-bit formats.

# %% exercise="5.6"
# INCLUDE lessons_content/lesson_05/e5_6_bytes_gathered.py bytes_gathered


# %% check="5.6"
check("5.6", bytes_gathered)

# %% [markdown]
# Qwen3-8B has 36 layers, 8 KV heads and a head size of 128. First 1,024 tokens of context in
# 16 bits, then 64 such sequences:


# %%
def qwen3_8b(context_len):
    return bytes_gathered(
        context_len, num_layers=36, num_kv_heads=8, head_size=128, bytes_per_number=2
    )


per_step = qwen3_8b(1024)
print("1,024 tokens × 36 layers × 8 heads × 128 numbers × 2 bytes, twice:")
print(f"{per_step:,} bytes = {per_step / 2**20:g} MiB")
print(f"64 such sequences: {64 * per_step / 2**30:g} GiB, in every step")
assert per_step == 144 * 2**20

# %%
context_lens = [1024 * 2**power for power in range(6)]
draw.gather_traffic(context_lens, [1, 8, 64], qwen3_8b)

# %% [markdown]
# The traffic grows with the context and with the number of sequences. The dashed line is the
# 15 GiB of weights that a step has to read anyway. One sequence stays below it here; 8
# sequences pass it at about 14,000 tokens, 64 below 2,000.
#
# The blocks are read, the copy is written, and attention reads the copy. That is three times
# the figure, where a single read would do. A kernel that follows the block table itself reads
# each key and value once, in place, and copies nothing. You will write that kernel in lesson
# 06.
#
# ## The same in one call
#
# Others have written such kernels, and serving engines call them. FlashInfer is a library of
# them. Three of your tensors tell it all that it needs. The fourth, `slot_mapping`, has done
# its work once the keys and values are written.
#
# It wants the block table in another form, without padding. `paged_kv_indices` has the ids of
# all blocks in one row. `paged_kv_indptr` says where each sequence's ids begin, as
# `cu_seqlens_q` does for the queries. `paged_kv_last_page_len` says how many slots of the last
# block are in use. (It says *page* for block and *qo* for queries and outputs.) `plan` looks
# at the batch once and divides the work. Each layer calls `run`.

# %%
from paged_attention.attention.fused import WORKSPACE_BYTES, attn_paged_fused, fused_needs

# INCLUDE paged_attention/attention/fused.py plan_flashinfer


# %% [markdown]
# `attn_paged_fused` checks its arguments, plans and runs. It asks for more than your loop
# does: a recent GPU, 16-bit numbers, and heads of 64, 128 or 256 numbers. If it cannot do
# something, it raises an error that says so. The next cell compares the two, if there is a GPU
# and FlashInfer:


# %% tags=["nbval-ignore-output"]
def compare_paths(way, block_size, scheduled):
    options = dict(dtype=torch.float16, device="cuda")
    heads, rows = dict(num_kv_heads=2, head_size=64), dict(max_num_seqs=3)
    manager = PagedAttentionManager(
        64, block_size, **heads, **rows, max_blocks_per_seq=38, **options
    )
    for (name, num_new), num_all in zip(scheduled, (600, 300, 40), strict=True):
        manager.add_sequence(name, num_all - num_new)
    manager.append_tokens(scheduled)
    manager.kv_cache.normal_(generator=torch.Generator("cuda").manual_seed(0))
    num_queries = sum(num_new for _, num_new in scheduled)
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(num_queries, 6, 64, generator=generator).to(**options)
    batch = (q, *manager.kv_cache[0], build_metadata(manager, scheduled))
    return (attn_paged_fused(*batch, way=way) - attn_paged_torch(*batch)).abs().max().item()


def try_way(way, block_size, scheduled):
    if needs := fused_needs(way):
        print(f"{way}: not run here, it needs {needs}")
        assert "GPU" in needs or "package" in needs
    else:
        difference = compare_paths(way, block_size, scheduled)
        print(f"{way}: one call and the loop differ by at most {difference:.4f}")
        assert difference < 0.01


try_way("flashinfer", 16, [("A", 1), ("B", 100), ("C", 40)])

# %% [markdown]
# A run on a GPU comes with the course. It computed prompts, new tokens and mixes with both,
# and again with the loop in float64. Each row gives the largest differences: the one call from
# the loop, the one call from float64, and the loop from float64:

# %%
from lessons_content.lesson_08.bench import path_b_runs

run = path_b_runs.recorded()[0]
print(path_b_runs.origin(run))
print(path_b_runs.batches_table(run))
assert not run.problems()

# %% [markdown]
# Both round their results to 16 bits. The loop also rounds its scores and weights on the way,
# so it is often further off than the one call. In all of these batches, the slots that hold no
# token were also filled with NaN, with infinity and with the largest number, and not one bit
# of a result changed.
#
# Another call that you will meet often is `flash_attn_with_kvcache`, of the library flash_attn.
# It is for decodes: each sequence has one query, or each has the same number. It reads your
# block table and `seq_lens_kv` as they are, but a block must have 256 slots or a multiple of
# that.

# %%
# INCLUDE paged_attention/attention/fused.py plan_flash_attn_decodes


# %% tags=["nbval-ignore-output"]
try_way("flash_attn", 256, [("A", 1), ("B", 1), ("C", 1)])

# %% [markdown]
# For a mix, `flash_attn` has a call that takes `cu_seqlens_q` too, and so has PyTorch itself,
# `varlen_attn`. `attn_paged_fused(…, way="flash_attn")` and `way="varlen_attn"` call them. Only
# FlashInfer's call was run on a GPU for this course. The tests run the others against
# stand-ins: functions on the CPU that take the same arguments under the same names. (PyTorch's
# gets `num_splits=1` because of [a bug](https://github.com/pytorch/pytorch/issues/194167) that
# leaves rows unwritten when long sequences are cut up and the cache is paged.)
#
# Why keep both the loop and the call? The loop is the specification; the call is an
# implementation of it. If your metadata is wrong, both go wrong. In the loop you can print
# every step. Inside the call you can print nothing. So get the loop right first, then put the
# call in its place.
#
# ## A model that talks nonsense
#
# Now put everything into a model: embedding, four layers of attention and MLP, and the
# embedding again as the head. Its weights are random, and its “words” are numbers. It has no
# positional encoding: only the causal mask tells it which token came first. Somebody wrote it
# in a hurry. All of it is in `paged_attention/attention/tiny_transformer.py`, but save that for later.

# %%
from paged_attention.attention.tiny_transformer import (
    TinyTransformer,
    dense,
    generate_dense,
    generate_paged,
    merge_in_a_hurry,
    merge_of_reference,
    paged,
)

model, prompt = TinyTransformer(seed=364), [3, 14, 15, 92, 65, 35]


def small_pool():
    return PagedAttentionManager(
        8, 4, num_kv_heads=2, head_size=8, max_num_seqs=1, max_blocks_per_seq=8, num_layers=4
    )


expected_tokens = generate_dense(model, prompt, 12)
tokens = generate_paged(model, prompt, 12, small_pool(), merge_in_a_hurry)
print("without a cache: ", expected_tokens)
print("through the pool:", tokens)
assert tokens[0] != expected_tokens[0]

# %% [markdown]
# The first line is the reference, recomputed for each token, without any cache. The second is
# garbage. Where do you start looking? There is a prefill, a block table, slots, a mask, a
# decode, and four layers.
#
# Start with the kind of garbage. Here is the model once more, without the fault, but with the
# attention's output rounded to eighths. That is a very coarse number format:


# %%
def rounded(o):
    return merge_of_reference(torch.round(o * 8) / 8)


drifting = generate_paged(model, prompt, 12, small_pool(), rounded)
print("reference:", expected_tokens)
print("rounded:  ", drifting)
assert drifting[:8] == expected_tokens[:8] and drifting[8] != expected_tokens[8]

# %% [markdown]
# Numbers that are slightly off tend to change a word *late*: here the first eight tokens are
# the same, and then two candidates were so close that the rounding decided. Our model is wrong
# from the very first token. So the fault is not small. Something is scrambled. And since the
# first token comes from the **prefill**, there is no need to look at the decode yet.
#
# ### Find the first divergence
#
# The model returns a **trace**: the output of each layer, `(num_tokens, dim)`. Compare it with
# the trace of the reference. A fault spreads: from its position to later ones, from its layer
# to those above. So the question is always the same: which is the *first* place that differs?
#
# ### Exercise 5.7: the first divergence

# %% exercise="5.7"
# INCLUDE lessons_content/lesson_05/e5_7_first_divergence.py first_divergence


# %% check="5.7"
check("5.7", first_divergence)


# %%
def trace_of(merge):
    """Returns the trace of the prompt through the pool."""
    manager = small_pool()
    manager.add_sequence("A", len(prompt))
    _, trace = model(torch.tensor(prompt), paged(manager, [("A", len(prompt))]), merge)
    return trace


_, reference = model(torch.tensor(prompt), dense, merge_of_reference)
faulty = trace_of(merge_in_a_hurry)
where = first_divergence(reference, faulty, tolerance=1e-3)
print("first divergence at (layer, position):", where)
assert where == (0, 0)

# %%
draw.where_they_differ(faulty, trace_of(rounded), reference)

# %% [markdown]
# Layer 0, position 0. So it already goes wrong in the prefill, and in the first layer. Below
# that there is only the embedding, which is the same for both. The place does not say what the
# fault is: a missing mask, a wrong block table or wrong slots could all show up here first.
#
# Ask the same question again, now inside layer 0. Its parts are the projections, the
# attention, the merging of the heads, the output projection and the MLP. Mask, block table and
# slots all belong to the attention. Is its output right?

# %%
from torch.nn.functional import rms_norm

x = model.embedding[torch.tensor(prompt)]
q_k_v = model.attentions[0].project(rms_norm(x, x.shape[-1:]))
manager = small_pool()
manager.add_sequence("A", len(prompt))
o = paged(manager, [("A", len(prompt))])(0, *q_k_v)
difference = (o - dense(0, *q_k_v)).abs().max().item()
assert difference < 1e-5
print("attention's output:", tuple(o.shape), "and equal to the reference")

# %% [markdown]
# The attention is right. So the fault is none of these three, nor in the projections before
# them. The next part is this:

# %%
# INCLUDE paged_attention/attention/tiny_transformer.py merge_in_a_hurry


# %% [markdown]
# The shapes fit, so nothing complains. Follow it with numbers that you can recognise: two
# tokens, three heads, and each number says where it belongs.

# %%
labels = torch.tensor([[[10 * token + head] * 2 for head in range(3)] for token in (1, 2)])
print("from the attention, token by token:", labels.tolist())
print("merged:", merge_in_a_hurry(labels).tolist())

# %% [markdown]
# The first row should hold the three heads of token 1: 10, 11 and 12. What does it hold?
#
# ### Exercise 5.8: the heads of a token, side by side

# %% exercise="5.8"
# INCLUDE lessons_content/lesson_05/e5_8_merge_heads.py merge_heads


# %% check="5.8"
check("5.8", merge_heads)

# %%
repaired = generate_paged(model, prompt, 12, small_pool(), merge_heads)
print("without a cache: ", expected_tokens)
print("through the pool:", repaired)
assert repaired == expected_tokens
assert first_divergence(reference, trace_of(merge_heads), tolerance=1e-3) is None
draw.before_and_after(faulty, trace_of(merge_heads), reference)

# %% [markdown]
# Now the tokens are the same. Note what would have hidden the fault: with *one* token, the
# scrambled merge is right, because there is nothing to mix up. So a decode step merges its one
# token correctly, and a test with single tokens alone would have passed. The decodes above
# were garbage because the prefill had left wrong keys and values in the pool.
#
# ## What you built
#
# Four tensors that describe any batch, a manager that makes room for all of it or for none,
# one rule for which query sees which key, and the reference for every kernel from here on. You
# also have a way to find a fault: ask for the first divergence, then ask again inside it.
#
# ## Ask yourself
#
# <details><summary>Why does a query never meet a key of another sequence in the batch,
# although there is no mask between sequences?</summary>
#
# The keys of sequence s are found through row s of the block table, and that row lists the
# blocks of s only. There is nothing to mask: no other key is ever looked at.
# </details>
#
# <details><summary>Somebody writes <code>is_causal=(q_len == kv_len)</code> for each sequence.
# Which batches go wrong?
# </summary>
#
# Whole prompts are right, and single new tokens too, since the last token may see everything.
# A chunk with 1 &lt; q_len &lt; kv_len gets no mask at all, and its tokens see their own
# future. Tests of nothing but prefills and decodes pass.
# </details>
#
# <details><summary>The model's output is garbage from the first token. A colleague wants to
# look for the fault in the decode. What do you say?</summary>
#
# The first token comes from the prefill, before any decode. Compare the traces of the prompt
# and look for the first layer and position that differ. Numeric drift tends to change a word
# late.
# </details>
#
# <details><summary>Why both a loop in PyTorch and one fused call?</summary>
#
# The loop is the specification: every line can be printed. The call is fast, but you cannot
# look inside it. A wrong block table makes both wrong, but in the loop you can see it.
# </details>
#
# <details><summary>Why is the flat view of lesson 02 the right one for the slots in
# <code>slot_mapping</code>?</summary>
#
# The pool is stored block after block, and within a block slot after slot. Seen as
# (num_blocks * block_size, heads, head_size), row block_id * block_size + offset is that slot.
# Indexing the pool itself with a slot would select whole blocks.
# </details>
#
# <details><summary>A scheduler gives 512 tokens to each step. 60 sequences decode. How long
# may a chunk of a new prompt be, and what are the shapes of q and cu_seqlens_q?</summary>
#
# 512 − 60 = 452 tokens. q has 512 rows, one after the other; cu_seqlens_q has 62 entries, from
# 0 to 512.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section
#   4.3 for the step of a batch, section 5.1 for kernels that read through the block table.
# - Amey Agrawal et al., *Taming Throughput-Latency Tradeoff in LLM Inference with
#   Sarathi-Serve*, OSDI 2024: section 4 for chunked prefill and mixed batches.
# - Zihao Ye et al., *FlashInfer: Efficient and Customizable Attention Engine for LLM Inference
#   Serving*, 2025, [arXiv:2501.01005](https://arxiv.org/abs/2501.01005): section 3.1 for the
#   block table as a sparse matrix.
# - PyTorch's documentation, `torch.nn.attention.varlen.varlen_attn` and
#   `torch.nn.functional.scaled_dot_product_attention`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [06 · The paged kernel](06_cuda_kernel.ipynb): the same attention in CUDA, which
# follows the block table and gathers nothing.
