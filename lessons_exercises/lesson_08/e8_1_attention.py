"""Exercise 8.1: what a layer of the model calls."""

import copy
import random
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons_exercises import tensors
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.engine.attention import PagedStep, paged_attention_forward
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.metadata import attn_paged_torch, build_metadata


def rows_of(heads):
    """(1, heads, num_tokens, head_size) to (num_tokens, heads, head_size)."""
    return heads[0].transpose(0, 1)


def reshaped(heads):
    return heads.reshape(heads.shape[2], heads.shape[1], heads.shape[3])


def flat(cache):
    return cache.view(-1, *cache.shape[2:])


def write(cache, slots, new):
    flat(cache)[slots] = new


def write_shaped(cache, slots, new):
    """Takes the shape of the flat cache from what is written."""
    cache.view(-1, *new.shape[1:])[slots] = new


def write_copy(cache, slots, new):
    flat(cache)[slots].copy_(new)


def add(cache, slots, new):
    flat(cache)[slots] += new


def write_reversed(cache, slots, new):
    flat(cache)[slots.flip(0)] = new


def write_rounded(dtype):
    def write_in_fewer_bits(cache, slots, new):
        write(cache, slots, new.to(dtype).to(cache.dtype))

    return write_in_fewer_bits


def write_row(cache, slots, new):
    flat(cache)[: len(new)] = new


def write_from_first(cache, slots, new):
    flat(cache)[slots[0] : slots[0] + len(new)] = new


def write_last(cache, slots, new):
    flat(cache)[slots[-1]] = new[-1]


def write_first(cache, slots, new):
    flat(cache)[slots[0]] = new[0]


def write_offset_first(cache, slots, new):
    cache[slots % cache.shape[1], slots // cache.shape[1]] = new


def write_by_num_blocks(cache, slots, new):
    cache[slots // len(cache), slots % len(cache)] = new


def write_by_16(cache, slots, new):
    cache[slots // 16, slots % 16] = new


def write_blocks(cache, slots, new):
    cache[slots] = new


def forward(
    module,
    query,
    key,
    value,
    *,
    paged,
    layer=lambda module: module.layer_idx,
    rows=rows_of,
    q_rows=rows_of,
    k_rows=None,
    v_rows=None,
    writes=(write, write),
    order="kva",
    pool_of=None,
    unpacked=(0, 1),
    taken=(0, 1),
    written=(0, 1),
    read=(0, 1),
    read_as=lambda cache: cache,
    scale=1.0,
):
    """paged_attention_forward with a place for each mistake.

    Returns (num_tokens, num_q_heads, head_size).

    order: in which order keys and values are written and attention is computed. unpacked:
        where keys and values are taken to stand. taken: which of the two new tensors goes
        where keys and where values are written. written: which of the two
    caches each is written to, read: which are handed to attend.
    """
    q = q_rows(query)
    k = (k_rows or rows)(key)
    v = (v_rows or rows)(value)
    pool = pool_of(paged, module) if pool_of else paged.kv_cache[layer(module)]
    caches, new = (pool[unpacked[0]], pool[unpacked[1]]), (k, v)
    for doing in order:
        if doing == "a":
            o = paged.attend(q * scale, read_as(caches[read[0]]), read_as(caches[read[1]]))
        else:
            index = "kv".index(doing)
            writes[index](caches[written[index]], paged.slot_mapping, new[taken[index]])
    return o


def wrong(result=lambda o: (o[None], None), **differences):
    """A wrong answer that differs from ours in some of forward()'s arguments.

    Or in what it makes of the result.
    """

    def answer(module, query, key, value, attention_mask=None, *, paged, **others):
        return result(forward(module, query, key, value, paged=paged, **differences))

    return answer


def scaled_twice(
    module, query, key, value, attention_mask=None, *, paged, scaling=1.0, **others
):
    return forward(module, query, key, value, paged=paged, scale=scaling)[None], None


def ignoring_the_pool(is_causal):
    """A wrong answer that attends to the row's own keys, once it has written them."""

    def answer(module, query, key, value, attention_mask=None, *, paged, **others):
        forward(module, query, key, value, paged=paged)
        o = scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, enable_gqa=True
        )
        return o.transpose(1, 2), None

    return answer


def new_keys_to_attend(module, query, key, value, attention_mask=None, *, paged, **others):
    forward(module, query, key, value, paged=paged)
    return paged.attend(rows_of(query), rows_of(key), rows_of(value))[None], None


def heads_repeated(module, query, key, value, attention_mask=None, *, paged, **others):
    times = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(times, dim=1)
    value = value.repeat_interleave(times, dim=1)
    return forward(module, query, key, value, paged=paged)[None], None


def written_into_a_copy(module, query, key, value, attention_mask=None, *, paged, **others):
    """The path sees the new keys and values, and the pool itself never does."""
    return (
        forward(
            module, query, key, value, paged=replace(paged, kv_cache=paged.kv_cache.clone())
        )[None],
        None,
    )


def written_for_every_layer(
    module, query, key, value, attention_mask=None, *, paged, **others
):
    for k_cache, v_cache in paged.kv_cache:
        write(k_cache, paged.slot_mapping, rows_of(key))
        write(v_cache, paged.slot_mapping, rows_of(value))
    return paged.attend(rows_of(query), *paged.kv_cache[module.layer_idx])[None], None


def both_caches_as_one(module, query, key, value, attention_mask=None, *, paged, **others):
    return paged.attend(rows_of(query), paged.kv_cache[module.layer_idx])[None], None


def attending_to_another_layer(which):
    """Writes into its own layer's part of the pool, and attends to another's."""

    def answer(module, query, key, value, attention_mask=None, *, paged, **others):
        forward(module, query, key, value, paged=paged)
        return paged.attend(rows_of(query), *paged.kv_cache[which(module)])[None], None

    return answer


def squeezed(heads):
    """Without every dimension of size 1, and not the batch's alone."""
    return heads.squeeze().transpose(0, 1)


def squeezed_and_permuted(heads):
    return heads.squeeze().permute(1, 0, 2)


def query_by_query(module, query, key, value, attention_mask=None, *, paged, **others):
    """Calls attend for each token's query alone."""
    alone = replace(
        paged,
        attend=lambda q, *caches: torch.cat([paged.attend(one[None], *caches) for one in q]),
    )
    return forward(module, query, key, value, paged=alone)[None], None


def unpack(pool):
    k_cache, v_cache = pool
    return k_cache, v_cache


def nothing(cache, slots, new):
    pass


# (block size, KV heads, query heads of each, head size, layers, sequences: tokens in the cache
# and new tokens, seed)
CASES = [
    (4, 1, 1, 4, 1, [(0, 1)], 1),
    (4, 1, 1, 4, 1, [(2, 1)], 2),
    (2, 1, 1, 4, 2, [(3, 1)], 3),
    (4, 2, 1, 4, 1, [(0, 2)], 4),
    (4, 2, 1, 4, 1, [(0, 3)], 5),
    (2, 2, 1, 4, 2, [(4, 3), (1, 1)], 6),
    (4, 1, 3, 8, 2, [(5, 1), (0, 4), (2, 1)], 7),
    (3, 2, 3, 8, 3, [(7, 1), (3, 1), (0, 5), (6, 4)], 8),
    (4, 3, 7, 4, 2, [(4, 4), (3, 1), (0, 1), (8, 2)], 9),
    (1, 2, 1, 4, 1, [(2, 2), (1, 1)], 10),
    (16, 2, 2, 16, 3, [(17, 1), (31, 1), (0, 18)], 11),
]


def hidden(seed):
    """Up to four sequences: decodes, whole prompts, chunks."""
    chance = random.Random(seed)
    for number in range(12):
        block_size = chance.randint(1, 6)
        chunks = [
            (
                chance.choice((0, block_size, chance.randint(1, 2 * block_size))),
                chance.choice((1, chance.randint(1, 2 * block_size))),
            )
            for _ in range(1 + number // 3)
        ]
        heads = chance.randint(1, 3), chance.randint(1, 4), chance.choice((2, 4, 8))
        yield block_size, *heads, chance.randint(1, 3), chunks, chance.randrange(2**31)


def make_step(case):
    """The step of a case, and each layer's query, key and value.

    The pool is full of numbers.
    """
    block_size, num_kv_heads, num_each, head_size, num_layers, chunks, seed = case
    generator = torch.Generator().manual_seed(seed)
    manager = PagedAttentionManager(
        24, block_size, num_kv_heads, head_size, len(chunks), 16, num_layers
    )
    manager.kv_cache.copy_(torch.randn(manager.kv_cache.shape, generator=generator))
    for _ in range(seed % 5):  # so that the first sequence has not the first block
        manager.block_manager.allocate()
    for seq_id, (past, _) in enumerate(chunks):
        manager.add_sequence(seq_id, past)
    scheduled = [(seq_id, new) for seq_id, (_, new) in enumerate(chunks)][::-1]
    manager.append_tokens(scheduled)
    metadata = build_metadata(manager, scheduled)
    num_tokens = sum(new for _, new in chunks)
    layers = [
        [
            torch.randn(1, heads, num_tokens, head_size, generator=generator)
            for heads in (num_kv_heads * num_each, num_kv_heads, num_kv_heads)
        ]
        for _ in range(num_layers)
    ]

    def attend(q, k_cache, v_cache):
        return attn_paged_torch(q, k_cache, v_cache, metadata)

    # the name that a learner reads where it gets too few arguments
    attend.__qualname__ = "attend"
    return PagedStep(manager.kv_cache, metadata.slot_mapping, attend), layers


def observe(answer, case):
    """The output of every layer, and what stands in the pool then.

    The layers are called in their order, as the model does.
    """
    step, layers = make_step(case)
    outputs = []
    for layer, (query, key, value) in enumerate(layers):
        module = SimpleNamespace(
            layer_idx=layer,
            scaling=query.shape[-1] ** -0.5,
            head_dim=query.shape[-1],
            num_key_value_groups=query.shape[1] // key.shape[1],
            is_causal=True,
            training=False,
        )
        given = copy.deepcopy([query, key, value])
        slots = step.slot_mapping.clone()
        result = answer(
            module, query, key, value, None, paged=step, scaling=module.scaling, dropout=0.0
        )
        if (
            not isinstance(result, tuple | list)
            or len(result) != 2
            or not isinstance(result[0], torch.Tensor)
        ):
            return (
                tensors.values(result, "the output", "the weights")
                if not isinstance(result, torch.Tensor)
                else Text(f"a tensor {tuple(result.shape)} alone, in place of a tuple of two")
            )
        if result[1] is not None:
            return Text("something else than None for the weights")
        if not all(map(torch.equal, given, (query, key, value))) or not torch.equal(
            slots, step.slot_mapping
        ):
            return Text("its arguments are changed")
        outputs.append(
            tensors.Values(result[0].detach().clone(), f"the output of layer {layer}")
        )
    return *outputs, tensors.Values(step.kv_cache, "kv_cache")


def size(case):
    """Tokens, sequences, and how many numbers a token has in all layers."""
    _, num_kv_heads, num_each, head_size, num_layers, chunks, _ = case
    return sum(map(sum, chunks)), len(chunks), num_kv_heads * num_each * head_size * num_layers


def describe(case):
    block_size, num_kv_heads, num_each, head_size, num_layers, chunks, _ = case
    those = "; ".join(f"{counted(new, 'token')} behind {past}" for past, new in chunks[::-1])
    return (
        f"{counted(num_layers, 'layer')}, {counted(num_kv_heads * num_each, 'query head')} "
        f"on {counted(num_kv_heads, 'KV head')} of size {head_size}, blocks of {block_size}; "
        f"one row of {those}"
    )


EXERCISE = Exercise(
    id="8.1",
    title="your attention in a transformers model",
    answer_name="paged_attention_forward",
    reference=paged_attention_forward,
    cases=lambda: CASES,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "attends-before-writing",
            "The keys and values are written after the attention. "
            "A new token has to see itself, and the chunk's tokens before it: "
            "when `attend` reads the pool, they must stand there.",
            wrong(order="akv"),
            also=(wrong(order="kav"), wrong(order="vak")),
        ),
        Mistake(
            "layer-0-always",
            "Every layer writes and reads the first layer's part of the pool. "
            "Which layer calls, `module` knows.",
            wrong(layer=lambda module: 0),
        ),
        Mistake(
            "layer-off-by-one",
            "A layer takes another layer's part of the pool. "
            "`module.layer_idx` counts from 0.",
            wrong(layer=lambda module: module.layer_idx - 1),
            also=(
                wrong(layer=lambda module: module.layer_idx + 1),
                wrong(layer=lambda module: -1),
            ),
        ),
        Mistake(
            "attends-to-another-layer",
            "The keys and values go into the part of the layer that calls, "
            "and `attend` reads another layer's.",
            attending_to_another_layer(lambda module: 0),
            also=(attending_to_another_layer(lambda module: module.layer_idx - 1),),
        ),
        Mistake(
            "layer-left-out",
            "`paged.kv_cache` holds the keys and values of all layers: "
            "its first dimension is the layer. Take the part of the layer that calls first; "
            "it holds a cache for keys and one for values.",
            wrong(pool_of=lambda paged, module: unpack(paged.kv_cache)),
            also=(
                wrong(pool_of=lambda paged, module: (paged.kv_cache[0], paged.kv_cache[1])),
                wrong(
                    pool_of=lambda paged, module: unpack(paged.kv_cache[:, module.layer_idx])
                ),
                wrong(
                    pool_of=lambda paged, module: (paged.kv_cache[:, 0], paged.kv_cache[:, 1])
                ),
            ),
        ),
        Mistake(
            "layer-and-kind-mixed-up",
            "The first index of `paged.kv_cache` is the layer, and the second says whether "
            "it is keys or values. You have them the other way round.",
            wrong(
                pool_of=lambda paged, module: (
                    paged.kv_cache[0, module.layer_idx],
                    paged.kv_cache[1, module.layer_idx],
                )
            ),
        ),
        Mistake(
            "keys-and-values-swapped",
            "Keys stand where values belong, and values where keys belong. "
            "A layer's part of the pool has the keys first.",
            wrong(written=(1, 0)),
            also=(wrong(unpacked=(1, 0)),),
        ),
        Mistake(
            "attend-takes-values-for-keys",
            "What is in the pool is right. `attend` gets the two caches in the wrong order.",
            wrong(read=(1, 0)),
            also=(wrong(read=(0, 0)), wrong(read=(1, 1))),
        ),
        Mistake(
            "values-not-written",
            "The keys are in their slots, and the values are not.",
            wrong(writes=(write, nothing)),
        ),
        Mistake(
            "keys-not-written",
            "The values are in their slots, and the keys are not.",
            wrong(writes=(nothing, write)),
        ),
        Mistake(
            "one-cache-for-both",
            "Keys and values go into the same cache, "
            "and the later ones overwrite the earlier ones. A layer has one for each.",
            wrong(unpacked=(0, 0)),
            also=(wrong(unpacked=(1, 1)), wrong(written=(0, 0))),
        ),
        Mistake(
            "one-tensor-twice",
            "The same new numbers stand in both caches. "
            "One is for the keys, the other for the values.",
            wrong(taken=(0, 0)),
            also=(wrong(taken=(1, 1)),),
        ),
        Mistake(
            "nothing-written",
            "The pool is as it was before the call: the new keys and values are in no slot. "
            "Indexing with a tensor on the left of `=` writes; elsewhere it makes a copy, "
            "and so does a method without `_` at its end.",
            wrong(writes=(write_copy, write_copy)),
            also=(written_into_a_copy,),
        ),
        Mistake(
            "added-to-what-was-there",
            "New keys and values are added to the numbers that a slot held before. "
            "A slot may have belonged to another sequence: what it held is of no use.",
            wrong(writes=(add, add)),
            also=(wrong(writes=(add, write)), wrong(writes=(write, add))),
        ),
        Mistake(
            "every-layer-written",
            "The new keys and values stand in the pool's part of every layer. "
            "A layer has keys of its own, and writes to its own part.",
            written_for_every_layer,
        ),
        Mistake(
            "slot-mapping-ignored",
            "The new keys and values stand in the pool's first slots. "
            "Where each one belongs, `paged.slot_mapping` says.",
            wrong(writes=(write_row, write_row)),
        ),
        Mistake(
            "slots-assumed-contiguous",
            "The new keys and values stand one behind the other, "
            "from the first token's slot on. The next token's slot can be in another block, "
            "or belong to another sequence: `paged.slot_mapping` has one for each.",
            wrong(writes=(write_from_first, write_from_first)),
        ),
        Mistake(
            "one-token-only",
            "Of a row with several tokens only one key and one value are written. "
            "All of them are new.",
            wrong(writes=(write_last, write_last)),
            also=(wrong(writes=(write_first, write_first)),),
        ),
        Mistake(
            "slots-reversed",
            "The new keys and values go into their slots in reverse order, "
            "the first token's into the last token's slot. "
            "Entry t of `paged.slot_mapping` is the slot of token t.",
            wrong(writes=(write_reversed, write_reversed)),
        ),
        Mistake(
            "rounded",
            "The new keys and values stand in their slots with fewer digits "
            "than they came with: they were 16-bit numbers on the way. "
            "The pool's dtype is the model's, so there is nothing to convert.",
            wrong(writes=(write_rounded(torch.float16),) * 2),
            also=(wrong(writes=(write_rounded(torch.bfloat16),) * 2),),
        ),
        Mistake(
            "block-and-offset-mixed-up",
            "A slot is block_id * block_size + offset. "
            "Your block and offset are not the ones of this slot: which dimension of a cache "
            "is the block size, and which part of the division is the block?",
            wrong(writes=(write_offset_first, write_offset_first)),
            also=(wrong(writes=(write_by_num_blocks, write_by_num_blocks)),),
        ),
        Mistake(
            "block-size-16",
            "You count with blocks of 16 tokens. "
            "How many slots these blocks have, a dimension of the pool says.",
            wrong(writes=(write_by_16, write_by_16)),
        ),
        Mistake(
            "write-selects-whole-blocks",
            "A slot counts through the whole pool, token by token. "
            "Used as an index of the cache it selects whole blocks: "
            "block and offset have to become one dimension first.",
            wrong(writes=(write_blocks, write_blocks)),
        ),
        Mistake(
            "heads-scrambled",
            "A reshape cannot exchange two dimensions: it puts numbers of different heads "
            "and tokens into one row. Which operation moves the heads behind the tokens?",
            wrong(rows=reshaped, q_rows=reshaped),
            also=(
                wrong(rows=reshaped),
                wrong(q_rows=reshaped),
                wrong(k_rows=reshaped),
                wrong(v_rows=reshaped),
            ),
        ),
        Mistake(
            "inputs-not-transposed",
            "The model gives the heads before the tokens. "
            "The pool and `attend` have the tokens first.",
            wrong(rows=lambda heads: heads[0], q_rows=lambda heads: heads[0]),
            also=(
                wrong(rows=lambda heads: heads[0]),
                wrong(q_rows=lambda heads: heads[0]),
                wrong(k_rows=lambda heads: heads[0]),
                wrong(v_rows=lambda heads: heads[0]),
                wrong(
                    rows=lambda heads: heads[0],
                    q_rows=lambda heads: heads[0],
                    writes=(write_shaped, write_shaped),
                ),
                wrong(rows=lambda heads: heads[0], writes=(write_shaped, write_shaped)),
            ),
        ),
        Mistake(
            "batch-dimension-kept",
            "`attend` gets queries with four dimensions. It takes "
            "(num_tokens, num_q_heads, head_size): the batch of 1 is only the model's.",
            wrong(q_rows=lambda heads: heads.transpose(1, 2)),
            also=(
                wrong(q_rows=lambda heads: heads),
                wrong(q_rows=lambda heads: heads.transpose(0, 1)),
            ),
        ),
        Mistake(
            "squeezed-too-much",
            "`squeeze()` takes away every dimension of size 1. A step can have a single "
            "token, and a model a single head: only the batch's dimension is to go.",
            wrong(rows=squeezed, q_rows=squeezed),
            also=(
                wrong(rows=squeezed_and_permuted, q_rows=squeezed_and_permuted),
                wrong(rows=squeezed),
                wrong(rows=squeezed_and_permuted),
                wrong(q_rows=squeezed),
                wrong(q_rows=squeezed_and_permuted),
            ),
        ),
        Mistake(
            "both-caches-as-one",
            "`attend` takes three tensors, and got two: "
            "the queries, the keys' cache and the values' cache.",
            both_caches_as_one,
        ),
        Mistake(
            "flat-caches-to-attend",
            "`attend` gets caches in which block and offset are one dimension. "
            "That form is for writing into slots; the path needs the blocks.",
            wrong(read_as=flat),
        ),
        Mistake(
            "attend-in-pieces",
            "`attend` is called with a part of the queries. It is made ready for all tokens "
            "of the step at once, and finds out by itself which of them belong together.",
            query_by_query,
            also=(wrong(q_rows=lambda heads: rows_of(heads)[-1:]),),
        ),
        Mistake(
            "output-transposed",
            "The output has its heads before its tokens. "
            "The model takes the tokens first, as `attend` gives them.",
            wrong(result=lambda o: (o.transpose(0, 1)[None], None)),
            also=(
                wrong(
                    result=lambda o: (o.reshape(1, o.shape[1], o.shape[0], o.shape[2]), None)
                ),
            ),
        ),
        Mistake(
            "no-batch-dimension",
            "The numbers are right, and the output has no batch of 1 in front, "
            "as the model's tensors have.",
            wrong(result=lambda o: (o, None)),
            also=(
                wrong(result=lambda o: (o[:, None], None)),
                wrong(result=lambda o: (o.transpose(0, 1), None)),
            ),
        ),
        Mistake(
            "heads-merged",
            "The numbers are right, and the heads stand in one dimension. "
            "The model's layer puts them together itself.",
            wrong(result=lambda o: (o.flatten(1)[None], None)),
            also=(wrong(result=lambda o: (o.flatten(1), None)),),
        ),
        Mistake(
            "weights-left-out",
            "The model expects two things from its attention, the output and the weights. "
            "There are none to give; None takes their place.",
            wrong(result=lambda o: o[None]),
            also=(wrong(result=lambda o: o),),
        ),
        Mistake(
            "weights-given",
            "The second thing that you return is not None. "
            "There the model expects the weights of the attention, and `attend` gives none.",
            wrong(result=lambda o: (o[None], o[None])),
        ),
        Mistake(
            "returns-nothing",
            "The function returns nothing. The layer goes on with the attention's output.",
            wrong(result=lambda o: None),
        ),
        Mistake(
            "scaled-twice",
            "The scores are scaled twice: `attend` does it itself, "
            "so the queries go in as they are.",
            scaled_twice,
        ),
        Mistake(
            "row-taken-for-one-sequence",
            "The queries attend to the row that came with the call. "
            "It holds the new tokens of all sequences and none of the older ones: "
            "`attend` finds each sequence's keys in the pool.",
            ignoring_the_pool(True),
            also=(ignoring_the_pool(False), new_keys_to_attend),
        ),
        Mistake(
            "heads-repeated",
            "The KV heads were repeated to the number of query heads. "
            "The pool holds each of them once, and `attend` shares them out.",
            heads_repeated,
        ),
    ),
    hints=(
        (
            "Three things happen in this order: "
            "the tensors get the shapes of lessons 03 to 05, "
            "the new keys and values go into their slots, the attention runs over the pool."
        ),
        (
            "`query[0]` is (num_q_heads, num_tokens, "
            "head_size). Which two dimensions change places, for query, key and value?"
        ),
        (
            "`paged.kv_cache[module.layer_idx]` holds two caches. "
            "Writing into slots is exercise 2.3: first make block and offset one dimension, "
            "as a view, so that the pool itself is written."
        ),
        (
            "`attend` returns (num_tokens, num_q_heads, head_size). "
            "What is missing in front of it, and behind the comma?"
        ),
    ),
)
