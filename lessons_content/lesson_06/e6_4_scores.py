"""Exercise 6.4: the scores.

First bring the query into q, all threads together: thread 0 takes the elements 0, blockDim.x,
2 * blockDim.x and so on. to_float() makes a float of each. Then wait until all of it is there.

Tokens are shared out in the same way: thread t takes the tokens t, t + blockDim.x and so on.

For each token, cache_offset() says where its key begins in k_cache. Multiply the key with q
element by element and add up. Then scale the sum and write it to scores[token].
"""

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_06 import batches, score_kernel
from lessons_content.lesson_06.batches import NOT_WRITTEN, Case, FarCase, drawn
from lessons_content.lesson_06.score_kernel import Narrow

CASES = [
    Case((1,), 1, 1, 1, 4),
    Case((1,), 1, 1, 8, 4),
    Case((3,), 1, 1, 8, 4),
    Case((4, 5), 2, 2, 8, 4),
    Case((0, 3, 9), 6, 2, 8, 4),
    Narrow((8, 2), 7, 1, 12, 4, dtype=1),
    Narrow((5, 16, 17), 4, 4, 16, 16, dtype=2),
    Case((7, 4), 6, 3, 8, 3, gap=5, seed=1),
    Case((128, 127), 2, 1, 8, 16),
    Narrow((129, 300), 2, 2, 8, 16, dtype=1),
    Case((20, 6), 3, 1, 200, 8),
    Narrow((2,), 2, 2, 256, 4, dtype=1),
    Narrow((6, 40), 14, 2, 64, 16, dtype=2, spare_context=9),
    Case((3,), 1, 1, 16, 4, scale=0.5),
    batches.FAR,
]


def hidden(chance):
    """Batches of any shape, then an empty context and extreme sizes."""
    yield from (drawn(chance) for _ in range(10))
    yield drawn(chance, context_lens=(0, chance.randint(2, 9)))
    yield from batches.drawn_extremes(chance)


def show(expected, actual):
    return tuple(
        text if isinstance(text, Text) else text.replace(f"{NOT_WRITTEN:g}", "never written")
        for text in kernels.show(expected, actual)
    )


EXERCISE = exercise(
    globals(),
    score_kernel,
    kernels,
    batches,
    answer_name="paged_scores",
    observe=batches.observing("k_cache", "scores", "block_table", "context_lens"),
    chancy=lambda case: isinstance(case, FarCase),  # other mistakes may give anything there
    describe=lambda case: case.describe("the scores for each (sequence, head, token)"),
    points=2,
)
