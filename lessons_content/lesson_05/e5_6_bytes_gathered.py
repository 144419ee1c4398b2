"""Exercise 5.6: what a gather moves.

Start with one token in one layer: how many numbers are its key and its value?

Times the bytes of a number, times the tokens, times the layers.
"""

import math

from lessons_content.exercises.kit import Text, exercise


def bytes_gathered(
    context_len: int, num_layers: int, num_kv_heads: int, head_size: int, bytes_per_number: int
) -> int:
    """Bytes of keys and values that a step gathers for a sequence, in all layers.

    Each byte of the context_len tokens counts once. (Whole blocks are copied, so it is up to
    block_size - 1 tokens more in fact.)
    """
    # BEGIN SOLUTION 5.6
    numbers_per_token = 2 * num_kv_heads * head_size  # a key and a value
    return context_len * num_layers * numbers_per_token * bytes_per_number
    # END SOLUTION


CASES = [
    (1, 1, 1, 1, 1),
    (3, 1, 1, 1, 1),
    (1, 1, 1, 16, 2),
    (5, 3, 1, 16, 2),
    (5, 1, 3, 16, 2),
    (0, 2, 2, 64, 2),
    (17, 4, 7, 96, 4),
    (1024, 36, 8, 128, 2),
    (32_768, 80, 8, 128, 1),
]


def hidden(chance):
    for number in range(10):
        num_layers, num_kv_heads = chance.randint(2, 99), chance.randint(2, 32)
        head_size, num_bytes = chance.randint(3, 256), chance.choice((1, 2, 4))
        context_len = chance.randint(2, 10 ** (1 + number // 2))
        yield context_len, num_layers, num_kv_heads, head_size, num_bytes


def observe(answer, case):
    result = answer(*case)
    is_number = isinstance(result, int | float)
    return result if is_number else Text(f"{result!r} instead of an int")


EXERCISE = exercise(
    globals(),
    answer_name="bytes_gathered",
    size=lambda case: (case[0], math.prod(case[1:])),
    same=lambda expected, actual: type(expected) is type(actual) and expected == actual,
)
