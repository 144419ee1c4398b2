"""Exercise 5.1: where each sequence's queries begin."""

import random
from itertools import accumulate

import torch

from lessons_exercises import tensors
from lessons_lib.checks import Exercise, Mistake, Text
from paged_attention.metadata import cumulative_lengths


def int32(numbers):
    return torch.tensor(list(numbers), dtype=torch.int32)


def no_leading_zero(query_lens):
    return int32(accumulate(query_lens))


def no_total(query_lens):
    return int32([0, *accumulate(query_lens)][:-1])


def zero_twice(query_lens):
    return int32([0, *([0, *accumulate(query_lens)][:-1])])


def sums_int64(query_lens):
    return torch.tensor([0, *accumulate(query_lens)])


def sums_float(query_lens):
    return torch.tensor([0.0, *accumulate(query_lens)])


def lengths_not_summed(query_lens):
    return int32([0, *query_lens])


def summed_from_the_end(query_lens):
    return int32([0, *accumulate(reversed(query_lens))])


def last_index_instead_of_end(query_lens):
    return int32([0, *(end - 1 for end in accumulate(query_lens))])


def only_the_total(query_lens):
    return int32([sum(query_lens)])[0]


def not_a_tensor(query_lens):
    return [0, *accumulate(query_lens)]


def list_changed(query_lens):
    query_lens.insert(0, 0)
    return int32(accumulate(query_lens))


def zero_appended(query_lens):
    ends = [0, *accumulate(query_lens)]
    query_lens.append(0)
    return int32(ends)


def list_summed_in_place(query_lens):
    for index in range(1, len(query_lens)):
        query_lens[index] += query_lens[index - 1]
    return int32([0, *query_lens])


def zero_at_the_end(query_lens):
    return int32([*accumulate(query_lens), 0])


def pairs(query_lens):
    ends = list(accumulate(query_lens))
    return int32([end - length, end] for end, length in zip(ends, query_lens, strict=True))


def borders_of_a_rectangle(query_lens):
    return int32(s * max(query_lens) for s in range(len(query_lens) + 1))


def first_length_lost(query_lens):
    return int32([0, 0, *accumulate(query_lens[1:])])


def ends_alone(query_lens):
    return int32([0, sum(query_lens)])


def one_length_too_early(query_lens):
    """Each step adds the length before the one that it should add.

    Before the first, Python finds the last.
    """
    return int32([0, *accumulate([query_lens[-1], *query_lens[:-1]])])


def each_one_too_short(query_lens):
    return int32([0, *accumulate(length - 1 for length in query_lens)])


def two_dimensions(query_lens):
    return int32([0, *accumulate(query_lens)])[None]


CASES = [
    (1,),
    (3,),
    (2, 3),
    (1, 1, 1),
    (5, 1, 1, 4),
    (1, 16, 17, 15),
    (40_000, 1, 40_000),
    tuple(range(1, 30)),
]


def hidden(seed):
    chance = random.Random(seed)
    for length in (1, 2, 2, 3, 4, 5, 8, 20):
        yield tuple(chance.choices((1, 1, *range(2, 60)), k=length))
    yield chance.randint(33_000, 90_000), chance.randint(1, 9), chance.randint(33_000, 90_000)


def observe(answer, case):
    query_lens = list(case)
    result = tensors.values(answer(query_lens))
    return (
        result
        if query_lens == list(case)
        else Text(f"the caller's list is changed to {query_lens}")
    )


EXERCISE = Exercise(
    id="5.1",
    title="where each sequence's queries begin",
    answer_name="cumulative_lengths",
    reference=cumulative_lengths,
    cases=lambda: CASES,
    size=lambda case: (len(case), sum(case)),
    hidden=hidden,
    observe=observe,
    describe=lambda case: f"cumulative_lengths({list(case)})",
    same=tensors.same,
    show=tensors.show,
    mistakes=(
        Mistake(
            "no-leading-zero",
            "The 0 at the front is missing, so entry s is where sequence s ends, "
            "and nothing says where the first one begins.",
            no_leading_zero,
        ),
        Mistake(
            "no-total",
            "Each beginning is there, and the end of the last sequence is not. With it, "
            "sequence s always lies between entry s and entry s + 1, the last one too.",
            no_total,
        ),
        Mistake(
            "zero-twice",
            "The 0 stands there twice, and the end of the last sequence is missing. "
            "Entry s + 1 counts sequence s too.",
            zero_twice,
        ),
        Mistake(
            "sums-int64",
            "The numbers are right, and their dtype is int64, which is what PyTorch makes "
            "of Python integers and of sums. Kernels read these numbers as int32: "
            "through an int64 tensor they would see every second one as 0.",
            sums_int64,
        ),
        Mistake(
            "sums-float",
            "The numbers are right, and they are floats. "
            "They are used as indices, so the dtype has to be int32.",
            sums_float,
        ),
        Mistake(
            "lengths-not-summed",
            "These are the lengths themselves. "
            "Where a sequence begins depends on all the sequences before it.",
            lengths_not_summed,
        ),
        Mistake(
            "summed-from-the-end",
            "The sums run over the sequences from the last to the first. "
            "The batch holds them in the order of the list.",
            summed_from_the_end,
        ),
        Mistake(
            "last-index-instead-of-end",
            "After the 0 you give the row of each sequence's last query. "
            "The convention is that of Python's slices: the end is one row further, "
            "and it is where the next sequence begins.",
            last_index_instead_of_end,
        ),
        Mistake(
            "only-the-total",
            "This is one number, the tokens of the whole batch. What is asked "
            "for has an entry for each border between two sequences, and for both ends.",
            only_the_total,
        ),
        Mistake(
            "not-a-tensor",
            "The numbers are right, and they stand in a Python list or in an array of NumPy. "
            "A kernel takes a tensor.",
            not_a_tensor,
            also=(
                lambda query_lens: int32([0, *accumulate(query_lens)]).numpy(),
                lambda query_lens: tuple(not_a_tensor(query_lens)),
            ),
        ),
        Mistake(
            "list-changed",
            "The caller's list has changed on the way. Work on a list of your own.",
            list_changed,
            also=(list_summed_in_place, zero_appended),
        ),
        Mistake(
            "zero-at-the-end",
            "The 0 stands behind the sums. "
            "Entry 0 is where the first sequence begins, so the 0 comes first.",
            zero_at_the_end,
        ),
        Mistake(
            "pairs",
            "Each sequence has a pair of numbers for itself. "
            "One row of borders says the same: where a sequence ends, the next one begins.",
            pairs,
            also=(lambda query_lens: pairs(query_lens).flatten(),),
        ),
        Mistake(
            "borders-of-a-rectangle",
            "The borders are those of the padded rectangle, "
            "where each sequence has as many places as the longest one. "
            "Here the queries lie one after the other, without gaps.",
            borders_of_a_rectangle,
        ),
        Mistake(
            "first-length-lost",
            "The first length is in none of the sums: "
            "sequence 1 begins where sequence 0 does.",
            first_length_lost,
        ),
        Mistake(
            "ends-alone",
            "These are the two ends of the whole batch. "
            "What is asked for also has an entry for each border between two sequences.",
            ends_alone,
        ),
        Mistake(
            "one-length-too-early",
            "Each sum adds the length of the sequence before, "
            "and the first one adds that of the last: index -1 is the end of a list. "
            "Entry s + 1 is entry s and the length of sequence s.",
            one_length_too_early,
        ),
        Mistake(
            "each-one-too-short",
            "Every length is one too short in your sums. Where a sequence ends, the next one "
            "begins: entry s + 1 lies as many rows behind entry s as sequence s has queries.",
            each_one_too_short,
        ),
        Mistake(
            "two-dimensions",
            "The numbers are right, and the tensor has one dimension too many. "
            "What is asked for has the shape (num_seqs + 1,).",
            two_dimensions,
            also=(lambda query_lens: two_dimensions(query_lens).T,),
        ),
    ),
    hints=(
        (
            "For three sequences with 5, 1 and 4 queries: "
            "in which row does the first one begin, "
            "in which the second, the third, and in which row would a fourth one begin?"
        ),
        (
            "A running sum gives all the ends. What is missing in front of it? "
            "And which dtype does your sum have?"
        ),
    ),
)
