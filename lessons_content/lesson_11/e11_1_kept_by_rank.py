"""Exercise 11.1: what a rank keeps.

Go through the layer in its order. Before q, k and v all ranks have the whole input. Who has
what before o? And before down?

A row of a weight gives one result, and a column takes one input. Rank 0 has computed the first
half of the inputs of down. Which columns go with them?

First find out which side is cut: rows, columns or none. The other side is `slice(0, size)`.
How many rows or columns does each rank get, and where does rank 1 begin?

A rank's part begins at `rank * part` and ends where the next rank's begins, with `part = size
// world_size`. Two layers are cut by columns, and six by rows.
"""

from dataclasses import dataclass

from lessons_content.exercises.kit import exercise
from lessons_content.lesson_11 import kept_slices
from paged_attention.engine.parallel.cuts import kept_by_rank

BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")
BY_COLUMNS = ("o_proj", "down_proj")
NAMED_ALIKE = ("q_norm", "out_proj", "lm_head_norm", "proto_proj")
WHOLE = ("embed_tokens", "router", *NAMED_ALIKE)


@dataclass(frozen=True)
class Case:
    layer: str
    shape: tuple[int, int]
    rank: int
    world_size: int


def weight(layer: str, part: int, other: int, world_size: int) -> tuple[int, int]:
    """A shape that world_size divides on the side that is cut, with `part` for each rank."""
    cut = part * world_size
    return (other, cut) if layer in BY_COLUMNS else (cut, other)


def cases():
    for layer in (*BY_ROWS, *BY_COLUMNS, *WHOLE):
        for world_size, part, other in (
            (1, 2, 3),
            (2, 2, 5),
            (2, 1, 4),
            (3, 2, 4),
            (4, 3, 7),
            (6, 3, 2),
        ):
            for rank in range(world_size):
                yield Case(layer, weight(layer, part, other, world_size), rank, world_size)
    yield Case("up_proj", (12_288, 4_096), 5, 8)
    yield Case("down_proj", (4_096, 12_288), 7, 8)
    yield Case("lm_head", (151_936, 4_096), 1, 2)
    for rank in range(2):  # a side that two ranks could not share is not cut
        yield Case("embed_tokens", (45, 3), rank, 2)


def hidden(chance):
    """Each kind of layer, with two to eight ranks."""
    for layer in (*BY_ROWS, *BY_COLUMNS, *WHOLE):
        world_size = chance.randint(2, 8)
        shape = weight(layer, chance.randint(1, 40), chance.randint(3, 300), world_size)
        yield Case(layer, shape, chance.randrange(world_size), world_size)


def describe(case: Case) -> str:
    return (
        f'kept_by_rank("{case.layer}", {case.shape}, rank={case.rank}, '
        f"world_size={case.world_size})"
    )


EXERCISE = exercise(
    globals(),
    kept_slices,
    answer_name="kept_by_rank",
    size=lambda case: (case.world_size, case.shape[0] * case.shape[1], case.rank),
)
