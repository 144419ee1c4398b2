# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09 · The prompt's kernel
#
# **You build** a kernel for prompts, again one idea at a time. It takes any batch: whole
# prompts, chunks of prompts and single new tokens, all in one launch. Before each step you
# predict what it will gain. Then you see what it did gain, and why the two differ.
#
# PICTURE opening
#
# **You need** lesson [07](07_fast_kernel.ipynb), and the metadata of lesson
# [05](05_batched_metadata.ipynb). Words that you meet again are in the
# [glossary](glossary.ipynb). You do not need a GPU: without one, you see recorded times. (To
# be measured on your machine, rungs 2 to 4 need a GPU of compute capability 8.0 or more, such
# as an A100 or an RTX 30. Rung 5 needs an H100 or H200.) **It takes** two to three hours.

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("09")

# %% [markdown]
# Somebody pastes a text of 8,192 tokens, and asks about it. The first word of the answer comes
# when all of these tokens are computed. How long is that? Take a model with the shapes of
# Qwen3-8B. Attention was timed on one card, for one layer. The products with the weights are
# counted, at the rate at which this card multiplies two large matrices:

# %%
from lessons_content.lesson_09.bench.prefill_runs import of_the_ladder, recorded

run = of_the_ladder(recorded())
multiplies = run.multiply_limit_teraflops
num_layers, num_weights = 36, 6.95e9  # in the layers
print(f"{run.card}, {run.date}: {multiplies:,.0f} TFLOP/s")
print(f"products with the weights: {2 * 8192 * num_weights / multiplies / 1e12:.2f} s")
for name in ("rung 0", "rung 5"):
    attention = num_layers * run.row("1 prompt of 8,192", name).milliseconds / 1000
    print(f"attention, {name}:         {attention:.2f} s")

# %% [markdown]
# Rung 0 takes each query of the prompt for a decode, and computes it as lesson 07 does. So
# the user waits for more than two seconds, nearly all of it for attention. Rung 5 is the last
# of this lesson.
#
# ## The idea
#
# **Predict.** A prompt has eight tokens, and each query reads the keys that it sees. How many
# reads are that? How many are they if four queries share each key that is read?

# %%
draw.reads(num_tokens=8, tile_tokens=4)

# %% [markdown]
# Each box is one read. Four queries are a **tile**, and a key that has come serves all of them:
# 12 reads instead of 36. That is the tiled loop of lesson 03. (Grey pairs are hidden: the query
# comes before the key. Rung 4 is about them.) And a tile of queries times a tile of keys is a
# product of two matrices, which is what tensor cores are made for. So there are fewer bytes to
# wait for, and arithmetic is faster. Which of the two counts?
#
# ## Another limit
#
# ### Exercise 9.1: the work of a batch
#
# Count the least work that the attention of a batch can do: its operations, and its bytes. A
# multiplication is one operation, and an addition is another. The scale and the softmax are
# small compared with the two products. Leave them out. Mind that each query head has its own
# queries, and that several of them share the keys and values of a KV head.

# %% exercise="9.1"
# INCLUDE paged_attention/prefill/tile_counts.py count_work


# %% check="9.1"
check("9.1", count_work)

# %% [markdown]
# The operations for each byte are called the **intensity** of a computation. Here it is for 32
# query heads, 8 KV heads of size 128 and numbers of 16 bits:

# %%
model = {"num_q_heads": 32, "num_kv_heads": 8, "head_size": 128, "bytes_per_number": 2}


def intensity(num_new, num_keys):
    """Counts the operations for each byte of a sequence with num_new queries."""
    operations, num_bytes = count_work([num_new], [num_keys], **model)
    return operations / num_bytes


for num_new, num_keys in ((1, 8192), (16, 8192), (512, 8192), (64, 64), (8192, 8192)):
    print(
        f"{num_new:5,} new tokens, {num_keys:5,} keys: "
        f"{intensity(num_new, num_keys):7,.1f} operations for a byte"
    )

# %% [markdown]
# How many operations does a card have time for while it reads a byte? Take an H200. By its
# data sheet it does 989 TFLOP/s with numbers of 16 bits on its tensor cores. The benchmark of
# lesson 07 has measured how fast it reads. Divide one by the other:

# %%
from lessons_content.lesson_07.bench import ladder as ladder_bench

DATA_SHEET = 989  # TFLOP/s
read_limit = ladder_bench.recorded()[0].read_limit_gb_per_s
balance = DATA_SHEET * 1e12 / (read_limit * 1e9)
print(f"{balance:.0f} operations while it reads a byte at {read_limit:,.0f} GB/s")
chunk = next(n for n in range(1, 8193) if intensity(n, 8192) > balance)
prompt = next(n for n in range(1, 8193) if intensity(n, n) > balance)
print(f"Arithmetic is the limit from {chunk} new tokens on, if there are 8,192 keys,")
print(f"and for a whole prompt from {prompt} tokens on.")
assert 1 < chunk < prompt

# %%
draw.limits()

# %% [markdown]
# Above the dashed line, memory no longer limits a kernel: the rate of arithmetic does. So this
# ladder climbs to another limit than that of lesson 07.
#
# Four query heads share each key. So a chunk of n tokens does about 4n operations for a byte
# of keys and values. (A long chunk does fewer, since its queries and outputs are bytes too.) A
# whole prompt does less, for two reasons. On average a query sees only half of it, and its
# queries and outputs are more bytes than its keys and values.
#
# A data sheet's rate is one that programs hardly reach. How fast the card multiplies two large
# matrices is a fairer limit, and the pictures below show it. With a GPU, measure it here too:

# %% tags=["nbval-ignore-output"]
from lessons_content.lesson_09.bench import prefill as prefill_bench
from lessons_lib.cuda.builds import choose_target

if choose_target(None) == "gpu":  # this machine has a GPU and nvcc
    here = prefill_bench.multiply_limit()
    print(f"here: {here:,.0f} TFLOP/s")
    assert here > 0
else:
    print("There is no GPU here that kernels can be built for. You see recorded times.")

# %% [markdown]
# ## A judge and a counter
#
# As in lesson 07, you look at each rung twice: at times that were measured, and at counts that
# are the same on every machine.
#
# - `show_times` has the times of three batches: a whole prompt; eight chunks of 512 tokens, each
#   at the end of 8,192 keys; and a mix of four chunks of 512 at 2,048 keys and 60 decodes at 259
#   to 3,925. The operations in TFLOP/s are those of exercise 9.1. What a kernel computes beyond
#   them does not count.
# - `judge` runs a rung on a small batch in checked mode, and compares it with lesson 05's
#   attention in float64. NaN is in every slot that holds no key. The rung is built from your
#   functions, and from the files in `kernels/prefill`.
# - `count` says what a rung does for two small batches. *Asked for* is how often the bytes of
#   keys and values are asked for, all threads together. A *meeting* is a tile of queries with a
#   tile of keys. It takes the same time, whether all of it is needed or not. The last column
#   says how much is: the pairs of a query and a key that it sees, out of all pairs.

# %%
from lessons_content.lesson_09.bench.prefill_judge import (
    Ladder,
    error_of,
    metadata_of,
    show_times,
    small_batch,
)
from lessons_lib.cuda.inline import show_lines

ladder = Ladder()

# %% [markdown]
# ## Rung 0: each query as a decode
#
# There is a kernel already that attends for one query: lesson 07's. Give each query of each
# head a thread block, and let it see the keys up to its own place. Little has to be added to
# rung 3 of lesson 07. A block has to find out which sequence its query belongs to. And it has
# to know how far the query sees. That is lesson 05's rule, `last_key`: query i of n sees the
# keys 0 … c − n + i. The struct also finds a key's row in the caches, through the block table:

# %%
show_lines("prefill/params.cuh", "struct Sequence", "};")

# %% [markdown]
# The kernel begins like this. Its loop over the keys, up to `num_keys`, is lesson 07's:

# %%
show_lines("prefill/0_each_query.cu", "int token = blockIdx.x", "int num_keys")
ladder.judge(0)

# %%
ladder.count(0)

# %% tags=["nbval-ignore-output"]
show_times(run, 0)

# %% [markdown]
# Rung 0 is right. In the small prompt it asks for each key and value 514 times: there are four
# heads, and on average 128.5 queries see a key. And on the card it reaches a hundredth of the
# data sheet's rate.
#
# ## Rung 1: tiles of queries, tiles of keys
#
# Now the idea: a tile of keys meets a tile of queries before the next one comes. The softmax
# goes on from tile to tile: `m`, `l` and `acc` of each query are rescaled when a larger score
# comes.
#
# A thread block takes 32 queries of a head. It copies 32 keys and 32 values into shared
# memory, and there all of its queries meet them. So a key is read from memory once for 32
# queries. This is the loop of its kernel:

# %%
show_lines("prefill/1_tiles.cu", "RowState state;", "params.scale);")

# %% [markdown]
# `update` is the online softmax, for a query that four neighbouring lanes have together. You
# write one for tensor cores in exercise 9.3.
#
# **Predict.** How often will the keys and values of a prompt of 256 tokens be asked for? And
# how many times as fast as rung 0 will it be?
#
# <details><summary>A way to work it out</summary>
#
# There are eight tiles of queries for each of four heads. This rung is simple: it lets each
# tile of queries meet all keys of its sequence, and hides those that a query does not see. So
# all keys are asked for 32 times, instead of 514 times. If the time depended on the bytes that
# are asked for, it would be 16 times as fast.
# </details>

# %%
ladder.judge(1)

# %%
ladder.count(0, 1)

# %% tags=["nbval-ignore-output"]
show_times(run, 1)

# %% [markdown]
# **Why they differ.** On the chunks, rung 1 is nearly twice as fast as rung 0. It gained nothing
# on the whole prompt, because there it computes twice as much as it needs: half of all pairs
# are hidden. On the mix it is even slower: half of the tiles have one query, where 32 fit.
#
# But why twice, and not 16 times? Look at how fast rung 0 got the bytes that it asked for:

# %%
pairs = count_work([8192], [8192], **model)[0] // (4 * 128)  # that see each other, by head
asked_for = pairs * 2 * 128 * 2  # a key and a value of 128 numbers for each
rate = asked_for / run.row("1 prompt of 8,192", "rung 0").milliseconds / 1e9
print(f"{rate:.1f} TB/s, and the memory gives {read_limit / 1e3:.1f}")
assert rate > 1.5 * read_limit / 1e3

# %% [markdown]
# So at least half of them came from a cache. Blocks that run at the same time ask for the same
# keys. Memory was not what rung 0 waited for, and with fewer bytes there is little to gain. Both
# rungs are busy with instructions: each number of a key is widened to 32 bits, multiplied and
# added, one at a time.
#
# So there are two things to do. The arithmetic has to get faster, by far. And a kernel should
# not compute what nobody needs. First the arithmetic.

# %%
draw.rungs(run, "1 prompt of 8,192", 1, multiplies)

# %% [markdown]
# ## Rung 2: tensor cores
#
# You know the instruction from lesson 07: `mma` multiplies a 16 × 16 matrix by a 16 × 8
# matrix, and the 32 lanes of a warp hold the three matrices in their registers. There it was
# used to keep up with the memory. Here everything depends on it.
#
# A block takes 128 queries of a head, and each warp has 32 of them, twice 16. Keys and values
# come 64 at a time, by `cp.async`, into one of two stages. While the tensor cores multiply one
# tile, the next is on its way. All that is as in rung 5 of lesson 07. So are the swizzled
# places in shared memory.
#
# ### Scores that stay where they are
#
# The rows of the product are queries now, and its columns are keys. This picture shows which
# lane has which of the scores of 16 rows and 8 keys. Each number is a lane, which has two
# scores, side by side. With r = lane / 4 and s = lane % 4, a lane has rows r and r + 8, and
# keys 2s and 2s + 1.

# %%
draw.lanes()

# %% [markdown]
# The scores of a row are in four neighbouring lanes, those with the same r. A tile of 64 keys
# is eight such products, so each of the four lanes has 16 scores of a row. The largest of them
# is soon found: 16 in the lane itself, then two shuffles.
#
# And there is a piece of luck in the pattern. The second product, weights times values, needs
# the weights as its left matrix. Look up in lesson 07 which numbers of that matrix a lane
# holds: rows r and r + 8, columns 2s, 2s + 1, 2s + 8 and 2s + 9. Those are just the numbers
# that two products of scores have left there. So the weights need not go anywhere. Scores and
# weights never leave the registers of their lane. (In lesson 07 keys were the rows, and the
# weights had to be turned.)
#
# The pattern has a price: a lane has to know which of its numbers is which. That is what the
# next two exercises are about. In both, `row_tiles` is the number of 16-row products that a
# warp has, one or two, and `key_tiles` the number of 8-key products.
#
# ### Exercise 9.2: hide what a row does not see
#
# At the causal edge a tile of keys has some that a row sees, and some that it does not. Hidden
# scores become `-INFINITY`. Then exp makes their weights 0. Find out for each of the lane's
# scores which row and which key it belongs to.
#
# `rows` knows the rows of the block's tile. `rows.last_key(row)` takes a row that is counted from
# the beginning of the block's tile, and returns a key that is counted from the beginning of the
# sequence. That key is the last one that the row still sees. Mind that a block has several
# warps, side by side in `threadIdx.x`, and that `first_row` already is the place of the warp's
# own rows. `last_key` is 0 or more, and may be less than `first_key`.

# %% exercise="9.2" language="cuda"
mask = r"""
// INCLUDE prefill/mask.cuh
"""

# %% check="9.2"
check("9.2", mask)

# %% [markdown]
# ### Exercise 9.3: the softmax of a tile
#
# A tile of keys has been multiplied and masked. Now the state of each row takes in the tile's
# scores, as `SoftmaxState` did in lesson 03: a new maximum, a factor for what was summed before, the
# weights, their sum. This time a lane has parts of several rows at once, and its three
# neighbours have the rest.
#
# - All four lanes of a row have to arrive at the same m. (`l` may stay in parts: each lane adds
#   up its own weights. They are put together once, at the very end.)
# - m is the largest score *before* scaling. The scale comes in only once, together with the
#   change from e to 2: the GPU has an instruction for 2 to the power of x, and none for e. So
#   exp(scale · (score − m)) is `power_of_2(factor * (score - m))`. (`power_of_2` is given, and
#   `power_of_2(-INFINITY)` is 0.)
# - A row may see none of a tile's keys. Then all of its scores are `-INFINITY`, and if no key
#   has come before, so is m. What is `-INFINITY` minus `-INFINITY`? Such a row's l and acc are 0.

# %%
ladder.texts["prefill/row_state.cuh"] = r"""
// INCLUDE prefill/row_state.cuh
"""

# %% exercise="9.3" language="cuda"
take_scores = r"""
// INCLUDE prefill/take_scores.cuh
"""

# %% check="9.3"
check("9.3", take_scores)

# %% [markdown]
# Around your functions there are two products. Here is the first, queries times keys, in steps
# of 16 dims. `load_matrices` is an instruction (`ldmatrix`): it fetches four matrices of 8 × 8
# numbers from shared memory into just the lanes that need them. For the CPU,
# `matrix_loads.cuh` spells out what it does.

# %%
ladder.texts["prefill/mask.cuh"] = mask
ladder.texts["prefill/take_scores.cuh"] = take_scores
show_lines("prefill/tile_products.cuh", "k < head_size / 16", "{b[2], b[3]}")

# %% [markdown]
# The loop that puts it all together is in `attend`. It is written once for rungs 2 to 4.
# `copier` looks up a tile's rows through the block table, one tile ahead, and copies them.
# `part` is what a warp has of the block's tile: its first row, and its first key. In rungs 2
# and 3, `seen_by_any` is the last key of the sequence, so nothing is left out yet:

# %%
show_lines("prefill/attend.cuh", "for (int tile = begin", "add_values(state")

# %% [markdown]
# **Predict.** According to their data sheet, the tensor cores of an H200 are 15 times as fast
# as its plain arithmetic (989 TFLOP/s and 67). How many times as fast as rung 1 will rung 2
# be? And which of the three batches will gain least?
#
# <details><summary>A way to work it out</summary>
#
# If both rungs came equally near to the limit of their instructions, it would be 15 times. On
# the chunks, where nearly all that it computes is needed, rung 1 had 17 of 67 TFLOP/s, a
# quarter.
#
# The mix gains least. A tile has room for 128 queries now, and a decode fills one row of it.
# </details>

# %%
ladder.judge(2)

# %%
ladder.count(1, 2)

# %% tags=["nbval-ignore-output"]
show_times(run, 2)

# %%
draw.rungs(run, "1 prompt of 8,192", 2, multiplies)

# %% [markdown]
# **Why they differ.** They hardly do. On the chunks rung 2 has 320 of 989 TFLOP/s, 32 % of its
# limit, where rung 1 had 26 % of its own. So the first two gained more than 15 times. The mix
# gained less. In the second small batch, which is like it, 8 % of each meeting is needed. (A
# meeting of 128 rows and 64 keys is eight times as large as one of rung 1.)
#
# ## Rung 3: query heads packed
#
# A decode has one query for each head: a row, in a tile that has room for 128. In lesson 07
# you let the query heads that share a KV head share a block. Do it here as well. They meet the
# same keys, so they can be in the same tile. Then a **row of a tile** is a query and one of its
# heads: the four heads of token 0, then the four heads of token 1, and so on. The products and
# the softmax need not know. Only three things depend on a row's token and head: its query, its
# last key, and where its output goes.
#
# ### Exercise 9.4: rows of a tile

# %% exercise="9.4"
# INCLUDE paged_attention/prefill/tile_counts.py pack_rows


# %% check="9.4"
check("9.4", pack_rows)

# %% [markdown]
# Here is a chunk of three tokens, with four query heads to a KV head and tiles of 16 rows.
# Packed, one tile is enough, where it took four:

# %%
apart = [pack_rows(3, 1, head, 16)[0] for head in range(4)]
(packed,) = pack_rows(3, 4, 0, 16)
draw.rows([*apart, packed], 16)

# %% [markdown]
# **Predict.** What will change for a prompt of 256 tokens? What will change for the mix?
#
# <details><summary>A way to work it out</summary>
#
# A prompt of 256 tokens was two tiles for each of four heads. Now it is 1,024 rows, which are
# eight tiles as well. Each of them meets the same number of tiles of keys as before. So nothing
# is gained: the number of meetings stays the same.
#
# The chunk of 48 tokens took a tile for each head, and so did each decode. With 48 · 4 = 192
# rows the chunk takes two tiles, and a decode takes one. So there are fewer than a third of the
# meetings.
# </details>

# %%
show_lines("prefill/3_packed_heads.cu", "constexpr int heads", "attend<")
ladder.judge(3)

# %%
ladder.count(2, 3)

# %% tags=["nbval-ignore-output"]
show_times(run, 3)

# %% [markdown]
# **Why they differ.** The prompt and the chunks had full tiles before. They take 4 % and 5 %
# longer now, which no count shows. The mix is 1.8 times as fast. Its decodes now take a quarter
# of their meetings, and its chunks as many as before.
#
# ## Rung 4: only what the causal edge needs
#
# Half of all pairs of a whole prompt are hidden. Which tiles meet for nothing? Watch rung 3 at
# work, with your functions in it. This is a prompt of 256 tokens. Its rows are in eight tiles,
# and each column of the picture is a block of its context. The numbers below are the ids of
# the blocks in the pool: this is the block table's row.

# %%
pool_ids = small_batch((256, 256)).rows[0].tolist()
all_read = ladder.blocks_read(3, (256, 256))
draw.tiles_met([all_read], 32, pool_ids)

# %% [markdown]
# Each tile has 32 tokens of four heads. Grey is what it reads, multiplies and hides again. The
# keys come in tiles of 64, four blocks at a time, so some grey has to stay.
#
# ### Exercise 9.5: the causal edge
#
# For a tile of queries there are three kinds of tiles of keys. Some come before all of its
# queries, and need no mask. Some lie on the causal edge. Some come after all of its queries,
# and are not needed. Say where the second kind begins and where the third.

# %% exercise="9.5"
# INCLUDE paged_attention/prefill/tile_counts.py causal_tiles


# %% check="9.5"
check("9.5", causal_tiles)

# %% [markdown]
# A prompt of 8,192 tokens with four heads to a KV head has 256 tiles of 32 tokens each:

# %%
kinds = [causal_tiles(32 * tile, 32 * tile + 31, 8192, 8192, 64) for tile in range(256)]
meetings = sum(end for _, end in kinds)
with_mask = sum(end - num_whole for num_whole, end in kinds)
print(
    f"{256 * 128:,} meetings without your function, {meetings:,} with it, "
    f"and {with_mask} of these need a mask"
)
assert with_mask == 256

# %% [markdown]
# ### The order of work
#
# Now the blocks of a prompt no longer take equally long. The first tile of queries meets one
# tile of keys, and the last one 128. In practice a GPU starts the blocks of a launch in their
# order, and whenever one has ended the next one begins. If the longest come last, a part of the
# card waits for them. What a block does is called an **item** here: a tile of rows, and the
# tiles of keys that it meets.
#
# ### Exercise 9.6: the order of work

# %% exercise="9.6"
# INCLUDE paged_attention/prefill/tile_counts.py run_items


# %% check="9.6"
check("9.6", run_items)

# %% [markdown]
# Here are five prompts of different lengths, on a small card that has room for eight items:

# %%
times = []
for length in (64, 130, 400, 640, 900):
    for first in range(0, length, 32):
        last = min(first + 31, length - 1)
        times.append(causal_tiles(first, last, length, length, 64)[1])
orders = {
    "In the order of the batch": run_items(times, 8, longest_first=False),
    "The longest first": run_items(times, 8, longest_first=True),
}
draw.order(orders, times, 8)

# %% [markdown]
# With the longest first, the short ones fill the gaps at the end.
#
# ### One long row
#
# Order does not help if there is too little to order. Take a chunk of 16 tokens at 32,768
# keys. That is one tile of queries for each of eight KV heads: eight blocks, on a card that
# runs two for each of its 132 multiprocessors. So an item that is longer than an equal share of
# all work is cut, as in rung 6 of lesson 07. Each part leaves its (o, m, l), and a second launch
# combines them. (`few_rows` is explained below.)

# %%
import numpy as np

from paged_attention.prefill.tile_sizes import TileSizes
from paged_attention.prefill.plan import plan_needed_tiles

sizes = TileSizes(rows=128, keys=64, few_rows=16)
heads_in_a_tile, num_kv_heads, num_blocks = 4, 8, 2 * 132  # that the card runs at once
for q_len, kv_len in ((16, 32768), (8192, 8192)):
    lens = np.array([q_len]), np.array([kv_len])
    plan = plan_needed_tiles(*lens, heads_in_a_tile, sizes, num_kv_heads, num_blocks)
    longest = (plan.items[:, 3] - plan.items[:, 2]).max()
    print(
        f"{q_len:5,} queries, {kv_len:6,} keys: {len(plan.items):3} items for each KV head, "
        f"the longest {longest} tiles of keys, {plan.num_parts} parts to combine"
    )

# %% [markdown]
# The whole prompt has enough tiles. Nothing of it is cut, so there is no second launch.
#
# One more thing helps decodes. In a full tile each warp has 32 rows, and goes over all 64 keys.
# If a tile has 16 rows or fewer (four tokens of four heads), three of the four warps would have
# nothing to do. So there the warps share the rows, and each takes 16 of the keys. At the end of
# the item they merge their states.
#
# The judge runs this rung twice. Its small batch has no item that is long enough to be cut. So
# in the second run no item may have more than two tiles of keys.
#
# **Predict.** How many times as fast will each of the three batches be?
#
# <details><summary>A way to work it out</summary>
#
# The whole prompt has half of the meetings, so it may be twice as fast. A chunk of 512 at
# 8,192 keys needs nearly all of its meetings: of the last 512 keys half are hidden, and that
# is 3 % of all. In the mix the warps share the decodes' work, and the order helps, since a
# chunk's item takes much longer than a decode's. That is harder to count.
# </details>

# %%
show_lines("prefill/4_causal_edge.cu", "int first_head = blockIdx", "else compute")
ladder.judge(4)
ladder.judge(4, most_tiles=2)

# %%
ladder.count(3, 4)

# %% tags=["nbval-ignore-output"]
show_times(run, 4)

# %%
draw.tiles_met([all_read, ladder.blocks_read(4, (256, 256))], 32, pool_ids)

# %% [markdown]
# **Why they differ.** The prompt gained a little more than twice. Besides the meetings, it saves
# masks: they are computed only where they are needed, in one meeting of 64. The chunks had 3 %
# to save, and gained 7 %. So masks probably take their time, too. The mix gained 1.4 times. How
# much of that comes from the order, and how much from the warps that share their rows, these
# figures do not say.
#
# In the second small batch, most of a meeting is still not needed. For a decode that cannot be
# helped: four rows cannot fill a tile. That is why the engine of lesson 08 gives single new
# tokens to the kernel of lesson 07.

# %%
draw.rungs(run, "1 prompt of 8,192", 4, multiplies)

# %% [markdown]
# ## Rung 5: what only Hopper has
#
# Rung 4 reaches two fifths of the rate at which the card multiplies. What else do its threads
# do? They copy tiles: for every 16 bytes a thread computes two addresses. They fetch the
# matrices of each product from shared memory into registers. And they compute the softmax.
# While a warp does one of these things, its products wait.
#
# NVIDIA's generation of cards with the name Hopper, the H100 and the H200, can take two of these
# jobs from the threads.
#
# **It copies boxes.** The launcher describes each cache once, as a tensor of four dimensions, in
# a **tensor map**. After that a thread gives one instruction, and a unit of the card copies a
# *box*: here all rows of one block and KV head, 64 dims each. This unit computes the addresses,
# and even the swizzled places in shared memory. When the bytes have come, it tells a **barrier**
# in shared memory, which counts them.
#
# **Four warps multiply together.** With `wgmma` the tensor cores read keys and values from shared
# memory by themselves. And the instruction does not wait. The threads go on, and ask later
# whether the product is there.
#
# So the work can be divided. One warp does nothing but copy. Each of its lanes looks up one block
# of a tile in the block table, and has its box copied:

# %%
show_lines("prefill/box_copier.cuh", "stages.wait_until_empty(n)", "kv_head, panel, barrier")

# %% [markdown]
# There are three stages now, or two where heads have 256 numbers. `wait_until_empty` waits until
# all warps that compute have released a stage. (In the last tile of a sequence there are slots without a key. A box brings
# what they hold, too. So there the warp waits for its boxes, and writes zeros over these rows.
# Only then does it say that the tile is there.)
#
# Two groups of four warps compute, with 64 rows each. This is their loop:

# %%
show_lines("prefill/attend_by_groups.cuh", "for (++n; n < end", "pack_weights")

# %% [markdown]
# A group starts two products: its queries with the keys of this tile, and the weights of the
# last tile with their values. Then it waits for the first one only (`wait<1>`: all are ready
# but one). While the second one runs, the threads compute the softmax. This is what the loop
# of `attend` could not do:

# %%
draw.side_by_side()

# %% [markdown]
# The two groups do not wait for each other, so their products and softmaxes mix as they come.
# One more thing is new. There are only as many blocks as the card has multiprocessors, and each
# takes one item after the other. So the keys of the next item are on their way before the last
# one is done.
#
# **Predict.** How many times as fast as rung 4 can this be? Besides the products, count the
# softmax. There is one power of 2 for each score. By Shah et al., an H100 computes 3.9 · 10¹² of
# those in a second, and 989 · 10¹² operations of products.
#
# <details><summary>A way to work it out</summary>
#
# A score costs 4 · 128 = 512 operations in the two products, which take 0.52 picoseconds. Its
# power of 2 takes 0.26. If the two took turns, the products would run for two thirds of the time
# at most: 660 TFLOP/s by the data sheet's rate. Side by side, they could run all the time. Rung
# 4 has 340, which is half of that already. So expect less than three times.
# </details>

# %%
show_lines("prefill/5_hopper.cu", "if (threadIdx.x / group_threads", "compute_all(")
ladder.judge(5)
ladder.judge(5, most_tiles=2)

# %% [markdown]
# Without a Hopper card, the judge runs the same text. For each of the new instructions there is a
# branch that does the same on a CPU, as for `ldmatrix`. One thing is simpler there: all warps
# wait for each other at each stage. So the judge sees what is computed and what is copied where.
# It does not see whether a stage is released too early. (On a GPU, `compute-sanitizer` and the
# tests look at that.)

# %%
ladder.count(4, 5)

# %% tags=["nbval-ignore-output"]
show_times(run, 5)

# %%
draw.rungs(run, "1 prompt of 8,192", 5, multiplies)

# %% [markdown]
# **Why they differ.** The whole prompt and the chunks gained 1.8 times, and run at 72 to 77 % of
# the rate at which the card multiplies large matrices. That is less than the count allows. Some
# of the rest is at the causal edge: rung 5 takes 128 keys at a time, so in the small prompt less
# of a meeting is needed. In the long one that hardly matters. The mix gained 1.3 times. Its
# decodes wait for the memory, as they did before.
#
# ### What the compiler made of it
#
# The loop says which work may run at the same time. The compiler decides whether it does. Our
# first rung 5 had this loop, with one difference: it waited for the next keys at the loop's
# start. Its results were right. But `cuobjdump -sass` shows the instructions in the order in
# which a warp starts them, and there we read this (CUDA 13.0):
#
# | our first loop | the loop above |
# |---|---|
# | 8 products with keys, 8 with values | 8 products with keys, 8 with values |
# | wait for the scores | wait for the scores |
# | **wait for the second product** | 66 powers of 2, and the rest of the softmax |
# | 66 powers of 2, and the rest of the softmax | wait for the next keys |
# | 64 sums rescaled, weights packed | **wait for the second product** |
# | | 64 sums rescaled, if a maximum grew; weights packed |
#
# The softmax does not need the second product, and that product does not need the softmax. So
# the compiler was free to wait first, and nothing ran beside the product. The wait for the next
# keys is a loop of its own, because a thread asks a barrier until it says yes. The compiler moved
# no arithmetic across that loop. So the cure was to move one line.
#
# These are the steps from there, each with those before it. The variants ran in turns on one
# H200, and the last line on another. The numbers say how many times as fast as our first rung 5
# each was:
#
# | | prompt of 8,192 | 2,048 at 32,768 | prompt of 30,000 |
# |---|---|---|---|
# | the line moved | 1.02 | 1.05 | 1.03 |
# | sums rescaled only if a maximum of the warp grew | 1.03 | 1.08 | 1.06 |
# | three stages; addresses of a product computed once | 1.07 | 1.10 | 1.10 |
#
# <details><summary>What else was tried</summary>
#
# - The two groups take turns, so that one multiplies while the other weighs, as in FA3. On long
#   contexts that was 2 to 4 % slower, and on short prompts 1 to 2 % faster.
# - A lane keeps its queries in registers, and the products read them there: 6 to 9 % slower.
# - The queries of the next item are on their way early. That is worth about as much as a third
#   stage, and there is no room for both.
# - The last items are cut, so that all multiprocessors work until the end: 1 to 2 % slower. The
#   card has a limit of 700 watts. We think that idle multiprocessors let the others run faster,
#   but we did not measure the clock.
# - All tiles of one head come before those of the next, so that its keys stay in the L2 cache.
#   A chunk of 2,048 took 2 % longer, and a prompt of 8,192 took 1.6 times as long.
# - The scores of the next tile start before the values of this one are done. The compiler does
#   not follow products across the end of a loop. It warns (C7514), and waits after each one.
# - Steps of 4,096 to 32,768 tokens, for an engine with 32 long prompts: all within 1 %.
# </details>
#
# ## What a chunk costs
#
# An engine cuts long prompts into chunks, so that decodes need not wait. What does it pay for
# that? Count a prompt of 8,192 tokens, whole and in 16 chunks of 512:

# %%
whole = count_work([8192], [8192], **model)
chunks = [count_work([512], [end], **model) for end in range(512, 8193, 512)]
in_chunks = [sum(column) for column in zip(*chunks)]
print(f"operations: {whole[0]:.3g} whole, {in_chunks[0]:.3g} in chunks")
print(f"bytes:      {whole[1]:.3g} whole, {in_chunks[1]:.3g} in chunks")
assert whole[0] == in_chunks[0]

# %% [markdown]
# The arithmetic is the same. The keys of earlier chunks are read again, but arithmetic is the
# limit, so these bytes cost little. By the record, eight such chunks in one batch run at nearly
# the rate of the whole prompt. (One alone is 128 blocks, on a card with room for 264. So a
# chunk should have company.) And what do decodes pay when chunks are in their batch? Here is
# the mix again:

# %%
from lessons_content.lesson_09.bench.prefill_workloads import WORKLOADS

mixed = WORKLOADS[-1]
decodes = [lens for lens in mixed.lens if lens[0] == 1]
of_decodes, of_all = (count_work(*zip(*lens), **model) for lens in (decodes, mixed.lens))
for what, part, whole in zip(("operations", "bytes"), of_decodes, of_all):
    print(f"{len(decodes)} decodes of the mix: {part / whole:.0%} of its {what}")
reading = of_all[1] / read_limit / 1e6
computing = of_all[0] / run.row("1 prompt of 8,192", "rung 5").teraflops / 1e9
print(
    f"to read the mix {reading:.2f} ms, to compute it at the prompt's rate {computing:.2f} ms"
)
print(f"recorded: {run.row(mixed.name, 'rung 5').milliseconds:.2f} ms")

# %% [markdown]
# The chunks need the arithmetic and the decodes need the memory. In one launch the two could
# overlap. Here they hardly do: the mix takes about as long as reading and computing together.
#
# ## The whole ladder, and others
#
# Next to our last two rungs there are FlashInfer's two kernels for the same cache, FA2 and FA3, and
# PyTorch's FlashAttention-2, which had its keys gathered beforehand. Gathering was not timed.

# %%
from lessons_content.lesson_09.bench.prefill_runs import of_the_peers

peers = of_the_peers(recorded())
draw.batches(peers, [workload.name for workload in WORKLOADS])

# %%
print(f"{peers.card}, {peers.date}, PyTorch {peers.torch}, FlashInfer {peers.flashinfer}")
for name in peers.workloads:
    rung_4, rung_5, fa2, fa3 = (
        peers.row(name, backend).milliseconds
        for backend in ("rung 4", "rung 5", "FlashInfer FA2", "FlashInfer FA3")
    )
    print(
        f"{name:34}  FA2 takes {fa2 / rung_4:.2f} times the time of rung 4, "
        f"FA3 {fa3 / rung_5:.2f} times that of rung 5"
    )
    assert min(fa2, fa3) / rung_5 > 0.9

# %% [markdown]
# The first six are the batches of the picture, and the others have different shapes. FA2 is made
# for cards from the A100 on, as our rung 4 is. On the prompts and chunks of the picture, the two
# are within 8 % of each other. With decodes in the batch, ours is ahead of both.
#
# FA3 is made for Hopper, as rung 5 is. It has the same ideas: Shah et al. describe the warp that
# copies, and the softmax beside the product of the tile before. FlashInfer uses it over a paged
# cache. In this run, FA3 is ahead by up to 5 % on long contexts. This is the run that made us read
# the machine code: our rung 5 was still the first one. With the loop of today, FA3 takes 1.02 to
# 1.40 times as long on the five batches without decodes, and 1.03 times on a prompt of 30,000
# tokens. (Two H200s, 1 December 2026; the prompt of 30,000 on one of them.)
#
# ## Any batch
#
# `attn_paged_prefill` is the ladder as one call: rung 5 on a Hopper card, and rung 4 elsewhere.
# It takes lesson 05's metadata and any mix.
# Here are three scenarios of lesson 05: a prompt, a new token, and a mix of both. Next to them
# is what was recorded for lesson 05's one call of FlashInfer on the same lengths:

# %%
import math

from lessons_content.lesson_08.bench import path_b_runs
from paged_attention.prefill import attn_paged_prefill

by_flashinfer = path_b_runs.recorded()[0]
print(f"FlashInfer {by_flashinfer.flashinfer}: {by_flashinfer.card}, {by_flashinfer.date}")
for row in by_flashinfer.batches:
    if (row.dtype, row.head_size) == ("float16", 128) and row.sequences:
        lens = [(new, cached + new) for cached, new in row.sequences]
        batch = small_batch(*lens)
        out = attn_paged_prefill(batch.q, batch.k_cache, batch.v_cache, metadata_of(batch))
        error = error_of(out, batch)
        assert error < 0.004
        ours, theirs = (math.ceil(1000 * error) / 1000 for error in (error, row.error))
        print(f"{row.name}: below {ours} from float64, FlashInfer below {theirs}")

# %% [markdown]
# The engine of lesson 08 uses it, too. On its path *fast*, all chunks of a step are one launch
# of this kernel. Single new tokens go to lesson 07's. And on a Hopper card a whole prompt of
# 16,384 tokens or more goes to cuDNN if it is alone, which is a little faster then.
# (`is_one_long_prompt` in `paged_attention/engine/paths.py` says what was measured.)
#
# ## On your card
#
# The whole ladder, with a table and a plot, is one command in a clone of the course:
# `python -m tools.bench prefill`. With `--recorded` it prints the runs that come with the
# course.
#
# ## What you built
#
# - The count of operations and bytes, which says what limits a batch before anything runs.
# - The two functions between the products: the mask, and the softmax of a tile whose rows are
#   spread over four lanes.
# - A plan for any batch: it packs rows, leaves out the tiles that are not needed, and starts
#   with the longest.
#
# ## Ask yourself
#
# <details><summary>A prompt has 100 tokens. Is memory or arithmetic its limit?</summary>
#
# By the count, memory: it does about 40 operations for a byte. But to read its 2 MB takes half
# a microsecond, and to start a kernel takes longer than that. In a batch of 64 such prompts the
# answer is memory, too: with the batch, operations and bytes grow alike.
# </details>
#
# <details><summary>Why does a block take 128 rows and not 32 or 1,024?</summary>
#
# Each key that comes into shared memory is used once for each row. With more rows, fewer bytes
# move for the same arithmetic. But a row's queries and its sums have to be kept somewhere, and
# registers and shared memory are limited. With 128 rows of 128 numbers the sums alone take
# half of the registers that two blocks on a multiprocessor can have.
# </details>
#
# <details><summary>l is kept in four parts until the end. Why not m?</summary>
#
# The parts of l are added, and they can be added at any time. But weights depend on m. If the
# four lanes had different maxima, their weights, and their parts of `acc`, would count from
# different places. A product adds up over all keys of the tile, across lanes, so they have to
# agree before it.
# </details>
#
# <details><summary>Could a tile of queries hold tokens of two sequences?</summary>
#
# It could, but nothing would be gained. Their keys are different, so a tile of keys would be
# of use to some of the rows only. Heads of one KV head share their keys, so they pack well.
# </details>
#
# <details><summary>Longest first: is that the best order there is?</summary>
#
# No. To find the best is a hard problem in general. But the simple rule is never far off: it
# takes at most a third longer than the best order, whatever the items are (Graham, 1969).
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Tri Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work
#   Partitioning*, 2023, [arXiv:2307.08691](https://arxiv.org/abs/2307.08691): rows to warps,
#   and the causal edge.
# - Jay Shah et al., *FlashAttention-3: Fast and Accurate Attention with Asynchrony and
#   Low-precision*, 2024, [arXiv:2407.08608](https://arxiv.org/abs/2407.08608): what Hopper's
#   instructions give.
# - Zihao Ye et al., *FlashInfer: Efficient and Customizable Attention Engine for LLM Inference
#   Serving*, 2025, [arXiv:2501.01005](https://arxiv.org/abs/2501.01005): tiles over a paged
#   cache, and heads packed into rows.
# - Samuel Williams et al., *Roofline: An Insightful Visual Performance Model for Multicore
#   Architectures*, Communications of the ACM, 2009: operations for a byte.
# - Ronald Graham, *Bounds on Multiprocessing Timing Anomalies*, SIAM Journal on Applied
#   Mathematics, 1969: longest first.
# - NVIDIA, *H200 Tensor Core GPU*, data sheet: 989 TFLOPS in BFLOAT16 without sparsity, 67 in
#   FP32.
# - NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): `ldmatrix`,
#   `mma` for m16n8k16, `cp.async`, `wgmma`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [10 · Keep the GPU busy](10_keep_the_gpu_busy.ipynb), in which the engine no longer
# makes the kernels wait.
