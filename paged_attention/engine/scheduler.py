"""Who computes how many tokens in the next step: continuous batching, chunked prefill, preemption."""

from collections import deque

from paged_attention.engine.request import Request


class Scheduler:
    """`waiting` and `running` hold the requests, the earliest first.

    manager, prefix_cache: a PagedAttentionManager and a PrefixCache over it. token_budget: the most tokens in a step.
    max_num_seqs: the most requests that run at once.
    """

    def __init__(self, manager, prefix_cache, token_budget: int, max_num_seqs: int):
        self.manager, self.prefix_cache = manager, prefix_cache
        self.token_budget, self.max_num_seqs = token_budget, max_num_seqs
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def schedule(self) -> list[tuple[Request, int]]:
        """Chooses the next step's requests and how many tokens each computes, and makes room for them.

        Each computes all that it has not computed yet, or as much of it as the step's budget has left. Who runs and gets
        nothing goes on running and is not in the result. Those that run come first, in their order; where the pool has no
        room for one, the last of `running` is preempted, until there is room, or it was that one itself. Then those that
        wait are started, in their order, unless somebody was preempted in this step: as long as there is budget, fewer
        than max_num_seqs run and the pool has room. Who finds none is stopped again and stays the first that waits.
        """
        # BEGIN SOLUTION 8.3
        scheduled, budget, num_running = [], self.token_budget, len(self.running)
        for request in list(self.running):
            num_tokens = min(request.num_uncomputed, budget)
            while request in self.running and num_tokens and not self.make_room(request, num_tokens):
                self.preempt(self.running[-1])
            if request in self.running and num_tokens:
                scheduled.append((request, num_tokens))
                budget -= num_tokens
        if len(self.running) < num_running:
            return scheduled
        while self.waiting and budget and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            self.start(request)
            num_tokens = min(request.num_uncomputed, budget)
            if not self.make_room(request, num_tokens):
                self.stop(request)
                break
            self.running.append(self.waiting.popleft())
            scheduled.append((request, num_tokens))
            budget -= num_tokens
        return scheduled
        # END SOLUTION

    def make_room(self, request: Request, num_tokens: int) -> bool:
        """Room for the request's next num_tokens tokens, if need be in blocks that only the prefix cache uses."""
        length = self.manager.get(request.id).length
        needed = self.manager.blocks_for(length + num_tokens) - self.manager.blocks_for(length)
        free = self.manager.block_manager.get_num_free_blocks()
        if needed > free and needed > free + self.prefix_cache.num_evictable():
            return False  # and nothing is evicted in vain
        while True:
            try:
                self.manager.append_tokens([(request.id, num_tokens)])
                return True
            except MemoryError:
                if not self.prefix_cache.evict():
                    return False

    def start(self, request: Request) -> None:
        """Gives a request a row of the block table, and with it the blocks of its first tokens that the cache has.

        request.num_computed becomes the number of these tokens: none of them is computed again, except the last of all
        the request's tokens, because the model's answer to it is the next token. The request is one more user of each
        block that holds one of them.
        """
        # BEGIN SOLUTION 8.6
        blocks = self.prefix_cache.match(request)
        request.num_computed = min(len(blocks) * self.manager.block_size, len(request.tokens) - 1)
        blocks = blocks[: self.manager.blocks_for(request.num_computed)]
        for block_id in blocks:
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(request.id, request.num_computed, blocks)
        # END SOLUTION

    def stop(self, request: Request) -> None:
        """Takes a request's row and blocks away. Its tokens stay; their keys and values are to be computed again."""
        self.manager.free_sequence(request.id)
        request.num_computed = request.num_inserted = 0

    def preempt(self, request: Request) -> None:
        """A running request gives its blocks back and waits again, before all others. Its tokens stay, prompt and generated.

        request: any of `running`, not only the last. Counts in its num_preempted.
        """
        # BEGIN SOLUTION 8.4
        self.stop(request)
        self.running.remove(request)
        self.waiting.appendleft(request)
        request.num_preempted += 1
        # END SOLUTION

    def remove(self, request: Request) -> None:
        """Ends a request, wherever it stands."""
        if request in self.running:
            self.stop(request)
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
