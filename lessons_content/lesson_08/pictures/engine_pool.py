"""An engine at a moment, for the player: its pool, the requests of its step, and its queue."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from lessons_lib.drawing.player import Cell, Cells, Numbers, Recording, Row, View

PLACES = 12  # shown of a batch or a queue


@dataclass
class EnginePool:
    """The panels of an engine.

    names: of requests; `name_of` gives the name for an id.
    decode: turns tokens into text.
    columns: of the pool.
    most: the largest number of blocks to show; of a larger pool, the first ones.
    """

    engine: object
    names: Sequence[str]
    decode: Callable[[list[int]], str]
    name_of: Callable[[Hashable], str] = str
    columns: int = 10
    most: int = 2048
    ids: bool = True
    _before: set = field(default_factory=set)

    def __post_init__(self):
        manager = self.engine.manager
        self.num_blocks = manager.kv_cache.shape[2]
        shown = min(self.most, self.num_blocks)
        rows = [Row("", range(shown))]
        self.pool = Cells("pool", "pool", rows, manager.block_size, self.columns, ids=self.ids)
        self.batch, self.queue = (
            Cells(
                id,
                title,
                [Row("", [f"{id} {place}" for place in range(PLACES)])],
                columns=6,
                noun="request",
                missing="gone",
                ids=False,
            )
            for id, title in (
                ("batch", "in this step, each with its tokens"),
                ("queue", "waiting"),
            )
        )
        of = f"of {self.num_blocks:,} blocks are free"
        words = {"free": of, "kept": "are kept by the cache", "waiting": "requests wait"}
        self.numbers = Numbers("numbers", words)

    def recording(self, title: str) -> Recording:
        panels = [self.batch, self.queue, self.numbers]
        views = [View("", [self.pool]), View("", panels)]
        return Recording(title, views, self.names, pace=700)

    def states(self, scheduled: Sequence[tuple]) -> list[dict]:
        """The engine's state now.

        scheduled: the requests of its step, each with its number of tokens.
        """
        scheduler, manager = self.engine.scheduler, self.engine.manager
        blocks = self._blocks()
        shown = {block: cell for block, cell in blocks.items() if block < self.most}
        batch = {
            f"batch {place}": Cell(
                [self.name_of(request.id)],
                shows=f"{self.name_of(request.id)}: {num_tokens}",
                tells="decodes" if _decodes(request, num_tokens) else "reads its prompt",
            )
            for place, (request, num_tokens) in enumerate(scheduled[:PLACES])
        }
        queue = {
            f"queue {place}": Cell([self.name_of(request.id)])
            for place, request in enumerate([*scheduler.waiting][:PLACES])
        }
        numbers = self.numbers.at(
            free=f"{manager.block_manager.get_num_free_blocks():,}",
            kept=f"{scheduler.prefix_cache.num_evictable():,}",
            waiting=f"{len(scheduler.waiting):,}",
        )
        return [self.pool.at(shown), self.batch.at(batch), self.queue.at(queue), numbers]

    def _blocks(self) -> dict[int, Cell]:
        """The content of each block that a request or the cache uses."""
        manager = self.engine.manager
        size = manager.block_size
        users: dict[int, list[str]] = {}
        filled: dict[int, int] = {}
        texts: dict[int, str] = {}
        for request in self.engine.scheduler.running:
            length = manager.get(request.id).length
            for place, block in enumerate(manager.blocks_of(request.id)):
                users.setdefault(block, []).append(self.name_of(request.id))
                tokens = request.tokens[place * size : min((place + 1) * size, length)]
                if len(tokens) >= filled.get(block, 0):
                    filled[block], texts[block] = len(tokens), self.decode(tokens)
        cells = {
            block: Cell(
                users[block], filled[block], tells=texts[block] and f"“{texts[block]}”"
            )
            for block in users
        }
        kept = self.engine.scheduler.prefix_cache.watched.unused
        return cells | {block: Cell([], size) for block in kept if block < self.most}

    def say(self, scheduled: Sequence[tuple]) -> str:
        """A sentence about this step. Call it once for each step."""
        waiting = [each for each in self.engine.scheduler.waiting if each.id in self._before]
        said, decoding = [], []
        for request, num_tokens in scheduled:
            name = self.name_of(request.id)
            found = 0 if request.id in self._before else request.num_computed
            if _decodes(request, num_tokens):
                decoding.append(name)
            else:
                finds = f"finds {found} and " if found else ""
                said.append(f"{name} {finds}reads {num_tokens} tokens")
        if decoding:
            said.append(f"{_listed(decoding)} decode{'s' * (len(decoding) == 1)}")
        if waiting:
            names = _listed([self.name_of(each.id) for each in waiting])
            said.append(f"{names} gave way, and must wait again")
        self._before = {request.id for request, _ in scheduled}
        return "; ".join(said) + "."


def _decodes(request, num_tokens: int) -> bool:
    return num_tokens == 1 and bool(request.output)


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
