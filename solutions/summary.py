# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The whole course on one page
#
# There is nothing to build here. This page puts the twelve lessons together: one picture, one
# run, the ideas, the tensors, and what was measured. Come here when you want to look something
# up. The words are in the [glossary](glossary.ipynb). **It takes** ten minutes.
#
# PICTURE opening
#
# Sequence A has ten tokens. They fill two blocks and half of a third. The block table says
# where these blocks are in the pool. Attention goes through the table, block by block, and
# puts the parts together.

# %%
from lessons_lib import open_lesson, show_progress

draw = open_lesson("summary")

# %% [markdown]
# ## In one run
#
# Three prompts, a real model, blocks of four slots, and at most 16 tokens a step. You built
# all of it.


# %%
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.tiny_qwen3.tasks import decode, encode


def show_step(engine, scheduled):
    """Prints a step in one line: each request's number of tokens, and its blocks."""
    parts = [
        f"{request.id}: {num_tokens} in {engine.manager.blocks_of(request.id)}"
        for request, num_tokens in scheduled
    ]
    print("   ".join(parts))


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
# ## In twelve sentences
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
# | A prompt waits for arithmetic, so its kernel multiplies whole tiles on tensor cores, and leaves out what the causal edge hides. | [09](09_prompt_kernel.ipynb) |
# | A GPU must not wait for Python, so a step is recorded, moves on by itself, and is started before the host knows the last one's tokens. | [10](10_keep_the_gpu_busy.ipynb) |
# | Several GPUs share each layer: one weight is cut by rows and the next by columns, and the ranks add up once for the two. | [11](11_beyond_one_gpu.ipynb) |
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
from lessons_content.lesson_10.bench import fast_engine_runs
from lessons_content.lesson_07.bench import ladder as ladder_bench
from lessons_content.lesson_08.bench import serving_runs

run = ladder_bench.recorded()[0]
origin = f"one {run.card}, {run.date}, by {run.command_today}"
print(f"Decoding 64 sequences of 1,024 tokens on {origin}:")
rows = run.rungs("gqa_b64_c1024")
for row in (rows[0], rows[3], rows[7]):
    print(f"  {row.backend}, {row.title}: {row.milliseconds * 1000:,.0f} µs")
other = run.flashinfer_row("gqa_b64_c1024")
way, time = other.backend.removeprefix("FlashInfer "), f"{other.milliseconds * 1000:,.0f} µs"
print(f"  FlashInfer {run.flashinfer}, by {way}, the fastest of its ways: {time}")

run = fast_engine_runs.recorded()[0]
print(f"Serving ({run.model}) on one {run.card}, {run.date}, by {run.command_today}:")
for row in run.rows:
    name = {0: "lesson 08's engine", 6: "with all parts of lesson 10"}.get(len(row.parts))
    if name:
        print(f"  {row.trace}; {name}: {row.tokens_per_second:,.0f} tokens a second")

run = next(run for run in serving_runs.recorded() if run.device == "cpu")
print(f"Serving {run.num_requests} requests on a CPU ({run.card}), {run.date},")
print(f"by {run.command_today}:")
servers = {
    "lesson 08's engine": run.ours,
    "generate, its best batches": run.best("generate, "),
}
for name, row in servers.items():
    print(f"  {name}: {row.tokens_per_second:,.0f} useful tokens a second")

# %% [markdown]
# ## What you have done

# %% tags=["nbval-ignore-output"]
show_progress()

# %% [markdown]
# ## A last word
#
# We asked SmolLM2, on lesson 08's engine, for a short wish for somebody who has just finished a
# course. It said:
#
# > I'm so glad you're enjoying your new skills! I'm sure you'll find a lot to be grateful for in
# > this world.
