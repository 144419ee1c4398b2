"""Runs on several ranks, in one process: the ranks and their group are stand-ins."""

import datetime
import json
import multiprocessing
import multiprocessing.connection
import operator
import pickle
import threading
from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine import shards
from paged_attention.engine.attention import PagedStep, paged_attention_forward
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.request import EmptyPromptError, Request, SamplingParams
from paged_attention.engine.shards import (
    ShardedRun,
    ShardError,
    choose_backend,
    run_sharded,
    serve_sharded,
    sharded_engine,
    sharded_forward,
)

PROMPTS = [[1, 2], [3]]
RUN = ShardedRun([[5]], 1.0, 100)


def load(device):
    """A loader that the ranks would call; its model has any number of heads."""
    raise AssertionError("only a rank loads")


# What a rank does in a layer


class Group:
    """The ranks of a group, one after another. Each one's part is kept for the others."""

    def __init__(self, size):
        self.size, self.rank, self.parts = size, 0, {}

    def get_rank(self):
        return self.rank

    def get_world_size(self):
        return self.size

    def all_gather(self, parts, part):
        """Fills in what is known. As in a real group, nothing may lie apart in memory."""
        assert all(each.is_contiguous() for each in (part, *parts)) and len(parts) == self.size
        self.parts[self.rank] = part.clone()
        for rank, known in self.parts.items():
            parts[rank].copy_(known)


SLOTS = torch.tensor([2, 5, 3])


def attend(q, k_cache, v_cache):
    """Depends on a rank's own heads only. The heads lie one after another in memory."""
    k, v = (
        cache.flatten(0, 1)[SLOTS].repeat_interleave(q.shape[1] // cache.shape[2], dim=1)
        for cache in (k_cache, v_cache)
    )
    return (q * k + v).transpose(0, 1).contiguous().transpose(0, 1)


def step(num_kv_heads):
    return PagedStep(torch.zeros(1, 2, 3, 4, num_kv_heads, 8), SLOTS, attend)


def test_each_rank_attends_with_its_heads_and_gets_those_of_all(monkeypatch):
    query, key, value = (torch.randn(1, heads, 3, 8) for heads in (4, 2, 2))
    module = SimpleNamespace(layer_idx=0)
    expected, _ = paged_attention_forward(module, query, key, value, paged=step(2))
    group = Group(2)
    monkeypatch.setattr(shards, "dist", group)
    for group.rank in (0, 1):
        paged = step(1)
        o, weights = sharded_forward(module, query, key, value, None, paged=paged, scaling=1)
        own_keys = key[0, group.rank]
        assert torch.equal(paged.kv_cache[0, 0].view(-1, 1, 8)[SLOTS, 0], own_keys)
    assert torch.equal(o, expected) and weights is None


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_ranks_engine_has_the_pool_for_its_heads(monkeypatch, world_size):
    monkeypatch.setattr(shards, "dist", Group(world_size))
    model = load_model(device="meta")
    if world_size == 3:
        with pytest.raises(ValueError, match="the model's 2 KV heads, and 3 does not"):
            sharded_engine(model, num_blocks=3)
        return
    engine = sharded_engine(model, num_blocks=3)
    assert engine.manager.kv_cache.shape[2] == 3
    assert engine.manager.kv_cache.shape[4] == 2 // world_size
    assert engine.runner.forward is sharded_forward


# Which backend


@pytest.mark.parametrize(
    "num_gpus, world_size, backend, chosen",
    [
        (0, 1, None, "gloo"),
        (0, 2, "gloo", "gloo"),
        (1, 1, None, "nccl"),
        (2, 2, None, "nccl"),
        (2, 1, "nccl", "nccl"),
        (2, 2, "nccl", "nccl"),
        (2, 3, None, "gloo"),
        (2, 3, "gloo", "gloo"),
        (2, 2, "gloo", "gloo"),
    ],
)
def test_nccl_is_taken_where_each_rank_has_a_gpu(
    monkeypatch, num_gpus, world_size, backend, chosen
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus or 8)
    assert choose_backend(world_size, backend) == chosen


@pytest.mark.parametrize(
    "world_size, backend, words",
    [
        (0, None, "world_size must be 1 or more, not 0"),
        (-1, "gloo", "world_size must be 1 or more, not -1"),
        (1, "mpi", "backend must be 'gloo', 'nccl' or None, not 'mpi'"),
        (3, "nccl", "each of the 3 ranks, and PyTorch sees 2 here"),
    ],
)
def test_a_choice_that_cannot_work_is_refused(monkeypatch, world_size, backend, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=words):
        choose_backend(world_size, backend)
    with pytest.raises(TypeError):
        choose_backend(1.5)


# The process that starts the ranks


class Process:
    """A rank's process that does all its work in `start`."""

    def __init__(self, target, args, daemon):
        self.target, self.args, self.daemon = target, args, daemon
        self.calls = []

    def start(self):
        self.calls.append("start")
        self.target(*self.args)

    def kill(self):
        self.calls.append("kill")

    def join(self):
        self.calls.append("join")


class Context:
    def __init__(self):
        self.processes, self.pipes = [], []

    def Process(self, **options):
        self.processes.append(Process(**options))
        return self.processes[-1]

    def Pipe(self, duplex=True):
        self.pipes.append(multiprocessing.Pipe(duplex))
        return self.pipes[-1]


@pytest.fixture
def context(monkeypatch):
    """Each rank answers with its entry in `answers`, or else with RUN."""
    made = Context()
    made.answers, made.jobs = {}, []

    def serve(rank, send, *job):
        made.jobs.append((rank, *job))
        answer = made.answers.get(rank, RUN)
        if answer is not None:
            send.send_bytes(pickle.dumps(answer))

    def wait(pipes, seconds):
        """All that comes is there already."""
        return multiprocessing.connection.wait(pipes, 0)

    monkeypatch.setattr(shards, "_serve_rank", serve)
    monkeypatch.setattr(shards, "wait", wait)
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: made)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield made
    for process in made.processes:
        assert process.daemon and process.calls == ["start", "kill", "join"]
    for receive, send in made.pipes:
        assert receive.closed and send.closed
        assert receive.readable and not receive.writable  # a rank is told nothing more


def test_each_rank_gets_the_whole_job_and_one_answer_comes_back(context):
    options = {"num_blocks": 9}
    answers = {rank: ShardedRun([[5]], 1.0 + rank, 100) for rank in range(3)}
    context.answers |= answers
    run = run_sharded(PROMPTS, "params", 3, "gloo", load, 7.0, 4, "make", **options)
    assert run == answers[0]
    for rank, job in enumerate(context.jobs):
        assert job[:3] == (rank, 3, "gloo") and job[3].startswith("file:///")
        assert job[4:] == (7.0, load, PROMPTS, "params", 4, "make", options)
    assert len({job[3] for job in context.jobs}) == 1 and len(context.jobs) == 3


def test_by_default_two_ranks_run_the_small_model_for_five_minutes_at_most(context):
    assert run_sharded(PROMPTS) == RUN
    job = ("gloo", 300.0, load_model, PROMPTS, SamplingParams(), 1, sharded_engine, {})
    assert [(number, *rest) for _, number, *rest in context.jobs] == [
        (2, "gloo", context.jobs[0][3], *job[1:])
    ] * 2
    assert serve_sharded(PROMPTS, num_blocks=9) == RUN.answers
    assert context.jobs[2][1:3] == (2, "gloo") and context.jobs[2][4:] == (
        *job[1:-1],
        {"num_blocks": 9},
    )
    assert len(context.jobs) == 4


@pytest.mark.usefixtures("plain_locale")
def test_the_small_model_is_looked_at_before_anything_starts(context, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="the model's 2 KV heads, and 3 does not"):
        run_sharded(PROMPTS, world_size=3)
    assert not context.jobs
    assert run_sharded(PROMPTS, world_size=3, load=load) == RUN
    config = {"num_key_value_heads": 3, "author": "Müller"}
    (tmp_path / "config.json").write_text(
        json.dumps(config, ensure_ascii=False), encoding="utf-8"
    )
    monkeypatch.setattr(shards, "SMALL_MODEL", tmp_path)
    assert run_sharded(PROMPTS, world_size=3) == RUN


def test_the_ranks_are_waited_for_as_long_as_the_call_may_take(context, monkeypatch):
    asked = []

    def wait(pipes, seconds):
        asked.append(seconds)
        return pipes

    monkeypatch.setattr(shards, "wait", wait)
    monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    assert run_sharded(PROMPTS, time_limit=7.0) == RUN
    assert asked == [7.0]


def test_one_rank_is_enough(context):
    assert run_sharded(PROMPTS, world_size=1) == RUN and len(context.jobs) == 1


def test_ranks_that_disagree_are_an_error(context):
    context.answers[1] = ShardedRun([[6]], 1.0, 100)
    with pytest.raises(ShardError, match="the ranks gave different tokens"):
        run_sharded(PROMPTS)


@pytest.mark.parametrize(
    "answer, error, words",
    [
        (None, ShardError, "rank 1 ended without an answer"),
        (LookupError("no such file"), LookupError, "no such file"),
    ],
)
def test_a_rank_that_fails_is_an_error_here(context, answer, error, words):
    context.answers[1] = answer
    with pytest.raises(error, match=words):
        run_sharded(PROMPTS)


def test_a_result_need_not_say_why_it_ended_and_what_it_weighs():
    assert RUN.reasons is None and RUN.weight_bytes == 0


# Collecting the answers


@pytest.fixture
def collect(monkeypatch):
    """Collects from two ranks. `turns`: before each wait, what they send, and the time."""
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(2)]
    receives, sends = map(list, zip(*pipes, strict=True))
    asked = []

    def run(turns, until=100.0):
        turns, now = iter(turns), [0.0]

        def monotonic():
            """Called for each wait, which tells what happened until then."""
            sent, now[0] = next(turns)
            for rank, message in sent.items():
                if message is not None:
                    sends[rank].send_bytes(pickle.dumps(message))
                sends[rank].close()
            return now[0]

        def wait(pipes, seconds):
            asked.append(([receives.index(pipe) for pipe in pipes], seconds))
            return multiprocessing.connection.wait(pipes, 0)

        monkeypatch.setattr(shards, "time", SimpleNamespace(monotonic=monotonic))
        monkeypatch.setattr(shards, "wait", wait)
        return shards._collect(receives, until, 60.0)

    yield SimpleNamespace(run=run, asked=asked)
    for pipe in (*receives, *sends):
        pipe.close()


def test_ranks_may_answer_in_any_order(collect):
    other = ShardedRun([[5]], 2.0, 100)
    assert collect.run([({1: other}, 90.0), ({0: RUN}, 97.0)]) == [RUN, other]
    assert collect.asked == [([0, 1], 10.0), ([0], 3.0)]


def test_past_the_deadline_only_what_is_there_counts(collect):
    with pytest.raises(ShardError, match="1 of 2 ranks have not answered after 60 s"):
        collect.run([({0: RUN}, 101.0), ({}, 102.0)])
    assert collect.asked == [([0, 1], 0.0), ([1], 0.0)]


def test_a_rank_that_died_is_named_before_those_that_miss_it(collect):
    with pytest.raises(ShardError, match="rank 1 ended without an answer"):
        collect.run([({0: RuntimeError("connection closed by peer"), 1: None}, 0.0)])


def test_an_error_says_on_which_rank_it_was(collect):
    with pytest.raises(KeyError) as error:
        collect.run([({0: RUN}, 0.0), ({1: KeyError("a")}, 0.0)])
    assert error.value.__notes__ == ["on rank 1 of 2"]


# A rank


class NotReceived(Exception):
    """It can be sent, and not be received."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class NotSent(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.what = lambda: one + two


class Rank:
    """Runs a rank in this process, and keeps what it did."""

    JOB = dict(
        rank=1,
        world_size=2,
        backend="gloo",
        store="file:///store",
        time_limit=7.0,
        prompts=PROMPTS,
        params="params",
        turns=2,
        engine_options={"num_blocks": 9},
    )

    def __init__(self, monkeypatch):
        self.codes, self.locks, self.threads, self.sent = [], [], [], []
        self.cards, self.groups, self.devices, self.engines = [], [], [], []
        self.num_cpus, self.times = 8, iter([10.0, 11.0, 20.0, 23.0])
        self.monkeypatch = monkeypatch
        self.barrier = lambda: None
        self.results = [self.request([1, 2], 3, "length"), self.request([3], 4, "end")]

    def request(self, prompt, token, reason):
        request = Request(0, prompt)
        request.tokens.append(token)
        request.reason = reason
        return request

    def load(self, device):
        self.devices.append(device)
        weights = torch.zeros(3), torch.zeros(2, 5)
        return SimpleNamespace(parameters=lambda: iter(weights))

    def make_engine(self, model, **options):
        assert model.parameters

        def generate(prompts, params):
            self.engines.append((options, prompts, params))
            return self.results

        cache = torch.zeros(7)
        return SimpleNamespace(generate=generate, manager=SimpleNamespace(kv_cache=cache))

    def run(self, **changes):
        patch = self.monkeypatch.setattr
        patch(torch.cuda, "set_device", self.cards.append)
        patch(torch, "set_num_threads", lambda n: self.threads.append(operator.index(n)))
        patch(shards, "tqdm", SimpleNamespace(set_lock=self.locks.append))
        patch(shards, "os", SimpleNamespace(_exit=self.exit, cpu_count=lambda: self.num_cpus))
        patch(shards, "time", SimpleNamespace(perf_counter=lambda: next(self.times)))
        patch(
            shards,
            "dist",
            SimpleNamespace(
                init_process_group=lambda backend, **rest: self.groups.append((backend, rest)),
                barrier=lambda: self.barrier(),
            ),
        )
        send = SimpleNamespace(send_bytes=self.sent.append)
        job = self.JOB | {"load": self.load, "make_engine": self.make_engine, "send": send}
        shards._serve_rank(**job | changes)
        (content,) = self.sent
        return pickle.loads(content)

    def exit(self, code):
        self.codes.append((code, len(self.sent)))


@pytest.fixture
def rank(monkeypatch):
    made = Rank(monkeypatch)
    yield made
    assert made.codes == [(0, 1)]  # nothing holds the process once its answer is away


def test_a_rank_measures_its_last_turn(rank):
    assert rank.run() == ShardedRun(
        [[3], [4]], 3.0, 28, reasons=["length", "end"], weight_bytes=52
    )
    assert rank.engines == [({"num_blocks": 9}, PROMPTS, "params")] * 2


def test_a_rank_joins_the_others_for_as_long_as_the_call_may_take(rank):
    rank.run()
    seconds = datetime.timedelta(seconds=7)
    group = dict(init_method="file:///store", rank=1, world_size=2, timeout=seconds)
    assert rank.groups == [("gloo", group)]
    assert [type(lock) for lock in rank.locks] == [type(threading.RLock())]


@pytest.mark.parametrize(
    "backend, device, cards", [("gloo", "cpu", []), ("nccl", "cuda:1", [1])]
)
def test_a_rank_of_nccl_has_its_own_gpu(rank, backend, device, cards):
    rank.run(backend=backend)
    assert rank.devices == [device] and rank.cards == cards
    assert len(rank.threads) == (backend == "gloo")


@pytest.mark.parametrize(
    "num_cpus, world_size, threads", [(8, 2, 4), (8, 3, 2), (3, 4, 1), (None, 1, 1)]
)
def test_the_ranks_share_the_processors(rank, num_cpus, world_size, threads):
    rank.num_cpus = num_cpus
    rank.run(world_size=world_size)
    assert rank.threads == [threads]


def test_a_rank_answers_when_all_are_done(rank):
    def barrier():
        raise ConnectionError("a peer is gone")

    rank.barrier = barrier
    error = rank.run()
    assert isinstance(error, ConnectionError) and str(error) == "a peer is gone"


def test_a_request_that_is_refused_is_the_ranks_answer(rank):
    rank.results = [rank.results[0], EmptyPromptError("an empty prompt")]
    error = rank.run()
    assert isinstance(error, EmptyPromptError) and str(error) == "an empty prompt"


@pytest.mark.parametrize("kind", [NotSent, NotReceived])
def test_an_error_that_cannot_travel_comes_as_text(rank, kind):
    def fail(device):
        raise kind(1, 2)

    received = rank.run(load=fail)
    assert type(received) is ShardError and str(received) == f"{kind.__name__}: 1 and 2"
