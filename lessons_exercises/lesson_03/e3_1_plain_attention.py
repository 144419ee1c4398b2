"""Exercise 3.1: attention over one request's blocks, all scores at once."""

import math

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_03 import requests
from lessons_lib.checks import Exercise, Mistake
from paged_attention import attention
from paged_attention.attention import share_heads

NO_KEY = float("-inf")


def rows(x, length):
    return x.flatten(0, 1)[:length].transpose(0, 1)  # (heads, length, head_size)


def future(scores):
    return torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)


def scaled(q, scores):
    return scores / math.sqrt(q.shape[-1])


def causal_softmax(scores):
    return torch.softmax(scores.masked_fill(future(scores), NO_KEY), dim=-1)


def attend(q, k, v, length, scale=scaled, weigh=causal_softmax):
    """plain_attention() with another scale or other weights.

    `scale(q, scores)` and `weigh(scores)` return scores' shape.
    """
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    scores = scale(q, rows(q, length) @ rows(k, length).transpose(1, 2))
    o = torch.zeros_like(q)
    o.view(-1, *q.shape[2:])[:length] = (weigh(scores) @ rows(v, length)).transpose(0, 1)
    return o


def everything(q):
    return q.shape[0] * q.shape[1]


def without_scale(q, k, v, length):
    return attend(q, k, v, length, scale=lambda q, scores: scores)


def scale_without_root(q, k, v, length):
    return attend(q, k, v, length, scale=lambda q, scores: scores / q.shape[-1])


def scale_multiplied(q, k, v, length):
    return attend(q, k, v, length, scale=lambda q, scores: scores * math.sqrt(q.shape[-1]))


def scale_by_all_heads(q, k, v, length):
    return attend(
        q, k, v, length, scale=lambda q, scores: scores / math.sqrt(q.shape[-2] * q.shape[-1])
    )


def _scaled_by_size(size):
    def wrong(q, k, v, length):
        return attend(
            q, k, v, length, scale=lambda q, scores: scores / math.sqrt(size(q, length))
        )

    return wrong


def scale_by_num_heads(q, k, v, length):
    return _scaled_by_size(lambda q, length: q.shape[-2])(q, k, v, length)


OTHER_SCALES = tuple(
    map(_scaled_by_size, (lambda q, length: q.shape[1], lambda q, length: max(length, 1)))
)


def output_scaled(q, k, v, length):
    """The scores are as they are; the weights, or what comes of them, are divided."""
    return without_scale(q, k, v, length) / math.sqrt(q.shape[-1])


def not_causal(q, k, v, length):
    return attend(q, k, v, length, weigh=lambda scores: torch.softmax(scores, dim=-1))


def nothing_masked(q, k, v, length):
    return not_causal(q, k, v, everything(q))


def tail_attended(q, k, v, length):
    o = nothing_masked(q, k, v, length)
    o.view(-1, *q.shape[2:])[length:] = 0
    return o


def tail_not_masked(q, k, v, length):
    return attend(q, k, v, everything(q))


def hiding(q, k, v, length, hide):
    """plain_attention() with another mask: `hide(ones)` is not 0 where a key is hidden."""

    def weigh(scores):
        return torch.softmax(
            scores.masked_fill(hide(torch.ones_like(scores)) != 0, NO_KEY), dim=-1
        )

    return attend(q, k, v, length, weigh=weigh)


def hides_itself(q, k, v, length):
    return hiding(q, k, v, length, lambda ones: ones.triu(diagonal=0))


def hides_itself_and_sums_nothing(q, k, v, length):
    """As a loop over the queries gives it: the first one's sum has no term."""
    o = hides_itself(q, k, v, length)
    o.view(-1, *q.shape[2:])[: min(length, 1)] = 0
    return o


def mask_of_blocks(q, k, v, length):
    block = torch.arange(length) // q.shape[1]
    return hiding(q, k, v, length, lambda ones: ones * (block > block[:, None]))


def sees_one_ahead(q, k, v, length):
    return hiding(q, k, v, length, lambda ones: ones.triu(diagonal=2))


def mask_inverted(q, k, v, length):
    return hiding(q, k, v, length, lambda ones: ones.tril())


def mask_transposed(q, k, v, length):
    return hiding(q, k, v, length, lambda ones: ones.tril(diagonal=-1))


def mask_by_zero(q, k, v, length):
    return attend(
        q,
        k,
        v,
        length,
        weigh=lambda scores: torch.softmax(scores.masked_fill(future(scores), 0.0), dim=-1),
    )


def mask_after_softmax(q, k, v, length):
    return attend(q, k, v, length, weigh=lambda scores: torch.softmax(scores, dim=-1).tril())


def scores_transposed(q, k, v, length):
    def weigh(scores):
        return causal_softmax(scores.transpose(1, 2))

    return attend(q, k, v, length, weigh=weigh)


def _heads_joined(root):
    def wrong(q, k, v, length):
        """One score for a pair of tokens, the sum over all heads.

        The heads share one softmax then.
        """

        def weigh(scores):
            return causal_softmax(scores.sum(0, keepdim=True)).expand_as(scores)

        return attend(q, k, v, length, scale=lambda q, scores: scores / root(q), weigh=weigh)

    return wrong


def heads_joined(q, k, v, length):
    return _heads_joined(lambda q: math.sqrt(q.shape[-1]))(q, k, v, length)


def heads_joined_and_scaled_by_all(q, k, v, length):
    return _heads_joined(lambda q: math.sqrt(q.shape[-2] * q.shape[-1]))(q, k, v, length)


def softmax_over_queries(q, k, v, length):
    return attend(
        q,
        k,
        v,
        length,
        weigh=lambda scores: torch.softmax(scores.masked_fill(future(scores), NO_KEY), dim=-2),
    )


def softmax_over_heads(q, k, v, length):
    return attend(
        q,
        k,
        v,
        length,
        weigh=lambda scores: torch.softmax(scores.masked_fill(future(scores), NO_KEY), dim=0),
    )


def softmax_forgotten(q, k, v, length):
    return attend(q, k, v, length, weigh=lambda scores: scores.tril())


def heads_scrambled(q, k, v, length):
    o = torch.zeros_like(q)
    by_head = rows(heads_scrambled_on_the_way_in(q, k, v, length), length)
    o.view(-1, *q.shape[2:])[:length] = by_head.reshape(length, *q.shape[2:])
    return o


def heads_scrambled_on_the_way_in(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    o, heads = torch.zeros_like(q), (q.shape[2], length, q.shape[3])
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].reshape(heads) for x in (q, k, v))
    scores = scaled(q, q_rows @ k_rows.transpose(1, 2))
    o.view(-1, *q.shape[2:])[:length] = (causal_softmax(scores) @ v_rows).transpose(0, 1)
    return o


def heads_scrambled_on_the_way_back(q, k, v, length):
    o = torch.zeros_like(q)
    by_head = rows(attend(q, k, v, length), length)
    o.view(-1, *q.shape[2:])[:length] = by_head.reshape(length, *q.shape[2:])
    return o


def heads_scrambled_on_the_way_back_in_blocks(q, k, v, length):
    """Filled up to whole blocks while the heads are still first, and then reshaped."""
    return attend(q, k, v, length).flatten(0, 1).transpose(0, 1).reshape(q.shape)


def blocks_apart(q, k, v, length):
    block_size = q.shape[1]
    parts = [
        attend(
            q[i : i + 1], k[i : i + 1], v[i : i + 1], min(block_size, length - i * block_size)
        )
        for i in range(len(q))
    ]
    return torch.cat(parts) if parts else torch.zeros_like(q)


def blocks_apart_to_the_end(q, k, v, length):
    return blocks_apart(q, k, v, everything(q))


def blocks_apart_not_causal(q, k, v, length):
    parts = [
        not_causal(q[i : i + 1], k[i : i + 1], v[i : i + 1], q.shape[1]) for i in range(len(q))
    ]
    return torch.cat(parts) if parts else torch.zeros_like(q)


def keys_and_values_swapped(q, k, v, length):
    return attend(q, v, k, length)


def not_in_blocks(q, k, v, length):
    return attend(q, k, v, length).flatten(0, 1)[:length]


def all_slots_in_one_row(q, k, v, length):
    return attend(q, k, v, length).flatten(0, 1)


def tail_missing(q, k, v, length):
    """Only the tokens' rows, and then the shape of q.

    It raises wherever the last block has a slot left.
    """
    return attend(q, k, v, length).flatten(0, 1)[:length].reshape(q.shape)


def tail_not_zeroed(q, k, v, length):
    """Keys and values end where they should, and the queries do not.

    Those after the last token have an output all the same.
    """
    behind = torch.arange(everything(q)) >= length
    k, v = (x.masked_fill(behind.view(*q.shape[:2], 1, 1), 0.0) for x in (k, v))
    return attend(
        q,
        k,
        v,
        everything(q),
        weigh=lambda scores: torch.softmax(
            scores.masked_fill(future(scores) | behind, NO_KEY), dim=-1
        ),
    )


def tail_not_zeroed_by_chance(q, k, v, length):
    """The values are set to 0 there and NaN is taken out of the result.

    A query of large numbers sees itself only.
    """
    behind = torch.arange(everything(q)) >= length
    v = v.masked_fill(behind.view(*q.shape[:2], 1, 1), 0.0)
    return attend(q, k, v, everything(q)).nan_to_num(0.0)


def full_last_block_cut(q, k, v, length):
    """The tokens of the last block are counted by the remainder: 0 in a full block."""
    num_blocks, block_size = q.shape[:2]
    return attend(q, k, v, max(0, (num_blocks - 1) * block_size + length % block_size))


def full_last_block_zeroed(q, k, v, length):
    """The same by setting 0 behind the remainder, and all slots attended to."""
    q, k, v = (x.clone() for x in (q, k, v))
    for x in (q, k, v):
        x[-1:, length % q.shape[1] :] = 0.0
    o = attend(q, k, v, everything(q))
    o.view(-1, *q.shape[2:])[length:] = 0
    return o


def tail_rows_hidden(q, k, v, length):
    """All scores of a query behind the last token are hidden too.

    A softmax over nothing but -inf is NaN.
    """
    o = attend(q, k, v, length)
    o.view(-1, *q.shape[2:])[length:] = math.nan
    return o


def nan_set_to_zero(q, k, v, length):
    return nan_behind_the_end(q, k, v, length).nan_to_num(0.0)


def nan_behind_the_end(q, k, v, length):
    """Every slot is attended to, causally, and the output behind the last token set to 0."""
    o = attend(q, k, v, everything(q))
    o.view(-1, *q.shape[2:])[length:] = 0
    return o


def nan_behind_the_end_multiplied(q, k, v, length):
    """The same, with the output behind the last token multiplied by 0."""
    token = torch.arange(everything(q)).view(q.shape[:2])
    return attend(q, k, v, everything(q)) * (token < length)[..., None, None]


def zero_times_infinity(q, k, v, length):
    return attend(
        q,
        k,
        v,
        length,
        weigh=lambda scores: torch.softmax(
            scores + torch.ones_like(scores).triu(diagonal=1) * NO_KEY, dim=-1
        ),
    )


def zero_times_infinity_to_the_end(q, k, v, length):
    return zero_times_infinity(q, k, v, everything(q))


def heads_not_moved(
    q, k, v, length, hide=lambda scores, length: scores.masked_fill(future(scores), NO_KEY)
):
    """The scores of a token are (heads, heads): its query heads against its own key heads."""
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    # (length, heads, head_size)
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length] for x in (q, k, v))
    scores = hide(scaled(q, q_rows @ k_rows.transpose(1, 2)), length)
    o = torch.zeros_like(q)
    o.view(-1, *q.shape[2:])[:length] = torch.softmax(scores, dim=-1) @ v_rows
    return o


def heads_not_moved_mask_of_tokens(q, k, v, length):
    """With a mask of (length, length), which fits these scores by chance at most."""
    return heads_not_moved(
        q,
        k,
        v,
        length,
        hide=lambda scores, length: scores.masked_fill(
            torch.ones(length, length, dtype=torch.bool).triu(diagonal=1), NO_KEY
        ),
    )


def heads_not_moved_mask_added(q, k, v, length):
    return heads_not_moved(
        q,
        k,
        v,
        length,
        hide=lambda scores, length: (
            scores + torch.full((length, length), NO_KEY).triu(diagonal=1)
        ),
    )


def heads_not_moved_unmasked(q, k, v, length):
    return heads_not_moved(q, k, v, length, hide=lambda scores, length: scores)


def heads_in_turn(q, k, v, length):
    """Query head h reads KV head h % num_kv_heads."""
    k, v = (x.repeat(1, 1, q.shape[2] // k.shape[2], 1) for x in (k, v))
    return attend(q, k, v, length)


writes_into_q, other_changes = requests.inputs_changing(attend)


EXERCISE = Exercise(
    id="3.1",
    title="attention over one request's blocks",
    answer_name="plain_attention",
    reference=requests.in_double(attention.plain_attention),
    cases=lambda: requests.CASES,
    size=requests.size,
    hidden=requests.hidden,
    observe=requests.observe,
    describe=requests.describe,
    same=tensors.same,
    show=tensors.show,
    chancy=requests.tells_little,
    mistakes=(
        Mistake(
            "missing-scale",
            "The scores go into the softmax as they are. "
            "They grow with the size of a head, and then one key gets nearly all the weight. "
            "Look again at the formula: something stands below q · k.",
            without_scale,
        ),
        Mistake(
            "scale-without-root",
            "The scores are divided by head_size itself, at once or by its root twice "
            "(scaled_dot_product_attention divides too). That is too much: the weights come "
            "out nearly equal. What is the spread of a sum of head_size products?",
            scale_without_root,
        ),
        Mistake(
            "scale-upside-down",
            "The scores are multiplied where they should be divided: "
            "the softmax is sharper than it was without a scale.",
            scale_multiplied,
        ),
        Mistake(
            "scale-by-all-heads",
            "The scale counts the numbers of all heads together. A score is the product "
            "of one head's q and one head's k: how many numbers are these?",
            scale_by_all_heads,
        ),
        Mistake(
            "scaled-by-another-size",
            "The scores are divided by the root of a number that is not head_size. "
            "Over which dimension of q does q · k add up its products?",
            scale_by_num_heads,
            also=OTHER_SCALES,
        ),
        Mistake(
            "output-scaled",
            "It is the output that is divided, "
            "and the softmax has seen the scores as they were. Divide before the softmax.",
            output_scaled,
        ),
        Mistake(
            "not-causal",
            "Each token sees those that come after it. When the model writes, these will "
            "not exist yet. Hide every key whose position is larger than the query's.",
            not_causal,
        ),
        Mistake(
            "nothing-masked",
            "Each token sees those after it, and even what stands behind the last one, "
            "in slots that belong to nobody. "
            "Two masks are missing: one for the future, one for the end of the last block.",
            nothing_masked,
        ),
        Mistake(
            "tail-attended",
            "The output behind the last token is 0, as it should be, "
            "and yet the tokens have attended to what stands there: "
            "no key is hidden from any query, neither a later one nor one behind the end.",
            tail_attended,
        ),
        Mistake(
            "tail-not-masked",
            "Your result is not 0 behind the last token: the slots that the last block "
            "has left are treated as tokens. Only `length` of the slots hold one.",
            tail_not_masked,
        ),
        Mistake(
            "mask-off-by-one",
            "A token does not see itself, and so the first one sees nothing at all: "
            "a softmax over nothing is 0/0, which is NaN, and a sum over nothing is 0. "
            "Which key is the last that a token may see?",
            hides_itself,
            also=(hides_itself_and_sums_nothing,),
        ),
        Mistake(
            "sees-one-ahead",
            "Each token sees the one right after it. "
            "Your mask starts one diagonal too far to the right.",
            sees_one_ahead,
        ),
        Mistake(
            "mask-reversed",
            "Your mask hides what it should show: each token loses itself and its past, "
            "and the last one sees nothing at all (NaN). "
            "Does True in your mask mean “visible” or “hidden”?",
            mask_inverted,
        ),
        Mistake(
            "mask-transposed",
            "Each token sees itself and what follows, and not its past. In the scores a row "
            "is a query and a column is a key: on which side of the diagonal lies the future?",
            mask_transposed,
        ),
        Mistake(
            "mask-of-blocks",
            "Your mask compares blocks and not tokens: "
            "in its own block, a token sees those that come after it.",
            mask_of_blocks,
        ),
        Mistake(
            "mask-by-zero",
            "A hidden score is 0 in your softmax, and exp(0) is 1: the hidden key still gets "
            "a good part of the weight. Which score has the exponential 0?",
            mask_by_zero,
        ),
        Mistake(
            "mask-after-softmax",
            "The weights of hidden keys are removed after the softmax. By then they have had "
            "their share of the sum, so the weights that are left do not add up to 1.",
            mask_after_softmax,
        ),
        Mistake(
            "softmax-over-queries",
            "The weights of one *key* add up to 1, over all the queries. It is each query "
            "that shares out its attention: look at the dimension of the softmax.",
            softmax_over_queries,
        ),
        Mistake(
            "softmax-over-heads",
            "The softmax runs over the heads. Each head of each query shares out "
            "its attention over the keys: look at the dimension of the softmax.",
            softmax_over_heads,
        ),
        Mistake(
            "scores-transposed",
            "Rows and columns of your scores are swapped: in the scores a row is a query, "
            "and the softmax runs along it.",
            scores_transposed,
        ),
        Mistake(
            "heads-joined",
            "All heads of a token are taken as one long vector, so there is one score for a "
            "pair of tokens, and all heads share its weight. Each head has scores of its own.",
            heads_joined,
            also=(heads_joined_and_scaled_by_all,),
        ),
        Mistake(
            "softmax-forgotten",
            "The scores themselves are the weights of your sum. "
            "They may be negative, and they do not add up to 1.",
            softmax_forgotten,
        ),
        Mistake(
            "heads-scrambled",
            "Tokens and heads got mixed. In memory all heads of a token stand side by side: "
            "`reshape` cuts that row of numbers at other places, and gives a “head” "
            "that holds several heads of one token. Which call swaps two dimensions?",
            heads_scrambled,
        ),
        Mistake(
            "input-scrambled",
            "The output goes back to its tokens in the right way, "
            "and q, k and v came in the wrong way: `reshape` cuts their numbers so "
            "that a “head” holds several heads of one token. Which call swaps two dimensions?",
            heads_scrambled_on_the_way_in,
        ),
        Mistake(
            "output-scrambled",
            "The heads' outputs are right, and they got mixed with the tokens "
            "on the way back. Before the result can be cut into blocks, "
            "the heads of each token have to stand side by side again.",
            heads_scrambled_on_the_way_back,
            also=(heads_scrambled_on_the_way_back_in_blocks,),
        ),
        Mistake(
            "blocks-apart",
            "Each block attends to itself only. To the request, "
            "its blocks are one row of tokens: make them one row before you compute scores.",
            blocks_apart,
            also=(blocks_apart_to_the_end, blocks_apart_not_causal),
        ),
        Mistake(
            "kv-swapped",
            "The scores come from the values, and the output is a sum of keys. "
            "Queries are compared with keys; values are what is summed.",
            keys_and_values_swapped,
        ),
        Mistake(
            "blocks-not-restored",
            "The numbers are right, in one row. "
            "The result has the shape of q: blocks, and 0 in the slots behind the last token.",
            not_in_blocks,
            also=(all_slots_in_one_row,),
        ),
        Mistake(
            "tail-missing",
            "Your result has numbers for the tokens only, and q has more slots than that: "
            "the last block has some left. They belong to the result too, and hold 0.",
            tail_missing,
        ),
        Mistake(
            "tail-output-not-zero",
            "No query sees what stands behind the last token, and yet your result "
            "is not 0 there: these slots are queries too, which belong to nobody.",
            tail_not_zeroed,
            also=(tail_not_zeroed_by_chance,),
        ),
        Mistake(
            "tail-of-q-left",
            "Behind the last token your result holds what stands there in q: "
            "it was made as a copy of q. It is 0 there.",
            requests.left_in_q(attend),
        ),
        Mistake(
            "full-last-block-emptied",
            "Where the last block is exactly full, it is taken for empty: "
            "`length % block_size` is 0 there.",
            full_last_block_cut,
            also=(full_last_block_zeroed,),
        ),
        Mistake(
            "tail-rows-all-hidden",
            "Your result is NaN behind the last token: all scores of these rows are -inf, "
            "and a softmax over nothing but -inf is 0/0. These rows belong to nobody. "
            "What should stand there?",
            tail_rows_hidden,
        ),
        Mistake(
            "nan-hidden",
            "The NaN is set to 0 after it has spread: the tokens' own output is lost "
            "with it. What stands behind the last token must not come into the sum.",
            nan_set_to_zero,
        ),
        Mistake(
            "nan-behind-the-end",
            "With finite numbers in the empty slots your result is right, with NaN there "
            "it is not. A hidden key gets the weight 0, and 0 times NaN is NaN: what stands "
            "behind the last token must not be in the sum at all. Where could you cut it off?",
            nan_behind_the_end,
            also=(nan_behind_the_end_multiplied,),
        ),
        Mistake(
            "zero-times-infinity",
            "Every score is NaN, the visible ones too: "
            "a mask of ones and zeros was multiplied by -inf, and 0 times infinity is NaN. "
            "Put -inf in where a key is hidden, and leave the other scores as they are.",
            zero_times_infinity,
            also=(zero_times_infinity_to_the_end,),
        ),
        Mistake(
            "heads-not-moved",
            "Each token's heads are compared with the heads of the same token, and no token "
            "with another one. A matrix product works on the last two dimensions: "
            "which two are these in your q and k?",
            heads_not_moved,
            also=(
                heads_not_moved_mask_of_tokens,
                heads_not_moved_mask_added,
                heads_not_moved_unmasked,
            ),
        ),
        Mistake(
            "wrong-head-mapping",
            "Query head h reads KV head h % num_kv_heads. Neighbouring query heads share a "
            "KV head: with 6 query heads and 2 KV heads, the heads 0, 1 and 2 read KV head 0.",
            heads_in_turn,
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
            requests.without_tokens(attend),
        ),
    ),
    hints=(
        (
            "Which slots of the blocks are tokens? `flatten(0, 1)` makes one row "
            "of the blocks, and a slice keeps the first `length` of it. "
            "From then on there is no block and no tail."
        ),
        (
            "A matrix product works on the last two dimensions. For one product per head, "
            "the head has to be the first dimension: (num_q_heads, length, head_size)."
        ),
        (
            "The order of the steps: "
            "scores, divide, hide, softmax, multiply with the values, "
            "put the heads back behind the tokens, write them into zeros of q's shape."
        ),
    ),
)
