"""Requests to attend to, made from a few numbers: what the checks of lesson 03 share."""

import torch

from lessons_lib.checks import Text
from solutions.checks import tensors

POISON = 1e4  # behind each request's last token: large, so that reading it shows

# (tokens, block size, query heads, KV heads, head size, seed), smallest first
CASES = [
    (1, 1, 1, 1, 4, 1), (2, 2, 1, 1, 4, 2), (2, 1, 1, 1, 4, 3), (2, 2, 2, 2, 4, 4), (3, 4, 1, 1, 4, 5), (0, 4, 2, 1, 4, 6),
    (4, 2, 2, 1, 4, 7), (4, 4, 3, 1, 8, 8), (5, 4, 3, 3, 8, 9), (7, 3, 6, 2, 8, 10), (12, 4, 7, 1, 16, 11),
    (13, 4, 4, 4, 5, 12), (17, 16, 6, 2, 16, 13), (33, 8, 9, 3, 16, 14),
]


def one_request(case):
    """q, k, v in blocks, and the number of tokens."""
    length, block_size, num_q_heads, num_kv_heads, head_size, seed = case
    generator = torch.Generator().manual_seed(seed)
    num_blocks = -(-length // block_size)
    q, k, v = (torch.randn(num_blocks, block_size, heads, head_size, generator=generator)
               for heads in (num_q_heads, num_kv_heads, num_kv_heads))
    for x in (q, k, v):
        x.view(-1, *x.shape[2:])[length:] = POISON
    return q, k, v, length


def observe(answer, case):
    """What an attention function returns for one request, or which of its arguments it changed."""
    *before, length = one_request(case)
    given = [x.clone() for x in before]
    result = answer(*given, length)
    changed = [name for name, x, kept in zip("qkv", given, before, strict=True) if not torch.equal(x, kept)]
    return Text(f"the argument {' and '.join(changed)} has changed") if changed else tensors.values(result)


def describe(case):
    length, block_size, num_q_heads, num_kv_heads, head_size, _ = case
    num_blocks = -(-length // block_size)
    behind = num_blocks * block_size - length
    return f"a request of {counted(length, 'token')} in {counted(num_blocks, 'block')} of {counted(block_size, 'slot')}" \
           f"{f' ({POISON:.0f} stands in the {behind} behind the last token)' if behind else ''}; " \
           f"{counted(num_q_heads, 'query head')}, {counted(num_kv_heads, 'KV head')}, head_size {head_size}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def in_double(attend):
    """The same attention, accumulated in float64."""
    return lambda q, k, v, length: attend(q.double(), k.double(), v.double(), length)
