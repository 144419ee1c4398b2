# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · Keep the GPU busy
#
# **You build** the parts that let lesson 08's engine keep a GPU busy, one at a time: recorded
# steps, a state that moves on by itself, a plan that is made on the device, a sampler for the
# whole batch, and a host that is one step ahead. Before each part you predict what
# it will gain. Then you see what it did gain, and why the two differ.
#
# PICTURE opening
#
# **You need** lessons [07](07_fast_kernel.ipynb) and [08](08_serve_a_model.ipynb). Words that
# you meet again are in the [glossary](glossary.ipynb). You do not need a GPU: without one, you
# count what the host does, and see recorded times. **It takes** two to three hours.

# %%
from lessons_lib import build_cuda, check, hint, open_lesson, solution

draw = open_lesson("10")

# %% [markdown]
# The upper two lanes are lesson 08's engine. You see one decode step of 64 sequences, and the
# beginning of the next. The host *schedules* (it decides what the step computes), *launches*
# (it starts the kernels) and *completes* (it chooses the tokens and hands them out). The GPU
# works now and then: a column is as high as the share of the time in which it works. Python
# starts one small kernel after another, and the GPU is done with each of them long before the
# next one comes.
#
# The lower two lanes are three such steps with the parts of this lesson, on the same axis.
# There the GPU works nearly all the time.
#
# ## What a step has to do
#
# How fast could a step be? In a decode step every weight is used, and so is every key and
# value of every context. All of these have to be read once. A model of this size computes
# little with each byte (lesson [09](09_prompt_kernel.ipynb) counts it), so reading is the
# limit. Here is the count for the shapes of Qwen3-0.6B, with numbers of 16 bits:

# %%
import torch

from lessons_content.lesson_10.bench import fast_engine as fast_engine_bench
from lessons_content.lesson_10.bench.fast_engine_runs import recorded

run = recorded()[0]
layer = 1024 * (16 + 8 + 8) * 128  # heads of queries, keys and values, of 128 numbers each
layer += 16 * 128 * 1024 + 3 * 1024 * 3072  # attention's output; gate, up and down
weights = 2 * (28 * layer + 151_936 * 1024)  # bytes; the norms' weights are too few to count
for_each_token = 2 * 28 * 2 * 8 * 128  # bytes of keys and values
for step in run.steps[::2]:  # the others are for the end of the lesson
    num_tokens = step.num_seqs * step.context
    limit = (weights + num_tokens * for_each_token) / run.read_limit / 1e6
    print(
        f"{step.num_seqs:3} sequences of {step.context} tokens: {weights / 1e9:.2f} GB of"
        f" weights, {num_tokens * for_each_token / 1e9:5.2f} GB of keys and values:"
        f" {limit:.2f} ms"
    )
    assert abs(step.limit / limit - 1) < 0.15  # the recorded contexts are a little longer
print(f"on one {run.card}, which reads {run.read_limit:,.0f} GB/s (recorded on {run.date})")

# %% [markdown]
# And this is what was recorded for the steps in the picture. (The picture was made with a
# profiler, which slows the host. The times in the first line are from a run without it.)

# %%
from lessons_content.lesson_10.bench import timeline_runs

profile = timeline_runs.recorded()[0]
timelines = {timeline.engine: timeline for timeline in profile.timelines}


def profiled(title):
    """Prints what host and GPU do in a step of an engine."""
    timeline = timelines[title]
    print(
        f"{title}: {timeline.step:.1f} ms a step, the GPU works for {timeline.gpu_time:.1f};"
        f" the host starts {timeline.launches:,.0f} things,"
        f" waits {timeline.waits:.0f} time{'s' * (timeline.waits > 1)}"
    )
    does = (
        f"{what} for {timeline.host_time(what):.1f} ms" for what in ("launches", "completes")
    )
    print(f"in the profile of a step the host {' and '.join(does)}")


profiled("lesson 08")
assert timelines["lesson 08"].step > 10 * run.steps[0].limit

# %% [markdown]
# The kernels are not what takes so long. The host starts kernels and copies, one after
# another. 34 milliseconds for 1,841 starts are 18 microseconds for each, whatever the kernel
# has to do: Python calls PyTorch, which looks at the arguments, chooses a kernel and hands it
# to the driver. Until the next one comes the GPU has nothing to do. And where the host needs a
# number from the GPU, such as a token, it *waits* until the GPU has computed it.
#
# You need no GPU to count the starts. Here is the same engine with the small model of lesson
# 08. `StartCounter` counts what the host starts:

# %%
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.graph import StartCounter
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import decode, encode

torch.set_num_threads(1)
torch.manual_seed(10)
model = load_model()  # the small model of lesson 08, with four layers
options = {"token_budget": 512, "block_size": 4, "num_blocks": 600, "max_num_seqs": 32}


def count_starts(engine, num_seqs=32):
    """Counts what the host starts in one step, in which num_seqs sequences decode."""
    params = SamplingParams(max_new_tokens=30, ignore_end=True)
    for number in range(num_seqs):
        engine.add(number, encode("Cq7b4mxy>"), params)
    for _ in range(3):
        engine.step()
    with StartCounter() as counter:
        engine.step()
    return counter.count


starts = {"lesson 08": count_starts(Engine(model, path="batched", **options))}
print(f"{starts['lesson 08']} starts in a step of lesson 08's engine, with four layers")

# %% [markdown]
# There are two ways out: start fewer and larger things, and do not let the GPU wait for an
# answer from the host. This lesson does both. You will see the number above shrink.
#
# ## Recorded steps
#
# From step to step, a decode does the same operations in the same order. Only the numbers
# differ. So record the operations once, and then replay all of them with a single start. On an
# NVIDIA GPU the recording is called a **CUDA graph**. It holds each kernel with its arguments,
# and the arguments are addresses in memory.
#
# Without a GPU, `capture` records with a stand-in. It writes down which operations PyTorch
# runs, on which tensors, and runs them again on the very same tensors. A graph and the
# stand-in have the same two rules. Here is the first:

# %%
from paged_attention.engine.fast.graph import GraphError, capture

numbers, doubled = torch.tensor([1, 2, 3]), torch.zeros(3)
graph = capture(lambda: doubled.copy_(numbers * 2), numbers.device)

numbers.copy_(torch.tensor([10, 20, 30]))  # other contents of the same tensor
graph.replay()
print("written into the tensor: ", doubled.tolist())

numbers = torch.tensor([7, 7, 7])  # another tensor under the same name
graph.replay()
print("replaced by another one: ", doubled.tolist())
assert doubled.tolist() == [20, 40, 60]

# %% [markdown]
# The graph knows addresses, and no names. What is new in a step has to be written into the
# tensors that were there when it was recorded. The second rule:

# %%
try:
    capture(lambda: doubled[: int(numbers[0])].sum(), numbers.device)
except GraphError as error:
    print(error)

# %% [markdown]
# To slice up to `numbers[0]`, Python has to know that number. So it would have to wait for the
# GPU, read it, and decide how to go on. A recording has no Python in it: what was decided
# while it was recorded is decided for ever. The same goes for an `if` on a tensor, for
# `tolist()`, and for a shape that depends on numbers.
#
# Shapes are decided too. So each batch size needs its own recording. A batch of 13 can run in
# a step that was recorded for 16, with three places of padding. It takes the time of 16. But
# recording takes time, too. Which sizes are worth it?
#
# ### Exercise 10.1: which batch sizes to record

# %% exercise="10.1"
# INCLUDE paged_attention/engine/fast/graph_sizes.py graph_sizes


# %% check="10.1"
check("10.1", graph_sizes)

# %%
for most in (64, 256):
    sizes = graph_sizes(most)
    batches = range(1, most + 1)
    padding = [min(size for size in sizes if size >= n) - n for n in batches]
    print(
        f"up to {most:3} sequences: {len(sizes):2} recordings, {max(padding)} places of"
        f" padding at most, {sum(padding) / most:.1f} on average"
    )

# %% [markdown]
# Matrix units multiply rows eight or sixteen at a time anyway, so a few places of padding cost
# little.
#
# ### The tensors of a step
#
# Next: what does a decode step read? The engine keeps it in a `StepState`, in tensors that are
# made once. `table` is the block table with all sequences, and `block_size` the tokens of a
# block. These are the others:

# %%
import inspect

from torch import Tensor

from paged_attention.engine.fast.state import PADDING, StepState

print(inspect.cleandoc(StepState.__doc__))

# %% [markdown]
# ### Exercise 10.2: write into the tensors
#
# You write a method of `StepState`. It fills `tokens`, `positions`, `slots`, `context_lens`
# and `block_table`. The other tensors are for the next section and stay as they are.
# (`last_tokens` has one place more, for padding.)
#
# All these tensors are on one device, `self.table.device`, and the arguments are lists on the
# host. `.item()`, `.tolist()`, `int()` or an `if` on a tensor of the GPU makes the host wait for
# it, so do without. The check finds them. Places from `size` on stay as they are. And mind the
# types: block ids are int32 and slots are int64, because a large pool has more slots than an
# int32 can count.
#
# Padding needs care. It goes through all layers, as the sequences do, and at each layer its
# keys and values are written somewhere. Slot 0 is a slot of block 0, and that may belong to
# some request. So padding gets the slot -1, and the kernel that writes keys leaves it out. Its
# context has no tokens, so attention reads nothing for it. And where there is padding in this
# step, there may have been a sequence in the last one: what it left in the tensors has to go.
#
# `send` and `send_into` bring numbers from Python to the device, and the host does not wait
# until they are there. They copy from *pinned* memory. The operating system may not move it,
# so the device can fetch it by itself:

# %%
# INCLUDE paged_attention/transfer.py send


# INCLUDE paged_attention/transfer.py send_into


# %% exercise="10.2"
# INCLUDE paged_attention/engine/fast/state.py StepState.fill


# %% check="10.2"
check("10.2", fill)

# %% [markdown]
# Your functions go into the engine. From here on, its newest part gives an engine its name:
# *+ graphs* is lesson 08's engine with recorded steps. `judge` checks whether it still gives
# the same tokens as lesson 08's. There are greedy requests and requests whose tokens are drawn.
# They come in two waves, so that batches grow and shrink.

# %%
StepState.fill = fill
parts_of = fast_engine_bench.engines()  # each has one part more than the one before
PROMPTS = ["?ab>", "a1b2?a>", "a1b2c3d4?c>", "Sbca>", "Cq7b4mxy>", "a1b2c3d4e5f6?e>"]


def engine_with(title, **changes):
    """Makes an engine with the parts up to `title`, and with your batch sizes."""
    given = options | {"sizes": graph_sizes(options["max_num_seqs"])} | changes
    return fast_engine(model, parts_of[title], **given)


def serve(engine):
    """Serves each prompt twice, once with drawn tokens. Returns all tokens."""
    requests = []
    for number, text in enumerate(PROMPTS * 2):
        drawn = {"temperature": 1.5, "top_p": 0.9, "seed": number} if number % 2 else {}
        params = SamplingParams(max_new_tokens=3 + 2 * number, ignore_end=True, **drawn)
        requests.append(engine.add(number, encode(text), params))
        if number == 5:
            for _ in range(4):
                engine.step()
    engine.run()
    return [request.output for request in requests]


expected = serve(Engine(model, path="batched", **options))


def judge(title):
    """Compares tokens with lesson 08's, and prints what the host starts in a step."""
    assert serve(engine_with(title)) == expected
    starts[title] = count_starts(engine_with(title))
    print(f"{title}: the same tokens; {starts[title]} starts in a step", end="")
    print(f" ({starts['lesson 08']} in lesson 08)")


judge("+ graphs")

# %% [markdown]
# Three things are left to start: the copies into the tensors, the whole recorded step, and the
# choice of 32 tokens, one by one.
#
# **Predict.** The records have a run of 64 requests, with prompts of 143 to 1,013 tokens and
# 128 new tokens for each. On their card, lesson 08's engine serves it at 1,455 tokens a
# second. How many tokens a second will it be with recorded steps?
#
# <details><summary>A way to work it out</summary>
#
# The GPU works for 6.7 of 34 milliseconds. If recorded steps removed all waiting, an engine
# could be 34 / 6.7 times as fast, so about five times. But look at what has to be recorded:
# the attention too. Rung 7 of lesson 07 wants a plan from the host, made for the lengths of
# this step. In a recorded step the lengths are different each time.
# </details>

# %% tags=["nbval-ignore-output"]
trace = run.rows[0].trace
rates = {row.engine: row.tokens_per_second for row in run.rows if row.trace == trace}
titles = list(rates)
measures_here = torch.cuda.is_available()
if measures_here:
    large = fast_engine_bench.random_model()
    requests = fast_engine_bench.traces(large.config.vocab_size)[0]


def measured(title):
    """Prints the recorded rate, what the part gained, and, with a GPU, the rate here."""
    before = titles[titles.index(title) - 1]
    gain = rates[title] / rates[before]
    print(f"{title:11} {rates[title]:7,.0f} tokens/s, {gain:.2f} times {before}")
    if measures_here:
        here = fast_engine_bench.serve(
            large, requests, title, parts_of[title], turns=1, expected=None
        )[0]
        print(f"{'here':11} {here.tokens_per_second:7,.0f} tokens/s")
        assert not here.reason or "compute capability" in here.reason


print(f"{trace}; one {run.card}, {run.date}")
measured("+ graphs")

# %%
profiled("+ graphs")
draw.host_and_gpu(["lesson 08", "+ graphs"])

# %% [markdown]
# **Why they differ.** The GPU waits much less now, but it computes more slowly: for 25.9
# milliseconds of a step, where it was 6.7. The only attention that we have without a plan is
# lesson 06's kernel, with a thread block for each whole context. It fits any lengths, so it
# can be recorded, and on long contexts it is several times slower. We have exchanged one limit
# for another. The plan comes later; first the host.
#
# ## The state stays on the device
#
# `fill` sends numbers to the device that the device could have known. The position of a new
# token is one more than the last one. Its slot follows from the position, through the block
# table. And the token itself was computed on the device in the step before, went to the host,
# and now comes back. So let a small kernel do it, at the beginning of the recorded step. The
# host then sends one thing: which sequences are in the batch, if they are not those of the last
# step. And when a sequence begins a new block, it sends that block's id into the table.
#
# ### Exercise 10.3: one token on
#
# `lengths` and `last_tokens` belong to all sequences, by their rows of the block table. The
# others belong to the batch, by place. Each place has a thread block of 128 threads. Some of
# these may still read a number when another one writes it; checked mode will tell you.

# %% exercise="10.3" language="cuda"
advance = r"""
// INCLUDE engine/advance.cu
"""

# %% check="10.3"
check("10.3", advance)

# %% [markdown]
# `fill` and your kernel should agree, step after step. Here are three sequences and a place of
# padding, on the same table:

# %%
chance = torch.Generator().manual_seed(8)
# 4 sequences, each with 6 blocks of 4 tokens
table = torch.randperm(24, generator=chance).view(4, 6).int()
on_host, on_device = (StepState(table, 4, "fast") for _ in range(2))
on_device.kernels = build_cuda(advance, target="checked")

rows, tokens, lengths = [2, 0, 3], [11, 12, 13], [7, 12, 0]
# What the engine does before a first step: how long they are, what they feed, and who is in.
on_device.lengths[rows] = torch.tensor(lengths).int()
on_device.choose(torch.tensor(rows), torch.tensor(tokens))
on_device.set_rows(rows, 4)
for step in range(9):
    lengths = [length + 1 for length in lengths]
    on_host.fill(rows, tokens, lengths, 4)
    on_device.advance(4)
    for name in ("tokens", "positions", "slots", "context_lens"):
        assert torch.equal(getattr(on_host, name), getattr(on_device, name)), name
print("after nine steps: positions", on_device.positions.tolist(), end="")
print(", slots", on_device.slots.tolist())

# %%
judge("+ state")

# %% [markdown]
# **Predict.** The host has less to do between two steps. In the picture above, how much can
# that gain?

# %% tags=["nbval-ignore-output"]
measured("+ state")

# %% [markdown]
# It gains next to nothing: the GPU is the slow one now, so what the host saves does not show.
# It will, once the attention is fast.
#
# ## The plan is made on the device
#
# Rung 7 of lesson 07 lays the tiles of all rows end to end and cuts the line into equal
# shares. The host did that, in Python, from the lengths. Here the lengths are on the device.
# So the plan has to be made there, by a kernel, as **rung 9** does it. And a recorded step can
# hold it, if the number of its thread blocks never changes: there is one for each
# multiprocessor, and some may find no work.
#
# The plan is made once for all layers of a step. It begins with the sum of the tiles before
# each sequence. With it, any thread block can find out for itself what its share is. It need
# not know what the others do. These are the two things that it asks (in this section, a block
# is a thread block):

# %%
from lessons_lib.cuda.inline import show_lines

show_lines("ladder/plan_rows.cuh", "struct Rows", "};")
print()
show_lines("ladder/plan_rows.cuh", "struct Division", "};")

# %% [markdown]
# A row has the tiles of a sequence, for one group of its KV heads: with several `groups` a
# sequence has several rows. Each row has at least one tile. `last_not_above` is a binary
# search.
#
# ### Exercise 10.4: a block finds its share
#
# All tiles are counted from the beginning of the line. A row that is cut leaves parts, which
# have to be combined. So a block has to know whether its first row and its last row also have
# tiles of other blocks. Block b's share ends where that of b + 1 begins, and
# `division.begin(rows, num_blocks)` is the end of the line. `share_of` is only called when
# `num_blocks` is 1 or more.

# %% exercise="10.4" language="cuda"
share_of = r"""
// INCLUDE ladder/plan_share.cuh
"""

# %% check="10.4"
check("10.4", share_of)

# %% [markdown]
# Rung 9 with your function in it makes a plan for four sequences, with five thread blocks. The
# host reads the plan here only to print it.

# %%
from paged_attention.ladder import Shape
from paged_attention.attention.metadata import BatchMetadata, attn_paged_torch
from paged_attention.ladder.rungs import rung_texts
from paged_attention.ladder.self_planned import SelfPlannedDecode

texts = rung_texts(9, Shape(torch.float16, 64, 2, 16)) | {"ladder/plan_share.cuh": share_of}
library = build_cuda(*texts.values(), names=tuple(texts), target="checked")
sizes = {"num_q_heads": 4, "num_kv_heads": 2, "head_size": 64, "block_size": 16}
planned = SelfPlannedDecode(
    8, **sizes, dtype=torch.float16, device="cpu", library=library, num_blocks=5
)
context_lens = torch.tensor([40, 700, 16, 250]).int()
planned.plan(context_lens)
items = planned.buffers["items"].tolist()
for block in range(5):
    found, item = [], items[block]
    while item[0] >= 0:
        sequence, _, begin, end, part, _, _, following = item
        found.append(f"tokens {begin} to {end - 1} of sequence {sequence}")
        found[-1] += " (a part)" if part >= 0 else ""
        item = items[following] if following >= 0 else [-1]
    print(f"block {block}:", ", then ".join(found) or "nothing to do")

# %% [markdown]
# Sequence 1 is cut into three parts. Blocks do their parts first, since other blocks may wait
# for them. Block 4 has nothing to do: four fifths of the blocks keep the memory busy, and more
# would only wait. So the plan takes four of these five.
#
# Now the attention by this plan, for these lengths and for others. The kernels are started in
# the same way each time, whatever the lengths are:

# %%
q = torch.randn(4, 4, 64).half()
k_cache, v_cache = torch.randn(2, 200, 16, 2, 64).half()
block_table = torch.randperm(200, generator=chance)[:184].view(4, 46).int()
no_slots = torch.zeros(0, dtype=torch.int64)
for lens in ([40, 700, 16, 250], [1, 16, 17, 33], [512, 512, 512, 512]):
    context_lens.copy_(torch.tensor(lens))
    planned.plan(context_lens)
    out = planned(q, k_cache, v_cache, block_table)
    metadata = BatchMetadata(torch.arange(5).int(), context_lens, block_table, no_slots)
    exact = attn_paged_torch(q.double(), k_cache.double(), v_cache.double(), metadata)
    assert (out - exact).abs().max() < 0.004
    print(f"context lengths {lens}: less than 0.004 from float64")

# %% [markdown]
# **Predict.** With this attention in the recorded step, how many times as fast will it be?
#
# <details><summary>A way to work it out</summary>
#
# A step takes about 30 milliseconds now. In lesson 08's engine, whose attention is rung 7 of
# lesson 07, all kernels together took 6.7. So the GPU should need about 7 milliseconds for a
# step. But the host also does something before and after each recorded step, and now that will
# show.
# </details>

# %% tags=["nbval-ignore-output"]
measured("+ plan")

# %%
profiled("+ plan")
draw.host_and_gpu(["+ graphs", "+ plan"])

# %% [markdown]
# **Why they differ.** The kernels take as long as they should. But between two recorded steps
# the GPU waits again, longer than you may have thought: for the tokens. More on that below.
#
# (The judge does not run here: rung 9 takes numbers of 16 bits, and this small model has 32,
# so that all engines give exactly the same tokens.)
#
# ## Between the products
#
# First to the kernels: there are many small ones in a step. Look at one layer. Its products
# of matrices are large. Between them there is little to do: norms, the rotation of queries and
# keys by their positions, a sum, a product of two halves. In the code of the library
# transformers each of these is several operations. Each reads all numbers from memory
# and writes them back, and each is a start and an end at which multiprocessors are idle.
#
# Fused by hand, three kernels do all of it: `add_norm` adds the residual and norms the sum,
# `rotate` norms and rotates queries and keys and writes keys and values into the pool, and
# `gate` multiplies the two halves. And products with the same input become one: queries, keys
# and values have one weight, gate and up have another. This is the whole model then
# (`product` is PyTorch's for now. `sum_over_ranks` is for lesson
# [11](11_beyond_one_gpu.ipynb), and does nothing on one GPU):

# %%
from pathlib import Path

import paged_attention.engine.fast.layers as layers

source = Path(layers.__file__).read_text().split("\n")
first = next(n for n, line in enumerate(source) if "residual, x = embedding" in line)
last = next(n for n, line in enumerate(source) if "self.head, out=out" in line)
print("\n".join(line[4:] for line in source[first : last + 1]))

# %% [markdown]
# Count what the host has to start for a step of one sequence, when nothing is recorded: first
# with transformers' layers, then with these.

# %%
from dataclasses import replace

one_by_one = replace(parts_of["+ layers"], graphs=False)
for title, parts in (
    ("transformers' layers", replace(one_by_one, layers=False)),
    ("fused layers", one_by_one),
):
    num_starts = count_starts(fast_engine(model, parts, **options), num_seqs=1)
    print(f"{title}: {num_starts} starts in a step")

# %%
judge("+ layers")

# %% [markdown]
# **Predict.** How many times as fast will the engine be with these layers in its recorded
# steps?
#
# <details><summary>A way to work it out</summary>
#
# A step takes 11.3 milliseconds now. The GPU works for 6.8 of them and waits for 4.5. Suppose
# the wait stays, and the kernels take no longer than the step's limit, 2.0. That makes 6.5
# milliseconds, so the engine can be about 1.7 times as fast.
# </details>

# %% tags=["nbval-ignore-output"]
measured("+ layers")

# %% [markdown]
# **Why they differ**, or hardly do. Two errors cancel. The kernels take more than the limit:
# in the next profile the GPU works for 3.1 milliseconds. But the wait is shorter, too. A
# recorded step of 1,830 kernels takes the host 2.8 milliseconds to start. With fewer than 300
# kernels it takes 0.8.
#
# The host starts as many things as before, since all of this is inside the recording. In the
# recorded run the graphs also take much less memory:

# %%
for row in run.rows:
    if row.trace == trace and row.engine in ("+ plan", "+ layers"):
        print(f"{row.engine}: the graphs take {row.graph_bytes / 2**20:.0f} MiB")

# %% [markdown]
# Graphs keep what the operations write in between, and there is less of it.
#
# ## Tokens for the whole batch
#
# What does the host still do between two steps? It gets a row of logits for each sequence, and
# chooses a token from each, one by one: `sample` of lesson 08. For that it waits until the GPU
# is done, and then the GPU waits for it. On the device all rows can be done at once. At
# temperature 0 that is one `max`, and the recorded step holds it. For drawn tokens, all rows
# go through the same operations, whatever their parameters are. The random numbers come from
# seed and position, as in lesson 08, so a request's tokens do not depend on who is in the
# batch.
#
# ### Exercise 10.5: draw for the whole batch
#
# The steps are those of [exercise 8.7](08_serve_a_model.ipynb). Divide by the temperature,
# sort with the lowest of equal tokens first, keep the first `top_k`, take the softmax, and
# keep the first that reach `top_p` together. Then a row's number, which is what `draw_number`
# gave, times the sum of what has stayed: the token is the first at which the running sum
# reaches that. As `sample` does, compute in float64: in float32 the tokens would not be the
# same.
#
# Nothing may be read on the host here. That rules out a slice up to `top_k`, if `top_k` is a
# tensor: Python would have to know its number. What can you do instead with the tokens that
# do not count? All tensors are on one device, and that need not be the CPU.

# %% exercise="10.5"
# INCLUDE paged_attention/engine/fast/sampler.py draw_tokens


# %% check="10.5"
check("10.5", draw_tokens)

# %%
import paged_attention.engine.fast.sampler as sampler

sampler.draw_tokens = draw_tokens
judge("+ sampling")

# %% [markdown]
# **Predict.** How many times as fast is an engine that does not choose the tokens on the host?
#
# <details><summary>A way to work it out</summary>
#
# With 64 tokens in a step and 9,330 tokens a second, a step takes 6.9 milliseconds. In the
# profile of *+ plan* the host needs 2.4 of them to *complete* the step: it chooses 64 tokens,
# and hands them out. Without that, 4.5 milliseconds are left. So it will be about 1.5 times as
# fast.
# </details>

# %% tags=["nbval-ignore-output"]
measured("+ sampling")

# %% [markdown]
# **Why they differ.** The tokens are still handed out, to one request after another. That takes
# 0.4 milliseconds, and is all that is left of completing a step.
#
# Now the host has next to nothing to start. But one thing has not changed. It waits for the
# tokens of a step, and only then does it schedule the next one: which requests go on, which of
# them get a block, and which have to give way. While it does that, the GPU has nothing to do:

# %%
profiled("+ sampling")

# %% [markdown]
# ## The host, a step ahead
#
# To schedule a step, does the host have to know the tokens of the one before? Look at
# `schedule`: it needs to know how many tokens each request has, and not which ones. The tokens
# go from step to step on the device. So the host can start the next step at once, and read the
# tokens of the last one while the GPU computes. This is a step of the engine, without what it
# does when a step fails:

# %%
from paged_attention.engine.fast.ahead import PENDING, AheadEngine, Scheduled

source = inspect.getsource(AheadEngine.step).split("\n")
first = next(n for n, line in enumerate(source) if "late = self.in_flight" in line)
last = next(n for n, line in enumerate(source) if "return self.complete_late" in line)
lines = [line[12:] for line in source[first : last + 1] if "before =" not in line]
print("\n".join(lines))

# %% [markdown]
# `in_flight` are the requests of the step that the device computes, and their tokens on the
# way. `as_if_complete` lets the scheduler see these requests as they will be when that step is
# complete. Afterwards it takes that back, because nothing is complete yet.
#
# ### Exercise 10.6: what is not there yet
#
# A token that only the device knows is a **pending token**. In a request's list its place is
# taken by `PENDING`, which is -1. The device never sees this number: it has the real one. (A
# request that was forked comes with `num_tokens` 0: its tokens are computed already.)

# %% exercise="10.6"
# INCLUDE paged_attention/engine/fast/ahead.py expect_tokens


# %% check="10.6"
check("10.6", expect_tokens)

# %% [markdown]
# ### Exercise 10.7: the late end
#
# Now and then a request ends with the model's end token. When the host reads that token, the
# next step is under way, and the request is in it. That step computes one token too many, and
# nobody may ever see it. The same is true of a request that was cancelled in the meantime, or
# had to give its blocks back.
#
# When no request of the step is left, the result is an empty list, and the host does not wait.
# `_complete` takes the tokens as a tensor, which is what `tokens.wait()` returns. The list
# `scheduled` belongs to the caller and stays as it is.

# %% exercise="10.7"
# INCLUDE paged_attention/engine/fast/ahead.py AheadEngine.complete_late


# %% check="10.7"
check("10.7", complete_late)

# %% [markdown]
# Watch it at work. Each line is a step that is started, with its requests. The number in
# brackets says how many tokens a request has then, with the one that only the device knows. On
# the right are the tokens of the step before, as the host gets them.

# %%
import paged_attention.engine.fast.ahead as ahead

ahead.expect_tokens = expect_tokens
AheadEngine.complete_late = complete_late


def show_start(engine, scheduled):
    names = (f"{request.id} ({len(request.tokens)})" for request, _ in scheduled)
    print(f"{'start ' + ', '.join(names):34}", end="")


watched = engine_with("+ ahead", history=show_start)
for name, text, most in (("A", "Cq7b>", 2), ("B", "Szeb>", 64)):
    watched.add(name, encode(text), SamplingParams(max_new_tokens=most))
while watched.scheduler.has_work():
    new = [f"{request.id}: {decode([token])}" for request, token in watched.step()]
    print("got", ", ".join(new) or "nothing yet")

# %% [markdown]
# A may have two tokens, so the host knows beforehand that the second is the last, and A is not
# in the next step. B ends with the end token `$`. When the host reads it, B is already in one
# more step. The token of that step is dropped.

# %%
judge("+ ahead")

# %% [markdown]
# **Predict.** How many times as fast is an engine whose host is a step ahead?
#
# <details><summary>A way to work it out</summary>
#
# Before this part a step takes 4.2 milliseconds, and the GPU works for 3.1 of them. The host
# needs less time than the GPU. So if the two really overlap, a step takes 3.1 milliseconds:
# 1.36 times as fast. On a whole trace it is less, since there are prompts in it too.
# </details>

# %% tags=["nbval-ignore-output"]
measured("+ ahead")

# %%
profiled("+ ahead")
draw.in_turns_and_ahead()

# %% [markdown]
# Three steps of each. In the upper lanes, host and GPU take turns. In the lower ones the host
# has launched the next step before the GPU is done with this one, and then it waits for the
# tokens of this one. There is nearly no gap left.

# %% [markdown]
# ## The same tokens, whatever parts it has
#
# A part may change how a token is computed, but not which token it is. You have seen this for
# one part after another. Here each part is left out once, and the others stay:

# %%
from dataclasses import fields

for name in (field.name for field in fields(FastParts)):
    left_out = {name: False}
    if name in ("state", "sampling"):
        left_out["ahead"] = False  # it needs both: then the host need not know the tokens
    engine = fast_engine(model, replace(FastParts(), **left_out), sizes=[4, 12], **options)
    assert serve(engine) == expected
    print("without", " and ".join(left_out) + ": the same tokens")

# %% [markdown]
# The course's tests do this for any parts, with arrivals, cancels, preemption and shared
# prefixes, and they let steps fail at any place.
#
# All this is with numbers of 32 bits. With 16 bits, another attention or other layers round in
# other places. Where two tokens are nearly equally likely, that may decide between them, and
# the answers differ from there on. (In the recorded run 47 % of the tokens come before the
# first difference. Its model has random weights, so no token is much likelier than all
# others.)
#
# ## The whole ladder
#
# The upper picture has all parts, one by one. The lower one shows what a step consists of now.
# Grey is the time in which no kernel runs.

# %%
draw.ladder(run)

# %%
print(f"{'milliseconds':22}" + "".join(f"{step.name:>20}" for step in run.steps))
columns = [{"a step": s.step, "its limit": s.limit} | s.budget for s in run.steps]
for what in columns[0]:
    print(f"{what:22}" + "".join(f"{column[what]:20.2f}" for column in columns))

# %% [markdown]
# A column is for the sequences of a batch and the tokens of each. (The contexts were a little
# longer than that when the steps were timed, so the limits are above those at the beginning of
# the lesson. The columns of *8 bits* are for the next section.)
#
# The GPU computes nearly all the time: the lower rows add up to about the whole step. (Two
# kernels may overlap, and a profile makes each a little longer, so the sum can even be more.)
# What is left between the step and its limit is in the kernels:
#
# - **Attention** is most of a step. With 256 sequences it reads keys and values at nine tenths
#   of the card's rate. With 64 there is too little to keep the memory fully busy.
# - The **products** of 64 rows should take no longer than reading the weights. They take about
#   twice as long, since each of them is short: it hardly begins before it ends. We have tried
#   to divide them in the way that attention is divided. That gained some time, and adding up
#   the parts took it again.
# - The rest is small, and it hardly grows with the batch.

# %% [markdown]
# ## Half the cache
#
# Most of a step is reading keys and values. With 8 bits for each of their numbers there is
# half as much to read, and the same memory holds twice the tokens. Rung 9 reads such a cache,
# as rung 8 of lesson 07 does. The kernel that writes keys and values rounds them. Chunks of
# prompts are computed from widened copies of their blocks. For the engine it is one option:

# %%
from paged_attention.tiny_qwen3.tasks import TASKS
from paged_attention.tiny_qwen3.wider import with_head_size

FP8 = torch.float8_e4m3fn
wide = with_head_size(load_model(dtype=torch.float16), 128)  # heads that rung 9 takes
memory = {"num_blocks": 64, "block_size": 16, "max_num_seqs": 16, "sizes": [16]}
twice = memory | {"num_blocks": 128, "kv_dtype": FP8}
engines = {"16 bits": fast_engine(wide, **memory), "8 bits": fast_engine(wide, **twice)}
for name, engine in engines.items():
    pool = engine.manager.kv_cache
    print(f"{name}: {pool.nbytes:,} bytes for {pool.shape[2] * pool.shape[3]:,} tokens")
assert len({engine.manager.kv_cache.nbytes for engine in engines.values()}) == 1

# %% [markdown]
# **Predict.** These numbers of 8 bits keep three bits after the leading 1. So rounding changes
# a number that is not tiny by a sixteenth at most. What will that do to the answers of the
# small model? Here are ten questions of each of its four tasks. (Without a GPU this cell takes
# a while, and so does the next.)

# %%
import numpy as np

random = np.random.default_rng(10)
pairs = [task(random, 0.05 * n) for task in TASKS.values() for n in range(10)]
for name, engine in engines.items():
    results = engine.generate([encode(prompt) for prompt, _ in pairs])
    right = sum(decode(r.output) == answer + "$" for r, (_, answer) in zip(results, pairs))
    print(f"{name}: {right} of {len(pairs)} answers are right")
    assert right >= 0.9 * len(pairs)

# %% [markdown]
# And the logits of each first new token? The host sees them if it chooses the tokens itself:

# %%
on_the_host = FastParts(sampling=False, ahead=False)


def first_logits(**given):
    """Runs the prompts of the questions, and returns the logits after each of them."""
    engine = fast_engine(wide, on_the_host, prefix_sharing=False, **given)
    rows = {}
    choose = engine.postprocess

    def keep(scheduled, logits):
        for (request, _), row in zip(scheduled, logits):
            rows.setdefault(request.id, row.float())
        return choose(scheduled, logits)

    engine.postprocess = keep
    for number, (prompt, _) in enumerate(pairs):
        engine.add(number, encode(prompt), SamplingParams(max_new_tokens=2))
    engine.run()
    return torch.stack([rows[number] for number in range(len(pairs))])


exact, rounded = first_logits(**memory), first_logits(**twice)
moved, spread = (exact - rounded).abs().mean(), exact.std(1).mean()
print(f"a logit moves by {moved:.2f} on average; the logits of a token spread by {spread:.1f}")
assert moved < 0.1 * spread

# %% [markdown]
# The logits move, and here they move too little to change many answers. Whether that is true
# of a large model and a hard question has to be measured with that model.
#
# What it gains is in the table of steps above: with 256 sequences of 850 tokens, attention
# takes little more than half of the time. With 64 of 610 the gain is smaller, because there is
# less to read, and the rest of the step is as long as before. (*Tokens and the rest* grows,
# since the queries of this bfloat16 model are converted for the kernel.)

# %% [markdown]
# ## One sequence alone
#
# Somebody who chats with a model alone is a batch of one. Keys and values are few then, and
# nearly all that a step has to read is weights: each of them, for a single row. How near does
# this engine come to the time that reading them takes?

# %%
from lessons_content.lesson_10.bench import few_rows_runs

alone = few_rows_runs.recorded()[0]


def step_times(title):
    """Prints what a step of one sequence takes, beside reading the weights."""
    for rows in alone.batches():
        row = next(row for row in rows if row.engine == title)
        if row.num_seqs == 1:
            step = 1000 / row.tokens_per_second
            limit = row.weight_bytes / alone.read_limit / 1e6
            print(
                f"{row.model:>4}: {step:.2f} ms for a token, {limit:.2f} to read the weights;"
                f" {limit / step:.0%} of the card's rate"
            )


step_times("cuBLAS")
print(f"on one {alone.card}, which reads {alone.read_limit:,.0f} GB/s (recorded {alone.date})")

# %% [markdown]
# cuBLAS is PyTorch's library of products, and it is made for many rows. A small model's
# products are over before all multiprocessors read. Larger ones do better, and still wait.
#
# ### Reads that are always under way
#
# A product of one row reads a weight, multiplies it once and adds. So there is one thing to
# do: always have reads of W under way. `kernels/engine/few_rows.cu` does it with what you know
# from lesson [07](07_fast_kernel.ipynb), copies in the background and tensor cores:
#
# - A block takes 16 rows of W. Its warps share out the columns in tiles of 128, and each warp
#   has two tiles on their way. No warp waits for another before the sums are added up.
# - There are as many warps as the shared memory has room for. All of it is a buffer for W.
# - A tensor core multiplies 16 rows of W by 8 rows of x. With one row of x, seven eighths of
#   its work is for nothing. But it has time: it waits for W anyway. And the same kernel serves
#   up to 16 sequences. With more, PyTorch's product stays.

# %%
from lessons_lib.cuda.inline import read_kernel

kernel = read_kernel("engine/few_rows.cu")
main_loop = kernel[kernel.index("  float sums[") : kernel.index("  add_up(params")]
print(main_loop)

# %% [markdown]
# On the CPU, checked mode can count what it reads. Three rows, and a weight of 64 × 512:

# %%
from paged_attention.engine.fast.few_rows import FewRows

few_rows = FewRows("checked", torch.device("cpu"), early=False)
x, w = (torch.randn(rows, 512, dtype=torch.bfloat16) for rows in (3, 64))
with few_rows.library.count("w") as counts:
    y = few_rows(x, w)
print(f"{counts.bytes_read:,} bytes of W are read, and W has {w.nbytes:,}")
exact = x.double() @ w.double().t()
assert ((y - exact).abs() <= exact.abs() / 256 + 0.001).all()
print("each sum is the exact one, rounded to 16 bits")

# %% [markdown]
# **Predict.** The small model of 0.6B gains more by this, or the large one of 8B?
#
# <details><summary>A way to work it out</summary>
#
# Look at the shares of the card's rate above. A model that reads at two thirds of the rate
# cannot become twice as fast. One that reads at a sixth of it could, if reading is what it
# waits for. But it has the same small kernels between its products, and they are no faster.
# </details>

# %%
step_times("+ few rows")
draw.rates(alone)

# %% [markdown]
# ### Kernels that begin early
#
# What is left? Look at the upper half of this picture. Each colour is a product. Between two
# of them nothing is read: a small kernel runs, and the next product begins with empty buffers.
# (A tile counts when it is used. So the peaks above the dashed line, which is the card's rate,
# are tiles that had to wait.)

# %%
draw.reads_over_time(alone)

# %% [markdown]
# The lower half has the same kernels with one change. A kernel may begin while the one before
# it still runs, as soon as there is room on a multiprocessor. (NVIDIA calls it *programmatic
# dependent launch*. It came with Hopper.) The weights do not depend on the kernel before, only
# x does. So a product asks for its first tiles of W, and only then waits:

# %%
beginning = kernel[kernel.index("  let_next_begin();") : kernel.index("  float sums[")]
print(beginning)

# %% [markdown]
# `let_next_begin` is for the kernel after this one. `wait_for_previous` returns when the kernel
# before has ended, and all before that one. Until then a kernel may read only what none of
# them writes, and write nothing. The small kernels between the products and attention begin
# early too. They have little to ask for beforehand, but so the product after them can begin.
#
# What if a kernel did not wait? It would read numbers of the step before, now and then. No
# error would say so. The course's tests compare the logits of both, bit for bit, again and
# again.

# %%
step_times("+ early")
for rows in alone.batches():
    first, *_, last = (row.tokens_per_second for row in rows)
    sequences = f"{rows[0].num_seqs} sequence{'s' * (rows[0].num_seqs > 1)}"
    print(f"{rows[0].model:>4}, {sequences}: {last / first:.2f} times as fast as with cuBLAS")

# %% [markdown]
# With all parts, the large model reads its weights at four fifths of the card's rate. The
# longest pause that is left is attention's, after the first product of each layer. With one
# sequence it has little to read, and takes its time to find out what.

# %% [markdown]
# ## Compared with others
#
# The engines to learn from next are nano-vllm and Mini-SGLang. Both are written to be read,
# and both keep a GPU busy. On one card, our engine and one of them were ready at the same time
# and served the same requests in turns, five turns each. **Predict:** how far is each
# from ours, with 64 requests and with 256?

# %%
from lessons_content.lesson_10.bench import engine_peers_runs

beside = engine_peers_runs.recorded()[0]
for row in beside.rows:
    print(
        f"{row.trace.split()[0]} requests: ours {row.our_rate:,.0f} tokens/s,"
        f" {row.peer} {row.their_rate:,.0f}; ours is {row.ratio:.2f} times as fast"
    )
print(f"on one {beside.card} (recorded on {beside.date})")

# %% [markdown]
# Mini-SGLang takes its attention from FlashInfer. nano-vllm calls flash-attn, which takes
# hours to build. Here it ran with functions of the same names, which call PyTorch for prompts
# and FlashInfer for new tokens. So this is not its rate with flash-attn itself. All requests were
# there at once, no two prompts began alike, and the weights were random. With other requests, or
# on another card, the order may differ.
#
# Look at our own rate with 64 requests: it is not the same in both comparisons. A turn takes
# less than a second there, and the machine was not equally fast all the time. So compare only
# the two engines of one line.
#
# The difference to Mini-SGLang is not large. With 256 requests, attention takes most of the
# time, and both have to read the same keys and values. Some things these engines do better than
# ours:
#
# - **nano-vllm** is the shortest: a scheduler, a block manager and a model runner, in some
#   1,400 lines. It has its layers fused by `torch.compile`, where ours has kernels written by
#   hand.
# - **Mini-SGLang** finds shared prefixes in a tree, token by token. Our cache of hashes finds
#   whole blocks only. It also cuts models across GPUs, and it answers over HTTP.
# - Both run any model that they have code for, and take their kernels from libraries. So a new
#   card or a new kind of model costs them little.
#
# What ours has is a plan on the device. Theirs make one on the host at each step, or none. And
# in ours prompts and decodes share a step, as in vLLM.
#
# ### Beside vLLM
#
# vLLM is an engine that many servers run. `torch.compile` fuses its layers. It records its steps,
# prepares them ahead of the GPU, and takes attention from FlashAttention-3. It and our engine
# served the same requests in turns, on one card. Both had the same weights and the same number of
# blocks. The models have the shapes of Qwen3's 0.6B, 4B and 8B. All requests of a line were there
# at the start. (A prompt's tokens go *in*. *Out* and *new* are those that are generated.)
#
# **Predict:** with which size is our lead largest? And with which requests is it smallest?

# %%
beside_vllm = engine_peers_runs.beside("vLLM")
for run in beside_vllm:
    print(engine_peers_runs.steadiness(run))
draw.beside(beside_vllm)

# %% [markdown]
# With one and with eight requests, most of our lead is `few rows` and `early`. Compare it with
# what they gained above: there, too, the small model gains most.
#
# With 64 requests and more, a step of new tokens has too many rows for `few rows`. With the small
# model our engine is far ahead there too, with 64 and with 512. We think that vLLM's host is the limit there, but we have
# no record of its time. What is recorded is that its turns differ: by 41 % where they differ most,
# and ours by 11 %. So take the bars of 0.6B as rough. With the larger models, both engines wait
# for the same products by cuBLAS most of the time, and our lead is small. With long prompts the two
# are level.
#
# The first new token was the same in 86 to 100 % of the requests. With random weights two tokens
# are often nearly equally likely, and the two engines round differently.
#
# These were the conditions. (`LLM` is vLLM's class for requests that are all there. Its mode 3
# lets `torch.compile` do all that it can.)

# %%
largest = beside_vllm[-1]
print(f"{largest.model}; {len(largest.rows[0].ours)} turns each; {largest.date}")
print(f"{largest.card}, driver {largest.driver}, {largest.processor}, PyTorch {largest.torch}")
print(engine_peers_runs.conditions(largest))

# %% [markdown]
# Requests seldom come all at once. Here 300 came at random times, with the small model, in two
# turns for each engine. They came at 70 and at 90 % of the rate that vLLM managed when all were
# there at the start. Ours managed more then, so these rates are 48 and 61 % of its own.
#
# vLLM was called as its server calls it: the engine is in another process, and each request waits
# for its tokens there. Ours was called in a loop, so its tokens had a shorter way. A part of the
# difference is this, and we do not know which part.
#
# The times are those to the first token, and from one delivery to the next, which may bring
# several tokens. Half of them are at most p50, and 99 of 100 are at most p99.

# %%
(arriving,) = engine_peers_runs.beside("vLLM", arrivals=True)
for row in arriving.rows:
    if row.per_second:
        print(engine_peers_runs.waits(row), end="\n\n")

# %% [markdown]
# Does that make ours the better engine? No. It is as fast or faster at the one thing that it does:
# models like Qwen3, in 16 bits, on a Hopper card. vLLM runs more than a hundred kinds of models,
# weights of 4 and 8 bits, experts, adapters, grammars and speculative decoding. It runs on cards of
# several makers, and on many machines at once. And its HTTP server is a process apart from the
# engine. Ours shares Python with the engine, so with many streams and a small model it can hold
# the engine up.

# %% [markdown]
# ## What you built
#
# - The batch sizes that are recorded, and the tensors that a recorded step reads.
# - A kernel that moves a batch one token on, and the function with which a thread block finds
#   its share of the work.
# - A sampler that chooses all tokens of a batch without the host.
# - The two functions that let the host be a step ahead: what to expect, and what to drop.
#
# ## Ask yourself
#
# <details><summary>A recorded step is replayed while the host writes the next step's rows into
# <code>rows</code>. Can the two get into each other's way?</summary>
#
# No. The copy into `rows` is work for the GPU, too. It is on the same stream, so it begins
# when the replay before it has ended. What must not change too early is the memory on the host
# from which it is copied. That is why `send_into` takes new pinned memory each time.
# </details>
#
# <details><summary>Why is the largest batch size recorded first?</summary>
#
# All recordings share one piece of memory for what is in between. If the largest one comes
# first, the piece is large enough, and the others fit into it.
# </details>
#
# <details><summary>A request is cancelled while its token is on its way. Its blocks are free
# at once, and the next request gets them. But the late step still writes into them. Is that
# safe?</summary>
#
# Yes. The late step was started before, so its writes are done before those of any later step
# on the same stream. The new request writes its own keys over them before it reads any. (And a
# slot that it has not written is never read: lesson 06 has a test with NaN for that.)
# </details>
#
# <details><summary>Why does the step too many cost so little, when a request ends with the end
# token?</summary>
#
# The batch is computed anyway, and one row more in it costs next to nothing. It would cost a
# lot if all requests were one token long.
# </details>
#
# <details><summary>Could prompts be recorded, too?</summary>
#
# Their attention could not: a recording has fixed shapes, and chunks have all lengths, after
# contexts of all lengths. But what a layer computes between two attentions depends on the
# number of tokens only. The part `pieces` records that for a few numbers, and padding fills
# a step up to the next. So the host starts one thing between two attentions, where it started
# eight. Steps of more than 2,048 tokens are not recorded: the more a step computes, the less
# of it is the start of its kernels.
#
# We measured it on one H200, in turns, with a model of the size of Qwen3-0.6B. Compilers ran on
# the same machine meanwhile. A prompt of 100 to 1,024 tokens came with every fourth step, and
# about 25 requests decoded. A step with a prompt took 5.3 ms without the part and 2.5 to 2.8 ms
# with it, in the median. Of a hundred such steps, the slowest took 19 to 27 ms without it and 6.5
# to 6.7 ms with it.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - NVIDIA, [CUDA C++ Programming
#   Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), section on CUDA graphs:
#   capture, replay, and what cannot be captured.
# - PyTorch's documentation, [CUDA
#   graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs): constraints, and
#   memory that recordings share.
# - Kan Zhu et al., *NanoFlow: Towards Optimal Large Language Model Serving Throughput*, 2024,
#   [arXiv:2408.12757](https://arxiv.org/abs/2408.12757): section 4 for scheduling a batch
#   while the one before it is computed.
# - Lianmin Zheng et al., *SGLang: Efficient Execution of Structured Language Model Programs*,
#   2024, [arXiv:2312.07104](https://arxiv.org/abs/2312.07104). Its engine, and the small one
#   that was made from it, have such a scheduler.
# - Zihao Ye et al., *FlashInfer: Efficient and Customizable Attention Engine for LLM Inference
#   Serving*, 2025, [arXiv:2501.01005](https://arxiv.org/abs/2501.01005): section 3.3 for a
#   plan that balances the work of blocks, made on the host.
# - Guy Steele, Doug Lea and Christine Flood, *Fast Splittable Pseudorandom Number Generators*,
#   OOPSLA 2014: the numbers by seed and position.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [11 · Beyond the notebook](11_beyond_one_gpu.ipynb), a short lesson on what is left: a
# model that one card cannot hold, and a client that is not a notebook. Or [the whole course on
# one page](summary.ipynb), to look things up.
