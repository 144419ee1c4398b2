"""Divides a batch's tiles among the blocks of a launch (rungs 7 and 8)."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Found by measuring the workloads of lessons_content/lesson_07/bench/workloads.py on an H200.
FEW_TILES = 64  # a row with no more tiles is not worth cutting
BUSY = 0.8  # blocks per multiprocessor that keep the memory busy; more would only wait
MANY_ROWS = 1.5  # rows per multiprocessor; with as many, few are cut
SOME_ROWS = 1 / 8  # likewise; with as many, none is cut into very many parts
PART_COST = 40  # the time to hand a part over, counted in tiles
ROW_COST = 4  # likewise: the time to begin a row before which the block has done nothing
MERGE_COST = 2  # likewise: the time to merge a warp's state into those of its row
MOST_DEALT = 8  # rows per multiprocessor; with more, the parts of a few count for little

TILE_SIZE = 16  # tokens that a warp takes in at once; tile_size in kernels/ladder/tile.cuh


@dataclass(frozen=True)
class WorkPlan:
    """The work of each block of a launch, as a list of items. Block b begins with item b.

    items: int32 (num_items, 8), the kernel's WorkItem: seq, first KV head, first token, end,
        part or -1, first part of the row, parts of the row, next item of the same block or -1.
    """

    items: np.ndarray
    num_blocks: int
    num_parts: int
    most_tiles: int  # of one block
    most_parts: int  # of one block: 0, 1 or 2


def tiles_of(context_lens: Sequence[int] | np.ndarray) -> np.ndarray:
    """Counts the tiles of each context.

    An empty context has one tile, without tokens, because a block has to write its zeros.
    """
    return np.maximum(1, -(-np.asarray(context_lens, dtype=np.int64) // TILE_SIZE))


def choose_heads_at_once(
    context_lens: Sequence[int] | np.ndarray,
    num_kv_heads: int,
    num_warps: int,
    multiprocessors: int,
) -> int:
    """Chooses how many KV heads the warps of a block share: 1, 2, or one for each warp.

    With more heads, more bytes of the cache lie in a row, and there are fewer states to merge.
    But there are also fewer rows then, and each is cut into more parts.
    """
    num_rows = len(context_lens) * num_kv_heads
    if num_rows <= multiprocessors and tiles_of(context_lens).max() <= FEW_TILES:
        return 1
    if num_kv_heads % num_warps == 0 and num_rows // num_warps >= MANY_ROWS * multiprocessors:
        return num_warps
    if num_kv_heads % 2 == 0 and num_rows // 2 >= SOME_ROWS * multiprocessors:
        return 2
    return 1


def choose_plan(
    context_lens: Sequence[int] | np.ndarray,
    num_kv_heads: int,
    num_warps: int,
    multiprocessors: int,
    busy: float = BUSY,
) -> tuple[int, WorkPlan]:
    """Chooses the plan that should take the least time.

    It compares the best of equal shares with rows that are dealt out whole, for each number of
    KV heads that the warps of a block can share.

    busy: as for `best_plan`.
    Returns heads_at_once and the plan.
    """
    heads_at_once = choose_heads_at_once(
        context_lens, num_kv_heads, num_warps, multiprocessors
    )
    plan = best_plan(context_lens, num_kv_heads, heads_at_once, multiprocessors, busy)
    fewest = max(1, int(busy * multiprocessors))
    least = cost_of(plan, heads_at_once, multiprocessors, fewest) / multiprocessors
    tiles = np.sort(tiles_of(context_lens))[::-1]
    dealt = 0
    for heads in range(1, num_warps + 1):
        num_rows = len(tiles) * num_kv_heads // heads
        if num_warps % heads or num_kv_heads % heads:
            continue
        if num_rows <= MOST_DEALT * multiprocessors:
            of_row = ROW_COST + MERGE_COST * num_warps / heads
            times = np.repeat(tiles * heads + of_row, num_kv_heads // heads)
            if (cost := dealt_time(times.tolist(), multiprocessors)) < least:
                least, dealt = cost, heads
    if dealt:
        return dealt, deal_rows(context_lens, num_kv_heads, dealt)
    return heads_at_once, plan


def dealt_time(times: Sequence[float], multiprocessors: int) -> float:
    """How long it takes if the multiprocessor that is free first gets the next row.

    times: of the rows, in their order.
    """
    free = [0.0] * multiprocessors  # when each of them will be
    for time in times:
        heapq.heapreplace(free, free[0] + time)
    return max(free)


def deal_rows(
    context_lens: Sequence[int] | np.ndarray, num_kv_heads: int, heads_at_once: int
) -> WorkPlan:
    """Gives each row a block of its own, the longest rows first.

    Blocks that find no room wait until another has ended. So no row is cut, and a
    multiprocessor that reads faster than others takes more rows.
    """
    groups = num_kv_heads // heads_at_once
    lens = np.asarray(context_lens, dtype=np.int64)
    tiles = tiles_of(lens)
    row = np.argsort(-np.repeat(tiles, groups), kind="stable")
    seq, none = row // groups, np.full_like(row, -1)
    items = np.stack(
        [
            seq,
            row % groups * heads_at_once,
            np.zeros_like(row),
            lens[seq],
            none,
            none,
            np.ones_like(row),
            none,
        ],
        axis=1,
    )
    return WorkPlan(items.astype(np.int32), len(row), 0, int(tiles.max()), 0)


def best_plan(
    context_lens: Sequence[int] | np.ndarray,
    num_kv_heads: int,
    heads_at_once: int,
    multiprocessors: int,
    busy: float = BUSY,
) -> WorkPlan:
    """Chooses the equal shares that should take the least time.

    It compares up to three ways to divide the rows among blocks:

    1. Each block gets the same number of whole rows. There are as many blocks as that allows,
       but at most one for each multiprocessor.
    2. Each row is cut into the same number of equal pieces, if there are few enough rows.
       There are as many blocks as that allows, likewise.
    3. The rows are cut anywhere, for as many blocks as keep the memory busy, but no more.

    busy: how many blocks keep the memory busy, per multiprocessor.
    """
    num_rows = len(context_lens) * num_kv_heads // heads_at_once
    fewest = max(1, int(busy * multiprocessors))
    whole = max(n for n in range(1, multiprocessors + 1) if num_rows % n == 0)
    counts = {whole} | (
        {multiprocessors // num_rows * num_rows} if num_rows <= multiprocessors else set()
    )
    plans = [
        plan_work(context_lens, num_kv_heads, n, heads_at_once, by_rows=True)
        for n in sorted(counts)
    ]
    plans.append(plan_work(context_lens, num_kv_heads, fewest, heads_at_once))
    return min(plans, key=lambda plan: cost_of(plan, heads_at_once, multiprocessors, fewest))


def cost_of(plan: WorkPlan, heads_at_once: int, multiprocessors: int, fewest: int) -> int:
    """The time that equal shares should take, in tiles times multiprocessors.

    fewest: blocks that keep the memory busy. With more blocks each of them is slower.
    """
    tiles = plan.most_tiles * heads_at_once * max(plan.num_blocks, fewest)
    return tiles + PART_COST * plan.most_parts * multiprocessors


def plan_work(
    context_lens: Sequence[int] | np.ndarray,
    num_kv_heads: int,
    num_blocks: int,
    heads_at_once: int,
    by_rows: bool = False,
) -> WorkPlan:
    """Lays the rows of a batch end to end and cuts them into equal shares.

    It does this as `cut_evenly` of splits.py does. A row is a sequence and heads_at_once of
    its KV heads. A row that is cut has a part for each piece. Parts are numbered from the
    row's first part on.

    context_lens: numbers, 0 or more.
    num_blocks: blocks of the launch; at most as many are used as there are tiles.
    by_rows: gives each block the same number of whole rows. If there are more blocks than
        rows, it cuts each row into the same number of equal pieces. num_blocks must then be a
        multiple of the number of rows, or the other way round.
    """
    groups = num_kv_heads // heads_at_once
    lens = np.asarray(context_lens, dtype=np.int64)
    rows = np.repeat(tiles_of(lens), groups)  # tiles of each row
    ends = np.cumsum(rows)
    total = int(ends[-1])
    if not by_rows:
        cuts = total * np.arange(1, min(num_blocks, total) + 1) // min(num_blocks, total)
    elif len(rows) % num_blocks == 0:
        cuts = ends[len(rows) // num_blocks - 1 :: len(rows) // num_blocks]
    else:
        pieces = num_blocks // len(rows)
        cuts = np.unique(
            (ends - rows)[:, None] + rows[:, None] * np.arange(1, pieces + 1) // pieces
        )
        cuts = cuts[cuts > 0]
    num_blocks = len(cuts)

    # Pieces: between two neighbouring ends, of a row or of a share.
    bounds = np.union1d(ends, cuts)
    starts = np.concatenate([[0], bounds[:-1]])
    row = np.searchsorted(ends, starts, "right")
    block = np.searchsorted(cuts, starts, "right")
    begin = (starts - (ends - rows)[row]) * TILE_SIZE
    end = np.minimum(begin + (bounds - starts) * TILE_SIZE, lens[row // groups])
    pieces_of_row = np.bincount(row)
    first_of_row = np.searchsorted(row, np.arange(len(rows)))
    is_part = pieces_of_row[row] > 1
    part = np.cumsum(is_part) - 1
    items = np.stack(
        [
            row // groups,
            row % groups * heads_at_once,
            begin,
            end,
            np.where(is_part, part, -1),
            np.where(is_part, part[first_of_row[row]], -1),
            pieces_of_row[row],
            np.empty_like(row),
        ],
        axis=1,
    )

    # A block does its parts first, because other blocks may wait for them. The first item of
    # block b goes to place b.
    order = np.lexsort((~is_part, block))
    items, block = items[order], block[order]
    is_first = np.diff(block, prepend=-1) > 0
    is_last = np.diff(block, append=num_blocks) > 0
    place = np.where(is_first, block, num_blocks + np.cumsum(~is_first) - 1)
    items[:, 7] = np.where(is_last, -1, np.roll(place, -1))
    placed = np.empty(items.shape, dtype=np.int32)
    placed[place] = items
    parts_of_block = np.bincount(block[is_part[order]], minlength=1)
    return WorkPlan(
        placed,
        num_blocks,
        int(is_part.sum()),
        int(np.diff(cuts, prepend=0).max()),
        int(parts_of_block.max()),
    )
