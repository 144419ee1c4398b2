"""Block tables as arrows into the pool, in SVG: one picture, or a film of steps."""

import base64
import html
from dataclasses import dataclass, field

from lessons_draw import EDGE, FREE, LINES, QUIET, STILL, WASTED, as_jpeg, pool_colour
from lessons_draw.raster import as_raster
from paged_attention.block_manager import PythonBlockManager
from paged_attention.block_table import BlockTable

WIDTH, HEIGHT = 860, 240  # pixels
ENTRY, BLOCK = 30, 40  # pixels: the side of an entry, the height of a block
ROW_TOP, POOL_TOP = 60, 172  # pixels from the top
SECONDS = 2.2  # how long a film shows a frame


@dataclass(frozen=True)
class Frame:
    """A picture of a manager at one moment. `alt` says in words what it shows."""

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
    """A row of a block table. `length` is the sequence's, in tokens."""

    name: str
    length: int
    entries: list[int]

    @property
    def blocks(self) -> list[int]:
        return [block_id for block_id in self.entries if block_id >= 0]


@dataclass
class Stills:
    """Frames of a block table that is filled by hand, one below the other.

    table: a BlockTable.
    block_manager: what hands out the blocks.
    """

    table: BlockTable
    block_manager: PythonBlockManager
    num_blocks: int = 8
    block_size: int = 4
    frames: list[Frame] = field(default_factory=list)

    def add(self, title: str, lengths: dict[int, int]) -> None:
        """Takes a picture of the table as it is now.

        lengths: for each row in use, the tokens of its sequence.
        """
        rows = [
            Row(f"row {row}", length, self.table.on_device[row].tolist())
            for row, length in lengths.items()
        ]
        counts = [*map(self.block_manager.get_ref_count, range(self.num_blocks))]
        self.frames.append(
            draw_rows(rows, len(self.table.cpu), counts, self.block_size, title)
        )

    def _repr_html_(self):
        return "".join(f"<div>{frame.image()}</div>" for frame in self.frames)

    def __repr__(self):
        return _numbered(self.frames)


@dataclass
class Film:
    """Frames that repeat. A click or an arrow key on the numbers below holds a frame, and one
    on "play" goes on from the first.
    """

    frames: list[Frame] = field(default_factory=list)

    def add(self, manager, title: str) -> None:
        """Takes a picture of a PagedAttentionManager as it is now."""
        self.frames.append(draw_tables(manager, title))

    def _repr_html_(self):
        count = len(self.frames)
        shown, after = 100 / count, 100 / count + 0.001  # percent of the film
        rules = [
            (
                f"@keyframes film{{0%,{shown:.3f}%{{visibility:visible}}"
                f"{after:.3f}%,100%{{visibility:hidden}}}}"
            ),
            (
                ".film img{position:absolute;top:0;left:0;visibility:hidden;max-width:100%;"
                f"animation:film {count * SECONDS:.1f}s linear infinite}}"
            ),
            (
                f".film>div:first-of-type{{position:relative;max-width:{WIDTH}px;"
                f"aspect-ratio:{WIDTH}/{HEIGHT}}}"
            ),
            ".film:not(:has(input[value='play']:checked)) img{animation:none}",
            # for those who have asked their system for less motion
            "@media(prefers-reduced-motion:reduce){.film img{animation:none}"
            ".film:has(input[value='play']:checked) img:nth-of-type(1){visibility:visible}}",
            ".film input{margin:0 .1em 0 .5em}",
        ]
        images = []
        buttons = ['<label><input type="radio" name="film" value="play" checked>play</label>']
        for number, frame in enumerate(self.frames):
            rules.append(
                f".film img:nth-of-type({number + 1})"
                f"{{animation-delay:{number * SECONDS:.1f}s}}"
            )
            rules.append(
                f".film:has(input[value='{number}']:checked) "
                f"img:nth-of-type({number + 1}){{visibility:visible}}"
            )
            images.append(frame.image(style=""))
            buttons.append(
                f'<label><input type="radio" name="film" value="{number}">{number + 1}</label>'
            )
        # If styles are not allowed (in an untrusted notebook), the frames are one below the
        # other.
        return (
            f"<style>{''.join(rules)}</style>"
            f'<div class="film"><div>{"".join(images)}</div>'
            f"<div>Play, or hold a step:{''.join(buttons)}</div></div>"
        )

    def __repr__(self):
        return _numbered(self.frames)


def _numbered(frames: list[Frame]) -> str:
    return "\n".join(f"{number}. {frame.alt}" for number, frame in enumerate(frames, 1))


def draw_tables(manager, title: str) -> Frame:
    """The rows of the block table, the pool below, and an arrow from each entry to its block.

    manager: a PagedAttentionManager with so few sequences and blocks that they fit.
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
    return draw_rows(rows, len(manager.block_table), counts, manager.block_size, title)


def draw_rows(
    rows: list[Row], num_rows: int, counts: list[int], block_size: int, title: str
) -> Frame:
    """The same, for rows that are given.

    num_rows: of the table, those that are free included.
    counts: for each block of the pool, how many sequences use it.
    """
    filled = _tokens_in_blocks(rows, len(counts), block_size)
    pitch = (WIDTH - 10) / len(counts)
    parts = [_text(5, 20, title, size=15, anchor="start", weight="bold")]
    for place, row in enumerate(rows):
        left = 5 + place * (WIDTH - 10) / num_rows
        colour = LINES[place % len(LINES)]
        about = f"{row.name}: {row.length} tokens"
        parts.append(_text(left, ROW_TOP - 8, about, anchor="start", colour=colour))
        for index, block_id in enumerate(row.entries):
            middle, fill = left + (index + 0.5) * ENTRY, _colour(counts, block_id)
            entry = str(block_id).replace("-", "−")
            ink = QUIET if block_id < 0 else "black"
            parts.append(_rectangle(left + index * ENTRY, ROW_TOP, ENTRY, ENTRY, fill))
            parts.append(_text(middle, ROW_TOP + 20, entry, colour=ink))
            if block_id >= 0:
                to_x = 5 + (block_id + 0.5) * pitch - 2
                parts.append(_arrow(middle, ROW_TOP + ENTRY, to_x, POOL_TOP - 4, colour))
    for block_id, count in enumerate(counts):
        left, fill = 5 + block_id * pitch, _colour(counts, block_id)
        parts += _block(left, pitch - 4, block_size, filled[block_id], fill)
        users = f"{block_id}: " + ("free" if count == 0 else f"×{count}")
        parts.append(_text(left + pitch / 2 - 2, POOL_TOP + BLOCK + 16, users, size=12))
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
            _rectangle(
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
    return [*parts, _rectangle(left, POOL_TOP, width, BLOCK, "none")]


def _colour(counts: list[int], block_id: int) -> str:
    return pool_colour(counts[block_id] if block_id >= 0 else 0)


def _rectangle(
    left: float, top: float, width: float, height: float, fill: str, edge: str = EDGE
) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' fill="{fill}" stroke="{edge}"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    size: int = 14,
    anchor: str = "middle",
    weight: str = "normal",
    colour: str = "black",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
        f' font-weight="{weight}" fill="{colour}">{html.escape(words)}</text>'
    )


def _arrow(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    """A curve that ends in a small triangle."""
    return (
        f'<path d="M{x:.1f},{y:.1f} '
        f'C{x:.1f},{y + 45:.1f} {to_x:.1f},{to_y - 55:.1f} {to_x:.1f},{to_y - 6:.1f}" '
        f'fill="none" stroke="{colour}" stroke-width="1.5"/>'
        f'<path d="M{to_x - 4:.1f},{to_y - 7:.1f} h8 l-4,7 z" fill="{colour}"/>'
    )
