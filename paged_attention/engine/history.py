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
    `alone`, `shared`, `kept`: the number of blocks that one request uses, that several use,
        and that only the prefix cache uses. The rest is free.
    `unshared`: the number of blocks that the requests would use if each had its own.
    `lengths`: the tokens that each running request has in the cache.
    """

    scheduled: dict[Hashable, tuple[int, str]]
    waiting: tuple[Hashable, ...]
    preempted: tuple[Hashable, ...]
    alone: int
    shared: int
    kept: int
    unshared: int
    lengths: dict[Hashable, int]


class History(list):
    """A list with a StepRecord for each step. `Engine(..., history=History())` fills it."""

    def __call__(self, engine, scheduled: list) -> None:
        scheduler, manager = engine.scheduler, engine.manager
        users = Counter(
            block_id
            for request in scheduler.running
            for block_id in manager.blocks_of(request.id)
        )
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
                alone=sum(count == 1 for count in users.values()),
                shared=sum(count > 1 for count in users.values()),
                kept=scheduler.prefix_cache.num_evictable(),
                unshared=users.total(),
                lengths={
                    request.id: manager.get(request.id).length for request in scheduler.running
                },
            )
        )
