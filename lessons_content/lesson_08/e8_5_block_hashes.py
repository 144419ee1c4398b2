"""Exercise 8.5: a chain of hashes.

Two requests may share a block when all tokens up to its end are the same. How can one hash say
so much without reading all of them again?

The hash of a block is made of two things: the hash of the block before it, and its own tokens.
For the first block of a call, `parent` is the block before it.

Only whole blocks count: how many are there in len(tokens) tokens, and where does the last one
end?

`hashlib.sha256(data).digest()` takes bytes. An array of integers has `tobytes()`, with as many
bytes for each.
"""

import os
import struct
from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_08 import hash_letters
from lessons_content.lesson_08.hash_letters import LONG, MANY, WIDE
from paged_attention.engine.prefix_cache import block_hashes


@dataclass(frozen=True)
class Call:
    """after: (call, block), the hash of an earlier call that it is given as parent."""

    tokens: tuple[int, ...]
    after: tuple[int, int] | None = None


SIX = Call((1, 2, 3, 4, 5, 6))

# What a hash is made with is free. It counts which hashes are equal, so a result has a letter
# for each different hash.
# (block size, calls)
CASES = [
    (2, [Call((1, 2))]),
    (2, [Call((1,))]),
    (2, [Call(())]),
    (2, [Call((1, 2, 3))]),
    (2, [Call((1, 2, 3, 4))]),
    (2, [Call((1, 2)), Call((1, 2))]),
    (2, [Call((1, 2)), Call((3, 4))]),
    (2, [Call((1, 2)), Call((2, 1))]),
    (2, [Call((1, 3)), Call((2, 3))]),
    (2, [Call((1, 2)), Call((1, 3))]),
    (3, [Call((1, 2, 3)), Call((1, 4, 3))]),
    (2, [Call((1, 2, 1, 2))]),
    (2, [Call((1, 2, 5, 6)), Call((3, 4, 5, 6))]),
    (2, [Call((1, 2, 5, 6, 7, 8)), Call((3, 4, 5, 6, 7, 8))]),
    (2, [Call((1, 2, 3, 4)), Call((3, 4, 1, 2))]),
    (2, [Call((1, 2, 3, 4)), Call((1, 2)), Call((3, 4), (1, 0))]),
    (2, [SIX, Call((1, 2)), Call((3, 4, 5, 6), (1, 0))]),
    (2, [SIX, Call((1, 2, 3, 4)), Call((5, 6), (1, 1)), Call((5, 6), (1, 0))]),
    (2, [Call((1, 2)), Call((3, 4, 5), (0, 0)), Call((3, 4))]),
    (2, [Call((1, 2)), Call((9,), (0, 0))]),
    (2, [Call((1, 23)), Call((12, 3))]),
    (3, [Call((1, 1, 2)), Call((1, 2, 2))]),
    (2, [Call((0, 3)), Call((1, 2))]),
    (2, [Call((0, 0)), Call((0, 256)), Call((1, 0))]),
    (2, [Call((7, 0)), Call((7, 65_536)), Call((7, 151_935))]),
    (2, [Call((1, 256)), Call((257, 0))]),
    (2, [Call((1, 257)), Call((257, 1))]),
    (2, [Call((7, 8)), Call((7, 55_296))]),
    (1, [Call((4, 4, 4))]),
    (1, [Call((4, 5)), Call((5, 5))]),
    (16, [Call(tuple(range(48))), Call((*range(32), *[99] * 16)), Call(tuple(range(31)))]),
    (WIDE, [Call(tuple(range(150_000, 150_000 - LONG * WIDE, -1)))]),
    (1, [Call((token,)) for token in range(MANY)]),
]


def hidden(chance):
    """One token changed, blocks or tokens in another order, a part with its parent."""
    for number in range(6):
        block_size, num_blocks = chance.randint(2, 6), chance.randint(2, 5)
        num_first = chance.randint(1, num_blocks - 1)
        end = block_size * num_first
        num_tokens = block_size * num_blocks + number % block_size
        tokens = tuple(chance.randrange(152_000) for _ in range(num_tokens))
        changed = list(tokens)
        changed[chance.randrange(block_size * num_blocks)] += chance.choice((1, 256, 65_536))
        whole, start, rest = Call(tokens), Call(tokens[:end]), Call(tokens[end:])
        yield block_size, [whole, Call(tuple(changed))]
        yield block_size, [whole, Call(rest.tokens + start.tokens), Call(tokens[::-1])]
        yield block_size, [whole, start, Call(rest.tokens, (1, num_first - 1)), rest]
    one, two, three = (chance.randint(1, 9) for _ in range(3))
    ends = [(one, 10 * two + three), (10 * one + two, three), (one + 1, 10 * two + three - 1)]
    yield 2, [Call(tokens) for tokens in ends]
    first = chance.randint(1, 9_999)
    yield 1, [Call((token,)) for token in range(first, first + MANY)]
    yield WIDE, [Call(tuple(chance.randrange(2**17, 152_000) for _ in range(LONG * WIDE)))]


EXERCISE = exercise(
    globals(),
    hash_letters,
    answer_name="block_hashes",
    size=lambda case: (len(case[1]), sum(len(call.tokens) for call in case[1])),
    chancy=lambda case: len(case[1]) == MANY,  # with three bytes some are the same, or none
)
