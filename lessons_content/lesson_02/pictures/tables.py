"""Block tables as arrows into the pool, in SVG."""

import base64
import html
from dataclasses import dataclass

from lessons_content.lesson_02.pictures.raster import as_raster
from lessons_lib.drawing import EDGE, FREE, LINES, QUIET, STILL, WASTED, as_jpeg, pool_colour
from lessons_lib.drawing.svg import rectangle, text

WIDTH, HEIGHT = 860, 240  # pixels
ENTRY, BLOCK = 30, 40  # pixels: the side of an entry, the height of a block
ROW_TOP, POOL_TOP = 60, 172  # pixels from the top


@dataclass(frozen=True)
class Frame:
    """A picture of a manager at one moment. `alt` describes it in words."""

    svg: str
    title: str
    alt: str

    def image(self, style: str = "max-width:100%") -> str:
        data = base64.b64encode(self.svg.encode()).decode()
        return (
            f'<img alt="{html.escape(self.alt)}" src="data:image/svg+xml;base64,{data}"'
            f' {STILL} style="{style}">'
        )

    @property
    def png(self) -> bytes:
        return as_raster(self.svg)

    @property
    def jpeg(self) -> bytes:
        return as_jpeg(self.png)

    def _repr_html_(self):
        return self.image()

    def __repr__(self):
        return f"Picture: {self.alt}"


@dataclass(frozen=True)
class Row:
    """A row of a block table. `length` is its sequence's length in tokens."""

    name: str
    length: int
    entries: list[int]

    @property
    def blocks(self) -> list[int]:
        return [block_id for block_id in self.entries if block_id >= 0]


def draw_tables(manager, title: str) -> Frame:
    """The rows of the block table, the pool below, and an arrow from each entry to its block.

    manager: a PagedAttentionManager with few sequences and blocks, so that they fit.
    """
    rows = [
        Row(
            f"sequence {seq_id}",
            sequence.length,
            manager.get_block_table_for_seq(seq_id).tolist(),
        )
        for seq_id, sequence in sorted(manager.sequences.items())
    ]
    num_blocks = manager.kv_cache.shape[2]
    counts = [*map(manager.block_manager.get_ref_count, range(num_blocks))]
    num_rows, block_size = len(manager.block_table), manager.block_size
    filled = _tokens_in_blocks(rows, len(counts), block_size)
    pitch = (WIDTH - 10) / len(counts)
    parts = [text(5, 20, title, size=15, anchor="start", weight="bold")]
    for place, row in enumerate(rows):
        left = 5 + place * (WIDTH - 10) / num_rows
        colour = LINES[place % len(LINES)]
        about = f"{row.name}: {row.length} tokens"
        parts.append(text(left, ROW_TOP - 8, about, anchor="start", colour=colour))
        for index, block_id in enumerate(row.entries):
            middle, fill = left + (index + 0.5) * ENTRY, _colour(counts, block_id)
            entry = str(block_id).replace("-", "−")
            ink = QUIET if block_id < 0 else "black"
            parts.append(rectangle(left + index * ENTRY, ROW_TOP, ENTRY, ENTRY, fill))
            parts.append(text(middle, ROW_TOP + 20, entry, colour=ink))
            if block_id >= 0:
                to_x = 5 + (block_id + 0.5) * pitch - 2
                parts.append(_arrow(middle, ROW_TOP + ENTRY, to_x, POOL_TOP - 4, colour))
    for block_id, count in enumerate(counts):
        left, fill = 5 + block_id * pitch, _colour(counts, block_id)
        parts += _block(left, pitch - 4, block_size, filled[block_id], fill)
        users = f"{block_id}: " + ("free" if count == 0 else f"×{count}")
        parts.append(text(left + pitch / 2 - 2, POOL_TOP + BLOCK + 16, users, size=12))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>'
    )
    return Frame(svg, title, f"{title}. {_words(rows, counts)}")


def _tokens_in_blocks(rows: list[Row], num_blocks: int, block_size: int) -> list[int]:
    """How many slots of each block hold a token of some sequence."""
    filled = [0] * num_blocks
    for row in rows:
        for index, block_id in enumerate(row.blocks):
            tokens = min(block_size, row.length - index * block_size)
            filled[block_id] = max(filled[block_id], tokens)
    return filled


def _words(rows: list[Row], counts: list[int]) -> str:
    in_words = [
        f"{row.name.capitalize()} has {row.length} tokens in blocks {row.blocks}."
        for row in rows
    ]
    return " ".join([*in_words, f"{counts.count(0)} of {len(counts)} blocks are free."])


def _block(left: float, width: float, block_size: int, filled: int, colour: str) -> list[str]:
    """A block with its slots: tokens coloured, empty slots of a used block grey."""
    slot, parts = width / block_size, []
    for offset in range(block_size):
        empty = offset >= filled and colour != FREE
        parts.append(
            rectangle(
                left + offset * slot,
                POOL_TOP,
                slot,
                BLOCK,
                WASTED if empty else colour,
                edge="#999999",
            )
        )
        if empty:
            corner = f"{left + offset * slot:.1f},{POOL_TOP + BLOCK:.1f}"
            parts.append(f'<path d="M{corner} l{slot:.1f},{-BLOCK:.1f}" stroke="{EDGE}"/>')
    return [*parts, rectangle(left, POOL_TOP, width, BLOCK, "none")]


def _colour(counts: list[int], block_id: int) -> str:
    return pool_colour(counts[block_id] if block_id >= 0 else 0)


def _arrow(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    """A curve that ends in a small triangle."""
    return (
        f'<path d="M{x:.1f},{y:.1f} '
        f'C{x:.1f},{y + 45:.1f} {to_x:.1f},{to_y - 55:.1f} {to_x:.1f},{to_y - 6:.1f}" '
        f'fill="none" stroke="{colour}" stroke-width="1.5"/>'
        f'<path d="M{to_x - 4:.1f},{to_y - 7:.1f} h8 l-4,7 z" fill="{colour}"/>'
    )
