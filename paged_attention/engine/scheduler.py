"""Chooses the requests of the next step, and how many tokens each computes.

It does continuous batching, chunked prefill and preemption.
"""

from collections import deque

from paged_attention.engine.forks import lead_answers
from paged_attention.engine.request import Request


class Scheduler:
    """Chooses the requests of each step.

    `waiting` and `running` hold the requests, the earliest first.

    manager: a PagedAttentionManager.
    prefix_cache: a PrefixCache over it.
    token_budget: the most tokens in a step.
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
        """Chooses the requests of the next step, and how many tokens each computes.

        It also makes room for these tokens. A step begins with a budget of token_budget
        tokens. Each request computes all of its tokens that are not computed yet, or as many
        as the budget has left.

        1. The running requests come first, in their order. If no budget is left for a request,
           it stays in `running` but is not in the result.
        2. If the pool has no room for a running request, the last one in `running` is
           preempted. This is repeated until there is room, or until the request itself was
           preempted.
        3. If any request was preempted in this step, no waiting request is started.
        4. Otherwise the waiting requests are started in their order, as long as there is
           budget left and fewer than max_num_seqs requests run. If the pool has no room for
           one, it is stopped again. It stays the first in `waiting`, and no other is started.

        Returns (request, num_tokens) for each request of the step.
        """
        # BEGIN SOLUTION 8.3
        scheduled = []
        budget = self.token_budget
        num_running = len(self.running)
        for request in list(self.running):
            num_tokens = min(request.num_uncomputed, budget)
            while num_tokens and request.id in self.manager.sequences:
                if self.make_room(request, num_tokens):
                    scheduled.append((request, num_tokens))
                    budget -= num_tokens
                    break
                self.preempt(self.running[-1])
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
        """Makes room for the request's next num_tokens tokens.

        If need be, it evicts blocks that only the prefix cache uses: no more of them than it
        takes, and none if all of them together would not be enough.

        num_tokens: 1 or more.
        Returns whether there is room now. If not, nothing has changed.
        """
        # BEGIN SOLUTION 8.9
        length = self.manager.get(request.id).length
        needed = self.manager.blocks_for(length + num_tokens) - self.manager.blocks_for(length)
        num_free = self.manager.block_manager.get_num_free_blocks()
        if needed > num_free + self.prefix_cache.num_evictable():
            return False
        while True:
            try:
                self.manager.append_tokens([(request.id, num_tokens)])
                return True
            except MemoryError:
                if not self.prefix_cache.evict():
                    return False
        # END SOLUTION

    def start(self, request: Request) -> None:
        """Gives a request a row of the block table, and the blocks that the cache has for it.

        These blocks hold the first of its tokens. request.num_computed becomes the number of
        tokens that need not be computed again. The last of all the request's tokens never
        counts: it must always be computed, because the model's answer to it is the next token.
        The request becomes one more user of each block that holds one of the computed tokens.
        """
        # BEGIN SOLUTION 8.6
        blocks = self.prefix_cache.match(request)
        request.num_computed = min(
            len(blocks) * self.manager.block_size, len(request.tokens) - 1
        )
        blocks = blocks[: self.manager.blocks_for(request.num_computed)]
        for block_id in blocks:
            self.manager.block_manager.increase_ref_count(block_id)
        self.manager.start(request.id, request.num_computed, blocks)
        # END SOLUTION

    def stop(self, request: Request) -> None:
        """Takes a request's row and blocks away.

        Its tokens stay, but their keys and values must be computed again.
        """
        self.manager.free_sequence(request.id)
        request.num_computed = request.num_inserted = 0

    def preempt(self, request: Request) -> None:
        """Makes a running request give its blocks back and wait again, before all others.

        Both its prompt and its generated tokens stay. Its num_preempted grows by 1.

        request: any one in `running`, not only the last.
        """
        # BEGIN SOLUTION 8.4
        self.stop(request)
        self.running.remove(request)
        self.waiting.appendleft(request)
        request.num_preempted += 1
        # END SOLUTION

    def remove(self, request: Request) -> None:
        """Ends a request, whether it waits or runs."""
        runs = request.id in self.manager.sequences
        if runs:
            self.stop(request)
        if runs or request in self.waiting:
            (self.running if runs else self.waiting).remove(request)

    def fork(self, scheduled: list[tuple[Request, int]]) -> list[tuple[Request, int]]:
        """Starts further answers to the prompts of which this step computes the last tokens.

        Each becomes one more user of the blocks of its prompt, and has nothing to compute. If
        there are not enough places for all answers, the others wait: one of them will compute
        the prompt again, as far as it has to.

        scheduled: what schedule() has returned.
        Returns (request, 0) for each answer that was started.
        """
        started = []
        for request, count in scheduled:
            if not request.forks or count < request.num_uncomputed:
                continue
            num_places = max(0, self.max_num_seqs - len(self.running))
            forks, others = request.forks[:num_places], request.forks[num_places:]
            for fork in forks:
                self.manager.fork_sequence(request.id, fork.id)
                fork.num_computed, fork.num_inserted = len(fork.tokens), request.num_inserted
                fork.hashes = list(request.hashes)
                started.append((fork, 0))
            place = self.running.index(request) + 1  # they came with it
            self.running[place:place] = forks
            self.waiting.extendleft(lead_answers(others))
            request.forks = []
        return started

    def withdraw(self, request: Request) -> None:
        """Takes a request out of the answers to its prompt.

        If the others wait until it has computed the prompt, the first of them takes its place.
        """
        if request.fork_of and request in request.fork_of.forks:
            request.fork_of.forks.remove(request)
        place = self.waiting.index(request) if request in self.waiting else 0
        for heir in lead_answers(request.forks):
            self.waiting.insert(place, heir)
        request.forks = []
