"""The benchmark of peers: its turns, servers that fail, its files, and what it packs."""

import argparse
import dataclasses
import itertools
import os
import subprocess
import tarfile
import time
import types

import matplotlib.pyplot as plt
import pytest
import torch

from lessons_bench import (
    engine_peers_servers,
    engine_peers_setup,
    flash_attn_stand_in,
    flashinfer_setup,
)
from lessons_bench.engine_peers import compare
from lessons_bench.engine_peers_runs import PeerRow, Run, recorded, table
from lessons_bench.engine_peers_servers import SERVERS, RemoteServer, ServerFailed, blocks_of
from lessons_bench.engine_peers_setup import SOURCES
from lessons_bench.fast_engine import Trace, traces
from lessons_bench.host_calls import CALLS, CallRow, microseconds
from lessons_bench.servers import random_model
from lessons_bench.workloads import WORKLOADS
from lessons_draw.engine_peers import overview

TASKS = (Trace("short", [[5, 1], [6, 2, 3]], [2, 1]), Trace("long", [[7] * 40], [9]))
ROWS = (
    PeerRow("a trace", "nano-vllm", 1_000, (2.0, 1.0, 4.0), (4.0, 2.0, 3.0), 5.0, 9.0, 0.95),
    PeerRow("a trace", "Mini-SGLang", 1_000, reason="its process ended with -9"),
)
RUN = Run(
    card="NVIDIA H200",
    driver="1",
    torch="2",
    date="2026-11-26",
    command="python -m lessons_bench.engine_peers --turns 3",
    model="a model",
    versions={"nano-vllm": "bb823b3", "FlashInfer": "0.7.2"},
    rows=ROWS,
    calls=(CallRow("a batch", 120.0, 1_100.0, 34.5),),
)


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
            return engine_peers_servers._turn(self.server, TASKS, trace, turn)
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


def test_a_process_serves_prompts_that_begin_with_the_turn(tmp_path):
    server = RemoteServer("a server", Counting, tmp_path, TASKS)
    assert [server.serve(0, turn).first for turn in (4, 5)] == [(4, 4), (5, 5)]
    server.close()
    assert TASKS[0].prompts == [[5, 1], [6, 2, 3]] and not server._process.is_alive()


def test_a_process_that_cannot_begin_says_why(tmp_path):
    with pytest.raises(ServerFailed, match="ImportError: no flash_attn"):
        RemoteServer("a server", Refusing, tmp_path, TASKS)


def test_a_process_that_ends_is_an_error_each_time_it_is_asked(tmp_path):
    server = RemoteServer("a server", Dying, tmp_path, TASKS)
    for _ in range(2):
        with pytest.raises(ServerFailed, match="its process ended with 3"):
            server.serve(0, 0)


@pytest.mark.parametrize("block_size", [1, 16, 128])
def test_blocks_are_counted_for_each_request(block_size):
    lengths = [
        (len(prompt), new) for prompt, new in zip(TASKS[0].prompts, [2, 1], strict=True)
    ]
    assert blocks_of(TASKS[0], block_size) == sum(
        len(range(0, length + new, block_size)) for length, new in lengths
    )


def test_the_peers_are_told_the_models_shapes(tmp_path):
    random_model(2, device="cpu", hidden_size=64, vocab_size=100).save_pretrained(tmp_path)
    config = engine_peers_servers._settings(str(tmp_path))
    again = type(config)(**config.to_dict())  # as Mini-SGLang copies it
    assert (again.rope_theta, again.rope_scaling, again.num_key_value_heads) == (1e4, None, 8)
    assert engine_peers_servers.bytes_of_a_token(tmp_path) == 2 * 2 * 8 * 128 * 2
    limits = types.SimpleNamespace(model=str(tmp_path), max_model_len=100_000)
    engine_peers_servers._complete(limits)
    assert limits.max_model_len == 40_960 and limits.hf_config.hidden_size == 64


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


def test_the_stand_in_refuses_a_prompt_that_begins_in_blocks():
    q = torch.zeros(1, 2, 64)
    with pytest.raises(NotImplementedError, match="whole prompts only"):
        flash_attn_stand_in.flash_attn_varlen_func(
            q, q, q, 1, None, 1, None, 1.0, True, block_table=torch.zeros(1, 1)
        )


def test_the_table_says_what_was_measured():
    text = table(RUN)
    for words in (
        "NVIDIA H200, driver 1, PyTorch 2, 2026-11-26",
        "nano-vllm bb823b3, FlashInfer 0.7.2",
        "333 (250–500)",
        "500 (250–1,000)",
        "1.50",
        "95 %",
        "! Mini-SGLang: its process ended with -9",
        "1,134",
    ):
        assert words in text
    for run in (RUN, *recorded()):
        assert all(len(line) <= 95 for line in table(run).splitlines())


def test_a_run_is_drawn():
    (axes,) = overview(RUN).axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1_000 / 3, 500])
    assert [list(line.get_xdata()) for line in axes.lines] == [[250, 500], [250, 1_000]]
    plt.close("all")


@pytest.mark.parametrize("run", recorded(), ids=lambda run: run.card)
def test_what_is_recorded_has_both_peers_on_both_traces(run):
    names = [trace.name for trace in traces(151_936)]
    assert [(row.peer, row.trace) for row in run.rows] == [*itertools.product(SOURCES, names)]
    assert all(row.ours and row.theirs and not row.reason for row in run.rows)
    assert [call.workload for call in run.calls] == [workload.name for workload in WORKLOADS]
    # The weights are random and the numbers have 8 bits: near ties go either way.
    assert all(row.same_first > 0.9 for row in run.rows)


def test_a_call_is_timed_from_an_idle_device_and_the_first_does_not_count(monkeypatch):
    clock, steps = itertools.count(), []
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) if len(steps) > 2 else 0)
    found = microseconds(lambda: steps.append("call"), lambda: steps.append("wait"))
    assert steps == ["wait", "call"] * (CALLS + 1) + ["wait"] and found == 1e6


def test_every_peer_has_a_server_and_a_source():
    assert list(SERVERS) == ["ours", *SOURCES]
    assert all(len(source.commit) == 40 for source in SOURCES.values())


@pytest.fixture
def repositories(tmp_path, monkeypatch):
    """A repository for each peer, with its package and more, and pip's part left out."""
    found = {}
    for name, source in SOURCES.items():
        folder = tmp_path / source.package
        package = folder / source.tree / source.package
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(name)
        (folder / "README.md").write_text("not needed")
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            subprocess.run([*git, *words], check=True)
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, commit=head))
        found[name] = str(folder)
    for name in ("pack", "unpack", "download"):
        monkeypatch.setattr(flashinfer_setup, name, lambda *words: None)
    monkeypatch.setattr(flashinfer_setup, "install", lambda wheels, site: None)
    return found


def test_what_is_packed_comes_out_and_holds_the_packages_only(repositories, tmp_path):
    carried, site = tmp_path / "carried", tmp_path / "site"
    carried.mkdir()  # FlashInfer's part makes it
    mirrors = itertools.chain(*(("--mirror", f"{n}={p}") for n, p in repositories.items()))
    engine_peers_setup.main(["pack", str(carried), "--python", "3.12", *mirrors])
    for source in SOURCES.values():
        with tarfile.open(carried / f"{source.package}.tar") as archive:
            assert {name.split("/")[0] for name in archive.getnames()} == {source.package}
    engine_peers_setup.main(["unpack", str(carried), str(site)])
    assert (site / "minisgl" / "__init__.py").read_text() == "Mini-SGLang"
    assert (site / "nanovllm" / "__init__.py").read_text() == "nano-vllm"


def test_a_folder_that_was_not_packed_is_refused_before_anything_is_installed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nanovllm\.tar is missing: `pack` writes it"):
        engine_peers_setup.unpack(tmp_path, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("text", ["vllm=x", "nano-vllm", "nano-vllm="])
def test_a_mirror_has_a_peers_name_and_a_place(text):
    with pytest.raises(
        argparse.ArgumentTypeError, match="nano-vllm=REPOSITORY or Mini-SGLang="
    ):
        engine_peers_setup.mirror(text)
    assert engine_peers_setup.mirror("nano-vllm=/a=b") == ("nano-vllm", "/a=b")
