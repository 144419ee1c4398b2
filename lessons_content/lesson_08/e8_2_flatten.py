"""Exercise 8.2: all sequences in one row.

For one request: which positions do its next num_tokens tokens have, when num_computed of them
are in the cache?

The tokens are in `request.tokens` at exactly these positions, prompt and generated ones alike.

Three lists that grow request by request. When a request's tokens have been added, where does
the last one stand?
"""

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_08 import flat_rows
from paged_attention.engine.runner import flatten_batch

# (tokens of the prompt, generated, computed, new ones of this step) of each request
CASES = [
    [(1, 0, 0, 1)],
    [(3, 0, 0, 3)],
    [(3, 0, 0, 2)],
    [(4, 0, 2, 2)],
    [(5, 0, 1, 2)],
    [(2, 1, 2, 1)],
    [(3, 4, 6, 1)],
    [(2, 0, 0, 2), (3, 0, 0, 3)],
    [(3, 2, 4, 1), (2, 1, 2, 1), (4, 0, 0, 4)],
    [(6, 0, 3, 2), (2, 2, 3, 1), (5, 0, 0, 1)],
    [(3, 3, 0, 6), (4, 5, 0, 7), (1, 1, 1, 1)],
    [(12, 0, 0, 12)],
    [(17, 0, 16, 1), (40, 3, 32, 8), (16, 1, 16, 1), (9, 0, 0, 4)],
]


def hidden(chance):
    """Up to four requests: any part of their prompts, of what they generated, or of both."""
    for number in range(12):
        requests = []
        for _ in range(1 + number // 3):
            prompt = chance.randint(1, 20)
            generated = chance.choice((0, 0, 1, chance.randint(1, 9)))
            total = prompt + generated
            computed = chance.choice((0, total - 1, chance.randrange(total)))
            left = total - computed
            num_tokens = chance.choice((left, chance.randint(1, left)))
            requests.append((prompt, generated, computed, num_tokens))
        yield requests


EXERCISE = exercise(
    globals(),
    flat_rows,
    answer_name="flatten_batch",
    size=lambda case: (
        sum(num_tokens for *_, num_tokens in case),
        len(case),
        sum(map(sum, case)),
    ),
)
