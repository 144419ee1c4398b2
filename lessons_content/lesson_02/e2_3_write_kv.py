"""Exercise 2.3: write keys and values.

In which shape does the cache have one row for each slot? No number moves for that: `view` is
enough.

`tensor[indices] = rows` writes row i to place indices[i].
"""

import math

import torch

from lessons_content.exercises.kit import Text, error_of, exercise, tensors
from paged_attention.pool.slots import write_kv

WRONG_ARGUMENTS = {
    "one slot twice": lambda slots, k, v: (torch.full_like(slots, int(slots[0])), k, v),
    "a slot below 0": lambda slots, k, v: (slots - int(slots[0]) - 1, k, v),
    "values of another dtype": lambda slots, k, v: (slots, k, v.double()),
    "no slots, and values of another dtype": lambda slots, k, v: (
        slots[:0],
        k[:0],
        v[:0].double(),
    ),
}
IN_16_BITS = "bfloat16"  # as most models have it
# (num_blocks, block_size, num_kv_heads, head_size, slots), and perhaps IN_16_BITS, or what is
# wrong with the arguments
CASES = [
    (2, 2, 1, 1, [0]),
    (2, 2, 1, 1, [3]),
    (2, 2, 2, 3, [1]),
    (2, 2, 2, 3, []),
    (3, 2, 1, 2, [4, 1]),
    (3, 2, 2, 2, [2, 3]),
    (3, 4, 2, 2, [5, 2]),
    (4, 3, 3, 2, [7, 8, 0]),
    (4, 3, 2, 4, [11, 3, 4, 9, 10]),
    (3, 1, 2, 2, [2, 0]),
    (5, 16, 3, 2, [79, 16, 17]),
    (3, 2, 2, 2, [4, 1], IN_16_BITS),
    *((3, 2, 2, 2, [4, 1], flaw) for flaw in WRONG_ARGUMENTS),
]


def hidden(chance):
    for num_tokens in (1, 1, 2, 2, 3, 4, 5, 6, 7, 9):
        num_blocks, block_size = chance.randint(3, 6), chance.randint(3, 6)
        slots = chance.sample(range(num_blocks * block_size), num_tokens)
        yield num_blocks, block_size, chance.randint(1, 4), chance.randint(1, 8), slots
    for flaw in WRONG_ARGUMENTS:
        yield 4, 3, 2, chance.randint(2, 8), chance.sample(range(12), 2), flaw


def is_refused(case):
    return len(case) > 5 and case[5] != IN_16_BITS


def observe(answer, case):
    *sizes, slots = case[:5]
    k_cache, v_cache = torch.arange(2.0 * math.prod(sizes)).view(2, *sizes)
    shape = len(slots), *sizes[2:]
    k = -1.0 - torch.arange(float(math.prod(shape))).view(shape)
    slots, v = torch.tensor(slots, dtype=torch.int64), k - 1000.0
    if is_refused(case):
        return _refusal(answer, k_cache, v_cache, *WRONG_ARGUMENTS[case[5]](slots, k, v))
    if len(case) > 5:
        k_cache, v_cache, k, v = (x.bfloat16() for x in (k_cache, v_cache, k, v))
    answer(k_cache, v_cache, slots, k, v)
    names = "k_cache", "v_cache", *(f"{name} afterwards" for name in ("slots", "k", "v"))
    return tensors.values((k_cache, v_cache, slots, k, v), *names)


def _refusal(answer, k_cache, v_cache, *wrong):
    """Whether wrong arguments are refused, and the caches are as they were."""
    before = k_cache.clone(), v_cache.clone()
    error = error_of(answer, k_cache, v_cache, *wrong)
    ending = type(error).__name__ if error else "no error"
    if isinstance(error, TypeError | ValueError):
        ending = "ValueError or TypeError"
    is_written = not all(map(torch.equal, (k_cache, v_cache), before))
    return Text(f"{ending}, {'something' if is_written else 'nothing'} written")


def describe(case):
    if is_refused(case):
        return f"k_cache {case[:4]}; wrong arguments: {case[5]}"
    return (
        f"k_cache {case[:4]}{' in bfloat16' * (len(case) > 5)}, slots {case[4]}; "
        "the pool holds 0, 1, 2, …, the new keys are -1, -2, …, the new values -1001, -1002, …"
    )


EXERCISE = exercise(
    globals(),
    tensors,
    answer_name="write_kv",
    size=lambda case: (len(case[4]), math.prod(case[:4])),
    # whether the arguments are checked, or NumPy has the dtype, is another matter
    chancy=lambda case: len(case) > 5,
)
