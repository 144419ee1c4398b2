"""Exercise 4.4: one attention layer over one new token of each sequence."""

import copy

import torch

from lessons_lib import decode
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.decode import block_attention, combine_result, dispatch, own_token, past_blocks, write_new_tokens
from lessons_lib.kv_cache import PagedAttentionManager
from lessons_lib.layer import AttentionLayer
from lessons_lib.slots import slot_mapping, write_kv
from solutions.checks import tensors
from solutions.checks.lesson_04.inputs import POISON, generator


def in_double(layer, x, seq_ids, manager):
    """Our answer, computed in float64; the pool is changed as ours changes it."""
    exact = copy.copy(manager)
    exact.kv_cache = manager.kv_cache.double()
    y = decode.forward_decoding_loop(copy.deepcopy(layer).double(), x.double(), seq_ids, exact)
    manager.kv_cache.copy_(exact.kv_cache)
    return y


def _decode(layer, x, seq_ids, manager, *, look=past_blocks, spread=dispatch, swapped=False, own=True, advance=True,
            write=write_new_tokens, write_first=False):
    """forward_decoding_loop() with one part replaced."""
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    if write_first:
        write(k_cache, v_cache, seq_ids, manager, k, v)
    block_ids, num_valid, request_num_blocks = look(seq_ids, manager)
    keys, values = (v_cache, k_cache) if swapped else (k_cache, v_cache)
    parts = block_attention(spread(q, request_num_blocks), keys[block_ids], values[block_ids], num_valid)
    last = own_token(q, k, v)
    o, start = torch.zeros_like(q), 0
    for i, num_blocks in enumerate(request_num_blocks.tolist()):
        mine = [part[start : start + num_blocks] for part in parts]
        if own:
            mine = [torch.cat(pair) for pair in zip(mine, [part[i : i + 1] for part in last], strict=True)]
        o[i] = combine_result(*mine)[0]
        start += num_blocks if advance else 0
    if not write_first:
        write(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(o)


def pages_side_by_side(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        return torch.arange(len(block_ids)), num_valid, request_num_blocks
    return _decode(layer, x, seq_ids, manager, look=look)


def neighbours_of_the_first(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        runs = [torch.arange(run[0], run[0] + len(run)) for run in block_ids.split(request_num_blocks.tolist()) if len(run)]
        return torch.cat([block_ids[:0], *runs]), num_valid, request_num_blocks
    return _decode(layer, x, seq_ids, manager, look=look)


def blocks_of_the_first_rows(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        _, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        rows = [manager.block_table[i, :count] for i, count in enumerate(request_num_blocks.tolist())]
        return torch.cat(rows).long(), num_valid, request_num_blocks
    return _decode(layer, x, seq_ids, manager, look=look)


def whole_blocks(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        return block_ids, torch.full_like(num_valid, manager.block_size), request_num_blocks
    return _decode(layer, x, seq_ids, manager, look=look)


def first_blocks_alone(layer, x, seq_ids, manager):
    def look(seq_ids, manager):
        block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
        first = (request_num_blocks.cumsum(0) - request_num_blocks)[request_num_blocks > 0]
        return block_ids[first], num_valid[first], request_num_blocks.clamp(max=1)
    return _decode(layer, x, seq_ids, manager, look=look)


def _all_tokens(seq_ids, manager):
    """past_blocks() with the new token's slot counted in."""
    block_ids, num_valid, counts = [], [], []
    for seq_id in seq_ids:
        length = manager.get(seq_id).length
        valid = [min(manager.block_size, length - start) for start in range(0, length, manager.block_size)]
        block_ids += manager.blocks_of(seq_id)
        num_valid += valid
        counts.append(len(valid))
    return torch.tensor(block_ids), torch.tensor(num_valid), torch.tensor(counts)


def new_token_counted_twice(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, look=_all_tokens, write_first=True)


def unwritten_slot_read(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, look=_all_tokens)


def without_the_new_token(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, own=False)


def past_at_once(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
    parts = block_attention(dispatch(q, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(decode.combine_segments(*parts, request_num_blocks)[0])


def new_token_alone(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(own_token(q, k, v)[0])


def whole_batch_repeated(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, spread=lambda q, counts: q[torch.arange(int(counts.sum())) % len(q)])


def start_stays(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, advance=False)


def nothing_written(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, write=lambda *arguments: None)


def written_one_slot_on(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        slots = [slot_mapping(manager.get_block_table_for_seq(seq_id), torch.tensor([manager.get(seq_id).length]),
                              manager.block_size) for seq_id in seq_ids]
        write_kv(k_cache, v_cache, torch.cat(slots), k, v)
    return _decode(layer, x, seq_ids, manager, write=write)


def written_one_slot_back(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        before = [torch.tensor([max(0, manager.get(seq_id).length - 2)]) for seq_id in seq_ids]
        slots = [slot_mapping(manager.get_block_table_for_seq(seq_id), position, manager.block_size)
                 for seq_id, position in zip(seq_ids, before, strict=True)]
        write_kv(k_cache, v_cache, torch.cat(slots), k, v)
    return _decode(layer, x, seq_ids, manager, write=write)


def swapped_in_writing(layer, x, seq_ids, manager):
    def write(k_cache, v_cache, seq_ids, manager, k, v):
        write_new_tokens(v_cache, k_cache, seq_ids, manager, k, v)
    return _decode(layer, x, seq_ids, manager, write=write)


def swapped_in_reading(layer, x, seq_ids, manager):
    return _decode(layer, x, seq_ids, manager, swapped=True)


def not_projected(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, request_num_blocks = past_blocks(seq_ids, manager)
    parts = block_attention(dispatch(q, request_num_blocks), k_cache[block_ids], v_cache[block_ids], num_valid)
    past = decode.combine_segments(*parts, request_num_blocks)
    o, _, _ = combine_result(*(torch.stack(pair) for pair in zip(past, own_token(q, k, v), strict=True)))
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return o


BLOCKS = 24

# (tokens in the pool for each sequence of the batch, block size, query heads, KV heads, head size, layers, seed)
CASES = [
    ((0,), 2, 1, 1, 4, 1, 0), ((1,), 2, 1, 1, 4, 1, 1), ((2,), 2, 1, 1, 4, 1, 2), ((3,), 2, 1, 1, 4, 1, 3),
    ((4,), 4, 2, 2, 4, 1, 4), ((4, 4), 4, 1, 1, 4, 1, 5), ((5, 2), 4, 2, 1, 4, 1, 6), ((2, 0, 7), 3, 3, 1, 8, 1, 7),
    ((3, 8, 1), 4, 6, 2, 8, 2, 8),
    ((17, 15, 16), 16, 7, 1, 16, 1, 9), ((9, 30, 0, 4, 1), 8, 6, 2, 16, 3, 10), ((6, 3), 1, 4, 4, 8, 1, 11),
]


def prepare(case):
    """The layer, the new tokens, the batch's ids and a manager whose unused slots are poisoned."""
    past_lens, block_size, num_q_heads, num_kv_heads, head_size, num_layers, seed = case
    source, num_seqs = generator(seed), len(past_lens)
    layer = AttentionLayer(8, num_q_heads, num_kv_heads, head_size, index=num_layers - 1, seed=seed)
    manager = PagedAttentionManager(BLOCKS, block_size, num_kv_heads, head_size, num_seqs + 1, 16, num_layers)
    manager.kv_cache.fill_(POISON)
    taken = [manager.block_manager.allocate() for _ in range(BLOCKS)]
    # Block 0 last, so that no sequence starts there.
    for index in [0, *(torch.randperm(BLOCKS - 1, generator=source) + 1).tolist()]:
        manager.block_manager.free(taken[index])
    seq_ids = [10 + 7 * i % 5 for i in range(num_seqs)]
    manager.add_sequence(99, block_size + 1)  # not in the batch
    for seq_id, past in sorted(zip(seq_ids, past_lens, strict=True), reverse=True):
        manager.add_sequence(seq_id, past)
    for seq_id, past in zip(seq_ids, past_lens, strict=True):
        slots = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(past), block_size)
        k, v = torch.randn(2, past, num_kv_heads, head_size, generator=source)
        write_kv(*manager.kv_cache[layer.index], slots, k, v)
        manager.append_token(seq_id)
    return layer, torch.randn(num_seqs, 8, generator=source), seq_ids, manager


def observe(answer, case):
    layer, x, seq_ids, manager = prepare(case)
    before, table = x.clone(), manager.block_table.clone()
    y = tensors.values(answer(layer, x, seq_ids, manager))
    if not torch.equal(x, before):
        return Text("the argument x was changed")
    if not torch.equal(manager.block_table, table):
        return Text("the block table was changed")
    return (y, tensors.Values(manager.kv_cache[layer.index].flatten(1, 2).clone(), "[k, v] of all slots")) \
        if isinstance(y, tensors.Values) else y


def describe(case):
    past_lens, block_size, num_q_heads, num_kv_heads, head_size, _, _ = case
    _, _, seq_ids, manager = prepare(case)
    tables = ", ".join(f"{seq_id}: {manager.blocks_of(seq_id)}" for seq_id in seq_ids)
    return f"{len(past_lens)} sequence{'s' * (len(past_lens) > 1)} with {', '.join(map(str, past_lens))} tokens in the " \
           f"pool and a new one each; block_size {block_size}, {num_q_heads} query heads, {num_kv_heads} KV heads of size " \
           f"{head_size}; blocks of sequence {tables}; unused slots hold {POISON:.0f}"


EXERCISE = Exercise(
    id="4.4",
    title="decode one token of each sequence",
    answer_name="forward_decoding_loop",
    reference=in_double,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=3,
    mistakes=(
        Mistake("pages-assumed-contiguous",
                "You read blocks that lie side by side in the pool, as if a request's blocks came one after the other. They "
                "may be anywhere. The block table says where.",
                pages_side_by_side, also=(neighbours_of_the_first,)),
        Mistake("row-of-the-batch",
                "You read row i of the block table for the i-th sequence of the batch. The manager knows which row a "
                "sequence has.",
                blocks_of_the_first_rows),
        Mistake("tail-not-masked",
                "The last block of each request is attended whole, with the slots that hold no token yet. `past_blocks` "
                "also gives the tokens in each block.",
                whole_blocks),
        Mistake("first-block-only",
                "Only the first block of each request takes part. Its query goes to every one of its blocks.",
                first_blocks_alone),
        Mistake("own-token-missing",
                "The new token attends to the past and not to itself. Its own part is one more part to combine.",
                without_the_new_token, also=(past_at_once,)),
        Mistake("own-token-twice",
                "The new token counts twice: as the last token in the pool, and as a part of its own.",
                new_token_counted_twice),
        Mistake("unwritten-slot-read",
                "The slot of the new token is read before its key and value are written, so what was there before takes "
                "part. The past ends one token earlier.",
                unwritten_slot_read),
        Mistake("own-token-only",
                "Each new token sees itself only, and nothing of the past.",
                new_token_alone),
        Mistake("repeat-not-interleave",
                "The queries and the blocks are in different orders: a query meets another request's blocks. The blocks "
                "come request by request.",
                whole_batch_repeated),
        Mistake("offset-not-advanced",
                "Every request combines the first request's parts. The parts of the next one begin where those of this one "
                "end.",
                start_stays),
        Mistake("kv-not-written",
                "The output is right, and the pool is unchanged: the next step will not find this token. Write its key and "
                "value.",
                nothing_written),
        Mistake("written-to-wrong-slot",
                "The new token is written one slot too far. A sequence of n tokens has positions 0 to n - 1.",
                written_one_slot_on),
        Mistake("past-overwritten",
                "The new token is written one slot too early, over the token before it. The manager counts the new token "
                "already: it is the last one.",
                written_one_slot_back),
        Mistake("kv-swapped",
                "The new token's value is written where its key belongs, and the key where the value belongs. The output of "
                "this step is still right, the next one's is not.",
                swapped_in_writing),
        Mistake("kv-swapped-in-reading",
                "The past's keys are used as values, and its values as keys.",
                swapped_in_reading),
        Mistake("output-not-projected",
                "You return what attention gives, head by head. The layer's output projection brings it back to dim.",
                not_projected),
    ),
    hints=(
        "Write the steps as comments first: project; which blocks; a query for each; attend; combine request by request; "
        "write; project back. Each is one line or two, and each has its function.",
        "`k_cache[block_ids]` gives the blocks in the order of `block_ids`, wherever they lie.",
        "The parts of all requests stand in one tensor. Keep the place where the current request's parts start, and move it "
        "on by its number of blocks.",
        "For each request, `torch.cat` the past's o, m and l with the new token's own, then combine. A request without a "
        "past has its own part only.",
    ),
)
