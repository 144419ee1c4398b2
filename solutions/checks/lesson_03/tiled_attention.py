"""Exercise 3.4: the same attention, block by block."""

import math

import torch
from torch.overrides import TorchFunctionMode

from lessons_lib import attention
from lessons_lib.attention import share_heads
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.softmax_state import NO_KEY, SoftmaxState
from solutions.checks import tensors
from solutions.checks.lesson_03 import requests


def scaled(q, k):
    return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])


def hidden_by_position(query, key, length):
    return (key > query[:, None]) | (key >= length)


def key_blocks_up_to_mine(i, num_blocks):
    return range(i + 1)


def tiled(q, k, v, length, score=scaled, hide=hidden_by_position, key_blocks=key_blocks_up_to_mine, value_block=None,
          tail=0.0, into_heads=lambda x: x.transpose(1, 2)):
    """tiled_attention() with parts that a mistake can replace. `tail`: what goes behind the last token, None: what comes."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    o = torch.zeros_like(q)
    q, k, v = (into_heads(x) for x in (q, k, v))
    position = torch.arange(num_blocks * block_size).view(num_blocks, block_size)
    for i in range(num_blocks):
        state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
        for j in key_blocks(i, num_blocks):
            scores = score(q[i], k[j]).masked_fill(hide(position[i], position[j], length), NO_KEY)
            state.update(scores, v[j if value_block is None else value_block(i, j)][:, None])
        o[i] = state.finish()[0].transpose(0, 1)
    if tail is not None:
        o.view(-1, *o.shape[2:])[length:] = tail
    return o


def without_scale(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: q @ k.transpose(1, 2))


def scale_without_root(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: q @ k.transpose(1, 2) / q.shape[-1])


def diagonal_unmasked(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: (key >= length).expand(len(query), -1))


def diagonal_and_tail_unmasked(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: torch.zeros(len(query), len(key), dtype=torch.bool))


def not_causal(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: (key >= length).expand(len(query), -1),
                 key_blocks=lambda i, num_blocks: range(num_blocks))


def nothing_masked(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: torch.zeros(len(query), len(key), dtype=torch.bool),
                 key_blocks=lambda i, num_blocks: range(num_blocks), tail=None)


def hides_by_offset(q, k, v, length):
    block_size = q.shape[1]
    return tiled(q, k, v, length, hide=lambda query, key, length:
                 hidden_by_position(query, key, length) | (key % block_size > query[:, None] % block_size))


def hides_itself(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: (key >= query[:, None]) | (key >= length))


def sees_one_ahead(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: (key > query[:, None] + 1) | (key >= length),
                 key_blocks=lambda i, num_blocks: range(num_blocks))


def mask_transposed(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: (key < query[:, None]) | (key >= length))


def tail_not_masked(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key, length: key > query[:, None], tail=None)


def tail_not_zeroed(q, k, v, length):
    return tiled(q, k, v, length, tail=None)


def skips_diagonal(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: range(i))


def first_key_block_skipped(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: range(1, i + 1))


def drops_accumulator(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: [i])


def values_of_the_query_block(q, k, v, length):
    return tiled(q, k, v, length, value_block=lambda i, j: i)


def scores_transposed(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: scaled(k, q))


def keys_and_values_swapped(q, k, v, length):
    return tiled(q, v, k, length)


def heads_scrambled(q, k, v, length):
    return tiled(q, k, v, length, into_heads=lambda x: x.reshape(x.shape[0], x.shape[2], x.shape[1], x.shape[3]))


def last_block_skipped(q, k, v, length):
    full = length // q.shape[1]
    return torch.cat([tiled(q[:full], k[:full], v[:full], full * q.shape[1]), torch.zeros_like(q[full:])])


def state_not_reset(q, k, v, length):
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    o = torch.zeros_like(q)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    position = torch.arange(num_blocks * block_size).view(num_blocks, block_size)
    state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
    for i in range(num_blocks):
        for j in range(i + 1):
            scores = scaled(q[i], k[j]).masked_fill(hidden_by_position(position[i], position[j], length), NO_KEY)
            state.update(scores, v[j][:, None])
        o[i] = state.finish()[0].transpose(0, 1)
    o.view(-1, num_q_heads, head_size)[length:] = 0
    return o


def parts_combined(q, k, v, length, combine):
    """A softmax for each pair of blocks; `combine` makes one of the outputs of a query block's pairs."""
    o, (num_blocks, block_size) = torch.zeros_like(q), q.shape[:2]
    for i in range(num_blocks):
        parts = [tiled(q[: i + 1], k[: i + 1], v[: i + 1], min(length, (i + 1) * block_size),
                       key_blocks=lambda i, num_blocks, j=j: [j])[i] for j in range(i + 1)]
        o[i] = combine(torch.stack(parts))
    return o


def parts_added(q, k, v, length):
    return parts_combined(q, k, v, length, lambda parts: parts.sum(0))


def parts_averaged(q, k, v, length):
    return parts_combined(q, k, v, length, lambda parts: parts.mean(0))


ALL_AT_ONCE = Text("a tensor with a number for every pair of tokens; the point is to do without, a few blocks at a time")

# One request that is long for its other sizes, so that all its scores at once stand out.
LONG = (40, 4, 1, 1, 4, 15)


class LargestTensor(TorchFunctionMode):
    """While it is active, it notes how many floating-point numbers the largest result of an operation holds."""

    size = 0

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, torch.Tensor) and part.is_floating_point():
                self.size = max(self.size, part.numel())
        return result


def observe(answer, case):
    if case != LONG:
        return requests.observe(answer, case)
    largest, length = LargestTensor(), case[0]
    with largest:
        result = requests.observe(answer, case)
    # Without a mistake of its own in the bank: it would be the right answer to exercise 3.1.
    return ALL_AT_ONCE if largest.size >= length * length else result


def describe(case):
    return requests.describe(case) + (", and how large the tensors on the way are" if case == LONG else "")


EXERCISE = Exercise(
    id="3.4",
    title="attention block by block",
    answer_name="tiled_attention",
    reference=requests.in_double(attention.tiled_attention),
    cases=lambda: [*requests.CASES, LONG],
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake("missing-scale",
                "The scores go into the state as they are. Both ways to compute attention need the same scale.",
                without_scale),
        Mistake("scale-without-root",
                "The scores are divided by head_size itself, not by its root.",
                scale_without_root),
        Mistake("diagonal-page-unmasked",
                "On the diagonal a block meets itself, and there a token must not see those after it in the same block. "
                "Leaving out the later blocks is not enough.",
                diagonal_unmasked),
        Mistake("diagonal-and-tail-unmasked",
                "The later blocks are left out, and within a block nothing is hidden: a token sees those after it, and what "
                "stands behind the last one.",
                diagonal_and_tail_unmasked),
        Mistake("not-causal",
                "Each token sees those that come after it. A query block needs the key blocks up to itself, and within "
                "them the keys up to the query.",
                not_causal),
        Mistake("nothing-masked",
                "Every query sees every slot: the later tokens, and what stands behind the last one.",
                nothing_masked),
        Mistake("mask-within-block-only",
                "In the earlier blocks, too, your mask hides the keys whose *offset* is larger than the query's. These "
                "keys are in the past, all of them. Compare positions in the request.",
                hides_by_offset),
        Mistake("mask-off-by-one",
                "A token does not see itself. Which comparison hides the later keys and not its own?",
                hides_itself),
        Mistake("sees-one-ahead",
                "Each token sees the one right after it, even where that one lies in the next block.",
                sees_one_ahead),
        Mistake("mask-transposed",
                "Within the diagonal block each token sees itself and what follows, and nothing of the earlier blocks "
                "is left. In the scores a row is a query and a column is a key.",
                mask_transposed),
        Mistake("tail-not-masked",
                "Your result is not 0 behind the last token: the slots that the last block has left are treated as "
                "tokens, as queries and as keys.",
                tail_not_masked),
        Mistake("tail-output-not-zero",
                "No query sees what stands behind the last token, and yet your result is not 0 there: these slots are "
                "queries too, which belong to nobody.",
                tail_not_zeroed),
        Mistake("state-not-reset",
                "The first block is right, and from the second on the output holds something of the blocks before. Each "
                "block of queries has sums of its own, and they start empty.",
                state_not_reset),
        Mistake("skips-diagonal",
                "No block meets itself, so the first one sees nothing. Does range(i) include i?",
                skips_diagonal),
        Mistake("first-key-block-skipped",
                "The first block of keys is left out.",
                first_key_block_skipped),
        Mistake("flash-drops-accumulator",
                "Each block's output comes from one block of keys only, the last one that it met. Either a new state is "
                "made for each block of keys, or the loop over them has one turn.",
                drops_accumulator),
        Mistake("parts-added",
                "Each pair of blocks has a softmax of its own, and the finished outputs are added up. All keys of a query "
                "share one softmax: use one state for them, and finish it once.",
                parts_added),
        Mistake("parts-averaged",
                "Each pair of blocks has a softmax of its own, and the finished outputs are averaged. All keys of a query "
                "share one softmax: use one state for them, and finish it once.",
                parts_averaged),
        Mistake("values-of-query-block",
                "The scores of one block weigh the values of another. Keys and values come from the same block.",
                values_of_the_query_block),
        Mistake("scores-transposed",
                "Rows and columns of your scores are swapped: in the scores a row is a query, and the softmax runs "
                "along it.",
                scores_transposed),
        Mistake("kv-swapped",
                "The scores come from the values, and the output is a sum of keys.",
                keys_and_values_swapped),
        Mistake("heads-scrambled",
                "Tokens and heads got mixed: `reshape` cuts the numbers of a block at other places. Which call swaps two "
                "dimensions?",
                heads_scrambled),
        Mistake("last-block-skipped",
                "Your loop takes the full blocks only, and the last one is partly filled: its tokens are missing.",
                last_block_skipped),
    ),
    hints=(
        "Two loops: over the blocks of queries, and inside over the blocks of keys that come before or are the same. One "
        "state for each block of queries, one update for each block of keys.",
        "The state's rows are (num_q_heads, block_size), so the scores of two blocks are (num_q_heads, block_size, "
        "block_size). For the values the size in the middle may be 1: `v_block[:, None]`.",
        "Slot s of block i has position i * block_size + s. One comparison of positions hides the future in every pair of "
        "blocks, and another one what stands behind the last token.",
    ),
)
