"""Exercise 3.4: attention block by block.

Two loops: over the blocks of queries, and inside over the blocks of keys that come before or
are the same. One state for each block of queries, one update for each block of keys.

The state's rows are (num_q_heads, block_size), so the scores of two blocks are (num_q_heads,
block_size, block_size). For the values the size in the middle may be 1: `v_block[:, None]`.

Slot s of block i has position i * block_size + s. One comparison of positions hides the future
in every pair of blocks, and another one hides what comes after the last token.

A hidden key has the weight 0, and 0 times NaN is NaN. What comes after the last token may be
NaN: cut the values there off, or set them to 0 in a tensor of your own.
"""

import torch

from lessons_content.exercises.kit import Alike, Text, exercise, tensors
from lessons_content.lesson_03 import requests
from lessons_content.lesson_03.largest_scores import LargestScores
from paged_attention.attention import by_request

# A long request with few numbers for each token, so that the scores of several pairs of blocks
# would be its largest tensor. It has one head, since an answer may take all heads at once.
LONG = (95, 16, 1, 1, 1, 2, requests.POISON)
# Here only the dtype of the result counts.
IN_64_BITS = (2, 2, 2, 2, 4, 4, requests.POISON, torch.float64)
CASES = [LONG, *requests.CASES, IN_64_BITS]  # LONG is before the other chancy ones


def is_long(case):
    return case[0] > 80


def hidden(chance):
    yield from requests.hidden(chance)
    yield chance.choice((94, 95, 96)), *LONG[1:5], chance.randrange(2**31), requests.POISON


class TooManyScores(Alike):
    """The result of an answer that is right, with the scores of many blocks at once."""


def dtype_of_result(answer, case):
    *request, dtype = case
    *given, length = requests.one_request(request)
    result = tensors.values(answer(*(x.to(dtype) for x in given), length))
    if isinstance(result, Text):
        return result
    return Text(f"a result of {tensors.name_of(result.tensor.dtype)}")


def observe(answer, case):
    if case == IN_64_BITS:
        return dtype_of_result(answer, case)
    if not is_long(case):
        return requests.observe(answer, case)
    largest, of_a_pair = None, case[1] ** 2

    def measured(*arguments):
        nonlocal largest
        with LargestScores(arguments[:3]) as largest:
            return answer(*arguments)

    result = requests.observe(measured, case)
    if largest.size < 2 * of_a_pair:
        return result
    on_the_way = f"a tensor of {largest.size} scores of one head on the way"
    return TooManyScores(f"{on_the_way}, where a pair of blocks has {of_a_pair}")


def describe(case):
    if case == IN_64_BITS:
        *request, dtype = case
        return f"{requests.describe(request)}, all in {tensors.name_of(dtype)}"
    more = ", and how large the tensors on the way are" if is_long(case) else ""
    return requests.describe(case) + more


EXERCISE = exercise(
    globals(),
    requests,
    tensors,
    reference=tensors.in_double(by_request.tiled_attention),
    chancy=lambda case: is_long(case) or case == IN_64_BITS or requests.tells_little(case),
    points=2,
)
