"""Exercise 5.5: paged attention for any batch, in PyTorch."""

import math

import torch

from lessons_lib.attention import share_heads
from lessons_lib.block_table import NO_BLOCK
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.metadata import BatchMetadata, attn_paged_torch, cumulative_lengths, visible_keys
from lessons_lib.softmax_state import NO_KEY
from solutions.checks import tensors

POISON = 1e4  # in every slot that holds no token


def in_double(q, k_cache, v_cache, metadata):
    return attn_paged_torch(q.double(), k_cache.double(), v_cache.double(), metadata)


def gathered(cache, metadata, s, kv_len):
    block_ids = metadata.block_table[s, : -(-kv_len // cache.shape[1])]
    return cache[block_ids].flatten(0, 1)[:kv_len]


def attend(q, k, v, visible, scale, dim=-1):
    """q: (q_len, num_q_heads, head_size). k, v: (kv_len, num_q_heads, head_size). visible: (q_len, kv_len)."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    weights = torch.softmax(scores.masked_fill(~visible, NO_KEY), dim=dim)
    return torch.einsum("hqk,khd->qhd", weights, v)


def paged(rows=gathered, queries=lambda q, starts, s: q[starts[s] : starts[s + 1]], visible=visible_keys, scale=-0.5,
          share=share_heads, out=lambda o: o, dim=-1, swap=False):
    """attn_paged_torch() with some of its parts replaced. scale: the power of head_size that multiplies the scores."""
    def wrong(q, k_cache, v_cache, metadata):
        starts, outputs = metadata.cu_seqlens_q.tolist(), []
        for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
            mine = queries(q, starts, s)
            k, v = (share(rows(cache, metadata, s, kv_len), q.shape[1]) for cache in (k_cache, v_cache))
            k, v = (v, k) if swap else (k, v)
            outputs.append(out(attend(mine, k, v, visible(len(mine), len(k)), q.shape[-1] ** scale, dim)))
        return torch.cat(outputs)
    return wrong


def all_if_chunk(q_len, kv_len):
    return visible_keys(q_len, kv_len) if q_len == kv_len else torch.ones(q_len, kv_len, dtype=torch.bool)


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
    starts, outputs, past = metadata.cu_seqlens_q.tolist(), [], []
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        past.append([share_heads(gathered(cache, metadata, s, kv_len), q.shape[1]) for cache in (k_cache, v_cache)])
        k, v = (torch.cat(parts) for parts in zip(*past, strict=True))
        mine = q[starts[s] : starts[s + 1]]
        outputs.append(attend(mine, k, v, visible_keys(len(mine), len(k)), 1 / math.sqrt(q.shape[-1])))
    return torch.cat(outputs)


# (seed, block size, query heads, KV heads, head size, the sequences: queries and keys of each)
CASES = [
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
]


def make_batch(case, poison=POISON):
    """q, k_cache, v_cache and the metadata; every sequence's blocks lie scattered, and the last block is nobody's."""
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths = case
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
        mine = block_table[s, position // block_size].long() * block_size + position % block_size
        for cache in (k_cache, v_cache):
            cache.view(-1, num_kv_heads, head_size)[mine] = torch.randn(kv_len, num_kv_heads, head_size, generator=generator)
        slots.append(mine[kv_len - q_len :])
    q = torch.randn(sum(q_len for q_len, _ in lengths), num_q_heads, head_size, generator=generator) * 2
    metadata = BatchMetadata(cumulative_lengths([q_len for q_len, _ in lengths]),
                             torch.tensor([kv_len for _, kv_len in lengths], dtype=torch.int32), block_table,
                             torch.cat(slots))
    return q, k_cache, v_cache, metadata


def observe(answer, case):
    batch = make_batch(case)
    result = tensors.values(answer(*batch))
    q, k_cache, v_cache, metadata = make_batch(case)
    given = zip((*batch[:3], *vars(batch[3]).values()), (q, k_cache, v_cache, *vars(metadata).values()), strict=True)
    return result if all(torch.equal(now, then) for now, then in given) else Text("one of the arguments has been changed")


def describe(case):
    seed, block_size, num_q_heads, num_kv_heads, head_size, lengths = case
    table = make_batch(case)[3].block_table.tolist()
    sequences = ", ".join(f"{q_len} of {kv_len}" for q_len, kv_len in lengths)
    return f"new tokens of all tokens, for each sequence: {sequences}; block_size {block_size}, block_table {table}, " \
           f"{num_q_heads} query heads, {num_kv_heads} KV heads, head_size {head_size}"


EXERCISE = Exercise(
    id="5.5",
    title="paged attention for any batch",
    answer_name="attn_paged_torch",
    reference=in_double,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=3,
    mistakes=(
        Mistake("chunk-not-causal",
                "Whole prompts and single new tokens are right. In a chunk of a prompt, each query sees all of its "
                "sequence's keys, also those of the tokens behind it: visible_keys() knows better.",
                paged(visible=all_if_chunk)),
        Mistake("not-causal",
                "Every query sees all keys of its sequence, those of later tokens included.",
                paged(visible=lambda q_len, kv_len: torch.ones(q_len, kv_len, dtype=torch.bool))),
        Mistake("top-left-aligned",
                "The mask's triangle starts at the first key, as if the queries were the sequence's first tokens. That is "
                "what is_causal=True of PyTorch's attention does when there are more keys than queries.",
                paged(visible=lambda q_len, kv_len: torch.ones(q_len, kv_len).tril().bool())),
        Mistake("own-key-hidden",
                "A query does not see its own key. The first token of a sequence then has nothing to see, and its result is "
                "not a number.",
                paged(visible=lambda q_len, kv_len: torch.ones(q_len, kv_len).tril(kv_len - q_len - 1).bool())),
        Mistake("missing-scale",
                "The scores are not divided by the square root of head_size, so the softmax is too sharp.",
                paged(scale=0)),
        Mistake("scale-without-root",
                "The scores are divided by head_size, and not by its square root.",
                paged(scale=-1)),
        Mistake("tail-not-masked",
                "The slots behind a sequence's last token take part. Its last block is rarely full; what stands behind the "
                "tail is left over from another sequence.",
                paged(rows=whole_blocks)),
        Mistake("padding-read",
                "The whole row of the block table is read, its padding too. PyTorch takes the index -1 for the last block "
                "of the pool, without a word.",
                paged(rows=whole_row)),
        Mistake("pages-assumed-contiguous",
                "You read on in the pool from the sequence's first block. Its next block may be anywhere: each entry of the "
                "row says where.",
                paged(rows=side_by_side)),
        Mistake("first-row-for-all",
                "Every sequence reads through the first row of the block table. Row s belongs to sequence s.",
                paged(rows=first_row)),
        Mistake("batch-attends-across-sequences",
                "From the second sequence on, queries also see the keys of the sequences before it in the batch. Each one "
                "sees its own sequence only.",
                batch_attends_across_sequences),
        Mistake("starts-ignored",
                "Every sequence takes its queries from the first rows of q. Where sequence s begins, cu_seqlens_q[s] says.",
                paged(queries=lambda q, starts, s: q[: starts[s + 1] - starts[s]])),
        Mistake("sequence-number-as-row",
                "The queries of sequence s are taken from row s on. That is right while every sequence before it has one "
                "query; otherwise cu_seqlens_q[s] says where it begins.",
                paged(queries=lambda q, starts, s: q[s : s + starts[s + 1] - starts[s]])),
        Mistake("wrong-head-mapping",
                "Query heads read the wrong KV head: neighbours share one. With 6 query heads and 2 KV heads, the heads 0, "
                "1 and 2 read KV head 0.",
                paged(share=lambda k, num_q_heads: k.repeat(1, num_q_heads // k.shape[1], 1))),
        Mistake("heads-scrambled",
                "Each number is right and stands in the wrong place: the result is laid out by heads and then read as if it "
                "were laid out by tokens. A view or reshape does not move a dimension; transpose does.",
                paged(out=lambda o: o.transpose(0, 1).reshape(o.shape))),
        Mistake("kv-swapped",
                "Keys and values are swapped: the scores come from v_cache, and k_cache is what is summed.",
                paged(swap=True)),
        Mistake("softmax-over-queries",
                "The softmax runs over the queries. It is the keys that share the weight 1: for each query, over the last "
                "dimension of the scores.",
                paged(dim=-2)),
    ),
    hints=(
        "Do it for one sequence first. Which rows of q are its own? Which blocks hold its kv_len tokens, and how many "
        "blocks are that?",
        "k_cache[block_ids] is (blocks, block_size, num_kv_heads, head_size). Flatten its first two dimensions, cut the "
        "tail off, and it is a plain list of keys. From here on it is the attention of lesson 03 with another mask.",
        "Heads to the front for the matrix products: (num_q_heads, q_len, head_size) with (num_q_heads, head_size, kv_len). "
        "And the tokens to the front again before the sequences are put together.",
    ),
)
