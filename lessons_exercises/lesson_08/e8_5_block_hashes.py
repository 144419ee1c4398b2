"""Exercise 8.5: a hash for each full block.

What a hash is made with is free; what counts is which hashes are equal. A result has a letter
for each different hash.
"""

import hashlib
import operator
import random
import string
import struct
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import torch

from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.engine.prefix_cache import block_hashes


@dataclass(frozen=True)
class Call:
    """A call with these tokens.

    after: (call, block), the hash of an earlier call that it is given as parent.
    """

    tokens: tuple[int, ...]
    after: tuple[int, int] | None = None


def digest(*parts) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def full_blocks(tokens, block_size):
    return [
        tokens[end - block_size : end]
        for end in range(block_size, len(tokens) + 1, block_size)
    ]


def chain(blocks, parent, own=tuple):
    """The right hashes of blocks, but for what is taken of each: own(block)."""
    hashes = []
    for block in blocks:
        parent = digest(parent, own(block))
        hashes.append(parent)
    return hashes


def with_own(own):
    """The right function, but for what it takes of each block."""

    def wrong(tokens, block_size, parent=b""):
        return chain(full_blocks(tokens, block_size), parent, own)

    return wrong


def cut_to(num_bytes):
    """The right function, but for hashes so short that different blocks get the same one."""

    def wrong(tokens, block_size, parent=b""):
        hashes = []
        for block in full_blocks(tokens, block_size):
            parent = digest(parent, block)[:num_bytes]
            hashes.append(parent)
        return hashes

    return wrong


def not_chained(tokens, block_size, parent=b""):
    return [digest(block) for block in full_blocks(tokens, block_size)]


def not_chained_but_for_the_parent(tokens, block_size, parent=b""):
    return [digest(parent, block) for block in full_blocks(tokens, block_size)]


def parent_for_the_first_alone(tokens, block_size, parent=b""):
    blocks = full_blocks(tokens, block_size)
    return [
        digest(parent if number == 0 else b"", block) for number, block in enumerate(blocks)
    ]


def parent_ignored(tokens, block_size, parent=b""):
    return chain(full_blocks(tokens, block_size), b"")


def chained_to_the_block_before(tokens, block_size, parent=b""):
    """Each hash takes in the tokens of the block before it, in place of that block's hash."""
    blocks = full_blocks(tokens, block_size)
    return [
        digest(before, block) for before, block in zip([parent, *blocks], blocks, strict=False)
    ]


def with_the_tokens_before(tokens, block_size, parent=b""):
    """Each hash is made of the tokens of two blocks, its own and the one before."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [digest(parent, tokens[max(0, end - 2 * block_size) : end]) for end in ends]


def place_for_chain(unit):
    """Each hash takes in where its block stands, in place of what stands before it."""

    def wrong(tokens, block_size, parent=b""):
        return [
            digest(number * unit(block_size), block)
            for number, block in enumerate(full_blocks(tokens, block_size))
        ]

    return wrong


def with_its_number(tokens, block_size, parent=b""):
    hashes = []
    for number, block in enumerate(full_blocks(tokens, block_size)):
        parent = digest(parent, number, block)
        hashes.append(parent)
    return hashes


def with_the_number_of_tokens(tokens, block_size, parent=b""):
    return chain([(len(tokens), *block) for block in full_blocks(tokens, block_size)], parent)


def one_for_each_token(only_full):
    def wrong(tokens, block_size, parent=b""):
        return chain(
            [
                [token]
                for token in tokens[
                    : len(tokens) // block_size * block_size if only_full else None
                ]
            ],
            parent,
        )

    return wrong


def text_for_hashes(encoded, parent_first=True):
    """hexdigest() in place of digest().

    encoded: turns it into bytes for the next block of the same call.
    """

    def wrong(tokens, block_size, parent=b""):
        hashes = []
        for block in full_blocks(tokens, block_size):
            own = repr(block).encode()
            hashes.append(
                hashlib.sha256(parent + own if parent_first else own + parent).hexdigest()
            )
            parent = hashes[-1].encode() if encoded else hashes[-1]
        return hashes

    return wrong


def all_tokens_of_the_call(tokens, block_size, parent=b""):
    return [
        digest(parent, tokens[:end]) for end in range(block_size, len(tokens) + 1, block_size)
    ]


def rest_hashed(tokens, block_size, parent=b""):
    return chain(
        [tokens[start : start + block_size] for start in range(0, len(tokens), block_size)],
        parent,
    )


def rest_hashed_alone(tokens, block_size, parent=b""):
    return [
        digest(tokens[start : start + block_size])
        for start in range(0, len(tokens), block_size)
    ]


def one_too_many(tokens, block_size, parent=b""):
    number = len(tokens) // block_size + 1
    return chain(
        [tokens[index * block_size : (index + 1) * block_size] for index in range(number)],
        parent,
    )


def from_each_token(tokens, block_size, parent=b""):
    return chain(
        [tokens[start : start + block_size] for start in range(len(tokens) - block_size + 1)],
        parent,
    )


def ends_at_the_first_end(tokens, block_size, parent=b""):
    """tokens[start : block_size], where the end should move on with the start."""
    return chain(
        [
            tokens[start:block_size]
            for start in range(0, len(tokens) - block_size + 1, block_size)
        ],
        parent,
    )


def starts_at_the_number(tokens, block_size, parent=b""):
    """The number of a block taken for the position of its first token."""
    return chain(
        [tokens[number : number + block_size] for number in range(len(tokens) // block_size)],
        parent,
    )


def backwards(tokens, block_size, parent=b""):
    return chain(full_blocks(tokens, block_size)[::-1], parent)[::-1]


def the_first_alone(tokens, block_size, parent=b""):
    return block_hashes(tokens, block_size, parent)[:1]


def the_first_or_nothing(tokens, block_size, parent=b""):
    """Returns inside the loop, and nothing where the loop has no turn."""
    return block_hashes(tokens, block_size, parent)[:1] or None


def tokens_used_up(tokens, block_size, parent=b""):
    hashes = block_hashes(tokens, block_size, parent)
    del tokens[: len(hashes) * block_size]
    return hashes


def raw(to_bytes):
    """The right function, but for the bytes of a block.

    With what Python says where there are none.
    """

    def wrong(tokens, block_size, parent=b""):
        hashes = []
        for block in full_blocks(tokens, block_size):
            parent = hashlib.sha256(parent + to_bytes(block)).digest()
            hashes.append(parent)
        return hashes

    return wrong


def without_parent(to_data):
    def wrong(tokens, block_size, parent=b""):
        return [
            hashlib.sha256(to_data(block)).digest()
            for block in full_blocks(tokens, block_size)
        ]

    return wrong


def as_many_bytes_as_needed(order):
    return lambda block: b"".join(
        token.to_bytes(max(1, (token.bit_length() + 7) // 8), order) for token in block
    )


def as_characters(block):
    return "".join(map(chr, block)).encode()


def last_block_missing(tokens, block_size, parent=b""):
    return block_hashes(tokens[:-1], block_size, parent)


def last_full_block_missing(tokens, block_size, parent=b""):
    return block_hashes(tokens, block_size, parent)[:-1]


def one_for_the_whole(tokens, block_size, parent=b""):
    return [digest(parent, tokens)]


def one_for_the_full_blocks(tokens, block_size, parent=b""):
    return block_hashes(tokens, block_size, parent)[-1:]


def the_last_or_the_parent(tokens, block_size, parent=b""):
    return [[parent, *block_hashes(tokens, block_size, parent)][-1]]


def kept_between_calls(tokens, block_size, parent=b"", kept={}):
    """Keeps the hashes while it is asked for the same tokens.

    So no case finds those of the case before.
    """
    if kept.get("tokens") != tokens:
        kept.update(tokens=list(tokens), hashes=[])
    kept["hashes"].extend(block_hashes(tokens, block_size, parent))
    return kept["hashes"]


def the_last_for_all(tokens, block_size, parent=b""):
    hashes = block_hashes(tokens, block_size, parent)
    return hashes[-1:] * len(hashes)


def the_last_for_all_if_any(tokens, block_size, parent=b""):
    hashes = block_hashes(tokens, block_size, parent)
    return [hashes[-1]] * len(hashes)


def swallows_order_of_blocks(tokens, block_size, parent=b""):
    total = int.from_bytes(parent, "big")
    hashes = []
    for block in full_blocks(tokens, block_size):
        total ^= int.from_bytes(digest(block), "big")
        hashes.append(total.to_bytes(32, "big"))
    return hashes


def sums_up_hashes(tokens, block_size, parent=b""):
    total = int.from_bytes(parent, "big")
    hashes = []
    for block in full_blocks(tokens, block_size):
        total += int.from_bytes(digest(block), "big")
        hashes.append(total.to_bytes(40, "big"))
    return hashes


def parent_among_them(tokens, block_size, parent=b""):
    return [parent, *block_hashes(tokens, block_size, parent)]


def given_parent_among_them(tokens, block_size, parent=b""):
    return [*([parent] if parent else []), *block_hashes(tokens, block_size, parent)]


def new_each_time(tokens, block_size, parent=b""):
    return [object() for _ in full_blocks(tokens, block_size)]


def digits(block):
    return "".join(map(str, block))


def number_of_two_bytes(tokens, block_size, parent=b""):
    hashes = []
    for block in full_blocks(tokens, block_size):
        parent = int.from_bytes(digest(parent, block)[:2], "big")
        hashes.append(parent)
    return hashes


MANY = 1_500  # blocks, among which hashes of one or two bytes cannot all be different
# bytes of a hash: with fewer, blocks that differ get the same one where a server has millions
# of them
ENOUGH = 8
# So many blocks of so many tokens, each of 17 bits: nothing that is made of them and fits in
# fewer bytes than ENOUGH can tell them all apart.
LONG, WIDE = 32, 16

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
    (2, [Call((1, 2, 3, 4, 5, 6)), Call((1, 2)), Call((3, 4, 5, 6), (1, 0))]),
    (
        2,
        [
            Call((1, 2, 3, 4, 5, 6)),
            Call((1, 2, 3, 4)),
            Call((5, 6), (1, 1)),
            Call((5, 6), (1, 0)),
        ],
    ),
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
    (
        16,
        [Call(tuple(range(48))), Call(tuple(range(32)) + (99,) * 16), Call(tuple(range(31)))],
    ),
    (WIDE, [Call(tuple(range(150_000, 150_000 - LONG * WIDE, -1)))]),
    (1, [Call((token,)) for token in range(MANY)]),
]


def hidden(seed):
    """Texts and what is nearly the same.

    One token changed, blocks or tokens in another order, a part with its parent.
    """
    chance = random.Random(seed)
    for number in range(6):
        block_size, num_blocks = chance.randint(2, 6), chance.randint(2, 5)
        num_first = chance.randint(1, num_blocks - 1)
        end = block_size * num_first
        tokens = tuple(
            chance.randrange(152_000)
            for _ in range(block_size * num_blocks + number % block_size)
        )
        place = chance.randrange(block_size * num_blocks)
        changed = (
            *tokens[:place],
            tokens[place] + chance.choice((1, 256, 65_536)),
            *tokens[place + 1 :],
        )
        yield block_size, [Call(tokens), Call(changed)]
        yield block_size, [Call(tokens), Call(tokens[end:] + tokens[:end]), Call(tokens[::-1])]
        yield (
            block_size,
            [
                Call(tokens),
                Call(tokens[:end]),
                Call(tokens[end:], (1, num_first - 1)),
                Call(tokens[end:]),
            ],
        )
    one = chance.randint(1, 9)
    two = chance.randint(1, 9)
    three = chance.randint(1, 9)
    yield (
        2,
        [
            Call((one, 10 * two + three)),
            Call((10 * one + two, three)),
            Call((one + 1, 10 * two + three - 1)),
        ],
    )
    first = chance.randint(1, 9_999)
    yield 1, [Call((token,)) for token in range(first, first + MANY)]
    yield WIDE, [Call(tuple(chance.randrange(2**17, 152_000) for _ in range(LONG * WIDE)))]


def observe(answer, case):
    block_size, calls = case
    results = []
    for call in calls:
        tokens = list(call.tokens)
        more = () if call.after is None else (results[call.after[0]][call.after[1]],)
        result = answer(tokens, block_size, *more)
        if not isinstance(result, list | tuple):
            return Text(f"{type(result).__name__}, in place of a list")
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
        return Text(
            f"{len(hashes):,} hashes, "
            f"{'all' if len(set(hashes)) == len(hashes) else 'not all'} different"
        )
    if len(calls[0].tokens) == LONG * WIDE:
        return Text(f"{len(results[0])} hashes, {_room(results[0])}")
    letters = {}
    return tuple(
        tuple(letters.setdefault(value, _letter(len(letters))) for value in result)
        for result in results
    )


def _goes_on(answer, result, tokens, block_size) -> bool:
    """Whether another call returns the very same list, with more in it.

    Or whether the list holds more than this call's hashes.
    """
    num_hashes = min(len(result), len(tokens) // block_size)
    return answer(tokens, block_size) is result and len(result) > num_hashes


def _room(hashes) -> str:
    """How large they are.

    Small numbers are taken for places in a table of all that has come, which mixes nothing up.
    """
    sizes = {len(value) for value in hashes if isinstance(value, bytes)}
    if hashes and all(hasattr(value, "__index__") for value in hashes):
        most = max(abs(operator.index(value)) for value in hashes)
        sizes = {(most.bit_length() + 7) // 8} if most >= 2**20 else set()
    elif hashes and all(
        isinstance(value, str) and set(value) <= set(string.hexdigits) for value in hashes
    ):
        sizes = {len(value) // 2 for value in hashes}
    most = max(sizes, default=ENOUGH)
    return (
        f"of {ENOUGH} bytes or more"
        if most >= ENOUGH
        else f"of {most} byte{'' if most == 1 else 's'}"
    )


def _letter(number: int) -> str:
    """A to Z, then A2 to Z2, and so on."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26] + (
        str(number // 26 + 1) if number >= 26 else ""
    )


def describe(case):
    block_size, calls = case
    if len(calls) == MANY:
        return (
            f"block_hashes({list(calls[0].tokens)}, 1), "
            f"and so on to block_hashes({list(calls[-1].tokens)}, 1)"
        )
    texts = []
    for call in calls:
        long = len(call.tokens) > 8
        tokens = (
            f"{call.tokens[0]}, …, {call.tokens[-1]}"
            if long
            else ", ".join(map(str, call.tokens))
        )
        after = (
            ""
            if call.after is None
            else f", hash {call.after[1] + 1} of call {call.after[0] + 1}"
        )
        texts.append(f"block_hashes([{tokens}], {block_size}{after})")
    return ", then ".join(texts)


def show(expected, actual):
    if isinstance(actual, Text):
        return expected if isinstance(expected, Text) else _letters(expected), actual
    if len(actual) == 1 and len(expected[0]) != len(actual[0]):
        return tuple(
            f"{len(hashes)} hash{'' if len(hashes) == 1 else 'es'}"
            for (hashes,) in (expected, actual)
        )
    return _letters(expected), _letters(actual)


def _letters(result):
    calls = [" ".join(hashes) or "none" for hashes in result]
    numbered = (
        [f"call {number}: {hashes}" for number, hashes in enumerate(calls, 1)]
        if len(calls) > 1
        else calls
    )
    return f"{'; '.join(numbered)} (equal letters are equal hashes)"


EXERCISE = Exercise(
    id="8.5",
    title="a chain of hashes",
    answer_name="block_hashes",
    reference=block_hashes,
    cases=lambda: CASES,
    size=lambda case: (len(case[1]), sum(len(call.tokens) for call in case[1])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    show=show,
    chancy=lambda case: len(case[1]) == MANY,  # with three bytes some are the same, or none
    mistakes=(
        Mistake(
            "not-chained",
            "A block with the same tokens has the same hash behind another prefix. "
            "Its keys and values were computed from everything before it, "
            "so it is another block. What has to go into its hash?",
            not_chained,
            also=(
                not_chained_but_for_the_parent,
                parent_for_the_first_alone,
                place_for_chain(lambda block_size: 1),
                place_for_chain(lambda block_size: block_size),
            ),
        ),
        Mistake(
            "hash-too-short",
            "Your hashes are so short that some of many different blocks have the same one, "
            "and a request would be given another's keys. "
            "How many different hashes can there be?",
            cut_to(2),
            also=(*map(cut_to, (1, 3, 4, 5, 6, 7)), number_of_two_bytes),
        ),
        Mistake(
            "only-the-block-before",
            "A hash knows the tokens of its own block and of the one before. "
            "Further back everything may differ.",
            chained_to_the_block_before,
            also=(with_the_tokens_before,),
        ),
        Mistake(
            "parent-ignored",
            "The chain starts anew although `parent` was given: "
            "these tokens stand behind others.",
            parent_ignored,
        ),
        Mistake(
            "depends-on-the-calls",
            "Tokens that come in two calls, the second with the parent of the first, "
            "have other hashes than the same tokens in one call. "
            "A block's hash may use only its own tokens and the hash of the block before it.",
            all_tokens_of_the_call,
            also=(with_its_number, with_the_number_of_tokens),
        ),
        Mistake(
            "rest-hashed",
            "The tokens behind the last full block have got a hash too. "
            "Their block will change with the next token.",
            rest_hashed,
            also=(rest_hashed_alone,),
        ),
        Mistake(
            "one-hash-too-many",
            "There is always a hash more than there are full blocks. "
            "Behind the last full block may be nothing at all.",
            one_too_many,
        ),
        Mistake(
            "blocks-overlap",
            "There is a hash for every token at which a block could begin. "
            "How far apart do two blocks begin?",
            from_each_token,
        ),
        Mistake(
            "one-for-each-token",
            "There is a hash for each token. A block has one, made of all its tokens.",
            one_for_each_token(True),
            also=(one_for_each_token(False),),
        ),
        Mistake(
            "block-size-16",
            "You cut blocks of 16 tokens. These have another size, `block_size`.",
            lambda tokens, block_size, parent=b"": block_hashes(tokens, 16, parent),
        ),
        Mistake(
            "other-tokens-hashed",
            "The first block's hash is right, and a later one is not made "
            "of its own block's tokens. Print your slice for each block.",
            starts_at_the_number,
            also=(ends_at_the_first_end,),
        ),
        Mistake(
            "last-block-missing",
            "The tokens fill their last block exactly, and it has no hash. "
            "Look at where your loop ends.",
            last_block_missing,
            also=(last_full_block_missing,),
        ),
        Mistake(
            "only-the-first-block",
            "Only the first block has got a hash. Does your loop return in its first turn?",
            the_first_alone,
            also=(the_first_or_nothing,),
        ),
        Mistake(
            "not-a-list",
            "What comes back is not a list. "
            "There is one hash for each full block, in their order.",
            lambda tokens, block_size, parent=b"": (
                hash for hash in block_hashes(tokens, block_size, parent)
            ),
            also=(
                lambda tokens, block_size, parent=b"": b"".join(
                    block_hashes(tokens, block_size, parent)[-1:]
                ),
                lambda tokens, block_size, parent=b"": dict(
                    enumerate(block_hashes(tokens, block_size, parent))
                ),
                lambda tokens, block_size, parent=b"": set(
                    block_hashes(tokens, block_size, parent)
                ),
                lambda tokens, block_size, parent=b"": None,
            ),
        ),
        Mistake(
            "digest-not-called",
            "`hashlib.sha256(...)` is an object to which more could be added. "
            "The hash itself is what its `digest()` gives.",
            lambda tokens, block_size, parent=b"": [
                hashlib.sha256() for _ in full_blocks(tokens, block_size)
            ],
        ),
        Mistake(
            "not-bytes",
            "`sha256` takes bytes, and it was given numbers or text. "
            "How can tokens become bytes, other tokens other bytes?",
            without_parent(lambda block: block),
            also=(without_parent(str), raw(lambda block: block), raw(str)),
        ),
        Mistake(
            "text-for-hashes",
            "Your hashes are text, and one of them comes back as `parent`. "
            "Bytes and text cannot be joined: which method of a hash gives bytes?",
            text_for_hashes(False),
            also=(
                text_for_hashes(True),
                text_for_hashes(False, False),
                text_for_hashes(True, False),
            ),
        ),
        Mistake(
            "tokens-changed",
            "The list of tokens was changed. It belongs to the caller.",
            tokens_used_up,
        ),
        Mistake(
            "order-of-tokens-lost",
            "The same tokens in another order have the same hash.",
            with_own(sorted),
            also=(with_own(sum), with_own(lambda block: sorted(set(block)))),
        ),
        Mistake(
            "order-of-blocks-lost",
            "Two blocks in the other order end with the same hash. "
            "Adding and xor do not know which came first.",
            swallows_order_of_blocks,
            also=(sums_up_hashes,),
        ),
        Mistake(
            "digits-joined",
            "Two blocks of other tokens have the same hash, as [1, 23] and [12, 3] "
            "with their digits in a row: where one number ends and the next begins is lost.",
            with_own(digits),
            also=tuple(
                with_own(as_many_bytes_as_needed(order)) for order in ("big", "little")
            ),
        ),
        Mistake(
            "not-every-token-is-a-character",
            "Some numbers are no character that can be encoded, and tokens are numbers "
            "of any size. Turn them into bytes in a way that takes every number.",
            raw(as_characters),
        ),
        Mistake(
            "tokens-cut-short",
            "Tokens that differ need hashes that differ. "
            "Yours has room for one or two bytes of each, and a vocabulary is larger.",
            with_own(lambda block: [token % 256 for token in block]),
            also=(
                with_own(lambda block: [token % 65_536 for token in block]),
                with_own(bytes),
                *map(
                    raw,
                    (
                        lambda block: b"".join(token.to_bytes(2, "big") for token in block),
                        lambda block: struct.pack(f"{len(block)}B", *block),
                        lambda block: struct.pack(f"{len(block)}H", *block),
                        lambda block: np.array(block, dtype=np.uint8).tobytes(),
                        lambda block: torch.tensor(block, dtype=torch.uint8).numpy().tobytes(),
                    ),
                ),
            ),
        ),
        Mistake(
            "token-left-out",
            "Two blocks that differ in one token have the same hash. "
            "One end of each block is left out.",
            with_own(lambda block: block[:-1]),
            also=(
                with_own(lambda block: block[1:]),
                with_own(lambda block: block[:1]),
                with_own(lambda block: block[-1:]),
            ),
        ),
        Mistake(
            "one-hash-for-the-whole",
            "There is one hash for all tokens. "
            "Each full block has its own, so that a shorter beginning can be found.",
            one_for_the_full_blocks,
            also=(one_for_the_whole, the_last_or_the_parent),
        ),
        Mistake(
            "list-kept-between-calls",
            "The hashes of an earlier call are still in the list at the next one. "
            "A default value and a list outside the function are made once; "
            "each call needs a list of its own.",
            kept_between_calls,
        ),
        Mistake(
            "chained-backwards",
            "A block's hash knows what stands behind it in place of what stands before it.",
            backwards,
        ),
        Mistake(
            "the-last-hash-for-all",
            "Every block has the hash of the last one. "
            "A block's hash may know nothing of what comes behind it.",
            the_last_for_all,
            also=(the_last_for_all_if_any,),
        ),
        Mistake(
            "parent-among-the-hashes",
            "There is a hash more than there are full blocks: the parent stands first. "
            "It belongs to an earlier block.",
            parent_among_them,
            also=(given_parent_among_them,),
        ),
        Mistake(
            "never-the-same",
            "The same tokens have another hash each time, so nothing will ever be found.",
            new_each_time,
        ),
    ),
    hints=(
        (
            "Two requests may share a block when all tokens up to its end are the same. "
            "How can one hash say so much without reading all of them again?"
        ),
        (
            "The hash of a block is made of two things: the hash of the block before it, and "
            "its own tokens. For the first block of a call, `parent` is the block before it."
        ),
        (
            "Only whole blocks count: how many are there in len(tokens) tokens, "
            "and where does the last one end?"
        ),
        (
            "`hashlib.sha256(data).digest()` takes bytes. "
            "An array of integers has `tobytes()`, with as many bytes for each."
        ),
    ),
)
