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

import operator
import os
import string
import struct
from collections.abc import Hashable
from dataclasses import dataclass

import torch

from lessons_content.exercises.kit import Text, counted, exercise, listed
from paged_attention.engine.prefix_cache import block_hashes


@dataclass(frozen=True)
class Call:
    """after: (call, block), the hash of an earlier call that it is given as parent."""

    tokens: tuple[int, ...]
    after: tuple[int, int] | None = None


MANY = 1_500  # blocks, among which hashes of one or two bytes cannot all be different
# bytes of a hash: with fewer, blocks that differ get the same one where a server has millions
# of them
ENOUGH = 8
# LONG blocks of WIDE tokens, each of 17 bits: nothing that is made of them and fits in
# fewer bytes than ENOUGH can tell them all apart.
LONG, WIDE = 32, 16

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


def observe(answer, case):
    block_size, calls = case
    results = []
    for call in calls:
        tokens = list(call.tokens)
        more = [results[call.after[0]][call.after[1]]] if call.after else []
        result = answer(tokens, block_size, *more)
        if not isinstance(result, list | tuple):
            return Text(f"{type(result).__name__} instead of a list")
        if call is calls[0] and _goes_on(answer, result, list(call.tokens), block_size):
            return Text("a list that grows with the next call")
        if any(hasattr(value, "hexdigest") for value in result):
            return Text("a list of objects that could go on hashing")
        for value in result:
            if not isinstance(value, Hashable):
                return Text(f"a list of {type(value).__name__}, which cannot be looked up")
        if tokens != list(call.tokens):
            return Text(f"the list of tokens was changed to {tokens}")
        results.append(list(result))
    if len(calls) == MANY:  # which ones are mixed up is left to chance
        hashes = [value for result in results for value in result]
        how_many = "all" if len(set(hashes)) == len(hashes) else "not all"
        kinds = listed(sorted({type(value).__name__ for value in hashes}))
        return Text(f"{len(hashes):,} hashes, {how_many} different, of the type {kinds}")
    if len(calls[0].tokens) == LONG * WIDE:
        return Text(f"{len(results[0])} hashes, {_room(results[0])}")
    letters = {}
    return tuple(
        tuple(letters.setdefault(value, _letter(len(letters))) for value in result)
        for result in results
    )


def _goes_on(answer, result, tokens, block_size) -> bool:
    """Whether each call returns the same list, which grows, or holds too much already."""
    num_hashes = min(len(result), len(tokens) // block_size)
    return answer(tokens, block_size) is result and len(result) > num_hashes


def _room(hashes) -> str:
    """How large they are. Small numbers may be places in a table, which mixes nothing up."""
    sizes = {len(value) for value in hashes if isinstance(value, bytes)}
    if hashes and all(hasattr(value, "__index__") for value in hashes):
        most = max(abs(operator.index(value)) for value in hashes)
        sizes = {(most.bit_length() + 7) // 8} if most >= 2**20 else set()
    elif hashes and all(_is_hexadecimal(value) for value in hashes):
        sizes = {len(value) // 2 for value in hashes}
    most = max(sizes, default=ENOUGH)
    return f"of {counted(most, 'byte')}" if most < ENOUGH else f"of {ENOUGH} bytes or more"


def _is_hexadecimal(value) -> bool:
    return isinstance(value, str) and set(value) <= set(string.hexdigits)


def _letter(number: int) -> str:
    """A to Z, then A2 to Z2, and so on."""
    more = str(number // 26 + 1) if number >= 26 else ""
    return string.ascii_uppercase[number % 26] + more


def describe(case):
    block_size, calls = case
    if len(calls) == MANY:
        first, last = (list(call.tokens) for call in (calls[0], calls[-1]))
        return f"block_hashes({first}, 1), and so on to block_hashes({last}, 1)"
    texts = []
    for call in calls:
        tokens, after = ", ".join(map(str, call.tokens)), ""
        if len(call.tokens) > 8:
            tokens = f"{call.tokens[0]}, …, {call.tokens[-1]}"
        if call.after:
            after = f", hash {call.after[1] + 1} of call {call.after[0] + 1}"
        texts.append(f"block_hashes([{tokens}], {block_size}{after})")
    return ", then ".join(texts)


def show(expected, actual):
    if isinstance(actual, Text):
        return expected if isinstance(expected, Text) else _letters(expected), actual
    if len(actual) == 1 and len(expected[0]) != len(actual[0]):
        numbers = [len(hashes) for (hashes,) in (expected, actual)]
        return tuple("1 hash" if number == 1 else f"{number} hashes" for number in numbers)
    return _letters(expected), _letters(actual)


def _letters(result):
    calls = [" ".join(hashes) or "none" for hashes in result]
    if len(calls) > 1:
        calls = [f"call {number}: {hashes}" for number, hashes in enumerate(calls, 1)]
    return f"{'; '.join(calls)} (equal letters are equal hashes)"


EXERCISE = exercise(
    globals(),
    answer_name="block_hashes",
    size=lambda case: (len(case[1]), sum(len(call.tokens) for call in case[1])),
    chancy=lambda case: len(case[1]) == MANY,  # with three bytes some are the same, or none
)
