"""Exercise 5.4: which query sees which key.

Give each query and each key its place in the sequence, counted from 0. The keys have 0 to
kv_len - 1. Which places have the queries?

A query sees a key when the key's place is not after its own. One comparison of a column with a
row gives all of it.
"""

import math

from lessons_content.exercises.kit import exercise, tensors
from paged_attention.attention.metadata import visible_keys

CASES = [(1, 1), (2, 2), (1, 2), (2, 3), (1, 3), (3, 5), (4, 4), (3, 4)]
FAR = (2, 2050)  # so high, a float of 16 bits does not tell neighbours apart
CASES += [(5, 12), (1, 20), (7, 33), (16, 16), (16, 17), (15, 32), FAR]


def hidden(chance):
    """As many queries as keys, one query, one query less than keys; then any numbers."""
    kv_lens = chance.sample(range(3, 60), 12)
    yield from zip((kv_lens[0], 1, kv_lens[2] - 1), kv_lens)
    for kv_len in kv_lens[3:]:
        yield chance.randint(2, kv_len), kv_len


def observe(answer, case):
    seen = tensors.observe(answer, case)
    if case == FAR and isinstance(seen, tensors.Values):
        return tensors.Values(seen.tensor.sum(-1), "keys seen by each query")
    return seen


EXERCISE = exercise(globals(), tensors, answer_name="visible_keys", size=math.prod)
