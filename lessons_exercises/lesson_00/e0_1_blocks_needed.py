"""The exercise of lesson 00, with its mistake bank."""

import math
import random
from numbers import Integral

import numpy
import torch

from lessons_lib.checks import Exercise, Mistake, Text


def blocks_needed(num_tokens, block_size):
    return -(-num_tokens // block_size)


def observe(answer, case):
    result = answer(*case)
    # True equals 1 and 2.0 equals 2 in Python; a count of blocks is an integer, NumPy's or
    # Python's.
    if isinstance(result, Integral) and not isinstance(result, bool):
        return int(result)
    return Text(f"{result!r}, of type {type(result).__name__}")


CASES = [
    (0, 16),
    (1, 16),
    (16, 16),
    (17, 16),
    (5, 1),
    (24, 16),
    (2, 16),
    (32, 16),
    (33, 16),
    (1000, 16),
    (7, 8),
    (9, 8),
]


def given_if(condition):
    """The right number where condition(num_tokens, block_size), and nothing elsewhere."""

    def wrong(num_tokens, block_size):
        if condition(num_tokens, block_size):
            return blocks_needed(num_tokens, block_size)

    return wrong


def hidden(seed):
    """No token; then full blocks, one token less and one more."""
    chance = random.Random(seed)
    for block_size in chance.sample(range(2, 200), 5):
        full = block_size * chance.randint(1, 80)
        yield from ((num_tokens, block_size) for num_tokens in (0, full, full - 1, full + 1))


EXERCISE = Exercise(
    id="0.1",
    title="blocks needed",
    answer_name="blocks_needed",
    reference=blocks_needed,
    cases=lambda: CASES,
    size=lambda case: case,
    hidden=hidden,
    observe=observe,
    describe=lambda case: f"blocks_needed(num_tokens={case[0]}, block_size={case[1]})",
    mistakes=(
        Mistake(
            "floor-division",
            "Your division rounds down, "
            "so the tokens that do not fill a whole block have no place. "
            "The last block may be only partly full, and it is still a block.",
            lambda num_tokens, block_size: num_tokens // block_size,
        ),
        Mistake(
            "always-one-more",
            "You always add a block. "
            "Tokens that fill their blocks exactly need no further one.",
            lambda num_tokens, block_size: num_tokens // block_size + 1,
        ),
        Mistake(
            "rounds-to-nearest",
            "Your division rounds to the nearest whole number. "
            "A block that is less than half full still has to exist.",
            lambda num_tokens, block_size: round(num_tokens / block_size),
            also=(lambda num_tokens, block_size: int(num_tokens / block_size + 0.5),),
        ),
        Mistake(
            "one-token-left-over",
            "A single token that is left over gets no block. One token is enough to need one.",
            lambda num_tokens, block_size: (
                num_tokens // block_size + (num_tokens % block_size > 1)
            ),
        ),
        Mistake(
            "one-block-too-few",
            "Your result is one less than the number of blocks. "
            "The first block counts as well.",
            lambda num_tokens, block_size: max(0, blocks_needed(num_tokens, block_size) - 1),
            also=(lambda num_tokens, block_size: blocks_needed(num_tokens, block_size) - 1,),
        ),
        Mistake(
            "blocks-listed",
            "You return a list of the blocks. The question is how many there are.",
            lambda num_tokens, block_size: list(range(blocks_needed(num_tokens, block_size))),
            also=(
                lambda num_tokens, block_size: range(blocks_needed(num_tokens, block_size)),
                lambda num_tokens, block_size: list(
                    range(1, blocks_needed(num_tokens, block_size) + 1)
                ),
                lambda num_tokens, block_size: list(range(0, num_tokens, block_size)),
                lambda num_tokens, block_size: range(0, num_tokens, block_size),
            ),
        ),
        Mistake(
            "at-least-one",
            "A sequence without tokens needs no block; yours gets one.",
            lambda num_tokens, block_size: max(1, -(-num_tokens // block_size)),
        ),
        Mistake(
            "fraction-of-a-block",
            "Your result is a fraction. A block is handed out whole: the answer is an int.",
            lambda num_tokens, block_size: num_tokens / block_size,
        ),
        Mistake(
            "float-not-int",
            "The number is right, and it is a float. "
            "Blocks are counted, so the answer is an int.",
            lambda num_tokens, block_size: float(math.ceil(num_tokens / block_size)),
            also=(lambda num_tokens, block_size: numpy.ceil(num_tokens / block_size),),
        ),
        Mistake(
            "places-not-blocks",
            "You return how many tokens the blocks have room for. "
            "The question is how many blocks there are.",
            lambda num_tokens, block_size: math.ceil(num_tokens / block_size) * block_size,
        ),
        Mistake(
            "empty-places",
            "You return how many places stay empty in the last block. "
            "The question is how many blocks there are.",
            lambda num_tokens, block_size: -num_tokens % block_size,
        ),
        Mistake(
            "adds-the-rest",
            "You add the tokens that are left over. "
            "However many they are, they share one block.",
            lambda num_tokens, block_size: num_tokens // block_size + num_tokens % block_size,
        ),
        Mistake(
            "block-size-ignored",
            "Your answer is right for blocks of 16 tokens only. "
            "The size of a block is an argument.",
            lambda num_tokens, block_size: -(-num_tokens // 16),
        ),
        Mistake(
            "returns-nothing",
            "Your function gives None: it works the number out, perhaps prints it, "
            "and does not return it.",
            lambda num_tokens, block_size: None,
        ),
        Mistake(
            "returns-on-one-way-only",
            "Your function gives None for some arguments: "
            "one of the ways through it ends without a `return`.",
            given_if(lambda num_tokens, block_size: num_tokens % block_size == 0),
            also=(
                given_if(lambda num_tokens, block_size: num_tokens % block_size > 0),
                given_if(lambda num_tokens, block_size: num_tokens > 0),
            ),
        ),
        Mistake(
            "negative",
            "Your number of blocks is below 0: the size is right, and the sign is not.",
            lambda num_tokens, block_size: -num_tokens // block_size,
        ),
        Mistake(
            "tensor-not-int",
            "The number is right, and it is a tensor. "
            "Blocks are counted, so the answer is an int of Python's.",
            lambda num_tokens, block_size: torch.tensor(blocks_needed(num_tokens, block_size)),
            also=(
                lambda num_tokens, block_size: torch.ceil(
                    torch.tensor(num_tokens / block_size)
                ),
                lambda num_tokens, block_size: torch.ceil(
                    torch.tensor(num_tokens / block_size)
                ).int(),
            ),
        ),
        Mistake(
            "arguments-swapped",
            "You divide the size of a block by the number of tokens. "
            "The other way round it is a number of blocks.",
            lambda num_tokens, block_size: -(-block_size // num_tokens),
            also=(
                lambda num_tokens, block_size: (
                    -(-block_size // num_tokens) if num_tokens else 0
                ),
            ),
        ),
        Mistake(
            "only-one-full-block-right",
            "When one block is exactly full, your number is right. When several are, "
            "it is one too high. What decides is whether tokens are left over: "
            "full blocks leave none, and no tokens leave none either.",
            lambda num_tokens, block_size: (
                num_tokens // block_size + 1 if num_tokens > block_size else 1
            ),
            also=(
                lambda num_tokens, block_size: (
                    num_tokens // block_size + 1
                    if num_tokens > block_size
                    else min(num_tokens, 1)
                ),
            ),
        ),
    ),
    hints=(
        (
            "How many blocks do 16 tokens need when a block holds 16? And 17? "
            "What does `17 // 16` give?"
        ),
        (
            "`a // b` rounds down. Adding just enough to `a` first makes it round up. "
            "What is the smallest amount that lifts 17 "
            "to the next multiple of 16 without lifting 16?"
        ),
    ),
)
