"""What the engine did in each step, for pictures."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepRecord:
    """What happened in one step.

    `scheduled`: for each request in the step, its tokens and whether it "prefills" or
        "decodes".
    `waiting`: requests that have not run yet.
    `preempted`: requests that have run and wait again.
    `lengths`: the tokens that each running request has in the cache.
    `tokens`, `blocks`: of each running request, its tokens and its block ids.
    `only_kept`: the ids of blocks that only the prefix cache uses.
    """

    scheduled: dict[Hashable, tuple[int, str]]
    waiting: tuple[Hashable, ...]
    preempted: tuple[Hashable, ...]
    lengths: dict[Hashable, int]
    tokens: dict[Hashable, list[int]]
    blocks: dict[Hashable, list[int]]
    only_kept: list[int]

    @property
    def users(self) -> Counter:
        """How many requests use each block that any uses."""
        return Counter(block_id for blocks in self.blocks.values() for block_id in blocks)

    @property
    def alone(self) -> int:
        """The number of blocks that one request uses."""
        return sum(count == 1 for count in self.users.values())

    @property
    def shared(self) -> int:
        """The number of blocks that several requests use."""
        return sum(count > 1 for count in self.users.values())

    @property
    def kept(self) -> int:
        """The number of blocks that only the prefix cache uses. The rest is free."""
        return len(self.only_kept)

    @property
    def unshared(self) -> int:
        """The number of blocks that the requests would use if each had its own."""
        return self.users.total()


class History(list):
    """A list with a StepRecord for each step. `Engine(..., history=History())` fills it."""

    def __call__(self, engine, scheduled: list) -> None:
        scheduler, manager = engine.scheduler, engine.manager
        phases = {
            request.id: (
                num_tokens,
                "decodes" if num_tokens == 1 and request.output else "prefills",
            )
            for request, num_tokens in scheduled
        }
        again = tuple(request.id for request in scheduler.waiting if request.num_preempted)
        self.append(
            StepRecord(
                scheduled=phases,
                waiting=tuple(
                    request.id for request in scheduler.waiting if not request.num_preempted
                ),
                preempted=again,
                lengths={
                    request.id: manager.get(request.id).length for request in scheduler.running
                },
                tokens={request.id: [*request.tokens] for request in scheduler.running},
                blocks={
                    request.id: manager.blocks_of(request.id) for request in scheduler.running
                },
                only_kept=sorted(scheduler.prefix_cache.watched.unused),
            )
        )
