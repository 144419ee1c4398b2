"""Exercise 3.4: the same attention, block by block."""

import math
import random

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lessons_exercises import tensors
from lessons_exercises.lesson_03 import requests
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention import attention
from paged_attention.attention import share_heads
from paged_attention.softmax_state import NO_KEY, SoftmaxState


def scaled(q, k):
    return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])


def hidden_by_position(query, key, length):
    return (key > query[:, None]) | (key >= length)


def key_blocks_up_to_mine(i, num_blocks):
    return range(i + 1)


def tiled(
    q,
    k,
    v,
    length,
    score=scaled,
    hide=hidden_by_position,
    key_blocks=key_blocks_up_to_mine,
    value_block=None,
    tail=0.0,
    into_heads=lambda x: x.transpose(1, 2),
    out_of_heads=lambda o: o.transpose(1, 2),
    clean_values=True,
    into_values=lambda v: v[:, None],
):
    """tiled_attention() with parts that a mistake can replace.

    `tail`: what goes behind the last token, None: what comes. `hide` returns a mask, or scores
    to add to the others.
    """
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    o = torch.zeros_like(q)
    q, k, v = (into_heads(x) for x in (q, k, v))
    position = torch.arange(num_blocks * block_size).view(num_blocks, block_size)
    if clean_values:
        v = v.masked_fill((position >= length)[:, None, :, None], 0.0)
    for i in range(num_blocks):
        state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
        for j in key_blocks(i, num_blocks):
            scores = score(q[i], k[j])
            hidden = hide(position[i], position[j], length)
            scores = (
                scores.masked_fill(hidden, NO_KEY)
                if hidden.dtype == torch.bool
                else scores + hidden
            )
            state.update(
                scores, into_values(v[j if value_block is None else value_block(i, j)])
            )
        o[i] = out_of_heads(state.finish()[0][None])[0]
    if tail is not None:
        o.view(-1, *o.shape[2:])[length:] = tail
    return o


def without_scale(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: q @ k.transpose(1, 2))


def scale_without_root(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: q @ k.transpose(1, 2) / q.shape[-1])


def scale_multiplied(q, k, v, length):
    return tiled(
        q, k, v, length, score=lambda q, k: q @ k.transpose(1, 2) * math.sqrt(q.shape[-1])
    )


def _scaled_by_size(size):
    def wrong(q, k, v, length):
        return tiled(
            q,
            k,
            v,
            length,
            score=lambda q, k: q @ k.transpose(1, 2) / math.sqrt(size(q, length)),
        )

    return wrong


def scale_by_num_heads(q, k, v, length):
    # q of a block: (heads, block_size, head_size)
    return _scaled_by_size(lambda q, length: len(q))(q, k, v, length)


OTHER_SCALES = tuple(
    map(_scaled_by_size, (lambda q, length: q.shape[1], lambda q, length: max(length, 1)))
)


def diagonal_unmasked(q, k, v, length):
    return tiled(
        q, k, v, length, hide=lambda query, key, length: (key >= length).expand(len(query), -1)
    )


def nothing_hidden(query, key, length):
    return torch.zeros(len(query), len(key), dtype=torch.bool)


def diagonal_and_tail_unmasked(q, k, v, length):
    return tiled(q, k, v, length, hide=nothing_hidden, clean_values=False)


def diagonal_and_tail_unmasked_clean_values(q, k, v, length):
    return tiled(q, k, v, length, hide=nothing_hidden)


def diagonal_and_tail_unmasked_clean_keys_and_values(q, k, v, length):
    """The scores of the empty slots are 0, and so are their values."""
    return tiled(q, zero_behind(k, length), v, length, hide=nothing_hidden)


def zero_behind(x, length):
    x = x.clone()
    x.view(-1, *x.shape[2:])[length:] = 0
    return x


def not_causal(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key >= length).expand(len(query), -1),
        key_blocks=lambda i, num_blocks: range(num_blocks),
    )


def nothing_masked(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=nothing_hidden,
        key_blocks=lambda i, num_blocks: range(num_blocks),
        tail=None,
        clean_values=False,
    )


def nothing_masked_clean_values(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=nothing_hidden,
        key_blocks=lambda i, num_blocks: range(num_blocks),
    )


def nothing_masked_end_zeroed(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=nothing_hidden,
        key_blocks=lambda i, num_blocks: range(num_blocks),
        clean_values=False,
    )


def hides_by_offset(q, k, v, length):
    block_size = q.shape[1]
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (
            hidden_by_position(query, key, length)
            | (key % block_size > query[:, None] % block_size)
        ),
    )


def query_offset_for_position(q, k, v, length):
    block_size = q.shape[1]
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: hidden_by_position(query % block_size, key, length),
    )


def key_offset_for_position(q, k, v, length):
    """The end is masked in the way of the other mask, or by what is right."""
    block_size = q.shape[1]
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key % block_size > query[:, None]) | (key >= length),
    )


def key_offset_for_both_masks(q, k, v, length, clean_values=True):
    block_size = q.shape[1]
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: hidden_by_position(query, key % block_size, length),
        clean_values=clean_values,
    )


def key_offset_for_everything(q, k, v, length):
    """The values are cut off by their offsets too.

    So they are not cut off at all where the request has more than one block.
    """
    behind = torch.arange(q.shape[1]) >= length
    return key_offset_for_both_masks(
        q, k, v.masked_fill(behind[:, None, None], 0.0), length, clean_values=False
    )


def hides_itself(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key >= query[:, None]) | (key >= length),
    )


def sees_one_ahead(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key > query[:, None] + 1) | (key >= length),
        key_blocks=lambda i, num_blocks: range(num_blocks),
    )


def mask_transposed(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key < query[:, None]) | (key >= length),
    )


def diagonal_mask_transposed(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: (key[:, None] > query) | (key >= length),
    )


def one_slot_too_many(q, k, v, length):
    """`<=` for `<` wherever positions are compared with the length."""
    return tiled(q, k, v, min(length + 1, q.shape[0] * q.shape[1]))


def one_output_too_many(q, k, v, length):
    o = tiled(q, k, v, length, tail=None)
    o.view(-1, *q.shape[2:])[length + 1 :] = 0
    return o


def tail_not_masked(q, k, v, length):
    return tiled(
        q, k, v, length, hide=lambda query, key, length: key > query[:, None], tail=None
    )


def tail_not_masked_values_as_they_are(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: key > query[:, None],
        tail=None,
        clean_values=False,
    )


def tail_not_zeroed(q, k, v, length):
    return tiled(q, k, v, length, tail=None)


def tail_not_zeroed_values_as_they_are(q, k, v, length):
    return tiled(q, k, v, length, tail=None, clean_values=False)


def full_last_block_cut(q, k, v, length):
    """The tokens of the last block are counted by the remainder: 0 in a full block."""
    num_blocks, block_size = q.shape[:2]
    return tiled(q, k, v, max(0, (num_blocks - 1) * block_size + length % block_size))


def nan_behind_the_end(q, k, v, length):
    """The scores behind the end are hidden, and the values are as they came."""
    return tiled(q, k, v, length, clean_values=False)


def nan_behind_the_end_everywhere(q, k, v, length):
    """The later blocks are not left out: each key is hidden by its position.

    So each query meets the NaN.
    """
    return tiled(
        q, k, v, length, clean_values=False, key_blocks=lambda i, num_blocks: range(num_blocks)
    )


def nan_behind_the_end_multiplied(q, k, v, length):
    """The output behind the last token is multiplied by 0."""
    token = torch.arange(q.shape[0] * q.shape[1]).view(q.shape[:2])
    return (
        tiled(q, k, v, length, clean_values=False, tail=None)
        * (token < length)[..., None, None]
    )


def nan_scores_behind_the_end(q, k, v, length):
    """The values are 0 there, and -inf was added to scores that are NaN."""

    def hide(query, key, length):
        return torch.zeros(len(query), len(key)).masked_fill(
            hidden_by_position(query, key, length), NO_KEY
        )

    return tiled(q, k, v, length, hide=hide)


def nan_set_to_zero(q, k, v, length):
    return nan_behind_the_end(q, k, v, length).nan_to_num(0.0)


def zero_times_infinity(q, k, v, length):
    return tiled(
        q,
        k,
        v,
        length,
        hide=lambda query, key, length: hidden_by_position(query, key, length) * NO_KEY,
    )


def zero_times_infinity_on_the_diagonal(q, k, v, length):
    """On the diagonal only, and the end masked as it should be."""

    def hide(query, key, length):
        ones = torch.ones(len(query), len(key)).triu(diagonal=1)
        mask = ones * NO_KEY if query[0] == key[0] else torch.zeros_like(ones)
        return mask.masked_fill(key >= length, NO_KEY)

    return tiled(q, k, v, length, hide=hide)


def skips_diagonal(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: range(i))


def first_key_block_skipped(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: range(1, i + 1))


def last_key_block_skipped(q, k, v, length):
    """The keys of full blocks only. The queries of the last block see what is before it."""
    return tiled(
        q,
        k,
        v,
        length,
        key_blocks=lambda i, num_blocks: range(min(i + 1, length // q.shape[1])),
    )


def values_by_query_slot(q, k, v, length):
    """Values of (num_q_heads, block_size, head_size): heads take the place of the queries.

    Mostly it raises.
    """
    return tiled(q, k, v, length, into_values=lambda v: v)


def drops_accumulator(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i, num_blocks: [i])


def values_of_the_query_block(q, k, v, length):
    return tiled(q, k, v, length, value_block=lambda i, j: i)


def scores_transposed(q, k, v, length):
    return tiled(q, k, v, length, score=lambda q, k: scaled(k, q))


def keys_and_values_swapped(q, k, v, length):
    return tiled(q, v, k, length)


def values_scrambled(q, k, v, length):
    """Queries and keys are right, and the values are reshaped in the wrong order.

    They are taken as (block_size, heads, head_size).
    """
    return tiled(
        q, k, v, length, into_values=lambda v: v.transpose(0, 1).reshape(v.shape)[:, None]
    )


def heads_scrambled(q, k, v, length):
    return tiled(q, k, v, length, into_heads=swapped_by_reshape)


def heads_scrambled_on_the_way_back(q, k, v, length):
    return tiled(q, k, v, length, out_of_heads=swapped_by_reshape)


def heads_scrambled_both_ways(q, k, v, length):
    return tiled(
        q, k, v, length, into_heads=swapped_by_reshape, out_of_heads=swapped_by_reshape
    )


def swapped_by_reshape(x):
    return x.reshape(x.shape[0], x.shape[2], x.shape[1], x.shape[3])


def last_block_skipped(q, k, v, length):
    full = length // q.shape[1]
    return torch.cat(
        [tiled(q[:full], k[:full], v[:full], full * q.shape[1]), torch.zeros_like(q[full:])]
    )


def state_not_reset(q, k, v, length):
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    o = torch.zeros_like(q)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    position = torch.arange(num_blocks * block_size).view(num_blocks, block_size)
    state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
    for i in range(num_blocks):
        for j in range(i + 1):
            scores = scaled(q[i], k[j]).masked_fill(
                hidden_by_position(position[i], position[j], length), NO_KEY
            )
            state.update(scores, v[j][:, None])
        o[i] = state.finish()[0].transpose(0, 1)
    o.view(-1, num_q_heads, head_size)[length:] = 0
    return o


def parts_combined(q, k, v, length, combine):
    """A softmax for each pair of blocks.

    `combine` makes one of the outputs of a query block's pairs.
    """
    o = torch.zeros_like(q)
    num_blocks, block_size = q.shape[:2]
    for i in range(num_blocks):
        parts = [
            tiled(
                q[: i + 1],
                k[: i + 1],
                v[: i + 1],
                min(length, (i + 1) * block_size),
                key_blocks=lambda i, num_blocks, j=j: [j],
            )[i]
            for j in range(i + 1)
        ]
        o[i] = combine(torch.stack(parts))
    return o


def parts_added(q, k, v, length):
    return parts_combined(q, k, v, length, lambda parts: parts.sum(0))


def parts_averaged(q, k, v, length):
    return parts_combined(q, k, v, length, lambda parts: parts.mean(0))


writes_into_q, other_changes = requests.inputs_changing(tiled)

# One request with so few numbers for a token that the scores of more than one pair of blocks
# stand out. It has one head: to take all heads at once is as good as to take one after the
# other.
LONG = (93, 16, 1, 1, 1, 15, requests.POISON)


def is_long(case):
    return case[0] > 80


def hidden(seed):
    yield from requests.hidden(seed)
    chance = random.Random(seed)
    yield chance.choice((94, 95, 96)), *LONG[1:5], chance.randrange(2**31), requests.POISON


class TooManyScores(Text):
    """The result of an answer that is right, with too many scores at once.

    They are the scores of more than a pair of blocks. It equals any other such result.
    """

    def __eq__(self, other):
        return isinstance(other, TooManyScores)

    __hash__ = Text.__hash__


class LargestScores(TorchFunctionMode):
    """While it is active, it notes the largest tensor that is made from `given`.

    The size is in numbers, and only floating-point tensors count.

    Masks are not made from them, and may have any size. A fused attention makes its scores
    inside: they are counted. (A TorchDispatchMode would see more, and it needs 2 seconds to be
    imported.)
    """

    def __init__(self, given):
        super().__init__()
        # tensors are kept, so that no other gets their place in memory
        self.size, self.kept = 0, list(given)
        self.places = {place(x) for x in self.kept}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = list(filter(torch.is_tensor, tree_leaves((args, kwargs))))
        if any(place(x) in self.places for x in given):
            made = args[0] if function is torch.Tensor.__setitem__ else result
            for x in filter(torch.is_tensor, tree_leaves(made)):
                if x.is_floating_point() and x.numel() > 0:
                    self.kept.append(x)
                    self.places.add(place(x))
                    self.size = max(self.size, x.untyped_storage().nbytes() // x.itemsize)
            if function is torch.nn.functional.scaled_dot_product_attention:
                q, k = given[:2]
                self.size = max(self.size, q.shape[:-1].numel() * k.shape[-2])
        return result


def place(x):
    return x.untyped_storage().data_ptr()


def observe(answer, case):
    answer = getattr(answer, "attend", answer)
    if not is_long(case):
        return requests.observe(answer, case)
    sizes = []

    def measured(*arguments):
        with LargestScores(arguments[:3]) as largest:
            result = answer(*arguments)
        sizes.append(largest.size)
        return result

    result, block_size = requests.observe(measured, case), case[1]
    if sizes[0] < 2 * block_size**2:
        return result
    return TooManyScores(
        f"a tensor of {sizes[0]} scores of one head on the way, "
        f"where a pair of blocks has {block_size**2}"
    )


def tells_little(case):
    return is_long(case) or requests.tells_little(case)


def describe(case):
    return requests.describe(case) + (
        ", and how large the tensors on the way are" if is_long(case) else ""
    )


class OnlyHere:
    """A mistake here that would be a right answer to exercise 3.1.

    It must not pass there, so it is no function.
    """

    def __init__(self, attend):
        self.attend = attend

    def __call__(self, *arguments):
        raise TypeError("this is a mistake of exercise 3.4")


EXERCISE = Exercise(
    id="3.4",
    title="attention block by block",
    answer_name="tiled_attention",
    reference=requests.in_double(attention.tiled_attention),
    cases=lambda: [*requests.CASES, LONG],
    size=requests.size,
    hidden=hidden,
    chancy=tells_little,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "missing-scale",
            "The scores go into the state as they are. "
            "Both ways to compute attention need the same scale.",
            without_scale,
        ),
        Mistake(
            "scale-without-root",
            "The scores are divided by head_size itself, not by its root.",
            scale_without_root,
        ),
        Mistake(
            "scale-upside-down",
            "The scores are multiplied where they should be divided: "
            "the softmax is sharper than it was without a scale.",
            scale_multiplied,
        ),
        Mistake(
            "scaled-by-another-size",
            "The scores are divided by the root of a number that is not head_size. "
            "Over which dimension of q does q · k add up its products?",
            scale_by_num_heads,
            also=OTHER_SCALES,
        ),
        Mistake(
            "diagonal-page-unmasked",
            "On the diagonal a block meets itself, and there a token must not see those "
            "after it in the same block. Leaving out the later blocks is not enough.",
            diagonal_unmasked,
        ),
        Mistake(
            "diagonal-and-tail-unmasked",
            "The later blocks are left out, and within a block nothing is hidden: "
            "a token sees those after it, and what stands behind the last one.",
            diagonal_and_tail_unmasked,
            also=(
                diagonal_and_tail_unmasked_clean_values,
                diagonal_and_tail_unmasked_clean_keys_and_values,
            ),
        ),
        Mistake(
            "not-causal",
            "Each token sees those that come after it. A query block needs the key blocks up "
            "to itself, and within them the keys up to the query.",
            not_causal,
        ),
        Mistake(
            "nothing-masked",
            "Every query sees every slot: the later tokens, "
            "and what stands behind the last one.",
            nothing_masked,
            also=(nothing_masked_clean_values, nothing_masked_end_zeroed),
        ),
        Mistake(
            "mask-within-block-only",
            "In the earlier blocks, too, your mask hides the keys whose *offset* is larger "
            "than the query's. These keys are in the past, all of them. "
            "Compare positions in the request.",
            hides_by_offset,
        ),
        Mistake(
            "query-offset-for-position",
            "The positions of the keys are compared with the *offsets* of the queries. "
            "In the first block these are the same; "
            "from the second on, the keys of your own block all seem to lie in the future.",
            query_offset_for_position,
        ),
        Mistake(
            "key-offset-for-position",
            "The positions of the queries are compared with the *offsets* of the keys. "
            "In the first block these are the same; from the second on, "
            "no key seems to lie in the future.",
            key_offset_for_position,
            also=(key_offset_for_both_masks, key_offset_for_everything),
        ),
        Mistake(
            "mask-off-by-one",
            "A token does not see itself. "
            "Which comparison hides the later keys and not its own?",
            hides_itself,
        ),
        Mistake(
            "sees-one-ahead",
            "Each token sees the one right after it, "
            "even where that one lies in the next block.",
            sees_one_ahead,
        ),
        Mistake(
            "mask-transposed",
            "Within the diagonal block each token sees itself and what follows, "
            "and nothing of the earlier blocks is left. "
            "In the scores a row is a query and a column is a key.",
            mask_transposed,
        ),
        Mistake(
            "diagonal-mask-transposed",
            "The earlier blocks are visible, as they should be. "
            "Within its own block each token sees itself and what follows. "
            "In the scores a row is a query and a column is a key.",
            diagonal_mask_transposed,
        ),
        Mistake(
            "tail-not-masked",
            "Your result is not 0 behind the last token: the slots that the last block "
            "has left are treated as tokens, as queries and as keys.",
            tail_not_masked_values_as_they_are,
            also=(tail_not_masked,),
        ),
        Mistake(
            "tail-output-not-zero",
            "No query sees what stands behind the last token, and yet your result "
            "is not 0 there: these slots are queries too, which belong to nobody.",
            tail_not_zeroed,
            also=(tail_not_zeroed_values_as_they_are,),
        ),
        Mistake(
            "tail-of-q-left",
            "Behind the last token your result holds what stands there in q: "
            "it was made as a copy of q. It is 0 there.",
            requests.left_in_q(tiled),
        ),
        Mistake(
            "full-last-block-emptied",
            "Where the last block is exactly full, it is taken for empty: "
            "`length % block_size` is 0 there.",
            full_last_block_cut,
        ),
        Mistake(
            "tail-off-by-one",
            "One slot too many is taken for a token. "
            "The positions of the tokens are 0 to length - 1.",
            one_slot_too_many,
            also=(one_output_too_many,),
        ),
        Mistake(
            "nan-hidden",
            "The NaN is set to 0 after it has spread: the tokens' own output is lost "
            "with it. What stands behind the last token must not come into the sum.",
            nan_set_to_zero,
        ),
        Mistake(
            "nan-behind-the-end",
            "With finite numbers in the empty slots your result is right, "
            "with NaN there it is not. A hidden key gets the weight 0, "
            "and 0 times NaN is NaN; a score that is NaN stays NaN whatever you add. "
            "The values behind the end must be cut off or set to 0 too, "
            "not only their scores.",
            nan_behind_the_end,
            also=(
                nan_behind_the_end_everywhere,
                nan_behind_the_end_multiplied,
                nan_scores_behind_the_end,
            ),
        ),
        Mistake(
            "zero-times-infinity",
            "The visible scores are NaN: "
            "a mask of ones and zeros was multiplied by -inf, and 0 times infinity is NaN. "
            "Put -inf in where a key is hidden, and leave the other scores as they are.",
            zero_times_infinity,
            also=(zero_times_infinity_on_the_diagonal,),
        ),
        Mistake(
            "state-not-reset",
            "The first block is right, "
            "and from the second on the output holds something of the blocks before. "
            "Each block of queries has sums of its own, and they start empty.",
            state_not_reset,
        ),
        Mistake(
            "skips-diagonal",
            "No block meets itself, so the first one sees nothing. Does range(i) include i?",
            skips_diagonal,
        ),
        Mistake(
            "first-key-block-skipped",
            "The first block of keys is left out.",
            first_key_block_skipped,
        ),
        Mistake(
            "flash-drops-accumulator",
            "Each block's output comes from one block of keys only, its own. "
            "Is a new state made for each block of keys? "
            "Or does the loop over them never come to the earlier blocks?",
            drops_accumulator,
        ),
        Mistake(
            "parts-added",
            "Each pair of blocks has a softmax of its own, "
            "and the finished outputs are added up. All keys of a query share one softmax: "
            "use one state for them, and finish it once.",
            parts_added,
        ),
        Mistake(
            "parts-averaged",
            "Each pair of blocks has a softmax of its own, "
            "and the finished outputs are averaged. All keys of a query share one softmax: "
            "use one state for them, and finish it once.",
            parts_averaged,
        ),
        Mistake(
            "values-without-a-dimension",
            "Each query takes the values of another head, or update() raises. "
            "The scores have a dimension for the heads and one for the queries. "
            "The values need a size of 1 in the place of the queries.",
            values_by_query_slot,
        ),
        Mistake(
            "values-of-query-block",
            "The scores of one block weigh the values of another. "
            "Keys and values come from the same block.",
            values_of_the_query_block,
        ),
        Mistake(
            "scores-transposed",
            "Rows and columns of your scores are swapped: in the scores a row is a query, "
            "and the softmax runs along it.",
            scores_transposed,
        ),
        Mistake(
            "kv-swapped",
            "The scores come from the values, and the output is a sum of keys.",
            keys_and_values_swapped,
        ),
        Mistake(
            "heads-scrambled",
            "Tokens and heads got mixed, on the way in or on the way back: `reshape` cuts "
            "the numbers of a block at other places. Which call swaps two dimensions?",
            heads_scrambled,
            also=(
                heads_scrambled_on_the_way_back,
                heads_scrambled_both_ways,
                values_scrambled,
            ),
        ),
        Mistake(
            "last-block-skipped",
            "Your loop takes the full blocks only, and the last one is partly filled: "
            "its tokens are missing.",
            last_block_skipped,
            also=(last_key_block_skipped,),
        ),
        Mistake(
            "too-many-scores",
            "The numbers are right, and too many scores were there at once: "
            "a score for every pair of tokens, or for a block of queries and all its keys. "
            "The point is to do without. Take one block of queries and one block of keys "
            "at a time, and let the state remember what the earlier ones gave.",
            OnlyHere(attention.plain_attention),
        ),
        Mistake(
            "inputs-changed",
            "Your function changes q, k or v, which belong to its caller. Compute in tensors "
            "of your own; operators like `/=` and an assignment to a slice work in place.",
            writes_into_q,
            also=other_changes,
        ),
        Mistake(
            "no-tokens",
            "A request may have no token yet, and so no block. Your function raises then; "
            "it should return a tensor of q's shape, which is empty.",
            requests.without_tokens(tiled),
        ),
    ),
    hints=(
        (
            "Two loops: over the blocks of queries, "
            "and inside over the blocks of keys that come before or are the same. "
            "One state for each block of queries, one update for each block of keys."
        ),
        (
            "The state's rows are (num_q_heads, block_size), "
            "so the scores of two blocks are (num_q_heads, block_size, block_size). "
            "For the values the size in the middle may be 1: `v_block[:, None]`."
        ),
        (
            "Slot s of block i has position i * block_size + s. "
            "One comparison of positions hides the future in every pair of blocks, "
            "and another one what stands behind the last token."
        ),
        (
            "A hidden key has the weight 0, and 0 times NaN is NaN. "
            "What stands behind the last token may be NaN: cut the values there off, "
            "or set them to 0 in a tensor of your own."
        ),
    ),
)
