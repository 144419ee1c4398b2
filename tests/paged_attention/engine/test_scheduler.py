"""What each step's batch must be: in order, within its budget, and never idle without need."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echo import engine_with
from examples import few
from paged_attention.engine.dry_run import dry_run
from paged_attention.engine.history import History
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.kv_cache import PagedAttentionManager


def scheduler_for(prompt_lens, num_blocks=64, block_size=4, token_budget=16, max_num_seqs=8):
    manager = PagedAttentionManager(
        num_blocks, block_size, 1, 1, max_num_seqs=max_num_seqs, max_blocks_per_seq=num_blocks
    )
    scheduler = Scheduler(
        manager, PrefixCache(manager, enabled=False), token_budget, max_num_seqs
    )
    requests = [
        Request(number, [number] * length) for number, length in enumerate(prompt_lens)
    ]
    scheduler.waiting.extend(requests)
    return scheduler, requests


@few(40, drawn_anew=100)
@given(
    prompt_lens=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    block_size=st.integers(1, 4),
    room=st.integers(0, 20),
    token_budget=st.integers(1, 20),
    max_num_seqs=st.integers(1, 5),
    num_new=st.integers(1, 6),
)
def test_every_step_keeps_the_rules(
    prompt_lens, block_size, room, token_budget, max_num_seqs, num_new
):
    num_blocks = -(-(max(prompt_lens) + num_new) // block_size) + room
    scheduler, requests = scheduler_for(
        prompt_lens, num_blocks, block_size, token_budget, max_num_seqs
    )
    while scheduler.has_work():
        running, waiting = list(scheduler.running), list(scheduler.waiting)
        scheduled = scheduler.schedule()
        order = [*scheduler.running, *scheduler.waiting]
        # first come, first served
        assert order == sorted(order, key=lambda request: request.id)
        assert scheduled
        assert [request for request, _ in scheduled] == scheduler.running[: len(scheduled)]
        assert all(1 <= count <= request.num_uncomputed for request, count in scheduled)
        total = sum(count for _, count in scheduled)
        assert total <= token_budget and len(scheduler.running) <= max_num_seqs
        for request, count in scheduled:
            assert scheduler.manager.get(request.id).length == request.num_computed + count
        gave_way = [request for request in running if request in scheduler.waiting]
        started = [request for request in waiting if request in scheduler.running]
        assert not (gave_way and started)
        # no request got less than it could use, and each that waits has a reason
        if total < token_budget:
            assert len(scheduled) == len(scheduler.running)
            assert all(count == request.num_uncomputed for request, count in scheduled)
            if scheduler.waiting and not gave_way and len(scheduler.running) < max_num_seqs:
                wanted = min(scheduler.waiting[0].num_uncomputed, token_budget - total)
                free = scheduler.manager.block_manager.get_num_free_blocks()
                assert -(-wanted // block_size) > free
        for request in scheduler.waiting:
            assert request.num_computed == request.num_inserted == 0
            assert request.id not in scheduler.manager.sequences
        for request, count in scheduled:
            request.num_computed += count
            if not request.num_uncomputed:
                request.tokens.append(7)
            if len(request.output) == num_new:
                scheduler.remove(request)
    assert all(len(request.output) == num_new for request in requests)
    assert scheduler.manager.block_manager.get_num_free_blocks() == num_blocks


def test_only_so_many_give_way_as_are_needed():
    """Three with a full block each, and the first needs one more: the last gives way, and the
    second computes on.
    """
    scheduler, (first, second, third) = scheduler_for([4, 3, 4], num_blocks=3)
    for request, _ in scheduler.schedule():
        request.num_computed = len(request.prompt)
        request.tokens.append(7)
    assert scheduler.schedule() == [(first, 1), (second, 1)]
    assert scheduler.running == [first, second] and list(scheduler.waiting) == [third]
    assert (first.num_preempted, second.num_preempted, third.num_preempted) == (0, 0, 1)


def test_a_dry_run_is_what_an_engine_does():
    prompt_lens, history = [5, 14, 3, 9], History()
    scheduler, _ = scheduler_for(prompt_lens, num_blocks=9, token_budget=8)
    engine = engine_with(
        num_blocks=9, token_budget=8, max_num_seqs=8, prefix_sharing=False, history=history
    )
    params = SamplingParams(max_new_tokens=6, ignore_end=True)
    for number, length in enumerate(prompt_lens):
        engine.add(number, [number] * length, params)
    engine.run()
    steps = dry_run(scheduler, num_new=6)
    # a dry run's tokens are made up
    ours, engines = ([replace(each, tokens={}) for each in run] for run in (steps, history))
    assert ours == engines
    assert any(record.preempted for record in history)


def test_a_dry_run_that_gets_nowhere_is_an_error():
    scheduler, _ = scheduler_for([5])
    scheduler.schedule = list
    with pytest.raises(RuntimeError, match="chose no request"):
        dry_run(scheduler, num_new=1)


def test_the_history_counts_blocks_by_their_users():
    """Two share a prefix of two blocks, a third has another, the cache keeps an old one."""
    history = History()
    engine = engine_with(num_blocks=20, token_budget=40, history=history)
    params = SamplingParams(max_new_tokens=4, ignore_end=True)
    engine.generate([[9, 9, 9, 9]], SamplingParams(max_new_tokens=1))
    for id, prompt in (("a", [1, 2, 3, 4, 5, 6, 7, 8, 1]), ("c", [5, 5, 5])):
        engine.add(id, prompt, params)
    engine.step()
    engine.add("b", [1, 2, 3, 4, 5, 6, 7, 8, 2], params)
    engine.step()
    record = history[-1]
    assert (record.alone, record.shared, record.kept) == (3, 2, 1)
    assert record.lengths == {"a": 10, "c": 4, "b": 9}
    assert record.scheduled == {"a": (1, "decodes"), "c": (1, "decodes"), "b": (1, "prefills")}
    engine.scheduler.preempt(engine.requests["b"])
    engine.scheduler.max_num_seqs = 2
    engine.add("d", [1], params)
    engine.step()
    assert history[-1].preempted == ("b",) and history[-1].waiting == ("d",)
