"""The recorded steps of lesson 06: what the kernel reads in a checked run, and a race."""

import re

import pytest
import torch

from jupyterlab_driver import faults
from lessons_content.lesson_06 import pictures
from lessons_lib.cuda.library import Access, KernelError, build_cuda
from paged_attention.attention.paged_kernel import attn_paged_cuda, paged_attention_library

BLOCK_SIZE, HEAD_SIZE, THREADS = 4, 4, 128
READ = re.compile(
    r"Thread (\d+) reads (?:key|element (\d) of value) (\d+): "
    r"block table entry (\d+) says block (\d+), offset (\d+)\."
)
ECHO = """
__global__ void echo_kernel(const float* a, float* out) {
  __shared__ float row[128];
  int i = threadIdx.x;
  row[i] = a[i];
  out[i] = row[i] + (i >= 32 ? row[i - 32] : 0.0f);
}
extern "C" int echo(const float* a, float* out, cudaStream_t stream) {
  echo_kernel<<<1, 128, 0, stream>>>(a, out);
  return cudaGetLastError();
}"""


def player_of_reads(length: int, block_ids: list[int]):
    """Of the second of three sequences, whose blocks these are."""
    table = torch.full((3, len(block_ids) + 1), -1, dtype=torch.int32)
    table[1, :-1] = torch.tensor(block_ids)
    table[0, 0], table[2, 0] = 0, 1
    shape = (max(block_ids) + 2, BLOCK_SIZE, 2, HEAD_SIZE)
    library = paged_attention_library("checked")
    lengths = torch.tensor([3, length, 2], dtype=torch.int32)
    with library.trace("k_cache", "v_cache", "block_table") as accesses:
        attn_paged_cuda(
            torch.ones(3, 6, HEAD_SIZE), *torch.rand(2, *shape), table, lengths, library
        )
    mine = [access for access in accesses if access.block == (1, 4, 0)]
    return pictures.readers(mine, table, shape, library.texts)


def player_of_race():
    """And the race."""
    library = build_cuda(ECHO, target="checked")
    with (
        library.trace("a", "__shared__ row", "out") as accesses,
        pytest.raises(KernelError) as caught,
    ):
        library.echo(torch.arange(128.0), torch.zeros(128))
    return pictures.race(accesses, caught.value, library.texts), caught.value


def lit(state: dict, panel: str) -> set[str]:
    """The names of the boxes, or of the marked lines, that a step is about."""
    return {
        key.removeprefix(f"{panel}/")
        for key, value in state.items()
        if key.startswith(f"{panel}/") and value and (panel == "code" or value[2])
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("length", "block_ids"), [(10, [5, 2, 6]), (1, [2]), (131, [*range(40, 7, -1)])]
)
def test_each_key_and_value_is_read_once_by_the_thread_that_has_it(length, block_ids):
    recording = player_of_reads(length, block_ids).recording
    found = [READ.fullmatch(step["say"]) for step in recording.steps[1:-1]]
    read = [tuple(map(int, match.groups(default="-1"))) for match in found]
    slots = {
        token: (token // BLOCK_SIZE, block_ids[token // BLOCK_SIZE], token % BLOCK_SIZE)
        for token in range(length)
    }
    keys = [(token % THREADS, -1, token, *slots[token]) for token in slots]
    values = [(n, n, token, *slots[token]) for n in range(HEAD_SIZE) for token in slots]
    assert sorted(read[:length]) == sorted(keys)
    assert sorted(read[length:]) == values


def test_a_step_lights_the_lines_the_entry_and_the_numbers_that_it_is_about():
    player = player_of_reads(10, [5, 2, 6])
    state = player.recording.state(7)
    assert player.recording.steps[7]["say"].startswith("Thread 6 reads key 6: ")
    assert lit(state, "k_cache") == {f"2.2.{n}" for n in range(HEAD_SIZE)}
    assert lit(state, "entries") == {"1"} and lit(state, "v_cache") == set()
    assert lit(state, "threads") == {"6 thread", "6 line", "6 reads"}
    lines = {line.rpartition(" ")[0] for line in lit(state, "code")}
    assert lines == {"paged_address.cuh", "paged_scores.cuh"}
    end = player.recording.state(player.still)
    of_blocks = {(block, place) for place, block in enumerate([5, 2, 6])}
    assert {key: value[0] for key, value in end.items() if "cache/" in key and value} == {
        f"{cache}/{block}.{offset}.{n}": str(n if cache == "v_cache" else token)
        for block, place in of_blocks
        for offset in range(BLOCK_SIZE)
        if (token := place * BLOCK_SIZE + offset) < 10
        for n in range(HEAD_SIZE)
        for cache in ("k_cache", "v_cache")
    }


def test_a_read_that_the_block_table_does_not_lead_to_is_said():
    where = dict(block=(0, 0, 0), thread=(7, 0, 0), kind="read", line=1, source="mine")
    accesses = [
        Access(name="block_table", index=(0, 0), **where),
        Access(name="k_cache", index=(0, 1, 0, 0), **where),
    ]
    table = torch.tensor([[1]])
    recording = pictures.readers(accesses, table, (2, 2, 1, 1), {"mine": "row"}).recording
    assert recording.steps[1]["say"] == (
        "Thread 7 reads block 0, offset 1. No entry of the block table that it has looked up "
        "leads there."
    )


def test_the_race_is_the_one_that_is_reported():
    player, race = player_of_race()
    state = player.recording.state(player.still)
    assert player.recording.steps[player.still]["say"] == str(race).split("\n")[0]
    lines = {race.line: race.thread[0], race.other_line: race.other_thread[0]}
    assert {key: mark for key, mark in state.items() if key.startswith("code/") and mark} == {
        f"code/your code {line}": f"thread {thread}" for line, thread in lines.items()
    }
    for line, thread in lines.items():
        quoted = ECHO.split("\n")[line - 1].strip()
        assert f"your code, line {line}: {quoted}    (thread {thread})" in str(race)
    assert lit(state, "threads") == {"0", "32"} and lit(state, "array") == {"0"}
    written = {key: value[0] for key, value in state.items() if "array/" in key and value}
    assert written == {f"array/{i}": str(i) for i in range(33)}
    words = [step["say"] for step in player.recording.steps]
    assert words[11:13] == [
        "Thread 5 reads a[5] and writes row[5].",
        "Thread 5 writes out[5].",
    ]


@pytest.mark.slow
@pytest.mark.browser
def test_the_players_work_in_a_browser(shown):
    reads, (race, _) = player_of_reads(10, [5, 2, 6]), player_of_race()
    page = shown(reads._repr_html_(), race._repr_html_())
    first, second = page.locator(".pool-player").all()
    first.evaluate("player => player.player.show(7)")
    lit = first.locator(".group .now").all_text_contents()
    assert lit == ["6", "21", "2,2", "2", *["6"] * HEAD_SIZE]
    told = "block 2, offset 2, element 0, read by thread 6"
    assert first.get_by_role("gridcell", name=told).count() == 1
    marked = second.locator(".source.now b").all_text_contents()
    assert marked == ["thread 0", "thread 32"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert faults(page) == []
    assert page.console_errors == []
