"""The pictures of lesson 07: each rung's distance from the limit, and its idea."""

from lessons_content.lesson_07.bench.ladder_runs import Run, recorded
from lessons_content.lesson_07.pictures import ladder as ladder_chart
from lessons_content.lesson_07.pictures import loads, tiles
from lessons_lib.drawing import Picture, show

WORKLOAD = "gqa_b64_c1024"  # the lesson's own workload; the others are for single rungs
BATCHES = {
    WORKLOAD: "a batch of 64 sequences of 1,024 tokens",
    "gqa_b256_ragged": "256 sequences of 128 to 2,048 tokens",
    "gqa_b1_c32768": "one sequence of 32,768 tokens",
}


def opening() -> Picture:
    """Rung 0 and the limit, by the newest record."""
    return show(
        ladder_chart.ladder(recorded()[0], WORKLOAD, up_to=0, others=False),
        alt=(
            "A single short bar, rung 0, one thread's softmax. A dashed line far to its right"
            " is the limit of the card."
        ),
    )


def rungs(run: Run, workload: str, last: int) -> Picture:
    """Rungs 0 to `last` on one workload, and the card's limit."""
    batch = BATCHES.get(workload, workload)
    return show(
        ladder_chart.ladder(run, workload, up_to=last, others=False),
        alt=(
            f"Bars for rungs 0 to {last} on {batch}, each with its time, and the card's limit"
            " as a line."
        ),
    )


def whole_ladder(run: Run, workload: str) -> Picture:
    """All rungs of this lesson and other libraries, on one workload."""
    batch = BATCHES.get(workload, workload)
    return show(
        ladder_chart.ladder(run, workload, up_to=8),
        alt=(
            f"Bars for all rungs and for the other libraries on {batch}, each with its time,"
            " and the card's limit as a line."
        ),
    )


def all_workloads(run: Run) -> Picture:
    """Rung 7 and the fastest of FlashInfer's ways on each workload."""
    return show(
        ladder_chart.workloads(run),
        alt=(
            "For each of six batches two bars, rung 7 and the fastest of FlashInfer's"
            " ways, beside the card's limit."
        ),
    )


def first_loads(narrow: list[tuple[int, int]], wide: list[tuple[int, int]]) -> Picture:
    """The bytes that a warp's first load asks for and brings, in rungs 1 and 2.

    narrow, wide: (token, byte of its key) where each lane begins to read 2 or 16 bytes.
    """
    panels = [
        ("Rung 1: a lane has a token", narrow, 2),
        ("Rung 2: 16 lanes share a token", wide, 16),
    ]
    return show(
        loads.loads(panels, num_tokens=32, row_bytes=256),
        alt=(
            "Two panels, each with 32 keys of 256 bytes in sectors of 32 bytes. Left, rung 1:"
            " the first sector of each key is brought, and only its first two bytes are asked"
            " for. An inset shows the sectors of three keys magnified. Right, rung 2: keys 0 "
            "and 1 are brought in full, and every byte of them is asked for."
        ),
    )


def lanes() -> Picture:
    """Which lane holds which numbers of the matrices of `mma`."""
    return show(
        tiles.lanes(),
        alt=(
            "Three grids of lane numbers: a, 16 tokens by 16 dims; b, 16 dims by 8 queries; c,"
            " 16 tokens by 8 queries. Lane 9 is marked. In a it has rows 2 and 10, columns 2,"
            " 3, 10 and 11; in b column 2, rows 2, 3, 10 and 11; in c rows 2 and 10, columns 2"
            " and 3."
        ),
    )


def stages() -> Picture:
    """Nine tiles on their way through four stages."""
    return show(
        tiles.stages(num_stages=4, num_tiles=9),
        alt=(
            "Four stages as rows over time. Tiles 0 to 3 are on their way before turn 0. In"
            " turn 0 stage 0 is used, then tile 4 is on its way into it for three turns, while"
            " stages 1, 2 and 3 are used one after the other. In each turn one stage is used"
            " and three tiles are on their way or have arrived."
        ),
    )


def banks(as_it_comes: list[int], swizzled: list[int]) -> Picture:
    """The banks that eight lanes want. Arguments: the places of their chunks of 16 bytes."""
    return show(
        tiles.banks([("As it comes", as_it_comes), ("Swizzled", swizzled)]),
        alt=(
            "Two grids of eight lanes by eight groups of banks. As it comes, lanes 0 to 3 all"
            " want group 0 and lanes 4 to 7 group 1: four rounds. Swizzled, every lane has a"
            " group to itself: one round."
        ),
    )


def waves() -> Picture:
    """5 rows of 24 tiles in one, two and three splits, on 8 multiprocessors."""
    return show(
        ladder_chart.waves(5, 24, 8, splits=(1, 2, 3)),
        alt=(
            "Blocks on eight multiprocessors over time. One split: five blocks in one wave,"
            " three multiprocessors idle. Two splits: ten blocks in two waves, six idle in the"
            " second. Three splits: fifteen blocks in two shorter waves, one idle in the"
            " second."
        ),
    )


def equal_shares(lengths: list[int]) -> Picture:
    """Rows with these numbers of tiles, cut into equal shares for 8 multiprocessors."""
    return show(
        ladder_chart.balanced(lengths, 8),
        alt=(
            "Eight blocks, one on each of eight multiprocessors, all of the same length. The"
            " long row 1 is spread over several of them, and most blocks have pieces of two"
            " rows."
        ),
    )
