"""The pictures of lesson 02: block tables and their pool, layouts, and memory over time."""

from torch import Tensor

from lessons_content.lesson_02.pictures.films import Film
from lessons_content.lesson_02.pictures.live_tables import LiveTables
from lessons_content.lesson_02.pictures.memory import draw_history, draw_layouts, draw_use
from lessons_content.lesson_02.pictures.tables import Frame, draw_tables
from lessons_lib.drawing import Picture, show
from paged_attention.pool.kv_cache import PagedAttentionManager

__all__ = ["Film", "LiveTables", "layouts", "memory_over_time", "memory_use", "opening"]


def opening() -> Frame:
    """Four sequences after some steps; sequence 3 is a fork of sequence 0."""
    manager = PagedAttentionManager(
        num_blocks=10,
        block_size=4,
        num_kv_heads=1,
        head_size=2,
        max_num_seqs=5,
        max_blocks_per_seq=4,
    )
    for seq_id, num_tokens in ((0, 4), (1, 6), (2, 4)):
        manager.add_sequence(seq_id, num_tokens)
    manager.append_tokens([(0, 1)])
    manager.free_sequence(1)
    manager.append_tokens([(2, 3)])
    manager.add_sequence(1, 7)
    manager.fork_sequence(0, 3)
    manager.append_tokens([(3, 2), (0, 1)])
    return draw_tables(manager, "Four sequences in a pool of ten blocks")


def layouts(
    beside: tuple[Tensor, ...], head_first: tuple[Tensor, ...], halves: tuple[Tensor, ...]
) -> Picture:
    """Where block 1, and the keys of its head 0, are in memory in each of the three layouts.

    beside, head_first, halves: each the whole tensor, block 1, and the keys of its head 0.
    """
    return show(
        draw_layouts(
            {
                "K beside V: (num_blocks, block_size, 2, heads, head_size)": beside,
                "head by head: (num_blocks, 2, heads, block_size, head_size)": head_first,
                "two halves: (2, num_blocks, block_size, heads, head_size)": halves,
            }
        ),
        alt=(
            "Three strips of 128 addresses. With K beside V, block 1 is one stretch and its"
            " head 0 keys are four short pieces. Head by head, they are one piece. With two"
            " halves, block 1 is two stretches, and the keys are four short pieces in the"
            " first of them."
        ),
    )


def memory_use(shares: dict[str, dict[str, float]]) -> Picture:
    """The content of the pool, for each way to give out memory, and the paper's figures.

    shares: for each way, the percentage of the pool that is tokens, kept, unused and free.
    """
    labels = {
        "tokens": "tokens",
        "kept": "kept for later tokens",
        "unused": "never used",
        "free": "free",
    }
    return show(
        draw_use(
            {
                name: {label: parts[part] for part, label in labels.items()}
                for name, parts in shares.items()
            }
        ),
        alt=(
            "Four stacked bars: what the pool holds when the maximum is reserved, a power of"
            " two, the true length, and with blocks of 16. The tokens' share rises from a"
            " fifth to a half, and to nearly all with blocks. Diamonds mark the paper's"
            " figures: 20.4, 26.8, 38.2 and 96.3 percent."
        ),
    )


def memory_over_time(histories: dict[str, list]) -> Picture:
    """How many requests run at once, and the largest hole among the free slots.

    histories: for each way, its steps, each with `running`, `free` and `largest_hole`.
    """
    return show(
        draw_history(histories),
        alt=(
            "Plots over time. Left: with blocks, two to five times as many requests run at "
            "once as with the three contiguous ways, and all are done earlier. Right, one "
            "below the other: with the maximum no slot is free until the end; with a power of"
            " two and with the true length, the largest hole is mostly a fifth to a half of "
            "the free slots."
        ),
    )
