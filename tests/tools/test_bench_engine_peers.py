"""The benchmark of peers: its turns, and servers that fail."""

import os

import pytest
import torch

from lessons_content.lesson_10.bench.fast_engine import Trace
from tools.bench import engine_peers_servers, flash_attn_stand_in
from tools.bench.engine_peers import compare
from tools.bench.engine_peers_servers import RemoteServer, ServerFailed

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


class Here:
    """A server in this process."""

    ready = 1.5

    def __init__(self, maker):
        self.server, self.open = maker(None, TASKS), True

    def serve(self, trace, turn):
        try:
            return engine_peers_servers.measured_turn(self.server, TASKS, trace, turn)
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
    rows = compare("peer", TASKS, 3, start, said.append)
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
    rows = compare(
        "peer", TASKS[:1], 1, started({}, ours=Counting, peer=maker), lambda line: None
    )
    assert [row.reason for row in rows] == [reason] and not rows[0].ours


def test_ours_that_fails_is_an_error_and_ends_the_peer():
    made = {}
    with pytest.raises(ServerFailed, match="no flash_attn"):
        compare("peer", TASKS, 1, started(made, ours=Refusing, peer=Counting), print)
    assert not made["peer"].open


@pytest.mark.slow
def test_a_process_serves_prompts_that_begin_with_the_turn(tmp_path):
    server = RemoteServer("a server", Counting, tmp_path, TASKS)
    assert [server.serve(0, turn).first for turn in (4, 5)] == [(4, 4), (5, 5)]
    server.close()
    assert TASKS[0].prompts == [[5, 1], [6, 2, 3]] and not server._process.is_alive()


@pytest.mark.slow
def test_a_process_that_cannot_begin_says_why(tmp_path):
    with pytest.raises(ServerFailed, match="ImportError: no flash_attn"):
        RemoteServer("a server", Refusing, tmp_path, TASKS)


@pytest.mark.slow
def test_a_process_that_ends_is_an_error_each_time_it_is_asked(tmp_path):
    server = RemoteServer("a server", Dying, tmp_path, TASKS)
    for _ in range(2):
        with pytest.raises(ServerFailed, match="its process ended with 3"):
            server.serve(0, 0)


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
