"""Lesson 01's block manager for a pool with a prefix cache: it notes which blocks can go."""

import heapq
import operator


class WatchedBlocks:
    """A block manager that notes which blocks of a prefix cache no request uses.

    A server's pool is full of them, so they are never counted or searched. They are noted when
    the number of their users changes, which only happens through this.

    `block_manager`: lesson 01's, in C++ or in Python. It does the work.
    `last_use`: for each block of the cache, a number that grows with each use.
    `unused`: those of them that only the cache uses.
    """

    def __init__(self, block_manager):
        self.block_manager = block_manager
        self.last_use: dict[int, int] = {}
        self.unused: set[int] = set()
        self.num_uses = 0
        # A heap of (last use, block), with a block once at most. Its use may be out of date:
        # then it is an earlier one.
        self.queue: list[tuple[int, int]] = []
        self.queued: set[int] = set()

    def __getattr__(self, name: str):
        if name == "block_manager":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self.block_manager, name)

    # A step calls these often, and __getattr__ would take longer than they do.
    def allocate(self) -> int:
        return self.block_manager.allocate()

    def get_ref_count(self, block_id: int) -> int:
        return self.block_manager.get_ref_count(block_id)

    def get_num_free_blocks(self) -> int:
        return self.block_manager.get_num_free_blocks()

    def increase_ref_count(self, block_id: int) -> None:
        self.block_manager.increase_ref_count(block_id)
        self.unused.discard(operator.index(block_id))

    def free(self, block_id: int) -> None:
        self.block_manager.free(block_id)
        block_id = operator.index(block_id)
        if block_id in self.last_use and self.block_manager.get_ref_count(block_id) == 1:
            self.unused.add(block_id)
            if block_id not in self.queued:
                self.queued.add(block_id)
                heapq.heappush(self.queue, (self.last_use[block_id], block_id))

    def keep(self, block_id: int) -> None:
        """Makes the cache one more user of a block, which a request has just used."""
        self.block_manager.increase_ref_count(block_id)
        self.touch(block_id)

    def touch(self, block_id: int) -> None:
        """Marks a block of the cache as just used."""
        self.num_uses += 1
        self.last_use[block_id] = self.num_uses

    def let_go(self, block_id: int) -> None:
        """Makes the cache a user of the block no longer."""
        del self.last_use[block_id]
        self.unused.discard(block_id)
        self.block_manager.free(block_id)

    def least_recently_used(self) -> int | None:
        """Finds the one of `unused` that was used least recently. None if there is none.

        It takes the time of what has been used and freed since the last call, and not that of
        all blocks.
        """
        while self.unused:
            use, block_id = self.queue[0]
            if block_id not in self.unused:
                heapq.heappop(self.queue)
                self.queued.remove(block_id)
            elif use < self.last_use[block_id]:
                heapq.heapreplace(self.queue, (self.last_use[block_id], block_id))
            else:
                return block_id
        return None
