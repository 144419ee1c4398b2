"""Exercise 5.6: what a gather moves."""

import math
import random

from lessons_lib.checks import Exercise, Mistake, Text


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


def keys_only(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number


def layers_forgotten(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_kv_heads * head_size * bytes_per_number * 2


def heads_forgotten(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * head_size * bytes_per_number * 2


def numbers_not_bytes(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * 2


def bits(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 * 8


def bytes_taken_for_bits(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 / 8


def read_and_written(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 * 2


def mebibytes(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 / 2**20


def pairs_of_tokens(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len**2 * num_layers * num_kv_heads * head_size * bytes_per_number * 2


def square_in_place_of_double(
    context_len, num_layers, num_kv_heads, head_size, bytes_per_number
):
    return context_len**2 * num_layers * num_kv_heads * head_size * bytes_per_number


def all_three_movements(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 * 3


def one_token(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return num_layers * num_kv_heads * head_size * bytes_per_number * 2


def whole_blocks(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return (
        -(-context_len // 16)
        * 16
        * num_layers
        * num_kv_heads
        * head_size
        * bytes_per_number
        * 2
    )


def new_token_left_out(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return (context_len - 1) * num_layers * num_kv_heads * head_size * bytes_per_number * 2


def one_token_too_many(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return (context_len + 1) * num_layers * num_kv_heads * head_size * bytes_per_number * 2


def all_steps_together(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return (
        context_len
        * (context_len + 1)
        // 2
        * num_layers
        * num_kv_heads
        * head_size
        * bytes_per_number
        * 2
    )


def two_bytes_fixed(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * 2 * 2


def head_size_forgotten(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * bytes_per_number * 2


def pair_not_sum(*case):
    return keys_only(*case), keys_only(*case)


def nothing_returned(*case):
    print(bytes_gathered(*case))


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


def float_bytes(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2.0 * context_len * num_layers * num_kv_heads * head_size * bytes_per_number


def hidden(seed):
    chance = random.Random(seed)
    for number in range(10):
        sizes = (
            chance.randint(2, 99),
            chance.randint(2, 32),
            chance.randint(3, 256),
            chance.choice((1, 2, 4)),
        )
        yield chance.randint(2, 10 ** (1 + number // 2)), *sizes


def observe(answer, case):
    result = answer(*case)
    return (
        result
        if isinstance(result, int | float)
        else Text(f"{type(result).__name__}, in place of an int")
    )


def also_as_float(slug, message, wrong, *others):
    """A mistake in the number is named also when that number is a float.

    Or when it is an int where the mistake divides.
    """

    def converted(form, kind):
        return lambda *case: kind(form(*case))

    return Mistake(
        slug,
        message,
        wrong,
        also=(
            *others,
            *(converted(form, kind) for form in (wrong, *others) for kind in (float, int)),
        ),
    )


EXERCISE = Exercise(
    id="5.6",
    title="what a gather moves",
    answer_name="bytes_gathered",
    reference=bytes_gathered,
    cases=lambda: CASES,
    size=lambda case: (case[0], math.prod(case[1:])),
    hidden=hidden,
    observe=observe,
    describe=lambda case: (
        "bytes_gathered(context_len={}, "
        "num_layers={}, num_kv_heads={}, head_size={}, bytes_per_number={})".format(*case)
    ),
    same=lambda expected, actual: type(expected) is type(actual) and expected == actual,
    mistakes=(
        Mistake(
            "float-bytes",
            "The number is right, and it is a float. Bytes are counted in whole numbers: "
            "a factor such as 2.0, or a division with /, makes a float of it.",
            float_bytes,
        ),
        also_as_float(
            "keys-only",
            "That is half of it. What does a token leave in the cache beside its key?",
            keys_only,
        ),
        also_as_float(
            "one-token",
            "That is one token, the new one perhaps. All tokens of the context are gathered.",
            one_token,
        ),
        also_as_float(
            "layers-forgotten",
            "That is one layer. Each layer has keys and values of its own.",
            layers_forgotten,
        ),
        also_as_float(
            "heads-forgotten",
            "That is one KV head. Each of them has a key and a value of head_size numbers.",
            heads_forgotten,
        ),
        also_as_float(
            "numbers-not-bytes",
            "That is how many numbers are gathered. How many bytes has one of them?",
            numbers_not_bytes,
        ),
        also_as_float("bits", "Eight times too much: that is in bits.", bits),
        also_as_float(
            "bytes-taken-for-bits",
            "Eight times too little. "
            "bytes_per_number is in bytes already, so there are no bits to divide by 8.",
            bytes_taken_for_bits,
        ),
        also_as_float(
            "read-and-written",
            "Twice too much here: a gather does read each byte and write it again, "
            "and the task counts each byte once.",
            read_and_written,
        ),
        also_as_float(
            "mebibytes",
            "The number is in mebibytes. Give bytes; the next cell divides.",
            mebibytes,
        ),
        also_as_float(
            "pairs-of-tokens",
            "That grows with the square of the context, as the scores of a prefill do. "
            "One step reads each cached token once.",
            pairs_of_tokens,
            square_in_place_of_double,
        ),
        also_as_float(
            "all-three-movements",
            "Three times too much here: in fact the bytes are read, written and read again, "
            "and the task counts each byte once.",
            all_three_movements,
        ),
        also_as_float(
            "whole-blocks",
            "The context is rounded up to whole blocks of 16. "
            "The task counts the tokens alone.",
            whole_blocks,
        ),
        also_as_float(
            "new-token-left-out",
            "One token is missing. context_len counts all tokens of the sequence, "
            "the new one too, and all of them are gathered.",
            new_token_left_out,
        ),
        also_as_float(
            "one-token-too-many",
            "That is one token too many. "
            "context_len counts all tokens of the sequence, the new one too.",
            one_token_too_many,
        ),
        also_as_float(
            "all-steps-together",
            "That is the sum over all steps, from the first token on. "
            "The task counts what one step gathers.",
            all_steps_together,
        ),
        also_as_float(
            "two-bytes-fixed",
            "That is right for numbers of two bytes only. "
            "How many bytes a number has is an argument.",
            two_bytes_fixed,
        ),
        also_as_float(
            "head-size-forgotten",
            "Each head has one number for each token here. "
            "A key is a vector: how many numbers has it?",
            head_size_forgotten,
        ),
        Mistake(
            "pair-not-sum",
            "There are several numbers. "
            "What is asked for is one: the bytes of keys and values together.",
            pair_not_sum,
            also=(lambda *case: list(pair_not_sum(*case)),),
        ),
        Mistake(
            "nothing-returned",
            "The function gives back None. A result that is printed is not returned.",
            nothing_returned,
        ),
    ),
    hints=(
        "Start with one token in one layer: how many numbers are its key and its value?",
        "Times the bytes of a number, times the tokens, times the layers.",
    ),
)
