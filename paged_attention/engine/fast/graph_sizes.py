"""Which batch sizes of decode steps are recorded, and in which of them a batch runs."""

from collections.abc import Iterable


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


def smallest_that_fits(num_seqs: int, sizes: Iterable[int]) -> int:
    """The smallest of the recorded sizes with room for a batch.

    Where there is none, the batch keeps its own size, and runs without a recorded step.
    """
    return min((size for size in sizes if size >= num_seqs), default=num_seqs)
