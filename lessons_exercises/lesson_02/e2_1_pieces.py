"""Exercise 2.1: in how many pieces a part of the pool lies in memory."""

import math
import random

import torch

from lessons_lib.checks import Exercise, Mistake, Text


def count_pieces(view):
    """In how many pieces of memory a tensor's numbers lie, and how large each piece is.

    The size is in bytes.

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


def last_dimension_only(view):
    run = view.shape[-1] if view.stride(-1) == 1 else 1
    return view.numel() // run, run * view.element_size()


def all_in_one(view):
    return 1, view.numel() * view.element_size()


def in_numbers(view):
    pieces, size = count_pieces(view)
    return pieces, size // view.element_size()


def four_bytes(view):
    pieces, size = count_pieces(view)
    return pieces, size // view.element_size() * 4


def last_stride_taken_for_one(view):
    run = view.shape[-1]
    for size, stride in list(zip(reversed(view.shape), reversed(view.stride())))[1:]:
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return view.numel() // run, run * view.element_size()


def size_one_breaks(view):
    run = 1
    for size, stride in zip(reversed(view.shape), reversed(view.stride())):
        if stride != run:
            break
        run *= size
    return view.numel() // run, run * view.element_size()


def goes_on_after_a_gap(view):
    run = expected = 1
    for size, stride in zip(reversed(view.shape), reversed(view.stride())):
        if size > 1 and stride == expected:
            run *= size
        expected = size * stride
    return view.numel() // run, run * view.element_size()


def bytes_of_the_whole(view):
    return count_pieces(view)[0], view.numel() * view.element_size()


def swapped(view):
    return count_pieces(view)[::-1]


def two_bytes(view):
    pieces, size = count_pieces(view)
    return pieces, size // view.element_size() * 2


def last_dimension_whatever_its_stride(view):
    return view.numel() // view.shape[-1], view.shape[-1] * view.element_size()


def from_the_first_dimension(view):
    run = 1
    for size, stride in zip(view.shape, view.stride()):
        if stride != run:
            break
        run *= size
    return view.numel() // run, run * view.element_size()


def gaps(view):
    pieces, size = count_pieces(view)
    return pieces - 1, size


def parts_between_gaps(view):
    pieces, _ = count_pieces(view)
    return pieces - 1, view.numel() // max(1, pieces - 1) * view.element_size()


def neighbours_compared(view):
    """Compares each stride with the dimension to its right, and not the last stride."""
    first = view.dim() - 1
    while first and view.stride(first - 1) == view.stride(first) * view.shape[first]:
        first -= 1
    pieces = math.prod(view.shape[:first])
    return pieces, view.numel() // pieces * view.element_size()


def every_neighbour_compared(view):
    pieces = 1
    for size, stride, inner_size, inner in zip(
        view.shape, view.stride(), view.shape[1:], view.stride()[1:]
    ):
        if stride != inner * inner_size:
            pieces *= size
    return pieces, view.numel() // pieces * view.element_size()


def strides_in_bytes(view):
    run = view.element_size()
    for size, stride in zip(reversed(view.shape), reversed(view.stride())):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return view.numel() * view.element_size() // run, run


def storage_in_pieces(view):
    pieces, _ = count_pieces(view)
    return pieces, view.untyped_storage().nbytes() // pieces


def outermost_step(view):
    """The first dimension that does not follow closely: its size and its stride."""
    for dim, (size, stride) in enumerate(zip(view.shape, view.stride())):
        if stride != math.prod(view.shape[dim + 1 :]):
            return size, stride * view.element_size()
    return all_in_one(view)


def step_to_the_next_piece(view):
    pieces, size = count_pieces(view)
    run = 1
    for length, stride in zip(reversed(view.shape), reversed(view.stride())):
        if length > 1 and stride != run:
            return pieces, stride * view.element_size()
        run *= length
    return pieces, size


def with_its_place(unit):
    def wrong(view):
        pieces, size = count_pieces(view)
        return pieces, size + view.storage_offset() * unit(view)

    return wrong


# (sizes of the whole tensor, index into it, dtype)
CASES = [
    ((4,), (), "float32"),
    ((4,), (), "float16"),
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


def hidden(seed):
    """Tensors of two to five dimensions.

    Of each but the first all, a range, one, or every second, though not of three, whose last
    one would lie beside the first one of the next row.
    """
    chance = random.Random(seed)
    for number in range(20):
        sizes = chance.choices((1, 1, 2, 3, 4, 6), k=2 + number // 5)
        parts = [
            chance.choice(
                (
                    slice(None),
                    slice(None),
                    slice(0, chance.randint(1, size)),
                    size - 1,
                    slice(None, None, 1 + (size != 3)),
                )
            )
            for size in sizes[1:]
        ]
        yield (
            tuple(sizes),
            (slice(None), *parts),
            chance.choice(("float16", "float32", "float64")),
        )


def view_of(case):
    sizes, index, dtype = case
    return torch.zeros(sizes, dtype=getattr(torch, dtype))[index]


def observe(answer, case):
    result = answer(view_of(case))
    if not isinstance(result, tuple | list):
        return Text(repr(result))
    # 3.0 and tensor(3) equal 3 in Python; the docstring asks for ints.
    return tuple(
        (
            int(number)
            if hasattr(number, "__index__") and not isinstance(number, torch.Tensor)
            else Text(repr(number))
        )
        for number in result
    )


def describe(case):
    view = view_of(case)
    return f"shape {tuple(view.shape)}, strides {view.stride()}, {case[2]}"


EXERCISE = Exercise(
    id="2.1",
    title="pieces of memory",
    answer_name="count_pieces",
    reference=count_pieces,
    cases=lambda: CASES,
    size=lambda case: (math.prod(case[0]), len(case[0])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    mistakes=(
        Mistake(
            "last-dimension-only",
            "You take the last dimension for the piece. "
            "When the stride of the dimension before it is just as long as that, "
            "the next row follows without a gap, and the piece goes on.",
            last_dimension_only,
            also=(last_dimension_whatever_its_stride,),
        ),
        Mistake(
            "gaps-unnoticed",
            "You count one piece whatever the strides are. "
            "A view of a part leaves gaps: its numbers are not all side by side.",
            all_in_one,
        ),
        Mistake(
            "numbers-for-bytes",
            "Your piece is measured in numbers. "
            "A float16 number has two bytes; `view.element_size()` knows.",
            in_numbers,
        ),
        Mistake(
            "four-bytes-always",
            "Your bytes are right for float32 only. "
            "How many bytes a number has is the tensor's to say.",
            four_bytes,
        ),
        Mistake(
            "two-bytes-always",
            "Your bytes are right for float16 only. "
            "How many bytes a number has is the tensor's to say.",
            two_bytes,
        ),
        Mistake(
            "last-stride-taken-for-one",
            "You take it that the numbers of the last dimension lie side by side. "
            "They do when its stride is 1; a view may have another.",
            last_stride_taken_for_one,
            also=(neighbours_compared, every_neighbour_compared),
        ),
        Mistake(
            "size-one-breaks-the-piece",
            "A dimension of size 1 has a stride, but nobody ever takes that step. "
            "It cannot break a piece.",
            size_one_breaks,
        ),
        Mistake(
            "strides-in-bytes",
            "You compare a stride with a number of bytes. A stride is counted in numbers.",
            strides_in_bytes,
        ),
        Mistake(
            "gaps-in-the-pieces",
            "The number of pieces is right, and your bytes include the gaps: "
            "you divide the memory of the whole tensor, of which the view is a part.",
            storage_in_pieces,
        ),
        Mistake(
            "bytes-of-the-whole",
            "The number of pieces is right, and the bytes are those of all pieces together.",
            bytes_of_the_whole,
        ),
        Mistake(
            "goes-on-after-a-gap",
            "You compare each stride with the dimension to its right alone. "
            "Once there was a gap, the piece has ended, "
            "even if the dimensions further left follow each other closely.",
            goes_on_after_a_gap,
        ),
        Mistake(
            "fractions",
            "Your numbers are right in value, and one of them is a float. "
            "`/` gives a float always; `//` does not.",
            lambda view: (count_pieces(view)[0] / 1, count_pieces(view)[1]),
            also=(
                lambda view: (count_pieces(view)[0], count_pieces(view)[1] / 1),
                lambda view: (count_pieces(view)[0] / 1, count_pieces(view)[1] / 1),
            ),
        ),
        Mistake(
            "tensors-not-ints",
            "Your numbers are right in value, and one of them is a tensor. "
            "The docstring asks for two ints.",
            lambda view: tuple(map(torch.tensor, count_pieces(view))),
            also=(
                lambda view: (torch.tensor(count_pieces(view)[0]), count_pieces(view)[1]),
                lambda view: (count_pieces(view)[0], torch.tensor(count_pieces(view)[1])),
                lambda view: tuple(
                    torch.tensor(number, dtype=torch.int32) for number in count_pieces(view)
                ),
            ),
        ),
        Mistake(
            "first-dimension-of-pieces",
            "One piece for each entry of the first dimension: that is so when the gap is "
            "there, and nowhere else. The gap may be further inside, or there may be several.",
            lambda view: (
                (1, view.numel() * view.element_size())
                if view.is_contiguous()
                else (view.shape[0], view.numel() // view.shape[0] * view.element_size())
            ),
        ),
        Mistake(
            "swapped",
            "Your two numbers are in the wrong order: "
            "the number of pieces first, then the bytes of one.",
            swapped,
        ),
        Mistake(
            "from-the-first-dimension",
            "You go through the dimensions from the first to the last. It is the numbers "
            "of the last one that lie side by side, so the piece grows from there.",
            from_the_first_dimension,
        ),
        Mistake(
            "gaps-not-pieces",
            "You count the gaps. Between three pieces there are two.",
            gaps,
            also=(parts_between_gaps,),
        ),
        Mistake(
            "stride-for-the-piece",
            "Your bytes are a stride: they lead from one start to the next, "
            "and the gap between is counted too. A piece ends where its numbers end.",
            outermost_step,
            also=(step_to_the_next_piece,),
        ),
        Mistake(
            "place-added",
            "You add the place in memory at which the view begins. "
            "A piece is as long as its numbers are, wherever it begins.",
            with_its_place(lambda view: 1),
            also=(with_its_place(torch.Tensor.element_size),),
        ),
    ),
    hints=(
        (
            "Go through the dimensions from the last to the first, "
            "and keep how many numbers lie side by side so far."
        ),
        (
            "A dimension continues the piece when its stride equals the length of the piece "
            "so far. (Of size 1, it has only one entry, and its stride is never used.)"
        ),
        (
            "The first dimension that breaks the piece ends the search. "
            "The number of pieces is that of all numbers divided by the length of one."
        ),
    ),
)
