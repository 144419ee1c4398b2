"""Exercise 7.4: a loop that keeps several tiles on their way.

The models of mistakes run on a small simulation of one warp, in the two extremes that
    asynchronous copies allow: each copy is made when it is waited for, or as soon as it is
    asked for.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lessons_exercises import tensors
from lessons_exercises.lesson_06.native import Found, kind_of, result_of, show
from lessons_exercises.words import counted
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.cuda import build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from lessons_lib.inline import read_kernel
from paged_attention.bug_hunt import STEP_LIMIT

NUM_STAGES, TILE_SHAPE, TILE_FLOATS = 4, (8, 32), 256  # of kernels/ladder/staged_tile.cuh
ALL, OF_LANE_0 = slice(None), slice(0, None, 32)  # chunks of a tile
BEFORE = 1e4  # what the stages hold at first
LATE, EARLY, IN_USE = "copies made late", "copies made early", ", into a stage that is in use"


@dataclass(frozen=True)
class Tiles:
    tiles: Tensor  # (num_tiles, 8, 32), whole numbers
    counts: tuple[int, ...]  # of each warp


class Warp:
    """A warp and its stages.

    The methods are what the kernel can do; several raise `Found` as checked mode would.
    """

    def __init__(self, tiles, first, count, late):
        self.tiles, self.first, self.late = tiles, first, late  # tiles: of all warps
        self.stages = [torch.full(TILE_SHAPE, BEFORE) for _ in range(NUM_STAGES)]
        # asked: (stage, first float, which of its chunks)
        self.asked = []
        self.groups = []
        self.done = 0
        self.written, self.read = set(), set()  # stages, since the lanes last met
        self.sum = torch.zeros(32)
        self.left = count
        self.under_way = NUM_STAGES - 1
        self.in_use = False

    def start(self, stage, tile, tile_floats=TILE_FLOATS, which=ALL):
        """tile_floats: how far apart two tiles are taken to be.

        which: of the tile's chunks are copied.
        """
        self.asked.append((stage, tile * tile_floats, which))
        if not self.late:
            self._make(*self.asked[-1])

    def close(self):
        self.groups.append(len(self.asked))

    def wait(self, latest):
        last = self.groups[-latest - 1] if len(self.groups) > latest else 0
        while self.done < last:
            if self.late:
                self._make(*self.asked[self.done])
            self.done += 1

    def meet(self):
        self.written.clear()
        self.read.clear()

    def use(self, stage):
        self.in_use |= stage in [to for to, _, _ in self.asked[self.done :]]
        # by each lane
        under_way = [to for to, _, which in self.asked[self.done :] if which == ALL]
        self.left -= 1
        if self.left >= NUM_STAGES - 1:
            self.under_way = min(self.under_way, sum(to != stage for to in under_way))
        if not 0 <= stage < NUM_STAGES:
            raise Found("shared-out-of-bounds")
        if stage in self.written:
            raise Found("order")
        self.read.add(stage)
        self.sum += self.stages[stage].sum(0)

    def _make(self, stage, first_float, which):
        first = self.first * TILE_FLOATS + first_float
        if first % 4:
            raise Found("misaligned", "tiles")
        if not 0 <= first <= self.tiles.numel() - TILE_FLOATS:
            raise Found("outside", "tiles")
        if not 0 <= stage < NUM_STAGES:
            raise Found("shared-out-of-bounds")
        if stage in self.read:
            raise Found("order")
        self.written.add(stage)
        chunks = self.tiles.flatten()[first : first + TILE_FLOATS].view(-1, 4)
        self.stages[stage].view(-1, 4)[which] = chunks[which]


def modelled(loop):
    """What a kernel with the loop `loop(warp, num_tiles)` gives."""

    def subject(case):
        def run(late):
            warps = [
                Warp(case.tiles, sum(case.counts[:warp]), count, late)
                for warp, count in enumerate(case.counts)
            ]
            try:
                for warp, count in zip(warps, case.counts, strict=True):
                    loop(warp, count)
            except Found as found:
                raise Found(
                    when(late, any(warp.in_use for warp in warps)) + found.kind, found.name
                ) from None
            return warps

        late, early = run(late=True), run(late=False)
        return (
            torch.stack([warp.sum for warp in late]),
            torch.stack([warp.sum for warp in early]),
            torch.tensor([warp.under_way for warp in late], dtype=torch.int32),
        )

    return subject


def when(late, in_use):
    return f"{LATE if late else EARLY}{IN_USE if in_use else ''}: "


def staged(
    latest=NUM_STAGES - 1,
    first=lambda warp, n: range(NUM_STAGES),
    stage_of=lambda tile: tile % NUM_STAGES,
    target_of=None,
    step=NUM_STAGES,
    turns=lambda n: n,
    order="wait meet use meet load",
    guarded=(True, True),
    closed=("always", "always"),
    wait_once=False,
    tile_floats=(TILE_FLOATS, TILE_FLOATS),
    which=(ALL, ALL),
    first_stage=None,
    beyond=0,
    before="",
):
    """The loop, with some of its parts replaced.

    closed: the groups before the loop, and in it: always, only with a copy in it ("full"),
        twice with a copy in it, never, once, or (in it) before the copies ("early").
    tile_floats, which: see Warp.start(), before the loop and in it.
    beyond: tiles that the loop takes to be there, but that do not exist.
    before: what is done once before the loop, as in order.
    """

    def loop(warp, n):
        for tile in first(warp, n):
            if tile < n or not guarded[0]:
                warp.start((first_stage or stage_of)(tile), tile, tile_floats[0], which[0])
            for _ in range(groups_of(closed[0], tile < n)):
                warp.close()
        if closed[0] == "once":
            warp.close()
        if wait_once or "wait" in before:
            warp.wait(latest)
        if "meet" in before:
            warp.meet()
        for tile in range(turns(n)):
            for what in order.split():
                if what == "wait" and not wait_once:
                    warp.wait(latest)
                elif what == "meet":
                    warp.meet()
                elif what == "use":
                    warp.use(stage_of(tile))
                elif what == "load":
                    if closed[1] == "early":
                        warp.close()
                    if there := tile + step < n + beyond or not guarded[1]:
                        warp.start(
                            (target_of or stage_of)(tile),
                            tile + step,
                            tile_floats[1],
                            which[1],
                        )
                    for _ in range(groups_of(closed[1], there)):
                        warp.close()

    return modelled(loop)


def groups_of(closed, there):
    """How many groups are closed after the copies of a tile, or where there is no tile."""
    return {"always": 1, "full": int(there), "twice": 1 + there}.get(closed, 0)


def one_by_one(latest=0):
    """Each tile is asked for when it is needed."""

    def loop(warp, n):
        for tile in range(n):
            warp.start(tile % NUM_STAGES, tile)
            warp.close()
            warp.wait(latest)
            warp.meet()
            warp.use(tile % NUM_STAGES)
            warp.meet()

    return modelled(loop)


def ahead(stages=NUM_STAGES - 1, **parts):
    """The form with one meeting in each turn.

    It fills the stage that was used in the turn before.
    """
    return staged(
        **dict(
            latest=stages - 1,
            first=lambda warp, n: range(stages),
            step=stages,
            order="wait meet load use",
            target_of=lambda tile: (tile + stages) % NUM_STAGES,
        )
        | parts
    )


def all_first(**parts):
    """All tiles are loaded before the loop."""
    return staged(
        **dict(first=lambda warp, n: range(n), order="meet use", wait_once=True, latest=0)
        | parts
    )


def past_the_stages(under_way):
    """The sums of `tiles` themselves, which have the other sign.

    under_way: of a warp with this many tiles.
    """

    def subject(case):
        starts = [sum(case.counts[:warp]) for warp in range(len(case.counts))]
        sums = -torch.stack(
            [
                case.tiles[start : start + count].sum((0, 1))
                for start, count in zip(starts, case.counts, strict=True)
            ]
        )
        return (
            sums,
            sums,
            torch.tensor([under_way(count) for count in case.counts], dtype=torch.int32),
        )

    return subject


def barrier_for_all(case):
    """__syncthreads() goes well as long as the warps have the same number of tiles."""
    if len(set(case.counts)) > 1:
        raise Found(f"{LATE}: divergent-barrier")
    return staged()(case)


def last_tile_alone(case):
    """The sum is set in each turn."""
    last = [
        case.tiles[sum(case.counts[: warp + 1]) - 1].sum(0) if count else torch.zeros(32)
        for warp, count in enumerate(case.counts)
    ]
    return torch.stack(last), torch.stack(last), staged()(case)[2]


def added_over_lanes(each_turn=False):
    """Each lane gives the sum of all columns.

    each_turn: its sum so far is added to the others' each time.
    """

    def subject(case):
        starts = [sum(case.counts[:warp]) for warp in range(len(case.counts))]
        sums = torch.zeros(len(starts), 32)
        for warp, (start, count) in enumerate(zip(starts, case.counts, strict=True)):
            for tile in case.tiles[start : start + count]:
                sums[warp] += tile.sum(0)
                if each_turn:
                    sums[warp] = sums[warp].sum()
            sums[warp] = sums[warp] if each_turn else sums[warp].sum()
        return sums, sums, staged()(case)[2]

    return subject


def nothing_for_few(fewest):
    """0 where a warp has fewer than `fewest` tiles."""

    def subject(case):
        late, early, under_way = staged()(case)
        enough = torch.tensor(case.counts)[:, None] >= fewest
        return late * enough, early * enough, under_way

    return subject


def prepare(answer):
    def own(name):
        return (Path(__file__).parent / name).read_text(encoding="utf-8")

    tile = read_kernel("ladder/staged_tile.cuh").replace("float add_up(", "float column_sum(")
    texts = {
        "the check's copies": own("stages_copies.cuh"),
        "staged_tile.cuh": tile,
        "your code": answer,
        "the check": own("stages_check.cu"),
    }
    library = build_cuda(*texts.values(), names=tuple(texts), target="checked", name="check")
    library.options(step_limit=STEP_LIMIT)

    def native(case):
        num_warps = len(case.counts)
        first_tiles = torch.tensor([0, *case.counts], dtype=torch.int32).cumsum(
            0, dtype=torch.int32
        )

        def run(late):
            sums = torch.empty(num_warps, 32)
            under_way = torch.empty(num_warps, 32, dtype=torch.int32)
            try:
                library.stages(
                    sums, under_way, -case.tiles, first_tiles, num_warps, BEFORE, not late
                )
            except KernelError as error:
                library.stages_in_use(in_use := torch.empty(64, dtype=torch.int32))
                error.kind = when(late, bool(in_use.any())) + kind_of(error)
                raise
            return sums, under_way.amin(1)

        (late, under_way), (early, _) = run(late=True), run(late=False)
        return late, early, under_way

    return native


def cases():
    """(tiles of each warp, seed)."""
    counts = (
        (1,),
        (2,),
        (3,),
        (4,),
        (5,),
        (9,),
        (0, 2),
        (8, 8),
        (3, 7),
        (6, 2),
        (17, 0),
        (12, 13),
    )
    yield from ((count, seed) for seed, count in enumerate(counts))


def hidden(seed):
    chance = random.Random(seed)
    for number in range(10):
        counts = (
            (chance.randint(0, 4), chance.randint(3, 14))
            if number % 2
            else (chance.randint(1, 20),)
        )
        yield tuple(chance.sample(counts, len(counts))), chance.randrange(2**31)


def observe(subject, case):
    counts, seed = case
    generator = torch.Generator().manual_seed(seed)
    tiles = torch.randint(-8, 9, (sum(counts), *TILE_SHAPE), generator=generator).float()
    return result_of(
        lambda: subject(Tiles(tiles, counts)),
        ("tiles",),
        (
            "sums, with copies made as late as possible:",
            "sums, with copies made as early as possible:",
            "tiles under way while one is added up, at least, for each warp:",
        ),
    )


def show_result(expected, actual):
    """As show(), and it says where a copy had not arrived."""
    texts = show(expected, actual)
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        differing = next(
            (pair for pair in zip(expected, actual, strict=True) if not tensors.same(*pair)),
            None,
        )
        if differing and bool((differing[1].tensor.abs() > BEFORE / 2).any()):
            return (
                texts[0],
                (
                    f"{texts[1]}\n"
                    f"  (Until a copy arrives, each number of a stage is {BEFORE:,.0f}.)"
                ),
            )
    return texts


def describe(case):
    counts, _ = case
    if len(counts) == 1:
        return f"one warp, {counted(counts[0], 'tile')}"
    return f"two warps, with {counted(counts[0], 'tile')} and {counted(counts[1], 'tile')}"


WAIT = "    copies.wait<num_stages - 1>();\n"
MEET_FIRST = "    __syncwarp();  // the other lanes' copies are there as well\n"
MEET_LAST = "    __syncwarp();  // the other lanes have read as well\n"
USE = "    sum += add_up(stage);\n"
NEXT = "    int next = tile + num_stages;\n"
LOAD = "    if (next < num_tiles) start_copies(copies, stage, tiles + next * tile_floats);\n"
CLOSE = "    copies.close_group();  // an empty one, too: wait() counts groups\n"
BEFORE_LOOP_HEAD = "  for (int tile = 0; tile < num_stages; ++tile) {\n"
BEFORE_LOOP = (
    "    if (tile < num_tiles) "
    "start_copies(copies, stages[tile], tiles + tile * tile_floats);\n"
    "    copies.close_group();\n"
)
LOOP = "  for (int tile = 0; tile < num_tiles; ++tile) {\n"

EXERCISE = Exercise(
    id="7.4",
    title="tiles on their way",
    answer_name="staged_sum",
    language="cuda",
    reference=staged(),
    prepare=prepare,
    cases=cases,
    size=lambda case: (len(case[0]), sum(case[0])),
    hidden=hidden,
    observe=observe,
    describe=describe,
    same=tensors.same,
    show=show_result,
    points=2,
    mistakes=(
        Mistake(
            "tiles-not-through-the-stages",
            "The numbers that you add up come from `tiles` itself, not from the stages. "
            "A copy that you do not read is of no use. Wait for a stage, "
            "and add up what is in it. To make this visible, "
            "the check's copies change the sign of each number.",
            past_the_stages(lambda n: NUM_STAGES - 1),
            (
                (
                    USE,
                    (
                        "    for (int row = 0; row < tile_rows; ++row) {\n"
                        "      sum += tiles[tile * tile_floats + row * row_size + "
                        "threadIdx.x % 32];\n"
                        "    }\n"
                    ),
                ),
            ),
            also=(past_the_stages(lambda n: 0 if n >= NUM_STAGES else NUM_STAGES - 1),),
        ),
        Mistake(
            "waits-for-everything",
            "The sums are right, but nothing is under way while a tile is added up: "
            "your loop waits for all copies that it has started. "
            "Which one does it need next, and how many may go on?",
            staged(latest=0),
            ((WAIT, WAIT.replace("num_stages - 1", "0")),),
            also=(one_by_one(),),
        ),
        Mistake(
            "waits-for-too-many",
            "The sums are right, but fewer tiles are under way than could be. "
            "While one stage is in use, all the others may be on their way. "
            "wait() counts the groups that were closed, the empty ones too.",
            staged(latest=NUM_STAGES - 2),
            ((WAIT, WAIT.replace("- 1", "- 2")),),
            also=tuple(staged(latest=latest) for latest in range(1, NUM_STAGES - 2))
            + (
                staged(
                    first=lambda warp, n: range(NUM_STAGES - 1),
                    step=NUM_STAGES - 1,
                    latest=NUM_STAGES - 2,
                    target_of=lambda tile: (tile + NUM_STAGES - 1) % NUM_STAGES,
                ),
            )
            + tuple(
                form(closed=closed)
                for form in (staged, ahead)
                for closed in (("always", "twice"), ("twice", "always"), ("twice", "twice"))
            ),
        ),
        Mistake(
            "no-wait",
            "A stage is used, but its copies have not been waited for. "
            "copy() only asks for a copy. close_group() makes a group of the copies asked "
            "for, and wait() waits for groups.",
            staged(latest=10**6),
            ((WAIT, ""),),
            also=(staged(closed=("never", "never")), one_by_one(10**6)),
        ),
        Mistake(
            "waits-for-too-few",
            "A stage is used before its copies are there. "
            "wait<n>() leaves the latest n groups under way. "
            "How many groups have been closed after the one that you need?",
            staged(latest=NUM_STAGES),
            ((WAIT, WAIT.replace("num_stages - 1", "num_stages")),),
            also=(
                staged(latest=NUM_STAGES + 1),
                ahead(latest=NUM_STAGES - 1),
                ahead(latest=NUM_STAGES),
            ),
        ),
        Mistake(
            "first-tile-alone-waited-for",
            "The first tile is waited for, but those after it are not. "
            "Each turn has its own tile to wait for. "
            "wait() can wait for a tile if its group is closed.",
            staged(wait_once=True),
            ((WAIT, ""), (LOOP, "  copies.wait<num_stages - 1>();\n" + LOOP)),
            also=(staged(closed=("always", "never")), staged(wait_once=True, latest=0)),
        ),
        Mistake(
            "closed-before-the-copies",
            "close_group() comes before the copies that belong to the group. "
            "It makes a group of what was asked for up to then. "
            "So each tile is one group later than you count.",
            staged(closed=("always", "early")),
            ((LOAD, ""), (CLOSE, CLOSE + LOAD)),
            also=(ahead(closed=("always", "early")),),
        ),
        Mistake(
            "waits-after-use",
            "A stage is used first and waited for afterwards.",
            staged(order="meet use wait meet load"),
            ((WAIT, ""), (USE, USE + WAIT)),
            also=(staged(order="meet use meet load wait"),),
        ),
        Mistake(
            "not-there-for-the-others",
            "A lane uses numbers that other lanes have copied. "
            "But wait() waits only for the lane's own copies. "
            "What makes the 32 lanes wait for each other?",
            staged(order="wait use meet load"),
            ((MEET_FIRST, ""),),
            also=(
                staged(order="wait use load"),
                staged(order="meet wait use meet load"),
                staged(order="use meet load wait", before="wait meet"),
                staged(order="use meet load wait", before="wait"),
            ),
        ),
        Mistake(
            "stage-reused-too-soon",
            "A lane begins to copy the next tile into a stage that other lanes may still be "
            "reading. You do not see it when a copy takes its time, "
            "but you do when a copy is quick.",
            staged(order="wait meet use load"),
            ((MEET_LAST, ""),),
        ),
        Mistake(
            "loaded-before-use",
            "The next tile is on its way into a stage, "
            "but you have not used that stage's numbers yet. A quick copy overwrites them.",
            staged(order="wait meet load use meet"),
            ((USE, ""), (MEET_LAST, ""), (CLOSE, CLOSE + USE + MEET_LAST)),
            also=(
                staged(order="wait meet load use"),
                staged(order="wait meet load meet use"),
                staged(order="load wait meet use meet"),
            ),
        ),
        Mistake(
            "group-not-closed",
            "When there is nothing left to load, no group is closed. "
            "Then wait() counts wrongly: it leaves the latest groups under way, "
            "and those are the ones that you need. A group may be empty.",
            staged(closed=("always", "full")),
            (
                (LOAD, LOAD.replace("start_copies", "{\n      start_copies")),
                (CLOSE, "  " + CLOSE + "    }\n"),
            ),
            also=(
                staged(closed=("full", "always")),
                staged(closed=("full", "full")),
                ahead(closed=("always", "full")),
                ahead(closed=("full", "always")),
                ahead(closed=("full", "full")),
            ),
        ),
        Mistake(
            "one-group-for-the-first-tiles",
            "The tiles that are loaded before the loop are in one group, "
            "and wait() waits for a whole group. Close one group for each tile.",
            staged(closed=("once", "always")),
            (
                (
                    BEFORE_LOOP + "  }\n",
                    BEFORE_LOOP.replace(
                        "    copies.close_group();\n", "  }\n  copies.close_group();\n"
                    ),
                ),
            ),
            also=(staged(closed=("never", "always")),),
        ),
        Mistake(
            "loads-behind-the-end",
            "Tiles are loaded that do not exist. "
            "Near the end there may be nothing left to load. "
            "And there may be fewer tiles than stages.",
            staged(guarded=(True, False)),
            ((LOAD, LOAD.replace("if (next < num_tiles) ", "")),),
            also=(
                staged(guarded=(False, True)),
                staged(guarded=(False, False)),
                staged(beyond=1),
                ahead(beyond=1),
            ),
        ),
        Mistake(
            "wrong-stage",
            "Tiles and stages do not match: a tile is used from another stage than it was "
            "loaded into, or from one that does not exist. The stages are used in turn. "
            "After the last one comes the first.",
            staged(stage_of=lambda tile: tile),
            (("stages[tile % num_stages]", "stages[tile]"),),
            also=(
                staged(target_of=lambda tile: (tile + 1) % NUM_STAGES),
                staged(stage_of=lambda tile: 0),
                staged(target_of=lambda tile: tile + NUM_STAGES),
                staged(target_of=lambda tile: 0),
                staged(target_of=lambda tile: (tile + NUM_STAGES - 1) % NUM_STAGES),
                staged(first_stage=lambda tile: NUM_STAGES - 1 - tile),
                *(
                    staged(
                        stage_of=lambda tile, shift=shift: (tile + shift) % NUM_STAGES,
                        first_stage=lambda tile: tile % NUM_STAGES,
                        target_of=lambda tile: tile % NUM_STAGES,
                    )
                    for shift in (1, NUM_STAGES - 1)
                ),
            ),
        ),
        Mistake(
            "wrong-tile",
            "The stage that has become free gets a tile that is already there, or skips one. "
            "After the tile in use, num_stages - 1 tiles are on their way. "
            "Which tile comes next?",
            staged(step=1),
            ((NEXT, NEXT.replace("num_stages", "1")),),
            also=(
                staged(step=NUM_STAGES - 1),
                staged(step=NUM_STAGES + 1),
                staged(first=lambda warp, n: range(NUM_STAGES - 1)),
                *(
                    staged(
                        step=step, target_of=lambda tile, step=step: (tile + step) % NUM_STAGES
                    )
                    for step in (NUM_STAGES - 1, NUM_STAGES + 1, 1)
                ),
                ahead(step=NUM_STAGES, target_of=lambda tile: tile % NUM_STAGES),
                ahead(step=NUM_STAGES),
                *(
                    ahead(
                        step=step, target_of=lambda tile, step=step: (tile + step) % NUM_STAGES
                    )
                    for step in (1, 2)
                ),
                ahead(step=1),
            ),
        ),
        Mistake(
            "tile-offset-missing",
            "A pointer to floats that moves on by 1 moves on by one float. "
            "How many floats is it from one tile to the next?",
            staged(tile_floats=(TILE_FLOATS, 1)),
            ((LOAD, LOAD.replace("next * tile_floats", "next")),),
            also=tuple(
                staged(tile_floats=floats)
                for size in (1, *TILE_SHAPE, 4 * TILE_FLOATS)
                for floats in ((TILE_FLOATS, size), (size, TILE_FLOATS), (size, size))
            ),
        ),
        Mistake(
            "first-tiles-not-loaded",
            "Some of the first tiles are added up, but they were never asked for. "
            "A turn loads a tile for a later turn. "
            "Where are the tiles loaded that the first turns need?",
            staged(first=lambda warp, n: range(0)),
            ((BEFORE_LOOP_HEAD + BEFORE_LOOP + "  }\n", ""),),
            also=(
                ahead(first=lambda warp, n: range(0)),
                ahead(first=lambda warp, n: range(1)),
                *(staged(first=lambda warp, n, count=count: range(count)) for count in (1, 2)),
            ),
        ),
        Mistake(
            "one-turn-too-many",
            "A loop runs one turn too many. Tiles and stages are counted from 0. "
            "Which number does the last one have?",
            staged(turns=lambda n: n + 1),
            ((LOOP, LOOP.replace("tile < num_tiles", "tile <= num_tiles")),),
            also=(
                ahead(turns=lambda n: n + 1),
                staged(first=lambda warp, n: range(NUM_STAGES + 1)),
                staged(
                    first=lambda warp, n: range(NUM_STAGES + 1), first_stage=lambda tile: tile
                ),
            ),
        ),
        Mistake(
            "all-tiles-at-once",
            "All tiles are loaded before the first one is added up. "
            "But there are only num_stages stages. "
            "A later tile has a place when an earlier one has been used.",
            all_first(),
            (
                (BEFORE_LOOP_HEAD, BEFORE_LOOP_HEAD.replace("num_stages", "num_tiles")),
                (
                    BEFORE_LOOP,
                    BEFORE_LOOP.replace("stages[tile]", "stages[tile % num_stages]"),
                ),
                (WAIT, WAIT.replace("num_stages - 1", "0")),
                (LOAD, ""),
                (CLOSE, ""),
            ),
            also=(
                all_first(closed=("once", "never")),
                all_first(stage_of=lambda tile: tile),
                all_first(closed=("once", "never"), stage_of=lambda tile: tile),
                all_first(wait_once=False, order="wait meet use", latest=NUM_STAGES - 1),
            ),
        ),
        Mistake(
            "one-lane-copies",
            "Only one lane starts copies, but start_copies() copies only this lane's share. "
            "Each of the 32 lanes has its share of a tile.",
            staged(which=(ALL, OF_LANE_0)),
            ((LOAD, LOAD.replace("if (next", "if (threadIdx.x % 32 == 0 && next")),),
            also=(
                staged(which=(OF_LANE_0, OF_LANE_0)),
                staged(which=(OF_LANE_0, ALL)),
                ahead(which=(ALL, OF_LANE_0)),
                ahead(which=(OF_LANE_0, OF_LANE_0)),
            ),
        ),
        Mistake(
            "last-tiles-forgotten",
            "The last tiles are loaded but never added up: "
            "the loop ends when there is nothing left to load.",
            staged(turns=lambda n: max(0, n - NUM_STAGES)),
            ((LOOP, LOOP.replace("tile < num_tiles", "tile + num_stages < num_tiles")),),
            also=(staged(turns=lambda n: max(0, n - NUM_STAGES + 1)),),
        ),
        Mistake(
            "waits-for-other-warps",
            "__syncthreads() waits for all warps of the block. "
            "But warps have different numbers of tiles, so some never come. "
            "A warp's stages are its own business.",
            barrier_for_all,
            (
                (MEET_FIRST, MEET_FIRST.replace("__syncwarp", "__syncthreads")),
                (MEET_LAST, MEET_LAST.replace("__syncwarp", "__syncthreads")),
            ),
        ),
        Mistake(
            "last-tile-alone",
            "The sum is set again in each turn, so only the last tile is in it.",
            last_tile_alone,
            ((USE, USE.replace("+=", "=")),),
        ),
        Mistake(
            "few-tiles-forgotten",
            "With fewer tiles than stages the sum is 0. "
            "Those tiles have to be added up as well.",
            nothing_for_few(NUM_STAGES),
            (
                (
                    BEFORE_LOOP_HEAD,
                    "  if (num_tiles < num_stages) return sum;\n" + BEFORE_LOOP_HEAD,
                ),
            ),
            also=(nothing_for_few(NUM_STAGES + 1), nothing_for_few(NUM_STAGES - 1)),
        ),
        Mistake(
            "lanes-added-together",
            "The lanes' sums are added together. But each lane has its own column, "
            "and gives the sum of that column.",
            added_over_lanes(),
            (
                (
                    "  return sum;",
                    (
                        "  for (int distance = 16; distance > 0; distance /= 2) {\n"
                        "    sum += __shfl_xor_sync(0xffffffff, sum, distance);\n"
                        "  }\n"
                        "  return sum;"
                    ),
                ),
            ),
            also=(added_over_lanes(each_turn=True),),
        ),
    ),
    hints=(
        (
            "Before the loop: for each stage, start the copies of its first tile, "
            "and close the group. In the loop, each turn has one tile. Wait for it, "
            "use its stage, and fill the stage again."
        ),
        (
            "When tile 0 is needed, the groups of the tiles 1, "
            "2 and 3 have been closed after its own. Those may go on. "
            "If each turn closes exactly one group, it is the same for every tile."
        ),
        (
            "There are two moments at which the lanes of the warp have to meet. "
            "The first is when their copies are there, before any of them reads. "
            "The second is when all have read, before any of them copies into the stage "
            "again. __syncwarp() is that meeting."
        ),
        (
            "Two questions about the end. What does a turn load when no tile is left? "
            "And which group does wait() count, if a turn closes none?"
        ),
    ),
)
