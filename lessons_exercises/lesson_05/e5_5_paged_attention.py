"""Exercise 5.5: paged attention for any batch, in PyTorch."""

import math
import random
from dataclasses import replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons_exercises import tensors
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.attention import share_heads
from paged_attention.block_table import NO_BLOCK
from paged_attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
    visible_keys,
)
from paged_attention.softmax_state import NO_KEY
from paged_attention.validate import check_paged_attention

POISON = 1e4  # in every slot that holds no token
USUAL, NAN, LARGE, INT64, DOUBLE = "usual", "nan", "large", "int64", "double"  # kinds of cases


def in_double(q, k_cache, v_cache, metadata):
    o = attn_paged_torch(q.double(), k_cache.double(), v_cache.double(), metadata)
    return o.to(q.dtype)


def gathered(cache, metadata, s, kv_len):
    block_ids = metadata.block_table[s, : -(-kv_len // cache.shape[1])]
    return cache[block_ids].flatten(0, 1)[:kv_len]


def masked_softmax(scores, visible):
    return torch.softmax(scores.masked_fill(~visible, NO_KEY), dim=-1)


def over(dim):
    return lambda scores, visible: torch.softmax(scores.masked_fill(~visible, NO_KEY), dim=dim)


def masked_by(number):
    return lambda scores, visible: torch.softmax(scores.masked_fill(~visible, number), dim=-1)


def masked_after(scores, visible):
    return torch.softmax(scores, dim=-1) * visible


def without_maximum(scores, visible):
    weights = torch.exp(scores.masked_fill(~visible, NO_KEY))
    return weights / weights.sum(-1, keepdim=True)


def attend(q, k, v, visible, scale, softmax=masked_softmax):
    """q: (q_len, num_q_heads, head_size).

    k, v: (kv_len, num_q_heads, head_size).
    visible: (q_len, kv_len).
    """
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    return torch.einsum("hqk,khd->qhd", softmax(scores, visible), v)


def paged(
    rows=gathered,
    queries=lambda q, starts, s: q[starts[s] : starts[s + 1]],
    visible=visible_keys,
    scale=-0.5,
    share=share_heads,
    out=lambda o: o,
    softmax=masked_softmax,
    swap=False,
    cat=torch.cat,
    attend=attend,
):
    """attn_paged_torch() with some of its parts replaced.

    scale: the power of head_size that multiplies the scores.
    """

    def wrong(q, k_cache, v_cache, metadata):
        starts, outputs = metadata.cu_seqlens_q.tolist(), []
        for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
            mine = queries(q, starts, s)
            k, v = (
                share(rows(cache, metadata, s, kv_len), q.shape[1])
                for cache in (k_cache, v_cache)
            )
            k, v = (v, k) if swap else (k, v)
            outputs.append(
                out(
                    attend(
                        mine, k, v, visible(len(mine), len(k)), q.shape[-1] ** scale, softmax
                    )
                )
            )
        return cat(outputs)

    return wrong


def not_shared(k, num_q_heads):
    return k


def attend_by_products(q, k, v, visible, scale, softmax):
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    return (softmax(q @ k.transpose(1, 2) * scale, visible) @ v).transpose(0, 1)


def attend_by_sdpa(q, k, v, visible, scale, softmax):
    return scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=visible
    )[0].transpose(0, 1)


def masked_tail(q, k_cache, v_cache, metadata):
    """Whole blocks are attended to, with the tail's scores at minus infinity."""
    starts = metadata.cu_seqlens_q.tolist()
    outputs = []
    size = k_cache.shape[1]
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        mine = q[starts[s] : starts[s + 1]]
        k, v = (
            share_heads(whole_blocks(cache, metadata, s, kv_len), q.shape[1])
            for cache in (k_cache, v_cache)
        )
        visible = torch.zeros(len(mine), -(-kv_len // size) * size, dtype=torch.bool)
        visible[:, :kv_len] = visible_keys(len(mine), kv_len)
        outputs.append(attend(mine, k, v, visible, 1 / math.sqrt(q.shape[-1])))
    return torch.cat(outputs)


def queries_scaled_in_place(q, k_cache, v_cache, metadata):
    q /= math.sqrt(q.shape[-1])
    return paged(scale=0)(q, k_cache, v_cache, metadata)


def keys_scaled_in_place(q, k_cache, v_cache, metadata):
    k_cache /= math.sqrt(q.shape[-1])
    return paged(scale=0)(q, k_cache, v_cache, metadata)


def tail_emptied(q, k_cache, v_cache, metadata):
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        if kv_len % k_cache.shape[1]:
            last = metadata.block_table[s, kv_len // k_cache.shape[1]]
            k_cache[last, kv_len % k_cache.shape[1] :] = 0
            v_cache[last, kv_len % k_cache.shape[1] :] = 0
    return attn_paged_torch(q, k_cache, v_cache, metadata)


def padding_overwritten(q, k_cache, v_cache, metadata):
    metadata.block_table.clamp_(min=0)
    return attn_paged_torch(q, k_cache, v_cache, metadata)


def caches_cleaned(q, k_cache, v_cache, metadata):
    k_cache.nan_to_num_(0.0)
    v_cache.nan_to_num_(0.0)
    return attn_paged_torch(q, k_cache, v_cache, metadata)


def new_keys_only(q, k_cache, v_cache, metadata):
    """The keys and values of this batch's tokens, through slot_mapping."""
    starts, outputs = metadata.cu_seqlens_q.tolist(), []
    for start, end in zip(starts[:-1], starts[1:], strict=True):
        slots = metadata.slot_mapping[start:end]
        k, v = (
            share_heads(cache.flatten(0, 1)[slots], q.shape[1]) for cache in (k_cache, v_cache)
        )
        outputs.append(
            attend(
                q[start:end],
                k,
                v,
                visible_keys(end - start, end - start),
                1 / math.sqrt(q.shape[-1]),
            )
        )
    return torch.cat(outputs)


def full_blocks(cache, metadata, s, kv_len):
    return cache[metadata.block_table[s, : kv_len // cache.shape[1]]].flatten(0, 1)


def heads_as_tokens(options):
    """PyTorch's attention without moving the heads to the front.

    It runs over the heads of one token.
    """

    def attend(q, k, v, visible, scale, softmax):
        return scaled_dot_product_attention(q, k, v, **options(visible))

    return paged(attend=attend)


def heads_as_tokens_in_rows(options):
    """The same, with each sequence's output written into rows of a tensor like q."""

    def wrong(q, k_cache, v_cache, metadata):
        starts, out = metadata.cu_seqlens_q.tolist(), torch.empty_like(q)
        for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
            mine = q[starts[s] : starts[s + 1]]
            k, v = (
                share_heads(gathered(cache, metadata, s, kv_len), q.shape[1])
                for cache in (k_cache, v_cache)
            )
            visible = visible_keys(len(mine), kv_len)
            out[starts[s] : starts[s + 1]] = scaled_dot_product_attention(
                mine, k, v, **options(visible)
            )
        return out

    return wrong


def full_blocks_under_a_whole_mask(q, k_cache, v_cache, metadata):
    """Only full blocks are read, and the mask is as wide as the sequence."""
    starts, outputs = metadata.cu_seqlens_q.tolist(), []
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        mine = q[starts[s] : starts[s + 1]]
        k, v = (
            share_heads(full_blocks(cache, metadata, s, kv_len), q.shape[1])
            for cache in (k_cache, v_cache)
        )
        outputs.append(
            attend(mine, k, v, visible_keys(len(mine), kv_len), 1 / math.sqrt(q.shape[-1]))
        )
    return torch.cat(outputs)


def keys_for_values(q, k_cache, v_cache, metadata):
    return paged()(q, k_cache, k_cache, metadata)


def values_for_keys(q, k_cache, v_cache, metadata):
    return paged()(q, v_cache, v_cache, metadata)


def scaled_by(size):
    """The scores are divided by the root of another size."""

    def wrong(q, k_cache, v_cache, metadata):
        def attend_scaled(q_s, k, v, visible, scale, softmax):
            return attend(q_s, k, v, visible, 1 / math.sqrt(size(q, k_cache, k)), softmax)

        return paged(attend=attend_scaled)(q, k_cache, v_cache, metadata)

    return wrong


def pool_in_order(advance):
    """The sequences are read one after the other from the first slot on.

    `advance` gives a sequence's slots.
    """

    def wrong(q, k_cache, v_cache, metadata):
        lengths = metadata.seq_lens_kv.tolist()

        def rows(cache, metadata, s, kv_len):
            first = sum(advance(length, cache.shape[1]) for length in lengths[:s])
            return cache.flatten(0, 1)[first : first + kv_len]

        return paged(rows=rows)(q, k_cache, v_cache, metadata)

    return wrong


def one_output_each(placed):
    """As many outputs as sequences.

    `placed` puts the right outputs of all queries where they stand in the end.
    """

    def wrong(q, k_cache, v_cache, metadata):
        right = attn_paged_torch(q, k_cache, v_cache, metadata)
        return placed(right, metadata.cu_seqlens_q[1:].long() - 1)

    return wrong


def in_the_first_rows(right, last):
    o = torch.zeros_like(right)
    o[: len(last)] = right[last]
    return o


def in_single(q, k_cache, v_cache, metadata):
    return attn_paged_torch(q.float(), k_cache.float(), v_cache.float(), metadata)


def check_deleted(q, k_cache, v_cache, metadata):
    return paged()(q, k_cache, v_cache, metadata)


def checked(wrong):
    """With the check that the task starts with."""

    def with_check(q, k_cache, v_cache, metadata):
        check_paged_attention(q, k_cache, v_cache, metadata)
        return wrong(q, k_cache, v_cache, metadata)

    return with_check


def all_if_chunk(q_len, kv_len):
    return (
        visible_keys(q_len, kv_len)
        if q_len == kv_len
        else torch.ones(q_len, kv_len, dtype=torch.bool)
    )


def whole_blocks(cache, metadata, s, kv_len):
    return cache[metadata.block_table[s, : -(-kv_len // cache.shape[1])]].flatten(0, 1)


def whole_row(cache, metadata, s, kv_len):
    return cache[metadata.block_table[s]].flatten(0, 1)


def side_by_side(cache, metadata, s, kv_len):
    first = int(metadata.block_table[s, 0]) * cache.shape[1]
    return cache.flatten(0, 1)[first : first + kv_len]


def first_row(cache, metadata, s, kv_len):
    return gathered(cache, metadata, 0, kv_len)


def batch_attends_across_sequences(q, k_cache, v_cache, metadata):
    starts = metadata.cu_seqlens_q.tolist()
    outputs = []
    past = []
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        past.append(
            [
                share_heads(gathered(cache, metadata, s, kv_len), q.shape[1])
                for cache in (k_cache, v_cache)
            ]
        )
        k, v = (torch.cat(parts) for parts in zip(*past, strict=True))
        mine = q[starts[s] : starts[s + 1]]
        outputs.append(
            attend(mine, k, v, visible_keys(len(mine), len(k)), 1 / math.sqrt(q.shape[-1]))
        )
    return torch.cat(outputs)


# (seed, block size, query heads, KV heads, head size, the sequences: queries and keys of
# each), then the kind
CASES = [
    (*case, USUAL)
    for case in (
        (1, 4, 1, 1, 2, [(1, 1)]),
        (2, 4, 1, 1, 2, [(2, 2)]),
        (3, 4, 1, 1, 2, [(1, 3)]),
        (4, 4, 1, 1, 4, [(2, 4)]),
        (5, 4, 1, 1, 4, [(1, 5)]),
        (6, 4, 2, 2, 4, [(3, 3)]),
        (7, 4, 6, 2, 4, [(1, 6)]),
        (8, 4, 6, 2, 4, [(3, 7)]),
        (9, 4, 2, 1, 8, [(1, 4), (1, 9)]),
        (10, 4, 6, 2, 8, [(1, 11), (4, 4), (3, 8)]),
        (11, 1, 3, 3, 16, [(2, 5), (1, 3)]),
        (12, 16, 7, 1, 16, [(17, 17), (1, 32), (1, 16), (15, 33)]),
        (13, 16, 14, 2, 32, [(1, 1), (16, 48), (5, 5)]),
    )
] + [
    (14, 4, 2, 1, 4, [(1, 3), (2, 6)], NAN),
    (43, 4, 1, 1, 4, [(3, 3), (2, 5)], LARGE),
    (4, 4, 1, 1, 4, [(2, 4)], INT64),
    (9, 4, 2, 1, 8, [(1, 4), (1, 9)], DOUBLE),
]


def hidden(seed):
    """Batches of up to four sequences.

    Usual ones, then two with NaN and one with an int64 table.
    """
    chance = random.Random(seed)
    for number in range(13):
        block_size = chance.randint(2, 9)
        num_kv_heads = chance.randint(1, 3)
        lengths = []
        for _ in range(1 + number // 3 % 4):
            kv_len = block_size * chance.randint(0, 3) + chance.choice(
                (1, block_size - 1, block_size)
            )
            lengths.append((chance.choice((1, kv_len, chance.randint(1, kv_len))), kv_len))
        yield (
            chance.randrange(2**31),
            block_size,
            num_kv_heads * chance.randint(1, 5),
            num_kv_heads,
            chance.choice((2, 4, 8, 24)),
            lengths,
            {10: NAN, 11: NAN, 12: INT64}.get(number, USUAL),
        )


def make_batch(case):
    """q, k_cache, v_cache and the metadata.

    Every sequence's blocks lie scattered, and the last block is nobody's.
    """
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths, kind = case
    poison = math.nan if kind == NAN else POISON
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-kv_len // block_size) for _, kv_len in lengths]
    num_blocks = sum(counts) + 2
    k_cache, v_cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_size), poison)
    block_table = torch.full((len(lengths), max(counts) + 1), NO_BLOCK, dtype=torch.int32)
    unused = torch.randperm(num_blocks - 1, generator=generator).to(torch.int32)
    slots = []
    for s, ((q_len, kv_len), count) in enumerate(zip(lengths, counts, strict=True)):
        block_table[s, :count], unused = unused[:count], unused[count:]
        position = torch.arange(kv_len)
        mine = (
            block_table[s, position // block_size].long() * block_size + position % block_size
        )
        for cache in (k_cache, v_cache):
            cache.view(-1, num_kv_heads, head_size)[mine] = torch.randn(
                kv_len, num_kv_heads, head_size, generator=generator
            )
        slots.append(mine[kv_len - q_len :])
    q = (
        torch.randn(
            sum(q_len for q_len, _ in lengths), num_q_heads, head_size, generator=generator
        )
        * 2
    )
    if kind == LARGE:
        q *= 5_000
    if kind == DOUBLE:
        q = q.double()
        k_cache = k_cache.double()
        v_cache = v_cache.double()
    metadata = BatchMetadata(
        cumulative_lengths([q_len for q_len, _ in lengths]),
        torch.tensor([kv_len for _, kv_len in lengths], dtype=torch.int32),
        block_table,
        torch.cat(slots),
    )
    if kind == INT64:
        metadata = replace(metadata, block_table=block_table.long())
    return q, k_cache, v_cache, metadata


def arguments(q, k_cache, v_cache, metadata):
    return {"q": q, "k_cache": k_cache, "v_cache": v_cache} | {
        f"metadata.{name}": tensor for name, tensor in vars(metadata).items()
    }


def observe(answer, case):
    batch = make_batch(case)
    try:
        result = answer(*batch)
    except TypeError:
        if case[-1] == INT64:
            return Text("TypeError")
        raise
    given, before = arguments(*batch), arguments(*make_batch(case))
    changed = [
        name
        for name, tensor in before.items()
        if not torch.equal(given[name].nan_to_num(7.0), tensor.nan_to_num(7.0))
    ]
    if changed:
        return Text(f"{changed[0]} has been changed")
    if (
        isinstance(result, torch.Tensor)
        and result.is_floating_point()
        and result.dtype != batch[0].dtype
    ):
        return Text(f"a result of {result.dtype}, and q is {batch[0].dtype}")
    return tensors.values(result)


KINDS = {
    USUAL: "",
    NAN: "; NaN in the slots that hold none of their tokens",
    LARGE: "; q has large numbers, so the scores are in the tens of thousands",
    INT64: "; block_table is int64",
    DOUBLE: "; all in float64",
}


def size(case):
    """How many numbers q and the sequences' keys have, and the tokens."""
    _, _, num_q_heads, num_kv_heads, head_size, lengths, _ = case
    return sum(
        q_len * num_q_heads + kv_len * num_kv_heads for q_len, kv_len in lengths
    ) * head_size, sum(kv_len for _, kv_len in lengths)


def describe(case):
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths, kind = case
    table = make_batch(case)[3].block_table.tolist()
    sequences = ", ".join(f"{q_len} of {kv_len}" for q_len, kv_len in lengths)
    return (
        f"new tokens of all tokens, for each sequence: {sequences}; block_size {block_size}, "
        f"block_table {table}, {counted(num_q_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')}, head_size {head_size}{KINDS[kind]}"
    )


EXERCISE = Exercise(
    id="5.5",
    title="paged attention for any batch",
    answer_name="attn_paged_torch",
    reference=in_double,
    cases=lambda: CASES,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    # what a mistake makes of NaN or overflow depends on details
    chancy=lambda case: case[-1] != USUAL,
    same=tensors.same,
    show=tensors.show,
    points=3,
    mistakes=(
        Mistake(
            "chunk-not-causal",
            "Whole prompts and single new tokens are right. In a chunk of a prompt, "
            "each query sees all of its sequence's keys, also those of the tokens behind it: "
            "visible_keys() knows better.",
            paged(visible=all_if_chunk),
        ),
        Mistake(
            "not-causal",
            "Every query sees all keys of its sequence, those of later tokens included.",
            paged(visible=lambda q_len, kv_len: torch.ones(q_len, kv_len, dtype=torch.bool)),
        ),
        Mistake(
            "top-left-aligned",
            "The mask's triangle starts at the first key, "
            "as if the queries were the sequence's first tokens. That is what is_causal=True "
            "of PyTorch's attention does when there are more keys than queries.",
            paged(visible=lambda q_len, kv_len: torch.ones(q_len, kv_len).tril().bool()),
        ),
        Mistake(
            "own-key-hidden",
            "A query does not see its own key. The first token of a sequence then "
            "has nothing to see, and its result is not a number.",
            paged(
                visible=lambda q_len, kv_len: (
                    torch.ones(q_len, kv_len).tril(kv_len - q_len - 1).bool()
                )
            ),
        ),
        Mistake(
            "missing-scale",
            "The scores are not divided by the square root of head_size, "
            "so the softmax is too sharp.",
            paged(scale=0),
        ),
        Mistake(
            "scale-without-root",
            "The scores are divided by head_size, and not by its square root.",
            paged(scale=-1),
        ),
        Mistake(
            "tail-not-masked",
            "The slots behind a sequence's last token take part. Its last block "
            "is rarely full; what stands behind the tail is left over from another sequence.",
            paged(rows=whole_blocks),
        ),
        Mistake(
            "padding-read",
            "The whole row of the block table is read, its padding too. "
            "PyTorch takes the index -1 for the last block of the pool, without a word.",
            paged(rows=whole_row),
        ),
        Mistake(
            "pages-assumed-contiguous",
            "You read on in the pool from the sequence's first block. "
            "Its next block may be anywhere: each entry of the row says where.",
            paged(rows=side_by_side),
        ),
        Mistake(
            "pool-read-in-order",
            "The pool is read from its first slot on, "
            "as if it held this batch's sequences one after the other. "
            "The blocks of a sequence may be anywhere: its row of the block table says where.",
            pool_in_order(lambda kv_len, block_size: -(-kv_len // block_size) * block_size),
            also=(
                pool_in_order(lambda kv_len, block_size: kv_len),
                pool_in_order(lambda kv_len, block_size: 0),
            ),
        ),
        Mistake(
            "first-row-for-all",
            "Every sequence reads through the first row of the block table. "
            "Row s belongs to sequence s.",
            paged(rows=first_row),
        ),
        Mistake(
            "batch-attends-across-sequences",
            "From the second sequence on, queries also see the keys of the sequences "
            "before it in the batch. Each one sees its own sequence only.",
            batch_attends_across_sequences,
        ),
        Mistake(
            "starts-ignored",
            "Every sequence takes its queries from the first rows of q. "
            "Where sequence s begins, cu_seqlens_q[s] says.",
            paged(queries=lambda q, starts, s: q[: starts[s + 1] - starts[s]]),
        ),
        Mistake(
            "sequence-number-as-row",
            "The queries of sequence s are taken from row s on. "
            "That is right while every sequence before it has one query; "
            "otherwise cu_seqlens_q[s] says where it begins.",
            paged(queries=lambda q, starts, s: q[s : s + starts[s + 1] - starts[s]]),
        ),
        Mistake(
            "wrong-head-mapping",
            "Query heads read the wrong KV head: neighbours share one. "
            "With 6 query heads and 2 KV heads, the heads 0, 1 and 2 read KV head 0.",
            paged(share=lambda k, num_q_heads: k.repeat(1, num_q_heads // k.shape[1], 1)),
        ),
        Mistake(
            "heads-scrambled",
            "Each number is right and stands in the wrong place: "
            "the result is laid out by heads and then read as if it were laid out by tokens. "
            "A view or reshape does not move a dimension; transpose does.",
            paged(out=lambda o: o.transpose(0, 1).reshape(o.shape)),
        ),
        Mistake(
            "kv-swapped",
            "Keys and values are swapped: the scores come from v_cache, "
            "and k_cache is what is summed.",
            paged(swap=True),
        ),
        Mistake(
            "softmax-over-queries",
            "The softmax runs over the queries. It is the keys that share the weight 1: "
            "for each query, over the last dimension of the scores.",
            paged(softmax=over(-2)),
        ),
        Mistake(
            "mask-inverted",
            "Each query sees the keys that it should not see, and only these; "
            "a query that has none of them gives NaN. visible_keys() is True "
            "where a query does see a key, and masked_fill() fills where its mask is True.",
            paged(visible=lambda q_len, kv_len: ~visible_keys(q_len, kv_len)),
            also=(
                paged(
                    visible=lambda q_len, kv_len: ~visible_keys(q_len, kv_len),
                    out=lambda o: o.nan_to_num(0.0),
                ),
            ),
        ),
        Mistake(
            "not-transposed-back",
            "The heads are still the first dimension. "
            "The result has the shape of q: the tokens come first.",
            paged(out=lambda o: o.transpose(0, 1)),
            also=(paged(cat=lambda outputs: torch.cat(outputs).transpose(0, 1)),),
        ),
        Mistake(
            "masked-with-zero",
            "The scores of hidden keys become 0. A score of 0 is a score like any other, "
            "and its weight is exp(0) = 1. The weight is 0 where the score is minus infinity.",
            paged(softmax=masked_by(0.0)),
        ),
        Mistake(
            "masked-after-softmax",
            "The mask comes after the softmax. The hidden keys have taken their share "
            "of the weight by then, and what is left does not add up to 1.",
            paged(softmax=masked_after),
        ),
        Mistake(
            "scale-upside-down",
            "The scores are multiplied by the square root of head_size. It divides them.",
            paged(scale=0.5),
        ),
        Mistake(
            "heads-not-shared",
            "The keys and values have a head for each KV head only, and do not fit q. "
            "share_heads() gives them one for each query head.",
            paged(share=not_shared, attend=attend_by_products),
            also=(paged(share=not_shared), paged(share=not_shared, attend=attend_by_sdpa)),
        ),
        Mistake(
            "softmax-over-heads",
            "The softmax runs over the heads. It is the keys that share the weight 1: "
            "for each query, over the last dimension of the scores.",
            paged(softmax=over(0)),
        ),
        Mistake(
            "arguments-changed",
            "The result may be right, and one of the arguments has another content "
            "than before. The pool belongs to the manager and q to the caller: "
            "look for an operation in place (/=, masked_fill_, an assignment to a slice).",
            queries_scaled_in_place,
            also=(keys_scaled_in_place, tail_emptied, padding_overwritten, caches_cleaned),
        ),
        Mistake(
            "other-dtype",
            "The numbers are right, and their dtype is not that of q.",
            lambda *batch: attn_paged_torch(*batch).double(),
            also=(
                lambda *batch: attn_paged_torch(*batch).half(),
                lambda *batch: attn_paged_torch(*batch).bfloat16(),
                in_single,
            ),
        ),
        Mistake(
            "nan-in-the-tail",
            "The slots behind the last token get no weight, and they still take part "
            "in the sum of the values. When one of them holds NaN, 0 · NaN is NaN. "
            "Cut the tail off before anything is computed.",
            checked(masked_tail),
        ),
        Mistake(
            "softmax-overflows",
            "With large scores, exp() gives infinity and the result is NaN. "
            "Subtract each row's largest score first, or let torch.softmax do it.",
            checked(paged(softmax=without_maximum)),
        ),
        Mistake(
            "mask-not-low-enough",
            "Hidden keys get a large negative number for a score. Scores can be lower "
            "than that, and then a hidden key wins. Minus infinity is below every score.",
            checked(paged(softmax=masked_by(-1e4))),
            also=(
                checked(paged(softmax=masked_by(-1e3))),
                checked(paged(softmax=masked_by(-100.0))),
            ),
        ),
        Mistake(
            "only-the-new-keys",
            "The queries see the keys of this batch's own tokens, and none that were "
            "in the pool before. slot_mapping says where the new tokens are written. "
            "Where all tokens of a sequence are, its row of the block table says.",
            new_keys_only,
        ),
        Mistake(
            "last-block-lost",
            "Only full blocks are read. A last block that is partly filled holds tokens too: "
            "how many blocks do 5 tokens need, in blocks of 4?",
            paged(rows=full_blocks),
            also=(
                paged(rows=full_blocks, attend=attend_by_sdpa),
                paged(rows=full_blocks, out=lambda o: o.nan_to_num(0.0)),
                full_blocks_under_a_whole_mask,
            ),
        ),
        Mistake(
            "heads-as-tokens",
            "Each token's heads attend to each other. "
            "PyTorch's attention takes the last dimension but one for the tokens, "
            "and here the heads stand there: bring them to the front first.",
            heads_as_tokens(lambda visible: {}),
            also=(
                heads_as_tokens(lambda visible: {"is_causal": True}),
                heads_as_tokens(lambda visible: {"attn_mask": visible}),
                heads_as_tokens_in_rows(lambda visible: {}),
                heads_as_tokens_in_rows(lambda visible: {"is_causal": True}),
                heads_as_tokens_in_rows(lambda visible: {"attn_mask": visible}),
            ),
        ),
        Mistake(
            "one-cache-for-both",
            "Keys and values come from the same cache. "
            "The scores are made of the keys, and the values are what is summed.",
            keys_for_values,
            also=(values_for_keys,),
        ),
        Mistake(
            "scaled-by-another-size",
            "The scores are divided by the root of a size, "
            "and it is not head_size, the length of a key.",
            scaled_by(lambda q, k_cache, k: q.shape[1]),
            also=(
                scaled_by(lambda q, k_cache, k: k_cache.shape[2]),
                scaled_by(lambda q, k_cache, k: len(k)),
                scaled_by(lambda q, k_cache, k: q.shape[1] * q.shape[2]),
            ),
        ),
        Mistake(
            "list-of-outputs",
            "The outputs of the sequences stand in a list. What is asked for is one tensor, "
            "where they lie one after the other as the queries do.",
            paged(cat=list),
            also=(paged(cat=tuple),),
        ),
        Mistake(
            "one-output-each",
            "There are only as many outputs as sequences. "
            "A chunk of a prompt has several queries: "
            "the result has an output for each of them, in the row that the query has in q.",
            one_output_each(in_the_first_rows),
            also=(
                one_output_each(lambda right, last: right[last]),
                one_output_each(lambda right, last: right[: len(last)]),
            ),
        ),
        Mistake(
            "heads-merged",
            "Each token has one row with all of its heads. "
            "The result has the shape of q: the heads are a dimension.",
            paged(cat=lambda outputs: torch.cat(outputs).flatten(1)),
        ),
        Mistake(
            "check-deleted",
            "A block table of int64 is taken. A kernel would read it wrongly, "
            "so check_paged_attention refuses it: that line has to stay.",
            check_deleted,
        ),
    ),
    hints=(
        (
            "Do it for one sequence first. Which rows of q are its own? "
            "Which blocks hold its kv_len tokens, and how many blocks are that?"
        ),
        (
            "k_cache[block_ids] is (blocks, block_size, num_kv_heads, head_size). "
            "Flatten its first two dimensions, cut the tail off, and it is a plain list "
            "of keys. From here on it is the attention of lesson 03 with another mask."
        ),
        (
            "Heads to the front for the matrix products: "
            "(num_q_heads, q_len, head_size) with (num_q_heads, head_size, kv_len). "
            "And the tokens to the front again before the sequences are put together."
        ),
    ),
)
