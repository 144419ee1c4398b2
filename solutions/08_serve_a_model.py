# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 08 · Serve a model
#
# **You build** an engine that serves a real model to many users at once. Requests come and go
# at any time. Prompts are computed in chunks, and prompts that begin alike share their blocks.
# When the memory runs out, a request gives way and nothing is lost. The engine rests on what
# you have built since lesson 01.
#
# PICTURE opening
#
# **You need** lessons [01](01_block_manager.ipynb), [02](02_block_tables.ipynb) and
# [05](05_batched_metadata.ipynb). Words that you meet again are in the
# [glossary](glossary.ipynb). If you have not done an exercise of an earlier lesson, the
# course's own answer takes its place. You do not need a GPU. **It takes** two to
# three hours.

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("08")

# %% [markdown]
# An engine is a loop around a model. It has three parts, *schedule*, *run* and *postprocess*,
# and each turn of it is one **step**: a few tokens of many requests, in one call of the model.
# The keys and values of all requests are in one pool of blocks.
#
# The engine needs PyTorch, and some of what earlier lessons built:

# %%
import hashlib  # for exercise 8.5

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paged_attention.engine.scheduler import Scheduler as CourseScheduler
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.attention.metadata import build_metadata


class Scheduler(CourseScheduler):
    """The course's scheduler. Your methods will take the place of its own."""


# The model is so small that two threads would wait for each other longer than they compute.
torch.set_num_threads(1)

# %% [markdown]
# ## A real model
#
# So far, keys and values were random numbers. From here on they come from a model: a Qwen3,
# run by the code of the `transformers` library that runs the large ones. This one is small
# enough to come with the course.

# %%
from paged_attention.engine.checkpoint import load_model

# The first one gets your attention, the second keeps its own.
model, reference = load_model(), load_model()
config = model.config
num_q_heads, num_kv_heads = config.num_attention_heads, config.num_key_value_heads
num_layers, longest = config.num_hidden_layers, config.max_position_embeddings
print(f"{type(model).__name__}, {model.num_parameters():,} parameters, {num_layers} layers")
print(f"{num_q_heads} query heads, {num_kv_heads} KV heads of size {config.head_dim}")
print(f"a vocabulary of {config.vocab_size} tokens, a context of {longest}")

# %% [markdown]
# A token is one character. The model has been trained on four tasks, and each prompt has
# exactly one right answer, which ends with `$`. That makes it a good witness: if a single key
# is read from the wrong place, an answer is likely to be wrong.
#
# `dense` is the reference of this lesson. It calls transformers' `generate`, which has its own
# cache: for each layer a tensor that grows with each token.

# %%
from paged_attention.tiny_qwen3.tasks import END, TASKS, decode, encode


def dense(prompt, num_tokens=64, end=None):
    """Generates the likeliest tokens with transformers' own generate()."""
    tokens = torch.tensor([prompt])
    row = reference.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=config.eos_token_id if end is None else end,
    )[0]
    return row[len(prompt) :].tolist()


random = np.random.default_rng(8)
for name, task in TASKS.items():
    prompt, answer = task(random, 0.2)
    print(f"{name:8}{prompt}\n{'':8}{decode(dense(encode(prompt)))}")
    assert decode(dense(encode(prompt))) == answer + END

# %% [markdown]
# *Recall* is the one to watch: a letter and its digits can be far away from the question, and
# in other blocks.
#
# With an internet connection, `load_model("Qwen/Qwen3-0.6B")` fetches a large one. (The engine
# serves models that transformers runs as `Qwen3ForCausalLM`, `Qwen3MoeForCausalLM` or
# `LlamaForCausalLM`.) But the prompts here are for the small one.
#
# ## Attention is a plug
#
# A layer of this model computes queries, keys and values, and turns queries and keys by their
# positions (*rotary* embedding). Then it calls an attention function, whichever the model was
# told to use, and takes the result through the output projection. transformers lets anybody
# register such a function under a name, and each layer looks up the name in the model's
# config. `with plugged_in(model, function):` does that, for as long as the block takes.
#
# What does such a function get? Here is one that takes a look, and then calls PyTorch's
# attention:

# %%
from paged_attention.engine.attention import PagedStep, plugged_in


def curious_forward(module, query, key, value, attention_mask=None, **others):
    if module.layer_idx == 0:
        q, k, v = (tuple(heads.shape) for heads in (query, key, value))
        print("query", q, "key", k, "value", v, "also:", others["colour"])
    o = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    # (batch, num_tokens, num_q_heads, head_size), and no weights
    return o.transpose(1, 2), None


tokens = torch.tensor([encode("Cq7b>")])
with torch.inference_mode():
    with plugged_in(model, curious_forward):
        logits = model(tokens, colour="green").logits
    assert torch.allclose(logits, reference(tokens).logits, atol=1e-4)
    # Now the model is as it was.
    assert torch.equal(model(tokens).logits, reference(tokens).logits)
print("logits", tuple(logits.shape), "equal to the reference")

# %% [markdown]
# The heads come before the tokens: `(1, heads, num_tokens, head_size)`. Query and key have
# already been turned, so a key knows its position, and it does not matter which block it ends
# up in. An argument that the model does not know, like `colour`, is passed on to the function
# unchanged. That is how the block tables get in. The argument is called `paged`, a `PagedStep`
# of three things:
#
# | | |
# |---|---|
# | `paged.kv_cache` | the pool of all layers; one layer's is `k_cache, v_cache = paged.kv_cache[layer]` |
# | `paged.slot_mapping` | (num_tokens,): the slots of the step's tokens |
# | `paged.attend` | a **path**: `attend(q, k_cache, v_cache)`, one of the ways from lessons 04 to 07, made ready for a step's metadata |
#
# All paths take `q` of shape `(num_tokens, num_q_heads, head_size)`, as always in this course.
#
# ### Exercise 8.1: your attention in a transformers model
#
# Do two things, in this order: first the keys and values of the step's tokens go to their
# slots, then all queries attend. A token sees itself, and the tokens of a chunk see each
# other. So their keys must be in the pool before anything is read.

# %% exercise="8.1"
# INCLUDE paged_attention/engine/attention.py paged_attention_forward


# %% check="8.1"
check("8.1", paged_attention_forward)

# %% [markdown]
# Take a prompt through your function by hand: room in the pool, the metadata, the model.
# `use_cache=False` says that the model need not keep its own cache.

# %%
from paged_attention.engine.paths import PATHS
from paged_attention.engine.supported_models import head_size_of


def pool_for(model):
    """Makes a pool of 16 blocks of 16 tokens for the keys and values of all layers."""
    config = model.config
    heads = config.num_key_value_heads, head_size_of(config)
    rows = dict(max_num_seqs=8, max_blocks_per_seq=8)
    return PagedAttentionManager(16, 16, *heads, **rows, num_layers=config.num_hidden_layers)


prompt = encode("Ka17..q42......z93?zq>")
manager = pool_for(model)
manager.add_sequence("A", len(prompt))
metadata = build_metadata(manager, [("A", len(prompt))])
attend = PATHS["paged_torch"](metadata)
paged = PagedStep(manager.kv_cache, metadata.slot_mapping, attend)
with torch.inference_mode(), plugged_in(model, paged_attention_forward):
    logits = model(torch.tensor([prompt]), use_cache=False, paged=paged).logits[0]
    expected = reference(torch.tensor([prompt])).logits[0]
assert torch.allclose(logits, expected, atol=1e-3)
token = decode([int(logits[-1].argmax())])
print(f"next token: {token} · the logits of all {len(prompt)} tokens equal the reference")

# %% [markdown]
# ## One row for all sequences
#
# A model takes a batch, and all rows of a batch have the same length. Lesson 05 had the
# answer: no padding, and all tokens of all sequences in one row. For the model this is a
# single sequence. Its projections and its MLP look at each token alone, so they do not care.
# Attention finds each token's own keys through the block tables. That leaves the positions,
# which have to be those in the token's own sequence.

# %%
draw.one_row()

# %% [markdown]
# At the end, only one row of logits is useful for each sequence: that of its last token.
# `last` says where these rows are, so that the model computes no others.
#
# Here is what the engine knows about each of its requests. This one has a prompt of five
# tokens; all of them are computed, and a first token has been generated:

# %%
from paged_attention.engine.request import Request, SamplingParams

request = Request("A", encode("Cq7b>"))
request.num_computed = 5
request.tokens.append(encode("q")[0])
print(request)
print("output:", decode(request.output), "· num_uncomputed:", request.num_uncomputed)

# %% [markdown]
# `tokens` and `num_computed` are the heart of it. A request whose prompt is being read and one
# that decodes differ only in `num_uncomputed`, their difference. That is all that the rest of
# the engine needs to know, and it is why chunks, decodes and whole prompts need no code of
# their own.
#
# ### Exercise 8.2: all sequences in one row

# %% exercise="8.2"
# INCLUDE paged_attention/engine/runner.py flatten_batch


# %% check="8.2"
check("8.2", flatten_batch)

# %% [markdown]
# With it, the middle of the loop, `run`, is complete: the metadata, your row, and the model
# with your attention, as you called it by hand. Here is the step from the picture: A decodes,
# B gets a chunk, and C gets its whole prompt. The reference computes each of them alone.

# %%
from paged_attention.engine.runner import ModelRunner

manager = pool_for(model)
runner = ModelRunner(model, manager, PATHS["paged_torch"], paged_attention_forward)
runner.flatten_batch = flatten_batch
a, b, c = (
    Request(name, encode(text))
    for name, text in (("A", "Cq7b>q7"), ("B", "Sqxb>"), ("C", "Vq7>"))
)
for request, num_cached in ((a, 6), (b, 2), (c, 0)):
    manager.add_sequence(request.id, num_cached)
    if num_cached:
        runner.run([(request, num_cached)])
    request.num_computed = num_cached

scheduled = [(a, 1), (b, 3), (c, 4)]
manager.append_tokens([(request.id, num_tokens) for request, num_tokens in scheduled])
for (request, _), row in zip(scheduled, runner.run(scheduled), strict=True):
    with torch.inference_mode():
        expected = reference(torch.tensor([request.tokens])).logits[0, -1]
    assert torch.allclose(row, expected, atol=1e-3)
    text, token = decode(request.tokens), decode([int(row.argmax())])
    print(f"{request.id}: {text} goes on with {token}, as the reference does")

# %% [markdown]
# ## The loop
#
# Now only the decisions are missing. This is the heart of the engine:
#
# ```python
# while engine.scheduler.has_work():
#     scheduled = engine.scheduler.schedule()      # how many tokens of each request
#     logits = engine.runner.run(scheduled)        # the model, once, over all of them
#     new = engine.postprocess(scheduled, logits)  # a next token for those that are due
#     for request, token in new:
#         print(request.id, token)
# ```
#
# `run` is built. Now `schedule`.
#
# ### Which requests are in the next step?
#
# You could gather a batch, run it until all its requests have ended, then gather the next. Or
# you could ask again before each step. That is called **continuous batching**. Here is what it
# gains, for six requests of different lengths and three places:

# %%
draw.continuous_batching()

# %% [markdown]
# And a long prompt? Computed in one step, it would make all the others wait for their next
# token. So a step has a **token budget**. The requests that run already come first, in their
# order: most of them decode, with one token each. The rest of the budget goes to new prompts.
# A prompt that is longer gets one chunk now and the next one in the following step.
#
# The scheduler has two queues, the list `self.running` and the deque `self.waiting`, with the
# earliest request first. It also has `self.token_budget` and `self.max_num_seqs`, the most
# requests that run at once. A request has a row of the block table if its id is in
# `self.manager.sequences`.
#
# ### Exercise 8.3: schedule the next step
#
# Write it in two loops, first over the running requests, then over the waiting ones. You have
# these methods:
#
# | call | does |
# |---|---|
# | `self.make_room(request, num_tokens)` | makes room for its next tokens (1 or more), or changes nothing and says False |
# | `self.start(request)` | gives a waiting request its row; it may set `request.num_computed`, so look at it afterwards |
# | `self.stop(request)` | takes the row away again |
# | `self.preempt(request)` | makes a running request wait again, as the first in the queue; you write it next |
#
# If there is no room for a running request, preempt the *last* of `self.running` and try
# again. That may well be the request itself; then it is not in this step. A waiting request
# preempts none: if there is no room, it keeps waiting, and so do all after it. And if any
# request had to give way in this step, none is started in it.

# %% exercise="8.3"
# INCLUDE paged_attention/engine/scheduler.py Scheduler.schedule


Scheduler.schedule = schedule

# %% check="8.3"
check("8.3", schedule)

# %% [markdown]
# You can watch a scheduler without a model. This one is the course's, with your method in it.
# Each token that is due simply comes. The budget is 8 tokens a step. A has a prompt of 5, B of
# 14 and C of 3, and each of them generates four tokens.
#
# **Predict.** In which step does B's first token come?

# %%
from paged_attention.engine.dry_run import dry_run
from paged_attention.engine.prefix_cache import PrefixCache


def scheduler_for(num_blocks, token_budget, **prompt_lens):
    """Makes a scheduler over a pool of blocks of 4, with a waiting request for each prompt."""
    rows = dict(max_num_seqs=8, max_blocks_per_seq=num_blocks)
    manager = PagedAttentionManager(num_blocks, 4, 1, 2, **rows)
    no_sharing = PrefixCache(manager, enabled=False)
    scheduler = Scheduler(manager, no_sharing, token_budget, max_num_seqs=8)
    scheduler.waiting += [Request(name, [7] * length) for name, length in prompt_lens.items()]
    return scheduler


history = dry_run(scheduler_for(num_blocks=32, token_budget=8, A=5, B=14, C=3), num_new=4)
draw.chunked_prefill(history)

# %% [markdown]
# In step 0, A takes 5 and leaves 3 for B. In step 1, A decodes with one token, and B gets the
# other 7. The last 4 come in step 2, and with them B's first token. C waits until the budget
# has something left for it. No step computes more than 8 tokens, so no step takes much longer
# than another.
#
# ### When the pool runs dry
#
# Nobody knows how long an answer will be. So a request is let in as soon as there is room for
# its first tokens, and sooner or later one needs a block and there is none. Then one of them
# has to give way: it is **preempted**. Its blocks go back to the pool, and it waits again.
#
# Its tokens are not lost; they are a list of numbers in the request. Only their keys and
# values are gone. When it runs again, prompt and answer so far are computed like a longer
# prompt, and then it goes on where it was.
#
# ### Exercise 8.4: preempt a request
#
# Use `self.stop`. The request waits again *before all others*, because it came before them.

# %% exercise="8.4"
# INCLUDE paged_attention/engine/scheduler.py Scheduler.preempt


Scheduler.preempt = preempt

# %% check="8.4"
check("8.4", preempt)

# %% [markdown]
# Here are the same three requests, with ten tokens each to generate, and a pool of 9 blocks
# of 4. They would need 14, 23 and 12 slots (an answer's last token is never computed), and
# there are 36.

# %%
history = dry_run(scheduler_for(num_blocks=9, token_budget=8, A=5, B=14, C=3), num_new=10)
assert any(record.preempted for record in history)
draw.preemption(history)

# %% [markdown]
# In step 5, B needs one more block, and C, which came last, gives way. In step 9, B needs
# another, and now B itself is the last. When A has ended, B computes its prompt again, and
# what it had generated: 21 tokens in three chunks. C follows as soon as they leave some of the
# budget.
#
# Why the last? The first always makes progress, so there is always one that ends and gives its
# blocks back. If the engine preempted the request with the most blocks, two long requests
# could take the pool from each other for ever.
#
# ## Blocks for several requests
#
# Many prompts begin alike: the same instructions, the same document with another question. Are
# their keys the same? In layer 0, a key depends on its token and its position. But from layer
# 1 on, it is computed from what attention has brought together, so it depends on **all tokens
# before it**. Here are two prompts with the same tokens 1 to 31 and different tokens 0:

# %%
two = torch.tensor([encode(first + "a17..q42......z93c21......k45.?") for first in "KV"])
with torch.inference_mode():
    cache = reference(two, use_cache=True)[1]  # after the logits; its name has changed
for layer in range(config.num_hidden_layers):
    # (2, num_kv_heads, 16, head_size): the second block
    keys = cache.layers[layer].keys[:, :, 16:32]
    same = (keys[0] - keys[1]).abs().max().item() < 1e-5
    verdict = "the same" if same else "different"
    print(f"layer {layer}: the keys of tokens 16 to 31 are {verdict}")
    assert same == (layer == 0)

# %% [markdown]
# So two requests may share a block when *all tokens up to its end* are the same, not when only
# its own are. To find such blocks fast, each full block gets a hash of its own tokens and of
# the previous block's hash. That hash was made from the previous block's tokens and the hash
# before it, and so on back to the beginning.
#
# ### Exercise 8.5: a chain of hashes
#
# `hashlib.sha256(some_bytes).digest()` gives 32 bytes; two different inputs with the same
# result have never been found. Only full blocks get one: a block that is still being written
# cannot be promised to others. How tokens become bytes is up to you, as long as different
# tokens become different bytes. A real vocabulary has 150,000 of them.

# %% exercise="8.5"
# INCLUDE paged_attention/engine/prefix_cache.py block_hashes


# %% check="8.5"
check("8.5", block_hashes)

# %%
document = encode("Ka17..q42......z93c21......k45..m60....t88..?")
letters = {}  # one for each different hash


def in_letters(hashes):
    return " ".join(letters.setdefault(each, "ABCDEFGHIJ"[len(letters)]) for each in hashes)


for question in ("az>", "tm>"):
    hashes = block_hashes(document + encode(question), 16)
    print(decode(document[-9:]) + question, in_letters(hashes))
for first in "KV":
    hashes = block_hashes(encode(first) + document[1:], 16)
    print(first + decode(document[1:9]) + "...", in_letters(hashes))
assert "".join(letters.values()) == "ABCDEF"

# %% [markdown]
# Equal letters mean equal hashes. Two questions about one document have its two full blocks in
# common; in the third, the questions differ. With another first token, all blocks are
# different.
#
# The cache is a dictionary from hash to block. It is one more **user** of each of its blocks:
# it counts in lesson 01's reference count. So a block stays when its request ends, and the
# next request with the same beginning finds it.
#
# When does a block go into the cache? Not when it is taken, but only after the model has run:
# a request that finds the block must find its keys in it. And they must be usable. Numbers can
# overflow, in 16 bits sooner than you think, and a NaN among a block's values gets into every
# result that is computed from it. So blocks of a step whose logits contain NaN or infinity are
# not kept.
#
# This part of the engine, `PrefixCache`, is given. `paged_attention/engine/prefix_cache.py` has
# its hundred lines.
#
# ### Exercise 8.6: start a request
#
# Now the real `start`. `self.prefix_cache.match(request)` gives the blocks that are there.
# `self.manager.start(id, length, blocks)` writes them into a row; `length` is the number of
# tokens that are already there. From now on each of the blocks has one more user
# (`self.manager.block_manager.increase_ref_count`). The request may have been preempted: then
# it has tokens of its own after its prompt.
#
# One case needs thought. If *all* tokens of the request are in the cache, nothing would be
# left to compute. But without a computed token there are no logits, and without logits no next
# token. So the last token is always computed, even if its key is already there. And a block
# may hold a single token. Does the request still use that block then?

# %% exercise="8.6"
# INCLUDE paged_attention/engine/scheduler.py Scheduler.start


Scheduler.start = start

# %% check="8.6"
check("8.6", start)

# %% [markdown]
# Watch this case. A has a prompt of two full blocks of 4. Then B comes with the same prompt:
# its blocks are there, and it computes only its last token. But the key of that token goes
# into a block that it shares.
#
# **Predict.** How many users does each block have, before and after B has room for it?


# %%
def shared_prompt():
    """Shows the pool when B has the same prompt as A, of two full blocks."""
    manager = PagedAttentionManager(8, 4, 1, 2, max_num_seqs=2, max_blocks_per_seq=4)
    scheduler = Scheduler(manager, PrefixCache(manager), token_budget=16, max_num_seqs=2)
    a, b = (Request(name, [1, 2, 3, 4, 5, 6, 7, 8]) for name in "AB")
    yield "Nobody is here yet", manager
    scheduler.waiting.append(a)
    scheduler.schedule()
    scheduler.prefix_cache.insert(a, 8)
    yield f"A has run: blocks {manager.blocks_of('A')}, known to the cache", manager
    scheduler.start(b)
    blocks = manager.blocks_of("B")
    yield f"B starts with {b.num_computed} tokens of 8: blocks {blocks}", manager
    scheduler.make_room(b, b.num_uncomputed)
    yield f"B has room for its last token: blocks {manager.blocks_of('B')}", manager


steps = [
    (what, [manager.block_manager.get_ref_count(block_id) for block_id in range(8)])
    for what, manager in shared_prompt()
]
draw.copy_on_write(steps)

# %% [markdown]
# This is lesson 02's copy on write, unchanged: `append_token` sees that the block has other
# users, and takes a copy. Three of the four tokens in it need not be computed again.
#
# There is one more case of a common beginning. Somebody may want **several answers to one
# prompt**, drawn with different seeds. Then even a last block that is not full is the same for
# all. The first answer computes the prompt, and the others are lesson 02's fork of it. You will
# see it at work in “Several answers”.
#
# ## Which token comes next
#
# The model gives a row of logits, one number for each token of the vocabulary.
# `SamplingParams` says how to choose:
#
# | field | meaning | default |
# |---|---|---|
# | `max_new_tokens` | the answer ends here at the latest | 64 |
# | `temperature` | 0 takes the likeliest token; above 0, tokens are drawn, more evenly the higher it is | 0 |
# | `top_k` | only this many of the likeliest tokens may be drawn | all |
# | `top_p` | only the likeliest tokens that together have this probability | 1.0 |
# | `seed` | of the draws | 0 |
# | `ignore_end` | goes on after the end token | False |
#
# A draw needs a random number. A random generator hands out its numbers one after the other,
# and that does not go well with an engine. If all requests shared a generator, a request would
# get other tokens whenever another one came along. If each request had its own, the engine
# would have to set it back whenever a step fails and its tokens are drawn a second time.
#
# So nothing is handed out here. A random number belongs to a token: it is computed from the
# request's seed and from the token's **position**, its place in the sequence, as a hash is. If
# the token is drawn once more, it is drawn with the same number. It does not matter whether
# the request was preempted in between, who else is in the step, or which device computes.

# %%
from paged_attention.engine.draws import draw_number

for seed, positions in ((3, range(6)), (3, range(4, 6)), (4, range(6))):
    numbers = [draw_number(seed, position) for position in positions]
    where = f"seed {seed}, positions {positions[0]} to {positions[-1]}"
    print(f"{where}:", *(f"{number:.3f}" for number in numbers))
assert draw_number(3, 5) == draw_number(3, 5) != draw_number(3, 4)

# %% [markdown]
# The numbers of positions 4 and 5 do not depend on whether those before them were asked for.
# Every number from 0 to 1 is equally likely to come.
#
# How does a number choose a token? Put the probabilities side by side, the likeliest first:
# they fill a line of length 1, if none was left out. The number is a point on this line. The
# token that is drawn is the one whose piece the point is in.
#
# ### Exercise 8.7: draw a token

# %% exercise="8.7"
# INCLUDE paged_attention/engine/sampler.py sample


# %% check="8.7"
check("8.7", sample)

# %% [markdown]
# Your function draws from five tokens, with the probabilities 0.5, 0.25, 0.15, 0.08 and 0.02,
# at 1,000 positions in each of four ways:

# %%
from collections import Counter

p = torch.tensor([0.5, 0.25, 0.15, 0.08, 0.02])
ways = {
    "temperature 1": (dict(temperature=1.0), p),
    "temperature 0.5": (dict(temperature=0.5), p**2 / (p**2).sum()),
    "top_k = 2": (dict(temperature=1.0, top_k=2), torch.tensor([2 / 3, 1 / 3, 0, 0, 0])),
    "top_p = 0.8": (dict(temperature=1.0, top_p=0.8), torch.tensor([50, 25, 15, 0, 0]) / 90),
}
panels = {}
for way, (options, should_be) in ways.items():
    params = SamplingParams(**options)
    drawn = Counter(sample(p.log(), params, position) for position in range(1000))
    assert all(abs(drawn[token] / 1000 - should_be[token]) < 0.06 for token in range(5))
    panels[way] = {
        letter: (float(should_be[token]), drawn[token] / 1000)
        for token, letter in enumerate("abcde")
    }
draw.sampled_tokens(panels)

# %% [markdown]
# ## The engine
#
# One method is missing, the last third of the loop.
#
# ### Exercise 8.8: complete the step
#
# Each request of the step has a row of logits now. Some were given a chunk in the middle of
# their prompt, or of what they compute again after being preempted. What should happen to
# their row?
#
# `self.sample(row, request.params, position)` draws a token: your function from exercise 8.7,
# with the position of the new token. `self.end_tokens` are the tokens that end an answer,
# unless the request's `ignore_end` says otherwise.
# `self._end(request, reason)` ends the request, once, with the reason `"end"` or `"length"`;
# if both hold, either is right.

# %% exercise="8.8"
# INCLUDE paged_attention/engine/engine.py Engine.postprocess


# %% check="8.8"
check("8.8", postprocess)

# %% [markdown]
# Now the engine is complete. `Engine` is the course's, with everything in it that you have
# written. Two prompts, and the loop from above:

# %%
from paged_attention.engine.engine import Engine as CourseEngine


class Engine(CourseEngine):
    """The course's engine, with your functions."""

    scheduler_class = Scheduler
    sample = staticmethod(sample)

    def __init__(self, model, *sizes, **options):
        super().__init__(model, *sizes, forward=paged_attention_forward, **options)
        self.runner.flatten_batch = flatten_batch
        self.prefix_cache.block_hashes = block_hashes


Engine.postprocess = postprocess

engine = Engine(model)
for name, text in (("copy", "Cq7b>"), ("sort", "Szebra>")):
    engine.add(name, encode(text))
while engine.scheduler.has_work():
    scheduled = engine.scheduler.schedule()
    logits = engine.runner.run(scheduled)
    new = engine.postprocess(scheduled, logits)
    for request, token in new:
        print(request.id, decode(request.prompt), decode(request.output), request.reason or "")

# %% [markdown]
# Both answers are right. Each turn was one call of the model, and the first turn computed
# twelve tokens of two prompts.
#
# For many prompts at once there is `generate`, with `progress=True` for a bar. Here are 24
# prompts of all four tasks and of many lengths. Each of them has one right answer.


# %%
def questions(seed, count, largest=1.0):
    """Makes prompts of all four tasks in turn, and their right answers."""
    random, tasks = np.random.default_rng(seed), list(TASKS.values())
    pairs = [tasks[index % 4](random, largest * random.random()) for index in range(count)]
    return [encode(prompt) for prompt, _ in pairs], [answer + END for _, answer in pairs]


prompts, answers = questions(seed=1, count=24)
requests = Engine(model).generate(prompts)
outputs = [decode(request.output) for request in requests]
right = sum(output == answer for output, answer in zip(outputs, answers, strict=True))
sizes = f"{min(map(len, prompts))} to {max(map(len, prompts))} tokens"
print(f"prompts of {sizes}: {right} of {len(prompts)} answers are right")
assert right == len(prompts)

# %% [markdown]
# Every answer is right: with your attention, your scheduler and your hashes, in somebody
# else's model.
#
# ## Old blocks make room
#
# After a while nearly every block of the pool is an old one: its request has ended, and only the
# cache uses it. Here is a `make_room` that never takes a block from the cache.
#
# **Predict.** The same 24 prompts come to a pool of 24 blocks. How far does the engine get?


# %%
from types import MethodType

from paged_attention.engine.history import History


def only_ask(self, request, num_tokens):
    """Makes room if there is any."""
    wanted = [(request.id, num_tokens)]
    try:
        self.manager.append_tokens(wanted)
    except MemoryError:
        return False
    return True


def serve_with(make_room):
    """Serves the 24 prompts in 24 blocks, as far as it goes."""
    engine = Engine(model, num_blocks=24, history=History())
    engine.scheduler.make_room = MethodType(make_room, engine.scheduler)
    requests = [engine.add(index, prompt) for index, prompt in enumerate(prompts)]
    try:
        engine.run()
    except NotImplementedError:  # an exercise above is left
        raise
    except RuntimeError as error:
        print(error)
    answered = sum(request.reason == "end" for request in requests)
    print(f"{answered} of {len(requests)} answered in {len(engine.history)} steps;", end=" ")
    last = engine.history[-1]
    print(f"in the last one, {last.kept} blocks were used by the cache alone")
    return answered


assert serve_with(only_ask) < len(prompts)

# %% [markdown]
# The pool is full of blocks that no request needs, and no request can start. So a block that
# only the cache uses has to be as good as free.
#
# ### Exercise 8.9: old blocks make room
#
# | call | |
# |---|---|
# | `self.manager.append_tokens([(request.id, num_tokens)])` | makes room, or raises a `MemoryError` and changes nothing |
# | `self.manager.get(request.id).length` | for this number of tokens there is room already |
# | `self.manager.blocks_for(num_tokens)` | how many blocks this number of tokens fills |
# | `self.manager.block_manager.get_num_free_blocks()` | |
# | `self.prefix_cache.num_evictable()` | how many blocks only the cache uses |
# | `self.prefix_cache.evict()` | frees the one of them that was used least recently; False if there is none |
#
# An old block may be found again. So evict no more of them than it takes. And if all of them
# together are not enough, evict none. (A request that writes into a block that it shares asks for
# a single token, and needs a block for the copy. `append_tokens` counts that block.)

# %% exercise="8.9"
# INCLUDE paged_attention/engine/scheduler.py Scheduler.make_room


Scheduler.make_room = make_room

# %% check="8.9"
check("8.9", make_room)

# %%
assert serve_with(make_room) == len(prompts)

# %% [markdown]
# ## What users ask for
#
# **Streaming.** `stream` gives a request's tokens as they come. Each of them is a step of the
# whole engine, so the other requests continue as well:

# %%
engine = Engine(model)
first = engine.add("first", encode("Cblocks7>"))
other = engine.add("other", encode("Sqwertyuiop>"))
for token in engine.stream(first):
    print(f"{decode([token])}   (the other one has {decode(other.output)!r})")

# %% [markdown]
# **Cancelling.** A user closes the window. The request ends at once and keeps the tokens that
# it has. Its blocks are free, except for those that the prefix cache keeps until they are
# needed:

# %%
if other.reason is None:  # if you run this cell again, it is already cancelled
    engine.cancel("other")
print(other.reason, repr(decode(other.output)))
engine.prefix_cache.clear()  # otherwise a few blocks are kept, though nothing runs
num_free = engine.manager.block_manager.get_num_free_blocks()
print("free blocks:", num_free, "of 256")
assert num_free == 256

# %% [markdown]
# **A step that fails.** The GPU may be out of memory, or you press Ctrl-C. Nobody knows where
# the step stopped: perhaps while taking a block. So the pool starts empty. Here it happens in
# the third step.
#
# **Predict.** How many tokens does each of the two requests have afterwards, and how many of
# them are computed?


# %%
def refusal(call, *arguments):
    """Makes the call, and returns the text of its error."""
    try:
        call(*arguments)
    except (LookupError, MemoryError, OSError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


engine = Engine(model)
pair = [
    engine.add(name, encode(text)) for name, text in (("a", "Cq7b4mxy>"), ("b", "Szebra>"))
]
engine.step()
engine.step()
run_the_model = engine.runner.run


def run_out_of_memory(scheduled):
    run_the_model(scheduled)
    raise MemoryError("the model needs more")


engine.runner.run = run_out_of_memory
print(refusal(engine.step))
engine.runner.run = run_the_model
for request in pair:
    print(f"{request.id}: has {decode(request.output)}, computed {request.num_computed}")
engine.run()
print("in the end:", *(decode(request.output) for request in pair))
assert [decode(request.output) for request in pair] == ["q7b4mxy$", "aberz$"]

# %% [markdown]
# It is as if the step had never been. Both wait, and their tokens are computed again.
#
# **Bad numbers stay where they arise.** A row of logits with a NaN says nothing about which
# token is likely, and `argmax` silently gives some token. So that request ends, before
# `postprocess` sees its row, and its blocks leave the prefix cache. Here we make an overflow by
# hand: infinity in a block of the first request's keys and values. The second does not notice.
# The third has the same prompt as the first and comes later.

# %%
engine = Engine(model, path="gather")
bad = engine.add("bad", encode("Ka17..q42......z93?zq>"))
good = engine.add("good", encode("Cq7b4mxy>"))
engine.step()
engine.manager.kv_cache[:, :, engine.manager.blocks_of("bad")[0]] = torch.inf
engine.run()
(later,) = engine.generate([bad.prompt])
for request in (bad, good, later):
    print(f"{decode(request.prompt):24}{decode(request.output):12}{request.reason}")
assert [bad.reason, good.reason, later.reason] == ["not finite", "end", "end"]
assert decode(good.output) == "q7b4mxy$" and later.output == dense(bad.prompt)

# %% [markdown]
# **The same answer again.** Draws are random, but a seed must always give the same tokens,
# whatever else the engine is doing. A number belongs to a seed and a position, so it does.
# Here the same request comes three times: alone, among ten others, and in a pool so small that
# it is preempted:

# %%
params = SamplingParams(temperature=4.0, max_new_tokens=24, seed=3, ignore_end=True)
mine = encode("Cq7b>")


def in_company(others, **sizes):
    """Serves the request among others, in an engine of these sizes.

    Returns its text, and how often it was preempted.
    """
    engine = Engine(model, **sizes)
    for index, prompt in enumerate(others):
        engine.add(index, prompt, SamplingParams(max_new_tokens=48, ignore_end=True))
    request = engine.add("mine", mine, params)
    engine.run()
    return decode(request.output), request.num_preempted


alone, _ = in_company([])
among_ten, _ = in_company(prompts[:10])
preempted, times = in_company(prompts[4:8], num_blocks=18)
print(f"alone:         {alone}\namong ten:     {among_ten}\npreempted {times}x:  {preempted}")
assert alone == among_ten == preempted and times > 0

# %% [markdown]
# **Several answers.** Four answers to one prompt, each with its own seed. Its 45 tokens are
# computed once. They fill two blocks and a part of a third one, which each answer copies when
# it writes into it.

# %%
history = History()
engine = Engine(model, history=history)
params = [SamplingParams(8, temperature=4.0, seed=seed, ignore_end=True) for seed in range(4)]
four = engine.add_answers(["A", "B", "C", "D"], document, params)
engine.run()
for record in history[:3]:
    computed = sum(num_tokens for num_tokens, _ in record.scheduled.values())
    in_use = record.alone + record.shared
    print(f"{computed} tokens computed, {in_use} blocks in use; unshared {record.unshared}")
assert history[0].unshared == 12 and len(document) == 45
print("the answers:", *(decode(request.output) for request in four))
assert len({decode(request.output) for request in four}) == 4

# %% [markdown]
# **Beam search.** So far a token that was chosen stays, even if nothing good can follow it. A
# **beam search** goes on with several answers at once, its *beams*. In each step, every beam is
# continued with every token of the vocabulary. Of all these answers, only the likeliest few
# stay. If two of them come from one beam, it is forked. If none does, it is freed. With block
# tables that costs next to nothing, because lesson 02's `fork_sequence` copies no key:


# %%
def beam_search(manager, prompt, width, num_new):
    """Finds likely answers of num_new tokens.

    Returns `width` requests with their log probabilities, the likeliest first.
    """
    runner = ModelRunner(model, manager, PATHS["paged_torch"])
    manager.add_sequence(0, 0)
    beams = {Request(0, prompt): 0.0}
    newest = 0  # the id of the newest beam
    for _ in range(num_new):
        step = [(beam, beam.num_uncomputed) for beam in beams]
        manager.append_tokens([(beam.id, num_tokens) for beam, num_tokens in step])
        # (number of beams, vocab_size): of each beam with each token
        scores = runner.run(step).log_softmax(-1) + torch.tensor([*beams.values()])[:, None]
        best, places = scores.flatten().topk(width)
        parents, beams = [*beams], {}
        for score, place in zip(best.tolist(), places.tolist()):
            index, token = divmod(place, config.vocab_size)
            parent = parents[index]
            newest += 1
            manager.fork_sequence(parent.id, newest)
            tokens, num_computed = [*parent.tokens, token], len(parent.tokens)
            beams[Request(newest, tokens, num_computed=num_computed)] = score
        for parent in parents:
            manager.free_sequence(parent.id)
    return beams


# %% [markdown]
# This prompt ends before its `>`, so that the model is unsure. transformers has a beam search
# too, and ours has to find the same three answers:

# %%
unsure, manager = encode("Ka17..q42......z93c21......k45.?a"), pool_for(model)
beams = beam_search(manager, unsure, width=3, num_new=6)
for beam, score in beams.items():
    answer, blocks = decode(beam.tokens[len(unsure) :]), manager.blocks_of(beam.id)
    print(f"{answer}: {np.exp(score):3.0%}, in blocks {blocks}")

one_row, no_end = torch.tensor([unsure]), config.vocab_size  # not a token
theirs = reference.generate(
    one_row,
    attention_mask=torch.ones_like(one_row),
    max_new_tokens=6,
    num_beams=3,
    num_return_sequences=3,
    do_sample=False,
    length_penalty=0.0,  # the sum of the logarithms, as ours
    eos_token_id=no_end,
)
assert [beam.tokens for beam in beams] == theirs.tolist()
print("the likeliest token in each step:", decode(dense(unsure, 6, end=no_end)))

# %% [markdown]
# The likeliest token need not begin the likeliest answer. Taken one by one, the likeliest tokens
# give the second best of the three. The beams share the two full blocks of the prompt, and each
# has only its last block for itself.
#
# **A clear no.** Whatever cannot be served is refused at the door, with an error for that
# request and without harm to the others. Three good requests, and then everything that can be
# wrong:

# %%
from transformers import GPT2Config, Qwen3Config

from paged_attention.engine.supported_models import check_architecture

engine = Engine(model, num_blocks=24)
good = [engine.add(index, prompt) for index, prompt in enumerate(prompts[:3])]
windows = Qwen3Config(architectures=["Qwen3ForCausalLM"], use_sliding_window=True)
calls = {
    "an empty prompt": (engine.add, "a", []),
    "longer than the model": (engine.add, "a", [9] * 600),
    "longer than the pool": (engine.add, "a", [9] * 380),
    "an unknown token": (engine.add, "a", [9, 45]),
    "a token that is none": (engine.add, "a", [9, 1.5]),
    "an id twice": (engine.add, 0, prompts[3]),
    "no token to generate": (SamplingParams, 0),
    "a negative temperature": (SamplingParams, 10, -1.0),
    "cancel a stranger": (engine.cancel, "nobody"),
    "a budget of 0": (Engine, model, 24, 16, 0),
    "a GPT-2": (check_architecture, GPT2Config(architectures=["GPT2LMHeadModel"]), "gpt2"),
    "a Qwen3 with windows": (check_architecture, windows, "a Qwen3"),
}
for what, (call, *arguments) in calls.items():
    print(f"{what:24}{refusal(call, *arguments)}")
    assert refusal(call, *arguments)
engine.run()
assert [decode(request.output) for request in good] == answers[:3]
engine.prefix_cache.clear()
num_free = engine.manager.block_manager.get_num_free_blocks()
print("\nthe three others are right, and free blocks:", num_free, "of 24")
assert num_free == 24

# %% [markdown]
# ## Watch it work
#
# You can ask an engine what it did: `Engine(..., history=History())` records each step. So
# here is an afternoon of a small server. Twelve requests come at different steps. Five of them
# ask about the same document, four bring a task of their own, and three bring something long.
# The pool has 30 blocks, and the budget is 48 tokens a step.

# %%
random = np.random.default_rng(21)
text = TASKS["recall"](random, 0.75, fillers=60)[0].split("?")[0]
letters = [character for character in text[1:] if character.isalpha()]
arrivals = []  # (step, id, prompt)
for index in range(5):
    wanted = "".join(random.permutation(letters)[:6])
    arrivals.append((3 + 4 * index, f"document {index}", encode(f"{text}?{wanted}>")))
for index, name in enumerate(("copy", "sort", "reverse", "copy")):
    arrivals.append((2 * index, f"{name} {index}", encode(TASKS[name](random, 0.8)[0])))
for index in range(3):
    something_long = TASKS["recall"](random, 0.6, fillers=50)[0]
    arrivals.append((5 + 5 * index, f"recall {index}", encode(something_long)))
arrivals.sort(key=lambda arrival: arrival[0])
print("prompts of", ", ".join(str(len(prompt)) for _, _, prompt in arrivals), "tokens")


# %%
def serve(num_blocks=30, token_budget=48, prefix_sharing=True):
    """Serves the afternoon. Returns what happened in each step, and each request's answer."""
    engine = Engine(
        model, num_blocks, 16, token_budget, prefix_sharing=prefix_sharing, history=History()
    )
    scheduler, history = engine.scheduler, engine.history
    waiting, requests = list(arrivals), {}
    while waiting or scheduler.has_work():
        while waiting and (waiting[0][0] <= len(history) or not scheduler.has_work()):
            _, id, prompt = waiting.pop(0)
            requests[id] = engine.add(id, prompt)
        engine.step()
    return history, {id: decode(request.output) for id, request in requests.items()}


history, outputs = serve()
assert outputs == {id: decode(dense(prompt)) for _, id, prompt in arrivals}
print(f"{len(history)} steps, and the same answers as the reference")

# %% [markdown]
# **Predict.** Which of the five questions about the document has most to compute before its
# first token? And which requests will be preempted, early ones or late ones?

# %%
draw.afternoon(history)

# %% [markdown]
# Below the timeline is the pool at the same step. Orange blocks have several users. Point at a
# block to read its tokens, and step to and fro where a request gives way.
#
# The first question about the document computes all of it, 123 tokens. The later ones compute
# 11, little more than their own letters: the rest of their blocks are already there. (Some
# wait long all the same: the queue is served in order, and there is no room for the one at its
# head.) And it is always the last of the running requests that gives way.
#
# Now the pool. Blocks of running requests are used by one of them or by several; others are
# only kept by the prefix cache.
#
# **Predict.** Take the same afternoon without prefix sharing. Either way, at most three
# questions about the document run at once. How many blocks will the document cost then,
# without sharing and with it?

# %%
without, outputs_without = serve(prefix_sharing=False)
assert outputs_without == outputs
for records in (history, without):
    assert max(sum("document" in name for name in record.lengths) for record in records) == 3
draw.shared_blocks(history, without)

# %% [markdown]
# The document has seven full blocks of 16. Without sharing, each running question needs seven
# of its own, or 21 for three. With sharing, the same seven serve all of them. Grey blocks cost
# nothing: they are given away as soon as one is needed.
#
# Now run the afternoon yourself. The requests are A to L here, and each step of your engine is
# drawn. Press *Run*. What happens with 20 blocks, or with a request in each step?

# %%
live = draw.LiveEngine(Engine, model, [prompt for _, _, prompt in arrivals], decode)
for _ in range(12):
    live.advance(every=2)
live

# %% [markdown]
# And how does this compare with a contiguous cache, where lesson 00 began? It has to reserve
# room for each running request when it starts: for as much as the model can take, or, if the
# server is clever, for the prompt and the longest answer allowed.
#
# **Predict.** How many times as many slots does that take, at the same time, for the same
# requests?

# %%
prompt_lens = {name: len(prompt) for _, name, prompt in arrivals}
reserved = {
    "reserve the model's maximum": [512 * len(record.lengths) for record in history],
    "reserve prompt and longest answer": [
        sum(prompt_lens[name] + 64 for name in record.lengths) for record in history
    ],
}
in_blocks = [16 * (record.alone + record.shared) for record in history]
# At times, there are more tokens than slots.
assert max(sum(record.lengths.values()) for record in history) > 30 * 16
for name, slots in reserved.items():
    times = sum(slots) / sum(in_blocks)
    print(f"{name}: {max(slots):,} slots at most, {times:.1f} times the blocks in use")
draw.reserved_memory(history, reserved)

# %% [markdown]
# With shared blocks the pool even holds more tokens than it has slots: each of the requests
# counts the document as its own.
#
# ## The same tokens
#
# A path may be fast or slow. It must not change what the model says. Here is the test for all
# of them: six prompts of 1 to 163 tokens, two of them about one document. Each gets 20 tokens,
# even if its answer ends before that. They come in five ways. (One at a time takes long, so
# that way has only two of them.) Without a GPU, *kernel* takes longest, up to half a minute:

# %%
random = np.random.default_rng(1)
text = TASKS["recall"](random, 0.6, fillers=20)[0].split("?")[0]
letters = [character for character in text[1:] if character.isalpha()]
texts = [f"{text}?{''.join(random.permutation(letters)[:4])}>" for _ in range(2)]
texts += [TASKS[name](random, size)[0] for name, size in (("copy", 0.3), ("reverse", 0.9))]
six = [encode(text) for text in (*texts, "K", TASKS["recall"](random, 1.0, fillers=80)[0])]
NEVER = config.vocab_size  # not a token, so nothing ends with it
by_dense = [dense(prompt, 20, end=NEVER) for prompt in six]
print("prompts of", ", ".join(str(len(prompt)) for prompt in six), "tokens")
set_ups = {
    "alone": dict(max_num_seqs=1, prefix_sharing=False),
    "in a batch": dict(prefix_sharing=False),
    "one after the other": dict(token_budget=64),
    "shared prefixes": dict(),
    "preempted": dict(num_blocks=18),
}


# %%
def same_tokens(path, prompts, expected, num_steps, sizes):
    """Says whether a path gives the expected tokens.

    num_steps: the steps between the arrivals of two requests.
    """
    engine = Engine(model, path=path, **sizes)
    params = SamplingParams(max_new_tokens=20, ignore_end=True)
    requests = []
    for index, prompt in enumerate(prompts):
        requests.append(engine.add(index, prompt, params))
        for _ in range(num_steps):
            engine.step()
    engine.run()
    assert ("num_blocks" in sizes) == any(request.num_preempted for request in requests)
    return [request.output for request in requests] == expected


print(f"{'':14}" + "".join(f"{set_up:>21}" for set_up in set_ups))
for path in ("gather", "paged_torch", "blockwise", "kernel", "batched"):
    same = []
    for set_up, sizes in set_ups.items():
        # One by one is slow, and two are enough.
        some = slice(4, None) if set_up == "alone" else slice(None)
        num_steps = 3 if set_up == "one after the other" else 0
        same.append(same_tokens(path, six[some], by_dense[some], num_steps, sizes))
    verdicts = ["the same" if answer else "NOT THE SAME" for answer in same]
    print(f"{path:14}" + "".join(f"{verdict:>21}" for verdict in verdicts))
    assert all(same)

# %% [markdown]
# Each of these answers has exactly the tokens of transformers with its dense cache. *gather*
# copies blocks together and calls PyTorch, *paged_torch* is lesson 05, *blockwise* is lesson
# 04, *kernel* is lesson 06 from its CUDA code (on the CPU, if there is no GPU), and *batched*
# is the engine's own choice for this model.
#
# Two more need numbers in 16 bits and a GPU. *fast* is lesson 07's last kernel, and for chunks
# of prompts the kernel that you build in lesson [09](09_prompt_kernel.ipynb). The engine chooses
# it where it can. *fused* is lesson 05's one call of FlashInfer.
#
# FlashInfer has no kernel for heads of 32 numbers. So the recorded run below uses the same
# model with heads of 64, with zeros between its numbers, and eight prompts with 24 tokens
# each:

# %%
from lessons_content.lesson_08.bench import path_b_runs

run = path_b_runs.recorded()[0]
print(path_b_runs.origin(run))
print(path_b_runs.paths_table(run))
assert not run.problems() and run.num_tokens >= 20
assert "fused" in [row.path for row in run.paths]

# %% [markdown]
# Is that luck? The paths add in different orders, so their logits differ in the last digits.
# If two tokens were likelier than all others by exactly the same amount, the last digit would
# decide. So look at how far apart they are:


# %%
def smallest_lead(prompt, answer):
    """Finds the smallest lead of the likeliest token over the next one in an answer."""
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    first, second = logits.topk(2).values.T
    return (first - second).min().item()


lead = min(smallest_lead(prompt, answer) for prompt, answer in zip(six, by_dense, strict=True))
print(f"the closest of {20 * len(six)} choices: a lead of {lead:.2f}")
assert lead > 0.5

# %% [markdown]
# It is about 1, and rounding changes the fifth digit. The recorded run is in 16 bits, where
# rounding is coarser:

# %%
num_choices = run.num_tokens * len(run.expected)
print(f"the closest of {num_choices} recorded choices: a lead of {run.lead:.2f}")
assert run.lead > 0.5

# %% [markdown]
# The benchmark `path_b` looks at each choice. It reports a problem if a lead is not more than
# twice the change by rounding. A model with 150,000 tokens in 16-bit numbers will have ties
# now and then, and there two correct engines may differ. They differ late and in one token,
# not in all of them.
#
# ## Finding a bug
#
# Sooner or later the tokens are not the same. Here is an engine with a fault that somebody has
# planted:

# %%
from paged_attention.engine.faults import FAULTS, fill_with_leftovers, plant

leftovers, _ = questions(seed=2, count=8)
prompt = encode("Ka17..q42......z93c21......k45..m60....t88..?mqa>")


def engine_with(fault=None, **sizes):
    """Makes an engine with a used pool, and with a fault if one is named."""
    engine = Engine(model, num_blocks=160, prefix_sharing=False, **sizes)
    fill_with_leftovers(engine, leftovers)
    if fault:
        plant(engine, fault)
    return engine


for fault in (None, "accumulator not rescaled"):
    (request,) = engine_with(fault).generate([prompt], SamplingParams(max_new_tokens=12))
    print(f"{fault or 'no fault':26}{decode(request.output)}")

# %% [markdown]
# `fill_with_leftovers` fills all blocks with keys and values of other prompts. A pool that has
# never been used is all zeros, and zeros hide faults: an engine that reads too far reads
# nothing that matters.
#
# <details><summary>The output is garbage. Where do you look?</summary>
#
# Not at the output. After the first wrong token everything that follows is wrong too, so long
# garbage tells you no more than short garbage. First look at *when* it begins. From the first
# token on: it is the prefill, or everything. After a while: what happens then for the first
# time? A second block, a full block, a chunk? Only with other requests around: one request
# reads or writes what belongs to another. Only now and then, and late: rounding. Then compare
# with a path that you trust, from the input on, and look for the *first* place that differs.
# </details>
#
# Lesson 05 did this by hand, for layers and positions. Now the machine does it, down to the
# block. We need two engines: one with a path that we trust, and the suspect. Both take the
# same prompt, step by step, and a **recorder** keeps what goes into attention and what comes
# out of it in each layer. The suspect continues with the trusted engine's tokens, so both
# always compute the same thing.

# %%
from paged_attention.engine.divergence import Recorder, apart, first_difference

trusted, suspect = (
    Recorder(engine_with(fault), prompt, 12) for fault in (None, "accumulator not rescaled")
)
with torch.inference_mode():
    calls = trusted.run(), suspect.run()
call = calls[0][0]
query, key, output = (tuple(part.shape) for part in (call.query, call.key, call.output))
shapes = f"query {query}, key and value {key}, output {output}"
print(f"{len(calls[0])} layers; of the first one: {shapes}")

# %% [markdown]
# How far apart are the outputs, for each token of the prompt in each layer?

# %%
# (layers, tokens)
differences = torch.stack(
    [apart(a.output, b.output).amax(1) for a, b in zip(*calls, strict=True)]
)
draw.differences(differences)

# %% [markdown]
# Left of token 16 there is only rounding. Token 16 is the first one of the second block. So
# tokens that see a single block are right; after that most are wrong. In layer 0 a few later
# ones are right as well; the reason is below.
#
# **First the token, then the layer, then the head.** A token sees only the tokens before it.
# So of all wrong tokens, the first cannot have caught its fault from another. What is wrong in
# one layer is carried up into the next, so the first wrong layer counts. Within it keys and
# values come before queries, and outputs come last, because they are made from the others.

# %%
row, layer, what, head, difference = first_difference(*calls, tolerance=1e-3)
print(f"token {row}, layer {layer}, the {what} of head {head}")

# %% [markdown]
# **Then the block.** The output is a sum over all keys: weight times value. So each block has
# a **share** in it. You get it by calling the path once more, with zeros as the values of all
# other blocks. The shares of all blocks add up to the output:

# %%
with torch.inference_mode():
    for recorder, of_layer in ((trusted, calls[0][layer]), (suspect, calls[1][layer])):
        shares = [recorder.share(of_layer, index)[row, head] for index in range(2)]
        whole = torch.stack(shares).sum(0)
        assert torch.allclose(whole, of_layer.output[row, head], rtol=1e-3, atol=1e-3)
        largest = [f"{part.abs().max():.3f}" for part in shares]
        name = "trusted" if recorder is trusted else "suspect"
        print(f"{name}: the largest number of each block's share: {largest}")

# %% [markdown]
# Block 1's share is the same in both, but block 0's is not: the suspect has far too much of
# it. So the fault is not in the block that came last. It is in what is done with the one
# before: when block 1 brings a larger maximum, the sum so far should be scaled down. (Those
# few right tokens have their largest score in block 0.)
#
# A wrong key in one block takes weight from all blocks, a little from each. So what counts is
# how much a share has changed compared with its own size. `locate_divergence` does all of this,
# step by step, until the two part.
#
# Here are seven changes to the engine. Six of them are faults that people really make. All
# seven run without an error.
#
# | name | what was done |
# |---|---|
# | table one step late | a block that was added in this step is not yet in the table |
# | a block of another sequence | the second block of a sequence is its neighbour in the pool |
# | tail not masked | the slots after the last token are read too |
# | KV head = h % num_kv_heads | query heads are dealt to KV heads like cards |
# | accumulator not rescaled | the online softmax forgets to scale down what it has |
# | position + 1 at decode | new tokens are turned by the position after theirs |
# | full blocks permuted | a decode visits the full blocks in reverse order |
#
# **Predict.** The prompt has 49 tokens, blocks have 16, and the model generates 20. For each
# line: at which token will it first differ, and in what, the key, the query or the output?

# %%
from paged_attention.engine.divergence import locate_divergence

for fault in FAULTS:
    place = locate_divergence(engine_with(), engine_with(fault), prompt)
    print(f"{fault + ':':29}{place or 'they never part'}")
assert locate_divergence(engine_with(), engine_with("full blocks permuted"), prompt) is None
assert locate_divergence(engine_with(), engine_with("table one step late"), prompt).token == 64

# %% [markdown]
# Go through the lines: each place tells what happened. With the late table nothing is wrong until a
# *new* block is needed at decode, at token 64. With another sequence's block it is block 1, as
# soon as there is one. The tail is read at token 48, the last of the prompt, which is alone in
# its block: the 15 slots after it hold another prompt's leftovers. Wrong heads are wrong at
# once, but not head 0: it takes KV head 0 either way. A wrong position shows in a *key*, at
# the first decode, before attention has done anything.
#
# And the last is not a fault. Attention is a sum, and its order does not matter. A key knows
# its own position, because it was turned before it was written. (With the last block, which is
# not full, or in a prefill with a mask between the blocks, the order would matter.)
#
# What do they do to the model's answers? Here are eight prompts of each task:

# %%
random = np.random.default_rng(8)
pairs = {
    name: [task(random, 0.2 + 0.06 * index) for index in range(8)]
    for name, task in TASKS.items()
}
each = [encode(prompt) for task in pairs.values() for prompt, _ in task]
params = SamplingParams(max_new_tokens=32)
table = {}
for fault in (None, *FAULTS):
    requests = iter(engine_with(fault).generate(each, params))
    table[fault or "no fault"] = {
        name: sum(decode(next(requests).output) == answer + END for _, answer in task) / 8
        for name, task in pairs.items()
    }
assert set(table["no fault"].values()) == set(table["full blocks permuted"].values()) == {1.0}
draw.right_answers(table)

# %% [markdown]
# Look at the places that are not dark. A position that is off by one leaves two tasks perfect,
# and a sum that is not rescaled leaves one. A late table spares the answers that end before
# they need a new block. An unmasked tail does harm when the leftovers look interesting. So a
# test with a few short prompts would have let most of these faults pass, and users would have
# found them. That is why the course compares tokens, over many lengths, in a used pool.

# %% [markdown]
# ## Your own parts
#
# In all lessons, when an answer passes its check, the course keeps it. `assemble` builds an
# engine from these answers: your block manager in C++, your `append_tokens`, your metadata,
# your attention, your scheduler. Each of them is checked again before it goes in. If one is
# missing, or no longer passes, the course's own takes its place.

# %% tags=["nbval-ignore-output"]
from paged_attention.engine.learner_engine import assemble, show_parts

engine, parts = assemble(model, path="paged_torch")
requests = engine.generate(prompts)
assert [decode(request.output) for request in requests] == answers
show_parts(parts)
yours = sum(part.whose == "yours" for part in parts)
print(f"\n{yours} of {len(parts)} parts are yours, and all {len(answers)} answers are right")

# %% [markdown]
# (In the course's own copy of this notebook, only the answers of this lesson count as yours.)
# With `path="blockwise"` your lesson 04 computes the attention; with `path="kernel"` your
# lesson 06 does. If a line says that a part is the course's, solve that exercise, run its
# check, and come back.
#
# ## It speaks
#
# The small model knows a few tasks and no sentence. The engine does not mind which model it
# serves. SmolLM2-135M-Instruct has thirty layers and a vocabulary of 49,152 tokens, and it was
# trained to talk. Here three people ask it at the same time. Each prompt begins with the same
# **system prompt**, which tells the model who it is:
#
# PICTURE recorded_conversation
#
# The orange blocks hold the first 48 tokens of the system prompt, once for all three. Its last
# three do not fill a block. They are in each person's own blocks, with the question and the
# answer.
#
# That was recorded. To talk to the model yourself, on your own parts, change `False` to `True`:
# the cell fetches the model once, 93 MB from the index of Python packages. Opening it takes
# a few seconds, and 1.2 GB of memory. Then put your own questions in
# place of `QUESTIONS`, in braces: a name and a question each.

# %% tags=["nbval-ignore-output"]
from lessons_content.lesson_08.bench.conversation import QUESTIONS, SYSTEM
from paged_attention.engine.conversation import Conversation
from paged_attention.engine.serve.token_text import TokenizerWords
from paged_attention.engine.speaking import ModelNotHereError, speaking_model

talk = None
try:
    folder = speaking_model(download=False)
except ModelNotHereError as error:
    print(error)
else:
    torch.set_num_threads(2)  # this model is large enough for two
    speaker = load_model(folder)
    engine, parts = assemble(speaker, token_budget=64)
    talk = Conversation(engine, TokenizerWords(folder), SYSTEM, QUESTIONS)
    view = display(draw.side_by_side(talk), display_id=True)
    while talk.step():
        view.update(draw.side_by_side(talk))

# %% [markdown]
# Are these the tokens that transformers chooses, for each question by itself? The next cell
# asks it, on the same weights:

# %% tags=["nbval-ignore-output"]
for request in talk.requests.values() if talk else ():
    limit = request.params.max_new_tokens
    alone = speaker.generate(
        torch.tensor([request.prompt]), max_new_tokens=limit, do_sample=False
    )
    assert request.tokens == alone[0].tolist()
    print(f"the same {len(request.output)} tokens for {request.id}")
torch.set_num_threads(1)

# %% [markdown]
# The budget of a step is 64 tokens here. The first prompt takes all of the first step, so when
# the others begin, its blocks are there to be found. In a terminal, `paged-attention-course
# chat` opens a page on which you talk to an engine of your own parts.
#
# ## Speed
#
# This is the classic way to serve a batch with transformers: pad all prompts on the left to
# the longest, and `generate` until all have ended. The engine does not wait: a request that
# has ended makes room at once. And it pads little. *batched* groups contexts of similar
# length, and pads each of them to the longest of its group, to less than twice its length:

# %% tags=["nbval-ignore-output"]
import time


def padded_generate(prompts):
    """Lets transformers answer a batch of prompts, padded on the left."""
    longest = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, -len(prompt) :] = torch.tensor(prompt)
        mask[row, -len(prompt) :] = 1
    rows = reference.generate(tokens, attention_mask=mask, max_new_tokens=64, do_sample=False)
    outputs = rows[:, longest:].tolist()
    return [output[: output.index(config.eos_token_id) + 1] for output in outputs]


def engine_generate(prompts):
    return [request.output for request in Engine(model, token_budget=512).generate(prompts)]


many, right_answers = questions(seed=4, count=32)
servers = {"generate, padded": padded_generate, "engine": engine_generate}
for name, serve_all in servers.items():
    started = time.perf_counter()
    outputs = serve_all(many)
    seconds = time.perf_counter() - started
    assert [decode(output) for output in outputs] == right_answers
    print(f"{name:18}{sum(map(len, outputs)) / seconds:7.0f} tokens a second")

# %% [markdown]
# A single run of a small model says little; the machine has other things to do. So the course
# has a benchmark with a longer trace and several turns: `python -m tools.bench serving`, in a
# clone. It compares the engine with `generate` in batches of several sizes and with
# `generate_batch`, which is transformers' own continuous batching. These runs come with the
# course. *Same requests* and *same tokens* compare each server's answers with our engine's.
# Tokens are counted up to the first that differs:

# %%
from lessons_content.lesson_08.bench import serving as serving_bench

print(serving_bench.recorded_table())

# %% [markdown]
# On the CPU all servers give the same tokens. On the GPU they do not. The model there has
# random weights and 16-bit numbers: now and then two tokens are so close that rounding decides
# between them, and from there on an answer goes its own way.
#
# Where does the time go? For a small model, not into attention. PyTorch can report each
# operation before it runs. So count the operations of a step in which 1, 8 and 32 sequences
# decode:

# %% tags=["nbval-ignore-output"]
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    """Counts the operations that PyTorch runs inside a `with` block."""

    count = 0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        self.count += 1
        return operation(*arguments, **named or {})


def count_operations(num_seqs):
    """Counts the operations of one step in which num_seqs sequences decode."""
    engine = Engine(model, token_budget=512)  # so that the first step takes all prompts
    for index in range(num_seqs):
        engine.add(index, encode("Cq7b4mxy>"))
    engine.step()
    with Counting() as counting:
        engine.step()
    return counting.count


counts = {num_seqs: count_operations(num_seqs) for num_seqs in (1, 8, 32)}
print(counts)
assert counts[32] < 2 * counts[1]

# %% [markdown]
# There are a few hundred, and hardly more for 32 sequences than for one. Each costs a few
# microseconds of Python and launching
# before it computes anything. So the larger the batch, the less each token costs. The longer
# the contexts, the more of a step is attention, and the more lesson 07's kernel matters.
#
# The recorded run on a GPU says the same. A step of 64 sequences with 1,024 tokens each takes
# about 40 ms, and the GPU computes for only 6 of them. The rest of the time it waits for
# Python, which launches one operation after another. Lesson
# [10](10_keep_the_gpu_busy.ipynb) does something about that. And in that run one padded batch
# of 64 is faster than the engine: all its answers have the same length, so no request waits
# for another, and there is nothing for continuous batching to gain.

# %% [markdown]
# ## Optional: across GPUs
#
# One thing can be split without changing the model: the KV cache, and attention over it. Each
# of two GPUs has half of the KV heads, and the query heads that share them. So the two hold
# contexts twice as long, or twice as many. (Lesson [11](11_beyond_one_gpu.ipynb) divides the
# weights as well.) Block ids, tables and the scheduler know nothing of heads, so every process
# has the same ones. Your attention sees fewer heads, and afterwards the processes collect each
# other's results.
#
# Two processes on this machine's CPU talk through `gloo`; on GPUs it is NCCL. (Each of them
# loads PyTorch and the model again, which takes a few seconds.)

# %%
from paged_attention.engine.parallel.shards import serve_sharded

few = [encode(text) for text in ("Cq7b>", "Szebra>", "Ka17..q42......z93?zq>")]
on_two = serve_sharded(few, world_size=2, backend="gloo")
assert on_two == [dense(prompt) for prompt in few]
print("on two processes:", ", ".join(decode(output) for output in on_two), "· the same tokens")

# %% [markdown]
# ## What you built
#
# The whole course in one table, from the bottom up:
#
# | part of the engine | from |
# |---|---|
# | which blocks are free, how many users each has, copy on write | lesson 01 |
# | the pool, the block tables, slots, all or nothing | lesson 02 |
# | online softmax: attention in pieces | lesson 03 |
# | (o, m, l) of each block, and their combination | lesson 04 |
# | the metadata of any mix, room for a whole batch, the reference in PyTorch | lesson 05 |
# | the kernel that follows the block table | lesson 06 |
# | the same near the memory's limit | lesson 07 |
# | the plug in the model, one row for all, schedule, preempt, prefix sharing, sampling, the loop | lesson 08 |
#
# ## Ask yourself
#
# <details><summary>Why must keys and values be written before attention reads, and not
# after?</summary>
#
# A token attends to itself and to the tokens before it, and in a chunk those belong to the
# same step. Their keys exist nowhere but in this step's projection. If attention read first,
# every token would miss its own key, and a chunk would miss all its own keys.
# </details>
#
# <details><summary>A prompt of 10,000 tokens comes while 60 requests decode. What happens with
# a token budget of 512, and what without one?</summary>
#
# With it, each step has the 60 decodes and 452 tokens of the prompt, so the prompt takes 23
# steps, and every other request gets a token in each of them. Without it, a single step
# computes 10,060 tokens, and 60 users see their answers stop for as long as that takes.
# </details>
#
# <details><summary>Why is a preempted request computed again? Its blocks could be copied to
# the CPU's memory.</summary>
#
# They could, and some engines do that. It costs two copies over a slow bus, and memory on the
# other side. Computing them again is one prefill, and prefill is fast: all tokens at once.
# Kwon et al. measured both (section 7.3). With small blocks, recomputing is faster, since many
# small copies use the bus badly. With blocks of 16 to 64 tokens the two are about equal. And
# if a request's blocks are still in the prefix cache, it has little to compute.
# </details>
#
# <details><summary>Why does a block's hash contain that of the block before?</summary>
#
# From layer 1 on, a key depends on all tokens before it. Two blocks of the same tokens after
# different beginnings have different keys, so they must have different hashes.
# </details>
#
# <details><summary>Two requests share a block. Can one of them spoil it for the
# other?</summary>
#
# Only full blocks are shared, and nothing is written into a full block, with one exception: a
# request that finds *all* its tokens in the cache computes the last one again. Then
# `append_token` sees that the block has other users, and makes a copy.
# </details>
#
# <details><summary>Two correct engines give different texts for the same prompt, with greedy
# decoding. How can that be, and how do you tell it from a bug?</summary>
#
# They add in different orders, so their logits differ in the last digits. If two tokens are
# almost equally likely, their order may change. This happens late, at one token, where the
# lead is tiny. A bug shows in the tensors, far beyond rounding, and `locate_divergence` says
# where.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Woosuk Kwon et al., *Efficient Memory Management for Large Language Model Serving with
#   PagedAttention*, SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180): sections
#   4.3 to 4.5 for the step of a batch, sharing, and preemption; 7.3 for recomputing compared
#   with copying.
# - Gyeong-In Yu et al., *Orca: A Distributed Serving System for Transformer-Based Generative
#   Models*, OSDI 2022: section 3 for a new schedule in each iteration.
# - Amey Agrawal et al., *Taming Throughput-Latency Tradeoff in LLM Inference with
#   Sarathi-Serve*, OSDI 2024, [arXiv:2403.02310](https://arxiv.org/abs/2403.02310): section 4
#   for chunked prefill under a token budget.
# - Lianmin Zheng et al., *SGLang: Efficient Execution of Structured Language Model Programs*,
#   2024, [arXiv:2312.07104](https://arxiv.org/abs/2312.07104): section 3 for a prefix cache as
#   a tree.
# - Guy Steele, Doug Lea and Christine Flood, *Fast Splittable Pseudorandom Number Generators*,
#   OOPSLA 2014: where the function that mixes seed and position in `draw_number` is from.
# - transformers' documentation, [attention
#   interface](https://huggingface.co/docs/transformers/attention_interface).
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [09 · The prompt's kernel](09_prompt_kernel.ipynb), in which prompts get a kernel as
# fast as lesson 07's is for decodes.
#
# Or read vLLM's scheduler next: you will know your way around. Or go on here: let `schedule`
# prefer the request that has waited longest, keep preempted blocks in the CPU's memory, let a
# small model guess tokens that the large one only checks. You have the reference, the checks,
# and a tool that finds the first wrong block.
