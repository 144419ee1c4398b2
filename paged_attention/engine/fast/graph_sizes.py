"""Which sizes of steps are recorded, and in which of them a step runs."""

from collections.abc import Iterable

MOST_TOKENS = 2048  # the more a step computes, the less of it are the host's launches
TILE = 64  # a product takes as long as one of the next multiple of rows


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Says which batch sizes to record.

    A batch runs in the smallest recorded size that has room for it. The places that are left
    over are padding. These sizes are recorded, each once, as far as they are not above
    max_num_seqs:

    - 1, 2 and 4, since a small batch should not be mostly padding;
    - each multiple of 8, so that no batch has more than seven places of padding;
    - max_num_seqs itself, so that the largest batch has a recorded step too.

    max_num_seqs: the most sequences of a batch, 1 or more.
    Returns the sizes in ascending order.
    """
    # BEGIN SOLUTION 10.1
    sizes = {1, 2, 4, *range(8, max_num_seqs, 8), max_num_seqs}
    return sorted(size for size in sizes if size <= max_num_seqs)
    # END SOLUTION


def sizes_of_pieces(token_budget: int) -> list[int]:
    """Says for which numbers of tokens the pieces of a step with prompts are recorded.

    They are 16, for which few_rows.cu is, and then multiples of TILE, as far apart as possible
    with less than TILE tokens or an eighth of a step as padding. The last is token_budget, or
    MOST_TOKENS if that is less.

    token_budget: the most tokens of a step.
    Returns the sizes in ascending order.
    """
    most, sizes = min(token_budget, MOST_TOKENS), [16]
    while sizes[-1] < most:
        one_tile = sizes[-1] // TILE * TILE + TILE
        an_eighth = sizes[-1] * 8 // 7 // TILE * TILE
        sizes.append(max(one_tile, an_eighth))
    return [*sizes[:-1], most]


def smallest_that_fits(num: int, sizes: Iterable[int]) -> int:
    """The smallest of the recorded sizes with room for a batch, or for a step's tokens.

    Where there is none, they keep their own size, and run unrecorded.
    """
    return min((size for size in sizes if size >= num), default=num)
