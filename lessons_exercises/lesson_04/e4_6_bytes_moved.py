"""Exercise 4.6: the bytes that two ways of decoding move."""

import math
import operator
import random

from lessons_lib.checks import Exercise, Mistake, Text


class RaisedWithoutRequests(Text):
    """The result of an answer that raises when there is no request.

    Equal whatever it raises.
    """

    def __eq__(self, other):
        return isinstance(other, RaisedWithoutRequests)

    __hash__ = Text.__hash__


# marks the case that looks at what kind of numbers an answer returns
KINDS = "kinds of numbers"


def bytes_moved(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    """Bytes of keys and values that one layer reads and writes in one decode step, two ways.

    gather: each block is read whole and written whole to a contiguous copy; attention reads
        the tokens in the copy.
    paged: attention reads the tokens where they are, and nothing else is read or written.
    context_lens: list of int, the tokens of each request that are in the pool, 0 or more.
    bytes_per_number: bytes of a number.
    Returns (gather, paged), two ints.
    """
    # BEGIN SOLUTION 4.6
    bytes_per_token = 2 * num_kv_heads * head_size * bytes_per_number  # a key and a value
    num_blocks = sum(-(-length // block_size) for length in context_lens)
    copied = num_blocks * block_size * bytes_per_token
    paged = sum(context_lens) * bytes_per_token
    return 2 * copied + paged, paged
    # END SOLUTION


def _parts(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    gather, paged = bytes_moved(
        context_lens, block_size, num_kv_heads, head_size, bytes_per_number
    )
    return (gather - paged) // 2, paged


def keys_only(*sizes):
    return tuple(number // 2 for number in bytes_moved(*sizes))


def copy_not_written(*sizes):
    copied, paged = _parts(*sizes)
    return copied + paged, paged


def copy_not_read(*sizes):
    copied, paged = _parts(*sizes)
    return 2 * copied, paged


def copy_alone(*sizes):
    copied, paged = _parts(*sizes)
    return copied, paged


def copy_read_whole(*sizes):
    copied, paged = _parts(*sizes)
    return 3 * copied, paged


def tokens_copied(*sizes):
    _, paged = _parts(*sizes)
    return 3 * paged, paged


def whole_blocks_read(*sizes):
    copied, _ = _parts(*sizes)
    return 3 * copied, copied


def whole_blocks_in_paged(*sizes):
    copied, paged = _parts(*sizes)
    return 2 * copied + paged, copied


def one_block_too_many(context_lens, block_size, *sizes):
    copied, _ = _parts(
        [length // block_size * block_size + block_size for length in context_lens],
        block_size,
        *sizes,
    )
    _, paged = _parts(context_lens, block_size, *sizes)
    return 2 * copied + paged, paged


def floats(*sizes):
    gather, paged = bytes_moved(*sizes)
    return float(gather), float(paged)


def elements(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    return bytes_moved(context_lens, block_size, num_kv_heads, head_size, 1)


def bits(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    return bytes_moved(context_lens, block_size, num_kv_heads, head_size, 8 * bytes_per_number)


def padded(context_lens, block_size, *sizes):
    longest = -(-max(context_lens, default=0) // block_size) * block_size
    copied, _ = _parts([longest] * len(context_lens), block_size, *sizes)
    _, paged = _parts(context_lens, block_size, *sizes)
    return 2 * copied + paged, paged


def longest_for_all(context_lens, *sizes):
    return bytes_moved([max(context_lens, default=0)] * len(context_lens), *sizes)


def tokens_written(*sizes):
    """Whole blocks are read, and only the tokens are put into the copy."""
    copied, paged = _parts(*sizes)
    return copied + 2 * paged, paged


def new_token_read(context_lens, *sizes):
    return bytes_moved([length + 1 for length in context_lens], *sizes)


def new_token_read_in_paged(context_lens, *sizes):
    return bytes_moved(context_lens, *sizes)[0], new_token_read(context_lens, *sizes)[1]


def new_token_written(context_lens, *sizes):
    gather, paged = bytes_moved(context_lens, *sizes)
    _, new = _parts([1] * len(context_lens), *sizes)
    return gather + new, paged + new


def _per_request(divide, guarded, tokens_first):
    """The bytes of a request on average.

    Rounded down, tokens and bytes give different numbers.
    """

    def wrong(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
        unit = 2 * num_kv_heads * head_size * bytes_per_number if tokens_first else 1
        requests = max(1, len(context_lens)) if guarded else len(context_lens)
        return tuple(
            divide(number // unit, requests) * unit
            for number in bytes_moved(
                context_lens, block_size, num_kv_heads, head_size, bytes_per_number
            )
        )

    return wrong


PER_REQUEST = tuple(
    _per_request(divide, guarded, tokens_first)
    for guarded in (True, False)
    for divide, tokens_first in (
        (operator.truediv, False),
        (operator.floordiv, False),
        (operator.floordiv, True),
    )
)


def first_request_alone(context_lens, *sizes):
    return bytes_moved(context_lens[:1], *sizes)


def first_request_alone_by_index(context_lens, *sizes):
    return bytes_moved([context_lens[0]], *sizes)  # raises where there is none


def none_refused(context_lens, *sizes):
    max(context_lens)  # raises where there is no request
    return bytes_moved(context_lens, *sizes)


def gather_alone_a_float(*sizes):
    gather, paged = bytes_moved(*sizes)
    return float(gather), paged


def paged_alone_a_float(*sizes):
    gather, paged = bytes_moved(*sizes)
    return gather, float(paged)


def one_head(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    return bytes_moved(context_lens, block_size, 1, head_size, bytes_per_number)


def rounded_down(context_lens, block_size, *sizes):
    copied, _ = _parts(
        [length // block_size * block_size for length in context_lens], block_size, *sizes
    )
    _, paged = _parts(context_lens, block_size, *sizes)
    return 2 * copied + paged, paged


def blocks_for_slots(context_lens, block_size, *sizes):
    copied, _ = _parts([-(-length // block_size) for length in context_lens], 1, *sizes)
    _, paged = _parts(context_lens, block_size, *sizes)
    return 2 * copied + paged, paged


def rounded_in_all(context_lens, block_size, *sizes):
    return bytes_moved([sum(context_lens)], block_size, *sizes)


def paged_first(*sizes):
    return bytes_moved(*sizes)[::-1]


# (tokens in the pool of each request, block size, KV heads, head size, bytes of a number)
CASES = [
    ([1], 1, 1, 1, 1),
    ([2], 2, 1, 1, 2),
    ([4], 4, 2, 3, 2),
    ([1], 4, 1, 1, 1),
    ([5], 4, 1, 1, 1),
    ([4, 1], 4, 1, 2, 1),
    ([3, 3], 4, 1, 1, 1),
    ([], 4, 1, 1, 2),
    ([0, 3], 2, 1, 1, 4),
    ([17, 0, 100, 16], 16, 3, 64, 2),
    ([1024], 16, 8, 128, 2),
    ([1000, 5, 333], 16, 8, 128, 2),
    ([31, 32, 33], 32, 5, 80, 4),
    ([5], 4, 1, 1, 2, KINDS),
]


def hidden(seed):
    """Lengths around whole blocks; then no request, and the kinds of numbers."""
    chance = random.Random(seed)
    for number in range(10):
        block_size = chance.randint(2, 20)
        sizes = [chance.randint(2, 9), chance.randint(3, 99), chance.choice((1, 2, 4))]
        lengths = [
            block_size * chance.randint(0, 9) + chance.choice((0, 1, block_size - 1))
            for _ in range(1 + number // 2)
        ]
        yield lengths, block_size, *sizes
    yield [], chance.randint(2, 20), chance.randint(2, 9), chance.randint(3, 99), 2
    yield [chance.randint(2, 99)], 4, 1, 1, 2, KINDS


def observe(answer, case):
    context_lens, *sizes = case[:5]
    try:
        result = answer(list(context_lens), *sizes)
    except Exception as error:
        if context_lens or isinstance(error, NotImplementedError):
            raise
        return RaisedWithoutRequests(f"{type(error).__name__}: {error}")
    if not isinstance(result, tuple | list):
        return result
    if case[5:] == (KINDS,):
        return Text(f"({', '.join(_kind(number) for number in result)})")
    return tuple(result)


def _kind(number):
    try:
        operator.index(number)
    except TypeError:
        return type(number).__name__
    return "int"


def same(expected, actual):
    """Equal; two floats, both of wrong answers, may be rounded differently.

    Ours are ints and have to be met exactly.
    """

    def alike(ours, theirs):
        return (
            ours == theirs
            or isinstance(ours, float)
            and isinstance(theirs, float)
            and math.isclose(ours, theirs)
        )

    if (
        isinstance(expected, tuple)
        and isinstance(actual, tuple)
        and len(expected) == len(actual)
    ):
        return all(map(alike, expected, actual))
    return expected == actual


def describe(case):
    context_lens, block_size, num_kv_heads, head_size, bytes_per_number = case[:5]
    return (
        f"bytes_moved({context_lens}, block_size={block_size}, num_kv_heads={num_kv_heads}, "
        f"head_size={head_size}, bytes_per_number={bytes_per_number})"
    )


EXERCISE = Exercise(
    id="4.6",
    title="count the bytes",
    answer_name="bytes_moved",
    reference=bytes_moved,
    cases=lambda: CASES,
    size=lambda case: (sum(case[0]), len(case[0]), math.prod(case[1:5])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    # a mistake keeps its name where its numbers are floats
    chancy=lambda case: case[5:] == (KINDS,),
    mistakes=(
        Mistake(
            "keys-only",
            "Both numbers are half of what they should be. A token has a key and a value.",
            keys_only,
        ),
        Mistake(
            "copy-not-written",
            "The gather reads the blocks and attention reads the copy, "
            "and in between the copy has to be written. Writing moves bytes too.",
            copy_not_written,
        ),
        Mistake(
            "copy-not-read",
            "The gather reads the blocks and writes the copy. "
            "After that attention reads the copy, and that is missing.",
            copy_not_read,
        ),
        Mistake(
            "one-pass-only",
            "You count the blocks once for the gather. "
            "They are read, written to a copy, and the copy is read again.",
            copy_alone,
        ),
        Mistake(
            "copy-read-whole",
            "The copy is read whole in your count. Attention reads only the tokens in it, "
            "and leaves out what stands behind the last one.",
            copy_read_whole,
        ),
        Mistake(
            "tokens-copied",
            "Your gather copies tokens. "
            "Indexing the pool with block ids copies whole blocks, a partly filled one too.",
            tokens_copied,
        ),
        Mistake(
            "whole-blocks-read",
            "Attention reads whole blocks in your count. "
            "It reads the tokens, and skips the slots behind the last one.",
            whole_blocks_read,
            also=(whole_blocks_in_paged,),
        ),
        Mistake(
            "tokens-written",
            "The blocks are read whole, and only their tokens are written to the copy "
            "in your count. What is read is written too: the copy holds whole blocks.",
            tokens_written,
        ),
        Mistake(
            "new-token-counted",
            "The new token is counted as well. `context_lens` are the tokens in the pool, "
            "and only their keys and values are counted here.",
            new_token_read,
            also=(new_token_read_in_paged, new_token_written),
        ),
        Mistake(
            "divided-by-requests",
            "Your result is the bytes of one request on average: the sum is divided "
            "by the number of requests. A step moves the bytes of all of them.",
            PER_REQUEST[0],
            also=PER_REQUEST[1:],
        ),
        Mistake(
            "first-request-only",
            "Only the first request is counted. A step decodes a token of each.",
            first_request_alone,
            also=(first_request_alone_by_index,),
        ),
        Mistake(
            "no-requests",
            "Your function raises for an empty list. "
            "Without a request nothing is moved: (0, 0).",
            none_refused,
        ),
        Mistake(
            "elements-not-bytes",
            "You count numbers, not bytes. "
            "`bytes_per_number` says how many bytes a number has.",
            elements,
        ),
        Mistake(
            "bits-not-bytes",
            "Both results are eight times too large. `bytes_per_number` is in bytes already.",
            bits,
        ),
        Mistake(
            "padded-to-longest",
            "Every request is counted as if it were as long as the longest. "
            "Each one has blocks of its own.",
            padded,
            also=(longest_for_all,),
        ),
        Mistake(
            "heads-forgotten",
            "Your count has one KV head. Each token has a key and a value for every KV head.",
            one_head,
        ),
        Mistake(
            "blocks-rounded-down",
            "A partly filled last block is not copied in your count. "
            "How many blocks do 5 tokens take, with 4 in each?",
            rounded_down,
        ),
        Mistake(
            "blocks-for-slots",
            "Your gather counts a block like one token. "
            "A block is read and written whole: how many tokens have room in it?",
            blocks_for_slots,
        ),
        Mistake(
            "one-block-too-many",
            "A request whose last block is exactly full has one block too many "
            "in your count, and so has one without a token. "
            "How many blocks do 4 tokens take, with 4 in each?",
            one_block_too_many,
        ),
        Mistake(
            "rounded-over-the-batch",
            "You round up the tokens of the whole batch. "
            "Each request has a last block of its own, and each may be partly filled.",
            rounded_in_all,
        ),
        Mistake(
            "floats-not-ints",
            "The numbers are right, and they are floats: `/` gives one even where nothing "
            "is left over. Bytes are whole numbers, and very large ones must be exact.",
            floats,
            also=(gather_alone_a_float, paged_alone_a_float),
        ),
        Mistake(
            "results-swapped",
            "The two numbers are in each other's place: gather first, then paged.",
            paged_first,
        ),
    ),
    hints=(
        (
            "Begin with one token: how many numbers does one layer keep for it, "
            "and how many bytes are they?"
        ),
        (
            "Count three passes for the gather: reading the blocks, writing the copy, "
            "reading the tokens in the copy. Which of them go by blocks?"
        ),
        "For the paged way, only one of the three is left.",
    ),
)
