"""How large the tiles of a prefill kernel are."""

from dataclasses import dataclass

from paged_attention.ladder.rungs import Shape
from paged_attention.prefill.rungs import PREFILL_RUNGS


@dataclass(frozen=True)
class TileSizes:
    """The queries and keys of a tile.

    few_rows: with no more rows than these, the warps divide the keys.
    """

    rows: int
    keys: int
    few_rows: int = 0


def tile_sizes(number: int, shape: Shape) -> TileSizes:
    """Returns the sizes of a rung's tiles, as its files in kernels/prefill/ have them."""
    if not PREFILL_RUNGS[number].tensor_cores:
        return TileSizes(rows=32, keys=32)
    if PREFILL_RUNGS[number].copies_boxes:
        return TileSizes(rows=128, keys=128 if shape.head_size <= 128 else 64)
    rows, keys = 128, 64
    if (rows + 4 * keys) * shape.head_size * shape.dtype.itemsize > shape.shared_bytes:
        rows, keys = 64, 32
    num_warps = rows // (32 if shape.head_size <= 128 else 16)
    return TileSizes(rows, keys, few_rows=num_warps // (keys // 16) * 16)
