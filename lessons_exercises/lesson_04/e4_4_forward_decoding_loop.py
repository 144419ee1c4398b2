"""Exercise 4.4: one attention layer over one new token of each sequence."""

import copy
import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_04.e4_2_block_attention import values_not_masked
from lessons_exercises.lesson_04.inputs import NAN, POISON, generator
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention import decode
from paged_attention.decode import (
    block_attention,
    combine_result,
    dispatch,
    own_token,
    past_blocks,
    write_new_tokens,
)
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.layer import AttentionLayer
from paged_attention.slots import slot_mapping, write_kv


def in_double(layer, x, seq_ids, manager):
    """Our answer, computed in float64; the pool is changed as ours changes it."""
    exact = copy.copy(manager)
    exact.kv_cache = manager.kv_cache.double()
    y = decode.forward_decoding_loop(copy.deepcopy(layer).double(), x.double(), seq_ids, exact)
    manager.kv_cache.copy_(exact.kv_cache)
    return y


def _walk(start, num_blocks, request):
    """The parts of the request at hand, and where those of the next one begin."""
    return slice(start, start + num_blocks), start + num_blocks


def _join(past, own):
    return combine_result(*(torch.cat(pair) for pair in zip(past, own, strict=True)))[0]


def _mine(last, i):
    """Request i's part of `last`, the new tokens' own."""
    return [part[i : i + 1] for part in last]


def _decode(
    layer,
    x,
    seq_ids,
    manager,
    *,
    look=past_blocks,
    spread=dispatch,
    attend=block_attention,
    swapped=False,
    walk=_walk,
    join=_join,
    write=write_new_tokens,
    write_first=False,
    output=None,
    own=_mine,
):
    """forward_decoding_loop() with one part replaced."""
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    if write_first:
        write(k_cache, v_cache, seq_ids, manager, k, v)
    block_ids, num_valid, request_num_blocks = look(seq_ids, manager)
    keys, values = (v_cache, k_cache) if swapped else (k_cache, v_cache)
    parts = attend(
        spread(q, request_num_blocks), keys[block_ids], values[block_ids], num_valid
    )
    last = own_token(q, k, v)
    o, start = torch.zeros_like(q), 0
    for i, num_blocks in enumerate(request_num_blocks.tolist()):
        mine, start = walk(start, num_blocks, i)
        o[i] = join([part[mine] for part in parts], own(last, i))
    if not write_first:
        write(k_cache, v_cache, seq_ids, manager, k, v)
    return (output or layer.output)(o)


def pages_side_by_side(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        return torch.arange(len(block_ids)), num_valid, request_num_blocks

    return _decode(layer, x, seq_ids, manager, look=look)


def neighbours_of_the_first(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        runs = [
            torch.arange(run[0], run[0] + len(run))
            for run in block_ids.split(request_num_blocks.tolist())
            if len(run)
        ]
        return torch.cat([block_ids[:0], *runs]), num_valid, request_num_blocks

    return _decode(layer, x, seq_ids, manager, look=look)


def blocks_of_the_first_rows(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        _, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        rows = [
            manager.block_table[i, :count]
            for i, count in enumerate(request_num_blocks.tolist())
        ]
        return torch.cat(rows).long(), num_valid, request_num_blocks

    return _decode(layer, x, seq_ids, manager, look=look)


def whole_blocks(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        return block_ids, torch.full_like(num_valid, manager.block_size), request_num_blocks

    return _decode(layer, x, seq_ids, manager, look=look)


def one_slot_too_many(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        return block_ids, (num_valid + 1).clamp(max=manager.block_size), request_num_blocks

    return _decode(layer, x, seq_ids, manager, look=look)


def values_behind_not_masked(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, attend=values_not_masked)


def first_blocks_alone(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        first = (request_num_blocks.cumsum(0) - request_num_blocks)[request_num_blocks > 0]
        return block_ids[first], num_valid[first], request_num_blocks.clamp(max=1)

    return _decode(layer, x, seq_ids, manager, look=look)


def _all_tokens(seq_ids, manager):
    """past_blocks() with the new token's slot counted in."""
    block_ids = []
    num_valid = []
    counts = []
    for seq_id in seq_ids:
        length = manager.get(seq_id).length
        valid = [
            min(manager.block_size, length - start)
            for start in range(0, length, manager.block_size)
        ]
        block_ids += manager.blocks_of(seq_id)
        num_valid += valid
        counts.append(len(valid))
    return torch.tensor(block_ids), torch.tensor(num_valid), torch.tensor(counts)


def new_token_counted_twice(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, look=_all_tokens, write_first=True)


def unwritten_slot_read(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, look=_all_tokens)


def without_the_new_token(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, join=lambda past, own: combine_result(*past)[0])


def unwritten_slot_for_the_new_token(layer, x, seq_ids, manager):
    """The new token counts as a part of the past, and is written afterwards."""
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        look=_all_tokens,
        join=lambda past, own: combine_result(*past)[0],
    )


def own_parts_of_all(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, own=lambda last, i: last)


def own_part_of_the_first(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, own=lambda last, i: _mine(last, 0))


def own_part_of_the_last(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, own=lambda last, i: _mine(last, len(last[0]) - 1)
    )


def own_part_without_its_dimension(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, own=lambda last, i: [part[i] for part in last])


def own_part_without_its_dimension_first(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        own=lambda last, i: [part[i] for part in last],
        join=lambda past, own: _join(own, past),
    )


def one_answer_for_all(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        walk=lambda start, num_blocks, i: (slice(None), 0),
        own=lambda last, i: last,
    )


def first_tokens_left_at_zero(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        join=lambda past, own: (
            _join(past, own) if len(past[1]) else torch.zeros_like(own[0][0])
        ),
    )


def sorted_batch(layer, x, seq_ids, manager):
    return _decode(layer, x, sorted(seq_ids), manager)


def blocks_of_the_sorted_batch(layer, x, seq_ids, manager):
    """Only the past is looked up in the order of the ids."""
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        look=lambda seq_ids, manager: past_blocks(sorted(seq_ids), manager),
    )


def written_to_the_sorted_batch(layer, x, seq_ids, manager):
    """Only the slots of the new tokens are looked up in the order of the ids."""

    def write(k_cache, v_cache, seq_ids, *arguments):
        write_new_tokens(k_cache, v_cache, sorted(seq_ids), *arguments)

    return _decode(layer, x, seq_ids, manager, write=write)


def _first_tokens_passed_over(collect):
    """`collect` makes one tensor of the outputs of those sequences that have a past."""

    def wrong(layer, x, seq_ids, manager):
        outputs = []

        def join(past, own):
            if len(past[1]):
                outputs.append(_join(past, own))
            return torch.zeros(own[0].shape[1:])

        return _decode(
            layer,
            x,
            seq_ids,
            manager,
            join=join,
            output=lambda _: layer.output(collect(outputs)),
        )

    return wrong


FIRST_TOKENS_PASSED_OVER = tuple(
    map(
        _first_tokens_passed_over,
        (torch.stack, lambda outputs: torch.cat([o[None] for o in outputs])),
    )
)


def _one_cache_read(k_or_v):
    def wrong(layer, x, seq_ids, manager):
        def attend(q, k, v, num_valid):
            cache = (k, v)[k_or_v]
            return block_attention(q, cache, cache, num_valid)

        return _decode(layer, x, seq_ids, manager, attend=attend)

    return wrong


ONE_CACHE_READ = tuple(map(_one_cache_read, (0, 1)))


def x_added(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, output=lambda o: x + layer.output(o))


def keys_for_values(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        write_new_tokens(k_cache, v_cache, seq_ids, manager, k, k)

    return _decode(layer, x, seq_ids, manager, write=write)


def past_at_once(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
    parts = block_attention(
        dispatch(q, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid
    )
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(decode.combine_segments(*parts, request_num_blocks)[0])


def new_token_alone(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(own_token(q, k, v)[0])


def whole_batch_repeated(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        spread=lambda q, counts: q[torch.arange(int(counts.sum())) % len(q)],
    )


def start_stays(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, walk=lambda start, num_blocks, i: (slice(0, num_blocks), 0)
    )


def start_set_not_advanced(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        walk=lambda start, num_blocks, i: (slice(start, start + num_blocks), num_blocks),
    )


def starts_at_the_number_of_the_request(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        walk=lambda start, num_blocks, i: (slice(i, i + num_blocks), 0),
    )


def all_parts_for_each(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, walk=lambda start, num_blocks, i: (slice(None), 0)
    )


def from_the_first_to_its_end(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        walk=lambda start, num_blocks, i: (slice(0, start + num_blocks), start + num_blocks),
    )


def from_its_start_to_the_end(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        walk=lambda start, num_blocks, i: (slice(start, None), start + num_blocks),
    )


def _past_alone(past):
    """A past without a block gives 0."""
    return combine_result(*past)[0] if len(past[1]) else torch.zeros(past[0].shape[1:])


def past_and_own_added(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, join=lambda past, own: _past_alone(past) + own[0][0]
    )


def past_and_own_averaged(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, join=lambda past, own: (_past_alone(past) + own[0][0]) / 2
    )


def outputs_averaged_where_there_is_a_past(layer, x, seq_ids, manager):
    return _decode(
        layer,
        x,
        seq_ids,
        manager,
        join=lambda past, own: (
            (_past_alone(past) + own[0][0]) / 2 if len(past[1]) else own[0][0]
        ),
    )


def all_parts_added(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, join=lambda past, own: torch.cat([past[0], own[0]]).sum(0)
    )


def all_parts_averaged(layer, x, seq_ids, manager):
    return _decode(
        layer, x, seq_ids, manager, join=lambda past, own: torch.cat([past[0], own[0]]).mean(0)
    )


def _past_reduced_first(reduce):
    def wrong(layer, x, seq_ids, manager):
        def join(past, own):
            reduce(past[1])  # raises where there is no part
            return _join(past, own)

        return _decode(layer, x, seq_ids, manager, join=join)

    return wrong


EMPTY_PASTS = tuple(
    map(_past_reduced_first, (lambda m: m.amax(0), lambda m: m.max(0), lambda m: m[0]))
)


def not_projected_and_flat(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, output=lambda o: o.flatten(1))


def in_the_first_layer(layer, x, seq_ids, manager):
    first = copy.copy(layer)
    first.index = 0
    return _decode(first, x, seq_ids, manager)


def first_layer_read(layer, x, seq_ids, manager):
    def attend(q, k, v, num_valid):
        block_ids, _, _ = past_blocks(seq_ids, manager)
        return block_attention(q, *manager.kv_cache[0][:, block_ids], num_valid)

    return _decode(layer, x, seq_ids, manager, attend=attend)


def first_layer_written(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, *arguments):
        write_new_tokens(*manager.kv_cache[0], *arguments)

    return _decode(layer, x, seq_ids, manager, write=write)


def written_to_all_layers(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, *arguments):
        for caches in manager.kv_cache:
            write_new_tokens(*caches, *arguments)

    return _decode(layer, x, seq_ids, manager, write=write)


def pool_cleaned(layer, x, seq_ids, manager):
    manager.kv_cache.nan_to_num_(0.0)
    return _decode(layer, x, seq_ids, manager)


def other_layers_zeroed(layer, x, seq_ids, manager):
    for index in range(len(manager.kv_cache)):
        if index != layer.index:
            manager.kv_cache[index] = 0.0
    return _decode(layer, x, seq_ids, manager)


def lengths_raised(layer, x, seq_ids, manager):
    y = _decode(layer, x, seq_ids, manager)
    for seq_id in seq_ids:
        manager.get(seq_id).length += 1
    return y


def nothing_written(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, write=lambda *arguments: None)


def written_one_slot_on(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        slots = [
            slot_mapping(
                manager.get_block_table_for_seq(seq_id),
                torch.tensor([manager.get(seq_id).length]),
                manager.block_size,
            )
            for seq_id in seq_ids
        ]
        write_kv(k_cache, v_cache, torch.cat(slots), k, v)

    return _decode(layer, x, seq_ids, manager, write=write)


def written_one_slot_back(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        before = [torch.tensor([max(0, manager.get(seq_id).length - 2)]) for seq_id in seq_ids]
        slots = [
            slot_mapping(manager.get_block_table_for_seq(seq_id), position, manager.block_size)
            for seq_id, position in zip(seq_ids, before, strict=True)
        ]
        write_kv(k_cache, v_cache, torch.cat(slots), k, v)

    return _decode(layer, x, seq_ids, manager, write=write)


def swapped_in_writing(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        write_new_tokens(v_cache, k_cache, seq_ids, manager, k, v)

    return _decode(layer, x, seq_ids, manager, write=write)


def swapped_in_reading(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, swapped=True)


def not_projected(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, output=lambda o: o)


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


def hidden(seed):
    """Up to five sequences of up to three blocks.

    The last case has NaN in the unused slots.
    """
    chance = random.Random(seed)
    for number in range(11):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        past_lens = tuple(
            block_size * chance.randint(0, 2)
            + chance.choice((0, 1, block_size - 1, block_size))
            for _ in range(1 + number // 2 % 5)
        )
        yield (
            past_lens,
            block_size,
            num_kv_heads * chance.randint(1, 4),
            num_kv_heads,
            chance.choice((4, 8, 12)),
            chance.randint(1, 3),
            chance.randrange(2**31),
            POISON if number < 10 else NAN,
        )


def prepare(case):
    """The layer, the new tokens, the batch's ids and a manager.

    The manager's unused slots are poisoned.
    """
    past_lens, block_size, num_q_heads, num_kv_heads, head_size, num_layers, seed, poison = (
        case
    )
    source, num_seqs = generator(seed), len(past_lens)
    layer = AttentionLayer(
        8, num_q_heads, num_kv_heads, head_size, index=num_layers - 1, seed=seed
    )
    manager = PagedAttentionManager(
        BLOCKS, block_size, num_kv_heads, head_size, num_seqs + 1, 16, num_layers
    )
    manager.kv_cache.fill_(poison)
    # Values that grow from slot to slot, so that one slot too many and a whole tail do
    # different damage.
    manager.kv_cache[:, 1] *= torch.arange(1.0, block_size + 1)[:, None, None]
    taken = [manager.block_manager.allocate() for _ in range(BLOCKS)]
    # Block 0 last, so that no sequence starts there.
    for index in [0, *(torch.randperm(BLOCKS - 1, generator=source) + 1).tolist()]:
        manager.block_manager.free(taken[index])
    seq_ids = [10 + 7 * i % 5 for i in range(num_seqs)]
    manager.add_sequence(99, block_size + 1)  # not in the batch
    for seq_id, past in sorted(zip(seq_ids, past_lens, strict=True), reverse=True):
        manager.add_sequence(seq_id, past)
    for seq_id, past in zip(seq_ids, past_lens, strict=True):
        slots = slot_mapping(
            manager.get_block_table_for_seq(seq_id), torch.arange(past), block_size
        )
        k, v = torch.randn(2, past, num_kv_heads, head_size, generator=source)
        write_kv(*manager.kv_cache[layer.index], slots, k, v)
        manager.append_token(seq_id)
    return layer, torch.randn(num_seqs, 8, generator=source), seq_ids, manager


def observe(answer, case):
    layer, x, seq_ids, manager = prepare(case)
    before, table = x.clone(), manager.block_table.clone()
    lengths = {seq_id: sequence.length for seq_id, sequence in manager.sequences.items()}
    y = tensors.values(answer(layer, x, seq_ids, manager))
    if not torch.equal(x, before):
        return Text("the argument x was changed")
    for seq_id, length in lengths.items():
        if (now := manager.sequences[seq_id].length) != length:
            return Text(
                f"sequence {seq_id} had {counted(length, 'token')} before the step, "
                f"and has {now} after it"
            )
    if not torch.equal(manager.block_table, table):
        return Text("the block table was changed")
    if not isinstance(y, tensors.Values):
        return y
    pool, name = manager.kv_cache.flatten(2, 3).clone(), "the pool, [layer, k or v, slot]"
    if holds_nan(case):
        pool = pool.masked_fill(pool.isnan(), math.inf)
        name = f"{name}, with inf for NaN"
    return y, tensors.Values(pool, name)


def holds_nan(case):
    """For `Exercise.chancy`: what a mistake makes of NaN depends on details.

    So such a case tells no mistakes apart.
    """
    return math.isnan(case[-1])


def describe(case):
    past_lens, block_size, num_q_heads, num_kv_heads, head_size, num_layers, _, poison = case
    layer, _, seq_ids, manager = prepare(case)
    tables = ", ".join(f"{seq_id}: {manager.blocks_of(seq_id)}" for seq_id in seq_ids)
    *others, last = map(str, past_lens)
    counts = (
        (", ".join(others) + " and " if others else "")
        + last
        + (" token" if past_lens == (1,) else " tokens")
    )
    return (
        f"{counted(len(past_lens), 'sequence')} with {counts} in the pool, "
        f"and a new token for {'each' if len(past_lens) > 1 else 'it'}; "
        f"block_size {block_size}, {counted(num_q_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')} of size {head_size}; layer {layer.index} "
        f"of {num_layers}; blocks of sequence {tables}; unused slots hold "
        + ("NaN" if holds_nan(case) else f"{poison:,.0f} and more")
    )


EXERCISE = Exercise(
    id="4.4",
    title="decode one token of each sequence",
    answer_name="forward_decoding_loop",
    reference=in_double,
    cases=lambda: CASES,
    size=lambda case: (sum(case[0]) + len(case[0]), len(case[0]), math.prod(case[2:6])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=holds_nan,
    same=tensors.same,
    show=tensors.show,
    points=3,
    mistakes=(
        Mistake(
            "pages-assumed-contiguous",
            "You read blocks that lie side by side in the pool, as if a request's blocks "
            "came one after the other. They may be anywhere. The block table says where.",
            pages_side_by_side,
            also=(neighbours_of_the_first,),
        ),
        Mistake(
            "row-of-the-batch",
            "You read row i of the block table for the i-th sequence of the batch. "
            "The manager knows which row a sequence has.",
            blocks_of_the_first_rows,
        ),
        Mistake(
            "tail-not-masked",
            "The last block of each request is attended whole, with the slots "
            "that hold no token yet. `past_blocks` also gives the tokens in each block.",
            whole_blocks,
        ),
        Mistake(
            "tail-off-by-one",
            "One slot too many of a partly filled block takes part. "
            "`past_blocks` gives the tokens in each block, the new one not counted.",
            one_slot_too_many,
        ),
        Mistake(
            "first-block-only",
            "Only the first block of each request takes part. "
            "Its query goes to every one of its blocks.",
            first_blocks_alone,
        ),
        Mistake(
            "own-token-missing",
            "The new token attends to the past and not to itself. "
            "Its own part is one more part to combine. (If you do combine it: "
            "`own_token` gives a row for each place in the batch, 0, 1, 2, "
            "and a sequence's id is no place.)",
            without_the_new_token,
            also=(past_at_once,),
        ),
        Mistake(
            "own-token-twice",
            "The new token counts twice: as the last token in the pool, "
            "and as a part of its own.",
            new_token_counted_twice,
        ),
        Mistake(
            "unwritten-slot-read",
            "The slot of the new token is read before its key and value are written, "
            "so what was there before takes part. The past ends one token earlier.",
            unwritten_slot_read,
            also=(unwritten_slot_for_the_new_token,),
        ),
        Mistake(
            "own-token-only",
            "Each new token sees itself only, and nothing of the past.",
            new_token_alone,
        ),
        Mistake(
            "repeat-not-interleave",
            "The queries and the blocks are in different orders: "
            "a query meets another request's blocks. The blocks come request by request.",
            whole_batch_repeated,
        ),
        Mistake(
            "offset-not-advanced",
            "A request combines the parts of an earlier one. The parts of the next request "
            "begin where those of this one end: add up as you go.",
            start_stays,
            also=(start_set_not_advanced,),
        ),
        Mistake(
            "request-index-as-offset",
            "A request's number is taken for the place of its first part. "
            "These are the same only while each request has one block.",
            starts_at_the_number_of_the_request,
        ),
        Mistake(
            "parts-of-others",
            "A request combines parts of other requests as well as its own. "
            "Of all parts in the batch, only those of its own blocks belong to it.",
            all_parts_for_each,
            also=(from_its_start_to_the_end, from_the_first_to_its_end, one_answer_for_all),
        ),
        Mistake(
            "own-part-of-others",
            "A request combines its past with another new token's own part, "
            "or with those of all. Each new token attends to itself.",
            own_parts_of_all,
            also=(own_part_of_the_first, own_part_of_the_last),
        ),
        Mistake(
            "own-part-without-dimension",
            "torch.cat cannot put the past's parts and the new token's own together: "
            "the past has a dimension that counts parts, "
            "and an index like `t[i]` takes that dimension away.",
            own_part_without_its_dimension,
            also=(own_part_without_its_dimension_first,),
        ),
        Mistake(
            "outputs-added",
            "The past's output and the new token's own are added or averaged as they are. "
            "They count as much as their m and l say: combine them as parts.",
            past_and_own_added,
            also=(
                past_and_own_averaged,
                outputs_averaged_where_there_is_a_past,
                all_parts_averaged,
                all_parts_added,
            ),
        ),
        Mistake(
            "first-tokens-left-at-zero",
            "A sequence without a past is passed over, and its result is 0. "
            "Its new token still attends to itself.",
            first_tokens_left_at_zero,
        ),
        Mistake(
            "first-tokens-passed-over",
            "A sequence without a past is passed over, so the result has no row for it. "
            "Its new token still attends to itself.",
            FIRST_TOKENS_PASSED_OVER[0],
            also=FIRST_TOKENS_PASSED_OVER[1:],
        ),
        Mistake(
            "order-of-the-ids",
            "The sequences are taken in the order of their ids. "
            "Row i of x belongs to the i-th sequence of `seq_ids`, which is in any order.",
            sorted_batch,
            also=(blocks_of_the_sorted_batch, written_to_the_sorted_batch),
        ),
        Mistake(
            "empty-past-reduced",
            "A sequence whose new token is its first has no block in the pool, "
            "so a maximum over its past alone is a maximum over nothing. "
            "Together with its own part there is always one.",
            EMPTY_PASTS[0],
            also=EMPTY_PASTS[1:],
        ),
        Mistake(
            "half-a-mask",
            "The output is NaN where a block is partly filled. "
            "Attention over such a block lets the values of unused slots into the sum: "
            "their weight is 0, and NaN times 0 is NaN. `block_attention` keeps them out.",
            values_behind_not_masked,
        ),
        Mistake(
            "kv-not-written",
            "The output is right, and the pool is unchanged: "
            "the next step will not find this token. Write its key and value.",
            nothing_written,
        ),
        Mistake(
            "wrong-layer",
            "You read or write the first layer's part of the pool. "
            "This layer's part is `kv_cache[layer.index]`.",
            in_the_first_layer,
            also=(first_layer_read, first_layer_written),
        ),
        Mistake(
            "written-to-every-layer",
            "The new token's key and value are written into every layer's part of the pool. "
            "Each layer has keys and values of its own.",
            written_to_all_layers,
        ),
        Mistake(
            "pool-overwritten",
            "After the step, slots have changed that no new token was given. "
            "A step writes the new tokens' slots of its own layer, and nothing else.",
            pool_cleaned,
            also=(other_layers_zeroed,),
        ),
        Mistake(
            "length-changed",
            "A sequence is longer after the step than before it. Room for the new token "
            "was made before the step, and the manager counts that token already.",
            lengths_raised,
        ),
        Mistake(
            "written-to-wrong-slot",
            "The new token is written one slot too far. "
            "A sequence of n tokens has positions 0 to n - 1.",
            written_one_slot_on,
        ),
        Mistake(
            "past-overwritten",
            "The new token is written one slot too early, over the token before it. "
            "The manager counts the new token already: it is the last one.",
            written_one_slot_back,
        ),
        Mistake(
            "kv-swapped",
            "The new token's value is written where its key belongs, and the key where the "
            "value belongs. The output of this step is still right, the next one's is not.",
            swapped_in_writing,
        ),
        Mistake(
            "keys-for-values",
            "The new token's key is written in both places. "
            "The output of this step is still right, the next one's is not.",
            keys_for_values,
        ),
        Mistake(
            "kv-swapped-in-reading",
            "The past's keys are used as values, and its values as keys.",
            swapped_in_reading,
        ),
        Mistake(
            "one-cache-for-both",
            "The past's keys and values are read from the same cache. "
            "There are two: the scores are made of keys, and the values are what is summed.",
            ONE_CACHE_READ[0],
            also=ONE_CACHE_READ[1:],
        ),
        Mistake(
            "output-not-projected",
            "You return what attention gives, head by head. "
            "The layer's output projection brings it back to dim.",
            not_projected,
            also=(not_projected_and_flat,),
        ),
        Mistake(
            "input-added",
            "x is added to the result. "
            "What is asked for is the output of the attention layer alone.",
            x_added,
        ),
    ),
    hints=(
        (
            "Write the steps as comments first: project; which blocks; a query for each; "
            "attend; combine request by request; write; project back. "
            "Each is one line or two, and each has its function."
        ),
        (
            "`k_cache[block_ids]` gives the blocks in the order of `block_ids`, "
            "wherever they lie."
        ),
        (
            "The parts of all requests stand in one tensor. Keep the place "
            "where the current request's parts start, and move it on by its number of blocks."
        ),
        (
            "For each request, `torch.cat` the past's o, m and l with the new token's own, "
            "then combine. A request without a past has its own part only."
        ),
    ),
)
