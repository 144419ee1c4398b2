"""The pictures of lesson 11: a layer over several ranks, and its cost."""

from collections.abc import Callable, Sequence

from lessons_content.lesson_11.bench.load_runs import LoadRun
from lessons_content.lesson_11.pictures import arrivals, ranks, server
from lessons_lib.drawing import Picture, show


def opening() -> Picture:
    """The engine's surroundings: two ranks on one side, programs that ask on the other."""
    return show(
        server.around_the_engine(),
        alt=(
            "On the left, part 1 of the lesson: the engine has two ranks, and each has half of"
            " a layer. On the right, part 2: a chat window, a program and curl ask a server,"
            " which asks the engine."
        ),
    )


def layer_over_ranks() -> Picture:
    """A layer of the model, cut over two ranks."""
    return show(
        ranks.layer_over_ranks(),
        alt=(
            "A layer of the model over two ranks, side by side. Each has some of the rows of"
            " q, k and v, some of the heads, and some of the columns of o. Then the ranks add"
            " up their results. Then each has some of the rows of gate and up and some of the"
            " columns of down, and they add up once more."
        ),
    )


def stream() -> Picture:
    """An answer on its way to a client, token by token."""
    return show(
        server.stream(),
        alt=(
            "A client sends the prompt Cq7b4mxy> and the stop text 4m. The engine computes the"
            " tokens q, 7, b, 4 and m, one in each step. q, 7 and b are sent to the client at"
            " once. 4 waits. After m, the end is sent."
        ),
    )


def two_cuts() -> Picture:
    """A product with a weight that is cut by rows, and by columns."""
    return show(
        ranks.two_cuts(),
        alt=(
            "Two products of an input of six numbers with a weight of four rows. On the left"
            " the weight is cut by rows: rank 0 has the upper two and gives the first two"
            " results. On the right it is cut by columns: rank 0 has the left three and the"
            " first three numbers of the input. Each rank gives four numbers, and a plus is"
            " between them."
        ),
    )


def cut_layer(
    shapes: dict[str, tuple[int, int]], kept: Callable, world_size: int = 2
) -> Picture:
    """A layer's weights, with the parts that kept(layer, shape, rank, world_size) gives."""
    return show(
        ranks.cut_layer(shapes, kept, world_size),
        alt=(
            "Seven weights as rectangles, as high as they have rows. q, k, v, gate and up are"
            " cut by a horizontal line: rank 0 has the upper half, rank 1 the lower. o and"
            " down are cut by a vertical line: rank 0 has the left half, rank 1 the right."
        ),
    )


def bytes_of_a_layer(read: dict[str, float], sent: float, title: str) -> Picture:
    """The megabytes that a rank reads in a layer, and that it exchanges."""
    total = sum(read.values())
    return show(
        ranks.bytes_of_a_layer(read, sent, title),
        alt=(
            f"Two bars. A rank reads {total:,.0f} megabytes in a layer, and exchanges"
            f" {sent:.1f}, which is hardly to be seen."
        ),
    )


def gains(microseconds: Sequence[float], lines: dict[str, Sequence[float]]) -> Picture:
    """The gain in speed from two ranks, by the time that one sum takes."""
    words = "; ".join(
        f"{name}: from {values[0]:.1f} down to {values[-1]:.1f}"
        for name, values in lines.items()
    )
    return show(
        ranks.gains(microseconds, lines),
        alt=(
            "Falling lines of how many times as fast two GPUs are, over 0 to"
            f" {microseconds[-1]:g} microseconds for one sum. {words}."
        ),
    )


def waiting(run: LoadRun) -> Picture:
    """The clients' wait for a first token and between tokens, against the load."""
    words = "; ".join(
        f"{row.name}: {1000 * row.first[0]:.0f} and {1000 * row.first[1]:.0f}"
        for row in run.rows
        if row.per_second and row.first
    )
    return show(
        arrivals.waiting(run),
        alt=(
            "Two plots over requests a second, with the median and the 99th percentile of the"
            f" time to the first token, and of the time between tokens. To the first token,"
            f" in milliseconds: {words}."
        ),
    )
