"""Exercise 4.1: repeat each query for its blocks."""

import random

import torch

from lessons_exercises import tensors
from lessons_exercises.lesson_04.inputs import call, generator, named_where, raises_where
from lessons_lib.checks import Exercise, Mistake
from paged_attention import decode


def repeats_the_batch(q, request_num_blocks):
    return q[torch.arange(int(request_num_blocks.sum())) % len(q)]


def repeats_the_batch_whole(q, request_num_blocks):
    return q.repeat(max(request_num_blocks.tolist(), default=0), 1, 1)


def repeats_as_often_as_fits(q, request_num_blocks):
    return q.repeat(int(request_num_blocks.sum()) // max(1, len(q)), 1, 1)


def deals_in_rounds(q, request_num_blocks):
    rounds = range(max(request_num_blocks.tolist(), default=0))
    index = [
        i
        for turn in rounds
        for i, count in enumerate(request_num_blocks.tolist())
        if count > turn
    ]
    return q[torch.tensor(index, dtype=torch.int64)]


def repeats_the_heads(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks, dim=1)


def repeats_the_numbers(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks)


def as_often_as_the_longest(q, request_num_blocks):
    return q.repeat_interleave(int(request_num_blocks.max()), dim=0)


def as_often_as_the_longest_until_full(q, request_num_blocks):
    return as_often_as_the_longest(q, request_num_blocks)[: int(request_num_blocks.sum())]


def flattens_the_heads(q, request_num_blocks):
    return decode.dispatch(q, request_num_blocks).flatten(1)


def keeps_empty_requests(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks.clamp(min=1), dim=0)


def once_too_often(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks + 1, dim=0)


def once_each(q, request_num_blocks):
    return q.clone()


def indices_alone(q, request_num_blocks):
    return torch.arange(len(q)).repeat_interleave(request_num_blocks)


def counts_shifted(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks.roll(1), dim=0)


def searches_to_the_left(q, request_num_blocks):
    """A row at the boundary is given to the request that ends there."""
    rows = torch.arange(int(request_num_blocks.sum()))
    return q[torch.searchsorted(request_num_blocks.cumsum(0), rows)]


def first_count_for_all(q, request_num_blocks):
    return q.repeat_interleave(int(request_num_blocks[0]), dim=0)


def _rows(q, request_num_blocks):
    return [q[i] for i, count in enumerate(request_num_blocks.tolist()) for _ in range(count)]


def joined_along_the_heads(q, request_num_blocks):
    return torch.cat([*_rows(q, request_num_blocks), q.flatten(0, 1)[:0]])


def joined_along_the_heads_unless_empty(q, request_num_blocks):
    return torch.cat(_rows(q, request_num_blocks))  # raises where there is no row


def in_a_rectangle(q, request_num_blocks):
    longest = max(request_num_blocks.tolist(), default=0)
    return q[:, None].repeat(1, longest, 1, 1)


def ends_for_counts(q, request_num_blocks):
    return q.repeat_interleave(request_num_blocks.cumsum(0), dim=0)


def counted_down(q, request_num_blocks):
    result = decode.dispatch(q, request_num_blocks)
    request_num_blocks.zero_()
    return result


def _no_row(q, request_num_blocks):
    return request_num_blocks.sum() == 0


# With -1 as a size, reshape cannot tell it where there is no row.
flattens_the_heads_of_some_rows = raises_where(_no_row, flattens_the_heads)

joins_nothing = raises_where(_no_row, decode.dispatch)


# (blocks of each request, query heads, head size, seed)
CASES = [
    ((1,), 1, 2, 0),
    ((2,), 1, 2, 1),
    ((1, 1), 1, 2, 2),
    ((3, 1), 1, 2, 3),
    ((2, 2), 1, 2, 4),
    ((3, 1, 2), 1, 2, 5),
    ((0,), 1, 2, 6),
    ((0, 2), 2, 2, 7),
    ((2, 0, 1), 1, 2, 8),
    ((3, 1, 2), 3, 4, 9),
    ((1, 4, 0, 2), 7, 3, 10),
    ((2, 2, 2), 3, 4, 11),
    ((5, 0, 0, 1, 3), 5, 16, 12),
    ((0, 0), 2, 4, 13),
    ((17, 1, 30, 0, 2), 3, 8, 14),
]


def hidden(seed):
    chance = random.Random(seed)
    for length in (1, 2, 2, 3, 3, 4, 5, 6, 7, 9):
        counts = (chance.randint(2, 20), *chance.choices(range(6), k=length - 1))
        yield (
            tuple(chance.sample(counts, length)),
            chance.randint(1, 6),
            chance.randint(2, 12),
            chance.randrange(2**31),
        )
    yield (
        (0,) * chance.randint(1, 5),
        chance.randint(1, 6),
        chance.randint(2, 12),
        chance.randrange(2**31),
    )


def observe(answer, case):
    counts, num_heads, head_size, seed = case
    q = torch.randn(len(counts), num_heads, head_size, generator=generator(seed))
    return named_where(
        sum(counts) == 0,
        lambda: call(answer, (), q=q, request_num_blocks=torch.tensor(counts)),
    )


def describe(case):
    counts, num_heads, head_size, _ = case
    return (
        f"q of shape ({len(counts)}, {num_heads}, {head_size}), "
        f"request_num_blocks = {list(counts)}"
    )


EXERCISE = Exercise(
    id="4.1",
    title="repeat each query for its blocks",
    answer_name="dispatch",
    reference=decode.dispatch,
    cases=lambda: CASES,
    size=lambda case: (len(case[0]) * case[1] * case[2], sum(case[0])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake(
            "repeat-not-interleave",
            "The queries come as q1, q2, q3, q1, q2, q3. The blocks come request by request, "
            "so from the second row on a query stands above another request's block.",
            repeats_the_batch,
            also=(repeats_the_batch_whole, repeats_as_often_as_fits),
        ),
        Mistake(
            "dealt-in-rounds",
            "The number of copies is right, and their order is not: you give each request "
            "one copy in turn. All copies of a request stand together, as its blocks do.",
            deals_in_rounds,
        ),
        Mistake(
            "wrong-dim",
            "You repeat the heads, not the requests. "
            "Which dimension of q counts the requests?",
            repeats_the_heads,
        ),
        Mistake(
            "no-dim",
            "Without a dimension the tensor is flattened first, "
            "and single numbers are repeated in place of whole queries.",
            repeats_the_numbers,
        ),
        Mistake(
            "padded-to-longest",
            "Each request has as many copies as the longest one has blocks. "
            "The extra copies stand above blocks of other requests, or above none.",
            as_often_as_the_longest,
        ),
        Mistake(
            "longest-until-full",
            "The number of rows is right. They are given out as if each request had "
            "as many blocks as the longest one, until none is left: "
            "the last requests have too few, or none. Each request has a number of its own.",
            as_often_as_the_longest_until_full,
        ),
        Mistake(
            "heads-flattened",
            "The rows are right, and each lies flat: "
            "its heads are joined into one dimension. "
            "A row of the result has the shape of a query, (num_q_heads, head_size).",
            flattens_the_heads,
            also=(flattens_the_heads_of_some_rows,),
        ),
        Mistake(
            "in-a-rectangle",
            "The copies stand in a rectangle, "
            "with as many places for each request as the longest one needs. "
            "The result has one row for each block, one after the other, without gaps.",
            in_a_rectangle,
        ),
        Mistake(
            "ends-for-counts",
            "Each query is repeated as often as all requests up to its own "
            "have blocks together. A running sum says where a request's rows end; "
            "how many it has, request_num_blocks says.",
            ends_for_counts,
        ),
        Mistake(
            "empty-request-kept",
            "A request without blocks has a copy of its query all the same, "
            "and everything behind it is one row off. 0 blocks means 0 copies.",
            keeps_empty_requests,
        ),
        Mistake(
            "one-copy-too-many",
            "Each request has one copy too many. "
            "Is the new token's own attention counted here? It has its own step.",
            once_too_often,
        ),
        Mistake(
            "not-repeated",
            "Each query is there once, however many blocks its request has. "
            "Then only one block of each request finds a query.",
            once_each,
        ),
        Mistake(
            "returns-indices",
            "You return which request each row belongs to. "
            "That is half of the way: the result holds the queries themselves.",
            indices_alone,
        ),
        Mistake(
            "boundary-off-by-one",
            "The first copy of each request but the first is that of the request before it. "
            "At which row does a request begin, "
            "and which of two equal numbers does your search find?",
            searches_to_the_left,
        ),
        Mistake(
            "first-count-for-all",
            "Every query is repeated as often as the first request has blocks. "
            "Each request has a number of its own.",
            first_count_for_all,
        ),
        Mistake(
            "joined-along-the-heads",
            "The copies are joined along the heads. `q[i]` has lost the dimension that "
            "counts requests, and torch.cat joins along the first dimension that is left.",
            joined_along_the_heads,
            also=(joined_along_the_heads_unless_empty,),
        ),
        Mistake(
            "joins-nothing",
            "When no request has a block, your function raises: "
            "torch.stack and torch.cat take no empty list. The result then has 0 rows.",
            joins_nothing,
        ),
        Mistake(
            "list-of-queries",
            "The rows are in a Python list. "
            "The result is one tensor, in which the rows lie one after the other.",
            _rows,
        ),
        Mistake(
            "inputs-changed",
            "Your function changes q or request_num_blocks, which belong to its caller. "
            "Count in a copy.",
            counted_down,
        ),
        Mistake(
            "counts-of-the-neighbour",
            "Each query is repeated as often as the request before it has blocks. "
            "Query i goes with count i.",
            counts_shifted,
        ),
    ),
    hints=(
        (
            "Write the wanted rows for request_num_blocks = [3, 1, 2] on paper: "
            "whose query is in row 0, 1, 2, 3, 4, 5?"
        ),
        (
            "PyTorch has two functions that repeat. One lays the whole tensor down again "
            "and again, the other repeats each row on the spot."
        ),
        "The one you want takes a tensor of counts, and a `dim`.",
    ),
)
