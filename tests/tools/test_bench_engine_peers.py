"""The benchmark of peers: its turns, and servers that fail."""

import os
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lessons_content.lesson_08.bench.servers import random_model
from lessons_content.lesson_10.bench import engine_peers_runs as runs
from lessons_content.lesson_10.bench.fast_engine import Trace
from process_end import children_left
from tools.bench import flash_attn_stand_in
from tools.bench.engine_peers import compare
from tools.bench.engine_peers_servers import RemoteServer, ServerFailed, Turn, measured_turn
from tools.bench.engine_peers_traces import poisson_times
from tools.bench.our_servers import HttpServer, step_through
from tools.bench.vllm_server import VllmServer

TASKS = (Trace("short", [[5, 1], [6, 2, 3]], [2, 1]), Trace("long", [[7] * 40], [9]))
ALL = [(trace, ()) for trace in TASKS]


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

    def serve(self, trace, turn, times=None):
        prompts = [[turn, *prompt[1:]] for prompt in trace.prompts]
        try:
            return measured_turn(self.server, prompts, trace.new_tokens, times)
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
    rows = list(compare("peer", ALL, 3, start, said.append))
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
    rows = list(compare("peer", ALL[:1], 1, start, lambda line: None))
    assert [row.reason for row in rows] == [reason] and not rows[0].ours


def test_ours_that_fails_is_an_error_and_ends_the_peer():
    made = {}
    with pytest.raises(ServerFailed, match="no flash_attn"):
        list(compare("peer", ALL, 1, started(made, ours=Refusing, peer=Counting), print))
    assert not made["peer"].open


def remote(maker, tmp_path, *left):
    return RemoteServer("a server", partial(maker, tmp_path, TASKS), *left)


@pytest.mark.slow
def test_a_process_serves_prompts_that_begin_with_the_turn(tmp_path):
    server = remote(Counting, tmp_path)
    assert server.serve(TASKS[0], 4).answers == [[4, 10], [4]]
    server.close()
    assert TASKS[0].prompts == [[5, 1], [6, 2, 3]] and not children_left()


@pytest.mark.slow
def test_a_process_that_cannot_begin_says_why(tmp_path):
    with pytest.raises(ServerFailed, match="ImportError: no flash_attn"):
        remote(Refusing, tmp_path)


@pytest.mark.slow
def test_a_process_that_ends_is_an_error_each_time_it_is_asked(tmp_path):
    server = remote(Dying, tmp_path)
    for _ in range(2):
        with pytest.raises(ServerFailed, match="its process ended with 3"):
            server.serve(TASKS[0], 0)


@pytest.mark.slow
def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path):
    seconds = iter([3600, 0.1])
    server = remote(Slow, tmp_path, lambda: next(seconds))
    with pytest.raises(ServerFailed, match="no time was left"):
        server.serve(TASKS[0], 0)
    assert not children_left()


class Scripted(Here):
    """Its turns take seconds on its own clock. A token comes each tenth of them."""

    clock = 0.0

    def __init__(self, name):
        self.name, self.seconds = name, {"ours": 1.0, "peer": 2.0}[name]

    def serve(self, trace, turn, times=None):
        Scripted.clock += times[-1] if times else self.seconds
        counts = zip(times or [0.0] * len(trace.prompts), trace.new_tokens, strict=True)
        came = [[at + self.seconds * (1 + i) / 10 for i in range(n)] for at, n in counts]
        return Turn(self.seconds, came, cached=turn)


def compared(tasks, turns, limit=1e9):
    Scripted.clock = 0.0
    left = lambda: limit - Scripted.clock  # noqa: E731
    return list(compare("peer", tasks, turns, Scripted, lambda line: None, left))


def test_a_turn_that_would_not_fit_is_left_out():
    """Each turn of both takes 3 s: a warm-up and two turns of the first trace."""
    short, long = compared(ALL, 5, limit=11)
    assert (short.ours, short.theirs) == ((1.0, 1.0), (2.0, 2.0)) and short.ratio == 2
    assert short.cached == (5, 2, 2)  # of the last turn
    assert not long.ours and long.reason == "no time was left for a counted turn"


def test_arrivals_have_shares_of_the_rate_of_the_slower():
    at_once, *rows = compared([(TASKS[0], (0.7, 0.9))], 2)
    assert at_once.theirs == (2.0, 2.0)  # two requests in 2 s
    assert [row.per_second for row in rows] == pytest.approx([0.7, 0.9])
    for row in rows:
        assert len(row.ours) == 2 and row.our_waits[0] == pytest.approx((0.1, 0.1))
        assert row.their_waits == (pytest.approx((0.2, 0.2)),) * 2
    at_once, row = compared([(TASKS[0], (0.7,))], 2, limit=10)
    assert at_once.ours and not row.ours and row.reason.startswith("no time was left")
    (row,) = compared([(TASKS[0], (None,))], 1)
    assert (row.trace, row.per_second) == ("short, all at once", 0) and row.our_waits


class ScriptedEngine:
    """A step takes a second and gives each request a token, three in all."""

    now, has_work = 100.0, lambda self: bool(self.left)

    def __init__(self):
        self.left, self.scheduler = [], self

    def add(self, id):
        self.left += [SimpleNamespace(id=id)] * 3

    def step(self):
        self.now += 1
        working = {request.id: request for request in self.left}.values()
        return [(request, self.left.remove(request)) for request in working]


def test_an_engine_gets_each_request_at_its_time():
    """The second waits for the step that runs. Before the third there is nothing to do."""
    engine, times = ScriptedEngine(), [0.5, 2.0, 9.0]
    sleep = lambda seconds: setattr(engine, "now", engine.now + seconds)  # noqa: E731
    came = step_through(engine, [()] * 3, times, lambda: engine.now, sleep)
    assert came == [[1.5, 2.5, 3.5], [3.5, 4.5, 5.5], [10, 11, 12]]
    assert poisson_times(1.0, 9) == pytest.approx([10 * at for at in poisson_times(10.0, 9)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LLM", "AsyncLLM"])
def test_vllm_serves_in_a_process_without_the_courses_folders(kind, tmp_path):
    site, is_async = Path(__file__).parents[1] / "support/engine/fake_vllm", kind != "LLM"
    options = {"enable_prefix_caching": is_async, "num_gpu_blocks_override": 9}
    server = RemoteServer("vLLM", partial(VllmServer, site, tmp_path, is_async, **options))
    assert server.settings["called by"] == kind
    assert server.settings["vLLM's num_gpu_blocks"] == "9"
    turn = server.serve(TASKS[0], 4)
    assert (turn.answers, turn.cached) == ([[4, 10], [4]], 2)
    if is_async:
        (came,) = server.serve(TASKS[1], 0, [0.0]).answers
        assert len(came) == 9 and len({*came}) == 5
    server.close()
    assert not children_left()


@pytest.mark.slow
def test_clients_of_the_server_hear_each_token(tmp_path):
    sizes = dict(hidden_size=32, intermediate_size=32, num_attention_heads=2, head_dim=16)
    model = random_model(1, "cpu", num_key_value_heads=1, **sizes, vocab_size=99)
    model.save_pretrained(tmp_path)
    with closing(HttpServer(tmp_path, TASKS)) as server:
        came = server.arrive(TASKS[0].prompts, [2, 1], [0.0, 0.0])
    assert list(map(len, came)) == [2, 1] and min(map(min, came)) > 0


WAITS = dict(our_waits=((0.1, 0.3), (0.01, 0.02)), their_waits=((0.2, 0.4), (0.01, 0.04)))
ROW = runs.PeerRow("short", "vLLM", 10, (1.0,), (2.0,))
LINE = "python -m tools.bench engine_peers --size 8B"
RUN = runs.Run("NVIDIA H200", "1", "2", "2026-12-01", LINE, "8B", {}, (ROW,), size="8B")
RUN = replace(RUN, rows=(ROW, replace(ROW, trace="come", per_second=3.0, **WAITS)))
RUN = replace(RUN, conditions={"short": {"blocks": "9"}}, note="It ended")


def test_a_run_has_a_file_by_size_and_traces_and_a_table_with_all_figures(tmp_path):
    chosen = replace(RUN, command=f"{LINE} --traces arrivals full")
    assert RUN.file_name == "nvidia-h200-vllm-8b.json"
    assert chosen.file_name == "nvidia-h200-vllm-8b-arrivals-full.json"
    RUN.save(tmp_path / RUN.file_name)
    assert runs.Run.recorded(tmp_path) == [RUN] and runs.recorded(tmp_path) == []
    words = ("10 (10–10)", "3.0 requests/s", "100.0 / 300.0", "200.0 / 400.0", "blocks: 9")
    assert all(each in runs.table(RUN) for each in (*words, "It ended"))


def test_figures_of_other_cards_and_days_are_in_tables_of_their_own():
    small, later = replace(RUN, size="0.6B", rows=(ROW,)), replace(RUN, date="2026-12-02")
    first, second = runs.ratios([small, RUN, later], "vLLM").split("\n\n")
    head, speed, _, wait, gaps = (line.split() for line in first.splitlines()[1:])
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
