# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09 · The whole course on one page
#
# There is nothing to build here. This page puts the nine lessons together: one picture, one
# run, the ideas, the tensors, what was measured, and the words. Come here when you want to
# look something up. **It takes** ten minutes.

# %%
try:
    import lessons_bench.ladder
    import lessons_bench.serving_runs
    import lessons_draw.whole
    from lessons_lib import progress_bar
    from lessons_lib.checks import exercises_of
    from paged_attention.engine.checkpoint import load_model
    from paged_attention.engine.engine import Engine
    from paged_attention.tiny_qwen3.tasks import decode, encode
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}. Close this, and open the course with: make lab"
    ) from None

# %% [markdown]
# ## In one picture
#
# Sequence A has ten tokens. They fill two blocks and half of a third. The block table says
# where these blocks are in the pool. Attention goes through the table, block by block, and
# puts the parts together.

# %%
lessons_draw.show(
    lessons_draw.whole.whole([5, 0, 7], num_tokens=10, num_blocks=8),
    alt=(
        "From top to bottom. Ten tokens of A in three logical blocks of four slots, the last"
        " two slots empty. The block table with 5, 0, 7 and −1. The pool of eight blocks, to"
        " which arrows lead from the table; blocks 1, 2 and 4 are B's, 3 and 6 are free. Under"
        " blocks 0, 5 and 7 a part (o, m, l) each; all three go into combine_result, from"
        " there through the rest of the model to the next token."
    ),
)

# %% [markdown]
# ## In one run
#
# Three prompts, a real model, blocks of four slots, and at most 16 tokens a step. You built
# all of it.


# %%
def show_step(engine, scheduled):
    """Prints a step in one line: each request's number of tokens, and its blocks."""
    print(
        "   ".join(
            f"{request.id}: {num_tokens} in {engine.manager.blocks_of(request.id)}"
            for request, num_tokens in scheduled
        )
    )


engine = Engine(load_model(), num_blocks=24, block_size=4, token_budget=16, history=show_step)
requests = [
    engine.add(name, encode(text))
    for name, text in (("A", "Cq7b>"), ("B", "Szebra>"), ("C", "Cblocks7>"))
]
engine.run()
for request in requests:
    print(f"{request.id}: {decode(request.prompt)} {decode(request.output)}")
assert [decode(request.output) for request in requests] == ["q7b$", "aberz$", "blocks7$"]

# %% [markdown]
# In the first step, C gets the four tokens that are left in the budget. In the second, it gets
# the rest of its prompt, along with the new tokens of A and B. A request that has ended gives
# its blocks back. Full blocks stay in the prefix cache until their room is needed, so C's last
# block is 8, and not one of A's.
#
# ## In nine sentences
#
# | the idea | lesson |
# |---|---|
# | Keys and values of past tokens are kept, but reserving room for the longest answer wastes most of it. | [00](00_start_here.ipynb) |
# | Memory is cut into blocks of equal size; a free list hands them out, and a count for each says how many use it. | [01](01_block_manager.ipynb) |
# | A block table maps a sequence's position to a slot: `block_ids[position // block_size] * block_size + position % block_size`. | [02](02_block_tables.ipynb) |
# | A softmax can be computed in parts, if each keeps its maximum m and its sum l. | [03](03_prefill.ipynb) |
# | So each block can answer by itself, and `combine_result` makes one answer out of the parts. | [04](04_decode.ipynb) |
# | Four tensors describe any mix of prompts, chunks and decodes, without padding. | [05](05_batched_metadata.ipynb) |
# | A kernel follows the table itself, so nothing is gathered. | [06](06_cuda_kernel.ipynb) |
# | A decode waits for memory, so a fast kernel reads each byte once, in wide loads, with all multiprocessors. | [07](07_fast_kernel.ipynb) |
# | An engine decides anew at each step which request computes what, and takes blocks back when they run out. | [08](08_serve_a_model.ipynb) |
#
# ## The tensors
#
# | name | shape | dtype | what it says |
# |---|---|---|---|
# | `k_cache`, `v_cache` | (num_blocks, block_size, num_kv_heads, head_size) | float | the pool: two halves of one allocation |
# | `block_table` | (num_seqs, max_blocks_per_seq) | int32 | the blocks of each sequence, -1 after the last |
# | `slot_mapping` | (num_tokens,) | int64 | where each new token's key and value are written |
# | `cu_seqlens_q` | (num_seqs + 1,) | int32 | where each sequence's queries begin in the row of all queries |
# | `seq_lens_kv`, `context_lens` | (num_seqs,) | int32 | how many keys each sequence has |
# | o, m, l | (…, head_size), (…), (…) | float | a part: output, maximum of the scores, sum of the exponentials |
#
# Query q of a sequence sees the keys 0 to kv_len − q_len + q. Scores are scaled by
# 1/√head_size.
#
# ## What was measured
#
# The paper (Kwon et al., 2023, figure 2) found 20.4 to 38.2 % of the cache in use in systems
# with contiguous caches, and 96.3 % with paging. These are the course's own records, each with
# its machine and its command:

# %%
run = lessons_bench.ladder.recorded()[0]
print(
    f"Decoding 64 sequences of 1,024 tokens on one {run.card}, {run.date}, by {run.command}:"
)
rows = run.rungs("gqa_b64_c1024")
for row in (rows[0], rows[3], rows[7]):
    print(f"  {row.backend}, {row.title}: {row.milliseconds * 1000:,.0f} µs")
other = run.flashinfer_row("gqa_b64_c1024")
way = other.backend.removeprefix("FlashInfer ")
print(
    f"  FlashInfer {run.flashinfer}, by {way}, the fastest of its ways:"
    f" {other.milliseconds * 1000:,.0f} µs"
)
for run in lessons_bench.serving_runs.recorded():
    print(f"Serving {run.num_requests} requests on {run.card}, {run.date}, by {run.command}:")
    for name, row in (
        ("our engine", run.ours),
        ("generate, its best batches", run.best("generate, ")),
    ):
        print(f"  {name}: {row.tokens_per_second:,.0f} useful tokens a second")

# %% [markdown]
# ## Words
#
# | word | what it means here | lesson |
# |---|---|---|
# | **all or nothing** | A call changes all that it should, or it raises an error and changes nothing. | [02](02_block_tables.ipynb) |
# | **bank** | One of the 32 parts of shared memory. Lanes that want the same one at once are served one after the other. | [07](07_fast_kernel.ipynb) |
# | **barrier** | A line in a kernel that no thread of a thread block passes until all of them have reached it. | [06](06_cuda_kernel.ipynb) |
# | **binding** | The text that makes a C++ class known to Python. | [01](01_block_manager.ipynb) |
# | **block** | A fixed number of slots for the keys and values of consecutive tokens of one sequence. Others call it a page. | [00](00_start_here.ipynb) |
# | **block id** | The number of a block in the pool. | [01](01_block_manager.ipynb) |
# | **block manager** | Hands out blocks and takes them back: a free list and a reference count for each block. | [01](01_block_manager.ipynb) |
# | **block size** | The number of slots in a block, 16 unless stated otherwise. | [02](02_block_tables.ipynb) |
# | **block table** | For each sequence the ids of its blocks, in order. Entries after the last block are -1. | [02](02_block_tables.ipynb) |
# | **causal** | A query sees its own key and those before it, and none after it. | [03](03_prefill.ipynb) |
# | **checked mode** | Running a CUDA kernel on the CPU with every access watched, so that a race or a wrong index is named by its line. | [06](06_cuda_kernel.ipynb) |
# | **chunk** | A piece of a prompt that is computed in one step, so that others need not wait for the whole prompt. | [05](05_batched_metadata.ipynb) |
# | **combine** | Making one (o, m, l) out of several, exactly, in any order. | [04](04_decode.ipynb) |
# | **context length** | How many of a sequence's tokens have their keys in the cache: `context_len`. | [06](06_cuda_kernel.ipynb) |
# | **continuous batching** | Deciding anew at every step which requests are in the batch. | [08](08_serve_a_model.ipynb) |
# | **copy on write** | A shared block is copied when one of its users wants to write into it, and not before. | [01](01_block_manager.ipynb) |
# | **decode** | A step in which a sequence has one new token, and its query reads all keys of its past. | [04](04_decode.ipynb) |
# | **dispatch** | Copying each query as many times as its request has blocks, so that each block has its query beside it. | [04](04_decode.ipynb) |
# | **first divergence** | The first place, by layer and position, where a run differs from one that is right. | [05](05_batched_metadata.ipynb) |
# | **FlashAttention** | Attention in tiles with an online softmax, so that the scores are never stored. | [03](03_prefill.ipynb) |
# | **fork** | A second sequence with the same past: it shares the first one's blocks. | [01](01_block_manager.ipynb) |
# | **fragmentation** | Memory that is lost in holes between the pieces given out (external) or unused inside them (internal). | [02](02_block_tables.ipynb) |
# | **free list** | The ids of the blocks that are not in use. Ours is a stack. | [01](01_block_manager.ipynb) |
# | **gather** | Copying scattered blocks into one contiguous tensor. It moves bytes that a paged kernel need not move. | [04](04_decode.ipynb) |
# | **GQA** | Grouped-query attention: several query heads share one KV head. | [03](03_prefill.ipynb) |
# | **grid** | All thread blocks of one launch. | [06](06_cuda_kernel.ipynb) |
# | **head size** | The length of one head's key, value or query. | [02](02_block_tables.ipynb) |
# | **kernel** | A function for the GPU, which many threads run at once. | [06](06_cuda_kernel.ipynb) |
# | **key** | The vector of a token that queries are compared with. Each KV head has one for each token. | [00](00_start_here.ipynb) |
# | **KV cache** | The keys and values of all past tokens, kept so that they are computed once. | [00](00_start_here.ipynb) |
# | **KV head** | A head that has keys and values; one or several query heads read them. | [03](03_prefill.ipynb) |
# | **lane** | One of the 32 threads of a warp. | [06](06_cuda_kernel.ipynb) |
# | **logits** | The numbers that a model gives to all tokens of its vocabulary; the largest belongs to the likeliest next token. | [08](08_serve_a_model.ipynb) |
# | **mask** | What hides scores from a softmax: each is replaced by -inf. | [03](03_prefill.ipynb) |
# | **metadata** | The tensors that tell attention which tokens belong to which sequence, and where they are: `cu_seqlens_q`, `seq_lens_kv`, `block_table`, `slot_mapping`. | [05](05_batched_metadata.ipynb) |
# | **multiprocessor** | A part of a GPU that runs thread blocks. A large GPU has more than a hundred. | [06](06_cuda_kernel.ipynb) |
# | **mutex** | Something that only one thread can hold at a time, so that no other changes the same data meanwhile. | [01](01_block_manager.ipynb) |
# | **online softmax** | A softmax that reads the scores once, in parts, and keeps m and l up to date. | [03](03_prefill.ipynb) |
# | **padding** | Places without a token that fill a tensor up to a rectangle. | [03](03_prefill.ipynb) |
# | **PagedAttention** | Attention over keys and values that lie in blocks anywhere in the pool and are found through a block table. | [00](00_start_here.ipynb) |
# | **part** | The attention over some of the keys: (o, m, l), with o divided by l already. | [04](04_decode.ipynb) |
# | **path** | One of the ways from lessons 04 to 07 to compute paged attention, made ready for the engine. | [08](08_serve_a_model.ipynb) |
# | **pool** | The one allocation that holds all blocks. | [01](01_block_manager.ipynb) |
# | **preemption** | Taking all blocks of a running request, because there are none left; it is computed again later. | [08](08_serve_a_model.ipynb) |
# | **prefill** | Computing the tokens of a prompt, many at once. | [03](03_prefill.ipynb) |
# | **prefix sharing** | Requests that begin with the same tokens use the same full blocks, found by a chain of hashes. | [08](08_serve_a_model.ipynb) |
# | **query** | The vector of a token that is compared with the keys, to find out how much each value counts for it. | [03](03_prefill.ipynb) |
# | **race** | A result that depends on which of several threads comes first. | [01](01_block_manager.ipynb) |
# | **reference count** | How many users a block has: sequences, and in lesson 08 also the prefix cache. At 0 it is free. | [01](01_block_manager.ipynb) |
# | **request** | A prompt and what the user wants for it. While it runs, it is a sequence. | [02](02_block_tables.ipynb) |
# | **rung** | One of the kernels of lesson 07, with one more idea than the one before it. | [07](07_fast_kernel.ipynb) |
# | **scheduler** | Decides what is computed in the next step, and which requests have to wait. | [04](04_decode.ipynb) |
# | **sector** | 32 bytes of a GPU's memory, the least that a load fetches. | [07](07_fast_kernel.ipynb) |
# | **segment** | The rows of one request in a tensor of all requests. | [04](04_decode.ipynb) |
# | **sequence** | The tokens of one request, so far. | [01](01_block_manager.ipynb) |
# | **shared memory** | Memory on the multiprocessor that the threads of one thread block share. Fast and small. | [06](06_cuda_kernel.ipynb) |
# | **shuffle** | An instruction with which the threads of a warp read each other's registers. | [06](06_cuda_kernel.ipynb) |
# | **slot** | The place of one token in the pool: `block_id * block_size + offset`. | [02](02_block_tables.ipynb) |
# | **split KV** | Several thread blocks share one sequence's keys, and their parts are combined. Also called Flash-Decoding. | [07](07_fast_kernel.ipynb) |
# | **stage** | A place in shared memory for a tile that is on its way from memory. | [07](07_fast_kernel.ipynb) |
# | **step** | One call of the model, over some tokens of some requests. | [08](08_serve_a_model.ipynb) |
# | **stream** | A queue of the GPU: what is on one stream runs in order. | [06](06_cuda_kernel.ipynb) |
# | **strides** | How far apart two neighbours along each dimension of a tensor lie in memory. | [02](02_block_tables.ipynb) |
# | **swizzle** | An order of a tile's chunks in shared memory in which lanes that read together use different banks. | [07](07_fast_kernel.ipynb) |
# | **tensor core** | The part of a GPU that multiplies small matrices in one instruction. | [07](07_fast_kernel.ipynb) |
# | **thread block** | In CUDA, threads that run on one multiprocessor and can wait for each other. No relation to the blocks of the pool. | [06](06_cuda_kernel.ipynb) |
# | **tile** | The keys and values of 16 tokens, which a warp takes at once. | [07](07_fast_kernel.ipynb) |
# | **token** | A word or a part of one. A model reads and writes one after another. | [00](00_start_here.ipynb) |
# | **token budget** | How many tokens a step may compute. | [08](08_serve_a_model.ipynb) |
# | **trace** | The outputs of all layers of a run, kept to be compared. | [05](05_batched_metadata.ipynb) |
# | **value** | The vector of a token that goes into attention's weighted sum. There is one for each key. | [00](00_start_here.ipynb) |
# | **warp** | 32 threads that execute together and can exchange registers. | [06](06_cuda_kernel.ipynb) |
# | **waste** | Slots that are taken and hold no token. | [00](00_start_here.ipynb) |
# | **wave** | The thread blocks that run at the same time. When there are more blocks than places, another wave follows. | [07](07_fast_kernel.ipynb) |
# | **workspace** | Memory that a kernel is given for intermediate results. | [06](06_cuda_kernel.ipynb) |
#
# ## What you have done

# %%
for lesson in ("00", "01", "02", "03", "04", "05", "06", "07", "08"):
    assert exercises_of(lesson)
    progress_bar(lesson)
