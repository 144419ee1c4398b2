"""The benchmark of peers: its turns, and servers that fail."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lessons_content.lesson_10.bench.engine_peers_runs import (
    ArrivalRow,
    Latency,
    PeerRow,
    Run,
    ratios,
    recorded,
    recorded_beside,
    table,
)
from lessons_content.lesson_10.bench.fast_engine import Trace
from tools.bench import flash_attn_stand_in
from tools.bench.arrivals import latency, step_through
from tools.bench.engine_peers_servers import HttpServer
from tools.bench.engine_peers_traces import Arrivals, poisson_times
from tools.bench.engine_peers_turns import compare
from tools.bench.peer_process import ServerFailed, Turn, measured_turn
from tools.bench.remote_server import RemoteServer, in_python, in_vllm

TASKS = (Trace("short", [[5, 1], [6, 2, 3]], [2, 1]), Trace("long", [[7] * 40], [9]))


class Counting:
    """Answers 10, 11, … to each request, and begins with its prompt's first token."""

    def __init__(self, folder, traces):
        self.folder = folder

    def generate(self, prompts, new_tokens):
        pairs = zip(prompts, new_tokens, strict=True)
        return [[prompt[0], *range(10, 9 + n)] for prompt, n in pairs]


class Short(Counting):
    def generate(self, prompts, new_tokens):
        return [answer[:1] for answer in super().generate(prompts, new_tokens)]


class Dying(Counting):
    def generate(self, prompts, new_tokens):
        os._exit(3)


class Refusing:
    def __init__(self, folder, traces):
        raise ImportError("no flash_attn")


class Slow(Counting):
    def generate(self, prompts, new_tokens):
        time.sleep(60)


class Here:
    """A server in this process."""

    ready = 1.5

    def __init__(self, maker):
        self.server, self.open = maker(None, TASKS), True

    def serve(self, trace, turn):
        prompts = [[turn, *prompt[1:]] for prompt in trace.prompts]
        try:
            return measured_turn(self.server, prompts, trace.new_tokens)
        except ValueError as error:
            raise ServerFailed(f"{error}") from None

    def close(self):
        self.open = False


def started(made, **makers):
    """Makes servers here, and puts them into a dictionary."""

    def start(name):
        if makers[name] is Refusing:
            raise ServerFailed("no flash_attn")
        made[name] = Here(makers[name])
        made[name].name = name
        return made[name]

    return start


def test_both_serve_every_trace_in_turns_and_the_first_does_not_count():
    said, made = [], {}
    start = started(made, ours=Counting, peer=Counting)
    rows = list(compare("peer", TASKS, 3, start, said.append))
    assert [(row.trace, row.tokens) for row in rows] == [("short", 3), ("long", 9)]
    for row in rows:
        assert len(row.ours) == len(row.theirs) == 3 and not row.reason
        assert all(seconds > 0 for seconds in row.ours + row.theirs)
        assert (row.same_first, row.our_ready, row.their_ready) == (1, 1.5, 1.5)
    assert [line.split(":")[0] for line in said[1:]] == ["short"] * 3 + ["long"] * 3
    assert not made["ours"].open and not made["peer"].open


@pytest.mark.parametrize(
    ("maker", "reason"),
    [(Refusing, "no flash_attn"), (Short, "[1, 1] new tokens, not [2, 1]")],
)
def test_a_peer_that_fails_has_a_reason_and_stops_nothing(maker, reason):
    start = started({}, ours=Counting, peer=maker)
    rows = list(compare("peer", TASKS[:1], 1, start, lambda line: None))
    assert [row.reason for row in rows] == [reason] and not rows[0].ours


def test_ours_that_fails_is_an_error_and_ends_the_peer():
    made = {}
    with pytest.raises(ServerFailed, match="no flash_attn"):
        list(compare("peer", TASKS, 1, started(made, ours=Refusing, peer=Counting), print))
    assert not made["peer"].open


@pytest.mark.slow
def test_a_process_serves_prompts_that_begin_with_the_turn(tmp_path):
    server = RemoteServer("a server", in_python(Counting, tmp_path, TASKS))
    assert [server.serve(TASKS[0], turn).first for turn in (4, 5)] == [(4, 4), (5, 5)]
    server.close()
    assert TASKS[0].prompts == [[5, 1], [6, 2, 3]] and not server._process.is_alive()


@pytest.mark.slow
def test_a_process_that_cannot_begin_says_why(tmp_path):
    with pytest.raises(ServerFailed, match="ImportError: no flash_attn"):
        RemoteServer("a server", in_python(Refusing, tmp_path, TASKS))


@pytest.mark.slow
def test_a_process_that_ends_is_an_error_each_time_it_is_asked(tmp_path):
    server = RemoteServer("a server", in_python(Dying, tmp_path, TASKS))
    for _ in range(2):
        with pytest.raises(ServerFailed, match="its process ended with 3"):
            server.serve(TASKS[0], 0)


@pytest.mark.slow
def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path):
    seconds = iter([60, 0.1])
    server = RemoteServer("a server", in_python(Slow, tmp_path, TASKS), lambda: next(seconds))
    with pytest.raises(ServerFailed, match="no time was left"):
        server.serve(TASKS[0], 0)
    assert not server._process.is_alive()


class Scripted:
    """A server whose turns take as long as it says. wait: from a request to each token."""

    ready = 1.5

    def __init__(self, name, seconds, wait, clock):
        self.name, self.seconds, self.wait, self.clock = name, seconds, wait, clock

    def serve(self, trace, turn):
        self.clock.append(self.seconds)
        return Turn(self.seconds, (turn,) * len(trace.prompts), cached=turn)

    def arrive(self, trace, turn, times):
        self.clock.append(times[-1])
        counts = zip(times, trace.new_tokens, strict=True)
        return [[(at + self.wait * (1 + i), 1) for i in range(n)] for at, n in counts]

    def close(self):
        pass


def compared(tasks, turns, limit=1e9):
    """Rows of two scripted servers: ours takes 1 s a turn and 0.1 a token, the peer twice."""
    clock = []
    servers = {
        name: Scripted(name, seconds, wait, clock)
        for name, seconds, wait in (("ours", 1.0, 0.1), ("peer", 2.0, 0.2))
    }
    left = lambda: limit - sum(clock)  # noqa: E731
    return list(compare("peer", tasks, turns, servers.get, lambda line: None, left))


def test_a_turn_that_would_not_fit_is_left_out():
    """Each turn of both takes 3 s: a warm-up and two turns of the first trace."""
    short, long = compared(TASKS, 5, limit=11)
    assert (short.ours, short.theirs) == ((1.0, 1.0), (2.0, 2.0)) and short.ratio == 2
    assert not long.ours and long.reason == "no time was left for a counted turn"


def test_a_row_says_what_was_cached_in_its_last_turn():
    (row,) = compared(TASKS[:1], 2)
    assert row.cached == (5, 2, 2) and "tokens of prompts 5;" in table(
        run_beside("peer", rows=(row,))
    )


def test_arrivals_have_shares_of_the_rate_of_the_slower():
    at_once, *rows = compared([Arrivals(TASKS[0], (0.7, 0.9))], 2)
    assert at_once.theirs == (2.0, 2.0)  # two requests in 2 s
    assert [row.rate for row in rows] == pytest.approx([0.7, 0.9])
    for row in rows:
        assert (row.passes, row.reason) == (2, "")
        assert row.ours.first == pytest.approx((0.1, 0.1))
        for found in (row.theirs.first, row.theirs.between):
            assert found == pytest.approx((0.2, 0.2))


def test_arrivals_that_would_not_fit_say_so():
    at_once, row = compared([Arrivals(TASKS[0], (0.7,))], 2, limit=10)
    assert at_once.ours and not row.ours and row.reason.startswith("no time was left")


def test_streams_come_all_at_once():
    (row,) = compared([Arrivals(TASKS[0], (None,))], 1)
    assert (row.load, row.rate, row.passes) == ("all at once", 0, 1)
    assert row.ours.rate == pytest.approx(3 / 0.2)


class ScriptedEngine:
    """A step takes a second and gives each request a token, three in all."""

    def __init__(self):
        self.now, self.scheduler, self.left = 100.0, self, {}

    def has_work(self):
        return bool(self.left)

    def add(self, id, prompt, params):
        self.left[id] = 3

    def step(self):
        self.now += 1
        tokens = [(type("Request", (), {"id": id}), 7) for id in self.left]
        self.left = {id: left - 1 for id, left in self.left.items() if left > 1}
        return tokens

    def sleep(self, seconds):
        self.now += seconds


def test_an_engine_gets_each_request_at_its_time():
    engine = ScriptedEngine()
    requests = [([1], None), ([2], None), ([3], None)]
    events = step_through(engine, requests, [0.5, 2.0, 9.0], lambda: engine.now, engine.sleep)
    # The second one waits for the step that runs. Before the third there is nothing to do.
    assert [[when for when, _ in those] for those in events] == [
        [1.5, 2.5, 3.5],
        [3.5, 4.5, 5.5],
        [10, 11, 12],
    ]
    assert latency([events], [0.5, 2.0, 9.0]) == Latency((1.0, 1.5), (1.0, 1.0), 9 / 11.5)


def test_poisson_times_are_the_same_draws_at_each_rate():
    slow, fast = poisson_times(1.0, 4000), poisson_times(10.0, 4000)
    assert slow == pytest.approx([10 * each for each in fast]) and slow == sorted(slow)
    assert slow[-1] / 4000 == pytest.approx(1, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("online", [False, True])
def test_vllm_serves_in_a_process_without_the_courses_folders(online, tmp_path):
    site = Path(__file__).parents[1] / "support" / "engine" / "fake_vllm"
    options = {"enable_prefix_caching": online, "num_gpu_blocks_override": 9}
    server = RemoteServer("vLLM", in_vllm(site, tmp_path, online, **options))
    assert server.settings["called by"] == ("AsyncLLM" if online else "LLM")
    assert server.settings["vLLM's blocks"] == "9 of 16 tokens"
    turn = server.serve(TASKS[0], 4)
    assert (turn.first, turn.cached) == ((4, 4), 2)
    if online:
        (events,) = server.arrive(TASKS[1], 0, [0.0])
        assert [count for _, count in events] == [1, 2, 2, 2, 2]
    server.close()
    assert not server._process.is_alive()


@pytest.mark.slow
def test_clients_of_the_server_hear_each_token(tmp_path):
    from transformers import AutoModelForCausalLM, Qwen3Config

    sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, head_dim=16)
    heads = dict(num_attention_heads=2, num_key_value_heads=1)
    none = dict(bos_token_id=None, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(Qwen3Config(**sizes, **heads, **none))
    model.save_pretrained(tmp_path)
    server = HttpServer(tmp_path, TASKS)
    try:
        events = server.arrive(TASKS[0].prompts, [2, 1], [0.0, 0.0])
    finally:
        server.close()
    assert [sum(count for _, count in those) for those in events] == [2, 1]
    assert all(when > 0 for those in events for when, _ in those)


def run_beside(peer, **changes):
    """A run with a row of each kind, ours twice as fast."""
    ours, theirs = Latency((0.1, 0.3), (0.01, 0.02), 9), Latency((0.2, 0.4), (0.01, 0.04), 9)
    run = Run(
        **dict(card="NVIDIA H200", driver="1", torch="2", date="2026-12-01"),
        **dict(command="python -m tools.bench engine_peers --size 8B", model="8B", size="8B"),
        versions={peer: "0.26.0"},
        rows=(PeerRow("short", peer, 10, (1.0,), (2.0,)),),
        arrivals=(ArrivalRow("come", peer, 0.7, 3.0, 2, ours, theirs),),
        conditions={"short": {"blocks": "9"}},
    )
    return replace(run, **changes)


def test_runs_of_other_sizes_and_traces_have_other_files(tmp_path):
    run = run_beside("vLLM")
    chosen = replace(run, command=f"{run.command} --traces arrivals full")
    assert run.file_name == "nvidia-h200-vllm-8b.json"
    assert chosen.file_name == "nvidia-h200-vllm-8b-arrivals-full.json"
    run.save(tmp_path / run.file_name)
    assert recorded_beside("vLLM", tmp_path) == [run]
    assert recorded(tmp_path) == recorded_beside("serve", tmp_path) == []


def test_a_table_has_all_figures_and_conditions():
    text = table(run_beside("vLLM", note="It ended"))
    for words in ("short", "10 (10–10)", "come, 70 % of the slower's rate", "blocks: 9"):
        assert words in text
    assert "100.0 / 300.0" in text and "200.0 / 400.0" in text and "It ended" in text


def test_figures_of_other_cards_and_days_are_in_tables_of_their_own():
    small = run_beside("vLLM", size="0.6B", arrivals=())
    runs = [small, run_beside("vLLM"), run_beside("vLLM", date="2026-12-02")]
    first, second = ratios([*runs, run_beside("serve")]).split("\n\n")
    head, speed, wait, gaps = (line.split() for line in first.splitlines()[1:])
    assert head[-2:] == ["0.6B", "8B"] and speed[-2:] == ["2.000", "2.000"]
    assert wait[-4:] == ["–", "0.50", "/", "0.75"] and gaps[-3:] == ["1.00", "/", "0.50"]
    assert first.startswith("NVIDIA H200, 2026-12-01") and "2026-12-02" in second


def test_the_stand_in_for_flash_attn_attends_to_each_prompt_by_itself():
    if not torch.cuda.is_available():
        pytest.skip("PyTorch's FlashAttention-2 runs on a GPU")
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(12, heads, 64, device="cuda", dtype=torch.float16) for heads in (4, 2, 2)
    )
    starts = torch.tensor([0, 5, 12], dtype=torch.int32, device="cuda")
    out = flash_attn_stand_in.flash_attn_varlen_func(
        q, k, v, 7, starts, 7, starts, 0.125, True
    )
    for first, last in ((0, 5), (5, 12)):
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(part[first:last].transpose(0, 1).float()[None] for part in (q, k, v)),
            is_causal=True,
            enable_gqa=True,
        )[0].transpose(0, 1)
        torch.testing.assert_close(out[first:last].float(), expected, atol=4e-3, rtol=4e-3)
