"""Recorded for lesson 00: the same requests in pieces of the longest length, and in blocks."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from lessons_lib.drawing.player import Cell, Cells, Numbers, Player, Recording, Row, View

BLOCK = 16  # tokens
PIECE = 8  # blocks: enough for the longest answer allowed
NUM_PIECES = 4
AT_FIRST, EACH_STEP = 12, 8  # tokens of a request
LENGTHS = dict(zip("ABCDEFGHIJ", (60, 116, 28, 92, 44, 12, 68, 36, 20, 52), strict=True))


@dataclass
class Memory:
    """Blocks for requests that come, grow and end.

    whole: whether a request gets a whole piece at once. If not, it gets blocks one by one.
    """

    whole: bool
    free: list[int] = field(default_factory=lambda: [*range(PIECE * NUM_PIECES)])
    blocks: dict[str, list[int]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)
    num_done: int = 0
    reserved_so_far: int = 0  # slots, added up over the steps
    written_so_far: int = 0
    num_steps: int = 0  # until all requests have ended

    def step(self) -> str:
        """One step: ended requests leave, others grow, and waiting requests come in.

        Returns a sentence about it.
        """
        ended = [name for name, count in self.tokens.items() if count == LENGTHS[name]]
        for name in ended:
            self.free = sorted(self.free + self.blocks.pop(name))
            del self.tokens[name]
        self.num_done += len(ended)
        for name, count in self.tokens.items():
            self.tokens[name] = min(count + EACH_STEP, LENGTHS[name])
            self._take(name)
        came = []
        while self.waiting and len(self.free) >= (PIECE if self.whole else 1):
            came.append(self.waiting.popleft())
            self.blocks[came[-1]], self.tokens[came[-1]] = [], AT_FIRST
            self._take(came[-1])
        self.reserved_so_far += self.reserved
        self.written_so_far += self.written
        self.num_steps += bool(self.tokens)
        said = [
            f"{_in_words(names)} {what}"
            for names, what in (
                (ended, "ended"),
                (came, "came in"),
                (self.waiting, "must wait"),
            )
            if names
        ]
        return "; ".join(said) or ("the answers grow" if self.tokens else "all is done")

    def _take(self, name: str) -> None:
        needed = PIECE if self.whole else -(-self.tokens[name] // BLOCK)
        while len(self.blocks[name]) < needed:
            self.blocks[name].append(self.free.pop(0))

    @property
    def reserved(self) -> int:
        return BLOCK * sum(map(len, self.blocks.values()))

    @property
    def written(self) -> int:
        return sum(self.tokens.values())

    @property
    def wasted_so_far(self) -> float:
        return 1 - self.written_so_far / self.reserved_so_far


class Side:
    """One of the two views, and its memory."""

    def __init__(self, name: str, title: str, whole: bool):
        self.memory = Memory(whole)
        places = range(PIECE * NUM_PIECES)
        self.queue = Cells(
            f"{name}-queue",
            "waiting",
            [Row("", [*LENGTHS])],
            0,
            PIECE,
            "request",
            missing="gone",
            ids=False,
        )
        self.pool = Cells(
            f"{name}-pool",
            f"memory: {BLOCK} tokens a square; hatched is reserved and empty, plain is free",
            [Row("", places)],
            BLOCK,
            PIECE,
            ids=False,
        )
        self.numbers = Numbers(
            f"{name}-numbers",
            {
                "empty": "of the reserved memory is empty",
                "at work": f"at work, of {len(LENGTHS)} requests",
                "done": "done",
            },
        )
        self.view = View(title, [self.queue, self.pool, self.numbers])

    def states(self) -> list[dict]:
        memory = self.memory
        cells = {
            block: Cell([name], max(0, min(BLOCK, memory.tokens[name] - place * BLOCK)))
            for name, blocks in memory.blocks.items()
            for place, block in enumerate(blocks)
        }
        empty = 1 - memory.written / memory.reserved if memory.reserved else 0
        numbers = {
            "empty": (f"{100 * empty:.0f} %", empty),
            "at work": str(len(memory.tokens)),
            "done": str(memory.num_done),
        }
        waiting = {name: Cell([name]) for name in memory.waiting}
        return [self.queue.at(waiting), self.pool.at(cells), self.numbers.at(**numbers)]


def recorded() -> Player:
    """Ten requests in room for 512 tokens, twice."""
    left = Side("left", f"Contiguous: one piece of {PIECE * BLOCK} tokens each", True)
    right = Side("right", f"Paged: a block of {BLOCK} tokens at a time", False)
    recording = Recording(
        "The same memory and the same requests, twice",
        [left.view, right.view],
        [*LENGTHS],
        700,
    )
    recording.step(
        f"Both memories are empty. Nobody knows how long an answer will be, but none is longer"
        f" than {PIECE * BLOCK} tokens.",
        *left.states(),
        *right.states(),
    )
    coming = deque(LENGTHS)
    memories = left.memory, right.memory
    while any(memory.num_done < len(LENGTHS) for memory in memories):
        for _ in range(min(2, len(coming))):
            name = coming.popleft()
            for memory in memories:
                memory.waiting.append(name)
        contiguous, paged = (memory.step() for memory in memories)
        say = f"Contiguous: {contiguous}. Paged: {paged}."
        if all(memory.num_done == len(LENGTHS) for memory in memories):
            say = _at_the_end(*memories)
        recording.step(say, *left.states(), *right.states())
    return recording.player(
        still=6,
        alt=(
            "The same memory twice, as four rows of eight squares, with the same ten requests."
            " Left, each request has a whole row: four are at work, most of each row is"
            " hatched, which means reserved and empty, and five wait. Right, eight requests"
            " are at work, their blocks lie anywhere, hardly anything is hatched, none waits,"
            " and some squares are still free."
        ),
    )


def _at_the_end(contiguous: Memory, paged: Memory) -> str:
    before, after = (f"{100 * memory.wasted_so_far:.0f} %" for memory in (contiguous, paged))
    return (
        f"All is done. Contiguous: {before} of the reserved memory was empty over all"
        f" {contiguous.num_steps} steps. Paged: {after}, and it took {paged.num_steps} steps."
    )


def _in_words(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
