# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 06 · The paged kernel
#
# **You build** a CUDA kernel that computes a decode step and reads keys and values in place:
# it follows the block table itself and gathers nothing. You start with one thread that adds
# two vectors, and you can run each step on the way. At the end you find the faults in a kernel
# that somebody else wrote.
#
# PICTURE opening
#
# **You need** lessons [02](02_block_tables.ipynb), [04](04_decode.ipynb) and
# [05](05_batched_metadata.ipynb), and C++ as in lesson [01](01_block_manager.ipynb). You do
# not need a GPU. **It takes** 75 to 90 minutes. Words that you meet again are in the
# [glossary](glossary.ipynb).

# %%
from lessons_lib import KernelError, build_cuda, check, hint, open_lesson, solution

draw = open_lesson("06")

# %% [markdown]
# The picture shows a decode step of three sequences, with six query heads each. That is 18
# small problems that have nothing to do with each other: one query, its keys, its values. Each
# gets its own group of 128 threads.
#
# ## Threads, warps, blocks and grids
#
# A GPU runs thousands of threads at once. They come in groups, and CUDA has a word for each:
#
# | word | what it is |
# |---|---|
# | **kernel** | a function for the GPU. Every thread runs the same code, and uses its number to find its part |
# | **warp** | 32 threads that run together. They can pass each other values without using memory |
# | **block** of threads | up to 1,024 threads. They share a small, fast memory, and can wait for each other |
# | **grid** | all thread blocks of one launch. Each must be able to run without the others: it cannot wait for them |
#
# (There are launches in which blocks can wait for each other: cooperative ones, and since
# Hopper those with clusters of blocks. This course uses neither.)
#
# So CUDA says “block” as well. Its blocks have nothing to do with the pool's blocks. Where
# this might be unclear, the lesson says **thread block**.
#
# The lesson uses PyTorch, and parts that you have built in lessons 02, 04 and 05:

# %%
import math

import torch
from torch import Tensor

from paged_attention.attention.decode import block_attention, combine_result
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.attention.metadata import attn_paged_torch, build_metadata
from paged_attention.pool.slots import write_kv
from paged_attention.validate import check_range, check_tensor

# %% [markdown]
# ## One thread
#
# Here is a kernel, and the function that launches it. `__global__` marks the kernel. Between
# `<<<` and `>>>` are the number of thread blocks, the number of threads in each, and two
# things for later. `extern "C"` lets you call the launcher from Python.

# %%
one_thread = r"""
#include <cuda_runtime.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

extern "C" int add(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
  add_kernel<<<1, 1, 0, stream>>>(a, b, out, n);
  return cudaGetLastError();
}
"""

# %% tags=["nbval-ignore-output"]
library = build_cuda(one_thread)
device = "cuda" if library.target == "gpu" else "cpu"
print("target:", library.target)
assert library.target in ("gpu", "checked")

# %% [markdown]
# `build_cuda` makes the same text run in three ways. With target `gpu`, nvcc compiles it for
# your GPU. With target `fast`, your C++ compiler compiles it for the CPU. With target
# `checked`, it also runs on the CPU, and every access to memory is watched. Unless you say
# otherwise, it uses the GPU if there is one, and checked mode if not.
#
# Checked mode is this lesson's instrument, even if you have a GPU. A GPU does not tell you
# that you have read a number too early; checked mode tells you on which line.

# %%
a, b = torch.arange(600.0, device=device), torch.ones(600, device=device)
out = torch.empty_like(a)
library.add(a, b, out, 600)
print(out[:6].tolist(), "…", out[-1].item())
assert torch.equal(out, a + b)

# %% [markdown]
# The tensors arrive as pointers. What they point to must be on the device where the kernel
# runs.
#
# ## One block of threads
#
# That was one thread for 600 elements. Give the work to the 256 threads of a block. Thread `t`
# takes the elements `t`, `t + 256`, `t + 512`. Its number is `threadIdx.x`, and the number of
# threads is `blockDim.x`:

# %%
one_block = one_thread.replace(
    "int i = 0; i < n; ++i", "int i = threadIdx.x; i < n; i += blockDim.x"
)
one_block = one_block.replace("<<<1, 1,", "<<<1, 256,")
build_cuda(one_block).add(a, b, out.zero_(), 600)
assert torch.equal(out, a + b)
print("the same sum, by 256 threads")

# %% [markdown]
# This loop is worth remembering. Threads can divide any number of things in this way: nothing
# is done twice, and nothing is left out.
#
# ## A grid
#
# One block of threads runs on one part of the GPU, a *multiprocessor*. An H100 or H200 has 132
# of them, a laptop's GPU perhaps twenty. So a launch should have many blocks. Then each thread
# can have an element to itself.
#
# ### Exercise 6.1: one thread for each element
#
# Write the kernel without a loop, and let the launcher start enough blocks. `blockIdx.x` is
# the number of the thread's block. All blocks have the same size, so the last one may have
# threads to spare.

# %% exercise="6.1" language="cuda"
vector_add = r"""
// INCLUDE vector_add.cu
"""

# %% check="6.1"
check("6.1", vector_add)

# %% [markdown]
# Which thread did what? Checked mode can record every access to a tensor. Here are the three
# launches, with each write to `out`:


# %%
def writes(source):
    """Records each thread's writes to `out` while 600 elements are added."""
    library = build_cuda(source, target="checked")
    with library.trace("out") as accesses:
        library.add(torch.ones(600), torch.ones(600), torch.empty(600), 600)
    return accesses


draw.writers(writes(one_thread), writes(one_block), writes(vector_add))

# %% [markdown]
# ## Threads that work together
#
# Vector elements have nothing to do with each other. In attention, threads need each other's
# results: a softmax needs the sum over all scores. For that a block of threads has **shared
# memory**. Here each of 128 threads adds the number 32 places before its own. It puts its own
# number into shared memory, and takes the other one from there.

# %%
echo = r"""
#include <cuda_runtime.h>

__global__ void echo_kernel(const float* a, float* out) {
  __shared__ float row[128];
  int i = threadIdx.x;
  row[i] = a[i];
  out[i] = row[i] + (i >= 32 ? row[i - 32] : 0.0f);
}

extern "C" int echo(const float* a, float* out, cudaStream_t stream) {
  echo_kernel<<<1, 128, 0, stream>>>(a, out);
  return cudaGetLastError();
}
"""

# %% [markdown]
# `attempt` makes a call, and prints the error if there is one. Here it runs the kernel in
# checked mode:


# %%
def attempt(call, *values, **named):
    """Makes the call. Prints the error if there is one."""
    try:
        call(*values, **named)
    except (KernelError, TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}\n")


def try_echo(source):
    out = torch.zeros(128)
    attempt(build_cuda(source, target="checked").echo, torch.arange(128.0), out)
    print("elements 31, 32 and 33 of out:", out[31:34].tolist())


try_echo(echo)

# %% [markdown]
# The warps are not in step. When a thread takes the other number, the thread that owns it may
# not have put it there yet. That is a **race**. On a GPU it may go well many times and then
# fail once, and nothing tells you. Checked mode stops, and leaves `out` as it was before the
# call. Two threads that write to the same place are a race too, even if both write the same
# value.
#
# Here is the same run, step by step. It takes the threads in their order, so thread 0 had put
# its number there long before. But no line makes thread 32 wait until that is done.

# %%
echoing = build_cuda(echo, target="checked")
with echoing.trace("a", "__shared__ row", "out") as accesses:
    try:
        echoing.echo(torch.arange(128.0), torch.zeros(128))
    except KernelError as error:
        race = error
draw.race(accesses, race, echoing.texts)

# %% [markdown]
# `__syncthreads()` is a **barrier**: no thread goes on until all threads of the block have
# reached it.

# %%
try_echo(echo.replace("row[i] = a[i];", "row[i] = a[i];\n  __syncthreads();"))

# %% [markdown]
# Two rules follow. Put a barrier between writing and reading whenever one thread reads what
# another has written. And put it where *all* threads reach it: never inside an `if` that some
# of them do not enter.
#
# (Reports mention `__syncwarp()` too. It does the same, but only for the 32 threads of one
# warp. This lesson does without it.)
#
# ## What the kernel is told
#
# Now for attention. The kernel gets seventeen things: where the tensors are, how large they
# are, how long a row is. As seventeen arguments they would be easy to confuse, so they go into
# a struct. Python fills its fields by name.

# %%
paged_params = r"""
// INCLUDE paged_params.cuh
"""

# %% [markdown]
# `context_lens` is what the metadata of lesson 05 calls `seq_lens_kv`. In a decode step every
# sequence has one query, which sees all of its keys. So no mask is needed, and no
# `cu_seqlens_q`.
#
# Here is a pool to work with. Its sequences grow side by side, as they do while they decode,
# so their blocks are scattered. All slots hold numbers, even the unused ones. A kernel that
# reads one of those gets a wrong result.


# %%
def pool_with(
    lengths, block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32, on=None
):
    """Makes a manager with a sequence of each length, and random numbers in every slot.

    The sequences are named 0, 1, 2 and so on.
    on: a device other than the lesson's.
    """
    needed = [-(-length // block_size) for length in lengths]
    sizes = (sum(needed) + 1, block_size, num_kv_heads, head_size)
    table = dict(max_num_seqs=len(lengths), max_blocks_per_seq=max(needed) + 1)
    manager = PagedAttentionManager(*sizes, **table, dtype=dtype, device=on or device)
    for seq_id in range(len(lengths)):
        manager.add_sequence(seq_id, 0)
    for step in range(max(lengths)):
        for seq_id, length in enumerate(lengths):
            if step < length:
                manager.append_token(seq_id)
    numbers = torch.randn(manager.kv_cache.shape, generator=torch.Generator().manual_seed(6))
    manager.kv_cache.copy_(numbers)
    return manager


manager = pool_with([6, 10, 3])
context_lens = torch.tensor([6, 10, 3], dtype=torch.int32, device=device)
block_table = torch.stack([manager.get_block_table_for_seq(seq_id) for seq_id in range(3)])
print(block_table.tolist())

# %% [markdown]
# Each sequence also needs a query of six heads, and the struct gets its fields from tensors:


# %%
def fields(q, k_cache, v_cache, block_table, context_lens, out=None, scores=None):
    """Returns the fields of PagedAttentionParams, by name."""
    tensors = dict(q=q, k_cache=k_cache, v_cache=v_cache, out=out, scores=scores)
    tables = dict(block_table=block_table, context_lens=context_lens)
    sizes = dict(zip(("num_seqs", "num_q_heads", "head_size"), q.shape))
    sizes |= dict(zip(("block_size", "num_kv_heads"), k_cache.shape[1:3]))
    others = dict(
        q_stride=q.stride(0),
        max_blocks_per_seq=block_table.shape[1],
        max_context_len=int(context_lens.max()),
        dtype=[torch.float32, torch.float16, torch.bfloat16].index(q.dtype),
        scale=1 / math.sqrt(q.shape[2]),
    )
    return tensors | tables | sizes | others


q = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(7)).to(device)
k_cache, v_cache = manager.kv_cache[0]
batch = (q, k_cache, v_cache, block_table, context_lens)

# %% [markdown]
# ## From a token to its address
#
# If the keys were stored in one row, a multiplication would find each of them. Here it takes
# two steps:
#
# 1. Token 9 of a sequence with blocks of 4 slots is in the sequence's block 9 / 4 = 2, at
#    offset 9 % 4 = 1. (In C++, `/` of two integers rounds down.)
# 2. Entry 2 of the sequence's row in the block table says which block of the pool that is.
#
# From there the address is the same as in any contiguous tensor.
# `k_cache[block, offset, head, 0]` is some numbers past the first one. The shape tells you how
# many.
#
# ### Exercise 6.2: from a token to its address
#
# `__device__` marks a function that kernels call. A pool of 40 GB has more numbers than an
# `int` can count, and a product of two `int`s is an `int`, whatever you assign it to.

# %% exercise="6.2" language="cuda"
paged_address = r"""
// INCLUDE paged_address.cuh
"""

# %% check="6.2"
check("6.2", paged_address)

# %% [markdown]
# With it, a kernel can walk through a scattered sequence as if it were in one piece. Here it
# copies the keys of sequence 1, with a block of threads for each token and KV head, and a
# thread for each number. (`build_cuda` compiles several texts as one, in the order given.)

# %%
copy_keys = r"""
__global__ void copy_kernel(PagedAttentionParams params) {
  const float* key = static_cast<const float*>(params.k_cache) +
                     cache_offset(params, 1, blockIdx.x, blockIdx.y);
  float* out = static_cast<float*>(params.out) +
               (blockIdx.x * params.num_kv_heads + blockIdx.y) * params.head_size;
  out[threadIdx.x] = key[threadIdx.x];
}

extern "C" int copy_keys(PagedAttentionParams params, cudaStream_t stream) {
  dim3 grid(params.max_context_len, params.num_kv_heads);
  copy_kernel<<<grid, params.head_size, 0, stream>>>(params);
  return cudaGetLastError();
}
"""
keys = torch.empty(10, 2, 8, device=device)
build_cuda(paged_params, paged_address, copy_keys).copy_keys(**fields(*batch, out=keys))
gathered = k_cache[block_table[1, :3]].flatten(0, 1)[:10]
assert torch.equal(keys, gathered)
print("ten keys from blocks", block_table[1, :3].tolist(), "of the pool: the same as a gather")

# %% [markdown]
# (`dim3` gives the grid two dimensions. A block then has two numbers, `blockIdx.x` and
# `blockIdx.y`.)
#
# ## One result from many threads
#
# The softmax needs the largest of all scores, and later the sum of all exponentials. Each
# thread will have its own scores. How do 128 threads find the largest number among all of
# them?
#
# The 32 threads of a warp, its **lanes**, can read each other's variables with a *shuffle*:
#
# ```cpp
# float other = __shfl_xor_sync(0xffffffff, value, distance);
# ```
#
# Every lane gets the `value` of the lane whose number differs from its own only in the bit
# `distance`. With distance 4, lane 5 (binary 101) gets the value of lane 1 (001), and lane 1
# gets that of lane 5. The mask `0xffffffff` says that all 32 lanes take part, and they all
# have to. With eight lanes it would go like this:

# %%
draw.shuffles([3, 1, 4, 1, 5, 9, 2, 6])

# %% [markdown]
# Each step doubles the number of lanes that a lane knows about. 32 lanes take five steps.
#
# Shuffles do not go beyond the warp. The results of the warps go through shared memory, and
# that means barriers. One of them is easy to forget, because a single call is right without
# it. But a thread block calls the function twice, and a fast thread may be in the second call
# while a slow one is still in the first.
#
# ### Exercise 6.3: maximum and sum over a block
#
# `Operation::of(a, b)` is the larger of two numbers, or their sum. Any way is fine if every
# thread gets the result. But let only one thread write to a place in shared memory: several
# writes to it are a race, even if all of them bring the same value. A block has at most 1,024
# threads, so at most 32 warps.

# %% exercise="6.3" language="cuda"
block_reduce = r"""
// INCLUDE block_reduce.cuh
"""

# %% check="6.3"
check("6.3", block_reduce)

# %% [markdown]
# So a thread block can add up as many numbers as you like: first each thread adds its own,
# then the block adds up the sums.

# %%
add_up = r"""
__global__ void add_up_kernel(const float* numbers, float* out, int n) {
  float mine = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) mine += numbers[i];
  float all = block_sum(mine);
  if (threadIdx.x == 0) out[0] = all;
}

extern "C" int add_up(const float* numbers, float* out, int n, cudaStream_t stream) {
  add_up_kernel<<<1, 128, 0, stream>>>(numbers, out, n);
  return cudaGetLastError();
}
"""
total = torch.empty(1, device=device)
build_cuda(block_reduce, add_up).add_up(torch.arange(1001.0, device=device), total, 1001)
print("0 + 1 + … + 1000 =", total.item())

# %% [markdown]
# The barriers are in a function that all threads call. The `if` after it contains only a
# write.
#
# ## Pass 1: the scores
#
# One more thing before attention: the formats. Caches are mostly kept in 16 bits, and kernels
# compute in 32. These functions convert between the two.
#
# `T` stands for the type, `float`, `__half` or `__nv_bfloat16`. A `template` is a function
# written once for all three. Its name then takes the type in angle brackets, as in
# `from_float<T>(…)`. In the same way, `static_cast<const T*>(pointer)` says what kind of
# numbers a `void*` points to.

# %%
numbers = r"""
// INCLUDE numbers.cuh
"""

# %% [markdown]
# Now the first half of attention, for one thread block: `scores[token] = scale * (q · key)`.
# With 128 threads, thread `t` has the tokens `t`, `t + 128`, `t + 256` and so on. A context
# may have more tokens than the block has threads, or fewer, or none. It matters to the next
# step which thread owns which score. There each thread goes on with the scores that it wrote
# itself, so it need not wait for the others. (If you divide the tokens in another way, end
# with a barrier.)
#
# All threads need the same query. So they load it into shared memory once, together. It has
# `head_size` elements, at most 256, and that too may be more than there are threads.
#
# Query heads share KV heads, as in lesson 03. With 6 query heads and 2 KV heads, the query
# heads 0, 1, 2 use KV head 0, and 3, 4, 5 use KV head 1. In lesson 03 `repeat_interleave`
# copied the heads; here you only work out which head to read.
#
# ### Exercise 6.4: the scores
#
# Load the query, wait for it, and then score the tokens. `cache_offset` is your function from
# exercise 6.2. The check reads each score from the thread that owns it.

# %% exercise="6.4" language="cuda"
paged_scores = r"""
// INCLUDE paged_scores.cuh
"""

# %% check="6.4"
check("6.4", paged_scores)

# %% [markdown]
# Run it, with a row of scores in ordinary memory for each sequence and head. PyTorch is the
# judge, for sequence 1 and head 4:

# %%
only_scores = r"""
__global__ void scores_kernel(PagedAttentionParams params) {
  int row = blockIdx.x * params.num_q_heads + blockIdx.y;
  paged_scores<float>(params, params.scores + row * params.max_context_len);
}

extern "C" int only_scores(PagedAttentionParams params, cudaStream_t stream) {
  scores_kernel<<<dim3(params.num_seqs, params.num_q_heads), 128, 0, stream>>>(params);
  return cudaGetLastError();
}
"""
scores = torch.zeros(3, 6, 10, device=device)
library = build_cuda(
    paged_params, paged_address, numbers, block_reduce, paged_scores, only_scores
)
library.only_scores(**fields(*batch, scores=scores))
expected = gathered[:, 4 // 3] @ q[1, 4] / math.sqrt(8)
assert torch.allclose(scores[1, 4], expected, atol=1e-5)
print([f"{score:.3f}" for score in scores[1, 4].tolist()])

# %% [markdown]
# ## Softmax, and pass 2: the values
#
# The second half has two functions. `softmax` turns the row of scores into weights, in place:
# largest score, exponentials, their sum, division. You did this in lesson 03. Here the row is
# divided among the threads. In CUDA as in C++, `expf`, `fmaxf` and `INFINITY` come from
# `<cmath>`.
#
# `paged_values` then goes through the tokens a second time. Now a thread has an *element of
# the head*, not a token: thread 0 adds up the first number of all values, thread 1 the second.
# So a sum belongs to one thread from beginning to end, in that thread's own variable. No other
# thread writes to it, and no atomic addition is needed.
#
# A sequence may have no tokens at all, for example when a scheduler pads a batch. Its output
# is all zeros.
#
# ### Exercise 6.5: softmax and values

# %% exercise="6.5" language="cuda"
paged_values = r"""
// INCLUDE paged_values.cuh
"""

# %% check="6.5"
check("6.5", paged_values)

# %% [markdown]
# ## The launch
#
# The next cell begins with the kernel itself, put together from your functions. Look at where
# the scores are: in `extern __shared__` memory, which has no size in the code. The launch
# gives the size, in bytes, as the third number between `<<<` and `>>>`. This is **dynamic**
# shared memory. With it one kernel serves every context length, up to a limit:
#
# | scores | bytes | what it takes |
# |---|---|---|
# | up to about 12,000 | 48 KiB, with the `__shared__` variables | nothing |
# | up to about 57,000 (on an H100) | 227 KiB | the kernel must be allowed more, with `cudaFuncSetAttribute` |
# | more | | scores in ordinary memory, a **workspace**; then `params.scores` is not null |
#
# A launch returns nothing. It only puts the work on a **stream**, one of the GPU's queues, and
# goes on. `cudaGetLastError()` says whether the launch was possible. And the stream must be
# PyTorch's, or the kernel may start before the tensors are ready.
#
# ### Exercise 6.6: the launcher
#
# `launch<T>` starts the kernel for one type. `paged_attention` chooses the type, and returns
# what `launch<T>` returns. A dtype that it does not know is an error too: then nothing is
# launched.
#
# Between `<<<` and `>>>` are the grid, the threads of a block, the bytes, and the stream. The
# grid of this kernel has two numbers, which `dim3 grid(x, y);` puts together. A block has 128
# threads. This call allows a kernel `bytes` bytes of dynamic shared memory:
#
# ```cpp
# cudaError_t error =
#     cudaFuncSetAttribute(kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
# ```
#
# It comes before the launch, and returns `cudaSuccess`, which is 0, or the error.
#
# The check gives your launcher a stream, and looks at which stream it launches on. It also
# makes a launch fail, and looks at what your launcher returns then.

# %% exercise="6.6" language="cuda"
paged_attention = r"""
// INCLUDE paged_attention.cu
"""

# %% check="6.6"
check("6.6", paged_attention)

# %% [markdown]
# Here is all of it together, compared with the reference of lesson 05:

# %%
kernel = {
    "numbers": numbers,
    "paged_params": paged_params,
    "paged_address": paged_address,
    "block_reduce": block_reduce,
    "paged_scores": paged_scores,
    "paged_values": paged_values,
    "paged_attention": paged_attention,
}
library = build_cuda(*kernel.values(), names=tuple(kernel))
out = torch.empty_like(q)
library.paged_attention(**fields(*batch, out=out))
decode = build_metadata(manager, [(seq_id, 1) for seq_id in range(3)])
difference = (out - attn_paged_torch(q, k_cache, v_cache, decode)).abs().max().item()
assert difference < 1e-5
print("kernel and reference differ by less than 0.00001")

# %% [markdown]
# ## Which thread reads what
#
# Here is your kernel at work on sequence 1 and head 4 of the first picture, as checked mode
# saw it. Each step is a read by one thread, with the lines where it is and the entry of the
# block table that it followed. Every number in a cache is the thread that has read it. A
# smaller head, of four elements, keeps this readable.

# %%
watched = build_cuda(*kernel.values(), names=tuple(kernel), target="checked")
table = torch.tensor([[0, 3, -1, -1], [5, 2, 6, -1], [1, -1, -1, -1]], dtype=torch.int32)
caches = torch.ones(2, 7, 4, 2, 4)  # keys and values: 7 blocks of 4 slots, 2 heads of 4
small_batch = (torch.ones(3, 6, 4), *caches, table, context_lens.cpu())
with watched.trace("k_cache", "v_cache", "block_table") as accesses:
    watched.paged_attention(**fields(*small_batch, out=torch.empty(3, 6, 4)))
of_one_block = [access for access in accesses if access.block == (1, 4, 0)]
draw.readers(of_one_block, table, caches[0].shape, watched.texts)

# %% [markdown]
# The empty slots are not read, though they hold numbers too. No mask keeps the kernel away
# from them: it simply has no way to get there.
#
# Here one thread comes after the other, because a CPU runs them. On a GPU the 32 threads of a
# warp read at the same time, and memory is fastest when neighbouring threads read neighbouring
# addresses. In pass 2 they do. In pass 1 each thread walks along its own row, so the warp reads
# at 32 distant places at once. That is why this kernel is not a fast one. Lesson 07 fixes it.
#
# ## What a build costs
#
# You may wonder why a launcher takes raw pointers. PyTorch's documentation shows another form,
# in which C++ gets tensors. Here is that form for your kernel, in float32 and without the
# workspace:

# %%
tensor_form = r"""
// INCLUDE tensor_form.cu
"""
declaration = tensor_form[tensor_form.index("void attend") : tensor_form.index(" {")] + ";"
print(declaration)

# %% [markdown]
# Here C++ sees tensors: it can ask for their shapes, and raise errors with `TORCH_CHECK`. Such
# a text is built by `load_inline` in its default form (lesson 01). It writes the binding
# itself, and for that it needs the declaration. If you have a GPU, the next cell builds the
# module, which takes half a minute or more the first time:


# %% tags=["nbval-ignore-output"]
def build_tensor_form():
    """Builds the module with attend(). It needs a GPU and nvcc."""
    from torch.utils.cpp_extension import load_inline

    from paged_attention.attention.plain_build import kept_build

    cuda_text = "\n".join([*kernel.values(), tensor_form])
    with kept_build([declaration, cuda_text]) as folder:  # kept for the next time
        return load_inline(
            "tensor_form",
            cpp_sources=declaration,
            cuda_sources=cuda_text,
            functions=["attend"],
            build_directory=folder,
        )


if device == "cuda":
    by_tensors = torch.empty_like(q)
    build_tensor_form().attend(by_tensors, *batch, 10)  # 10: the longest context
    assert torch.allclose(by_tensors, out, atol=1e-5)
    print("attend() gives what your launcher gives")
else:
    print("not built here: attend() needs a GPU")

# %% [markdown]
# In kernels of this form you may meet two more words. A `PackedTensorAccessor` brings a
# tensor's sizes and strides into the kernel, which can then write indices in brackets, where
# ours computes an address. And `__restrict__` promises that no other pointer of the kernel leads
# to the same memory, so the compiler may keep a number that it has read.
#
# ```cpp
# using Cache = torch::PackedTensorAccessor32<float, 4, torch::RestrictPtrTraits>;
#
# __global__ void first_numbers(Cache k_cache, float* __restrict__ out) {
#   out[threadIdx.x] = k_cache[blockIdx.x][threadIdx.x][0][0];  // block, offset, head, number
# }
# ```
#
# The launcher passes `k_cache.packed_accessor32<float, 4, torch::RestrictPtrTraits>()`.
#
# <details><summary>How do you install such code like any other package?</summary>
#
# With a `setup.py` beside the sources. `CppExtension` is for C++ alone, such as the block
# manager of lesson 01, and `CUDAExtension` for C++ with CUDA:
#
# ```python
# from setuptools import setup
# from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension
#
# setup(
#     name="my_paged_attention",
#     ext_modules=[
#         CppExtension("my_block_manager", ["block_manager.cpp"]),
#         CUDAExtension("my_kernel", ["kernel.cu"]),
#     ],
#     cmdclass={"build_ext": BuildExtension},
# )
# ```
#
# Each file ends with its `PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)`, and the builder fills
# in the name. `pip install --no-build-isolation .` builds both with the PyTorch that you have.
# After that, `import torch, my_kernel` is all that a program needs.
# </details>
#
# What does the form with tensors cost? The price is in the line `#include
# <torch/extension.h>`. Before a compiler compiles, it collects everything that is included into
# one text. Measure how long that text is:

# %% tags=["nbval-ignore-output"]
import sysconfig
import time

from torch.utils.cpp_extension import include_paths

from lessons_lib.cuda.inline import preprocess
from lessons_lib.paths import ROOT


def collect(text, folders):
    """Collects the text that the compiler has to read.

    Returns its number of lines, and the seconds that the collecting takes.
    """
    started = time.perf_counter()
    collected = preprocess(text, "-std=c++20", *(f"-I{folder}" for folder in folders))
    return collected.count("\n"), time.perf_counter() - started


folders = [*include_paths(), sysconfig.get_paths()["include"]]
with_torch, seconds = collect("#include <torch/extension.h>", folders)
print(f"torch/extension.h: {with_torch:8,} lines, {seconds:.1f} s")
ours, seconds = collect("\n".join(kernel.values()), [ROOT / "lessons_lib/cuda_on_cpu/include"])
print(f"all of your kernel: {ours:7,} lines, {seconds:.1f} s")
assert with_torch > 5 * ours

# %% [markdown]
# And that is only the collecting. Compiling takes several times longer, in each build
# (`make bench NAME=cuda_builds` measures it). With nvcc it happens twice, for the CPU and for the GPU. For
# a library that is built once, it does not matter. For a cell that you run twenty times in an
# hour, it does. So here the launcher knows nothing of tensors, and Python checks before the
# call what `TORCH_CHECK` would check.
#
# ## Before the launch
#
# A kernel believes what it is told. A pointer has no shape and no dtype, and a number from the
# block table becomes an address, whatever it is. Here is a table with an entry that is no
# block of the pool:

# %%
from paged_attention.attention.bug_hunt import HuntCase

one_case = HuntCase("5 tokens", (5,)).tensors()
good, num_blocks = one_case["block_table"].tolist(), len(one_case["k_cache"])
print("good table:", good, "in a pool of", num_blocks, "blocks")
broken = one_case | {"block_table": torch.tensor([[1, 70_000]], dtype=torch.int32)}
attempt(watched.paged_attention, **fields(**broken, out=torch.empty(1, 1, 8)))

# %% [markdown]
# Checked mode stops it. A GPU would not: it reads whatever lies at that address. Then either
# the numbers are wrong and nothing tells you, or the address is not valid, and every later
# call in the process fails with `illegal memory access` until Python is restarted.
#
# So everything that can be wrong is checked in Python, before the launch:
#
# | what | why |
# |---|---|
# | dtype | the kernel takes the same bytes for numbers of another kind |
# | device | a pointer into the CPU's memory means nothing on the GPU |
# | shape | sizes are multiplied into addresses |
# | strides | the kernel works out by itself where a row begins, and assumes that no other numbers lie between |
# | head size | the query has 256 places in shared memory |
# | block table and context lengths | their values become addresses |
#
# `paged_attention/validate.py` does the first five, and each of its errors names the argument.
# The last one is yours.
#
# ### Exercise 6.7: refuse a bad block table
#
# The two given lines check types and shapes. You check the values, and raise a `ValueError`
# whose text names the argument that is wrong. If both names are in the text, the wrong one
# comes first.
#
# `check_range(name, values, low, high, what)` raises such an error if a number in the tensor
# `values` is not in low … high - 1. `what` is for its text: `check_range("block_table",
# torch.tensor([3, 9]), 0, 6, "the blocks")` says “block_table holds 9 (entry 1); the blocks
# are 0 to 5”.
#
# Good tables must pass: after the entries that a context needs, there may be anything; a
# context may be empty; two sequences may share blocks.

# %% exercise="6.7"
# INCLUDE paged_attention/validate.py check_block_table

# %% check="6.7"
check("6.7", check_block_table)

# %% [markdown]
# `attn_paged_cuda` in `paged_attention/attention/paged_kernel.py` puts it all together. It takes `q`,
# `k_cache`, `v_cache`, `block_table` and `context_lens`, checks them, makes room for the
# output, and launches. With `library=` it launches the kernel that you built. When it refuses
# a call, it has touched nothing:

# %%
from paged_attention.attention.paged_kernel import attn_paged_cuda

wrong_changes = [
    {"q": one_case["q"].double()},
    {"v_cache": one_case["v_cache"][:-1]},
    {"k_cache": one_case["k_cache"].transpose(0, 1).contiguous().transpose(0, 1)},
    {"context_lens": torch.tensor([9], dtype=torch.int32)},
    broken,
]
for change in wrong_changes:
    attempt(attn_paged_cuda, **one_case | change, library=watched)

# %% [markdown]
# ## Formats
#
# Now the same kernel for other formats. The caches are rounded to 16 bits; the sums are not.
# The judge computes in 64 bits, from the same rounded numbers:


# %%
def error_bound(lengths, dtype, head_size, num_q_heads=6, num_kv_heads=2):
    """Finds the power of ten, from 0.00001 up, that the kernel's largest error stays below."""
    manager = pool_with(lengths, 16, num_kv_heads, head_size, dtype)
    shape = (len(lengths), num_q_heads, head_size)
    q = torch.randn(shape, generator=torch.Generator().manual_seed(8)).to(device, dtype)
    decode = build_metadata(manager, [(seq_id, 1) for seq_id in range(len(lengths))])
    tables = (decode.block_table, decode.seq_lens_kv)
    k_cache, v_cache = manager.kv_cache[0]
    out = attn_paged_cuda(q, k_cache, v_cache, *tables, library=library)
    exact = attn_paged_torch(q.double(), k_cache.double(), v_cache.double(), decode)
    return 10.0 ** math.ceil(math.log10(max(1e-5, (out - exact).abs().max().item())))


for dtype in (torch.float32, torch.float16, torch.bfloat16):
    print(f"{str(dtype):15} error below {error_bound([100, 37], dtype, 64):g}")

# %% [markdown]
# The errors of float16 and bfloat16 are as large as those of rounding the *output*: float16
# keeps eleven binary digits, bfloat16 eight. In between, everything was `float`.
#
# ## Head sizes
#
# The head size is a number in the struct, so one build serves all of them, up to the 256 that
# the shared query has room for:

# %%
for head_size in (64, 80, 96, 128, 192, 256):
    bound = error_bound([20, 33], torch.float32, head_size)
    print(f"head size {head_size:3}: error below {bound:g}")
    assert bound <= 1e-5

# %% [markdown]
# (Kernels made for speed have the head size in their code as a constant, so that the compiler
# can unroll the loops. Then each size needs its own build. Lesson 07 does that.)
#
# ## Long contexts, and empty ones
#
# The scores of 70,000 tokens do not fit into the shared memory of an H100. Without a workspace
# the launch is refused, and your launcher says so. With one, it works.

# %%
long = PagedAttentionManager(
    4375, 16, num_kv_heads=1, head_size=4, max_num_seqs=1, max_blocks_per_seq=4375
)
long.add_sequence(0, 70_000)
long.kv_cache.normal_(generator=torch.Generator().manual_seed(10))
length = torch.tensor([70_000], dtype=torch.int32)
inputs = (torch.ones(1, 1, 4), *long.kv_cache[0], long.block_table, length)
out, scores = torch.empty(1, 1, 4), torch.empty(1, 1, 70_000)
attempt(watched.paged_attention, **fields(*inputs, out=out))
watched.paged_attention(**fields(*inputs, out=out, scores=scores))
expected = attn_paged_torch(inputs[0], *long.kv_cache[0], build_metadata(long, [(0, 1)]))
assert torch.allclose(out, expected, atol=1e-5)
print("with a workspace: right")

# %% [markdown]
# `attn_paged_cuda` makes the choice for you. Next, a sequence without tokens:

# %%
none = torch.tensor([6, 0, 3], dtype=torch.int32, device=device)
out = attn_paged_cuda(q, k_cache, v_cache, block_table, none, library=library)
print("largest number of sequence 1's output:", out[1].abs().max().item())
assert out.isfinite().all() and out[1].eq(0).all() and not out[0].eq(0).any()

# %% [markdown]
# ## End to end
#
# Here is everything that you have built, in one decode step. The manager of lesson 02 makes
# room for a token of each sequence. The metadata of lesson 05 describes the batch. The new
# keys and values are written where `slot_mapping` says. Then the kernel attends. Two judges
# look at the result: the reference of lesson 05, and lesson 04's block-by-block attention, put
# together by `combine_result`.

# %%
manager = pool_with([17, 40, 4, 31], block_size=8, num_kv_heads=2, head_size=16)
scheduled = [(seq_id, 1) for seq_id in (2, 0, 3, 1)]  # in the order of the batch
manager.append_tokens(scheduled)
decode = build_metadata(manager, scheduled)
generator = torch.Generator().manual_seed(9)
q, k, v = (torch.randn(4, heads, 16, generator=generator).to(device) for heads in (6, 2, 2))
k_cache, v_cache = manager.kv_cache[0]
write_kv(k_cache, v_cache, decode.slot_mapping, k, v)
tables = (decode.block_table, decode.seq_lens_kv)
out = attn_paged_cuda(q, k_cache, v_cache, *tables, library=library)


def block_by_block(s):
    """Computes sequence s of the batch with lesson 04's functions."""
    length = int(decode.seq_lens_kv[s])
    starts = torch.arange(0, length, 8, device=device)
    block_ids = decode.block_table[s, : len(starts)]
    num_valid = (length - starts).clamp(max=8)
    queries = q[s].expand(len(starts), -1, -1)
    states = block_attention(queries, k_cache[block_ids], v_cache[block_ids], num_valid)
    return combine_result(*states)[0]


judges = {
    "the reference of lesson 05": attn_paged_torch(q, k_cache, v_cache, decode),
    "combine_result of lesson 04": torch.stack([block_by_block(s) for s in range(4)]),
}
for name, expected in judges.items():
    assert torch.allclose(out, expected, atol=1e-5)
    print(f"kernel and {name}: the same to within 0.00001")

# %% [markdown]
# ## A bug hunt
#
# Somebody has read about PagedAttention and written the kernel below, without any tests. It
# compiles. It has eight faults, each of them easy to make. Some stop it at once, some need a
# second sequence, and one needs a long context. You repair it.
#
# If you read the whole text and change what looks odd, you may find some of them, and you may
# add a ninth. It is safer to take one fault at a time:
#
# 1. **Run** the smallest case that fails.
# 2. **Read** the report to the end: the line, the thread, the memory. Say in one sentence what
#    happened.
# 3. **Explain** it from the code before you change anything. If your explanation does not
#    predict the report, it is wrong.
# 4. **Change** one thing, and run again. The case has to pass; another one may now fail.
#
# `hunt(text)` does the running. It builds the text in checked mode and goes through nine
# cases, from a single token to 11,000 and to several sequences. It stops at the first one that
# fails. Then it shows checked mode's report, or what is wrong with the numbers: which rows of
# the output, and which keys were read for the first of them.
#
# One thing to know about the reports: dynamic shared memory is one piece, and a report names
# it after one of the `extern __shared__` arrays in it. Look at the byte as well as the name.

# %%
from paged_attention.attention.bug_hunt import CASES, HuntCase, expected_output, hunt

for number, case in enumerate(CASES, 1):
    print(f"{number}. {case.title}")

# %% [markdown]
# ### Exercise 6.8: a bug hunt
#
# Change the text here, run this cell and the next one, and read. The kernel takes only
# float32. One thread block, with 128 threads, does one query head of one sequence. The struct
# of the parameters is the one you know. The scores are always in shared memory: `p.scores` is
# null.

# %% exercise="6.8" language="cuda" faulty=true
bug_hunt = r"""
// INCLUDE bug_hunt.cu
"""

# %%
hunt(bug_hunt)

# %% check="6.8"
check("6.8", bug_hunt)

# %% [markdown]
# What is left is not wrong, only slow. Every one of the 128 threads searches all of `largest`
# for the maximum. It takes the exponential of every score, to add up the same sum as its
# neighbours, and then takes them all again for the values. `block_reduce` does that work once.
# An `atomicAdd` where each thread has its own number would be another example: right, but a
# needless wait in each step.
#
# Here is your repaired kernel on a batch that it has not seen, compared with the reference of
# lesson 05:

# %%
repaired = build_cuda(paged_params, bug_hunt, names=("paged_params", "bug_hunt"))
larger = HuntCase("a larger batch", (40, 0, 16, 129), 6, 2, 64, 16).tensors()
larger = {name: tensor.to(device) for name, tensor in larger.items()}
difference = attn_paged_cuda(**larger, library=repaired) - expected_output(**larger)
print(f"largest difference: {difference.abs().max().item():.4f}")
assert difference.abs().max() < 1e-4

# %% [markdown]
# ## What two passes cost
#
# Count what your kernel reads, for one sequence of 40 tokens and one head of 64 elements:

# %% tags=["nbval-ignore-output"]
from collections import Counter

one = pool_with([40], block_size=16, num_kv_heads=1, head_size=64, on="cpu")
length = torch.tensor([40], dtype=torch.int32)
inputs = (torch.ones(1, 1, 64), *one.kv_cache[0], one.block_table, length)
out, scores = torch.empty(1, 1, 64), torch.zeros(1, 1, 40)
names = ("k_cache", "v_cache", "block_table", "scores")
with watched.trace(*names) as accesses:
    watched.paged_attention(**fields(*inputs, out=out, scores=scores))
count = Counter(access.name for access in accesses)
for name in names:
    print(f"{name:12} {count[name]:6,} accesses")
assert count["k_cache"] == count["v_cache"] == 40 * 64 and count["block_table"] > 40

# %% [markdown]
# Keys and values are read once each, as they must be. The rest is overhead. The kernel looks
# into the block table for each token in pass 1, and in pass 2 for each token *and each
# element*: 64 times as often. The scores are written and read several times over, and between
# the passes all threads wait for each other.
#
# The online softmax of lesson 03 needs no second pass: it can take in the values as it goes,
# in one walk through the blocks. That is one of the steps of the next lesson, but not the
# first.
#
# ## What you built
#
# You built a kernel that reads keys and values in place, through the block table, for any
# batch of decodes, in three formats and for any context length. Its launcher does without
# PyTorch's headers, so a build takes less than a fifth of the time. And you have the habit of
# asking which thread reads what, and which waits for which.
#
# ## Ask yourself
#
# <details><summary>Why does each sequence and head get its own thread block, and not a thread
# or the whole grid?</summary>
#
# Its threads have to work together: they share the query and the scores, and need one maximum
# and one sum. That takes shared memory and barriers, which exist only within a thread block.
# One thread would have to do all the work alone.
# </details>
#
# <details><summary>Where is the indirection of paging in the kernel, and what does it
# cost?</summary>
#
# In one line of cache_offset: the entry of the block table. It is one more read, of 4 bytes.
# In pass 1 there is one for each token, next to a key of several hundred bytes. In pass 2
# there is one for each token and element, as the count above shows. That is a weakness of this
# kernel, and lesson 07 fixes it. The arithmetic stays the same.
# </details>
#
# <details><summary>Why is the query in shared memory, but a key is not?</summary>
#
# All 128 threads use the query, for every token. A key is used by one thread, once: a detour
# through shared memory would only take longer.
# </details>
#
# <details><summary>A colleague deletes the second barrier of block_reduce. All results stay
# right. Is it needed?</summary>
#
# Yes. Without it, a thread in the next call may overwrite the warps' results while another
# still reads those of this call. It is luck that this has not happened so far. Checked mode
# reports it in the first run.
# </details>
#
# <details><summary>The launch asks for 60 KiB of dynamic shared memory, without
# cudaFuncSetAttribute. What happens, and who notices?</summary>
#
# The kernel does not run at all, and the output still holds what was there before.
# cudaGetLastError() returns an error code. If the launcher drops it, nobody notices until the
# numbers look strange.
# </details>
#
# <details><summary>Why must a launcher take PyTorch's current stream?</summary>
#
# The work on one stream runs in order. Earlier work on PyTorch's stream makes the tensors. On
# another stream the kernel could start before that is done, and PyTorch could use the output
# too early.
# </details>
#
# <details><summary>With fp16 caches, why add up in float?</summary>
#
# A float16 has 11 binary digits. A sum of a thousand products would lose the small ones.
# Reading 16 bits saves memory traffic, which is what a decode waits for. The additions cost
# next to nothing.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - NVIDIA, *CUDA C++ Programming Guide*: “Programming Model” for grids, thread blocks, warps
#   and clusters; “Cooperative Groups”; “Synchronization Functions” and “Warp Shuffle
#   Functions” in the chapter on C++ language extensions.
# - NVIDIA, *CUDA C++ Best Practices Guide*: “Coalesced Access to Global Memory”.
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): section
#   5.1 for kernels that read through the block table.
# - PyTorch's documentation, `torch.utils.cpp_extension.load_inline`.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [07 · A fast kernel](07_fast_kernel.ipynb): the same kernel, one idea at a time,
# each of them measured.
