"""Exercise 3.5: several requests through one layer, their keys and values into the pool."""

import copy
import random

import torch

from lessons_lib import attention
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.kv_cache import PagedAttentionManager
from lessons_lib.layer import AttentionLayer
from lessons_lib.slots import slot_mapping, write_kv
from solutions.checks import tensors
from solutions.checks.lesson_03.requests import counted

POISON = 100.0  # behind each request's last token in x
OLD = 1e4  # in every slot of the pool


def in_double(layer, x, request_num_blocks, seq_ids, manager, attend):
    """Ours, in float64; the pool is as it was made, in float32."""
    pool = manager.kv_cache
    manager.kv_cache = pool.double()
    y = attention.forward_prefill(copy.deepcopy(layer).double(), x.double(), request_num_blocks, seq_ids, manager, attend)
    manager.kv_cache = pool.copy_(manager.kv_cache)
    return y


class Prefill:
    """Ours, in steps that a mistake can replace."""

    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        self.caches, self.attend = manager.kv_cache[self.layer_index(layer)], attend
        q, k, v = layer.project(x)
        o, start = torch.zeros_like(q), 0
        for number, (seq_id, num_blocks) in enumerate(zip(seq_ids, request_num_blocks, strict=True)):
            first = self.first_block(number, start)
            mine, length = slice(first, first + num_blocks), manager.get(seq_id).length
            self.attend_to(o, q, k, v, mine, length)
            self.write(manager, seq_id, start, k[mine].flatten(0, 1), v[mine].flatten(0, 1), length)
            start += num_blocks
        return self.output(layer, o)

    def layer_index(self, layer):
        return layer.index

    def first_block(self, number, start):
        return start

    def attend_to(self, o, q, k, v, mine, length):
        o[mine] = self.attend(q[mine], k[mine], v[mine], length)

    def row(self, manager, seq_id):
        return manager.get_block_table_for_seq(seq_id)

    def positions(self, manager, start, length):
        return torch.arange(length)

    def slots(self, manager, seq_id, start, length):
        return slot_mapping(self.row(manager, seq_id), self.positions(manager, start, length), manager.block_size)

    def write(self, manager, seq_id, start, k, v, length):
        write_kv(*self.caches, self.slots(manager, seq_id, start, length), k[:length], v[:length])

    def output(self, layer, o):
        return layer.output(o)


class OffsetNotAdvanced(Prefill):
    def first_block(self, number, start):
        return 0


class RequestIndexAsOffset(Prefill):
    def first_block(self, number, start):
        return number


class AttendsAcrossRequests(Prefill):
    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        q, k, v = layer.project(x)
        self.all = attend(q, k, v, x.shape[0] * x.shape[1])
        return super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)

    def attend_to(self, o, q, k, v, mine, length):
        o[mine] = self.all[mine]


class AttendsToEarlierRequests(Prefill):
    def attend_to(self, o, q, k, v, mine, length):
        so_far = mine.start * q.shape[1] + length
        o[mine] = self.attend(q[: mine.stop], k[: mine.stop], v[: mine.stop], so_far)[mine]


class TailNotMasked(Prefill):
    def attend_to(self, o, q, k, v, mine, length):
        o[mine] = self.attend(q[mine], k[mine], v[mine], (mine.stop - mine.start) * q.shape[1])


class IgnoresAttend(Prefill):
    def attend_to(self, o, q, k, v, mine, length):
        o[mine] = attention.plain_attention(q[mine], k[mine], v[mine], length)


class AssumesContiguous(Prefill):
    def slots(self, manager, seq_id, start, length):
        return manager.get_block_table_for_seq(seq_id)[0] * manager.block_size + torch.arange(length)


class BlockTableIgnored(Prefill):
    def slots(self, manager, seq_id, start, length):
        return start * manager.block_size + torch.arange(length)


class PositionsNotRestarted(Prefill):
    def positions(self, manager, start, length):
        return start * manager.block_size + torch.arange(length)


class SequenceIdAsRow(Prefill):
    def row(self, manager, seq_id):
        return manager.block_table[seq_id]


class KeysAndValuesSwapped(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, v, k, length)


class PaddingWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, k, v, len(k))


class KeysAndValuesNotWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        pass


class KeysForValues(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, k, k, length)


class LastTokenNotWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, k, v, max(length - 1, 0))


class OnlyTheLastRequestWritten(Prefill):
    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        self.last = seq_ids[-1]
        return super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)

    def write(self, manager, seq_id, start, k, v, length):
        if seq_id == self.last:
            super().write(manager, seq_id, start, k, v, length)


class WrongLayer(Prefill):
    def layer_index(self, layer):
        return 0


class HeadsScrambled(Prefill):
    def output(self, layer, o):
        return layer.output(o.transpose(1, 2).reshape(o.shape))


class NotProjected(Prefill):
    def output(self, layer, o):
        return o


class OutputOnlyFlattened(Prefill):
    def output(self, layer, o):
        return o.flatten(-2)


# (tokens of each request, block size, KV heads, query heads for each, head size, dim, layer of the two, seed)
CASES = [
    ((1,), 1, 1, 1, 2, 2, 0, 1), ((2,), 4, 1, 1, 2, 3, 0, 2), ((4,), 2, 1, 1, 4, 3, 0, 3), ((2, 2), 2, 1, 2, 4, 6, 1, 4),
    ((3, 1), 2, 1, 3, 4, 6, 0, 5), ((3, 5), 4, 2, 1, 4, 5, 0, 6), ((5, 0, 2), 2, 2, 3, 4, 8, 1, 7),
    ((4, 9, 1), 4, 1, 7, 8, 12, 1, 8), ((17, 16, 1, 33), 16, 3, 2, 8, 16, 0, 9), ((0,), 4, 1, 1, 4, 4, 0, 10),
]


def given(case):
    """The layer, x, request_num_blocks, seq_ids, and a manager whose free blocks are shuffled."""
    lengths, block_size, num_kv_heads, group, head_size, dim, index, seed = case
    shuffle = random.Random(seed)
    layer = AttentionLayer(dim, group * num_kv_heads, num_kv_heads, head_size, index=index, seed=seed)
    num_blocks = 2 * sum(-(-length // block_size) for length in lengths) + 2
    manager = PagedAttentionManager(num_blocks, block_size, num_kv_heads, head_size, max_num_seqs=8,
                                    max_blocks_per_seq=num_blocks, num_layers=2)
    manager.kv_cache.fill_(OLD)
    for _ in range(num_blocks):
        manager.block_manager.allocate()
    for block_id in shuffle.sample(range(num_blocks), num_blocks):
        manager.block_manager.free(block_id)
    seq_ids = shuffle.sample(range(1, 8), len(lengths))
    for seq_id, length in zip(seq_ids, lengths, strict=True):
        manager.add_sequence(seq_id, length)
    request_num_blocks = [manager.blocks_for(length) for length in lengths]
    x = torch.randn(sum(request_num_blocks), block_size, dim, generator=torch.Generator().manual_seed(seed))
    start = 0
    for length, mine in zip(lengths, request_num_blocks, strict=True):
        x[start : start + mine].view(-1, dim)[length:] = POISON
        start += mine
    return layer, x, request_num_blocks, seq_ids, manager


def observe(answer, case):
    layer, x, request_num_blocks, seq_ids, manager = given(case)
    x_before, calls = x.clone(), []

    def attend(q, k, v, length):
        calls.append(length)
        return attention.plain_attention(q, k, v, length)

    result = tensors.values(answer(layer, x, list(request_num_blocks), list(seq_ids), manager, attend))
    if not torch.equal(x, x_before):
        return Text("x has changed")
    if sum(case[0]) and not calls:
        return Text("`attend` was never called")
    if isinstance(result, tensors.Values):
        result = tensors.Values(result.tensor, "y")
    return result, *tensors.values(tuple(manager.kv_cache.transpose(0, 1)), "all layers' k_cache", "all layers' v_cache")


def describe(case):
    lengths, block_size, num_kv_heads, group, head_size, dim, index, _ = case
    *_, request_num_blocks, seq_ids, manager = given(case)
    tables = ", ".join(f"sequence {seq_id} in {manager.blocks_of(seq_id)}" for seq_id in seq_ids)
    what = "a request" if len(lengths) == 1 else "requests"
    return f"{what} of {', '.join(map(str, lengths))} tokens, {counted(block_size, 'slot')} in a block, " \
           f"request_num_blocks {request_num_blocks}; blocks of the pool: {tables}; " \
           f"{counted(group * num_kv_heads, 'query head')}, {counted(num_kv_heads, 'KV head')}, head_size {head_size}, " \
           f"dim {dim}; layer.index {index}; {POISON:.0f} stands in x behind each last token, {OLD:.0f} in the whole pool"


EXERCISE = Exercise(
    id="3.5",
    title="prefill, request by request",
    answer_name="forward_prefill",
    reference=in_double,
    cases=lambda: CASES,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake("offset-not-advanced",
                "Every request gets the first blocks of x. After each request, go on by the number of its blocks.",
                OffsetNotAdvanced()),
        Mistake("request-index-as-offset",
                "A request's number is taken for the place of its first block. These are the same only while each "
                "request has one block.",
                RequestIndexAsOffset()),
        Mistake("attends-across-requests",
                "All requests are attended to as if they were one long text, so that each sees the ones before it. Give "
                "`attend` one request's blocks at a time.",
                AttendsAcrossRequests()),
        Mistake("attends-to-earlier-requests",
                "Each request sees the blocks of those before it. Its slice has a start, not only an end.",
                AttendsToEarlierRequests()),
        Mistake("tail-not-masked",
                "`attend` is told that the last block is full. How many tokens the request has is in the manager.",
                TailNotMasked()),
        Mistake("ignores-attend",
                "The result is right, but the argument `attend` plays no part in it. The caller chooses with it how "
                "attention is computed.",
                IgnoresAttend()),
        Mistake("pages-assumed-contiguous",
                "Keys and values go into blocks that follow each other, from the sequence's first block on. The second "
                "block of a sequence may lie anywhere in the pool, and the block next to the first may be another "
                "sequence's.",
                AssumesContiguous()),
        Mistake("block-table-ignored",
                "Keys and values lie in the pool in the order of x. Where a sequence's blocks are is written in its row "
                "of the block table.",
                BlockTableIgnored()),
        Mistake("positions-not-restarted",
                "The positions are counted from the start of x. To the block table, each sequence's first token has "
                "position 0.",
                PositionsNotRestarted()),
        Mistake("seq-id-as-row",
                "A sequence's id is taken for its row in the block table. Ids are names. The manager knows the row: "
                "get_block_table_for_seq().",
                SequenceIdAsRow()),
        Mistake("kv-swapped",
                "The keys are in v_cache and the values in k_cache.",
                KeysAndValuesSwapped()),
        Mistake("keys-for-values",
                "v_cache holds keys as well.",
                KeysForValues()),
        Mistake("padding-written",
                "What stands in x behind the last token has been written to the pool too. Write `length` tokens.",
                PaddingWritten()),
        Mistake("last-token-not-written",
                "Of each request the last token's key and value are missing in the pool.",
                LastTokenNotWritten()),
        Mistake("kv-not-written",
                "The result is right, and the pool is as it was. Without keys and values in it, there is nothing to "
                "decode from.",
                KeysAndValuesNotWritten()),
        Mistake("only-last-request-written",
                "Only the last request's keys and values are in the pool. Is the writing inside the loop?",
                OnlyTheLastRequestWritten()),
        Mistake("wrong-layer",
                "The keys and values of this layer are in another layer's part of the pool. `k_cache` and `v_cache` in the "
                "given line are the right ones.",
                WrongLayer()),
        Mistake("heads-scrambled",
                "The heads got mixed before the last projection. `o` has the shape (total_blocks, block_size, num_q_heads, "
                "head_size), and layer.output() takes exactly that.",
                HeadsScrambled()),
        Mistake("output-not-projected",
                "You return what the heads found, (…, num_q_heads, head_size). The layer brings it back to (…, dim).",
                NotProjected()),
        Mistake("output-only-flattened",
                "The heads' outputs stand side by side, but the layer's last projection is missing.",
                OutputOnlyFlattened()),
    ),
    hints=(
        "Project all of x at once, and make a tensor of zeros for the outputs. Then go through the requests, with a "
        "counter for where the next one's blocks start in x.",
        "For each request: its slice of q, k and v into `attend`, with its length; the result into the same slice of "
        "the outputs.",
        "Its slots come from lesson 02's `slot_mapping`, with its row of the block table and the positions 0 to length - 1. "
        "`write_kv` takes the first `length` tokens of its k and v, in one row.",
    ),
)
