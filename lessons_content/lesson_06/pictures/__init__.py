"""The pictures of lesson 06: a launch's grid, writes and reads of threads, shuffles."""

from torch import Tensor

from lessons_content.lesson_06.pictures import cuda, kernel_steps, race_steps
from lessons_lib.drawing import Picture, show
from lessons_lib.drawing.player import Player


def opening() -> Picture:
    """The grid of a decode step, one of its thread blocks, and what that block reads."""
    return show(
        cuda.opening(),
        alt=(
            "Left, a grid of 18 squares, three sequences times six query heads; sequence 1,"
            " head 4 is orange, with a thick edge. Middle, its 128 threads in four warps of"
            " 32, and the shared memory with the query and the scores. Right, sequence 1's row"
            " of the block table, 5, 2, 6, -1, with arrows to these three blocks of the pool."
        ),
    )


def writers(one_thread: list, one_block: list, grid: list) -> Picture:
    """Which thread writes which element in three launches.

    one_thread, one_block, grid: the accesses of each launch to a one-dimensional tensor.
    """
    panels = [
        ("One thread", one_thread),
        ("One block of 256 threads", one_block),
        ("A grid: yours", grid),
    ]
    return show(
        cuda.writers(panels),
        alt=(
            "Thread number against element, in three panels. One thread writes all 600. In one"
            " block, threads 0 to 255 write the first 256 elements, then the next 256, then"
            " the last 88. In a grid three blocks do so, each once."
        ),
    )


def shuffles(values: list[float]) -> Picture:
    """The maximum over eight lanes, in three shuffles."""
    return show(
        cuda.shuffles(values),
        alt=(
            "Eight lanes with the numbers 3, 1, 4, 1, 5, 9, 2, 6. After a shuffle with"
            " distance 4 two lanes know the largest, 9; after distance 2 four do; after"
            " distance 1 all eight."
        ),
    )


def race(accesses: list, error: Exception, texts: dict) -> Player:
    """A run up to its race, step by step.

    accesses: of the thread block, to the shared array and others.
    error: the KernelError.
    texts: the kernel's texts, by name.
    """
    recording = race_steps.record(accesses, error, texts)
    last = len(recording.steps) - 1
    return recording.player(
        still=last,
        alt=(
            "The lines of the kernel. The one that puts a number into row is lit and marked"
            " with thread 0; the next one, which takes one from there, with thread 32. Below"
            " are the threads, of which 0 and 32 are lit, and row, of which element 0 is lit:"
            " thread 0 wrote it."
        ),
    )


def readers(accesses: list, block_table: Tensor, cache_shape: tuple, texts: dict) -> Player:
    """Which thread of one thread block reads which number of the two caches, step by step.

    accesses: the thread block's accesses to k_cache, v_cache and block_table.
    cache_shape: (num_blocks, block_size, num_kv_heads, head_size).
    texts: the kernel's texts, by name.
    """
    return kernel_steps.record(accesses, block_table.tolist(), cache_shape, texts).player(
        alt=(
            "The pool's blocks as tables of four slots and four elements. Of k_cache, threads"
            " 0 to 9 each read one row in the three blocks of sequence 1. Of v_cache, threads"
            " 0 to 3 each read one column of all ten rows. The other blocks have no colour:"
            " nothing reads them. Above are the lines where they read, and the block table's"
            " row."
        )
    )
