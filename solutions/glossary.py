# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Words
#
# What the words of this course mean, and the lesson in which you meet each of them first. To
# see how everything fits together, open [the summary](summary.ipynb).
#
# | word | what it means here | lesson |
# |---|---|---|
# | **all or nothing** | A call changes all that it should, or it raises an error and changes nothing. | [02](02_block_tables.ipynb) |
# | **all-reduce** | All ranks add up what each of them has, and all have the sum afterwards. | [11](11_beyond_one_gpu.ipynb) |
# | **bank** | One of the 32 parts of shared memory. Lanes that want the same one at once are served one after the other. | [07](07_fast_kernel.ipynb) |
# | **barrier** | A line in a kernel that no thread of a thread block passes until all of them have reached it. | [06](06_cuda_kernel.ipynb) |
# | **beam search** | Going on with the likeliest few answers at once. Where two come from one, its sequence is forked. | [08](08_serve_a_model.ipynb) |
# | **binding** | The text that makes a C++ class known to Python. | [01](01_block_manager.ipynb) |
# | **block** | A fixed number of slots for the keys and values of consecutive tokens of one sequence. Others call it a page. | [00](00_start_here.ipynb) |
# | **block id** | The number of a block in the pool. | [01](01_block_manager.ipynb) |
# | **block manager** | Hands out blocks and takes them back: a free list and a reference count for each block. | [01](01_block_manager.ipynb) |
# | **block size** | The number of slots in a block, 16 unless stated otherwise. | [02](02_block_tables.ipynb) |
# | **block table** | For each sequence the ids of its blocks, in order. Entries after the last block are -1. | [02](02_block_tables.ipynb) |
# | **capture** | Recording a step, so that it can be replayed. | [10](10_keep_the_gpu_busy.ipynb) |
# | **causal** | A query sees its own key and those before it, and none after it. | [03](03_prefill.ipynb) |
# | **causal edge** | Where, in the table of queries and keys, the keys that a query sees end. | [09](09_prompt_kernel.ipynb) |
# | **checked mode** | Running a CUDA kernel on the CPU with every access watched, so that a race or a wrong index is named by its line. | [06](06_cuda_kernel.ipynb) |
# | **chunk** | A piece of a prompt that is computed in one step, so that others need not wait for the whole prompt. | [05](05_batched_metadata.ipynb) |
# | **combine** | Making one (o, m, l) out of several, exactly, in any order. | [04](04_decode.ipynb) |
# | **context length** | How many of a sequence's tokens have their keys in the cache: `context_len`. | [06](06_cuda_kernel.ipynb) |
# | **continuous batching** | Deciding anew at every step which requests are in the batch. | [08](08_serve_a_model.ipynb) |
# | **copy on write** | A shared block is copied when one of its users wants to write into it, and not before. | [01](01_block_manager.ipynb) |
# | **CUDA graph** | A recording of launches with their arguments. The GPU runs all of them at a single start. | [10](10_keep_the_gpu_busy.ipynb) |
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
# | **intensity** | The operations that a computation does for each byte that it has to move. | [09](09_prompt_kernel.ipynb) |
# | **item** | What one thread block does: a tile of rows, and the tiles of keys that it meets. | [09](09_prompt_kernel.ipynb) |
# | **kernel** | A function for the GPU, which many threads run at once. | [06](06_cuda_kernel.ipynb) |
# | **key** | The vector of a token that queries are compared with. Each KV head has one for each token. | [00](00_start_here.ipynb) |
# | **KV cache** | The keys and values of all past tokens, kept so that they are computed once. | [00](00_start_here.ipynb) |
# | **KV head** | A head that has keys and values; one or several query heads read them. | [00](00_start_here.ipynb) |
# | **lane** | One of the 32 threads of a warp. | [06](06_cuda_kernel.ipynb) |
# | **layer** | One of the stages of a model. Each has its own weights, keys and values. | [00](00_start_here.ipynb) |
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
# | **pending token** | A token that the device has chosen and the host has not read yet. | [10](10_keep_the_gpu_busy.ipynb) |
# | **pool** | The one allocation that holds all blocks. | [01](01_block_manager.ipynb) |
# | **preemption** | Taking all blocks of a running request, because there are none left; it is computed again later. | [08](08_serve_a_model.ipynb) |
# | **prefill** | Computing the tokens of a prompt, many at once. | [03](03_prefill.ipynb) |
# | **prefix sharing** | Requests that begin with the same tokens use the same full blocks, found by a chain of hashes. | [08](08_serve_a_model.ipynb) |
# | **query** | The vector of a token that is compared with the keys, to find out how much each value counts for it. | [03](03_prefill.ipynb) |
# | **race** | A result that depends on which of several threads comes first. | [01](01_block_manager.ipynb) |
# | **rank** | One of several processes that share a model, each with its own GPU; also its number. | [11](11_beyond_one_gpu.ipynb) |
# | **reference count** | How many users a block has: sequences, and in lesson 08 also the prefix cache. At 0 it is free. | [01](01_block_manager.ipynb) |
# | **replay** | Running a recorded step again, on what its tensors hold now. | [10](10_keep_the_gpu_busy.ipynb) |
# | **request** | A prompt and what the user wants for it. While it runs, it is a sequence. | [02](02_block_tables.ipynb) |
# | **row of a tile** | A query and one of the query heads that share a KV head. | [09](09_prompt_kernel.ipynb) |
# | **rung** | One of the kernels of lesson 07, 09 or 10, with one more idea than the one before it. | [07](07_fast_kernel.ipynb) |
# | **scheduler** | Decides what is computed in the next step, and which requests have to wait. | [04](04_decode.ipynb) |
# | **sector** | 32 bytes of a GPU's memory, the least that a load fetches. | [07](07_fast_kernel.ipynb) |
# | **segment** | The rows of one request in a tensor of all requests. | [04](04_decode.ipynb) |
# | **sequence** | The tokens of one request, so far. | [01](01_block_manager.ipynb) |
# | **server-sent events** | Pieces of an answer over HTTP, each sent as soon as it is there. | [11](11_beyond_one_gpu.ipynb) |
# | **shared memory** | Memory on the multiprocessor that the threads of one thread block share. Fast and small. | [06](06_cuda_kernel.ipynb) |
# | **shuffle** | An instruction with which the threads of a warp read each other's registers. | [06](06_cuda_kernel.ipynb) |
# | **slot** | The place of one token in the pool: `block_id * block_size + offset`. | [02](02_block_tables.ipynb) |
# | **split KV** | Several thread blocks share one sequence's keys, and their parts are combined. Also called Flash-Decoding. | [07](07_fast_kernel.ipynb) |
# | **stage** | A place in shared memory for a tile that is on its way from memory. | [07](07_fast_kernel.ipynb) |
# | **step** | One call of the model, over some tokens of some requests. | [08](08_serve_a_model.ipynb) |
# | **stop text** | A text that ends an answer. It is no part of the answer. | [11](11_beyond_one_gpu.ipynb) |
# | **stream** | A queue of the GPU: what is on one stream runs in order. | [06](06_cuda_kernel.ipynb) |
# | **strides** | How far apart two neighbours along each dimension of a tensor lie in memory. | [02](02_block_tables.ipynb) |
# | **swizzle** | An order of a tile's chunks in shared memory in which lanes that read together use different banks. | [07](07_fast_kernel.ipynb) |
# | **tensor core** | The part of a GPU that multiplies small matrices in one instruction. | [07](07_fast_kernel.ipynb) |
# | **tensor parallelism** | Several GPUs share each layer of a model: each has some of the rows or columns of each weight. | [11](11_beyond_one_gpu.ipynb) |
# | **thread block** | In CUDA, threads that run on one multiprocessor and can wait for each other. No relation to the blocks of the pool. | [06](06_cuda_kernel.ipynb) |
# | **tile** | The keys and values of 16 tokens or more that are taken at once; in lesson 09 also the rows that meet them. | [07](07_fast_kernel.ipynb) |
# | **time to first token** | How long a client waits until the first new token is there. | [11](11_beyond_one_gpu.ipynb) |
# | **token** | A word or a part of one. A model reads and writes one after another. | [00](00_start_here.ipynb) |
# | **token budget** | How many tokens a step may compute. | [08](08_serve_a_model.ipynb) |
# | **trace** | The outputs of all layers of a run, kept to be compared. | [05](05_batched_metadata.ipynb) |
# | **value** | The vector of a token that goes into attention's weighted sum. There is one for each key. | [00](00_start_here.ipynb) |
# | **warp** | 32 threads that execute together and can exchange registers. | [06](06_cuda_kernel.ipynb) |
# | **waste** | Slots that are taken and hold no token. | [00](00_start_here.ipynb) |
# | **wave** | The thread blocks that run at the same time. When there are more blocks than places, another wave follows. | [07](07_fast_kernel.ipynb) |
# | **workspace** | Memory that a kernel is given for intermediate results. | [06](06_cuda_kernel.ipynb) |
