"""Exercise 3.5: several requests through one layer, their keys and values into the pool."""

import copy
import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_03.requests import inputs_changed
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention import attention
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.layer import AttentionLayer
from paged_attention.slots import slot_mapping, write_kv

POISON = 100.0  # behind each request's last token in x
OLD = 1e4  # in every slot of the pool


def in_double(layer, x, request_num_blocks, seq_ids, manager, attend):
    """Ours, in float64; the pool is as it was made, in float32."""
    pool = manager.kv_cache
    manager.kv_cache = pool.double()
    y = attention.forward_prefill(
        copy.deepcopy(layer).double(), x.double(), request_num_blocks, seq_ids, manager, attend
    )
    manager.kv_cache = pool.copy_(manager.kv_cache)
    return y


class Prefill:
    """Ours without the given check, in steps that a mistake can replace."""

    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        self.caches, self.attend = manager.kv_cache[self.layer_index(layer)], attend
        q, k, v = layer.project(x)
        o, start = torch.zeros_like(q), 0
        seq_ids = self.sequences(manager, seq_ids)
        for number, (seq_id, num_blocks) in enumerate(
            zip(seq_ids, request_num_blocks, strict=True)
        ):
            first = self.first_block(number, start)
            self.number = number
            mine = slice(first, first + num_blocks)
            length = self.length(manager, seq_id)
            self.attend_to(o, q, k, v, mine, length)
            self.write(
                manager, seq_id, start, k[mine].flatten(0, 1), v[mine].flatten(0, 1), length
            )
            start += num_blocks
        return self.output(layer, o)

    def sequences(self, manager, seq_ids):
        return seq_ids

    def length(self, manager, seq_id):
        return manager.get(seq_id).length

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
        return slot_mapping(
            self.row(manager, seq_id),
            self.positions(manager, start, length),
            manager.block_size,
        )

    def write(self, manager, seq_id, start, k, v, length):
        write_kv(
            *self.caches, self.slots(manager, seq_id, start, length), k[:length], v[:length]
        )

    def output(self, layer, o):
        return layer.output(o)


class OffsetNotAdvanced(Prefill):
    def first_block(self, number, start):
        return 0


class RequestIndexAsOffset(Prefill):
    def first_block(self, number, start):
        return number


class OffsetNotAddedUp(Prefill):
    """The place is set to the number of blocks of the request before."""

    def first_block(self, number, start):
        first = start - self.before if number else 0
        self.before = start
        return first


class StopsAtNoTokens(Prefill):
    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        count = request_num_blocks.index(0) if 0 in request_num_blocks else len(seq_ids)
        return super().__call__(
            layer, x, request_num_blocks[:count], seq_ids[:count], manager, attend
        )


class PositionsAsSlots(Prefill):
    def slots(self, manager, seq_id, start, length):
        return torch.arange(length)


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
        first = manager.get_block_table_for_seq(seq_id)[0] * manager.block_size
        return first + torch.arange(length)


class BlockTableIgnored(Prefill):
    def slots(self, manager, seq_id, start, length):
        return start * manager.block_size + torch.arange(length)


class PositionsNotRestarted(Prefill):
    def positions(self, manager, start, length):
        return start * manager.block_size + torch.arange(length)


class SequenceIdAsRow(Prefill):
    def row(self, manager, seq_id):
        return manager.block_table[seq_id]


class RequestNumberForRow(Prefill):
    def row(self, manager, seq_id):
        return manager.block_table[self.number]


class RowOfTheFirst(Prefill):
    """The row of the batch's first sequence, read once, for all."""

    def row(self, manager, seq_id):
        if self.number == 0:
            self.first_row = super().row(manager, seq_id)
        return self.first_row


class RequestNumberAsSequence(Prefill):
    """The manager raises: there is no sequence 0."""

    def sequences(self, manager, seq_ids):
        return list(range(len(seq_ids)))


class PositionsFromOne(Prefill):
    def positions(self, manager, start, length):
        return torch.arange(1, length + 1)


class SequencesGrown(Prefill):
    """Room for the next token is made at the end."""

    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        y = super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)
        for seq_id in seq_ids:
            manager.append_token(seq_id)
        return y


class SequencesEnded(Prefill):
    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        y = super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)
        for seq_id in seq_ids:
            manager.free_sequence(seq_id)
        return y


class OrderOfArrival(Prefill):
    """The manager's sequences in the order in which they came, in place of seq_ids."""

    def sequences(self, manager, seq_ids):
        return list(manager.sequences)[: len(seq_ids)]


class LengthsInOrderOfArrival(Prefill):
    def length(self, manager, seq_id):
        return list(manager.sequences.values())[self.number].length


class LastToArrive(Prefill):
    def sequences(self, manager, seq_ids):
        return list(manager.sequences)[-len(seq_ids) :]


class SortedSequences(Prefill):
    def sequences(self, manager, seq_ids):
        return sorted(seq_ids)


class PaddingAsTokens(Prefill):
    """The length of a request is taken to be its number of slots, in both places."""

    def attend_to(self, o, q, k, v, mine, length):
        o[mine] = self.attend(q[mine], k[mine], v[mine], (mine.stop - mine.start) * q.shape[1])

    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, k, v, len(k))


class OnlyKeysWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        k_cache, v_cache = self.caches
        self.caches = k_cache, v_cache.clone()
        super().write(manager, seq_id, start, k, v, length)


class OnlyValuesWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        k_cache, v_cache = self.caches
        self.caches = k_cache.clone(), v_cache
        super().write(manager, seq_id, start, k, v, length)


class WritesIntoX(Prefill):
    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        return x.copy_(
            super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)
        )


class ZeroesTheEndOfX(Prefill):
    """Sets what stands behind each last token to 0, in the caller's x."""

    def __call__(self, layer, x, request_num_blocks, seq_ids, manager, attend):
        for seq_id, mine in zip(seq_ids, x.split(request_num_blocks), strict=True):
            mine.view(-1, x.shape[-1])[manager.get(seq_id).length :] = 0
        return super().__call__(layer, x, request_num_blocks, seq_ids, manager, attend)


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


class QueriesForKeys(Prefill):
    """As many of the queries' heads as fit."""

    def attend_to(self, o, q, k, v, mine, length):
        super().attend_to(o, q, k, v, mine, length)
        self.queries = q[mine].flatten(0, 1)

    def write(self, manager, seq_id, start, k, v, length):
        super().write(manager, seq_id, start, self.queries[:, : k.shape[1]], v, length)


class AllQueriesForKeys(QueriesForKeys):
    """All heads; write_kv raises where there are too many."""

    def write(self, manager, seq_id, start, k, v, length):
        Prefill.write(self, manager, seq_id, start, self.queries, v, length)


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


class OnlyTheFirstRequestWritten(Prefill):
    def write(self, manager, seq_id, start, k, v, length):
        if self.number == 0:
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


class InputAdded(Prefill):
    def __call__(self, layer, x, *batch):
        return x + super().__call__(layer, x, *batch)


class BlocksFlattened(Prefill):
    def output(self, layer, o):
        return layer.output(o).flatten(0, 1)


class SharedHeadsWritten(Prefill):
    """Keys and values have a head for each query head before they are written.

    `write_kv` raises.
    """

    def attend_to(self, o, q, k, v, mine, length):
        super().attend_to(o, q, k, v, mine, length)
        self.num_q_heads = q.shape[2]

    def write(self, manager, seq_id, start, k, v, length):
        k, v = (attention.share_heads(x, self.num_q_heads) for x in (k, v))
        super().write(manager, seq_id, start, k, v, length)


class ManagerChanged(Text):
    """The result of an answer after which the manager's sequences are not as they were.

    Equal to any other such result.
    """

    def __eq__(self, other):
        return isinstance(other, ManagerChanged)

    __hash__ = Text.__hash__


# (tokens of each request, block size, KV heads, query heads for each, head size, dim, layer of
# the two, seed, is the manager busy). A busy manager has another sequence, and had one that
# has ended; the requests came to it in another order.
CASES = [
    ((1,), 1, 1, 1, 2, 2, 0, 1, False),
    ((1, 1), 1, 1, 1, 2, 2, 0, 11, False),
    ((2,), 4, 1, 1, 2, 3, 0, 2, False),
    ((4,), 2, 1, 1, 4, 3, 0, 3, False),
    ((2, 2), 2, 1, 2, 4, 6, 1, 4, False),
    ((3, 1), 2, 1, 3, 4, 6, 0, 5, False),
    ((3, 5), 4, 2, 1, 4, 5, 0, 6, False),
    ((3, 4, 4), 2, 1, 1, 4, 5, 0, 12, True),
    ((5, 0, 2), 2, 2, 3, 4, 8, 1, 7, False),
    ((5, 7, 6), 4, 2, 3, 4, 8, 1, 13, True),
    ((4, 9, 1), 4, 1, 7, 8, 12, 1, 8, False),
    ((17, 16, 1, 33), 16, 3, 2, 8, 16, 0, 9, False),
    ((0,), 4, 1, 1, 4, 4, 0, 10, False),
]
# A further entry says what does not agree.
BLOCK_TOO_MANY = "the first request has a block more than its tokens fill"
NAMED_TWICE = "the two requests are the same sequence"
BAD_INPUT = [
    ((3,), 4, 1, 1, 2, 2, 0, 14, False, BLOCK_TOO_MANY),
    ((2, 2), 4, 1, 1, 2, 2, 0, 15, False, NAMED_TWICE),
]


def hidden(seed):
    """By turns requests of any lengths, and three of as many blocks each in a busy manager.

    Then bad input.
    """
    chance = random.Random(seed)
    for number in range(12):
        block_size, busy = chance.randint(2, 5), number % 3 == 2
        num_blocks = (
            [chance.randint(2, 3)] * 3
            if busy
            else chance.choices(range(4), k=chance.randint(2, 4))
        )
        lengths = tuple(
            max(0, block_size * count - chance.randrange(block_size)) for count in num_blocks
        )
        head_size = chance.choice((2, 4, 6))
        yield (
            lengths,
            block_size,
            chance.randint(1, 3),
            chance.randint(1, 3),
            head_size,
            chance.randint(3, 9),
            number % 2,
            chance.randrange(2**31),
            busy,
        )
    for disagreement in (BLOCK_TOO_MANY, NAMED_TWICE):
        lengths = (chance.randint(1, 9),) * 2
        yield (
            lengths,
            chance.randint(2, 5),
            1,
            1,
            2,
            chance.randint(3, 9),
            0,
            chance.randrange(2**31),
            False,
            disagreement,
        )


def is_bad(case):
    return len(case) > len(CASES[0])


def given(case):
    """The layer, x, request_num_blocks, seq_ids and a manager.

    The manager's free blocks are shuffled.
    """
    (
        lengths,
        block_size,
        num_kv_heads,
        group,
        head_size,
        dim,
        index,
        seed,
        busy,
        *disagreement,
    ) = case
    shuffle = random.Random(seed)
    layer = AttentionLayer(
        dim, group * num_kv_heads, num_kv_heads, head_size, index=index, seed=seed
    )
    num_blocks = 2 * sum(-(-length // block_size) for length in lengths) + 4
    manager = PagedAttentionManager(
        num_blocks,
        block_size,
        num_kv_heads,
        head_size,
        max_num_seqs=8,
        max_blocks_per_seq=num_blocks,
        num_layers=2,
    )
    manager.kv_cache.fill_(OLD)
    for _ in range(num_blocks):
        manager.block_manager.allocate()
    for block_id in shuffle.sample(range(num_blocks), num_blocks):
        manager.block_manager.free(block_id)
    seq_ids = shuffle.sample(range(1, 8), len(lengths))
    if busy:
        # As many blocks as each request has, so that no mistake raises: rows 3, 2 and 0 for
        # the requests 0, 1 and 2.
        ended, other = 8, 9
        manager.add_sequence(ended, 1)
        manager.add_sequence(other, 2 * block_size)
        manager.add_sequence(seq_ids[1], lengths[1])
        manager.free_sequence(ended)
        manager.add_sequence(seq_ids[2], lengths[2])
        manager.add_sequence(seq_ids[0], lengths[0])
    else:
        for seq_id, length in zip(seq_ids, lengths, strict=True):
            manager.add_sequence(seq_id, length)
    request_num_blocks = [manager.blocks_for(length) for length in lengths]
    request_num_blocks[0] += BLOCK_TOO_MANY in disagreement
    if NAMED_TWICE in disagreement:
        seq_ids[1] = seq_ids[0]
    x = torch.randn(
        sum(request_num_blocks), block_size, dim, generator=torch.Generator().manual_seed(seed)
    )
    start = 0
    for length, mine in zip(lengths, request_num_blocks, strict=True):
        x[start : start + mine].view(-1, dim)[length:] = POISON
        start += mine
    return layer, x, request_num_blocks, seq_ids, manager


def lengths_of(manager):
    return {seq_id: sequence.length for seq_id, sequence in manager.sequences.items()}


def observe(answer, case):
    layer, x, request_num_blocks, seq_ids, manager = given(case)
    x_before = x.clone()
    lengths_before = lengths_of(manager)
    calls = []

    def attend(q, k, v, length):
        calls.append(length)
        return attention.plain_attention(q, k, v, length)

    if is_bad(case):
        try:
            answer(layer, x, request_num_blocks, seq_ids, manager, attend)
        except Exception as error:
            return Text(type(error).__name__)
        return Text("no error")
    result = tensors.values(
        answer(layer, x, list(request_num_blocks), list(seq_ids), manager, attend)
    )
    if changed := inputs_changed([("x", x, x_before)]):
        return changed
    if lengths_of(manager) != lengths_before:
        return ManagerChanged(
            f"the manager's sequences and their lengths are {lengths_of(manager)}, "
            f"and were {lengths_before}"
        )
    if sum(case[0]) and not calls:
        return Text("`attend` was never called")
    if isinstance(result, tensors.Values):
        result = tensors.Values(result.tensor, "y")
    return result, *tensors.values(
        tuple(manager.kv_cache.transpose(0, 1)), "all layers' k_cache", "all layers' v_cache"
    )


def describe(case):
    lengths, block_size, num_kv_heads, group, head_size, dim, index, _, busy, *disagreement = (
        case
    )
    *_, request_num_blocks, seq_ids, manager = given(case)
    tables = ", ".join(
        f"sequence {seq_id} in {manager.blocks_of(seq_id)}" for seq_id in seq_ids
    )
    what = (
        f"a request of {counted(lengths[0], 'token')}"
        if len(lengths) == 1
        else f"{len(lengths)} requests of the lengths {listed(lengths)}"
    )
    order = (
        f" (they were added in the order {listed(manager.sequences)}, "
        "after one that has ended; sequence 9 is not in the batch)"
        if busy
        else ""
    )
    return (
        f"{what}, {counted(block_size, 'slot')} in a block, "
        f"request_num_blocks {request_num_blocks}, seq_ids {seq_ids}{order}; "
        f"blocks of the pool: {tables}; {counted(group * num_kv_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')}, head_size {head_size}, dim {dim}; "
        f"layer.index {index}; {POISON:.0f} stands in x behind each last token, {OLD:.0f} "
        f"in the whole pool{''.join(f'; {what_is_wrong}' for what_is_wrong in disagreement)}"
    )


EXERCISE = Exercise(
    id="3.5",
    title="prefill, request by request",
    answer_name="forward_prefill",
    reference=in_double,
    cases=lambda: CASES + BAD_INPUT,
    size=lambda case: (sum(case[0]), len(case[0]), math.prod(case[2:5])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=is_bad,  # other mistakes keep their names, whether the check stands in them or not
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "offset-not-advanced",
            "Every request gets the first blocks of x. "
            "After each request, go on by the number of its blocks.",
            OffsetNotAdvanced(),
        ),
        Mistake(
            "request-index-as-offset",
            "A request's number is taken for the place of its first block. "
            "These are the same only while each request has one block.",
            RequestIndexAsOffset(),
        ),
        Mistake(
            "offset-not-added-up",
            "The place where a request begins is set to the number of blocks of the request "
            "before it. From the third one on there are more requests before: add up.",
            OffsetNotAddedUp(),
        ),
        Mistake(
            "stops-at-no-tokens",
            "Your loop ends at the first request without a token, "
            "and those after it are not computed.",
            StopsAtNoTokens(),
        ),
        Mistake(
            "positions-as-slots",
            "The positions are used as slots, "
            "so every sequence is written to the beginning of the pool. "
            "Its block table says which blocks are its own: `slot_mapping` reads it.",
            PositionsAsSlots(),
        ),
        Mistake(
            "attends-across-requests",
            "All requests are attended to as if they were one long text, so "
            "that each sees the ones before it. Give `attend` one request's blocks at a time.",
            AttendsAcrossRequests(),
        ),
        Mistake(
            "attends-to-earlier-requests",
            "Each request sees the blocks of those before it. "
            "Its slice has a start, not only an end.",
            AttendsToEarlierRequests(),
        ),
        Mistake(
            "tail-not-masked",
            "`attend` is told that the last block is full. "
            "How many tokens the request has is in the manager.",
            TailNotMasked(),
        ),
        Mistake(
            "padding-as-tokens",
            "The length of a request is taken to be all the slots of its blocks, "
            "for attention and for the pool alike. The last block may be partly filled: "
            "how many tokens the request has is in the manager.",
            PaddingAsTokens(),
        ),
        Mistake(
            "ignores-attend",
            "The result is right, but the argument `attend` plays no part in it. "
            "The caller chooses with it how attention is computed.",
            IgnoresAttend(),
        ),
        Mistake(
            "pages-assumed-contiguous",
            "Keys and values go into blocks that follow each other, from the sequence's "
            "first block on. The second block of a sequence may lie anywhere in the pool, "
            "and the block next to the first may be another sequence's.",
            AssumesContiguous(),
        ),
        Mistake(
            "block-table-ignored",
            "Keys and values lie in the pool in the order of x. "
            "Where a sequence's blocks are is written in its row of the block table.",
            BlockTableIgnored(),
        ),
        Mistake(
            "positions-not-restarted",
            "The positions are counted from the start of x. "
            "To the block table, each sequence's first token has position 0.",
            PositionsNotRestarted(),
        ),
        Mistake(
            "positions-from-one",
            "Your positions begin with 1. "
            "A sequence's first token has position 0, and its last one length - 1.",
            PositionsFromOne(),
        ),
        Mistake(
            "one-row-for-all",
            "All requests are written through the block table of the first one. "
            "Each sequence has a row of its own.",
            RowOfTheFirst(),
        ),
        Mistake(
            "request-number-as-seq-id",
            "The manager is asked for a request by its place in the batch, 0, 1 or 2. "
            "It knows sequences by their ids, and `seq_ids` says which request is which.",
            RequestNumberAsSequence(),
        ),
        Mistake(
            "sequences-changed",
            "After your call the manager's sequences are not as they were. "
            "A prefill writes keys and values. "
            "Whoever calls it has added the sequences, and lets them grow and end.",
            SequencesGrown(),
            also=(SequencesEnded(),),
        ),
        Mistake(
            "seq-id-as-row",
            "A sequence's id is taken for its row in the block table. Ids are names. "
            "The manager knows the row: get_block_table_for_seq().",
            SequenceIdAsRow(),
        ),
        Mistake(
            "request-number-for-row",
            "A request's number is taken for its row in the block table. "
            "A row is given to a sequence when it is added, and given to another one when "
            "it has ended. The manager knows the row: get_block_table_for_seq().",
            RequestNumberForRow(),
        ),
        Mistake(
            "order-of-arrival",
            "You take the sequences in the manager's order, or in that of their ids. "
            "Which request belongs to which sequence stands in `seq_ids`, "
            "and the manager may have sequences that are not in this batch.",
            OrderOfArrival(),
            also=(LengthsInOrderOfArrival(), LastToArrive(), SortedSequences()),
        ),
        Mistake(
            "kv-swapped",
            "The keys are in v_cache and the values in k_cache.",
            KeysAndValuesSwapped(),
        ),
        Mistake("keys-for-values", "v_cache holds keys as well.", KeysForValues()),
        Mistake(
            "queries-for-keys",
            "k_cache holds queries. "
            "The later tokens bring queries of their own, and compare them with the keys.",
            QueriesForKeys(),
            also=(AllQueriesForKeys(),),
        ),
        Mistake(
            "padding-written",
            "What stands in x behind the last token has been written to the pool too. "
            "Write `length` tokens.",
            PaddingWritten(),
        ),
        Mistake(
            "last-token-not-written",
            "Of each request the last token's key and value are missing in the pool.",
            LastTokenNotWritten(),
        ),
        Mistake(
            "kv-not-written",
            "The result is right, and the pool is as it was. "
            "Without keys and values in it, there is nothing to decode from.",
            KeysAndValuesNotWritten(),
        ),
        Mistake(
            "values-not-written",
            "The keys are in the pool, and the values are not.",
            OnlyKeysWritten(),
        ),
        Mistake(
            "keys-not-written",
            "The values are in the pool, and the keys are not.",
            OnlyValuesWritten(),
        ),
        Mistake(
            "only-last-request-written",
            "Only the last request's keys and values are in the pool. "
            "Is the writing inside the loop?",
            OnlyTheLastRequestWritten(),
        ),
        Mistake(
            "only-first-request-written",
            "Only the first request's keys and values are in the pool. "
            "What keeps the others from being written?",
            OnlyTheFirstRequestWritten(),
        ),
        Mistake(
            "wrong-layer",
            "The keys and values of this layer are in another layer's part of the pool. "
            "`k_cache` and `v_cache` in the given line are the right ones.",
            WrongLayer(),
        ),
        Mistake(
            "heads-scrambled",
            "The heads got mixed before the last projection. "
            "`o` has the shape (total_blocks, block_size, num_q_heads, head_size), "
            "and layer.output() takes exactly that.",
            HeadsScrambled(),
        ),
        Mistake(
            "output-not-projected",
            "You return what the heads found, (…, num_q_heads, head_size). "
            "The layer brings it back to (…, dim).",
            NotProjected(),
        ),
        Mistake(
            "output-only-flattened",
            "The heads' outputs stand side by side, "
            "but the layer's last projection is missing.",
            OutputOnlyFlattened(),
        ),
        Mistake(
            "input-added",
            "x is added to the result. "
            "What is asked for is the output of the attention layer alone.",
            InputAdded(),
        ),
        Mistake(
            "blocks-flattened",
            "The numbers are right, and the tokens of all blocks stand in one row. "
            "The result has the shape of x: (total_blocks, block_size, dim).",
            BlocksFlattened(),
        ),
        Mistake(
            "shared-heads-written",
            "The keys or values that you write have a head for each query head. "
            "The pool keeps num_kv_heads of them: what layer.project() gives fits.",
            SharedHeadsWritten(),
        ),
        Mistake(
            "inputs-changed",
            "Your function changes x, which belongs to its caller. Compute in tensors "
            "of your own; operators like `/=` and an assignment to a slice work in place.",
            WritesIntoX(),
            also=(ZeroesTheEndOfX(),),
        ),
        Mistake(
            "check-deleted",
            "Arguments that disagree are taken: a request "
            "that has more blocks than its tokens fill, or a sequence that is named twice. "
            "The line with check_prefill, which refuses them, has to stay.",
            Prefill(),
        ),
    ),
    hints=(
        (
            "Project all of x at once, and make a tensor of zeros for the outputs. Then go "
            "through the requests, with a counter for where the next one's blocks start in x."
        ),
        (
            "For each request: its slice of q, k and v into `attend`, with its length; "
            "the result into the same slice of the outputs."
        ),
        (
            "Its slots come from lesson 02's `slot_mapping`, "
            "with its row of the block table and the positions 0 to length - 1. "
            "`write_kv` takes the first `length` tokens of its k and v, in one row."
        ),
    ),
)
