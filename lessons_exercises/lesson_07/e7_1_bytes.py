"""Exercise 7.1: the bytes that a decode step has to read."""

import itertools
import math
import random
from dataclasses import dataclass

from lessons_exercises.lesson_07 import outcomes
from lessons_exercises.words import counted, listed
from lessons_lib.checks import Exercise, Mistake, Text


@dataclass(frozen=True)
class Case:
    context_lens: tuple[int, ...]
    num_kv_heads: int
    head_size: int
    bytes_per_number: int


def all_tokens(context_lens):
    return sum(context_lens)


def as_it_is(number):
    return number


def kv_bytes(tokens=all_tokens, both=2, heads=as_it_is, sizes=as_it_is, width=as_it_is):
    """kv_bytes() with some of its factors replaced."""

    def wrong(context_lens, num_kv_heads, head_size, bytes_per_number):
        return (
            tokens(context_lens)
            * both
            * heads(num_kv_heads)
            * sizes(head_size)
            * width(bytes_per_number)
        )

    return wrong


def one(number):
    return 1


def until_an_empty_one(context_lens):
    return sum(itertools.takewhile(bool, context_lens))


def lengths_taken_away(context_lens, *sizes):
    result = kv_bytes()(context_lens, *sizes)
    context_lens.clear()
    return result


def whole_blocks(block_size):
    return kv_bytes(
        lambda context_lens: sum(
            -(-length // block_size) * block_size for length in context_lens
        )
    )


def plus_the_width(context_lens, num_kv_heads, head_size, bytes_per_number):
    return 2 * (sum(context_lens) * num_kv_heads * head_size + bytes_per_number)


def plus_the_head_size(context_lens, num_kv_heads, head_size, bytes_per_number):
    return 2 * sum(context_lens) * (num_kv_heads + head_size) * bytes_per_number


def block_table_too(block_size):
    def wrong(context_lens, *sizes):
        return kv_bytes()(context_lens, *sizes) + 4 * sum(
            -(-length // block_size) for length in context_lens
        )

    return wrong


def cases():
    yield from (
        Case((1,), 1, 1, 1),
        Case((3,), 1, 1, 1),
        Case((3,), 1, 4, 1),
        Case((3,), 2, 4, 1),
        Case((3,), 2, 4, 2),
        Case((5, 2), 3, 8, 2),
        Case((0,), 2, 64, 2),
        Case((17, 0, 1), 7, 64, 4),
        Case((31, 16, 9, 40), 8, 128, 2),
        Case((1024,) * 64, 8, 128, 2),
        Case((33, 100, 257), 4, 128, 1),
        Case((131_072,) * 60, 8, 128, 2),
    )


def hidden(seed):
    chance = random.Random(seed)
    for number in range(10):
        lengths = [
            chance.choice((0, chance.randint(1, 99), chance.randint(1, 9_999)))
            for _ in range(number // 3)
        ]
        sizes = chance.randint(2, 16), chance.randint(3, 256), chance.choice((1, 2, 4))
        yield Case((chance.randint(2, 999), *lengths), *sizes)


def observe(subject, case):
    mine = list(case.context_lens)
    result = subject(mine, case.num_kv_heads, case.head_size, case.bytes_per_number)
    if mine != list(case.context_lens):
        return Changed("context_lens was changed")
    return result.item() if hasattr(result, "item") else result


class Changed(Text):
    """In place of a result, where the answer changed its argument."""


def same(expected, actual):
    if outcomes.is_error(actual):
        return outcomes.same_error(expected, actual)
    return (
        type(actual) in (int, float)
        and expected == actual
        or type(expected) is type(actual)
        and expected == actual
    )


def show(expected, actual):
    if isinstance(actual, Changed):
        return "context_lens as it was", actual
    return repr(expected), outcomes.show_no_result(actual) or repr(actual)


def describe(case):
    lengths = case.context_lens
    if len(lengths) > 4:
        contexts = f"{len(lengths)} contexts of {lengths[0]:,} tokens"
    else:
        contexts = f"context lengths {listed(lengths)}"
    return (
        f"{contexts}, {counted(case.num_kv_heads, 'KV head')} of size {case.head_size}, "
        f"{counted(case.bytes_per_number, 'byte')} a number"
    )


EXERCISE = Exercise(
    id="7.1",
    title="the bytes that must be read",
    answer_name="kv_bytes",
    reference=kv_bytes(),
    cases=cases,
    size=lambda case: (
        sum(case.context_lens),
        case.num_kv_heads * case.head_size * case.bytes_per_number,
    ),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=same,
    show=show,
    mistakes=(
        Mistake(
            "equal-lengths-once",
            "Of sequences of the same length only one is counted. "
            "Each has tokens of its own in the cache.",
            kv_bytes(lambda context_lens: sum(set(context_lens))),
        ),
        Mistake(
            "stops-at-an-empty-context",
            "The sequences behind one without a token are not counted. "
            "They have tokens to read.",
            kv_bytes(until_an_empty_one),
        ),
        Mistake(
            "lengths-multiplied",
            "The lengths of the contexts are multiplied. "
            "How many tokens do all sequences have together?",
            kv_bytes(math.prod),
        ),
        Mistake(
            "values-forgotten",
            "It is half of what is needed. A token has more in the cache than its keys.",
            kv_bytes(both=1),
        ),
        Mistake(
            "bits-for-bytes", "It is eight times too much: those are bits.", kv_bytes(both=16)
        ),
        Mistake(
            "whole-blocks-counted",
            "It counts whole blocks. In a sequence's last block there may be slots "
            "without a token, and a kernel need not read those.",
            whole_blocks(16),
            also=tuple(map(whole_blocks, (8, 32, 64))),
        ),
        Mistake(
            "longest-for-all",
            "Every sequence is taken to be as long as the longest one. "
            "A paged kernel knows no padding: each sequence has its own length.",
            kv_bytes(lambda context_lens: len(context_lens) * max(context_lens)),
        ),
        Mistake(
            "first-for-all",
            "Every sequence is taken to be as long as the first one. "
            "Each has its own length in context_lens.",
            kv_bytes(lambda context_lens: len(context_lens) * context_lens[0]),
        ),
        Mistake(
            "mean-alone",
            "One sequence of mean length is counted. "
            "In a decode step each sequence of the batch reads its own context.",
            kv_bytes(lambda context_lens: sum(context_lens) // len(context_lens)),
            also=(kv_bytes(lambda context_lens: sum(context_lens) / len(context_lens)),),
        ),
        Mistake(
            "longest-alone",
            "Only the longest sequence is counted. "
            "In a decode step each sequence of the batch reads its own context.",
            kv_bytes(max),
        ),
        Mistake(
            "first-alone",
            "Only the first sequence is counted. "
            "In a decode step each sequence of the batch reads its own context.",
            kv_bytes(lambda context_lens: context_lens[0]),
        ),
        Mistake(
            "last-alone",
            "Only the last sequence is counted. "
            "If you add up in a loop: where is the total set to 0?",
            kv_bytes(lambda context_lens: context_lens[-1]),
        ),
        Mistake(
            "one-token-each",
            "It counts one token of each sequence. "
            "Those are the new ones, and each of them attends to a whole context.",
            kv_bytes(len),
        ),
        Mistake(
            "new-token-added",
            "There is a token too many in each sequence. "
            "context_lens counts the new token already.",
            kv_bytes(lambda context_lens: sum(context_lens) + len(context_lens)),
        ),
        Mistake(
            "new-token-left-out",
            "There is a token missing in each sequence. "
            "A token attends to itself too: context_lens counts it.",
            kv_bytes(lambda context_lens: sum(context_lens) - len(context_lens)),
            also=(
                kv_bytes(
                    lambda context_lens: sum(max(0, length - 1) for length in context_lens)
                ),
            ),
        ),
        Mistake(
            "tokens-squared",
            "The context lengths are squared. "
            "Each sequence has one new token only, so it reads its context once.",
            kv_bytes(lambda context_lens: sum(length * length for length in context_lens)),
            also=(kv_bytes(lambda context_lens: sum(context_lens) ** 2),),
        ),
        Mistake(
            "numbers-not-bytes",
            "That is how many numbers are read. How many bytes does each of them have?",
            kv_bytes(width=one),
        ),
        Mistake(
            "always-two-bytes",
            "Numbers are taken to have two bytes, whatever the cache holds. "
            "bytes_per_number says how many.",
            kv_bytes(width=lambda number: 2),
            also=(kv_bytes(width=lambda number: 4),),
        ),
        Mistake(
            "heads-forgotten",
            "That is one KV head's part. A token has a key and a value for each KV head.",
            kv_bytes(heads=one),
        ),
        Mistake(
            "head-size-forgotten",
            "A key is counted as one number. It has head_size of them.",
            kv_bytes(sizes=one),
        ),
        Mistake(
            "factors-added",
            "Sizes are added that have to be multiplied. A key has head_size numbers "
            "for each KV head, and each of these numbers has bytes_per_number bytes.",
            plus_the_width,
            also=(plus_the_head_size,),
        ),
        Mistake(
            "block-table-counted",
            "The entries of the block table are counted too. "
            "Asked for are the bytes of keys and values alone.",
            block_table_too(16),
            also=tuple(map(block_table_too, (8, 32, 64))),
        ),
        Mistake(
            "not-bytes-but-larger-units",
            "That is not in bytes, but in kilobytes, megabytes or gigabytes. "
            "The plain number of bytes is asked for.",
            lambda *sizes: kv_bytes()(*sizes) / 1e6,
            also=tuple(
                (lambda *sizes, unit=unit: kv_bytes()(*sizes) / unit)
                for unit in (1e3, 1e9, 2**10, 2**20, 2**30)
            ),
        ),
        Mistake(
            "context-lens-changed",
            "Your function changes context_lens. "
            "The list belongs to the caller, who still needs it.",
            lengths_taken_away,
        ),
        outcomes.RETURNS_NOTHING,
        outcomes.RAISES_AN_ERROR,
    ),
    hints=(
        (
            "What does one token have in the cache? "
            "Begin with its key for one KV head: how many numbers, how many bytes?"
        ),
        (
            "A decode step reads this for every token of every sequence, once. "
            "It does not matter how the tokens are spread over sequences."
        ),
    ),
)
