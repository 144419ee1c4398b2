"""Exercise 9.1: the operations and the bytes of a batch of prompts."""

import functools
from dataclasses import dataclass

from lessons_content.exercises import outcomes
from lessons_content.exercises.exercise import exercise
from lessons_content.exercises.naming_words import counted
from paged_attention.prefill.tile_counts import count_work


@dataclass(frozen=True)
class Case:
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    num_q_heads: int
    num_kv_heads: int
    head_size: int
    bytes_per_number: int


# About 100,000 pairs at most in each, so that an answer may count them one by one.
CASES = [
    Case((1,), (1,), 1, 1, 1, 1),
    Case((1,), (3,), 1, 1, 1, 1),
    Case((2,), (2,), 1, 1, 1, 1),
    Case((2,), (5,), 1, 1, 1, 1),
    Case((2,), (5,), 1, 1, 4, 1),
    Case((2,), (5,), 2, 1, 4, 1),
    Case((2,), (5,), 2, 1, 4, 2),
    Case((3,), (3,), 2, 2, 4, 2),
    Case((1, 2), (4, 2), 4, 2, 8, 2),
    Case((3, 0, 2), (5, 0, 9), 6, 2, 8, 4),
    Case((4, 4, 1), (4, 7, 30), 6, 3, 16, 2),
    Case((1, 1, 1), (8, 40, 17), 8, 2, 64, 1),
    Case((64, 3), (64, 90), 8, 1, 80, 4),
    Case((16, 100, 1, 50), (300, 100, 999, 51), 32, 8, 128, 2),
    Case((256,), (384,), 64, 8, 128, 2),
    Case((), (), 2, 1, 4, 2),
]


def hidden(chance):
    for number in range(12):
        cached = [
            chance.choice((0, chance.randint(1, 9), chance.randint(10, 400)))
            for _ in range(number // 3)
        ]
        cached.append(chance.randint(3, 300))
        q_lens = [chance.choice((1, chance.randint(2, 9), 99)) for _ in cached[1:]]
        q_lens.append(chance.randint(2, 99))
        if number % 4 == 3:
            cached[0] = q_lens[0] = 0
        kv_lens = [sum(both) for both in zip(cached, q_lens, strict=True)]
        num_kv_heads, group = chance.randint(2, 9), chance.randint(2, 8)
        sizes = chance.randint(3, 256), chance.choice((1, 2, 4))
        yield Case(tuple(q_lens), tuple(kv_lens), group * num_kv_heads, num_kv_heads, *sizes)
    yield Case((), (), chance.randint(2, 9), 1, chance.randint(3, 256), 2)


def observe(answer, case):
    lists = {"q_lens": [*case.q_lens], "kv_lens": [*case.kv_lens]}
    sizes = {name: size for name, size in vars(case).items() if name not in lists}
    return outcomes.called(functools.partial(answer, **sizes), tuple, **lists)


def show(expected, actual):
    if isinstance(actual, outcomes.Changed) or outcomes.show_no_result(actual):
        return words_of(expected), outcomes.show(expected, actual)[1]
    return words_of(expected), words_of(actual)


def words_of(result):
    if not isinstance(result, tuple) or len(result) != 2:
        return repr(result)
    operations, num_bytes = result
    return f"{operations!r} operations, {num_bytes!r} bytes"


def describe(case):
    return (
        f"q_lens = {list(case.q_lens)}, kv_lens = {list(case.kv_lens)}, "
        f"{counted(case.num_q_heads, 'query head')} and "
        f"{counted(case.num_kv_heads, 'KV head')} of size {case.head_size}, "
        f"{counted(case.bytes_per_number, 'byte')} a number"
    )


EXERCISE = exercise(
    globals(),
    outcomes,
    title="the work of a batch",
    answer_name="count_work",
    size=lambda case: (
        sum(case.kv_lens),
        sum(case.q_lens),
        case.num_q_heads * case.num_kv_heads * case.head_size * case.bytes_per_number,
    ),
    # An empty batch has no work. An error there says little of what else went wrong.
    chancy=lambda case: not case.q_lens,
    hints="""
        Draw a sequence with 2 queries and 5 keys: a row for each query, a column for each key.
        Which squares does causal attention fill?

        A filled square is a pair of a query and a key. For one head, its score takes head_size
        multiplications. How many additions does that take? And what does the same pair cost in
        the product of weights and values?

        The keys before the first query are seen by all queries: they make a rectangle. The
        others make a triangle with its diagonal, and 1 + 2 + … + n is n * (n + 1) // 2.

        For the bytes, count vectors of head_size numbers. Queries and outputs have one for
        each query and query head. Keys and values have one for each key and KV head.
    """,
)
