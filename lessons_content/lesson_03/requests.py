"""Requests to attend to, made from a few numbers: what the checks of lesson 03 share."""

import math

import torch

from lessons_content.exercises import tensors
from lessons_content.exercises.naming_words import Alike, counted, listed, named_where

POISON = 1e4  # after each request's last token: large, so that reading it shows
FEW = 12  # a request of at most this many numbers has simple ones, and a message shows them

# (tokens, block size, query heads, KV heads, head size, seed, what is after the last token).
# The smallest first; then 0 after the end: a query made of large numbers sees itself only, and
# if its value is set to 0, so is its output. Then NaN, so that a mistake with finite numbers
# is told by finite numbers; and no token at all.
CASES = [
    (1, 1, 1, 1, 2, 1, POISON),
    (2, 2, 1, 1, 1, 2, POISON),
    (1, 1, 4, 2, 1, 3, POISON),
    (2, 2, 1, 1, 2, 4, POISON),
    (2, 1, 1, 1, 2, 5, POISON),
    (2, 2, 2, 2, 1, 6, POISON),
    (3, 4, 1, 1, 1, 7, POISON),
    (2, 2, 2, 2, 4, 4, POISON),
    (3, 4, 1, 1, 4, 5, POISON),
    (4, 2, 2, 1, 4, 7, POISON),
    (4, 4, 3, 1, 4, 8, POISON),
    (5, 4, 3, 3, 4, 9, POISON),
    (7, 3, 6, 2, 4, 31, POISON),
    (12, 4, 7, 1, 2, 11, POISON),
    (13, 4, 4, 4, 3, 30, POISON),
    (17, 16, 6, 2, 2, 13, POISON),
    (33, 8, 6, 3, 2, 575, POISON),
    (6, 4, 2, 1, 4, 18, 0.0),
    (3, 4, 1, 1, 1, 15, math.nan),
    (6, 4, 3, 1, 2, 16, math.nan),
    (13, 5, 4, 2, 2, 17, math.nan),
    (0, 4, 2, 1, 4, 6, POISON),
]


def hidden(chance):
    """Requests whose last block is full, has one token, or some.

    Then NaN after it, and no token.
    """
    for number in range(14):
        block_size, num_kv_heads = chance.randint(2, 6), chance.randint(1, 3)
        num_q_heads = num_kv_heads * chance.choice((1, 2, 3, 5))
        length = block_size * chance.randint(1 + number // 4, 4)
        length = (length - chance.choice((0, 1, block_size - 1))) * (number < 13)
        sizes = length, block_size, num_q_heads, num_kv_heads, chance.choice((4, 5, 8, 16))
        after = {4: 0.0, 8: 0.0, 11: math.nan, 12: math.nan}.get(number, POISON)
        yield *sizes, chance.randrange(2**31), after


class InputsChanged(Alike):
    """The result of an answer that changes what it is given."""


def one_request(case):
    """q, k, v in blocks, and the number of tokens."""
    length, block_size, num_q_heads, num_kv_heads, head_size, seed, after = case
    slots = -(-length // block_size), block_size
    of_q, of_k = (*slots, num_q_heads, head_size), (*slots, num_kv_heads, head_size)
    generator = torch.Generator().manual_seed(seed)
    if num_numbers(case) > FEW:
        q, k, v = (torch.randn(shape, generator=generator) for shape in (of_q, of_k, of_k))
    else:
        q, k, v = simple(of_q, generator), simple(of_k, generator), tens(of_k)
    for x in (q, k, v):
        x.view(-1, *x.shape[2:])[length:] = after
    return q, k, v, length


def num_numbers(case):
    """How many numbers q, k and v have together."""
    length, block_size, num_q_heads, num_kv_heads, head_size, *_ = case
    num_blocks = -(-length // block_size)
    return num_blocks * block_size * (num_q_heads + 2 * num_kv_heads) * head_size


def simple(shape, generator):
    """A few different numbers, as a tensor."""
    numbers = torch.tensor([1.0, 2, -1, 0.5, -2, 1.5, 3, -0.5, 4, -1.5, 2.5, -3])
    chosen = torch.randperm(len(numbers), generator=generator)[: math.prod(shape)]
    return numbers[chosen].view(shape)


def tens(shape, keys_before=0):
    """10, 20, 30 and so on, after as many keys."""
    first = 1.0 + keys_before * shape[-1]
    return 10 * torch.arange(first, first + math.prod(shape)).view(shape)


def observe(answer, case):
    """What an attention function returns for one request, or what arguments it changed."""
    *before, length = one_request(case)
    given = [x.clone() for x in before]

    def run():
        result = tensors.values(answer(*given, length))
        return inputs_changed(zip("qkv", given, before, strict=True)) or result

    return named_where(length == 0, run)


def inputs_changed(arguments):
    """A result that names the arguments that have changed, or None.

    `arguments`: (name, after, before) for each.
    """
    changed = [name for name, *both in arguments if not tensors.same_bits(*both)]
    if not changed:
        return None
    return InputsChanged(f"{listed(changed)} {'has' if len(changed) == 1 else 'have'} changed")


def tells_little(case):
    """For `Exercise.chancy`: mistakes keep their names, whatever NaN or no token gives."""
    return case[0] == 0 or math.isnan(case[-1])


def size(case):
    """How many numbers the three tensors have, and the tokens."""
    return num_numbers(case), case[0]


def describe(case):
    length, block_size, num_q_heads, num_kv_heads, head_size, _, after = case
    num_blocks = -(-length // block_size)
    empty = num_blocks * block_size - length
    number = "NaN" if math.isnan(after) else f"{after:.0f}"
    slots = "the slot" if empty == 1 else f"the {empty} slots"
    end = f" ({number} in {slots} after the last token)" if empty else ""
    words = (
        f"a request of {counted(length, 'token')} in {counted(num_blocks, 'block')} "
        f"of {counted(block_size, 'slot')}{end}; {counted(num_q_heads, 'query head')}, "
        f"{counted(num_kv_heads, 'KV head')}, head_size {head_size}"
    )
    if not 0 < num_numbers(case) <= FEW:
        return words
    shown = (f"{name} = {in_digits(x)}" for name, x in zip("qkv", one_request(case)))
    return f"{words}; {', '.join(shown)}"


def in_digits(x):
    """The tensor's numbers in brackets: [[1., 0.5], [nan, -2.]]."""
    if isinstance(x, torch.Tensor):
        x = x.tolist()
    if isinstance(x, list):
        return f"[{', '.join(map(in_digits, x))}]"
    return f"{x:.0f}." if x == round(x, 0) and abs(x) < 1e9 else f"{x:g}"
