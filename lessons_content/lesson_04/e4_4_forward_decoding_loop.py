"""Exercise 4.4: decode one token of each sequence.

Write the steps as comments first: project; which blocks; a query for each; attend; combine
request by request; write; project back. Each is one line or two, and each has its function.

`k_cache[block_ids]` gives the blocks in the order of `block_ids`, wherever they lie.

The parts of all requests are in one tensor. Keep the place where the current request's parts
start, and move it on by its number of blocks.

For each request, `torch.cat` the past's o, m and l with the new token's own, then combine. A
request without a past has its own part only.
"""

import math

import torch

from lessons_content.exercises import naming_words
from lessons_content.exercises.kit import Text, counted, exercise, tensors
from lessons_content.exercises.pools import lengths_of, make_free
from lessons_content.lesson_04.inputs import NAN, POISON, generator, listed
from paged_attention.attention import decode
from paged_attention.attention.layer import AttentionLayer
from paged_attention.pool.kv_cache import PagedAttentionManager
from paged_attention.pool.slots import slot_mapping, write_kv


def all_blocks(seq_ids, manager):
    """For mistakes: past_blocks() with the new token's slot counted in."""
    block_ids, num_valid, request_num_blocks = [], [], []
    for seq_id in seq_ids:
        length, size = manager.get(seq_id).length, manager.block_size
        in_blocks = [min(size, length - start) for start in range(0, length, size)]
        block_ids += manager.blocks_of(seq_id)
        num_valid += in_blocks
        request_num_blocks.append(len(in_blocks))
    return tuple(map(torch.tensor, (block_ids, num_valid, request_num_blocks)))


BLOCKS = 24

# (tokens in the pool for each sequence of the batch, block size, query heads, KV heads, head
# size, layers, seed), and what unused slots hold
CASES = [
    ((0,), 2, 1, 1, 4, 1, 0),
    ((1,), 2, 1, 1, 4, 1, 1),
    ((2,), 2, 1, 1, 4, 1, 2),
    ((3,), 2, 1, 1, 4, 1, 3),
    ((4,), 4, 2, 2, 4, 1, 4),
    ((4, 4), 4, 1, 1, 4, 1, 5),
    ((5, 2), 4, 2, 1, 4, 1, 6),
    ((2, 0, 7), 3, 3, 1, 8, 1, 7),
    ((3, 8, 1), 4, 6, 2, 8, 2, 8),
    ((17, 15, 16), 16, 7, 1, 16, 1, 9),
    ((9, 30, 0, 4, 1), 8, 6, 2, 16, 3, 10),
    ((6, 3), 1, 4, 4, 8, 1, 11),
]
CASES = [(*case, POISON) for case in CASES] + [
    ((1,), 2, 1, 1, 4, 1, 12, NAN),
    ((5, 0, 3), 4, 6, 2, 8, 2, 13, NAN),
]


def hidden(chance):
    """Up to five sequences of up to three blocks; at the end NaN in the unused slots."""
    for number in range(11):
        size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        past_lens = [
            size * chance.randint(0, 2) + chance.choice((0, 1, size - 1, size))
            for _ in range(1 + number // 2 % 5)
        ]
        heads = num_kv_heads * chance.randint(1, 4), num_kv_heads, chance.choice((4, 8, 12))
        more = chance.randint(1, 3), chance.randrange(2**31), POISON if number < 10 else NAN
        yield tuple(past_lens), size, *heads, *more


FEW = 4  # tokens whose numbers a message shows


def is_small(case):
    return sum(case[0]) + len(case[0]) <= FEW and case[2:5] == (1, 1, 4)


SIMPLE = "layer.project(x) gives q = x[:, :4], k = x[:, 2:6] and v = x[:, 4:]"


def make_simple(layer):
    """Projections that only choose numbers, as SIMPLE says: for one head of size 4, dim 8."""
    eye = torch.eye(8)
    weights = eye[:4], eye[2:6], eye[4:], torch.cat([eye[:4, :4], -eye[:4, :4]])
    for weight, chosen in zip((layer.wq, layer.wk, layer.wv, layer.wo), weights, strict=True):
        weight.copy_(chosen)


def made(case):
    """The layer, the new tokens, the batch's ids and a manager, its unused slots poisoned."""
    past_lens, block_size, num_q_heads, *kv_heads, num_layers, seed, poison = case
    source, num_seqs = generator(seed), len(past_lens)
    layer = AttentionLayer(8, num_q_heads, *kv_heads, index=num_layers - 1, seed=seed)
    sizes = BLOCKS, block_size, *kv_heads, num_seqs + 1, 16, num_layers
    manager = PagedAttentionManager(*sizes)

    def drawn(*shape):
        numbers = torch.randn(shape, generator=source)
        return (2 * numbers).round() + 0.0 if is_small(case) else numbers

    if is_small(case):
        make_simple(layer)
    manager.kv_cache.fill_(poison)
    # Values that grow from slot to slot, so that one slot too many and a whole tail do
    # different damage.
    manager.kv_cache[:, 1] *= torch.arange(1.0, block_size + 1)[:, None, None]
    # Block 0 last, so that no sequence starts there.
    make_free(manager, [0, *(torch.randperm(BLOCKS - 1, generator=source) + 1).tolist()])
    seq_ids = [10 + 7 * i % 5 for i in range(num_seqs)]
    manager.add_sequence(99, block_size + 1)  # not in the batch
    for seq_id, past in sorted(zip(seq_ids, past_lens, strict=True), reverse=True):
        manager.add_sequence(seq_id, past)
    for seq_id, past in zip(seq_ids, past_lens, strict=True):
        k, v = drawn(2, past, *kv_heads)
        write_kv(*manager.kv_cache[layer.index], slots_of(manager, seq_id, past), k, v)
        manager.append_token(seq_id)
    return layer, drawn(num_seqs, 8), seq_ids, manager


def slots_of(manager, seq_id, past):
    row = manager.get_block_table_for_seq(seq_id)
    return slot_mapping(row, torch.arange(past), manager.block_size)


def observe(answer, case):
    layer, x, seq_ids, manager = made(case)
    before, table, pool = x.clone(), manager.block_table.clone(), manager.kv_cache.clone()
    lengths = lengths_of(manager)
    y = tensors.values(answer(layer, x, seq_ids, manager))
    if not torch.equal(x, before):
        return Text("the argument x was changed")
    for seq_id, length in lengths.items():
        if (now := manager.sequences[seq_id].length) != length:
            past = f"sequence {seq_id} had {counted(length, 'token')} before the step"
            return Text(f"{past}, and has {now} after it")
    if not torch.equal(manager.block_table, table):
        return Text("the block table was changed")
    if not isinstance(y, tensors.Values):
        return y
    return y, *changed_slots(manager.kv_cache, pool)


def changed_slots(kv_cache, before):
    """Where the pool is another than before, and the numbers that are there now."""
    now, before = kv_cache.flatten(2, 3).flatten(3), before.flatten(2, 3).flatten(3)
    is_same = (now == before) | (now.isnan() & before.isnan())
    places = (~is_same.all(-1)).nonzero()
    names = "the slots written, (layer, 0 for k or 1 for v, slot),", "what is written there,"
    return tensors.values((places, now[tuple(places.T)]), *names)


def describe(case):
    past_lens, block_size, num_q_heads, num_kv_heads, head_size, num_layers, _, poison = case
    layer, x, seq_ids, manager = made(case)
    tables = ", ".join(f"{seq_id}: {manager.blocks_of(seq_id)}" for seq_id in seq_ids)
    tokens = f"{naming_words.listed(past_lens)} {'token' if past_lens == (1,) else 'tokens'}"
    described = (
        f"{counted(len(past_lens), 'sequence')} with {tokens} in the pool, "
        f"and a new token for {'each' if len(past_lens) > 1 else 'it'}; "
        f"block_size {block_size}, {counted(num_q_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')} of size {head_size}; layer {layer.index} "
        f"of {num_layers}; blocks of sequence {tables}; unused slots hold "
        f"{'NaN' if math.isnan(poison) else f'{poison:,.0f} and more'}"
    )
    if not is_small(case):
        return described
    described += f"; {listed(x=x)}, and {SIMPLE}"
    for seq_id, past in zip(seq_ids, past_lens, strict=True):
        slots = slots_of(manager, seq_id, past)
        k, v = manager.kv_cache[layer.index].flatten(1, 2)[:, slots, 0]
        described += f"; in the pool: {listed(keys=k, values=v)}" if past else ""
    return described


EXERCISE = exercise(
    globals(),
    tensors,
    reference=tensors.in_double(decode.forward_decoding_loop),
    size=lambda case: (sum(case[0]) + len(case[0]), len(case[0]), math.prod(case[2:6])),
    chancy=lambda case: math.isnan(case[-1]),  # what a mistake makes of NaN depends on details
    points=3,
)
