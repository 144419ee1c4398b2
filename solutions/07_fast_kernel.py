# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 07 · A fast kernel
#
# **You build** the kernel of lesson 06 again, one idea at a time, until on large batches it
# comes close to what the memory can deliver. Before each step you predict what it will gain.
# Then you see what it did gain, and why the two differ.
#
# PICTURE opening
#
# **You need** lesson [06](06_cuda_kernel.ipynb), and the online softmax of lessons
# [03](03_prefill.ipynb) and [04](04_decode.ipynb). Words that you meet again are in the
# [glossary](glossary.ipynb). You do not need a GPU: without one, you see recorded times. (To
# be measured on your machine, rungs 4 to 7 and 9 need a GPU of compute capability 8.0 or more,
# such as an A100 or an RTX 30, and rung 8 needs 8.9, such as an RTX 40 or an H100.) **It takes**
# two to three hours.

# %%
from lessons_lib import build_cuda, check, hint, open_lesson, solution

draw = open_lesson("07")

# %% [markdown]
# The dashed line is how fast one graphics card can read its memory. The bar is how fast a
# first kernel reads keys and values on it. The rest of the lesson is about the white space
# between them.
#
# Each kernel in this lesson is a **rung** of a ladder, and has one more idea than the one
# below it. All of them compute the same numbers and pass the same tests. This notebook goes
# through all of them. The files are in `kernels/ladder`. (“Block” means two things here, as in
# lesson 06. What runs, waits or has threads is a thread block; what holds tokens is a block of
# the pool.)
#
# ## Recorded, and counted
#
# A time says how fast a kernel is on one card. It does not say why. So you look at each rung
# twice:
#
# - **Measured.** The times below were recorded by `python -m tools.bench ladder` on the card
#   that each line names. If this machine has a GPU, its own times are shown below them; if
#   not, you cannot repeat them here.
# - **Counted.** How many bytes a kernel asks for and how often threads wait for each other is
#   the same on every machine. Checked mode counts it for you, here and now.
#
# The next cell takes the record, and finds out whether there is a GPU here:

# %% tags=["nbval-ignore-output"]
import torch

from lessons_content.lesson_07.bench import ladder as ladder_bench
from lessons_lib.cuda.builds import choose_target

# 64 sequences of 1,024 tokens; 32 query heads, 8 KV heads of size 128, float16
WORKLOAD = "gqa_b64_c1024"
run = ladder_bench.recorded()[0]
library_target = choose_target(None)  # "gpu" where this machine has a GPU and nvcc
no_gpu = "There is no GPU here that kernels can be built for."
print(
    f"Recorded on one {run.card} on {run.date}.",
    "This machine has a GPU too." if library_target == "gpu" else no_gpu,
)

# %% [markdown]
# These two functions say how fast a rung is:


# %%
def measured(number):
    """Prints the recorded time of a rung and, if there is a GPU, the time here."""
    runs = [run]
    if library_target == "gpu":
        only = [f"rung {number}"]
        runs.append(ladder_bench.measure([WORKLOAD], only=only, quick=True))
    for one in runs:
        row = one.row(WORKLOAD, f"rung {number}")
        if row.milliseconds is None:
            print(f"{one.card}, {one.date}: {row.reason}")
            continue
        assert 0 < row.share_of_limit < 1.2
        print(
            f"{one.card}, {one.date}: {row.milliseconds:.3f} ms, {row.gb_per_s:,.0f} GB/s, "
            f"{row.share_of_limit:.1%} of the limit"
        )


def times_faster(number):
    """Computes a rung's speedup over the rung below it, by the record."""
    before, now = (run.milliseconds(WORKLOAD, f"rung {n}") for n in (number - 1, number))
    return before / now


# %% [markdown]
# ## The limit
#
# What is the least time that a decode step can take? It has to read every key and every value
# of every sequence. Nothing can be left out, because each of them has a part in the result.
# Divide that number of bytes by the rate at which a card reads, and you have a time that no
# kernel can beat.
#
# ### Exercise 7.1: the bytes that must be read
#
# Everything else is small compared with the keys and values: the queries, the outputs, the
# block table. Leave it out. Count each byte once, even if a kernel reads it twice: you want
# the fewest bytes possible, for one layer.

# %% exercise="7.1"
# INCLUDE paged_attention/ladder/kv_bytes.py kv_bytes

# %% check="7.1"
check("7.1", kv_bytes)

# %% [markdown]
# For the workload of this lesson:

# %%
must_read = kv_bytes([1024] * 64, num_kv_heads=8, head_size=128, bytes_per_number=2)
print(f"{must_read:,} bytes, {must_read / 1e6:.0f} MB")
assert must_read == 268_435_456

# %% [markdown]
# And the rate? A data sheet names one that no program reaches. It is better to measure it: a
# sum over 4 GiB of numbers reads each byte once and does almost nothing else.

# %% tags=["nbval-ignore-output"]
limits = {f"{run.card} (recorded)": run.read_limit_gb_per_s}
if library_target == "gpu":
    limits[f"{torch.cuda.get_device_name()} (here)"] = ladder_bench.read_limit()
for card, limit in limits.items():
    least = must_read / limit / 1e3
    print(f"{card}: {limit:,.0f} GB/s, so the step takes {least:.0f} microseconds or more")
assert min(limits.values()) > 0

# %% [markdown]
# Is it really the reading, and not the arithmetic? Each number of a key is multiplied and
# added once for each query head that shares it: here that is four heads and eight operations
# for two bytes. That makes four operations for a byte. According to its data sheet, an H200
# does 67 TFLOPS in plain float arithmetic and reads 4.8 TB/s: it has time for 14 operations
# while it reads a byte. So a decode step waits for memory, and a good kernel is one that keeps
# the memory busy all the time.
#
# (In prefill, hundreds of queries share each key, and it is the other way round. That takes
# another kernel, with other rungs: lesson [09](09_prompt_kernel.ipynb).)
#
# ## A judge and a counter
#
# Two tools serve all rungs. The judge runs a rung on a small batch in checked mode, and
# compares it with float64. Blocks are shuffled. Slots without a token hold numbers too, so a
# kernel that reads them is wrong.
#
# The rung is built from the code that you see in this notebook, including yours. Each kernel
# of the ladder is made for one model: the head size, the block size and the number formats are
# constants in its code, written again for each model. (`Number` is the format of q and out,
# `KvNumber` that of the caches.) So the compiler knows how often a loop runs, and can keep
# small arrays in registers.

# %%
from lessons_content.lesson_07.bench.backends import make_batch, reference
from lessons_content.lesson_07.bench.workloads import WORKLOADS, Workload
from lessons_lib.cuda.inline import read_kernel
from paged_attention.ladder import PagedDecode, Shape, rung_texts

ladder_texts = {}  # files of kernels/ that are in this notebook: their names and texts


def small_batch(*context_lens, num_q_heads=8, num_kv_heads=2):
    """Makes sequences of these lengths, with heads of size 128, in float16."""
    workload = Workload("small", "", num_q_heads, num_kv_heads, 128, context_lens)
    return make_batch(workload, 1, "cpu")


def ready(number, batch, **plan):
    """Prepares a rung in checked mode for a small batch.

    Files that are not in `ladder_texts` come from kernels/.
    plan: options for the plan of the batch, for rungs 6 and 7.
    """
    num_q_heads, num_kv_heads = batch.workload.num_q_heads, batch.workload.num_kv_heads
    files = rung_texts(number, Shape(torch.float16, 128, num_q_heads // num_kv_heads, 16))
    files |= {name: text for name, text in ladder_texts.items() if name in files}
    library = build_cuda(*files.values(), names=tuple(files), target="checked")
    heads = {"num_q_heads": num_q_heads, "num_kv_heads": num_kv_heads}
    sizes = {"head_size": 128, "block_size": 16, "dtype": torch.float16}
    return PagedDecode(number, batch.context_lens, **heads, **sizes, library=library, **plan)


def judge(number):
    """Runs a rung on four sequences, one of them empty, and compares it with float64."""
    batch = small_batch(40, 0, 300, 17)
    out = ready(number, batch)(batch.q, *batch.caches[0], batch.block_table)
    assert (out - reference(batch)).abs().max() < 0.002  # false for a NaN
    print(f"rung {number}: no fault found, and less than 0.002 from float64")


# %% [markdown]
# The counter prints what a rung does for two sequences of 256 tokens, with 8 query heads and 2
# KV heads:


# %%
def count(*numbers):
    batch = small_batch(256, 256)
    least = kv_bytes([256, 256], 2, 128, 2)
    print(f"{least:,} bytes of keys and values")
    print("rung  asked for  brought  loads of warps  lookups  barriers of a block")
    for number in numbers:
        decode = ready(number, batch)
        with decode.library.count("k_cache", "v_cache") as counts:
            decode(batch.q, *batch.caches[0], batch.block_table)
        with decode.library.count("block_table") as table:
            decode(batch.q, *batch.caches[0], batch.block_table)
        # a block has a query head; from rung 4 on, a KV head
        blocks = 2 * (8 if number < 4 else 2)
        print(
            f"{number:4} {counts.bytes_read / least:6.1f} times "
            f"{counts.sectors * 32 / least:3.0f} times {counts.load_instructions:15,} "
            f"{table.bytes_read // 4:8,} {counts.barriers // blocks:20}"
        )


# %% [markdown]
# *Asked for* counts the bytes that all threads ask for, compared with the bytes that have to
# be read. But a GPU's memory answers in **sectors** of 32 bytes: if a warp asks for 2 bytes,
# it gets 32. So *brought* counts the sectors that the loads of all warps touch. *Lookups* are
# reads of the block table.
#
# ## Rung 0: one thread's softmax
#
# It is easy to write a first kernel for paged attention like this: all threads do the scores,
# then one of them does the softmax, then all threads do the values. The functions
# `paged_scores` and `paged_values` come from lesson 06; `launch` and `scores_of` do what its
# launcher did.

# %%
ladder_texts["ladder/0_serial_softmax.cu"] = r"""
// INCLUDE ladder/0_serial_softmax.cu
"""
judge(0)

# %% tags=["nbval-ignore-output"]
measured(0)

# %% [markdown]
# That is where the ladder begins. How much of this time is the fault of that one thread? Count
# how often each thread touches a score, for one head and a context of 128 tokens:


# %% tags=["nbval-ignore-output"]
from collections import Counter


def touches(number):
    """Counts how often each thread reads or writes a score.

    The context has 128 tokens, and there is one query head.
    """
    batch = small_batch(128, num_q_heads=4, num_kv_heads=1)
    decode = ready(number, batch)
    decode.scores = torch.zeros(1, 4, 128)  # in a workspace, where they can be watched
    with decode.library.trace("scores") as accesses:
        decode(batch.q, *batch.caches[0], batch.block_table)
    return Counter(access.thread[0] for access in accesses if access.block == (0, 0, 0))


of_thread = touches(0)
print(*(f"thread {thread}: {of_thread[thread]:,}" for thread in (0, 1, 127)), sep="    ")
assert of_thread[0] > 4 * of_thread[1]

# %% [markdown]
# Every thread has 129 touches for the two passes: it writes one score, and in the second pass
# it reads all 128 weights. The rest of thread 0's touches are the softmax: five for each token
# (the code has six; the compiler keeps the weight that it has just written). Meanwhile 127
# threads wait at a barrier.
#
# ## Rung 1: a parallel softmax
#
# The next rung is lesson 06's kernel as you left it: each thread takes its own scores, and
# shuffles combine the maxima and the sums.
#
# **Predict.** The softmax gets 128 threads instead of one. How many times as fast will a step
# be? Name a number before you go on. For a guess: with 1,024 tokens, each thread reads 1,024
# numbers of keys in pass 1, and 1,024 numbers of values in pass 2.
#
# <details><summary>A way to work it out</summary>
#
# In rung 0, thread 0 reads 2,048 numbers of keys and values, touches 1,024 weights, and has
# about 5,000 more touches for the softmax, one after the other. In rung 1 those 5,000
# become 40. If every touch took equally long, rung 1 would be about two and a half times as
# fast.
#
# But touches do not take equally long: a score is in shared memory, a key is not. And a
# multiprocessor has several of these thread blocks at a time, at most 16. While one of them
# waits for its thread 0, the others read. So the gain will be smaller.
# </details>

# %%
ladder_texts["ladder/1_parallel_softmax.cu"] = r"""
// INCLUDE ladder/1_parallel_softmax.cu
"""
judge(1)

# %% tags=["nbval-ignore-output"]
of_thread = touches(1)
print(*(f"thread {thread}: {of_thread[thread]:,}" for thread in (0, 1, 127)), sep="    ")
assert max(of_thread.values()) - min(of_thread.values()) < 100

# %% tags=["nbval-ignore-output"]
measured(1)
print(f"By the record, {times_faster(1):.2f} times as fast as rung 0.")

# %% [markdown]
# **Why they differ.** Speeding up one part can save at most that part's share of the time.
# Compare your number with the one above. While one thread block waited, others on the same
# multiprocessor had something to do. A GPU hides waiting in this way, so a count of what one
# thread does is only an upper bound for what can be gained.
#
# Now look at what both rungs ask of the memory:

# %%
count(0, 1)

# %% [markdown]
# The keys and values are asked for four times, because there are four query heads to a KV
# head, and each asks separately. More on this in rung 4. But what is brought is more than
# thirty times the bytes that have to be read. That is the next thing to fix.
#
# ## Rung 2: wide loads
#
# In pass 1, lane 0 of a warp reads the first number of token 0's key while lane 1 reads the
# first number of token 1's. Two bytes here, two bytes there, and each time 32 are brought.
#
# Let neighbouring lanes read neighbouring bytes instead. And let each of them read 16, the
# most that one load brings. (On the newest cards it may be 32.) A key of 128 numbers in 16
# bits has 256 bytes. So 16 lanes read it together, and a warp reads two keys in one load.


# %%
def first_load(number):
    """Finds where the first load of each lane of a warp begins in k_cache.

    Returns (token, byte of its key) for each lane.
    """
    batch = small_batch(32, num_q_heads=4, num_kv_heads=1)
    decode = ready(number, batch)
    with decode.library.trace("k_cache") as accesses:
        decode(batch.q, *batch.caches[0], batch.block_table)
    first = {
        access.thread[0]: access.index
        for access in reversed(accesses)
        if access.block == (0, 0, 0)
    }
    blocks = batch.block_table[0].tolist()
    return [
        (16 * blocks.index(block) + offset, 2 * element)
        for thread, (block, offset, _, element) in first.items()
        if thread < 32
    ]


# in rung 2, 16 lanes share a token: where each of them begins
wide = [(lane // 16, lane % 16 * 16) for lane in range(32)]
draw.first_loads(first_load(1), wide)

# %% [markdown]
# Now a key belongs to a **group** of lanes. Each lane has a part of it, and the same part of
# the query. It can do its part of the dot product alone. Then the group puts the parts
# together with shuffles, as a warp did in lesson 06. The number of lanes in a group depends on
# the model, so the code gives it a name, `group_lanes`. It is always a power of two, up to 32.
# (`num_threads`, the number of threads in a block, is 128 in rungs 0 to 3.)

# %%
ladder_texts["ladder/wide_row.cuh"] = r"""
// INCLUDE ladder/wide_row.cuh
"""

# %% [markdown]
# ### Exercise 7.2: wide loads
#
# Write two functions. `load_row` loads the lane's part of a row. A `uint4` is 16 bytes, and
# `reinterpret_cast<const uint4*>(pointer)` treats what a pointer points to as a row of these.
# `wide_score` makes a score of it, which every lane of the group gets. All 32 lanes of a warp
# call it together, even those of groups that have run out of tokens. So the shuffles can name
# all 32 lanes in their mask. But no lane may look beyond its group: distances stay below
# `group_lanes`, or the shuffle gets that number as a fourth argument, the width. Each check
# builds your code, which takes a few seconds.
#
# To take a part to pieces, use `number(part, i)` and `place(i)` from the cell above;
# `place(i)` counts from the beginning of the row. If `lane_loads` is 2, the group reads the
# first half of the row together, and then the second.

# %% exercise="7.2" language="cuda"
wide_score = r"""
// INCLUDE ladder/wide_score.cuh
"""

# %% check="7.2"
check("7.2", wide_score)

# %% [markdown]
# One more idea goes with it. Memory takes hundreds of clock cycles to answer, whatever you ask
# for. A lane that asks for a key, waits, uses it and asks for the next spends most of its time
# waiting. So a group asks for four rows, and only then uses the first. One line in the code is
# new: `#pragma unroll` asks the compiler to write a loop out, so that an array indexed by it
# can stay in registers.

# %%
ladder_texts["ladder/wide_score.cuh"] = wide_score
ladder_texts["ladder/next_rows.cuh"] = r"""
// INCLUDE ladder/next_rows.cuh
"""

# %% [markdown]
# Pass 2 works the same way. A lane no longer has one element of the head for all tokens, but
# eight elements for some of the tokens. At the end the groups add up what they have:

# %%
ladder_texts["ladder/wide_values.cuh"] = r"""
// INCLUDE ladder/wide_values.cuh
"""

# %% [markdown]
# **Predict.** In the table above, rungs 0 and 1 take 32,768 loads of warps, and bring 34 times
# the bytes of keys and values. What will the two numbers be now? And how many times as fast
# will a step be?
#
# <details><summary>A way to work it out</summary>
#
# A load of a warp now asks for 512 bytes instead of 64. So it takes an eighth of the loads:
# 4,096. Nothing is brought that is not asked for, and everything is still asked for four
# times. That is four times the bytes, instead of 34. If the time depended only on what is
# brought, the step would be eight and a half times as fast.
# </details>

# %% [markdown]
# One word in the rung's code is new: `__launch_bounds__(n)` promises that a block has at most
# n threads, so that each may have more registers.

# %%
ladder_texts["ladder/2_wide_loads.cu"] = r"""
// INCLUDE ladder/2_wide_loads.cu
"""
judge(2)

# %%
count(1, 2)

# %% tags=["nbval-ignore-output"]
measured(2)
print(f"By the record, {times_faster(2):.2f} times as fast as rung 1.")

# %% [markdown]
# **Why they differ.** The count is of what warps ask for, but there are caches between them
# and the memory. In rung 1 a lane read two bytes of a sector, and in its next step the next
# two. If the sector was still in the cache, it was not brought again. So part of the 34 times
# never reached the memory, and there was less to gain than it seems. On the other hand, wide
# loads also save work that this column does not show: there are an eighth of the load
# instructions and a quarter of the lookups, and a lane waits once for four rows.

# %%
draw.rungs(run, WORKLOAD, last=2)

# %% [markdown]
# ## Rung 3: one pass
#
# The kernel still goes over the context twice, and writes down every score in between. At the
# end of each pass all threads wait for each other: a softmax needs all the scores before the
# first weight is known.
#
# Does it? In lesson 03 you built a softmax that does not: it keeps a state of three things,
# `m`, `l` and `acc`, and takes in keys and values as they come. When a larger score comes, the
# sums so far are rescaled. Here each group of lanes has its own state.
#
# ### Exercise 7.3: the online softmax, token by token
#
# Write `take_in`, which takes in the four tokens that a group has read: their scores, and the
# lane's parts of their values. Each lane has `lane_numbers` numbers of `acc`, and `number`
# takes a row apart, as in 7.2. All lanes of the group arrive at the same `m` and `l` without a
# shuffle, because they have the same scores.
#
# Near the end of a context there may be fewer than four tokens, or none at all. And a group
# may not have had any token before. A score of `-INFINITY` means that there is no token; such
# scores come last. As long as no token has come, `m` stays `-INFINITY`: the merging relies on
# this. `__expf` is a fast `expf`.

# %% exercise="7.3" language="cuda"
softmax_state = r"""
// INCLUDE ladder/softmax_state.cuh
"""

# %% check="7.3"
check("7.3", softmax_state)

# %% [markdown]
# At the end there are as many states as groups, and they are merged into one. That is
# `SoftmaxState.merge` of lesson 03, and also what `combine_result` of lesson 04 does. They may
# be merged in any order.

# %%
ladder_texts["ladder/softmax_state.cuh"] = softmax_state
ladder_texts["ladder/merge_states.cuh"] = r"""
// INCLUDE ladder/merge_states.cuh
"""

# %% [markdown]
# **Predict.** Which columns of the table will change, and which will not? Will the step be
# twice as fast, now that there is one pass instead of two?
#
# <details><summary>A way to work it out</summary>
#
# With one pass or two, each key and each value is read as often as before, so what is asked
# for and what is brought stay the same. A token's block is looked up once, not once for its
# key and once for its value. That is half the lookups. The barriers of the softmax go; one is
# left, for the merging. And a group has eight rows on their way, four keys and four values,
# instead of four.
#
# So no bytes are saved. What is saved is waiting: between the passes, and for the memory. That
# is worth something, but hardly a factor of two.
# </details>

# %%
ladder_texts["ladder/3_one_pass.cu"] = r"""
// INCLUDE ladder/3_one_pass.cu
"""
judge(3)

# %%
count(2, 3)

# %% tags=["nbval-ignore-output"]
measured(3)
print(f"By the record, {times_faster(3):.2f} times as fast as rung 2.")

# %% [markdown]
# **Why they differ.** Waiting is hard to predict from a count. Some of it was already hidden,
# because other warps of the multiprocessor had something to do. How much depends on how many
# warps there are. And one pass loses some of that again. A lane now keeps a state and eight
# rows in registers, so fewer thread blocks may fit on a multiprocessor at the same time.
#
# The rung has another advantage that no time shows. There is no row of scores any more, so no
# context is too long for it, and no workspace is needed.

# %%
draw.rungs(run, WORKLOAD, last=3)

# %% [markdown]
# One number in the table has not changed since rung 0: everything is asked for four times.
# Each of the four query heads that share a KV head has its own thread block, and each of these
# blocks reads all the keys and values of that head.

# %% [markdown]
# ## Rung 4: query heads packed, on tensor cores
#
# So let one thread block take all query heads that share a KV head.
#
# **Predict.** What will the first two columns of the table say? And how many times as fast
# will a step be?
#
# <details><summary>A way to work it out</summary>
#
# Each byte is asked for once, and brought once. Nothing more can be left out. That is a
# quarter of what it was, so a step could be four times as fast at best. It may be less,
# because the four reads were not alike. The first one went to memory. If the other three came
# soon after it, they found the bytes in the cache that all multiprocessors share, and cost no
# memory time.
# </details>

# %%
count(3, 4)
judge(4)

# %% [markdown]
# The counts are as good as they can be. Now for how it is done.
#
# ### One instruction, 2,048 multiplications
#
# For one query and one key, the work was a dot product. For the queries of four heads and the
# keys of 16 tokens, it is a matrix product: (16 tokens × head_size) times (head_size ×
# queries). A GPU has special units for matrix products, the **tensor cores**. One instruction,
# `mma`, multiplies a 16 × 16 matrix by a 16 × 8 matrix and adds the result to a 16 × 8 matrix.
# The 32 lanes of a warp execute it together. None of them has a whole matrix: each lane holds
# some numbers of each, in its registers, two 16-bit numbers to a register. This picture shows
# which. The numbers in it are lanes. Each of its cells stands for two numbers of the matrix,
# side by side in a and c, one above the other in b. (The numbers of c have 32 bits and a
# register each. There a colour, with its small digit next to the 9, stands for two registers.)

# %%
draw.lanes()

# %% [markdown]
# Write r for lane / 4 and s for lane % 4; lane 9 has r = 2 and s = 1. Then the pattern is
# always the same: rows r and r + 8, columns 2s, 2s + 1, 2s + 8 and 2s + 9. (In `b` the pattern
# is turned: column r. And `c`, which has 8 columns, has only 2s and 2s + 1.)
#
# A tile of the kernel is 16 tokens. Eight queries fit next to it. When four heads share a KV
# head, the other four queries are zeros, and half of the multiplications are wasted. That is
# no loss: as the count at the beginning showed, memory limits a decode.
#
# ### Any order of dims
#
# There is a difficulty. The picture gives lane 9 the dims 2 and 3 of a key: four bytes. Then
# the dims 10 and 11: four bytes somewhere else. But you know from rung 2 that a load should
# take 16 bytes. Here is the way out. A dot product adds up over the dims, and a sum may be
# taken in any order:

# %%
generator = torch.Generator().manual_seed(4)
keys = torch.randn(16, 64, generator=generator)
queries = torch.randn(64, 8, generator=generator)
order = torch.randperm(64, generator=generator)
assert torch.allclose(keys @ queries, keys[:, order] @ queries[order], atol=1e-5)
print("the same scores, with the dims of keys and queries shuffled alike")

# %% [markdown]
# So the instruction need not know which dims it gets, as long as keys and queries come in the
# same order. A lane loads the 16 bytes that are convenient, eight dims in a row, and hands
# them to two products, as if they were the columns 2s, 2s + 1, 2s + 8 and 2s + 9 of each. The
# lane's part of the queries is loaded in the same way.
#
# ### From scores to output
#
# Here is what a lane does with a tile, from top to bottom. It is the function `update` in
# `tile.cuh`.
#
# | step | what a lane has then | how |
# |---|---|---|
# | scores, by a product | those of tokens r and r + 8, for queries 2s and 2s + 1 | it has loaded keys of two tokens |
# | largest score | of all 16 tokens, for its two queries | shuffles among the lanes with the same s |
# | weights | `m`, `l` and the weights, as in rung 3 | by itself |
# | weights, turned | those of tokens 2s, 2s + 1, 2s + 8, 2s + 9, for query r | `transpose`, twice: two shuffles each |
# | output, by a product | some dims, for queries 2s and 2s + 1 | it has loaded values of four tokens |
#
# The second product is (dims × 16 tokens) times (16 tokens × queries), so a lane needs the
# weights in a different pattern from the one that the first product leaves. That is what the
# turning is for: rows and columns change places.
#
# Only the maxima and the weights are passed around, 16 weights for each query. Keys and
# values, of which there are many, go from memory to the lane that multiplies them, and to no
# other.
#
# What is lost? The weights are rounded to 16 bits for the second product. They are at most 1,
# and the sums are kept in 32 bits, so the error is about as large as that of rounding the
# output.
#
# ### Without a tensor core
#
# A CPU does not have this instruction. So `matrix.cuh` contains the product twice: as one
# instruction for nvcc (an `asm` for each of the two types), and as a function for the CPU that
# spells the same product out. There each lane asks the others for the rows and columns that it
# needs:

# %%
from lessons_lib.cuda.inline import show_lines

show_lines("ladder/matrix.cuh", "// On the CPU: the same product", "#endif")

# %% [markdown]
# With that, the kernel of rung 4 runs here as well, and in checked mode every access is
# watched. Its loop is short, since `update` does the work. `CachedChunks` uses the block table
# to find the two keys and four values of a tile that the lane holds. The four warps of a block
# take the tiles in turn, each with its own state, as the groups of lanes did in rung 3.
# At the end the states are merged.

# %%
show_lines("ladder/4_tensor_cores.cu", "for (int first = warp * tile_size", "merge_warps")

# %% tags=["nbval-ignore-output"]
measured(4)
print(f"By the record, {times_faster(4):.2f} times as fast as rung 3.")

# %%
draw.rungs(run, WORKLOAD, last=4)

# %% [markdown]
# **Why they differ.** Rung 3 asked four times, but not all of it went to memory: part was
# still in the cache that all multiprocessors share. At its speed, memory cannot have delivered
# the bytes more than two and a half times. So there was less to gain than the count says. What
# remains to be gained now is not in the bytes. It is in the time when no warp asks for any.
#
# ## Rung 5: copies in stages
#
# In rung 4 a warp loads a tile into its registers, waits, multiplies, and loads the next one.
#
# **Predict.** While a warp multiplies, how many of its bytes are on their way from memory?
# What would keep the memory busy all the time?
#
# <details><summary>A way to work it out</summary>
#
# None, or few: a load is issued when its registers are free, and they are in use. Other warps
# may be waiting for their loads at that time. That is what keeps the memory busy, by chance.
# To be sure, each warp would have to ask for the next tiles long before it needs them. Then
# the tiles need a place to wait in.
# </details>
#
# How many bytes have to be on their way? Think of a motorway. If 4 cars pass each second, and
# each is on the road for 60 seconds, there are 240 cars on it. For memory:
#
# *bytes on their way = bytes per second × seconds that each is on its way.*
#
# (This is known as Little's law.) Suppose that busy memory takes a microsecond from question
# to answer. That is a round number, which nobody has measured here. The recorded card has 132
# multiprocessors:

# %%
under_way = run.read_limit_gb_per_s * 1e9 * 1e-6
each = under_way / 132
print(f"{under_way / 1e6:.1f} MB on their way, {each / 1e3:.0f} KB for each multiprocessor")

# %% [markdown]
# A tile of rung 4 has 16 keys and 16 values of 128 numbers, 8 KiB. So by this reckoning four
# tiles have to be on their way for each multiprocessor, at every moment, even while other
# tiles are being multiplied. Below that, memory has idle moments, however fast everything else
# is.
#
# Shared memory is the place to wait in: 228 KiB for each multiprocessor of an H100 or H200, of
# which a block may have 227. And there is an instruction for it, `cp.async`: it copies 16
# bytes from memory into shared memory, and the thread goes on at once. No register is needed.
# `async_copy.cuh` wraps it in three calls:
#
# | call | what it does |
# |---|---|
# | `copies.copy(to, from, there)` | asks for a copy of 16 bytes, or of zeros if not `there` |
# | `copies.close_group()` | what this thread has asked for since the last call is now a group; it may be empty |
# | `copies.wait<n>()` | waits until all of this thread's groups have arrived, except for the latest n |
#
# A warp has several **stages**, each with room for a tile. While one is used, the others are
# on their way:

# %%
draw.stages()

# %% [markdown]
# ### Exercise 7.4: tiles on their way
#
# Here is a small problem with the same loop: a warp adds up the columns of a matrix. Its tiles
# are 8 rows of 32 floats; lane i has column i. This much is given:

# %%
staged_tile = r"""
// INCLUDE ladder/staged_tile.cuh
"""

# %% [markdown]
# Write the loop. Each turn waits for its tile, adds it up, and starts the copies of a later
# tile into the stage that has become free. As many tiles as possible should be on their way
# while one is added up: with four stages, the other three. Each thread has one `copies` of its
# own. The n of `wait<n>()` has to be a constant. Remember that
#
# - a lane waits for its own copies, and then reads what other lanes have copied;
# - a stage is filled again while other lanes may not have read it yet;
# - `wait` counts groups, not tiles. Near the end no tile is loaded any more: what must still
#   be closed then?
#
# (`__syncwarp()` is for the 32 lanes of a warp what `__syncthreads()` is for a block.)
#
# The check makes each copy as late as is allowed, and then, in a second run, as early. (A GPU
# does something in between, and not always the same thing.)

# %% exercise="7.4" language="cuda"
staged_sum = r"""
// INCLUDE ladder/staged_sum.cuh
"""

# %% check="7.4"
check("7.4", staged_sum)

# %% [markdown]
# Now run it, with two warps that have different numbers of tiles:

# %%
add_up_tiles = r"""
__global__ void add_up_kernel(const float* tiles, const int* first_tiles, float* out) {
  __shared__ Stage stages[2][num_stages];
  int warp = threadIdx.x / 32;
  int first = first_tiles[warp], num_tiles = first_tiles[warp + 1] - first;
  out[threadIdx.x] = staged_sum(stages[warp], tiles + first * tile_floats, num_tiles);
}

extern "C" int add_up_tiles(const float* tiles, const int* first_tiles, float* out,
                            cudaStream_t stream) {
  add_up_kernel<<<1, 64, 0, stream>>>(tiles, first_tiles, out);
  return cudaGetLastError();
}
"""
tiles, sums = torch.arange(12 * 256.0).reshape(12, 8, 32), torch.empty(2, 32)
texts = read_kernel("ladder/async_copy.cuh"), staged_tile, staged_sum, add_up_tiles
first_tiles = torch.tensor([0, 9, 12], dtype=torch.int32)
build_cuda(*texts, target="checked").add_up_tiles(tiles, first_tiles, sums)
assert torch.equal(sums, torch.stack([tiles[:9].sum((0, 1)), tiles[9:].sum((0, 1))]))
print("nine tiles and three: both sums are right")

# %% [markdown]
# Rung 5 has your loop. `update` takes the place of `add_up`:

# %%
show_lines("ladder/attend_staged.cuh", "auto load = [&]", "merge_warps")
judge(5)

# %% [markdown]
# ### Two lanes, one bank
#
# Shared memory has a rule of its own. It consists of 32 **banks**: the first four bytes belong
# to bank 0, the next four to bank 1, and after bank 31 it begins again. Each bank gives four
# bytes at a time. With 16 bytes for each lane, eight lanes are served in one round, if no two
# of them want the same banks; if they do, it takes more rounds.
#
# A tile arrives row by row: eight neighbouring lanes write eight neighbouring chunks of one
# token. It is used in the pattern of the matrix product. For the values, lanes 0 to 3 want the
# same chunk of four different tokens, 0, 2, 4 and 6. If the tile were stored as it comes,
# these would be two rows apart. A row is a multiple of 128 bytes, so they would always be in
# the same banks. So the chunks of each token change places: the new place is an *exclusive or*
# of the chunk's number with a number made from the token's. That is called a **swizzle**. It
# costs one instruction. Here it is for the values (`value_place` in `tile_copy.cuh`), when
# eight lanes read. Each of the four tokens has a group of eight places:

# %%
r, s = [lane // 4 for lane in range(8)], [lane % 4 for lane in range(8)]
as_it_comes = [8 * token + chunk for chunk, token in zip(r, s)]
swizzled = [8 * token + (chunk ^ 2 * token) for chunk, token in zip(r, s)]
draw.banks(as_it_comes, swizzled)

# %% tags=["nbval-ignore-output"]
measured(5)
print(f"By the record, {times_faster(5):.2f} times as fast as rung 4.")

# %% [markdown]
# **Why they differ.** On this batch nothing is gained. There are 512 blocks, about four for
# each multiprocessor. In rung 4 several run there at once: while the warps of one wait or
# multiply, those of another ask. So the memory was already busy, by chance. The stages take
# room in shared memory: a block of rung 5 takes nearly half of it, so only two fit, and they
# come in two waves. Now look at batches where chance does not help: contexts of very different
# lengths, and one long sequence for the whole card:


# %%
def compare(workload, number):
    """Prints what the record says about a rung and the one before it."""
    before, now = (run.milliseconds(workload, f"rung {n}") for n in (number - 1, number))
    share = run.row(workload, f"rung {number}").share_of_limit
    gain = f"rung {number} is {before / now:.2f} times as fast as rung {number - 1}"
    print(f"{workload}: {gain}, {share:.0%} of the limit")


compare("gqa_b256_ragged", 5)
compare("gqa_b1_c32768", 5)

# %% [markdown]
# With one sequence there is a block for each KV head and no more. No other block on its
# multiprocessor asks for anything, so it matters what is on its way and what is not.

# %% [markdown]
# ## Rung 6: split KV
#
# Now another batch: one sequence of 32,768 tokens, with 8 KV heads.
#
# **Predict.** Rung 5 starts a block for each sequence and KV head. What share of a card with
# 132 multiprocessors does that keep busy? How long would the sequence have to be to keep more
# of it busy?
#
# <details><summary>A way to work it out</summary>
#
# Eight blocks on eight multiprocessors: 6 %. No length helps. A longer sequence makes the
# eight blocks work longer, and the other 124 multiprocessors wait longer.
# </details>
#
# So the context is split: several blocks share a sequence and a KV head, and each takes a
# stretch of the tokens. Their results are parts of one attention, (o, m, l), as in lesson 04.
# The parts go to memory, and a second kernel combines them. The parts of four splits are four
# times as many numbers as the output, but still few compared with the keys and values.
#
# This is what a block of the first kernel does. It differs from rung 5 in where it begins and
# ends, and in what it leaves. `finish` divides by `l` and passes each lane's results to the
# function in the braces, eight dims at a time:

# %%
show_lines("ladder/6_split_kv.cu", "int seq = blockIdx.x", "  });")

# %% [markdown]
# ### Exercise 7.5: combine the parts in a kernel
#
# The second kernel is `combine_result` of lesson 04. A block of threads has one row: one query
# head of one sequence. Each thread has one number of its output. `gridDim` says how many
# sequences and query heads there are. `from_float<Number>(x)` converts a float to the output's
# format. A split may have no token at all, if a context has fewer tiles than there are splits,
# or none. Then m is -INFINITY. (`__expf(x)` is e to the x, a little less exact than `expf` and
# much faster. For -INFINITY it is 0, but -INFINITY minus -INFINITY is not a number.)

# %% exercise="7.5" language="cuda"
combine_parts = r"""
// INCLUDE ladder/combine_parts.cuh
"""

# %% check="7.5"
check("7.5", combine_parts)

# %% [markdown]
# Here is rung 6 with your kernel in it, and every context cut into three:

# %%
ladder_texts["ladder/combine_parts.cuh"] = combine_parts


def judge_planned(number, **plan):
    """Does the same as judge(), with options for the plan of a batch."""
    batch = small_batch(40, 0, 300, 17)
    decode = ready(number, batch, **plan)
    out = decode(batch.q, *batch.caches[0], batch.block_table)
    assert (out - reference(batch)).abs().max() < 0.002
    print(f"rung {number}, {plan}: no fault found, and less than 0.002 from float64")


judge_planned(6, num_splits=3)

# %% [markdown]
# ### How many splits?
#
# More splits keep more multiprocessors busy. But each split has a cost of its own: it loads
# the queries, waits for its first tiles, and writes its part. And blocks run in **waves**.
# Suppose that each multiprocessor takes one block at a time. (In fact two blocks of rungs 5
# and 6 fit; the simple rule is good enough.) With 132 multiprocessors, 140 blocks take as long
# as 264: the first 132 run, then the other 8, while 124 multiprocessors have nothing to do.
# Here is the same with 8 multiprocessors and 5 rows of 24 tiles:

# %%
draw.waves()

# %% [markdown]
# Two splits take longer than one: the second wave is nearly empty, but it takes as long as the
# first. Three splits take less.
#
# ### Exercise 7.6: how many splits
#
# Find the number of splits that takes the least time. A row is cut as evenly as possible:
# splits differ by at most one tile. A block with t tiles takes t + SPLIT_COST units. Count
# each wave as if it had one of the longest blocks.

# %% exercise="7.6"
# INCLUDE paged_attention/ladder/splits.py SPLIT_COST


# INCLUDE paged_attention/ladder/splits.py choose_num_splits

# %% check="7.6"
check("7.6", choose_num_splits)

# %% [markdown]
# For the batches measured in this lesson:

# %%
for workload in WORKLOADS:
    tiles = -(-max(workload.context_lens) // 16)
    rows = len(workload.context_lens) * workload.num_kv_heads
    splits = choose_num_splits(rows, tiles, 132)
    print(f"{workload.title:52} {rows:4} rows of up to {tiles:4} tiles, splits: {splits}")

# %%
compare("gqa_b1_c32768", 6)
draw.rungs(run, "gqa_b1_c32768", last=6)

# %% [markdown]
# **Why they differ.** There were 8 blocks for 132 multiprocessors. Now there are 128, and yet
# it is not sixteen times as fast. The limit is nearer than that. And the shorter a step is,
# the more the fixed costs count: the start of two kernels, the first tiles that every block
# waits for, and the parts.

# %%
compare(WORKLOAD, 6)

# %% [markdown]
# On the earlier batch, one split is best. Then there is nothing to combine. Even so, the one
# part is written to memory in 32 bits, and a second kernel starts to copy it to its place. So
# a rung is not better than the one below it on every batch.

# %% [markdown]
# ## Rung 7: equal shares, one launch
#
# Sequences of a real batch differ in length. Here are six rows, one of them long, on eight
# multiprocessors:

# %%
lengths = [12, 60, 9, 21, 14, 28]
draw.equal_shares(lengths)

# %% [markdown]
# **Predict.** Rung 6 cuts every row into the same number of splits. With two splits for each
# of these rows, how long would the longest block be, and how long would a block be if all were
# equal?
#
# <details><summary>A way to work it out</summary>
#
# The longest block would have half of the longest row, 30 tiles. All rows together have 144
# tiles; eight equal shares have 18. With more splits the longest block gets shorter, but the
# short rows fall into pieces that cost more than they are worth.
# </details>
#
# Up to now the batch decided how the work was cut, and the card distributed the pieces. Rung 7
# begins at the other end. It starts no more blocks than the card can run at once, and cuts the
# work to fit: all tiles of all rows are laid end to end, and the line is cut into equal
# shares. There is one wave, and all its blocks end at about the same time. A block's loads
# also continue from one piece to the next: while it finishes a row, the tiles of the next one
# are on their way.
#
# ### Exercise 7.7: equal shares
#
# A share may begin and end within a row. A block may have pieces of several rows, or none at
# all if there are fewer tiles than blocks. Cut the line as the picture above shows, at exactly
# the borders that the docstring names.

# %% exercise="7.7"
# INCLUDE paged_attention/ladder/splits.py cut_evenly

# %% check="7.7"
check("7.7", cut_evenly)

# %%
for block, pieces in enumerate(cut_evenly(lengths, 8)):
    stretches = (f"tiles {first} to {end - 1} of row {row}" for row, first, end in pieces)
    print(f"block {block}:", ", ".join(stretches))

# %% [markdown]
# ### Which block combines the parts?
#
# As before, a row that is cut has two or more parts. Rung 6 starts a second kernel for them,
# and that takes time. On the earlier batch, rung 6 took 4 microseconds longer than rung 5, and
# a whole step of the smallest batch takes 13. Here the blocks do it themselves, without
# waiting for each other. For each cut row there is a counter in memory. A block that has
# stored its part adds 1. The block that finds that all others have done so is the last, and it
# combines all the parts:

# %%
show_lines("ladder/balanced.cuh", "// Puts the block's states among the parts", "return true")

# %% [markdown]
# Three things make it safe. Each thread that has stored some of the part calls
# `__threadfence()`: the other multiprocessors see what it has written before they see anything
# that it does later. The `__syncthreads()` after it makes thread 0 count only when all threads
# have done so. And `atomicAdd` adds and returns the old number in one step, so exactly one
# block is the last. The second `__threadfence()` is for the reader: the parts are read after
# the count, not before. At the end the last block sets the counter back to zero, for the next
# launch.
#
# ### Heads side by side
#
# This kernel has one more idea. In the cache the KV heads of a token are side by side. A block
# that has one head reads 256 bytes of each token, and skips the other heads' 1,792. So a row
# of rung 7 may be a sequence and several of its KV heads: with `heads_at_once = 8`, eight
# warps read eight heads, 2 KiB in a row. That is one long stretch instead of eight pieces. And
# a row with eight heads is eight times as much work, so fewer rows have to be cut. With few
# sequences it is the other way round: a row has one head, and all warps of the block share its
# tiles.

# %%
for heads_at_once in (1, 2):
    judge_planned(7, heads_at_once=heads_at_once)

# %%
compare("gqa_b256_ragged", 7)
before, now = (run.milliseconds("gqa_b256_ragged", f"rung {number}") for number in (5, 7))
print(f"and {before / now:.2f} times as fast as rung 5")
draw.rungs(run, "gqa_b256_ragged", last=7)

# %% [markdown]
# **Why they differ.** Most of the gain comes from dropping the second launch: rung 5, which
# also has one launch and cuts nothing, is as fast as rung 7 here. So equal shares gain next to
# nothing: with 2,048 rows for 132 multiprocessors, the card had already divided the work well
# by itself. Equal shares are for batches between the extremes: few rows, or very unequal ones.
#
# Equal shares need not take equal times: how soon memory answers a block depends on what all
# others ask for at that moment. Counting tiles will not show what is still missing from the
# limit.
#
# Measuring changed the plan in three more ways. (The plan is in `paged_attention/ladder/work_plan.py`.)
# If all rows are about equally long, the cuts are moved to the ends of rows, even if a few
# multiprocessors then have nothing to do: what is not cut need not be combined. And if rows
# have to be cut anywhere, there are blocks for only four of five multiprocessors. On this card
# that was faster than blocks for all of them.
#
# The third way is younger than the recorded run. If rows are many and unequal, none of them is
# cut. Each gets a block of its own, the longest rows first. The card gives the next block to
# the multiprocessor that is free first, as it did with rung 5. So rung 7 lets the card divide
# the work after all, where the card does that better.

# %% [markdown]
# ## Rung 8: half the bytes
#
# The kernel is near the limit: bytes over bandwidth. The bandwidth is fixed by the card. That
# leaves the bytes.
#
# **Predict.** With keys and values in 8 bits, how much faster can it be? And what does it do
# to the result?
#
# <details><summary>A way to work it out</summary>
#
# At most twice as fast, since it reads half. It gains less than that, because whatever does
# not depend on the bytes stays, such as the start of a launch. The result changes in about the
# second digit: a number of 8 bits has few digits to offer.
# </details>
#
# The format is called e4m3: one bit for the sign, four for an exponent, three for the digits
# after the leading one. Between 1 and 2 there are eight numbers, between 2 and 4 eight more,
# and the largest is 448. So a number is rounded by at most one part in 16, unless it is very
# small. To use the range well, the keys of each KV head are divided by a **scale** before they
# are rounded, and the values by another. In the kernel the scales cost next to nothing: the
# scores are multiplied by a scale anyway, and the output is divided by `l` anyway.
#
# Tensor cores have no instruction that takes 8-bit keys and 16-bit queries. So each pair is
# widened to float16 just before the product, in registers. Queries have to be float16 then,
# too. What comes from memory is still half as much:

# %%
import math

batch = small_batch(40, 0, 300, 17)
before_rounding = reference(batch)
# float32 (num_kv_heads,), of K and of V
scales = [cache.float().abs().amax((0, 1, 3)) / 448 for cache in batch.caches[0]]
rounded = [
    (cache / scale[:, None]).to(torch.float8_e4m3fn)
    for cache, scale in zip(batch.caches[0], scales)
]
model = {"num_q_heads": 8, "num_kv_heads": 2, "head_size": 128, "block_size": 16}
formats = {"dtype": torch.float16, "kv_dtype": torch.float8_e4m3fn}
decode = PagedDecode(8, batch.context_lens, **model, **formats, target="checked")
out = decode(batch.q, *rounded, batch.block_table, *scales)
batch.caches, batch.k_scales, batch.v_scales = [rounded], *scales
by_kernel = (out - reference(batch)).abs().max().item()
by_rounding = (reference(batch) - before_rounding).abs().max().item()
below = math.ceil(1000 * by_kernel) / 1000
print(f"the kernel, against float64 with the same 8-bit numbers: an error below {below}")
below = math.ceil(10 * by_rounding) / 10
print(f"rounding the cache to 8 bits: an error below {below}")
assert by_kernel < 0.002 < by_rounding < 0.2

# %% [markdown]
# The kernel adds hardly any error; the rounding of the cache does. The outputs here are
# averages of random numbers, where errors partly cancel each other. Only the model can tell
# whether it can live with this: compare its answers, not its tensors. That is why rung 8 is an
# alternative to rung 7 and does not replace it.

# %%
compare(WORKLOAD, 8)
draw.rungs(run, WORKLOAD, last=8)

# %% [markdown]
# (Rung 8's bytes are counted as they are, half of rung 7's. So its bar shows how near it is to
# its own limit, and its time shows how fast it is.)
#
# **Why they differ.** This step is so short that its beginning shows. Before the first bytes
# arrive, a block has to ask for its piece of work, then for its entries of the table, then for
# keys, one after the other. And the widening costs instructions: for each byte there are twice
# as many numbers as before. The more there is to read, the nearer it comes to a factor of two:

# %%
compare("gqa_b256_ragged", 8)

# %% [markdown]
# ## The whole ladder
#
# Next to the rungs you see what others have made. One is FlashInfer, a library of attention
# kernels that serving engines use, in four ways (two kernels of its own, with tensor cores and
# with CUDA cores; *XQA*, which comes from NVIDIA's TensorRT-LLM; and NVIDIA's cuDNN, which it
# calls). The other is what you do without a paged kernel: a gather and PyTorch's attention.
# (Newer versions of PyTorch have an attention that takes a block table. The recorded version
# does not. If yours does, the benchmark measures it too.) All had the same batch, in the same
# run; rung 8 had it in 8 bits.

# %%
draw.whole_ladder(run, WORKLOAD)

# %%
draw.all_workloads(run)

# %%
print(f"{run.card}, {run.date}, PyTorch {run.torch}, CUDA {run.cuda}")
print(f"FlashInfer {run.flashinfer or 'not installed'}, cuDNN {run.cudnn}")
print(f"by {run.command_today}")
for workload, ratio in run.ratios().items():
    title = next(known.title for known in WORKLOADS if known.name == workload)
    word = "ahead" if ratio > 1.02 else "level" if ratio > 0.98 else "behind"
    way = run.flashinfer_row(workload).backend.removeprefix("FlashInfer ")
    print(f"{title:48}  {way:12}  {ratio:.2f} times rung 7's time: rung 7 is {word}")

# %% [markdown]
# Each line is for the fastest of FlashInfer's ways. Here “level” is anything within 2 %: such
# a small difference may be gone the next day. Mind what is compared: decode, in these shapes,
# on this card, with these versions. FlashInfer does more than that, for more shapes. Planning
# the batch, ours and theirs, is done before the timing starts. A measurement is a fact about
# what was measured.
#
# Is the highest rung always the fastest? Here are the fastest of rungs 0 to 7:

# %%
for workload in WORKLOADS:
    rows = [row for row in run.rungs(workload.name) if row.rung <= 7]
    row = min(rows, key=lambda row: row.milliseconds)
    time = f"{row.milliseconds:.4f} ms, {row.share_of_limit:.0%} of the limit"
    print(f"{workload.title:52} {row.backend}: {time}")

# %% [markdown]
# Not always. On the first batch, rungs 4 and 7 are within a few percent of each other: equal
# contexts, as many as the card needs, leave little to balance. With eight sequences of 8,192
# tokens, the same is true of rungs 6 and 7: both cut rows of one length alike. Where no query
# heads share a KV head, there is nothing to pack: seven of the eight columns of each matrix
# product are zeros, and rung 3 does without them. In the smallest batch nothing has to be cut,
# but rung 7 still looks its work up first. In each of the six, rung 7 is within 4 % of the
# fastest.
#
# ## On your card
#
# With a GPU and nvcc, the next cell measures three rungs here. Building them takes a while.
# The whole ladder, with a table and a plot, is one command in a clone of the course:
# `python -m tools.bench ladder`.

# %% tags=["nbval-ignore-output"]
if library_target == "gpu":
    rungs = ["rung 1", "rung 4", "rung 7"]
    here = ladder_bench.measure(["gqa_b256_ragged"], only=rungs, quick=True)
    print(ladder_bench.table(here))
    assert all(row.share_of_limit < 1.1 for row in here.rungs("gqa_b256_ragged"))
else:
    print(no_gpu, "What you have seen was measured on one", run.card)

# %% [markdown]
# Which rung gains most depends on the card. One with less bandwidth for its arithmetic should
# reach its limit earlier, and there the last rungs may change little. If a rung is slower on
# your card than the one before, you have found something that this lesson does not know.
# Little's law and the waves are good places to begin looking.
#
# ## And prompts?
#
# All of this was decode: one query for each sequence. A prompt, or a chunk of one, has many
# queries at once, and each key is used by all of them. Then the limit is no longer the memory
# but the arithmetic, and other ideas count. Lesson [09](09_prompt_kernel.ipynb) builds a
# second ladder for that.
#
# ## What you built
#
# - The count of bytes that every decode step must read, and with it a limit to compare every
#   kernel with.
# - Wide loads, and an online softmax in one pass: the kernel of lesson 06, without its
#   waiting.
# - A loop that keeps several tiles on their way, safe however fast or slow the copies are.
# - The combination of parts as a kernel, and two ways to divide a batch: splits chosen by
#   counting waves, and equal shares.
#
# ## Ask yourself
#
# <details><summary>A kernel reaches 40 % of the memory limit. What do you look at
# first?</summary>
#
# At the bytes. Does it read more than it must, because several blocks read the same keys, or
# because loads touch sectors that they use only in part? Both can be counted without a GPU. If
# it does not, look at how many bytes are on their way (Little's law), and at whether all
# multiprocessors have something to do until the end.
# </details>
#
# <details><summary>Decode is limited by memory. Why use tensor cores at all?</summary>
#
# Not for their speed at multiplying: as the count at the beginning showed, plain arithmetic
# could keep up. But rung 3 does more than multiply. Each number is widened from 16 bits to 32,
# and for each key and each head the lanes shuffle four times. Packing four heads makes that
# several times as many instructions for each byte, and then instructions do become the limit.
# One `mma` takes 16-bit numbers as they are and adds up across lanes by itself, so the warp
# can go back to asking for memory.
# </details>
#
# <details><summary>The dims of keys and queries may come in any order. And those of the
# values?</summary>
#
# A score is a sum over dims, so their order does not matter as long as both sides use the same
# one. The output is not summed over dims: each dim of the values becomes a dim of the output.
# The kernel may hold them in any order too, but it has to know the order, so that at the end
# it writes each one to its own place.
# </details>
#
# <details><summary>A loop with stages gives right results on your card. Is it right?</summary>
#
# Not necessarily. A missing wait does not show when copies are quick, and a missing
# `__syncwarp()` before a stage is filled again does not show when they are slow. It is right
# when no order of events that the rules allow can break it. That is why the check tried both
# extremes.
# </details>
#
# <details><summary>Why do the splits not change the result, though the softmax is over all
# tokens?</summary>
#
# A softmax needs the largest score and the sum of the exponentials. Both can be put together
# from parts: the largest of the maxima, and the sums, each brought to the common maximum by a
# factor exp(m - m_all). The outputs are weighted in the same way. Only the order of the
# additions is different, so the last bits may differ.
# </details>
#
# <details><summary>In rung 7, why does the last block combine, and not block 0?</summary>
#
# Block 0 would have to wait for the others. Blocks of an ordinary launch cannot count on
# running at the same time: if one waits for another that has not been started because the
# waiting one has its place, neither ever goes on. The last block has nothing to wait for.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Tri Dao, *FlashAttention-2: Faster Attention with Better Parallelism and Work
#   Partitioning*, 2023, [arXiv:2307.08691](https://arxiv.org/abs/2307.08691).
# - Tri Dao et al., *Flash-Decoding for long-context inference*, 2023,
#   [the post](https://crfm.stanford.edu/2023/10/12/flashdecoding.html): splitting the context.
# - Zihao Ye et al., *FlashInfer: Efficient and Customizable Attention Engine for LLM Inference
#   Serving*, 2025, [arXiv:2501.01005](https://arxiv.org/abs/2501.01005): compiling for a
#   shape, and planning a batch's shares.
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section
#   5.1 for the first kernel of this kind.
# - Muhammad Osama et al., *Stream-K: Work-centric Parallel Decomposition for Dense
#   Matrix-Matrix Multiplication on the GPU*, 2023,
#   [arXiv:2301.03598](https://arxiv.org/abs/2301.03598): equal shares.
# - NVIDIA, *CUDA C++ Programming Guide*: “Multiprocessor Level” for how long memory takes to
#   answer; “Technical Specifications per Compute Capability” for shared memory, and for how
#   many threads a multiprocessor holds.
# - NVIDIA, *H200 Tensor Core GPU*, data sheet: 67 TFLOPS in FP32, 4.8 TB/s.
# - NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): `mma` for
#   m16n8k16, and `cp.async`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [08 · Serve a model](08_serve_a_model.ipynb), which puts this kernel into an
# engine.
