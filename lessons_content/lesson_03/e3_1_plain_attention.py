"""Exercise 3.1: attention over one request's blocks.

Which slots of the blocks are tokens? `flatten(0, 1)` makes one row of the blocks, and a slice
keeps the first `length` of it. From then on there is no block and no tail.

A matrix product works on the last two dimensions. For one product per head, the head has to be
the first dimension: (num_q_heads, length, head_size).

The order of the steps: scores, divide, hide, softmax, multiply with the values, put the heads
back after the tokens, write them into zeros of q's shape.
"""

from lessons_content.exercises.kit import exercise, tensors
from lessons_content.lesson_03 import requests
from paged_attention.attention import by_request

EXERCISE = exercise(
    globals(),
    requests,
    tensors,
    reference=tensors.in_double(by_request.plain_attention),
    chancy=requests.tells_little,
)
