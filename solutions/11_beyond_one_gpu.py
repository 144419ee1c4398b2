# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11 · Beyond the notebook
#
# **You build** the last two functions between our engine and one in daily use. In part 1, the
# model is too large for one GPU: your function says which part of each weight a GPU keeps. In
# part 2, those who ask are not in the notebook: your function says what a server sends next.
#
# PICTURE opening
#
# **You need** lesson [08](08_serve_a_model.ipynb), and from lesson
# [10](10_keep_the_gpu_busy.ipynb) the count of what a step reads. Words that you meet again
# are in the [glossary](glossary.ipynb). You do not need a GPU. The lesson is optional. **It
# takes** 30 to 60 minutes.

# %%
from lessons_lib import check, hint, open_lesson, solution

draw = open_lesson("11")

# %% [markdown]
# The engine in the middle is the one that you know, with its batch and its block tables.
# Nothing in it has to know how many GPUs compute the model, or who asks.
#
# ## Part 1: over several GPUs
#
# A **rank** is a process with its own GPU. Here is one layer of a model that two ranks share:
#
# PICTURE layer_over_ranks
#
# Each rank keeps a part of each weight. Twice in a layer, the ranks add up what they have.
#
# ### What does not fit
#
# How much memory does a model need? Here is the count for the shapes of Qwen3-8B, with numbers
# of 16 bits. Its embedding and its `lm_head` are two weights of the same shape.

# %%
from types import SimpleNamespace

import torch

config = SimpleNamespace(
    hidden_size=4096, num_hidden_layers=36, vocab_size=151_936, tie_word_embeddings=False
)
q, kv = 32 * 128, 8 * 128  # the heads' numbers for each token
# (out_features, in_features) of each weight of a layer
SHAPES = {"q_proj": (q, 4096), "k_proj": (kv, 4096), "v_proj": (kv, 4096)}
SHAPES |= {"o_proj": (4096, q)}
SHAPES |= {"gate_proj": (12_288, 4096), "up_proj": (12_288, 4096), "down_proj": (4096, 12_288)}
HEAD = (151_936, 4096)

layer = sum(rows * columns for rows, columns in SHAPES.values())
weights = 2 * (36 * layer + 2 * HEAD[0] * HEAD[1])  # bytes
for_each_token = 2 * 36 * 2 * kv  # bytes of keys and values
cache = 128 * 4096 * for_each_token
print(f"weights: {weights / 1e9:.1f} GB")
print(f"keys and values of 128 sequences of 4,096 tokens: {cache / 1e9:.1f} GB")
print(f"together: {(weights + cache) / 1e9:.1f} GB")
assert weights + cache > 80e9

# %% [markdown]
# A card with 80 GB has no room for that. Two of them have, if each holds half. They are faster,
# too: in a step, each of the two reads only half of the bytes.
#
# Lesson [08](08_serve_a_model.ipynb) has divided the cache by heads, and left all weights on
# each GPU. This lesson divides the weights too. It is called **tensor parallelism**: each layer
# is cut, and all ranks work on the same layer at the same time.
#
# ### Two ways to cut a product
#
# A layer is mostly products with weights. A weight has `(out_features, in_features)`: a row
# for each result, and a column for each input. There are two ways to cut it:

# %%
draw.two_cuts()

# %%
torch.manual_seed(11)
x, weight = torch.randn(1, 6), torch.randn(4, 6)
whole = x @ weight.T  # (1, 4)

by_rows = [x @ part.T for part in weight.chunk(2, dim=0)]  # each (1, 2)
assert torch.allclose(torch.cat(by_rows, dim=1), whole)

inputs, parts = x.chunk(2, dim=1), weight.chunk(2, dim=1)
by_columns = [mine @ part.T for mine, part in zip(inputs, parts)]  # each (1, 4)
assert torch.allclose(sum(by_columns), whole)
print("both give the same:", [round(number, 2) for number in whole[0].tolist()])

# %% [markdown]
# - **By rows**, each rank needs the whole input, and has some of the results.
# - **By columns**, each rank needs some of the inputs, and has a part of each result. The parts
#   have to be added up over the ranks. That is an **all-reduce**: afterwards every rank has
#   the sum.
#
# The second kind needs just what the first kind gives. So they make a pair: cut the first
# weight by rows and the next one by columns, and the ranks need not talk in between. In the
# picture above you see two such pairs:
#
# - q, k and v by rows, then o by columns. The rows of q, k and v are heads. A rank computes
#   attention for its own heads, and its pool has the keys and values of these only.
# - gate and up by rows, then down by columns.
#
# `lm_head` is cut by rows as well. Its results are the logits, and each rank sends its own to
# the others. (In PyTorch the classes for this are called `ColwiseParallel` and
# `RowwiseParallel`. They are named after the transposed weight, so `ColwiseParallel` cuts
# *rows* here.)
#
# ### Exercise 11.1: what a rank keeps


# %% exercise="11.1"
# INCLUDE paged_attention/engine/parallel/cuts.py kept_by_rank


# %% check="11.1"
check("11.1", kept_by_rank)

# %% [markdown]
# This is your function on a layer of Qwen3-8B:

# %%
draw.cut_layer(SHAPES, kept_by_rank)

# %% [markdown]
# With two ranks, a rank has 4 of the 8 KV heads, and the 16 heads of queries that share them.
# Three ranks could not share 8 KV heads, so such a number is refused.
#
# Does a layer that is cut give the same result? Here both ranks are played by this process, one
# after the other, on a layer of lesson 08's small model:

# %%
from torch.nn.functional import silu

from paged_attention.engine.checkpoint import load_model

torch.set_num_threads(1)
model = load_model()
mlp = model.model.layers[0].mlp
x = torch.randn(5, 128)  # (num_tokens, hidden_size)


def cut(layer, rank):
    """A rank's part of one of the MLP's weights."""
    weight = getattr(mlp, layer).weight
    return weight[kept_by_rank(layer, tuple(weight.shape), rank, 2)]


partial = []
for rank in range(2):
    gate, up, down = (cut(layer, rank) for layer in ("gate_proj", "up_proj", "down_proj"))
    inner = silu(x @ gate.T) * (x @ up.T)  # (5, 128), half of the 256
    partial.append(inner @ down.T)  # (5, 128)
    print(f"rank {rank}: gate {tuple(gate.shape)}, down {tuple(down.shape)}")
assert torch.allclose(sum(partial), mlp(x), atol=1e-5)
print("the sum is what the whole layer gives")

# %% [markdown]
# Now with real processes, and all of the model. On GPUs they talk through NCCL. Here they are on
# the CPU and talk through `gloo`. The first run has one rank, the second one two. (Each process
# loads PyTorch and its part of the model, which takes a few seconds.)

# %%
from paged_attention.engine.parallel.engine import serve_parallel
from paged_attention.engine.request import SamplingParams
from paged_attention.tiny_qwen3.tasks import decode, encode

prompts = [encode(text) for text in ("Cq7b>", "Szebra>", "Ka17..q42......z93?zq>")]
runs = {
    world_size: serve_parallel(prompts, SamplingParams(), world_size, "gloo")
    for world_size in (1, 2)
}
for world_size, run in runs.items():
    print(
        f"{world_size} rank{'s' * (world_size > 1)}: {run.weight_bytes:,} bytes of weights"
        f" and {run.cache_bytes:,} of cache on each"
    )
assert runs[1].answers == runs[2].answers
print(", ".join(decode(answer) for answer in runs[2].answers), "· the same tokens on both")

# %% [markdown]
# Each rank has half of the cache, and nearly half of the weights. The embedding and the norms
# are whole on both. (This small model has no `lm_head`: its embedding serves as one.) All ranks
# run the same scheduler on the same requests, so they agree on each step without talking about
# it. Only sums and logits are exchanged.

# %% [markdown]
# ### What it costs
#
# **Predict.** How many bytes do the two GPUs exchange for a token in a layer, and how many
# bytes of weights does each of them read for a layer?
#
# <details><summary>A way to work it out</summary>
#
# There are two sums in a layer, after o and after down. Each has `hidden_size` numbers for each
# token, and a number has two bytes. Of the weights, a rank reads half.
# </details>
#
# `collectives` lists what the ranks do together in a step. You count the bytes:

# %%
from paged_attention.engine.parallel.cuts import collectives


def bytes_kept(shapes, world_size):
    """The bytes of rank 0's parts of some weights."""
    total = 0
    for layer, shape in shapes.items():
        part = torch.empty(shape, device="meta")[kept_by_rank(layer, shape, 0, world_size)]
        total += 2 * part.numel()
    return total


together = collectives(config, 2)
for what in (*together[:2], together[-1]):
    print(f"after {what.after}: {what.kind}, {2 * what.numbers:,} bytes for each token")
print(f"{len(together)} of them in a step")
sums = sum(2 * what.numbers for what in together[:2])
kept = {world_size: bytes_kept(SHAPES, world_size) for world_size in (1, 2)}
print(f"for a layer: {sums:,} bytes for each token, and {kept[2]:,} of weights for each rank")
assert kept[1] == 2 * kept[2] == 2 * layer

# %% [markdown]
# Next to the weights that is nothing, even for 128 tokens at once. Here is a decode step of 128
# sequences with 610 tokens each:

# %%
read = {"weights": kept[2], "keys and values": 128 * 610 * for_each_token / 36 / 2}
draw.bytes_of_a_layer(
    {what: size / 1e6 for what, size in read.items()},
    128 * sums / 1e6,
    "Shapes of Qwen3-8B, 128 sequences of 610 tokens, two ranks",
)

# %% [markdown]
# Two GPUs of one machine exchange hundreds of gigabytes a second, about a tenth of what they
# read from memory. So the bytes do not cost much. What costs is that there are so many
# exchanges. Each has to be started, and a rank waits until the other has come that far. That
# takes microseconds, even for a single byte. And the next kernel needs the sum, so nothing
# goes on meanwhile. How much is 73 times that?

# %%
from lessons_content.lesson_10.bench.fast_engine_runs import recorded

card = next(run for run in recorded() if "H200" in run.card)
heads = {world_size: bytes_kept({"lm_head": HEAD}, world_size) for world_size in (1, 2)}


def step(context, world_size, microseconds):
    """Milliseconds of a step of 128 sequences: what it reads, and its exchanges."""
    keys_and_values = 128 * context * for_each_token / world_size
    size = 36 * kept[world_size] + heads[world_size] + keys_and_values
    num_exchanges = len(collectives(config, world_size))
    return size / card.read_limit / 1e6 + num_exchanges * microseconds / 1e3


each = range(0, 31)  # microseconds
lines = {
    f"128 sequences of {context:,} tokens": [
        step(context, 1, 0) / step(context, 2, microseconds) for microseconds in each
    ]
    for context in (4096, 610)
}
for name, gain in lines.items():
    print(f"{name}: {gain[0]:.2f} times as fast without waiting, {gain[20]:.2f} with 20 us")
draw.gains(each, lines)

# %% [markdown]
# (The rate of reading is what lesson 10 has recorded for an NVIDIA H200.) With long contexts
# each rank has so much to read that 73 short waits are hardly felt. With short ones they are
# felt: the step is short, and the waits stay as long as they are. And some things are not cut
# at all. Norms, the sums of the residual stream and the choice of tokens take as long on two
# GPUs as on one. So two GPUs are less than twice as fast as one. The longer the contexts, the
# nearer they come to twice.
#
# That was the count. This is what `python -m tools.bench two_gpus` has measured, with the
# engine of lesson 10 on one GPU and on two. A rank's exchanges are in its recorded step:

# %%
from lessons_content.lesson_11.bench import two_gpus_runs

run = two_gpus_runs.recorded()[0]
print(f"{run.card}, {run.date}, PyTorch {run.torch}")
for context in (4096, 610):
    row = run.row(2, context)
    print(
        f"128 sequences of {context:,} tokens: {run.gain(context):.2f} times one GPU, "
        f"{row.collectives:.1f} of {row.step:.1f} ms in exchanges, {row.most:.1f} GiB on each"
    )
assert run.gain(4096) > run.gain(610)

# %% [markdown]
# With 610 tokens each, an exchange took 15 microseconds on average. The gain is lower than the
# count gives for that, because some things are not cut. With 4,096 tokens an exchange took 55
# microseconds. The profile counts the wait for the other GPU as a part of it. Why that is
# longer here, these figures do not say.
#
# Now let each GPU use no more than 24 GiB. The batch with 610 tokens each does not fit on one,
# and it fits on two:

# %%
for row in run.capped:
    ending = row.reason.split(":")[0] or f"{row.most:.1f} GiB on each"
    print(f"{row.num_gpus} GPU{'s' * (row.num_gpus > 1)}: {ending}")

# %% [markdown]
# ## Part 2: asked by other programs
#
# So far you had the engine in your own Python. In daily use it is a process of its own, a
# **server**, and other programs send it prompts over HTTP. They get the answer piece by piece:
#
# PICTURE stream
#
# Why the 4 waits is the subject of your second exercise. Our server speaks a language that most
# programs know already, OpenAI's completions API. So chat windows, test tools and the `openai`
# package can ask our engine, too.
#
# ### A request and its answer
#
# In a terminal, `python -m paged_attention.engine.serve` starts a server. Here it runs beside the
# notebook. Port 0 means any free port, and only programs on this machine can reach it:

# %% tags=["nbval-ignore-output"]
import atexit
import subprocess
import sys

# -P: no file in this notebook's folder is taken for one of Python's own modules
command = [sys.executable, "-P", "-m", "paged_attention.engine.serve", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
atexit.register(server.terminate)  # at the latest, it ends with the notebook's kernel
greeting = server.stdout.readline()
address = greeting.split()[-1]
print(greeting)
assert address.startswith("http://127.0.0.1:")

# %% [markdown]
# A request is a POST with JSON in its body. This function does what `curl` does in a terminal:
#
# ```
# curl ADDRESS/v1/completions -H "Content-Type: application/json" -d '{"model": …}'
# ```
#
# Each answer has an id and a time. They are cut out here, since they differ each time. The
# small model copies what is after `C`.

# %%
import json
import re
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

directly = build_opener(ProxyHandler({}))  # the server is on this machine: no proxy between


def ask(**fields):
    """Sends a request to the server. Returns what can be read like a file."""
    body = json.dumps({"model": "tiny_qwen3", "temperature": 0} | fields).encode()
    headers = {"Content-Type": "application/json"}
    return directly.open(Request(f"{address}/v1/completions", body, headers))


def as_it_came(answer):
    """An answer's text, without what differs each time."""
    text = answer.read().decode()
    return re.sub(r'"id": "[^"]*", |"created": \d+, ', "", text)


print(as_it_came(ask(prompt="Cq7b4mxy>", max_tokens=20)))

# %% [markdown]
# `finish_reason` says why the answer has ended: `length` (it has `max_tokens` tokens), or
# `stop` (the model's end token came, or a **stop text** that the client has named). If
# something is wrong, the answer has a status and a sentence:

# %%
for wrong in ({"prompt": "Cq7b>", "model": "another"}, {"prompt": "Cq7b>", "max_tokens": 0}):
    try:
        ask(**wrong)
    except HTTPError as error:
        print(error.code, json.load(error)["error"]["message"])

# %% [markdown]
# ### A stream
#
# Nobody wants to wait for the last token before reading the first. With `"stream": true` the server
# sends each piece of text as soon as it is there. These are **server-sent events**: lines that
# begin with `data: `, with an empty line after each:

# %%
print(as_it_came(ask(prompt="Cq7b>", stream=True)))

# %% [markdown]
# What is sent cannot be taken back, and that makes trouble in two places:
#
# - **Stop texts.** A client may want the answer to end before "4m". The model gives "4", and
#   nobody knows yet whether "m" follows. If "4" is sent and "m" comes, a piece of the stop
#   text is out. So "4" is held back until more is known.
# - **Characters of several bytes.** A token of a large model may be only a part of a character.
#   Decoding gives "\ufffd" where bytes are no whole character yet:

# %%
letters = "né".encode()
for num_bytes in range(1, len(letters) + 1):
    print(num_bytes, "of 3 bytes:", ascii(letters[:num_bytes].decode(errors="replace")))

# %% [markdown]
# Two of these bytes are "é", and with only the first of them there is no telling.
#
# ### Exercise 11.2: what a stream sends next
#
# `text` grows from event to event, and you say what of it is new and safe. The end of a text
# may be the beginning of a stop text in more than one way. Think of "aa" and the stop text
# "aab". An incomplete character may come after such a beginning: "4\ufffd" may become "4é",
# and if that is a stop text, nothing of it can be sent yet. To keep the rule simple, a
# beginning waits with such a character whatever the stop text goes on with. A stop text in the
# text comes before any other reason: then the reason is "stop", even where the request has
# ended with "length". White space is text like any other.


# %% exercise="11.2"
# INCLUDE paged_attention/engine/serve/stop_texts.py next_event


# %% check="11.2"
check("11.2", next_event)

# %% [markdown]
# This is what the server does with such a function for one request: a step, the text so far,
# an event. Here it is yours:

# %%
from paged_attention.engine.engine import Engine

REASONS = {None: None, "end": "stop", "length": "length"}  # the engine's words, and the API's


def stream(prompt, stop, max_tokens=20):
    """Prints each token, and the event that is sent after it."""
    engine, num_sent, ended = Engine(model), 0, None
    request = engine.add("r", encode(prompt), SamplingParams(max_new_tokens=max_tokens))
    while ended is None:
        engine.step()
        tokens = decode(request.output)
        reason = REASONS[request.reason]
        sent, ended = next_event(tokens.removesuffix("$"), num_sent, stop, reason)
        num_sent += len(sent)
        choice = {"text": sent, "finish_reason": ended}
        print(f"{tokens[-1]}  data: {json.dumps({'choices': [choice]})}")


stream("Cq7b4mxy>", stop=["4m"])

# %% [markdown]
# The "4" has waited, and after "m" it was clear that it would never be sent: this is the stream
# of the picture. (The server leaves out events without a text, except for the last one.) Now
# for a stop text that begins like a part of the answer and goes on in another way:

# %%
stream("Cq7b4mxy>", stop=["4x"])

# %% [markdown]
# "4" comes one event late, together with "m". `$` is the model's end token, and no part of the
# text.
#
# ### A client that leaves
#
# A client may close its window in the middle of an answer. If nothing were done, the engine
# would go on in vain, and the answer's blocks would stay in use. So the server cancels the
# request as soon as the connection is closed. Here one client asks for 64 answers, reads the
# first event, and leaves. `/health` says how many answers are waited for:

# %% tags=["nbval-ignore-output"]
import time


def num_requests():
    """How many answers the server is working on."""
    return json.load(directly.open(f"{address}/health"))["requests"]


leaving = ask(prompt="C" + 12 * "q7b4" + ">", max_tokens=400, n=64, stream=True)
leaving.readline()
print(num_requests(), "answers while the client reads")
leaving.close()
while num_requests():
    time.sleep(0.01)
assert num_requests() == 0
print("none after it has left")

# %% [markdown]
# And if more clients come than the engine can serve? The server takes a fixed number of
# requests. To the next one it says at once that it is full (status 429), and the client may try
# again a little later.
#
# ### A chat
#
# A model that was trained to talk is asked at another address, `/v1/chat/completions`. Instead
# of a prompt, the body has a list of **messages**. Each has a role, such as `user`, and its
# text, which is called `content`. The server puts them into the model's own template. If you
# have fetched the model that speaks in lesson [08](08_serve_a_model.ipynb), it answers here,
# piece by piece:

# %% tags=["nbval-ignore-output"]
from paged_attention.engine.speaking import ModelNotHereError, speaking_model


def chat(address, question):
    """Prints the model's answer as it comes."""
    fields = {"model": "smollm2", "temperature": 0, "max_tokens": 60, "stream": True}
    fields["messages"] = [{"role": "user", "content": question}]
    request = Request(f"{address}/v1/chat/completions", json.dumps(fields).encode())
    request.add_header("Content-Type", "application/json")
    for line in directly.open(request):
        event = line.decode().removeprefix("data: ").strip()
        if event.startswith("{"):
            print(
                json.loads(event)["choices"][0]["delta"].get("content", ""), end="", flush=True
            )
    print()


try:
    speaking_model()
except ModelNotHereError as error:
    print(error)
else:
    speaks = [*command, "--model", "smollm2"]
    with subprocess.Popen(speaks, stdout=subprocess.PIPE, text=True) as speaker:
        chat(speaker.stdout.readline().split()[-1], "What is the capital of France?")
        speaker.terminate()

# %% [markdown]
# ### Under load
#
# Clients come at random times. Two times matter to each of them: the **time to first token**,
# and the time between tokens after that. This was recorded with the small model, server and
# clients on the same processor. p50 is the time of the client in the middle, and p99 is what
# one in a hundred exceeds.

# %%
from lessons_content.lesson_11.bench import load_runs

load = load_runs.recorded()[0]
for row in load.rows:
    print(f"{row.name}: {row.requests} requests, {row.refused} refused, {row.lost} lost")
draw.waiting(load)

# %% [markdown]
# The more requests are open at once, the more sequences are in a step, and the longer it takes.
# Once more of them come than the engine can serve, the queue fills. Then some are refused, and
# the others wait for seconds. None is lost.

# %%
server.terminate()
print("the server has ended:", server.wait())

# %% [markdown]
# ## What you built
#
# - The function that says which rows and columns of each weight a rank keeps.
# - The count of what a rank reads and what it exchanges, and of what that leaves of "twice".
# - The function that says what a stream sends next, and what has to wait.
#
# ## Ask yourself
#
# <details><summary>Why is o not cut by rows, as the layers before it are?</summary>
#
# A rank has the outputs of its own heads only. For a row of o it would need those of all
# heads. So the ranks would first have to send each other their heads, and after o their
# results: two exchanges where one is enough.
# </details>
#
# <details><summary>The ranks have different weights. Why do they never choose different
# tokens?</summary>
#
# After each sum all ranks have the same numbers, down to the last bit. The logits come from
# these, and each rank gets those of the others. Block tables, the scheduler and the sampler
# see the same input on each rank. Nothing in them is left to chance: draws come from the seeds.
# </details>
#
# <details><summary>In float32 the tokens are the same on one rank and on two. Does that have to
# be so?</summary>
#
# No. A sum over the ranks adds in another order than one product does, so the last digits may
# differ. Where two tokens are nearly equally likely, another one may come. With 16 bits that
# happens sooner.
# </details>
#
# <details><summary>A "\ufffd" is in the middle of a text. May it be sent?</summary>
#
# Yes. What comes after it is a character of its own, so the bytes before it will never make a
# whole one. Only at the end can the next token still change it.
# </details>
#
# <details><summary>Why does a server refuse requests when its queue is full? They could
# wait.</summary>
#
# If more requests come than the engine can serve, the queue grows without an end, and each new
# client waits longer than the one before. Most of them give up by themselves, and the engine
# computes answers that nobody reads. A client that is refused at once can come back, or ask
# another server.
# </details>
#
# ## Where this is in vLLM
#
# PLACES
#
# ## Sources
#
# - Mohammad Shoeybi et al., *Megatron-LM: Training Multi-Billion Parameter Language Models Using
#   Model Parallelism*, 2019, [arXiv:1909.08053](https://arxiv.org/abs/1909.08053): section 3 for
#   the pairs of cuts and their two sums in a layer.
# - Reiner Pope et al., *Efficiently Scaling Transformer Inference*, 2022,
#   [arXiv:2211.05102](https://arxiv.org/abs/2211.05102): section 3 for other cuts, and what each
#   of them exchanges.
# - PyTorch's documentation, [tensor
#   parallelism](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html).
# - WHATWG, [HTML Standard](https://html.spec.whatwg.org/multipage/server-sent-events.html),
#   section 9.2: server-sent events.
# - OpenAI's [API reference](https://platform.openai.com/docs/api-reference/completions), on
#   completions and their streams.
#
# **Done?** *File ▸ Close and Shut Down Notebook* ends this lesson's kernel and frees its memory.
#
# **Next:** [The whole course on one page](summary.ipynb), to look things up. This was the last
# lesson in which you build.
