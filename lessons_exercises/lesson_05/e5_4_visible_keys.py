"""Exercise 5.4: which query sees which key."""

import math
import random

import torch

from lessons_exercises import tensors
from lessons_lib.checks import Exercise, Mistake
from paged_attention.metadata import visible_keys
from paged_attention.softmax_state import NO_KEY


def grid(q_len, kv_len):
    """The places in the sequence of the queries (q_len, 1) and of the keys (1, kv_len)."""
    return torch.arange(kv_len - q_len, kv_len)[:, None], torch.arange(kv_len)[None, :]


def chunk_not_causal(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key <= query if q_len == kv_len else torch.ones(q_len, kv_len, dtype=torch.bool)


def not_causal(q_len, kv_len):
    return torch.ones(q_len, kv_len, dtype=torch.bool)


def top_left_aligned(q_len, kv_len):
    return torch.ones(q_len, kv_len).tril().bool()


def own_key_hidden(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key < query


def next_key_seen(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key <= query + 1


def past_not_seen(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return (key <= query) & (key >= kv_len - q_len)


def past_alone(q_len, kv_len):
    _, key = grid(q_len, kv_len)
    return (key < kv_len - q_len).expand(q_len, kv_len)


def only_itself(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key == query


def inverted(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key > query


def keys_as_rows(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return (key <= query).T


def added_to_scores(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return torch.zeros(q_len, kv_len).masked_fill(key > query, NO_KEY)


def not_boolean(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return (key <= query).int()


def as_dtype(dtype):
    return lambda q_len, kv_len: not_boolean(q_len, kv_len).to(dtype)


def future_not_past(q_len, kv_len):
    query, key = grid(q_len, kv_len)
    return key >= query


def offset_reversed(q_len, kv_len):
    return torch.ones(q_len, kv_len).tril(q_len - kv_len).bool()


def all_tokens_as_queries(q_len, kv_len):
    return torch.ones(kv_len, kv_len).tril().bool()


def new_keys_only(q_len, kv_len):
    return torch.ones(q_len, q_len).tril().bool()


def past_behind(q_len, kv_len):
    """The new tokens' triangle first, then the keys that all of them see."""
    return torch.cat(
        [new_keys_only(q_len, kv_len), torch.ones(q_len, kv_len - q_len, dtype=torch.bool)],
        dim=1,
    )


def queries_reversed(q_len, kv_len):
    return visible_keys(q_len, kv_len).flip(0)


def keys_as_rows_of(triangle, offset):
    return lambda q_len, kv_len: triangle(
        torch.ones(kv_len, q_len), offset(q_len, kv_len)
    ).bool()


CASES = [
    (1, 1),
    (2, 2),
    (1, 2),
    (2, 3),
    (1, 3),
    (3, 5),
    (4, 4),
    (3, 4),
    (5, 12),
    (1, 20),
    (7, 33),
    (16, 16),
    (16, 17),
    (15, 32),
]


def hidden(seed):
    """As many queries as keys, one query, one query less than keys; then any numbers."""
    chance = random.Random(seed)
    kv_lens = chance.sample(range(3, 60), 12)
    yield from (
        (q_len, kv_len)
        for q_len, kv_len in zip((kv_lens[0], 1, kv_lens[2] - 1), kv_lens, strict=False)
    )
    yield from ((chance.randint(2, kv_len), kv_len) for kv_len in kv_lens[3:])


EXERCISE = Exercise(
    id="5.4",
    title="which query sees which key",
    answer_name="visible_keys",
    reference=visible_keys,
    cases=lambda: CASES,
    size=lambda case: math.prod(case),
    hidden=hidden,
    observe=lambda answer, case: tensors.values(answer(*case)),
    describe=lambda case: f"visible_keys(q_len={case[0]}, kv_len={case[1]})",
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake(
            "not-causal",
            "Every query sees every key, also those of tokens that come after it.",
            not_causal,
        ),
        Mistake(
            "chunk-not-causal",
            "A whole prompt is right, and a single new token too. "
            "In between, for a chunk of a prompt, every query sees every key: "
            "the first token of the chunk reads the tokens behind it.",
            chunk_not_causal,
        ),
        Mistake(
            "top-left-aligned",
            "The triangle starts at the first key, "
            "as if the queries were the first tokens of the sequence. "
            "They are its last ones: how many keys are there before the first query?",
            top_left_aligned,
        ),
        Mistake(
            "own-key-hidden",
            "A query does not see its own key. "
            "The first token of a sequence would see nothing at all.",
            own_key_hidden,
        ),
        Mistake(
            "next-key-seen",
            "Each query sees one key too many, that of the token behind it.",
            next_key_seen,
        ),
        Mistake(
            "past-not-seen",
            "Among the new tokens it is right, "
            "and the tokens that were in the pool before are hidden from all of them.",
            past_not_seen,
        ),
        Mistake(
            "past-alone",
            "Each query sees the tokens that were in the pool before, and no new one: "
            "not even its own.",
            past_alone,
        ),
        Mistake("only-itself", "Each query sees its own key and no other.", only_itself),
        Mistake(
            "inverted",
            "True and False are the wrong way round: True says that the query sees the key. "
            "(Functions that fill masked scores want it the other way round.)",
            inverted,
        ),
        Mistake(
            "keys-as-rows",
            "The keys are the rows and the queries the columns. "
            "It is (q_len, kv_len), a row for each query, as the scores have it.",
            keys_as_rows,
            also=(
                keys_as_rows_of(torch.tril, lambda q_len, kv_len: kv_len - q_len),
                keys_as_rows_of(torch.tril, lambda q_len, kv_len: q_len - kv_len),
                keys_as_rows_of(torch.tril, lambda q_len, kv_len: 0),
            ),
        ),
        Mistake(
            "added-to-scores",
            "These are numbers to add to scores, 0 and minus infinity. "
            "Here a yes or no is asked for, a tensor of bool.",
            added_to_scores,
        ),
        Mistake(
            "not-boolean",
            "The places are right, and the dtype is not: 1 and 0 are numbers. "
            "Used as an index or a mask they mean something else than True and False.",
            not_boolean,
            also=(as_dtype(torch.float32), as_dtype(torch.int64), as_dtype(torch.uint8)),
        ),
        Mistake(
            "future-not-past",
            "Each query sees its own key and those behind it, and none of those before. "
            "The triangle is the wrong one of the two.",
            future_not_past,
            also=(lambda q_len, kv_len: future_not_past(q_len, kv_len).float(),),
        ),
        Mistake(
            "offset-reversed",
            "The triangle is moved in the wrong direction: with keys before the first query, "
            "the queries should see more of them, and here they see fewer.",
            offset_reversed,
            also=(lambda q_len, kv_len: offset_reversed(q_len, kv_len).float(),),
        ),
        Mistake(
            "all-tokens-as-queries",
            "There is a row for each token of the sequence. "
            "Only its last q_len tokens are queries.",
            all_tokens_as_queries,
            also=(lambda q_len, kv_len: all_tokens_as_queries(q_len, kv_len).float(),),
        ),
        Mistake(
            "new-keys-only",
            "There is a column for each new token. The tokens that were in the pool "
            "before have keys as well, so there are kv_len columns.",
            new_keys_only,
            also=(lambda q_len, kv_len: new_keys_only(q_len, kv_len).float(),),
        ),
        Mistake(
            "past-behind",
            "The triangle of the new tokens comes first, "
            "and the keys that all of them see behind it. "
            "The columns are in the order of the sequence: which keys are the oldest?",
            past_behind,
            also=(lambda q_len, kv_len: past_behind(q_len, kv_len).float(),),
        ),
        Mistake(
            "queries-reversed",
            "The rows are in reverse order. Row 0 belongs to the first of the queries: "
            "does it see more keys than the last one, or fewer?",
            queries_reversed,
            also=(lambda q_len, kv_len: queries_reversed(q_len, kv_len).float(),),
        ),
        Mistake(
            "list-of-lists",
            "This is a Python list of lists. torch.tensor() makes a tensor of it.",
            lambda q_len, kv_len: visible_keys(q_len, kv_len).tolist(),
        ),
    ),
    hints=(
        (
            "Give each query and each key its place in the sequence, counted from 0. "
            "The keys have 0 to kv_len - 1. Which places have the queries?"
        ),
        (
            "A query sees a key when the key's place is not behind its own. "
            "One comparison of a column with a row gives all of it."
        ),
    ),
)
