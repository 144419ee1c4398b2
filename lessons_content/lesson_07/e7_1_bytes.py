"""Exercise 7.1: the bytes that a decode step has to read."""

import itertools
import math
from dataclasses import dataclass

from lessons_content.exercises import outcomes
from lessons_content.exercises.exercise import exercise
from lessons_content.exercises.naming_words import counted, listed
from paged_attention.ladder.kv_bytes import kv_bytes


@dataclass(frozen=True)
class Case:
    context_lens: tuple[int, ...]
    num_kv_heads: int
    head_size: int
    bytes_per_number: int


CASES = [
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
]


def hidden(chance):
    for number in range(10):
        lengths = [
            chance.choice((0, chance.randint(1, 99), chance.randint(1, 9_999)))
            for _ in range(number // 3)
        ]
        sizes = chance.randint(2, 16), chance.randint(3, 256), chance.choice((1, 2, 4))
        yield Case((chance.randint(2, 999), *lengths), *sizes)


def observe(subject, case):
    return outcomes.called(subject, **vars(case) | {"context_lens": [*case.context_lens]})


def same(expected, actual):
    """A float is as good as an int."""
    is_number = type(actual) in (int, float)
    return is_number and actual == expected or outcomes.same(expected, actual)


def describe(case):
    lengths = case.context_lens
    contexts = f"context lengths {listed(lengths)}"
    if len(lengths) > 4:
        contexts = f"{len(lengths)} contexts of {lengths[0]:,} tokens"
    return (
        f"{contexts}, {counted(case.num_kv_heads, 'KV head')} of size {case.head_size}, "
        f"{counted(case.bytes_per_number, 'byte')} a number"
    )


EXERCISE = exercise(
    globals(),
    outcomes,
    title="the bytes that must be read",
    answer_name="kv_bytes",
    size=lambda case: (
        sum(case.context_lens),
        case.num_kv_heads * case.head_size * case.bytes_per_number,
    ),
    hints="""
        What does one token have in the cache? Begin with its key for one KV head: how many
        numbers, how many bytes?

        A decode step reads this for every token of every sequence, once. It does not matter
        how the tokens are spread over sequences.
    """,
)
