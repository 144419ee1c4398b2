# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 03 · Prefill, request by request
#
# **You build** the attention of a prefill, in which whole prompts are read at once. Several
# prompts of different lengths come together, and each attends only to itself. You write
# attention twice: plainly, with all scores at once, and block by block with the online
# softmax, which is the core of FlashAttention. Both give the same numbers. Then you put it
# into a layer that leaves its keys and values in the pool.
#
# PICTURE opening
#
# **You need** lesson [02](02_block_tables.ipynb), and a rough idea of attention: a query is
# compared with keys, and the result is a weighted sum of values. **It takes** 75 to 90
# minutes. Words that you meet again are in the [glossary](glossary.ipynb).

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("03")

# %% [markdown]
# ## Several prompts at once
#
# Three prompts have arrived, of 6, 4 and 9 tokens. In a batch with a row for each prompt,
# every row would have to be as long as the longest prompt, and the rest would be padding.
# Instead we put their *blocks* one after the other, as in the picture. So `x` has the shape
# (total_blocks, block_size, dim), and a list says how many blocks belong to each request. Only
# the last block of a request can have empty slots.

# %%
lengths, block_size = [6, 4, 9], 4
request_num_blocks = [-(-length // block_size) for length in lengths]
print("request_num_blocks:", request_num_blocks)

# %% [markdown]
# The first dimension counts blocks, not requests, so requests of any length fit into one
# tensor. (Where blocks are called pages, this list is `request_num_pages`.)
#
# We need PyTorch, and some finished parts of the course:

# %%
import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.attention.layer import AttentionLayer
from paged_attention.pool.slots import slot_mapping, write_kv
from paged_attention.validate import check_prefill

# %% [markdown]
# A layer of a model first turns the hidden state of each token into queries, keys and values.
# That happens token by token, so it does not matter which request a token belongs to.
# `AttentionLayer` does it for all blocks at once:

# %%
layer = AttentionLayer(dim=12, num_q_heads=6, num_kv_heads=2, head_size=8)
generator = torch.Generator().manual_seed(0)
x = torch.randn(sum(request_num_blocks), block_size, 12, generator=generator)
for name, projected in zip("qkv", layer.project(x)):
    print(f"{name}: {tuple(projected.shape)}")

# %% [markdown]
# In the next step it does matter: a token may attend only to its own request. Let us take one
# request, and come back to the others at the end.
#
# ## Attention of one request
#
# Each query is compared with the keys. The scores become weights, and the output is the
# weighted sum of the values:
#
# $$o_i = \sum_{j \le i} w_{ij}\, v_j \qquad
#   w_{ij} = \operatorname{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt{\text{head\_size}}}\right)$$
#
# There are four things to get right.
#
# **First, the scale.** A score is a sum of head_size products. If the numbers are independent,
# with mean 0 and spread 1, the sum has spread √head_size:

# %%
generator = torch.Generator().manual_seed(0)
for size in (16, 64, 256):
    some_q, some_k = torch.randn(2, 10_000, size, generator=generator)
    spread = (some_q * some_k).sum(-1).std()
    by_root = f"divided by the root {spread / size**0.5:.1f}"
    print(f"head_size {size:3}: spread of q · k {spread:4.1f}, {by_root}")

# %% [markdown]
# The softmax of scores that are far apart gives nearly all the weight to one key. With the
# scale, large heads behave like small ones:

# %%
close = torch.tensor([1.0, 0.0, -1.0])
far_apart = torch.tensor([16.0, 0.0, -16.0])
print(
    [f"{weight:.4f}" for weight in close.softmax(0)],
    [f"{weight:.4f}" for weight in far_apart.softmax(0)],
)

# %% [markdown]
# **Second, the causal mask.** A token may look at itself and at those before it. **Third, the
# end of the last block.** What comes after the last token belongs to no request. Here are both
# for the request of 6 tokens:

# %%
draw.visible_keys(length=6, block_size=4)

# %% [markdown]
# A hidden score is set to -inf, whose exponential is 0. The other scores of the row then share
# all the weight.
#
# Look at the hatched columns. With the causal mask no token looks there anyway, because these
# slots come after all the tokens. But the hatched *rows* would still give an output, made of
# whatever is in these slots. And a weight of 0 does not undo everything:

# %%
weights = torch.tensor([0.4, 0.6, 0.0])
print("weighted sum:", (weights @ torch.tensor([1.0, 2.0, float("nan")])).item())

# %% [markdown]
# So slots without a token are cut off, values included, and the output there is 0. In the
# checks, some of them hold NaN.
#
# **Fourth, the heads.** In **grouped-query attention**, or GQA, there are fewer KV heads than
# query heads, so that the cache is smaller. Neighbouring query heads share a KV head. This
# function is given:

# %%
# INCLUDE paged_attention/attention/by_request.py share_heads


ids = torch.arange(2).view(1, 2, 1)  # one token and two KV heads; each holds its own number
print("query head:     ", *range(6))
print("reads KV head:  ", *share_heads(ids, num_q_heads=6).flatten().tolist())

# %% [markdown]
# ### Exercise 3.1: attention over one request's blocks
#
# Write it with all scores at once. (In other people's code you may meet this as a module
# `MultiHeadsAttention`, and the one of exercise 3.4 as `FlashAttention`.) q, k and v come in
# blocks. For attention, the blocks of a request are one row of tokens, so `flatten(0, 1)`
# first. The score of a hidden key has a name, because it will come up again:

# %%
from paged_attention.attention.softmax_state import NO_KEY

print("NO_KEY is", NO_KEY, "and exp(NO_KEY) is", math.exp(NO_KEY))

# %% exercise="3.1"
# INCLUDE paged_attention/attention/by_request.py plain_attention


# %% check="3.1"
check("3.1", plain_attention)

# %% [markdown]
# PyTorch does the same in one call, for tensors without blocks. Here is request 2, with its
# nine tokens in three blocks:


# %%
def by_pytorch(q, k, v, length):
    q_row, k_row, v_row = (x.flatten(0, 1)[:length].transpose(0, 1)[None] for x in (q, k, v))
    o = scaled_dot_product_attention(q_row, k_row, v_row, is_causal=True, enable_gqa=True)
    return o[0].transpose(0, 1)


request_2 = [projected[3:6] for projected in layer.project(x)]
o = plain_attention(*request_2, length=9)
expected = by_pytorch(*request_2, length=9)
torch.testing.assert_close(o.flatten(0, 1)[:9], expected, atol=1e-5, rtol=1e-5)
print("equal to PyTorch's; past the last token:", o.flatten(0, 1)[9:].abs().max().item())

# %% [markdown]
# ## Too many scores
#
# Each query has a score for each key, in each head. For a model with 32 query heads and 8 KV
# heads of size 128, in float16, one layer then needs:

# %%
print("  tokens   keys and values    all scores")
for num_tokens in (1024, 8192, 131072):
    kv_mib = 2 * num_tokens * 8 * 128 * 2 / 2**20
    scores_mib = 32 * num_tokens**2 * 2 / 2**20
    print(f"{num_tokens:8,} {kv_mib:13,.0f} MiB {scores_mib:9,.0f} MiB")

# %% [markdown]
# The scores of the longest prompt take a tebibyte for one layer, and are thrown away right
# after use. We want to compute a part of them, use it, and forget it.
#
# The softmax stands in the way. The denominator of each weight is a sum over *all* keys, so it
# seems that all scores have to be there before the first weight is known.
#
# ## Softmax in parts
#
# It only seems so. Take one row of six scores. The values are the numbers 1 to 6, so that the
# output shows where the attention is.

# %%
row = torch.tensor([2.0, 1.0, 4.0, 3.0, 0.0, 2.5])
numbers = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
print(f"softmax over the whole row gives {row.softmax(0) @ numbers:.4f}")

# %% [markdown]
# A softmax never takes the exponential of a score as it is, because that can overflow:

# %%
large = torch.tensor([100.0, 99.0])
weights = [f"{weight:.4f}" for weight in large.softmax(0)]
print("exp(100) in float32:", large[0].exp().item(), "· softmax:", weights)

# %% [markdown]
# First the largest score, $m$, is subtracted from every score. That changes nothing: numerator
# and denominator both get the factor $e^{-m}$, and it cancels out. So three numbers make the
# output of a row:
#
# $$m = \max_j s_j \qquad l = \sum_j e^{s_j - m} \qquad
#   \text{acc} = \sum_j e^{s_j - m}\, v_j \qquad o = \frac{\text{acc}}{l}$$
#
# Now let the scores come in parts. After the first part, (2, 1), the largest is m = 2. The
# second part brings a 4. Everything summed up so far is relative to 2, and should have been
# relative to 4. Each term is too large by the same factor $e^{4-2}$, so one multiplication
# puts them all right:
#
# $$e^{s - m_\text{new}} = e^{m_\text{old} - m_\text{new}} \cdot e^{s - m_\text{old}}$$
#
# For a new part with scores $s_j$ and values $v_j$ this gives
#
# $$m_\text{new} = \max(m_\text{old}, \max_j s_j) \qquad f = e^{m_\text{old} - m_\text{new}}$$
# $$l_\text{new} = f\, l_\text{old} + \sum_j e^{s_j - m_\text{new}} \qquad
#   \text{acc}_\text{new} = f\, \text{acc}_\text{old} + \sum_j e^{s_j - m_\text{new}}\, v_j$$
#
# That is the **online softmax** (acc is short for accumulator). Here it is with two keys in each
# part:

# %%
largest = -math.inf
total = 0.0
weighted = 0.0
steps = []
print("part          m  factor       l     acc       o")
for part, value in zip(row.split(2), numbers.split(2)):
    new_largest = max(largest, part.max().item())
    factor = math.exp(largest - new_largest)
    exponentials = torch.exp(part - new_largest)
    total = factor * total + exponentials.sum().item()
    weighted = factor * weighted + (exponentials @ value).item()
    largest = new_largest
    output = weighted / total
    steps.append((largest, total, output))
    print(
        f"{part.tolist()!s:10} {largest:4.0f}  {factor:.4f}  {total:.4f}  "
        f"{weighted:.4f}  {output:.4f}"
    )

# %%
goal = (
    row.max().item(),
    torch.exp(row - row.max()).sum().item(),
    (row.softmax(0) @ numbers).item(),
)
assert math.isclose(steps[-1][2], goal[2], rel_tol=1e-6)
draw.online_softmax(steps, goal)

# %% [markdown]
# After each part, the output is right for the keys so far. After the last one, it is the
# softmax over the whole row.
#
# **Why this always works.** After each part, three things are true of the keys seen so far: m
# is the largest score, l is the sum of $e^{s - m}$, and acc is the sum of $e^{s - m} v$. They
# are true before the first key: the maximum of nothing is -inf, and the empty sums are 0. And
# if they are true before a part, they are true after it. The factor makes each old term
# relative to the new maximum, and the new terms are added. So at the end they are true of all
# keys, and acc / l is the output of the softmax over all of them. It does not matter where the
# row was cut.
#
# **Why the factor is needed.** Without it, old terms are relative to one maximum and new ones
# to another. A weight then depends on which part its key was in:

# %%
largest, total, weighted = -math.inf, 0.0, 0.0
for part, value in zip(row.split(2), numbers.split(2)):
    largest = max(largest, part.max().item())
    exponentials = torch.exp(part - largest)
    total = total + exponentials.sum().item()
    weighted = weighted + (exponentials @ value).item()
print(f"without the factor {weighted / total:.4f}, and it should be {goal[2]:.4f}")

# %% [markdown]
# **Why m starts at -inf.** To start at 0 is to claim that some key had the score 0. Most of
# the time that does no harm, because any common m cancels out. But if all scores are far below
# 0, each exponential becomes 0:

# %%
low = row - 300
for start in (0.0, -math.inf):
    base = max(start, low.max().item())
    exponentials = torch.exp(low - base)
    total = exponentials.sum()
    print(f"m starts at {start:4}: l = {total:.4f}, o = {exponentials @ numbers / total:.4f}")

# %% [markdown]
# With -inf there is one case to watch. A row may have seen no key yet, because all of them
# were hidden. Then a difference of maxima is -inf - (-inf), which is NaN. The function
# `finite` gives 0 where m is -inf. Subtract its result instead of the new maximum, and use it
# nowhere else: the old maximum in the factor, and the m that is stored, stay -inf.

# %%
# INCLUDE paged_attention/attention/softmax_state.py finite


nothing = torch.tensor([-math.inf])
careless, careful = torch.exp(nothing - nothing), torch.exp(nothing - finite(nothing))
print("exp(-inf - m):", careless.item(), "· exp(-inf - finite(m)):", careful.item())

# %% [markdown]
# ### Sums in 16 bits
#
# Models and their caches often use bfloat16, a float of 16 bits. It has 8 significant bits.
# Above 256 it can no longer hold every whole number, and between 4096 and 8192 its numbers are
# 32 apart. You can add 16 to a sum of 4096 as often as you like. The result is rounded, and it
# is 4096 again.
#
# Our l is such a sum. Let 6,400 keys come in parts of 16, all with the score 0, so that each
# weight is 1. The values grow evenly from 0 to 1. The output is their mean, 0.5:

# %%
even = torch.linspace(0, 1, 6400).to(torch.bfloat16)
for dtype in (torch.bfloat16, torch.float32):
    total = weighted = torch.zeros((), dtype=dtype)
    for part in even.split(16):
        total = total + len(part)
        weighted = weighted + part.to(dtype).sum()
    output = weighted / total
    print(f"sums in {dtype}: l = {total:.0f}, acc = {weighted:.0f}, o = {output:.3f}")

# %% [markdown]
# In bfloat16 l never gets past 4096, so acc is divided by too little. The result looks like
# any other output, and nobody is warned. The values had 16 bits both times: it is the *sums*
# that need more. So whatever the type of the scores and values, m, l and acc have at least 32
# bits. The output may be rounded to 16 bits once, at the end.
#
# ### Exercise 3.2: the online softmax
#
# Write it for many rows at once: m and l have a number for each row. The rows may have any
# shape; in a moment it will be (num_q_heads, block_size). `dtype` is the type of the scores
# and values: a state made for float64 computes in float64, and one made for 16 bits in
# float32. (`torch.promote_types(dtype, torch.float32)` is the larger of the two types.)
# `finish()` may be called at any time, even before the first part. The check looks at what
# `finish()` gives, on the CPU, in float32 and float64. Exercise 3.3 works on `m`, `l` and
# `acc` themselves, so let them hold what the class says.

# %% exercise="3.2"
# INCLUDE paged_attention/attention/softmax_state.py SoftmaxState without merge


# %% check="3.2"
check("3.2", SoftmaxState)

# %% [markdown]
# Here is a row of 200 keys, cut in a hundred different ways, and compared with one softmax
# over all of it:

# %%
generator = torch.Generator().manual_seed(0)
scores = 10 * torch.randn(1, 200, generator=generator)
values = torch.randn(1, 200, 8, generator=generator)
whole = scores.softmax(-1) @ values[0]
for _ in range(100):
    cuts = torch.randint(1, 200, (7,), generator=generator).unique().tolist()
    state = SoftmaxState(1, head_size=8)
    for begin, end in zip([0, *cuts], [*cuts, 200]):
        state.update(scores[:, begin:end], values[:, begin:end])
    torch.testing.assert_close(state.finish()[0], whole, atol=1e-5, rtol=1e-5)
print("a hundred ways to cut the row, one result")

# %% [markdown]
# ## Parts that do not wait for each other
#
# Updates come one after the other. But two workers could each take half of the keys, each with
# its own state, and put the two states together at the end. Both are then brought to the
# larger maximum:
#
# $$m = \max(m_a, m_b) \qquad l = e^{m_a - m}\, l_a + e^{m_b - m}\, l_b \qquad
#   \text{acc} = e^{m_a - m}\, \text{acc}_a + e^{m_b - m}\, \text{acc}_b$$
#
# An update is a merge with the new part. The sums of the part are already relative to the new
# maximum, so its factor is 1. Lesson 04 puts the blocks of a sequence together this way, and
# lesson 07 lets the whole GPU work on one long sequence.
#
# ### Exercise 3.3: merge two states
#
# The check gives your function two of our states, so it does not depend on your exercise 3.2.

# %% exercise="3.3"
# INCLUDE paged_attention/attention/softmax_state.py SoftmaxState.merge


SoftmaxState.merge = merge

# %% check="3.3"
check("3.3", merge)

# %% [markdown]
# Four workers take fifty keys each. The result is the same in whatever order their states are
# merged:


# %%
def state_of(begin, end):
    worker = SoftmaxState(1, head_size=8)
    worker.update(scores[:, begin:end], values[:, begin:end])
    return worker


for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
    first, *others = [state_of(50 * worker, 50 * worker + 50) for worker in order]
    for other in others:
        first.merge(other)
    torch.testing.assert_close(first.finish()[0], whole, atol=1e-5, rtol=1e-5)
print("three orders, one result")

# %% [markdown]
# ## Block by block
#
# Now attention no longer needs a large matrix of scores. Take one block of queries. It has a
# state for each of its rows. Blocks of keys pass by, and each gives block_size × block_size
# scores per head. These go into the state and are forgotten.
#
# Here is what has to be computed for a request of four blocks. It is the mask from above, seen
# from further away:

# %%
draw.tiles(num_blocks=4)

# %% [markdown]
# Below the diagonal every key is in the past. Above it every key is in the future, and the
# pair is left out: 6 of 16 pairs here, and nearly half of them in a long request. On the
# diagonal a block meets itself, and there the mask is needed *inside* the pair. It is easy to
# forget, because leaving out the later blocks already looks like a causal mask.
#
# The last block takes part as a whole, empty slots included. Hiding their scores is not
# enough: the weight is 0, and 0 times NaN is NaN. The *values* after the end must also be cut
# off or set to 0.
#
# ### Exercise 3.4: attention block by block
#
# Use your `SoftmaxState`, and take one block of queries with one block of keys at a time: the
# check looks at how many scores of a head exist at once. Positions help with the masks: slot s
# of block i has the position i · block_size + s. `state.update()` takes the scores
# (num_q_heads, block_size, block_size), and values that broadcast over the queries,
# (num_q_heads, 1, block_size, head_size).

# %% exercise="3.4"
# INCLUDE paged_attention/attention/by_request.py tiled_attention


# %% check="3.4"
check("3.4", tiled_attention)

# %% [markdown]
# Here are your two ways and PyTorch's own, on a longer request with seven query heads for each
# KV head. The last block is partly filled, and NaN follows the last token. If anything read
# it, the results would be NaN.

# %%
length = 333
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(21, 16, heads, 32, generator=generator) for heads in (14, 2, 2))
for tensor in (q, k, v):
    tensor.flatten(0, 1)[length:] = float("nan")
plain = plain_attention(q, k, v, length)
tiled = tiled_attention(q, k, v, length)
torch.testing.assert_close(tiled, plain, atol=1e-5, rtol=1e-5)
expected = by_pytorch(q, k, v, length)
torch.testing.assert_close(plain.flatten(0, 1)[:length], expected, atol=1e-5, rtol=1e-5)
print(
    "all agree; counted from the shapes, scores of a head at once: "
    f"plain {length * length}, tiled {16 * 16}"
)

# %% [markdown]
# This is **FlashAttention** without its GPU part. On a GPU, what matters is where the scores
# live. The plain way writes them to the large, slow memory and reads them back. One pair of
# blocks fits into the small, fast memory next to the arithmetic, and its scores never leave
# it.
#
# Our loops have the queries outside and one division at the end, as in FlashAttention-2. The
# first paper had the keys outside, and divided at each step.
#
# ## All requests, and the pool
#
# Back to the three prompts. Each gets its slice of q, k and v, and attends on its own. To find
# where a slice starts, add up `request_num_blocks` as you go.
#
# A prefill also leaves something behind. The next token will need the keys and values of all
# tokens before it, so they go into the pool, through the block table of lesson 02. `x` holds a
# request's blocks side by side. In the pool they lie wherever a block was free:


# %%
seq_ids = [10, 11, 12]


def new_manager():
    manager = PagedAttentionManager(
        10, block_size, num_kv_heads=2, head_size=8, max_num_seqs=4, max_blocks_per_seq=4
    )
    taken = [manager.block_manager.allocate() for _ in range(10)]
    # given back in this order, so the last is taken first
    for block_id in (7, 2, 9, 0, 4, 6, 1, 8, 3, 5):
        manager.block_manager.free(taken[block_id])
    for seq_id, length in zip(seq_ids, lengths):
        manager.add_sequence(seq_id, length)
    return manager


manager = new_manager()
draw.into_the_pool([manager.blocks_of(seq_id) for seq_id in seq_ids], num_blocks=10)

# %% [markdown]
# Requests are numbered by their place in the batch: 0, 1, 2. The manager knows them as
# sequences 10, 11 and 12, because ids need not start at 0 or follow the batch.
#
# ### Exercise 3.5: prefill, request by request
#
# For each request: take its slice of q, k and v, attend, and write its keys and values into
# its slots. This is what you have:
#
# - `layer.project(x)` gives q, k and v of all blocks, and `layer.output(o)` brings the heads'
#   outputs back to dim. Where o is 0, the result is 0.
# - `attend` is one of your two functions: the caller chooses.
# - `manager.get(seq_id).length` is the number of tokens, and
#   `manager.get_block_table_for_seq(seq_id)` the row of the table.
# - `slot_mapping(block_ids, positions, block_size)` gives the slots of tokens. `block_ids` is
#   such a row. `positions`, int64, are counted from 0 in each sequence.
# - `write_kv(k_cache, v_cache, slots, k, v)` writes k and v, (num_tokens, num_kv_heads,
#   head_size), into these slots. All other slots stay as they are.

# %% exercise="3.5"
# INCLUDE paged_attention/attention/by_request.py forward_prefill


# %% check="3.5"
check("3.5", forward_prefill)

# %% [markdown]
# Here are the three prompts, with both ways of attending:

# %%
y = forward_prefill(layer, x, request_num_blocks, seq_ids, new_manager())
manager = new_manager()
y_tiled = forward_prefill(
    layer, x, request_num_blocks, seq_ids, manager, attend=tiled_attention
)
torch.testing.assert_close(y_tiled, y, atol=1e-5, rtol=1e-5)
print("y:", tuple(y.shape), "· both ways agree")

# %% [markdown]
# And the pool holds what the next lesson needs. Read back through the block table, the keys of
# sequence 12 are those of the last three blocks of x:

# %%
k_cache, _ = manager.kv_cache[layer.index]
from_pool = k_cache[manager.blocks_of(12)].flatten(0, 1)[:9]
assert torch.equal(from_pool, layer.project(x)[1][3:6].flatten(0, 1)[:9])
print("sequence 12 lies in the blocks", manager.blocks_of(12), "and its keys are all there")

# %% [markdown]
# ## Requests never see each other
#
# Change the second token of request 1, and look at every output. `torch.equal` asks for
# numbers that are equal to the last bit, not for nearly equal ones.

# %%
perturbed = x.clone()
perturbed[2, 1] += 1.0  # request 1 is block 2 of x
y_perturbed = forward_prefill(layer, perturbed, request_num_blocks, seq_ids, new_manager())
assert torch.equal(y_perturbed[:2], y[:2]) and torch.equal(y_perturbed[3:], y[3:])
assert torch.equal(y_perturbed[2, :1], y[2, :1])
change = (y_perturbed != y).any(-1)
draw.changed_tokens(change, lengths, request_num_blocks, touched=(2, 1))

# %% [markdown]
# The picture shows both at once. No other request has noticed: that is the slicing at work.
# And within the request, the token before has not noticed either: that is the causal mask at
# work.
#
# In a server, one user's prompt must have no influence on another user's answer. This is the
# test for it. It can ask for equal bits because both runs have the same shapes. In a batch of
# another size, PyTorch may add up the same numbers in another order, and then the last bits
# can differ.
#
# ## FlashAttention and PagedAttention
#
# The names are similar, but the two answer different questions:
#
# | | FlashAttention | PagedAttention |
# |---|---|---|
# | asks | how are the scores computed? | where do K and V lie? |
# | answers | in tiles, with an online softmax | in blocks anywhere in the pool, found through a table |
# | saves | memory traffic: no scores in the GPU's large memory | memory: no room kept for tokens that may never come |
#
# They go together. A tile of keys can just as well be a block of the pool as a piece of a
# contiguous tensor, and the parts may come in any order. That is why a fast kernel can do
# both: walk along the block table, and merge what it finds.
#
# ## What you built
#
# Attention in two ways, which agree with each other and with PyTorch. The second way never
# holds more scores of a head than those of one pair of blocks. The online softmax, which takes
# its keys in any parts and in any order. And a layer that reads several prompts at once, keeps
# them apart, and leaves their keys and values in the pool.
#
# ## Ask yourself
#
# <details><summary>What are the formulas of the online softmax, and why do they give the same
# result as one softmax over all keys?</summary>
#
# The new maximum is the larger of the old one and the part's. The old sums are multiplied by
# exp(m<sub>old</sub> − m<sub>new</sub>), and the new terms, relative to m<sub>new</sub>, are
# added. So after each part l and acc are the sums over all keys so far, relative to the
# maximum so far. At the end acc / l is the softmax; the common factor exp(−m) cancels out.
# </details>
#
# <details><summary>Why does <code>x</code> have total_blocks as its first dimension, and not
# the number of requests?
# </summary>
#
# Requests have different lengths. With a row for each request, all rows would be as long as
# the longest. In blocks, at most block_size − 1 slots of each request are empty, and the
# projections run over all tokens of all requests in one multiplication.
# <code>request_num_blocks</code> says where each request starts.
# </details>
#
# <details><summary>What is the difference between PagedAttention and FlashAttention? Does one
# replace the other?</summary>
#
# FlashAttention is about the scores: it computes them in tiles and never stores them all.
# PagedAttention is about the keys and values: it lets them lie in blocks anywhere, so that no
# memory is reserved in advance. Each works without the other, and engines use both.
# </details>
#
# <details><summary>The running maximum starts at 0 in a program, and its tests pass. When does
# it fail?</summary>
#
# When all scores of a row are far below 0. In float32 exp(−104) is 0, so every term is 0 and
# the output is 0/0. With scores around 0, any start that is not too far away cancels out, so a
# test with random numbers does not see it.
# </details>
#
# <details><summary>With the causal mask no token looks past the end. Why must the last block
# be masked all the same?
# </summary>
#
# Its empty slots are queries as well, and their output would look like a token's. And the
# values there are multiplied by weights of 0: if one is NaN or infinite, the sum is NaN. In a
# decode, where the query comes after all keys, these slots would even be attended to.
# </details>
#
# <details><summary>Does the tiled way compute fewer scores than the plain one?</summary>
#
# For a long request about half as many, because pairs of blocks above the diagonal are left
# out. The large gain lies elsewhere: for n tokens it keeps block_size² scores of a head at a
# time, instead of n².
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Maxim Milakov and Natalia Gimelshein, *Online normalizer calculation for softmax*, 2018,
#   [arXiv:1805.02867](https://arxiv.org/abs/1805.02867): section 3 for m and l.
# - Tri Dao et al., *FlashAttention: Fast and Memory-Efficient Exact Attention with
#   IO-Awareness*, 2022, [arXiv:2205.14135](https://arxiv.org/abs/2205.14135): section 3.1 and
#   algorithm 1 for acc and the blocks.
# - Tri Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work
#   Partitioning*, 2023, [arXiv:2307.08691](https://arxiv.org/abs/2307.08691): algorithm 1 for
#   our order of the loops and the single division.
# - Joshua Ainslie et al., *GQA: Training Generalized Multi-Query Transformer Models from
#   Multi-Head Checkpoints*, 2023, [arXiv:2305.13245](https://arxiv.org/abs/2305.13245):
#   section 2.2.
# - Ashish Vaswani et al., *Attention Is All You Need*, 2017,
#   [arXiv:1706.03762](https://arxiv.org/abs/1706.03762): section 3.2.1 for the scale.
# - PyTorch's documentation, `torch.nn.functional.scaled_dot_product_attention`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [04 · Decode](04_decode.ipynb), where each sequence has one new token, and all its
# past lies in the pool.
