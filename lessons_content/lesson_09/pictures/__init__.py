"""The pictures of lesson 09: a wait, two limits, rungs in TFLOP/s, and which tiles meet."""

import numpy as np

from lessons_content.lesson_07.bench import ladder_runs
from lessons_content.lesson_09.bench.prefill_runs import Run, of_the_ladder, recorded
from lessons_content.lesson_09.pictures import prefill, prompt
from lessons_content.lesson_09.pictures.overlap import overlap
from lessons_lib.drawing import GREEN, SHARED, USED, WASTED, Picture, show
from paged_attention.prefill.tile_counts import count_work

DATA_SHEET = 989  # TFLOP/s of an H200 with 16-bit numbers
LAYERS, WEIGHTS_IN_LAYERS = 36, 6.95e9  # of Qwen3-8B


def opening() -> Picture:
    """A user's wait for the first token, with the first rung and with the last."""
    run = of_the_ladder(recorded())
    assert run.multiply_limit_teraflops is not None
    weights = 2 * 8192 * WEIGHTS_IN_LAYERS / run.multiply_limit_teraflops / 1e12
    first, last = (
        LAYERS * run.row("1 prompt of 8,192", rung).milliseconds / 1000
        for rung in ("rung 0", "rung 5")
    )
    bars = {"rung 0, the lesson's first": first, "rung 5, its last": last}
    return show(
        prompt.first_token(bars, weights, f"one {run.card}, {run.date}"),
        alt=(
            "Two bars: the seconds until the first token of an answer to a prompt of 8,192"
            f" tokens. With rung 0, attention takes {first:.2f} seconds, and the products with"
            f" the weights {weights:.2f}. With rung 5, attention takes {last:.2f}."
        ),
    )


def reads(num_tokens: int, tile_tokens: int) -> Picture:
    """The reads of keys of a prompt, query by query and by tiles of queries."""
    alone = num_tokens * (num_tokens + 1) // 2
    tiled = sum(range(tile_tokens, num_tokens + 1, tile_tokens))
    return show(
        prompt.reads(num_tokens, tile_tokens, (alone, tiled)),
        alt=(
            f"Two grids of {num_tokens} queries and {num_tokens} keys. On the left, each pair"
            f" of a query and a key that it sees is a box: {alone} in all. On the right, boxes"
            f" are {tile_tokens} queries high, and there are {tiled}. In the last boxes of"
            " each tile, some pairs are grey."
        ),
    )


def limits() -> Picture:
    """Operations for each byte, of prompts and of chunks."""
    model = dict(num_q_heads=32, num_kv_heads=8, head_size=128, bytes_per_number=2)

    def line(last, num_keys=None):
        tokens = [2**power for power in range(last + 1)]
        works = [count_work([n], [num_keys or n], **model) for n in tokens]
        return tokens, [operations / num_bytes for operations, num_bytes in works]

    limit = ladder_runs.recorded()[0].read_limit_gb_per_s
    return show(
        prefill.intensity(
            {"a chunk at 8,192 keys": line(11, 8192), "a whole prompt": line(13)},
            DATA_SHEET * 1000 / limit,
        ),
        alt=(
            "Operations for a byte over the number of new tokens, both axes logarithmic. A"
            " dashed line at about 220 is what an H200 has time for while it reads a byte. A"
            " chunk at 8,192 keys begins at 4 and passes the line at about 60 new tokens. A"
            " whole prompt begins below 1 and passes it at about 550 tokens."
        ),
    )


def rungs(run: Run, workload: str, last: int, limit: float) -> Picture:
    """Rungs 0 to `last` on one workload, and the rate at which the card multiplies."""
    return show(
        prefill.ladder(run, workload, last, limit),
        alt=(
            f"Bars for rungs 0 to {last} on {workload}, each with its time and its TFLOP/s,"
            f" and a dashed line at {limit:.0f} TFLOP/s."
        ),
    )


def lanes() -> Picture:
    """Which lane has which scores."""
    return show(
        prefill.lanes(),
        alt=(
            "A grid of 16 rows and 8 keys, with a lane's number over each pair of keys. Lane"
            " 9 has keys 2 and 3 of rows 2 and 10. Lanes 8, 10 and 11, which have the other"
            " keys of these rows, are marked as well."
        ),
    )


def rows(tiles: list[list[tuple[int, int]]], tile_rows: int) -> Picture:
    """Tiles of single heads, and a last tile with packed heads."""
    padded = [[*tile, *[None] * (tile_rows - len(tile))] for tile in tiles]
    titles = [f"head {head} alone" for head in range(len(tiles) - 1)] + ["packed"]
    return show(
        prefill.rows(padded, titles),
        alt=(
            f"{len(tiles)} tiles of {tile_rows} rows. In the first {len(tiles) - 1}, each of"
            f" one head, {len(tiles[0])} rows are in use. In the last, where heads are packed,"
            f" {len(tiles[-1])} are: query 0 with all heads, then query 1, and so on."
        ),
    )


def tiles_met(read: list[np.ndarray], tile_tokens: int, blocks: list[int]) -> Picture:
    """The tiles of rows that read each block of a whole prompt.

    With rung 3, and 4 if given.
    """
    tiles, places = np.indices(read[0].shape)
    needed = 16 * places < tile_tokens * (tiles + 1)
    alt = (
        "A grid of tiles of rows and blocks of the context. In rung 3 each tile reads all"
        " blocks, and those above the diagonal for nothing."
    )
    if len(read) > 1:
        alt += " In rung 4 it reads those below the diagonal, and at most two more."
    titles = [f"Rung {number}" for number in range(3, 3 + len(read))]
    return show(prefill.tiles_met(np.stack(read), needed, blocks, titles), alt=alt)


def order(
    panels: dict[str, list[tuple[int, int, int]]], times: list[int], num_slots: int
) -> Picture:
    """When each item runs, in two orders."""
    ends = [max(begin + times[item] for item, _, begin in items) for items in panels.values()]
    words = " and ".join(f"{title}, {end} units" for title, end in zip(panels, ends))
    return show(
        prefill.order(panels, times, num_slots),
        alt=f"Items on {num_slots} places over time: {words}.",
    )


def side_by_side() -> Picture:
    """Rung 4's warp, which does one thing after another, and rung 5's division of work."""
    alone, copied, products, softmax = [], [], [], []
    for tile in range(3):
        for place, what in enumerate(("scores", "softmax", "values")):
            alone.append((3 * tile + place, 1, f"{what} {tile}"))
    for tile in range(4):
        begin = 2 * tile
        copied += [(begin, 1, f"keys {tile + 1}"), (begin + 1, 1, f"values {tile}")]
        products.append((begin, 1, f"scores {tile}"))
        softmax.append((begin + 1, 1, f"softmax {tile}"))
        if tile:
            products.append((begin + 1, 1, f"values {tile - 1}"))
    workers = {"a warp that copies": copied, "tensor cores": products, "threads": softmax}
    return show(
        overlap(
            {"Rung 4, one of its warps": {"tensor cores, threads": alone}, "Rung 5": workers},
            dict(scores=USED, values=GREEN, softmax=SHARED, keys=WASTED),
        ),
        alt=(
            "Boxes over time. Above, a warp of rung 4 computes scores, softmax and values of"
            " tile 0, then of tile 1, then of tile 2. Below, rung 5: while the threads compute"
            " the softmax of a tile, the tensor cores multiply the values of the tile before,"
            " and a warp copies the values of this tile."
        ),
    )


def batches(run: Run, workloads: list[str]) -> Picture:
    """The last rungs and other libraries on each batch."""
    return show(
        prefill.batches(run, tuple(workloads)),
        alt=(
            "For each of six batches five bars in TFLOP/s: rungs 4 and 5, PyTorch's"
            " FlashAttention-2, FlashInfer's FA2 and its FA3. Rung 5 is the longest on four of"
            " them; on the chunks at 8,192 and 32,768 FA3 is a little longer."
        ),
    )
