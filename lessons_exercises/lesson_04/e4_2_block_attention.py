"""Exercise 4.2: attention of one query over one block, as (o, m, l)."""

import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_04.inputs import (
    NAN,
    POISON,
    call,
    generator,
    in_double,
    named_where,
    raises_where,
    with_zeros_of_l,
)
from lessons_lib.checks import Exercise, Mistake
from paged_attention import decode
from paged_attention.attention import share_heads
from paged_attention.softmax_state import NO_KEY, finite


def _attend(
    q,
    k,
    v,
    num_valid,
    *,
    share=share_heads,
    scale=None,
    hide=None,
    maximum=None,
    masked=NO_KEY,
    values_masked=True,
):
    """block_attention() with one part replaced."""
    k, v = share(k, q.shape[1]), share(v, q.shape[1])
    behind = (hide or _behind)(k, num_valid)
    scores = torch.einsum("nhd,nthd->nht", q, k) * (
        q.shape[-1] ** -0.5 if scale is None else scale
    )
    scores = scores.masked_fill(behind[:, None, :], masked)
    m = scores.amax(-1)
    p = torch.exp(scores - (finite(m) if maximum is None else maximum(m))[..., None])
    l = p.sum(-1)
    o = torch.einsum(
        "nht,nthd->nhd",
        p,
        v.masked_fill(behind[:, :, None, None], 0.0) if values_masked else v,
    )
    return o / l.masked_fill(l == 0, 1.0)[..., None], m, l


def _behind(k, num_valid):
    return torch.arange(k.shape[1]) >= num_valid[:, None]


def tail_attended(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        hide=lambda k, num_valid: torch.zeros(k.shape[:2], dtype=torch.bool),
    )


def one_slot_too_many(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        hide=lambda k, num_valid: torch.arange(k.shape[1]) > num_valid[:, None],
    )


def last_token_hidden(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        hide=lambda k, num_valid: torch.arange(k.shape[1]) >= num_valid[:, None] - 1,
    )


def not_scaled(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, scale=1.0)


def divided_by_head_size(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, scale=1 / q.shape[-1])


def multiplied_by_the_root(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, scale=q.shape[-1] ** 0.5)


def root_of_the_heads(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, scale=q.shape[1] ** -0.5)


def root_of_the_block_size(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, scale=k.shape[1] ** -0.5)


def _one_count(pick):
    def wrong(q, k, v, num_valid):
        return _attend(q, k, v, pick(num_valid).expand(len(num_valid)))

    return wrong


def _unless_empty(pick):
    return lambda num_valid: pick(num_valid) if len(num_valid) else num_valid


def _cut_to_the_smallest(at_least):
    """All blocks end behind the same slot; with 0 for `at_least`, no slot may be left."""

    def wrong(q, k, v, num_valid):
        end = max(at_least, min(num_valid.tolist(), default=0))
        return _attend(q, k[:, :end], v[:, :end], num_valid)

    return wrong


ONE_COUNT = (
    *map(
        _one_count,
        (
            _unless_empty(lambda num_valid: num_valid[0]),
            _unless_empty(lambda num_valid: num_valid.max()),
            lambda num_valid: num_valid[0],
            lambda num_valid: num_valid.max(),
            _unless_empty(lambda num_valid: num_valid.min()),
            lambda num_valid: num_valid.min(),
        ),
    ),
    *map(_cut_to_the_smallest, (1, 0)),
)


def one_maximum_for_all(q, k, v, num_valid):
    """One number for all blocks and heads."""

    def largest(m):
        return m.max() if m.numel() else m

    o, m, l = _attend(q, k, v, num_valid, maximum=lambda m: finite(largest(m)).expand(m.shape))
    return o, largest(m).expand(m.shape), l


def one_maximum_for_all_unguarded(q, k, v, num_valid):
    o, m, _ = one_maximum_for_all(q, k, v, num_valid)
    _, _, l = _attend(q, k, v, num_valid, maximum=lambda scores_m: m)
    return o, m, l


def one_maximum_for_all_heads(q, k, v, num_valid):
    """One number for each block."""

    def largest(m):
        return m.amax(1, keepdim=True).expand(m.shape)

    o, m, l = _attend(q, k, v, num_valid, maximum=lambda m: finite(largest(m)))
    return o, largest(m), l


one_maximum_for_all_of_some_blocks = raises_where(
    lambda q, k, v, num_valid: len(num_valid) == 0, one_maximum_for_all
)


def _scrambled(first, second):
    """o is laid out with two dimensions swapped, and then read as if it were not."""

    def wrong(q, k, v, num_valid):
        o, m, l = _attend(q, k, v, num_valid)
        return o.transpose(first, second).reshape(o.shape), m, l

    return wrong


SCRAMBLED = (_scrambled(1, 2), _scrambled(0, 1))


def first_slots_hidden(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        hide=lambda k, num_valid: torch.arange(k.shape[1]) < k.shape[1] - num_valid[:, None],
    )


def output_alone(q, k, v, num_valid):
    return _attend(q, k, v, num_valid)[0]


def heads_in_turn(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        share=lambda k, num_q_heads: k.repeat(1, 1, num_q_heads // k.shape[2], 1),
    )


def first_head_for_all(q, k, v, num_valid):
    return _attend(
        q,
        k,
        v,
        num_valid,
        share=lambda k, num_q_heads: k[:, :, :1].expand(-1, -1, num_q_heads, -1),
    )


def zero_for_minus_infinity(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, masked=0.0)


def zero_for_minus_infinity_values_too(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, masked=0.0, values_masked=False)


def _finite_mask(masked, values_masked):
    def wrong(q, k, v, num_valid):
        return _attend(q, k, v, num_valid, masked=masked, values_masked=values_masked)

    return wrong


FINITE_MASKS = tuple(
    _finite_mask(masked, values_masked)
    for masked in (-1e9, torch.finfo(torch.float32).min, -1e4)
    for values_masked in (True, False)
)


def finite_maximum_returned(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, finite(m), l


def values_not_masked(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, values_masked=False)


def nan_set_to_zero(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid, values_masked=False)
    return o.nan_to_num(0.0), m, l


def mask_added(q, k, v, num_valid):
    """Every score of a NaN key stays NaN, whatever is added."""
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    behind = _behind(k, num_valid)
    scores = torch.einsum("nhd,nthd->nht", q, k) / math.sqrt(q.shape[-1])
    scores = scores + torch.zeros(behind.shape).masked_fill(behind, NO_KEY)[:, None]
    m = scores.amax(-1)
    p = torch.exp(scores - finite(m)[..., None])
    l = p.sum(-1)
    o = torch.einsum("nht,nthd->nhd", p, v.masked_fill(behind[:, :, None, None], 0.0))
    return o / l.masked_fill(l == 0, 1.0)[..., None], m, l


def l_kept_from_zero(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, l.clamp(min=1e-6)


def nan_without_a_key(q, k, v, num_valid):
    _, m, l = _attend(q, k, v, num_valid)
    o, _, l = _attend(q, k, v, num_valid, maximum=lambda m: m)
    return o, m, l


def nan_in_l_alone(q, k, v, num_valid):
    """The division is guarded, and exp(-inf - (-inf)) is in l all the same."""
    o, m, _ = _attend(q, k, v, num_valid)
    return o, m, nan_without_a_key(q, k, v, num_valid)[2]


def zero_divided_by_zero(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o * l[..., None] / l[..., None], m, l


def without_the_maximum(q, k, v, num_valid):
    return _attend(q, k, v, num_valid, maximum=torch.zeros_like)


def not_divided(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o * l[..., None], m, l


def _averaged(count, divided_by_l):
    """The weighted values divided by a number of slots, by l as well or by it alone."""

    def wrong(q, k, v, num_valid):
        o, m, l = _attend(q, k, v, num_valid)
        total = o if divided_by_l else o * l[..., None]
        return total / count(k, num_valid), m, l

    return wrong


AVERAGED = tuple(
    _averaged(count, divided_by_l)
    for divided_by_l in (False, True)
    for count in (
        lambda k, num_valid: k.shape[1],
        lambda k, num_valid: num_valid.clamp(min=1)[:, None, None],
        lambda k, num_valid: num_valid[:, None, None],
    )
)


def sum_of_the_softmax(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, (l > 0).to(l.dtype)


def one_for_l(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, torch.ones_like(l)


def tokens_for_l(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, num_valid[:, None].expand(l.shape).to(l.dtype)


def logarithm_of_l(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, m + l.log()


def l_without_the_maximum(q, k, v, num_valid):
    """Only l is counted from 0; o is right."""
    o, m, l = _attend(q, k, v, num_valid)
    return o, m, l * torch.exp(finite(m))


def extra_dimension(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, m[..., None], l[..., None]


def _holds_an_empty_block(q, k, v, num_valid):
    return bool((num_valid == 0).any())


def _holds_no_block(q, k, v, num_valid):
    return len(num_valid) == 0


def nothing_for_nothing(q, k, v, num_valid):
    """As a loop over the blocks gives it: tuple(zip(…)) of nothing has no part."""
    return _attend(q, k, v, num_valid) if len(q) else ()


def tail_in_the_sum(q, k, v, num_valid):
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    scores = torch.einsum("nhd,nthd->nht", q, k) / math.sqrt(q.shape[-1])
    m = scores.amax(-1)
    p = torch.exp(scores - m[..., None])
    l = p.sum(-1)
    o = torch.einsum("nht,nthd->nhd", p.masked_fill(_behind(k, num_valid)[:, None, :], 0.0), v)
    return o / l[..., None], m, l


def maximum_before_the_mask(q, k, v, num_valid):
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    behind = _behind(k, num_valid)
    scores = torch.einsum("nhd,nthd->nht", q, k) / math.sqrt(q.shape[-1])
    m, scores = scores.amax(-1), scores.masked_fill(behind[:, None, :], NO_KEY)
    p = torch.exp(scores - m[..., None])
    l = p.sum(-1)
    o = torch.einsum("nht,nthd->nhd", p, v.masked_fill(behind[:, :, None, None], 0.0))
    return o / l.masked_fill(l == 0, 1.0)[..., None], m, l


def keys_as_values(q, k, v, num_valid):
    return _attend(q, v, k, num_valid)


def sum_before_maximum(q, k, v, num_valid):
    o, m, l = _attend(q, k, v, num_valid)
    return o, l, m


def cleans_the_tail_in_place(q, k, v, num_valid):
    behind = _behind(k, num_valid)[:, :, None, None]
    v.masked_fill_(behind, 0.0)
    k.masked_fill_(behind, 0.0)
    return _attend(q, k, v, num_valid)


# (tokens in each block, block size, query heads, KV heads, head size, scores, what stands
# behind the tokens, seed)
CASES = [
    ((1,), 1, 1, 1, 4, "usual", POISON, 0),
    ((2,), 2, 1, 1, 4, "usual", POISON, 1),
    ((4,), 4, 2, 2, 16, "usual", POISON, 2),
    ((1,), 2, 2, 2, 4, "usual", POISON, 3),
    ((3,), 4, 2, 2, 4, "usual", POISON, 4),
    ((4, 1), 4, 1, 1, 4, "usual", POISON, 5),
    ((2,), 2, 6, 2, 4, "usual", POISON, 6),
    ((0,), 2, 1, 1, 4, "usual", POISON, 7),
    ((3, 0, 1), 3, 2, 1, 4, "usual", POISON, 8),
    ((2,), 2, 1, 1, 4, "near +500", POISON, 9),
    ((2,), 2, 1, 1, 4, "near -500", POISON, 10),
    ((16, 5), 16, 14, 2, 16, "usual", POISON, 11),
    ((7, 0, 3), 8, 9, 3, 16, "near -500", POISON, 12),
    ((16, 15, 1), 16, 6, 2, 64, "near +500", POISON, 13),
    ((), 4, 3, 1, 8, "usual", POISON, 14),
    ((16,) * 5, 16, 8, 2, 128, "usual", POISON, 15),
    ((1,), 2, 1, 1, 4, "usual", NAN, 16),
    ((2, 0, 3), 3, 2, 1, 4, "usual", NAN, 17),
    ((16, 5), 16, 6, 2, 16, "usual", NAN, 18),
]
# exp(500) overflows, exp(-500) is 0; and float32 is exact enough there for
# exp(logsumexp(scores) - m), a right way to l.
LEVELS = {"near +500": 500.0, "near -500": -500.0}


def hidden(seed):
    """Blocks with any number of tokens, some without.

    NaN behind the tokens in the last cases.
    """
    chance = random.Random(seed)
    for number in range(15):
        block_size, num_kv_heads = chance.randint(2, 9), chance.randint(1, 3)
        counts = tuple(
            chance.choice((0, 1, block_size, chance.randint(1, block_size)))
            for _ in range(1 + number // 3)
        )
        yield (
            counts,
            block_size,
            num_kv_heads * chance.randint(1, 5),
            num_kv_heads,
            chance.choice((4, 16, 64)),
            ("usual", "usual", *LEVELS)[number % 4],
            POISON if number < 13 else NAN,
            chance.randrange(2**31),
        )


def observe(answer, case):
    counts, block_size, num_q_heads, num_kv_heads, head_size, scores, poison, seed = case
    source, num_valid = generator(seed), torch.tensor(counts, dtype=torch.int64)
    q = torch.randn(len(counts), num_q_heads, head_size, generator=source)
    k, v = torch.randn(2, len(counts), block_size, num_kv_heads, head_size, generator=source)
    if level := LEVELS.get(scores):
        # Whole numbers, so that float32 gives the scores without an error: level + 0, 1, 2 or
        # 3.
        q.zero_()[..., 0] = math.sqrt(head_size)
        k[..., 0] = level + torch.randint(4, k.shape[:-1], generator=source)
    behind = torch.arange(block_size) >= num_valid[:, None]
    k[behind], v[behind] = poison, poison
    return named_where(
        not all(counts) or not counts,
        lambda: with_zeros_of_l(
            call(answer, ("o", "m", "l"), q=q, k=k, v=v, num_valid=num_valid)
        ),
    )


def holds_nan(case):
    """For `Exercise.chancy`: what a mistake makes of NaN depends on details.

    So such a case tells no mistakes apart.
    """
    return math.isnan(case[6])


def size(case):
    """How many numbers the three tensors have, and the tokens."""
    counts, block_size, num_q_heads, num_kv_heads, head_size, *_ = case
    return len(counts) * (num_q_heads + 2 * block_size * num_kv_heads) * head_size, sum(counts)


def describe(case):
    counts, block_size, num_q_heads, num_kv_heads, head_size, scores, poison, _ = case
    held = "NaN" if math.isnan(poison) else f"{poison:,.0f}"
    return (
        f"q of shape ({len(counts)}, {num_q_heads}, {head_size}), k and v of shape "
        f"({len(counts)}, {block_size}, {num_kv_heads}, {head_size}), "
        f"num_valid = {list(counts)}"
        + (f", every score {scores}" if scores in LEVELS else "")
        + (
            f"; all slots behind the valid ones hold {held}"
            if any(count < block_size for count in counts)
            else ""
        )
    )


EXERCISE = Exercise(
    id="4.2",
    title="attention over one block, as (o, m, l)",
    answer_name="block_attention",
    reference=in_double(decode.block_attention),
    cases=lambda: CASES,
    size=size,
    hidden=hidden,
    observe=observe,
    describe=describe,
    chancy=holds_nan,
    same=tensors.same,
    show=tensors.show,
    points=2,
    mistakes=(
        Mistake(
            "tail-not-masked",
            "The slots behind the last token take part in the attention. They hold whatever "
            "was there before. num_valid says how many slots of each block count.",
            tail_attended,
        ),
        Mistake(
            "tail-off-by-one",
            "One slot too many counts in a partly filled block. "
            "With num_valid tokens, the last one is in slot num_valid - 1.",
            one_slot_too_many,
        ),
        Mistake(
            "last-token-hidden",
            "The last token of each block is left out. "
            "With num_valid tokens, slots 0 to num_valid - 1 count.",
            last_token_hidden,
        ),
        Mistake(
            "first-slots-hidden",
            "The first slots of a partly filled block are hidden, and the last ones count. "
            "Tokens fill a block from its first slot on.",
            first_slots_hidden,
        ),
        Mistake(
            "one-count-for-all",
            "One number of tokens masks or cuts all blocks. `num_valid` has a number "
            "for each block, and has to stand against that block's slots.",
            ONE_COUNT[0],
            also=ONE_COUNT[1:],
        ),
        Mistake(
            "tail-counts-in-l",
            "The output leaves out the slots behind the last token, "
            "but m and l include them: the mask has to come before the maximum and the sum.",
            tail_in_the_sum,
        ),
        Mistake(
            "max-sees-the-tail",
            "Your maximum is taken over all slots, those behind the last token too. "
            "Where they hold large numbers, every weight underflows to 0. Mask first.",
            maximum_before_the_mask,
        ),
        Mistake(
            "mask-by-zero",
            "The masked scores are 0, and exp(0) is 1: they still take a share. "
            "Which score has the weight 0?",
            zero_for_minus_infinity,
            also=(zero_for_minus_infinity_values_too,),
        ),
        Mistake(
            "mask-is-finite",
            "The masked scores are a large negative number and not -inf. "
            "A block without a valid token then has that number as its m, "
            "and each of its slots has the weight 1.",
            FINITE_MASKS[0],
            also=FINITE_MASKS[1:],
        ),
        Mistake(
            "finite-m-returned",
            "For a block without a valid token you return m = 0. "
            "`finite(m)` is for the subtraction alone; the m that you return stays -inf, "
            "so that the next step sees that the block is empty.",
            finite_maximum_returned,
        ),
        Mistake(
            "half-a-mask",
            "The scores of the slots behind the last token are masked, "
            "and their values still come into the sum. They may hold NaN, "
            "and NaN times 0 is NaN. What has to stand in their place before you multiply?",
            values_not_masked,
        ),
        Mistake(
            "nan-hidden",
            "The NaN is set to 0 after it has spread through o: "
            "the values of the block's tokens are lost with it. Keep it out of the sum.",
            nan_set_to_zero,
        ),
        Mistake(
            "mask-added",
            "The mask is added to the scores. Where a slot behind the last token holds NaN, "
            "its score is NaN, and NaN plus -inf is NaN. A mask has to replace the score.",
            mask_added,
        ),
        Mistake(
            "l-kept-from-zero",
            "A block without a valid token has l = 0, and you return a small number "
            "in its place. Guard the division, and return l as it is.",
            l_kept_from_zero,
        ),
        Mistake(
            "missing-scale",
            "The scores are not scaled. "
            "Large head sizes give large scores, and the softmax picks one key.",
            not_scaled,
        ),
        Mistake(
            "scaled-by-head-size",
            "The scores are divided by head_size. Attention divides by its square root.",
            divided_by_head_size,
        ),
        Mistake(
            "scaled-up",
            "The scores are multiplied by the square root of head_size. "
            "Attention divides by it.",
            multiplied_by_the_root,
        ),
        Mistake(
            "scaled-by-another-size",
            "The scores are divided by the root of a number that is not head_size. "
            "Over which dimension of q does q · k add up its products?",
            root_of_the_heads,
            also=(root_of_the_block_size,),
        ),
        Mistake(
            "wrong-head-mapping",
            "Query head h reads KV head h % num_kv_heads. Neighbouring query heads share "
            "a KV head: with 6 query heads and 2 KV heads, the first three read head 0.",
            heads_in_turn,
        ),
        Mistake(
            "heads-scrambled",
            "The numbers of o are right, and they stand in the wrong places. "
            "`reshape` and `view` do not move a dimension: "
            "they cut the same row of numbers at other places.",
            SCRAMBLED[0],
            also=SCRAMBLED[1:],
        ),
        Mistake(
            "one-kv-head-for-all",
            "Every query head reads KV head 0. "
            "Each group of num_q_heads // num_kv_heads query heads has its own.",
            first_head_for_all,
        ),
        Mistake(
            "o-not-divided",
            "o is the weighted sum of the values, and it is not yet divided by l. "
            "The step that combines the parts expects it divided.",
            not_divided,
        ),
        Mistake(
            "averaged-over-slots",
            "The weighted values are divided by a number of slots; `mean` does that too. "
            "They count by their weights: "
            "o is their sum, divided by the sum of the weights alone.",
            AVERAGED[0],
            also=AVERAGED[1:],
        ),
        Mistake(
            "l-of-softmax",
            "l is 1 everywhere: the sum of weights that are divided already. l is the sum "
            "of exp(score - m), from which the next step knows how much a block weighs.",
            sum_of_the_softmax,
            also=(one_for_l,),
        ),
        Mistake(
            "l-counts-tokens",
            "l is the number of tokens in the block. It is the sum of their exp(score - m), "
            "and only the largest score adds a whole 1.",
            tokens_for_l,
        ),
        Mistake(
            "l-as-logarithm",
            "In place of l you return m + log(l). "
            "Some programs keep that one number for both. Here l is the sum itself.",
            logarithm_of_l,
        ),
        Mistake(
            "extra-dimension",
            "The numbers are right, and m and l have a last dimension of size 1. "
            "Their shape is (total_blocks, num_q_heads).",
            extra_dimension,
        ),
        Mistake(
            "l-and-m-swapped",
            "m and l are returned in each other's place. The order is o, m, l.",
            sum_before_maximum,
        ),
        Mistake(
            "max-not-subtracted",
            "You take exp(score) without subtracting the maximum. "
            "l is then not the sum that was asked for, and large scores overflow.",
            without_the_maximum,
            also=(l_without_the_maximum,),
        ),
        Mistake(
            "one-max-for-all",
            "You take one maximum over all blocks and heads. Each query head has its own in "
            "each block: where another one's scores are much larger, all weights underflow.",
            one_maximum_for_all,
            also=(one_maximum_for_all_unguarded, one_maximum_for_all_of_some_blocks),
        ),
        Mistake(
            "one-max-for-all-heads",
            "The heads of a block share one maximum. "
            "Each query head has its own: m has a number for each block and head.",
            one_maximum_for_all_heads,
        ),
        Mistake(
            "output-alone",
            "Only o is returned. "
            "m and l say how much this part weighs beside others: return all three.",
            output_alone,
        ),
        Mistake(
            "nothing-to-reduce",
            "Your function raises for a block without a valid token, or for no block at all: "
            "there is no maximum over nothing. Masked slots can take part in a maximum.",
            raises_where(_holds_an_empty_block, _attend),
            also=(
                raises_where(_holds_no_block, _attend),
                nothing_for_nothing,
                raises_where(_holds_an_empty_block, nothing_for_nothing),
            ),
        ),
        Mistake(
            "nan-on-empty-block",
            "A block without a valid token has m = -inf, and -inf - (-inf) is NaN. "
            "`finite(m)` of lesson 03 helps where m is subtracted.",
            nan_without_a_key,
            also=(nan_in_l_alone,),
        ),
        Mistake(
            "zero-divided-by-zero",
            "A block without a valid token has l = 0, and you divide by it: 0 / 0 is NaN. "
            "o is 0 there.",
            zero_divided_by_zero,
        ),
        Mistake(
            "kv-swapped",
            "Keys and values are in each other's place: the query is compared with the keys, "
            "and the values are what is summed.",
            keys_as_values,
        ),
        Mistake(
            "inputs-changed",
            "Your function overwrites k or v. They may be a view of the pool, "
            "and then the pool is changed as well. Make a new tensor.",
            cleans_the_tail_in_place,
        ),
    ),
    hints=(
        (
            "Do it for one pair on paper: scores of the block's slots, mask, maximum, "
            "exponentials, their sum. Which dimension of each tensor counts the pairs?"
        ),
        (
            "`share_heads(k, num_q_heads)` gives each query head its keys. "
            "After that q and k have the same heads, "
            "and `torch.einsum` can multiply them pair by pair and head by head."
        ),
        (
            "A slot is behind when its number is not below num_valid: "
            "compare `torch.arange(block_size)` with num_valid as a column."
        ),
        (
            "For a block without a token: subtract `finite(m)` in place of m, "
            "and do not divide by an l of 0."
        ),
    ),
)
