"""How the work of a prefill batch is divided among thread blocks.

A sequence's queries become rows, which are cut into tiles. Each tile of rows meets the tiles
of keys that its rows see. An item is what a thread block does for a KV head.
"""

from dataclasses import dataclass

import numpy as np

from paged_attention.prefill.tile_sizes import TileSizes

# The time of a tile with few rows, whose keys the warps divide; a full tile takes 1.
FEW_ROWS_COST = 0.35
ITEM_COST = 1.5  # an item's time to begin and to end, in the same unit
LEAST_TILES = 4  # an item that was cut from a longer one has at least as many


@dataclass(frozen=True)
class PrefillPlan:
    """The items of a batch, in the order in which they begin.

    items: int32 (num_items, 5), the kernel's WorkItem: seq, first row, first tile of keys,
        end, part or -1.
    cut_tiles: int32 (num_cut_tiles, 4), the tiles of rows with more than one part, the
        kernel's CutTile: seq, first row, first part, number of parts.
    """

    items: np.ndarray
    cut_tiles: np.ndarray

    @property
    def num_parts(self) -> int:
        return int(self.cut_tiles[:, 3].sum())


def plan_all_tiles(
    q_lens: np.ndarray, kv_lens: np.ndarray, heads: int, sizes: TileSizes
) -> PrefillPlan:
    """Each tile of rows meets all of its sequence's keys, in the order of the batch.

    q_lens, kv_lens: each sequence's queries and keys.
    heads: the heads of a token that are rows of one tile.
    """
    seq, first_row, _ = _tiles_of_rows(q_lens, heads, sizes.rows)
    ends = -(-kv_lens[seq] // sizes.keys)
    none = np.zeros_like(ends)
    return PrefillPlan(_items(seq, first_row, none, ends, none - 1), _no_cuts())


def plan_needed_tiles(
    q_lens: np.ndarray,
    kv_lens: np.ndarray,
    heads: int,
    sizes: TileSizes,
    num_kv_heads: int,
    num_slots: int,
    most_tiles: int | None = None,
) -> PrefillPlan:
    """Each tile of rows meets the tiles of keys that one of its rows sees, the longest first.

    num_slots: the blocks that the GPU runs at once. An item that would still run when they
        could all be done is cut.
    most_tiles: the most tiles of keys of an item; None chooses.
    """
    seq, first_row, num_rows = _tiles_of_rows(q_lens, heads, sizes.rows)
    last_query = (first_row + num_rows - 1) // heads
    ends = (kv_lens[seq] - q_lens[seq] + last_query) // sizes.keys + 1  # as causal_tiles()
    cost = np.where(num_rows <= sizes.few_rows, FEW_ROWS_COST, 1.0)  # of a tile of keys
    if most_tiles is None:
        share = num_kv_heads * float((cost * ends + ITEM_COST).sum()) / num_slots
        most = np.maximum(LEAST_TILES, np.ceil(share / cost)).astype(np.int64)
    else:
        most = np.full_like(ends, most_tiles)
    num_parts = -(-ends // most)

    # The parts of a tile are one after the other, and about equally long.
    of = np.repeat(np.arange(len(seq)), num_parts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    begins = ends[of] * number // num_parts[of]
    item_ends = ends[of] * (number + 1) // num_parts[of]
    cut = num_parts > 1
    first_part = np.cumsum(np.where(cut, num_parts, 0)) - num_parts
    parts = np.where(cut[of], first_part[of] + number, -1)
    order = np.argsort(-cost[of] * (item_ends - begins), kind="stable")
    items = _items(seq[of], first_row[of], begins, item_ends, parts)
    cuts = np.stack([seq, first_row, first_part, num_parts], 1)[cut].astype(np.int32)
    return PrefillPlan(items[order], cuts)


def _tiles_of_rows(q_lens: np.ndarray, heads: int, tile_rows: int):
    """Each tile's sequence, first row and number of rows."""
    rows = q_lens * heads
    counts = -(-rows // tile_rows)
    seq = np.repeat(np.arange(len(q_lens)), counts)
    first_row = (
        np.arange(len(seq)) - np.repeat(np.cumsum(counts) - counts, counts)
    ) * tile_rows
    return seq, first_row, np.minimum(tile_rows, rows[seq] - first_row)


def _items(*columns: np.ndarray) -> np.ndarray:
    return np.stack(columns, 1).astype(np.int32)


def _no_cuts() -> np.ndarray:
    return np.zeros((0, 4), np.int32)
