"""Which blocks requests share, and which ones the prefix cache gives away first."""

from collections import OrderedDict

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from echo import assert_nothing_is_lost, assert_right, engine_with
from paged_attention.engine.history import History
from paged_attention.engine.prefix_cache import PrefixCache, block_hashes
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.kv_cache import PagedAttentionManager
from state_machines import steps

BLOCK_SIZE = 2


class CacheAsALedger(RuleBasedStateMachine):
    """The specification, in tuples of tokens: what is known, by last use, and what is in use.

    A sequence is used from its end to its beginning, so its first block was used last. A block
    in use is never evicted. Of the others, the least recently used one is evicted.
    """

    @initialize(num_blocks=st.integers(4, 12))
    def begin(self, num_blocks):
        self.manager = PagedAttentionManager(
            num_blocks, BLOCK_SIZE, 1, 1, max_num_seqs=30, max_blocks_per_seq=num_blocks
        )
        self.cache = PrefixCache(self.manager)
        self.scheduler = Scheduler(self.manager, self.cache, token_budget=99, max_num_seqs=30)
        # the tokens up to the end of a block: the block. The least recently used first
        self.known = OrderedDict()
        self.users = {}  # a request: how many of its tokens have been computed
        # a request: how many of its blocks have been made known; what is forgotten then stays
        # forgotten
        self.inserted = {}

    def use(self, tokens, num_full):
        for end in reversed(range(1, num_full + 1)):
            if (key := tuple(tokens[: end * BLOCK_SIZE])) in self.known:
                self.known.move_to_end(key)

    def in_use(self):
        """One that several requests use is there several times."""
        return [block for own in self.users for block in self.manager.blocks_of(own.id)]

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=8))
    def start(self, tokens):
        self.begin_with(tokens)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=2, max_size=8))
    def come_and_go(self, tokens):
        """No other request uses what it leaves in the cache, so that may be evicted."""
        request = self.begin_with(tokens)
        self.compute_some(request, len(tokens) - request.num_computed)
        self.scheduler.stop(request)
        del self.users[request]

    def begin_with(self, tokens):
        request, expected = Request(object(), tokens), []
        for end in range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE):
            if (key := tuple(tokens[:end])) not in self.known:
                break
            expected.append(self.known[key])
        found = len(expected)
        self.scheduler.start(request)
        self.use(tokens, found)
        num_computed = min(found * BLOCK_SIZE, len(tokens) - 1)
        assert request.num_computed == num_computed
        assert self.manager.blocks_of(request.id) == expected[: -(-num_computed // BLOCK_SIZE)]
        self.users[request], self.inserted[request] = num_computed, 0
        return request

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def compute(self, data):
        request = data.draw(st.sampled_from(list(self.users)))
        if most := len(request.tokens) - self.users[request]:
            self.compute_some(request, data.draw(st.integers(1, most)))

    def compute_some(self, request, count):
        evictable = [
            block_id for block_id in self.known.values() if block_id not in self.in_use()
        ]
        free = self.manager.block_manager.get_num_free_blocks()
        before = list(self.known.items())
        if self.scheduler.make_room(request, count):
            num_evicted = len(before) - len(self.cache.blocks)
            gone = evictable[:num_evicted]  # the least recently used of those not in use
            self.known = OrderedDict(
                (key, block_id) for key, block_id in before if block_id not in gone
            )
            self.users[request] = request.num_computed = self.users[request] + count
            self.cache.insert(request, request.num_computed)
            num_full = request.num_computed // BLOCK_SIZE
            if num_full > self.inserted[request]:
                for index in range(self.inserted[request], num_full):
                    key = tuple(request.tokens[: (index + 1) * BLOCK_SIZE])
                    self.known.setdefault(key, self.manager.blocks_of(request.id)[index])
                self.use(request.tokens, num_full)
                self.inserted[request] = num_full
        else:  # and nothing is evicted in vain
            assert free + len(evictable) <= self.manager.blocks_for(
                self.users[request] + count
            )

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def stop(self, data):
        request = data.draw(st.sampled_from(list(self.users)))
        self.scheduler.stop(request)
        del self.users[request]

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def forget(self, data):
        """Others that use its blocks keep them."""
        request = data.draw(st.sampled_from(list(self.users)))
        self.cache.forget(request)
        self.scheduler.stop(request)
        del self.users[request]
        for end in range(1, len(request.tokens) // BLOCK_SIZE + 1):
            self.known.pop(tuple(request.tokens[: end * BLOCK_SIZE]), None)

    @rule()
    def evict(self):
        unused = [key for key, block in self.known.items() if block not in self.in_use()]
        key = next(iter(unused), None)
        assert self.cache.evict() == (key is not None)
        self.known.pop(key, None)

    @rule()
    def clear(self):
        self.cache.clear()
        self.known.clear()

    @invariant()
    def the_cache_agrees_and_every_block_is_accounted_for(self):
        if not hasattr(self, "cache"):
            return
        assert self.cache.blocks == {
            block_hashes(list(key), BLOCK_SIZE)[-1]: block_id
            for key, block_id in self.known.items()
        }
        evictable = set(self.known.values()) - set(self.in_use())
        assert self.cache.num_evictable() == len(evictable)
        users = self.in_use()
        for block_id in range(self.manager.kv_cache.shape[2]):
            count = users.count(block_id) + (block_id in self.known.values())
            assert self.manager.block_manager.get_ref_count(block_id) == count


CacheAsALedger.TestCase.settings = steps(20)
TestCacheAsALedger = CacheAsALedger.TestCase


def test_who_finds_no_block_for_its_copy_waits():
    """Its prompt is all in the cache. It needs no further block, and yet one to write its last
    token to.
    """
    engine = engine_with(num_blocks=3)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    params = SamplingParams(max_new_tokens=2)
    engine.generate([prompt], SamplingParams(max_new_tokens=1))
    first = engine.add("first", [9], params)
    second = engine.add("second", prompt, params)
    engine.step()
    assert engine.scheduler.running == [first] and list(engine.scheduler.waiting) == [second]
    engine.run()
    assert_right((first, second))
    assert_nothing_is_lost(engine)


def test_a_preempted_request_finds_its_own_blocks_again():
    history = History()
    engine = engine_with(history=history)
    params = SamplingParams(max_new_tokens=8, ignore_end=True)
    request = engine.add("a", [1, 2, 3, 4, 5, 6], params)
    for _ in range(4):
        engine.step()
    before = engine.manager.blocks_of("a")
    engine.scheduler.preempt(request)
    engine.step()
    # two full blocks of 4 were in the cache
    assert history[-1].scheduled["a"][0] == len(request.tokens) - 1 - 8
    assert engine.manager.blocks_of("a")[:2] == before[:2]
    engine.run()
    assert_right([request])
    assert_nothing_is_lost(engine)


def test_what_a_preempted_request_computes_again_is_shared_again():
    """Its blocks were evicted while it waited. When it has computed them anew, others find
    them.
    """
    engine = engine_with()
    params = SamplingParams(max_new_tokens=8, ignore_end=True)
    first = engine.add("first", [1, 2, 3, 4, 5, 6, 7, 8, 9], params)
    engine.step()
    engine.scheduler.preempt(first)
    engine.prefix_cache.clear()
    engine.step()
    second = engine.add("second", [1, 2, 3, 4, 5, 6, 7, 8, 1], params)
    engine.step()
    assert engine.manager.blocks_of("second")[:2] == engine.manager.blocks_of("first")[:2]
    engine.run()
    assert_right((first, second))
    assert_nothing_is_lost(engine)


def test_without_sharing_nothing_is_kept():
    engine = engine_with(prefix_sharing=False)
    engine.generate([[1, 2, 3, 4, 5, 6, 7, 8]], SamplingParams(max_new_tokens=2))
    assert not engine.prefix_cache.blocks
    assert engine.manager.block_manager.get_num_free_blocks() == 12
