"""Requests to attend to, made from a few numbers: what the checks of lesson 03 share."""

import math
import random

import torch

from lessons_exercises import tensors
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Text

POISON = 1e4  # behind each request's last token: large, so that reading it shows

# (tokens, block size, query heads, KV heads, head size, seed, what stands behind the last
# token). The smallest first; then 0 behind the end: a query made of large numbers sees itself
# only, and if its value is set to 0, so is its output. Then NaN, so that a mistake with finite
# numbers is told by finite numbers; and no token at all.
CASES = [
    *(
        (*sizes, POISON)
        for sizes in (
            (1, 1, 1, 1, 4, 1),
            (2, 2, 1, 1, 4, 2),
            (2, 1, 1, 1, 4, 3),
            (2, 2, 2, 2, 4, 4),
            (3, 4, 1, 1, 4, 5),
            (4, 2, 2, 1, 4, 7),
            (4, 4, 3, 1, 8, 8),
            (5, 4, 3, 3, 8, 9),
            (7, 3, 6, 2, 8, 10),
            (12, 4, 7, 1, 16, 11),
            (13, 4, 4, 4, 5, 12),
            (17, 16, 6, 2, 16, 13),
            (33, 8, 9, 3, 16, 14),
        )
    ),
    (6, 4, 2, 1, 4, 18, 0.0),
    (3, 4, 1, 1, 4, 15, math.nan),
    (6, 4, 3, 1, 8, 16, math.nan),
    (13, 5, 4, 2, 8, 17, math.nan),
    (0, 4, 2, 1, 4, 6, POISON),
]


def hidden(seed):
    """For `Exercise.hidden`: requests whose last block is full, has one token, or some.

    Then NaN behind it, and no token.
    """
    chance = random.Random(seed)
    for number in range(14):
        block_size = chance.randint(2, 6)
        num_kv_heads = chance.randint(1, 3)
        group = chance.choice((1, 2, 3, 5))
        length = block_size * chance.randint(1 + number // 4, 4) - chance.choice(
            (0, 1, block_size - 1)
        )
        yield (
            length if number < 13 else 0,
            block_size,
            group * num_kv_heads,
            num_kv_heads,
            chance.choice((4, 5, 8, 16)),
            chance.randrange(2**31),
            {4: 0.0, 8: 0.0, 11: math.nan, 12: math.nan}.get(number, POISON),
        )


class InputsChanged(Text):
    """The result of an answer that changes what it is given.

    Equal to any other such result.
    """

    def __eq__(self, other):
        return isinstance(other, InputsChanged)

    __hash__ = Text.__hash__


class RaisedWithoutTokens(Text):
    """The result of an answer that raises for a request without a token.

    Equal whatever it raises.
    """

    def __eq__(self, other):
        return isinstance(other, RaisedWithoutTokens)

    __hash__ = Text.__hash__


def one_request(case):
    """q, k, v in blocks, and the number of tokens."""
    length, block_size, num_q_heads, num_kv_heads, head_size, seed, behind = case
    generator = torch.Generator().manual_seed(seed)
    num_blocks = -(-length // block_size)
    q, k, v = (
        torch.randn(num_blocks, block_size, heads, head_size, generator=generator)
        for heads in (num_q_heads, num_kv_heads, num_kv_heads)
    )
    for x in (q, k, v):
        x.view(-1, *x.shape[2:])[length:] = behind
    return q, k, v, length


def observe(answer, case):
    """What an attention function returns for one request.

    Or which of its arguments it changed.
    """
    *before, length = one_request(case)
    given = [x.clone() for x in before]
    try:
        result = answer(*given, length)
    except Exception as error:
        if length > 0 or isinstance(error, NotImplementedError):
            raise
        return RaisedWithoutTokens(f"{type(error).__name__}: {error}")
    return inputs_changed(zip("qkv", given, before, strict=True)) or tensors.values(result)


def inputs_changed(arguments):
    """A result that names the arguments that have changed, or None.

    `arguments`: (name, after, before) for each.
    """
    changed = [name for name, after, before in arguments if not same_bits(after, before)]
    if not changed:
        return None
    return InputsChanged(f"{listed(changed)} {'has' if len(changed) == 1 else 'have'} changed")


def same_bits(one, other):
    """Equal, with NaN equal to NaN."""
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(), other.nan_to_num())
    )


def tells_little(case):
    """For `Exercise.chancy`: a mistake with finite numbers keeps its name.

    It does so whatever the answer does with NaN or no token.
    """
    return case[0] == 0 or math.isnan(case[-1])


def size(case):
    """How many numbers the three tensors have, and the tokens."""
    length, block_size, num_q_heads, num_kv_heads, head_size, *_ = case
    return (
        -(-length // block_size) * block_size * (num_q_heads + 2 * num_kv_heads) * head_size,
        length,
    )


def describe(case):
    length, block_size, num_q_heads, num_kv_heads, head_size, _, behind = case
    num_blocks = -(-length // block_size)
    empty = num_blocks * block_size - length
    poison = "NaN" if math.isnan(behind) else f"{behind:.0f}"
    after = f" ({poison} stands in the {empty} behind the last token)" if empty else ""
    return (
        f"a request of {counted(length, 'token')} in {counted(num_blocks, 'block')} "
        f"of {counted(block_size, 'slot')}{after}; {counted(num_q_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')}, head_size {head_size}"
    )


def in_double(attend):
    """The same attention, accumulated in float64."""
    return lambda q, k, v, length: attend(q.double(), k.double(), v.double(), length)


# Mistakes that exercises 3.1 and 3.4 share. `attend`: a right answer, or one of another
# mistake.


def without_tokens(attend):
    def wrong(q, k, v, length):
        if length == 0:
            raise RuntimeError("there is nothing to attend to")
        return attend(q, k, v, length)

    return wrong


def writes_into_q(attend):
    """Right, and the result lies in the caller's q."""
    return lambda q, k, v, length: q.copy_(attend(q, k, v, length))


def scales_q_in_place(attend):
    def wrong(q, k, v, length):
        o = attend(q, k, v, length)
        q /= math.sqrt(q.shape[-1])
        return o

    return wrong


def zeroes_the_end_in_place(attend):
    """Right, and what stood behind the last token of the caller's v is 0 now."""

    def wrong(q, k, v, length):
        o = attend(q, k, v, length)
        v.view(-1, *v.shape[2:])[length:] = 0
        return o

    return wrong


def inputs_changing(attend):
    """The first form, and the others, of the mistake `inputs-changed`."""
    return writes_into_q(attend), (scales_q_in_place(attend), zeroes_the_end_in_place(attend))


def left_in_q(attend):
    """Right for the tokens, in a copy of q.

    What stood behind the last token of q is there still.
    """

    def wrong(q, k, v, length):
        o = q.clone()
        o.view(-1, *q.shape[2:])[:length] = attend(q, k, v, length).flatten(0, 1)[:length]
        return o

    return wrong
