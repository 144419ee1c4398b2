"""Exercise 2.1: pieces of memory.

Go through the dimensions from the last to the first, and keep how many numbers lie side by
side so far.

A dimension continues the piece when its stride equals the length of the piece so far. (Of size
1, it has only one entry, and its stride is never used.)

The first dimension that breaks the piece ends the search. The number of pieces is that of all
numbers divided by the length of one.
"""

import math

import torch

from lessons_content.exercises.kit import Text, exercise, tensors


def count_pieces(view):
    """In how many pieces of memory a tensor's numbers lie, and how large each piece is.

    The size is in bytes. All pieces of a view have equal length.

    view: a tensor of at least one dimension and one number, not transposed. Numbers that lie
        side by side in memory, in the view's order, belong to one piece.
    Returns (number of pieces, bytes in a piece), two ints.
    """
    # BEGIN SOLUTION 2.1
    run = 1  # how many numbers, from the last dimension on, lie side by side
    for size, stride in zip(reversed(view.shape), reversed(view.stride())):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return view.numel() // run, run * view.element_size()
    # END SOLUTION


# (sizes of the whole tensor, index into it, dtype)
CASES = [
    ((4,), (), "float32"),
    ((4,), (), "float16"),
    ((2, 2), (), "float32"),
    ((3, 3, 3), (), "float16"),
    ((3, 4), (), "float16"),
    ((3, 4), (slice(None), 0), "float32"),
    ((3, 4), (slice(None), slice(0, 2)), "float16"),
    ((3, 2, 4), (slice(None), 1), "float32"),
    ((3, 2, 4), (slice(0, 2),), "float16"),
    ((3, 2, 2, 4), (slice(None), slice(None), 0), "float32"),
    ((3, 2, 2, 4), (slice(None), 0), "float64"),
    ((3, 4, 2), (slice(None), slice(None), slice(0, 1)), "float16"),
    ((3, 1, 4), (), "float32"),
    ((3, 1, 4), (slice(None), slice(None, None, 2)), "float32"),
    ((2, 3, 4), (slice(None), slice(None), slice(0, 2)), "float32"),
    ((5, 3, 4), (slice(0, 1), slice(None), slice(None)), "float32"),
    ((2, 3, 2, 4), (slice(None), slice(0, 1), slice(None), slice(None)), "float16"),
    ((4, 16, 2, 3, 8), (2, slice(None), 0, 1), "float16"),
    ((4, 2, 3, 16, 8), (2, 0, 1), "float16"),
    ((2, 4, 16, 3, 8), (0, 2, slice(None), 1), "float16"),
    ((2, 4, 16, 3, 8), (0, slice(1, 3), slice(0, 8)), "float32"),
    ((3, 3, 3), (slice(None), slice(0, 2), slice(None)), "float32"),
    ((6, 4), (slice(None, None, 2),), "float16"),
    ((4, 6), (slice(None), slice(None, None, 2)), "float16"),
]


def hidden(chance):
    """Tensors of two to five dimensions, and a square.

    Of each but the first all, a range, one, or every second, though not of three, whose last
    one would lie beside the first one of the next row.
    """
    all_of_it = slice(None)
    for number in range(20):
        sizes, index = chance.choices((1, 1, 2, 3, 4, 6), k=2 + number // 5), [all_of_it]
        for size in sizes[1:]:
            first, some = slice(0, chance.randint(1, size)), slice(None, None, 1 + (size != 3))
            index.append(chance.choice((all_of_it, all_of_it, first, size - 1, some)))
        yield tuple(sizes), tuple(index), chance.choice(("float16", "float32", "float64"))
    yield (chance.randint(2, 6),) * 2, (), "float32"


def view_of(case):
    sizes, index, dtype = case
    return torch.zeros(sizes, dtype=getattr(torch, dtype))[index]


def observe(answer, case):
    result = answer(view_of(case))
    if not isinstance(result, tuple | list):
        return Text(repr(result))
    # 3.0 and tensor(3) equal 3 in Python; the docstring asks for ints.
    return tuple(map(tensors.integer, result))


def describe(case):
    view = view_of(case)
    return f"shape {tuple(view.shape)}, strides {view.stride()}, {case[2]}"


EXERCISE = exercise(
    globals(), answer_name="count_pieces", size=lambda case: (math.prod(case[0]), len(case[0]))
)
