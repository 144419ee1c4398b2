"""Exercise 3.5: prefill, request by request.

Project all of x at once, and make a tensor of zeros for the outputs. Then go through the
requests, with a counter for where the next one's blocks start in x.

For each request: its slice of q, k and v into `attend`, with its length; the result into the
same slice of the outputs.

Its slots come from lesson 02's `slot_mapping`, with its row of the block table and the
positions 0 to length - 1. `write_kv` takes the first `length` tokens of its k and v, in one
row.
"""

import math
import random

import torch

from lessons_content.exercises.kit import Alike, counted, error_of, exercise, listed, tensors
from lessons_content.exercises.pools import lengths_of, make_free
from lessons_content.lesson_03.requests import FEW, in_digits, inputs_changed, simple
from lessons_lib.checks import Text, raised
from paged_attention.attention import by_request
from paged_attention.attention.layer import AttentionLayer
from paged_attention.pool.kv_cache import PagedAttentionManager

POISON = 10.0  # after each request's last token in x
OLD = 1e4  # in every slot of the pool


class ManagerChanged(Alike):
    """The result of an answer after which the manager's sequences are not as they were."""


# (tokens of each request, block size, KV heads, query heads for each, head size, dim, layer of
# the two, seed, is the manager busy). A busy manager has another sequence, and had one that
# has ended; the requests came to it in another order.
CASES = [
    ((1,), 1, 1, 1, 2, 2, 0, 1, False),
    ((2,), 4, 1, 1, 2, 2, 0, 2, False),
    ((1, 1), 1, 1, 1, 2, 2, 0, 11, False),
    ((2, 2), 2, 1, 1, 1, 1, 0, 16, False),
    ((3,), 2, 1, 1, 1, 1, 1, 3, False),
    ((3, 1), 2, 1, 1, 1, 1, 0, 17, False),
    ((2, 2), 2, 1, 2, 4, 6, 1, 4, False),
    ((3, 1), 2, 1, 3, 4, 6, 0, 5, False),
    ((3, 5), 4, 2, 1, 2, 5, 0, 6, False),
    ((3, 4, 4), 2, 1, 1, 2, 5, 0, 12, True),
    ((5, 0, 2), 2, 2, 3, 2, 8, 1, 7, False),
    ((5, 7, 6), 4, 2, 3, 2, 8, 1, 13, True),
    ((4, 9, 1), 4, 1, 7, 2, 6, 1, 8, False),
    ((17, 16, 1, 33), 16, 3, 2, 1, 5, 0, 9, False),
    ((0,), 4, 1, 1, 4, 4, 0, 10, False),
]
# A further entry says what does not agree.
BLOCK_TOO_MANY = "the first request has a block more than its tokens fill"
NAMED_TWICE = "the two requests are the same sequence"
CASES += [
    ((3,), 4, 1, 1, 2, 2, 0, 14, False, BLOCK_TOO_MANY),
    ((2, 2), 4, 1, 1, 2, 2, 0, 15, False, NAMED_TWICE),
]


def hidden(chance):
    """By turns requests of any lengths, and three of as many blocks each in a busy manager.

    Then bad input.
    """
    for number in range(12):
        block_size, busy = chance.randint(2, 5), number % 3 == 2
        if busy:
            num_blocks = [chance.randint(2, 3)] * 3
        else:
            num_blocks = chance.choices(range(4), k=chance.randint(2, 4))
        full = [block_size * count for count in num_blocks]
        lengths = tuple(max(0, slots - chance.randrange(block_size)) for slots in full)
        head_size = chance.choice((2, 4, 6))
        heads = chance.randint(1, 3), chance.randint(1, 3)
        sizes = block_size, *heads, head_size, chance.randint(3, 9)
        yield lengths, *sizes, number % 2, chance.randrange(2**31), busy
    for disagreement in (BLOCK_TOO_MANY, NAMED_TWICE):
        lengths = (chance.randint(1, 9),) * 2
        sizes = chance.randint(2, 5), 1, 1, 2, chance.randint(3, 9), 0
        yield lengths, *sizes, chance.randrange(2**31), False, disagreement


def is_bad(case):
    return len(case) > len(CASES[0])


def given(case):
    """The layer, x, request_num_blocks, seq_ids and a manager, its free blocks shuffled."""
    lengths, block_size, num_kv_heads, group, head_size, dim, index, seed, busy, *wrong = case
    shuffle, heads = random.Random(seed), (group * num_kv_heads, num_kv_heads)
    layer = AttentionLayer(dim, *heads, head_size, index=index, seed=seed)
    num_blocks = 2 * sum(-(-length // block_size) for length in lengths) + 4
    sizes = {"max_num_seqs": 8, "max_blocks_per_seq": num_blocks, "num_layers": 2}
    manager = PagedAttentionManager(num_blocks, block_size, num_kv_heads, head_size, **sizes)
    manager.kv_cache.fill_(OLD)
    make_free(manager, shuffle.sample(range(num_blocks), num_blocks))
    seq_ids = shuffle.sample(range(1, 8), len(lengths))
    if busy:
        # As many blocks as each request has, so that no mistake raises: rows 3, 2 and 0 for
        # the requests 0, 1 and 2.
        ended, other = 8, 9
        manager.add_sequence(ended, 1)
        manager.add_sequence(other, 2 * block_size)
        manager.add_sequence(seq_ids[1], lengths[1])
        manager.free_sequence(ended)
    for i in (2, 0) if busy else range(len(lengths)):
        manager.add_sequence(seq_ids[i], lengths[i])
    request_num_blocks = [manager.blocks_for(length) for length in lengths]
    request_num_blocks[0] += BLOCK_TOO_MANY in wrong
    if NAMED_TWICE in wrong:
        seq_ids[1] = seq_ids[0]
    shape = sum(request_num_blocks), block_size, dim
    generator = torch.Generator().manual_seed(seed)
    if is_small(case):
        x, projections = simple(shape, generator), (layer.wq, layer.wk, layer.wv, layer.wo)
        for projection, factor in zip(projections, (1, 2, 10, 1), strict=True):
            projection.copy_(factor * torch.eye(dim))
    else:
        x = torch.randn(shape, generator=generator)
    start = 0
    for length, mine in zip(lengths, request_num_blocks, strict=True):
        x[start : start + mine].view(-1, dim)[length:] = POISON
        start += mine
    return layer, x, request_num_blocks, seq_ids, manager


def is_small(case):
    """Whether x has simple numbers, and the layer's weights too: q = x, k = 2x, v = 10x."""
    lengths, block_size, num_kv_heads, group, head_size, dim, *_ = case
    num_slots = sum(-(-length // block_size) for length in lengths) * block_size
    is_square = dim == head_size and num_kv_heads == group == 1
    return is_square and 0 < num_slots * dim <= FEW and not is_bad(case)


def observe(answer, case):
    layer, x, request_num_blocks, seq_ids, manager = given(case)
    x_before, lengths_before, calls = x.clone(), lengths_of(manager), []

    def attend(q, k, v, length):
        calls.append(length)
        return by_request.plain_attention(q, k, v, length)

    attend.__qualname__ = "attend"  # messages name it

    if is_bad(case):
        error = error_of(answer, layer, x, request_num_blocks, seq_ids, manager, attend)
        if error and not isinstance(error, ValueError):
            return raised(error)
        return Text("ValueError" if error else "no error")
    y = answer(layer, x, list(request_num_blocks), list(seq_ids), manager, attend)
    result = tensors.values(y)
    if changed := inputs_changed([("x", x, x_before)]):
        return changed
    if (lengths := lengths_of(manager)) != lengths_before:
        now = f"the manager's sequences and their lengths are {lengths}"
        return ManagerChanged(f"{now}, and were {lengths_before}")
    if sum(case[0]) and not calls:
        return Text("`attend` was never called")
    if isinstance(result, tensors.Values):
        result = tensors.Values(result.tensor, "y")
    names = "all layers' k_cache", "all layers' v_cache"
    return result, *tensors.values(tuple(manager.kv_cache.transpose(0, 1)), *names)


def describe(case):
    lengths, block_size, num_kv_heads, group, head_size, dim, index, _, busy = case[:9]
    _, x, request_num_blocks, seq_ids, manager = given(case)
    tables = [f"sequence {seq_id} in {manager.blocks_of(seq_id)}" for seq_id in seq_ids]
    requests = f"{len(lengths)} requests of the lengths {listed(lengths)}"
    if len(lengths) == 1:
        requests = f"a request of {counted(lengths[0], 'token')}"
    shown = f"; x = {in_digits(x)}, and the layer gives q = x, k = 2x, v = 10x and y = o"
    order = (
        f" (they were added in the order {listed(manager.sequences)}, "
        "after one that has ended; sequence 9 is not in the batch)"
    )
    return (
        f"{requests}, {counted(block_size, 'slot')} in a block, "
        f"request_num_blocks {request_num_blocks}, seq_ids {seq_ids}{order if busy else ''}; "
        f"blocks of the pool: {', '.join(tables)}; "
        f"{counted(group * num_kv_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')}, head_size {head_size}, dim {dim}; "
        f"layer.index {index}; x holds {POISON:.0f} after each last token, and the whole pool "
        f"{OLD:.0f}{shown if is_small(case) else ''}{'; '.join(('', *case[9:]))}"
    )


EXERCISE = exercise(
    globals(),
    tensors,
    reference=tensors.in_double(by_request.forward_prefill),
    size=lambda case: (sum(case[0]), len(case[0]), math.prod(case[2:5])),
    chancy=is_bad,  # other mistakes keep their names, with the check and without it
    points=2,
)
