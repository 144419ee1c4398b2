"""Exercise 8.1: your attention in a transformers model.

Three things happen in this order: the tensors get the shapes of lessons 03 to 05, the new keys
and values go into their slots, the attention runs over the pool.

`query[0]` is (num_q_heads, num_tokens, head_size). Which two dimensions change places, for
query, key and value?

`paged.kv_cache[module.layer_idx]` holds two caches. Writing into slots is exercise 2.3: first
make block and offset one dimension, as a view, so that the pool itself is written.

`attend` returns (num_tokens, num_q_heads, head_size). What is missing in front of it, and
after the comma?
"""

import copy

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons_content.exercises.kit import exercise, tensors
from lessons_content.lesson_08 import model_calls
from paged_attention.engine.attention import paged_attention_forward

# (block size, KV heads, query heads of each, head size, layers, sequences: tokens in the cache
# and new tokens, seed)
CASES = [
    (4, 1, 1, 2, 1, [(0, 1)], 1),
    (4, 2, 1, 1, 1, [(0, 2)], 4),
    (4, 1, 1, 2, 1, [(2, 1)], 2),
    (2, 1, 1, 2, 2, [(3, 1)], 3),
    (4, 2, 1, 4, 1, [(0, 3)], 5),
    (2, 2, 1, 4, 2, [(4, 3), (1, 1)], 6),
    (4, 1, 3, 8, 2, [(5, 1), (0, 4), (2, 1)], 7),
    (3, 2, 3, 2, 3, [(7, 1), (3, 1), (0, 5), (6, 4)], 8),
    (4, 3, 7, 2, 1, [(4, 4), (3, 1), (0, 1), (8, 2)], 9),
    (1, 2, 1, 4, 1, [(2, 2), (1, 1)], 10),
    (16, 2, 2, 2, 2, [(17, 1), (31, 1), (0, 18)], 11),
]


def hidden(chance):
    """Up to four sequences: decodes, whole prompts, chunks."""
    for number in range(12):
        block_size = chance.randint(1, 6)
        chunks = []
        for _ in range(1 + number // 3):
            past = chance.choice((0, block_size, chance.randint(1, 2 * block_size)))
            chunks.append((past, chance.choice((1, chance.randint(1, 2 * block_size)))))
        heads = chance.randint(1, 3), chance.randint(1, 4), chance.choice((2, 4, 8))
        yield block_size, *heads, chance.randint(1, 3), chunks, chance.randrange(2**31)


EXERCISE = exercise(
    globals(),
    model_calls,
    tensors,
    answer_name="paged_attention_forward",
    points=2,
)
