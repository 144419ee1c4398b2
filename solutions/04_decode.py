# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Decode: one query, many blocks
#
# **You build** what runs for every token that a model writes: a decode step. Each sequence
# brings one query. Its keys and values lie in blocks anywhere in the pool, and they are never
# brought together. Each block gives a part of the answer, and the parts are put together at
# the end.
#
# PICTURE opening
#
# **You need** lessons [02](02_block_tables.ipynb) (block tables, slots) and
# [03](03_prefill.ipynb) (the online softmax). **It takes** 60 to 90 minutes. Words that you
# meet again are in the [glossary](glossary.ipynb).

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("04")

# %% [markdown]
# The picture shows the whole step. This lesson builds it from top to bottom.
#
# ## One token at a time
#
# After the prompt, a sequence grows by one token at a time. In prefill there were as many
# queries as keys. Now there is one query for each sequence, and it looks at everything that
# the sequence has written so far.
#
# We need PyTorch, and much of what you built in lessons 02 and 03:

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from paged_attention.attention import share_heads
from paged_attention.attention.layer import AttentionLayer
from paged_attention.pool.slots import slot_mapping, write_kv
from paged_attention.attention.three_requests import manager_in_disorder, three_requests

# %% [markdown]
# We take three requests, with prompts of 10, 3 and 7 tokens and blocks of 4. `three_requests`
# has computed the prompts as you did in lesson 03, and their keys and values are in the pool.
# This pool hands out its blocks in disorder, as it would after hours of work: in the order that
# is in `order`. And each slot without a token holds NaN, so that a mistaken read shows.

# %%
order = [5, 0, 7, 2, 6, 1, 4, 3]
layer = AttentionLayer(dim=24, num_q_heads=6, num_kv_heads=2, head_size=16)
texts, manager = three_requests(layer, order)
for seq_id in texts:
    length, blocks = manager.get(seq_id).length, manager.blocks_of(seq_id)
    print(f"sequence {seq_id}: {length:2} tokens in blocks {blocks}")

# %% [markdown]
# ### Room for the new token
#
# Each sequence now has a new token. Where will its key and value go? That is settled before
# the step begins. In a real server, the **scheduler** has called `append_token` for each
# sequence. If there is no block left, the scheduler finds out, and makes a sequence wait.
#
# So in a decode step the last token of each sequence is the new one. It already has a slot,
# and nothing is there yet.

# %%
texts, manager = three_requests(layer, order)  # anew, so that you can run this cell twice
new_tokens = torch.randn(3, 24)
k_cache, v_cache = manager.kv_cache[0]
for seq_id in texts:
    slot = manager.append_token(seq_id)
    num_tokens = manager.get(seq_id).length
    written = not k_cache.flatten(0, 1)[slot].isnan().any()
    place = f"the last one in slot {slot:2}"
    print(f"sequence {seq_id}: {num_tokens:2} tokens, {place}, written: {written}")
    assert not written

# %% [markdown]
# The **past** of a sequence is everything before its last token. This function says which
# blocks hold the past, how many tokens are in each of them, and how many blocks each request
# has. With these three, attention no longer needs the block table. The table is read once more
# at the end of the step, to find the new token's slot:

# %%
# INCLUDE paged_attention/attention/decode.py past_blocks

# %%
block_ids, num_valid, request_num_blocks = past_blocks([1, 2, 3], manager)
print("block ids:          ", block_ids.tolist())
print("tokens in the block:", num_valid.tolist())
print("blocks per request: ", request_num_blocks.tolist())

# %% [markdown]
# ## A query for each block
#
# There are three queries and six blocks. To work on all blocks at once, each block needs its
# request's query beside it. So each query is copied as many times as its request has blocks,
# in the order of the blocks. This is the **dispatch**. A request may have no past blocks at
# all, if its only token is the new one.
#
# ### Exercise 4.1: repeat each query for its blocks

# %% exercise="4.1"
# INCLUDE paged_attention/attention/decode.py dispatch

# %% check="4.1"
check("4.1", dispatch)

# %% [markdown]
# Compare it with a function that is easily used by mistake. The number of rows is the same:

# %%
numbers = torch.tensor([0, 1, 2]).view(3, 1, 1)
rows = {
    "your dispatch": dispatch(numbers, request_num_blocks),
    "q.repeat(2, 1, 1)": numbers.repeat(2, 1, 1),
}
rows = {title: copies.flatten().tolist() for title, copies in rows.items()}
for title, row in rows.items():
    print(f"{title:18}", " ".join(f"q{number + 1}" for number in row))
draw.queries_above_blocks(rows)

# %% [markdown]
# With `repeat`, a query would read another user's text. No error would be raised, because the
# shapes are right.
#
# ## Attention over one block
#
# Here is what one query sees in its three blocks: the scores of the first request, for its
# first head. The last block is partly filled. Its other slots hold no token of this sequence:

# %%
queries, keys, values = layer.project(new_tokens)  # (3, 6, 16), (3, 2, 16), (3, 2, 16)
scores = k_cache[block_ids[:3], :, 0] @ queries[0, 0] / math.sqrt(16)  # (3 blocks, 4 slots)
draw.block_scores(scores, block_ids[:3], num_valid[:3])

# %% [markdown]
# Each row of this picture becomes a part of the answer, independently of the others. A part
# consists of three things, the same three that `finish()` gave in lesson 03. For the scores
# $s_t$ of a block, divided by √head_size as before, and its values $v_t$:
#
# $$m = \max_t s_t \qquad l = \sum_t e^{s_t - m} \qquad o = \frac{1}{l} \sum_t e^{s_t - m}\, v_t$$
#
# Here is the same in code, for the first row:

# %%
row = scores[0]
m = row.max()
p = torch.exp(row - m)
l = p.sum()
o = p @ v_cache[block_ids[0], :, 0] / l
print(f"m = {m:.2f}, l = {l:.2f}, o = ({o[0]:.2f}, {o[1]:.2f}, …)")

# %% [markdown]
# $o$ is the answer that the query would get if this block were all there is. $m$ and $l$ say
# how much that answer counts compared with others. We will need them soon.
#
# ### Exercise 4.2: attention over one block, as (o, m, l)
#
# Write it for all pairs of query and block at once. Three things need care:
#
# - **Heads.** There are more query heads than KV heads. `share_heads(k, num_q_heads)`, from
#   lesson 03, gives each query head the keys that it reads.
# - **The tail.** Only the first `num_valid` slots of a block count. What comes after them must
#   not matter, even if it is NaN. Such a mask needs two halves: -inf instead of the scores,
#   and 0 instead of the values. A score of -inf gives the weight 0, and 0 times NaN is NaN.
# - **No key at all.** A block with `num_valid` 0 gives `o = 0`, `m = -inf`, `l = 0`. `NO_KEY`
#   is -inf, and `finite(m)` is `m` with 0 instead of -inf. Use it where m is subtracted, and
#   only there: the m that you return stays -inf.
#
# The parts are sums, and they are summed again. So they are kept in float32 even where the
# cache has 16 bits: [lesson 03](03_prefill.ipynb#Sums-in-16-bits) shows why. `widen(x)` turns
# numbers with fewer bits into float32, and leaves others as they are. This lesson's checks give
# you float32.

# %%
from paged_attention.attention.softmax_state import NO_KEY, SoftmaxState, finite, widen

print("finite of 2 and -inf:", finite(torch.tensor([2.0, NO_KEY])).tolist())
for dtype in (torch.float16, torch.float32, torch.float64):
    print(f"widen makes {widen(torch.ones(1, dtype=dtype)).dtype} of {dtype}")

# %% exercise="4.2"
# INCLUDE paged_attention/attention/decode.py block_attention

# %% check="4.2"
check("4.2", block_attention)

# %% [markdown]
# Six pairs, six query heads, 16 numbers for each. Here are the parts of the first request's
# head 0:

# %%
all_o, all_m, all_l = block_attention(
    dispatch(queries, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid
)
print(f"o {tuple(all_o.shape)}, m {tuple(all_m.shape)}, l {tuple(all_l.shape)}\n")
for pair in range(3):
    o, m, l = all_o[pair, 0], all_m[pair, 0], all_l[pair, 0]
    print(f"block {block_ids[pair]}: m = {m:5.2f}, l = {l:.2f}, o = ({o[0]:5.2f}, …)")
assert not all_o.isnan().any()

# %% [markdown]
# ## Putting the parts together
#
# Three blocks, three answers. The right answer is a mean of them, but not the plain one: a
# block with high scores counts for more. How much more?
#
# A softmax gives each key the weight $e^{s}$. A block weighs as much as its keys do together:
# the sum of their $e^{s}$. We have that sum, relative to the block's own maximum: it is $l$.
# To compare two blocks, both sums must be relative to the same maximum. So take the largest of
# all, $m_\text{all}$. Then the part of each block weighs
#
# $$w = e^{m - m_\text{all}} \cdot l$$
#
# You have seen this in exercise 3.3, where two states were brought to one maximum. There a
# state kept acc. A part keeps o = acc / l, so its acc is l · o. Hence the factor l.
#
# Below on the left are the shares that this gives. On the right, you see one of the 16 numbers
# of the answer add up. Each block contributes its share times its own answer. The dashed line
# is attention over all ten keys at once, computed by PyTorch.

# %%
first_o = all_o[:3, 0]
first_m = all_m[:3, 0]
first_l = all_l[:3, 0]
weights = torch.exp(first_m - first_m.max()) * first_l
shares = weights / weights.sum()
past_k = k_cache[block_ids[:3], :, 0].flatten(0, 1)[:10]  # (10, 16)
past_v = v_cache[block_ids[:3], :, 0].flatten(0, 1)[:10]
at_once = F.scaled_dot_product_attention(queries[0, :1], past_k, past_v)[0]
assert torch.allclose(shares @ first_o, at_once, atol=1e-5)
draw.adding_up(block_ids[:3], shares, first_o[:, 0], at_once[0])

# %% [markdown]
# It is easy to get this wrong in two ways. Weighing by $m - m_\text{all}$ without the
# exponential gives the block with the largest $m$ no weight at all, and that is often the one
# that counts most. Weighing by $e^{m - m_\text{all}}$ without $l$ forgets how many keys a
# block has.
#
# ### Exercise 4.3: combine the parts
#
# The result is again a triple (o, m, l), as if all keys had been in one block. So results can
# be combined again. A part that saw no key has m = -inf and l = 0, and must not disturb the
# others. If no part saw a key, the result is 0, -inf, 0.

# %% exercise="4.3"
# INCLUDE paged_attention/attention/decode.py combine_result

# %% check="4.3"
check("4.3", combine_result)

# %% [markdown]
# Now we compare all six heads of the first request with PyTorch's attention over its ten keys
# at once:

# %%
past_k = share_heads(k_cache[block_ids[:3]].flatten(0, 1)[:10], 6).transpose(0, 1)
past_v = share_heads(v_cache[block_ids[:3]].flatten(0, 1)[:10], 6).transpose(0, 1)
at_once = F.scaled_dot_product_attention(queries[0][:, None], past_k, past_v)[:, 0]
in_parts, _, _ = combine_result(all_o[:3], all_m[:3], all_l[:3])
assert torch.allclose(in_parts, at_once, atol=1e-5)
print("by blocks:   ", [f"{number:.3f}" for number in in_parts[:, 0].tolist()])
print("all at once: ", [f"{number:.3f}" for number in at_once[:, 0].tolist()])

# %% [markdown]
# The order of the parts does not matter, and neither does the way in which the keys were
# divided. That is why blocks may lie anywhere, and why lesson 07 can give the blocks of one
# long sequence to many workers at once.
#
# ## One step of decoding
#
# Two pieces are still missing. The new token also looks at itself, and its key and value are
# not in the pool yet. That needs nothing new: treat the token as a block of one slot.

# %%
# INCLUDE paged_attention/attention/decode.py own_token

# %% [markdown]
# At the end, its key and value go into the slot that was made ready for them, so that the next
# step finds them:

# %%
# INCLUDE paged_attention/attention/decode.py write_new_tokens

# %% [markdown]
# ### Exercise 4.4: decode one token of each sequence
#
# Put the step together, in the order of the first picture: project, find the past blocks,
# dispatch, attend block by block, combine each request's own parts with the new token's,
# write, project back. A loop over the requests is fine.
#
# The functions you need are `past_blocks`, `dispatch`, `block_attention`, `own_token`,
# `combine_result` and `write_new_tokens`, and the layer's `layer.project(x)` and
# `layer.output(o)`. `k_cache[block_ids]` takes several blocks out of the pool, in the order in
# which you name them. `torch.cat` joins tensors along their first dimension. All of them must
# have that dimension. For a tensor `t`, `t[i]` loses it, and `t[i : i + 1]` keeps it, with
# size 1.
#
# Here `dispatch`, `block_attention` and `combine_result` are the functions that you wrote
# above, and `own_token` calls your `block_attention`. So their checks should pass before this
# one. The first line is given: it refuses arguments that do not fit.

# %%
from paged_attention.validate import check_decoding

# %% exercise="4.4"
# INCLUDE paged_attention/attention/decode.py forward_decoding_loop

# %% check="4.4"
check("4.4", forward_decoding_loop)

# %% [markdown]
# Is it right from end to end? We run a prompt, then six steps. In each, the result must be
# what PyTorch's attention gives over the whole text so far, without pool or blocks. On the
# way, each sequence fills a block and begins another.


# %%
def attend_last(tokens):
    """Computes the last token's result by PyTorch's attention over all tokens."""
    # (1, heads, tokens, 16)
    q_rows, k_rows, v_rows = (rows.transpose(0, 1)[None] for rows in layer.project(tokens))
    last = q_rows[:, :, -1:]
    o = F.scaled_dot_product_attention(last, k_rows, v_rows, enable_gqa=True)
    return layer.output(o[0, :, 0])


texts, server = three_requests(layer, [3, 0, 5, 8, 10, 9, 4, 11, 7, 6, 2, 1])
for step in range(1, 7):
    arrivals = torch.randn(3, 24)
    for seq_id, token in zip(texts, arrivals, strict=True):
        server.append_token(seq_id)
        texts[seq_id] = torch.cat([texts[seq_id], token[None]])
    decoded = forward_decoding_loop(layer, arrivals, [1, 2, 3], server)
    expected = torch.stack([attend_last(tokens) for tokens in texts.values()])
    torch.testing.assert_close(decoded, expected, atol=1e-5, rtol=1e-5)
    blocks = [server.blocks_of(seq_id) for seq_id in texts]
    print(f"step {step}: blocks {blocks}, equal to 1e-5")

# %% [markdown]
# ## Without a loop
#
# The blocks of all requests are attended at once, and then Python goes through the requests
# one by one, with a dozen small calls for each. This loop can go. All it does is take a
# maximum and two sums, each over the rows of one request. Such a run of rows is called a
# **segment**, and PyTorch reduces all segments in one call:

# %%
owner = torch.tensor([0, 0, 0, 1, 2, 2])
amounts = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
print("sums:   ", torch.zeros(3).index_add(0, owner, amounts).tolist())
print("maxima: ", torch.full((3,), 10.0).scatter_reduce(0, owner, amounts, "amax").tolist())

# %% [markdown]
# `owner` says which of three requests each row belongs to. Both functions begin with what is
# in the tensor that they are called on: the sums with 0, the maxima with 10. That is why two
# maxima are 10, though 10 is not among the amounts. Choose the start well.
#
# `index_add` takes one index for each row. `scatter_reduce` wants an index for each number, so
# `owner` has to be expanded to the shape of the tensor that is reduced.
#
# ### Exercise 4.5: combine the parts of all requests at once

# %% exercise="4.5"
# INCLUDE paged_attention/attention/decode.py combine_segments

# %% check="4.5"
check("4.5", combine_segments)

# %% [markdown]
# The loop and the segments give the same result. To see how long they take, we need a function
# that measures time. It uses one thread, because several threads on a busy machine wait for
# each other, and takes the shortest of five runs:


# %%
import timeit


def milliseconds(function):
    """Times a call on one thread: the shortest of five, after one that warms up."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        function()
        return min(timeit.repeat(function, number=1, repeat=5)) * 1e3
    finally:
        torch.set_num_threads(num_threads)


# %% [markdown]
# Here are 256 requests with 1 to 40 blocks each:

# %% tags=["nbval-ignore-output"]
source = torch.Generator().manual_seed(6)
sizes = torch.randint(1, 41, (256,), generator=source)
total = int(sizes.sum())
many = (
    torch.randn(total, 8, 64, generator=source),
    torch.randn(total, 8, generator=source),
    torch.rand(total, 8, generator=source) + 1,
)


def one_by_one():
    pieces = zip(*(part.split(sizes.tolist()) for part in many), strict=True)
    results = [combine_result(*piece) for piece in pieces]
    return [torch.stack(numbers) for numbers in zip(*results, strict=True)]


for looped, segmented in zip(one_by_one(), combine_segments(*many, sizes), strict=True):
    torch.testing.assert_close(looped, segmented, atol=1e-5, rtol=1e-5)
ways = {"a loop": one_by_one, "segments": lambda: combine_segments(*many, sizes)}
for name, combine in ways.items():
    print(f"{name:9} {milliseconds(combine):6.1f} ms")

# %% [markdown]
# On our machine the segments took a fraction of the loop's time. How much you gain depends on
# the machine and on the sizes: the loop pays for its calls once per request, however short the
# request is.
#
# Two lines can replace the loop in `forward_decoding_loop`. The first combines the past of
# every request. The second combines two parts, past and new token, for all requests together.
# Here `parts` is what `block_attention` returned:
#
# ```python
# past = combine_segments(*parts, request_num_blocks)
# o, _, _ = combine_result(*(torch.stack(pair) for pair in zip(past, own_token(q, k, v))))
# ```
#
# The course's own `forward_decoding` has this form. On the last step above, it agrees with
# yours:

# %%
from paged_attention.attention.decode import forward_decoding

without_loop = forward_decoding(layer, arrivals, [1, 2, 3], server)
torch.testing.assert_close(without_loop, decoded, atol=1e-5, rtol=1e-5)
largest, with_loop = without_loop.abs().max(), decoded.abs().max()
print(f"largest result: {largest:.4f} and with the loop: {with_loop:.4f}")

# %% [markdown]
# ## Where the bytes go
#
# Why not gather a request's blocks into one tensor first, and then call any attention
# function? The result is right, and this is called **gather-then-attend**. The question is
# what it costs.
#
# A decode step does little arithmetic: each key is multiplied by one query, in the few heads
# that share it. On a GPU, nearly all of the time goes into fetching keys and values from
# memory, as lesson 07 measures. So we count bytes. Gather-then-attend moves them three times:
# it reads the blocks, it writes the copy, and attention reads the copy. Attention on the
# blocks themselves reads them once.
#
# ### Exercise 4.6: count the bytes

# %% exercise="4.6"
# INCLUDE lessons_content/lesson_04/e4_6_bytes_moved.py bytes_moved

# %% check="4.6"
check("4.6", bytes_moved)

# %% [markdown]
# For Qwen3-8B, with 36 layers, 8 KV heads of size 128 and two bytes per number, and 1,024
# tokens of context:

# %%
MIB = 2**20
gather, paged = (36 * number / MIB for number in bytes_moved([1024], 16, 8, 128, 2))
print(f"gather-then-attend: {gather:.0f} MiB for each new token, paged: {paged:.0f} MiB")
draw.bytes_per_step(gather, paged)

# %% [markdown]
# ### What PyTorch can and cannot save
#
# Does your function get the short bar? Not yet. Look at what indexing does:


# %%
def view_or_copy(tensor):
    in_the_pool = tensor.untyped_storage().data_ptr() == k_cache.untyped_storage().data_ptr()
    return "a view" if in_the_pool else "a copy"


print("k_cache[5]                   ", view_or_copy(k_cache[5]))
print("k_cache[5:7]                 ", view_or_copy(k_cache[5:7]))
print("k_cache[[5]]                 ", view_or_copy(k_cache[[5]]))
print("k_cache[torch.tensor([5, 0])]", view_or_copy(k_cache[torch.tensor([5, 0])]))
assert view_or_copy(k_cache[5]) == "a view" and view_or_copy(k_cache[block_ids]) == "a copy"

# %% [markdown]
# A single number or a range gives a view into the pool. A list or a tensor of block ids gives
# a **copy**: `k_cache[block_ids]` is itself a gather. Only a loop over the blocks, one integer
# at a time, reads them in place. Here are all three, for one request of 2,048 tokens:

# %%
source = torch.Generator().manual_seed(7)
pool_k, pool_v = torch.randn(2, 128, 16, 8, 128, generator=source)  # 8 MiB each
ids = torch.randperm(128, generator=source)
query = torch.randn(1, 8, 128, generator=source)


def gathered():
    k_rows = pool_k[ids].flatten(0, 1).transpose(0, 1)[None]  # (1, 8, 2048, 128)
    v_rows = pool_v[ids].flatten(0, 1).transpose(0, 1)[None]
    return F.scaled_dot_product_attention(query[:, :, None], k_rows, v_rows)[:, :, 0]


def by_blocks():
    number, full = torch.tensor([128]), torch.full((128,), 16)
    pieces = block_attention(dispatch(query, number), pool_k[ids], pool_v[ids], full)
    return combine_segments(*pieces, number)[0]


def in_place():
    state = SoftmaxState(8, head_size=128)
    for block_id in ids.tolist():
        block_scores = torch.einsum("hd,thd->ht", query[0], pool_k[block_id]) / math.sqrt(128)
        state.update(block_scores, pool_v[block_id].transpose(0, 1))
    return state.finish()[0][None]


# %% [markdown]
# `new_bytes` adds up the size of every new tensor that PyTorch makes while the function runs:

# %% tags=["nbval-ignore-output"]
from lessons_lib.allocations import new_bytes

ways = {
    "gather, then attend": gathered,
    "your blocks": by_blocks,
    "a loop over views": in_place,
}
made = {}
for name, attend in ways.items():
    torch.testing.assert_close(attend(), gathered(), atol=1e-5, rtol=1e-5)
    made[name] = new_bytes(attend) / MIB
    print(f"{name:20} {made[name]:5.1f} MiB of new tensors, {milliseconds(attend):6.1f} ms")
assert made["a loop over views"] < made["gather, then attend"]

# %% [markdown]
# All three give the same result. What the figures show:
#
# - **Gather, then attend** copies the keys and the values, 8 MiB each, as counted.
# - **Your blocks** are gathered too, and `share_heads`, the mask and the multiplications make
#   more tensors. In PyTorch the block form saves nothing. It costs more, in bytes and in time.
# - **The loop over views** makes hardly any tensors. Even so, on our machine it took longer
#   than the gather: Python calls a dozen functions for each block, and the calls cost more
#   than the copies.
#
# Which of the last two is slower changes from run to run on our machine, and may be different
# on yours.
#
# So what have you gained? The form of the computation. Each part needs one query and one
# block, in any order, and leaves three small things behind. A kernel written in this form
# reads each block where it lies, keeps m, l and the sum in registers, and copies nothing. You
# will write it in lesson 06, and then the short bar of the picture comes true.
#
# ## Hostile numbers
#
# Attention code that works on random numbers may still fail on a real model. Here are four
# cases, each with what careless code makes of it.
#
# **Scores far from zero.** A softmax does not change when the same number is added to all
# scores. But $e^{10000}$ is too large for a float, and $e^{-10000}$ is 0:


# %%
def careless(scores, values):
    exponentials = torch.exp(scores)
    return exponentials @ values / exponentials.sum()


one_query = torch.eye(1, 16)[None] * 4
four_keys = torch.zeros(1, 4, 1, 16)
four_values = torch.arange(4.0)[:, None].expand(4, 16)
for level in (0.0, 1e4, -1e4):
    four_keys[0, :, 0, 0] = level + torch.arange(4.0)
    theirs = careless(four_keys[0, :, 0, 0], four_values)
    mine, _, _ = block_attention(
        one_query, four_keys, four_values[None, :, None], torch.tensor([4])
    )
    print(f"scores near {level:6.0f}: careless {theirs[0]:.4f}, yours {mine[0, 0, 0]:.4f}")
    assert abs(mine[0, 0, 0] - 2.4927) < 1e-3

# %% [markdown]
# A maximum that starts at 0 fails only the third case: every score is far below it, and all
# weights are 0 again.
#
# **A request of one token.** Its only block holds the new token, so it has no past block. Its
# past is o = 0, m = -inf, l = 0, and must add nothing to the new token's own part. Careless
# code divides by that l, and gets 0 / 0:

# %%
nobody = torch.tensor([0])
past_o, past_m, past_l = combine_segments(all_o[:0], all_m[:0], all_l[:0], nobody)
print(f"the past: m = {past_m[0, 0]}, l = {past_l[0, 0]}, o = {past_o[0, 0, 0]}")
print(f"careless, divided by l: o = {(past_o / past_l[..., None])[0, 0, 0]}")

small = manager_in_disorder(layer, [1, 0])  # an empty pool: it gives out block 1, then 0
small.add_sequence(9, 0)
small.append_token(9)
alone = forward_decoding_loop(layer, new_tokens[:1], [9], small)
torch.testing.assert_close(alone[0], attend_last(new_tokens[:1]), atol=1e-5, rtol=1e-5)
print("decoded without a past: equal to 1e-5")

# %% [markdown]
# **A block in which every score is -inf.** Then the maximum is -inf as well, and -inf - (-inf)
# is NaN. PyTorch's own softmax gives NaN too. And one NaN part is enough to make the whole
# answer NaN:

# %%
masked = torch.tensor([NO_KEY, NO_KEY])
print("softmax of two masked scores:", torch.softmax(masked, dim=0).tolist())
two_blocks = (queries[:1].expand(2, -1, -1), k_cache[[5, 5]], v_cache[[5, 5]])
block_o, block_m, block_l = block_attention(*two_blocks, torch.tensor([4, 0]))
print(f"the empty block: m = {block_m[1, 0]}, l = {block_l[1, 0]}, o = {block_o[1, 0, 0]}")
both, _, _ = combine_result(block_o, block_m, block_l)
assert torch.allclose(both, block_o[0], atol=1e-5)
print("a full and an empty block together: the full one alone")

# %% [markdown]
# **NaN in a slot that is not used.** Memory that was allocated but not written may hold
# anything, and lesson 03 showed that a weight of 0 does not undo a NaN. This is what the
# second half of your mask is for:

# %%
assert k_cache[7, 2:].isnan().all() and not all_o.isnan().any()
part = all_o[2, 0, 0]
print(f"block 7 holds NaN after its second slot, and your part of it is {part:.2f}")

# %% [markdown]
# ## What you built
#
# A decode step over blocks in any order: a query for each block, a part from each, and an
# exact sum. It works for any number of requests, heads that share keys, partly filled blocks,
# and numbers that break careless code.
#
# ## Ask yourself
#
# <details><summary>What does <code>repeat_interleave</code> do in a decode step, and what
# would <code>repeat</code> do there?</summary>
#
# A request has one query and several blocks. `repeat_interleave` copies each query as often as
# its request has blocks, with the copies side by side. So row i of the queries belongs to row
# i of the blocks, and one batched multiplication serves all requests. `repeat` repeats the
# whole batch: the shapes can fit, but queries meet other requests' blocks.
# </details>
#
# <details><summary>Each block took a softmax with its own maximum. Why is the combined result
# exact, and not an approximation?</summary>
#
# $l$ is the sum of $e^{s - m}$ over the block's keys. Multiplied by $e^{m - m_\text{all}}$, it
# becomes the sum of $e^{s - m_\text{all}}$: the block's share of the sum in one softmax over
# all keys. In the same way $l \cdot o$ becomes the block's share of the weighted values. Both
# sums are complete, and the choice of the maximum cancels out. Only rounding differs.
# </details>
#
# <details><summary>Why is the new token's own attention a part by itself?</summary>
#
# A token also attends to itself, and in our step its key and value are not in the pool when
# the blocks are read. It is a block of one slot. You can just as well write first and count
# the new token's slot with the past. Then it must not be a part by itself, or it counts twice.
# Lesson 05 writes first, and so does the engine of lesson 08.
# </details>
#
# <details><summary>Which part of your decode step is FlashAttention's idea, and which is
# PagedAttention's?</summary>
#
# The triples (o, m, l) and their sum are FlashAttention's: scores are used tile by tile and
# never stored. Following the block table to keys that lie anywhere is PagedAttention's.
# </details>
#
# <details><summary>A colleague replaces gather-then-attend with your PyTorch code, “because it
# reads the blocks directly”. What do you answer?</summary>
#
# `k_cache[block_ids]` is a gather. The bytes are moved as before, and a few more. Only a
# kernel that follows the block table itself saves them.
# </details>
#
# <details><summary>One sequence has 100,000 tokens, and the GPU has 132 multiprocessors, which
# compute side by side. How does <code>combine_result</code> help?</summary>
#
# Each multiprocessor takes some of the blocks and makes one part from them. `combine_result`
# joins the parts exactly. Without it, one multiprocessor for each head would walk through the
# whole sequence, and all the others would wait. This is called split KV, or Flash-Decoding,
# and lesson 07 builds it.
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
#   4.1 for attention block by block, section 5.1 for the kernel.
# - Maxim Milakov and Natalia Gimelshein, *Online normalizer calculation for softmax*, 2018,
#   [arXiv:1805.02867](https://arxiv.org/abs/1805.02867): section 3.1 for why parts can be
#   combined in any order.
# - Tri Dao et al., *Flash-Decoding for long-context inference*, 2023, [the
#   post](https://crfm.stanford.edu/2023/10/12/flashdecoding.html): the same combination, over
#   splits.
# - PyTorch's documentation: `torch.repeat_interleave`, `Tensor.index_add_`,
#   `Tensor.scatter_reduce_`, and “Tensor Views”.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [05 · One batch of everything](05_batched_metadata.ipynb): one description for any
# mix of prompts and decodes.
