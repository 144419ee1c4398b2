"""Figures that a lesson's prose quotes are those of the records, or of the lesson's own
code.
"""

import math

import pytest

from lessons_content.lesson_02.pictures.memory import PAPER
from lessons_content.lesson_07.bench import ladder as ladder_bench
from lessons_content.lesson_07.bench.workloads import WORKLOADS
from lessons_lib.paths import SOLUTIONS
from paged_attention.pool.block_manager import PythonBlockManager
from paged_attention.pool.kv_cache import PagedAttentionManager
from prose import prose
from tools.notebooks.lesson_files import read_lesson


@pytest.fixture(scope="module")
def run():
    return ladder_bench.recorded()[0]


def test_rung_7_is_as_near_to_the_fastest_as_lesson_07_says(run):
    def fastest(workload):
        return min(
            row.milliseconds
            for row in run.rungs(workload)
            if row.rung <= 7 and row.milliseconds
        )

    behind = max(
        run.milliseconds(workload.name, "rung 7") / fastest(workload.name) - 1
        for workload in WORKLOADS
    )
    assert len(WORKLOADS) == 6
    words = f"In each of the six, rung 7 is within {math.ceil(100 * behind)} % of the fastest"
    assert words in prose("07")


def test_a_second_launch_takes_what_lesson_07_says(run):
    longer = run.milliseconds("gqa_b64_c1024", "rung 6") - run.milliseconds(
        "gqa_b64_c1024", "rung 5"
    )
    step = run.milliseconds("gqa_b8_c512", "rung 7")
    assert (
        f"rung 6 took {1000 * longer:.0f} microseconds longer than rung 5, "
        f"and a whole step of the smallest batch takes {1000 * step:.0f}" in prose("07")
    )


def test_rung_3_leaves_memory_no_time_for_more_than_lesson_07_says(run):
    assert 2.5 <= 1 / run.row("gqa_b64_c1024", "rung 3").share_of_limit < 2.6
    assert (
        "At its speed, memory cannot have delivered the bytes more than two and a half times"
        in prose("07")
    )


def test_the_papers_figures_are_the_same_everywhere():
    maximum, power, oracle, paged = (
        f"{PAPER[name]:g}" for name in ("max", "pow2", "oracle", "paged")
    )
    assert f"They used {maximum} %, {power} % and {oracle} % of the cache" in prose("00")
    assert f"The paper measured {paged} % of the cache in use" in prose("00")
    assert f"found {maximum} to {oracle} % of the cache in use" in prose("summary")
    assert f"{paged} % with paging" in prose("summary")


def test_lesson_02s_experiment_gives_what_the_lesson_says():
    """How often a request gives way without a free block for each running request."""
    wanted = "class Paged:", "class Request", "def replay", "num_slots, longest ="
    cells = [
        cell.solution()
        for cell in read_lesson(*SOLUTIONS.glob("02_*.py")).cells
        if cell.kind == "code"
    ]
    cells = [next(cell for cell in cells if start in cell) for start in wanted]
    namespace = {
        "PagedAttentionManager": PagedAttentionManager,
        "BlockManager": PythonBlockManager,
    }
    exec("from dataclasses import dataclass", namespace)
    changed = cells[0].replace("< len(self.manager.sequences)", "< 0")
    assert changed != cells[0]
    assert "put `0` instead of `len(self.manager.sequences)`" in prose("02")
    for cell in (changed, *cells[1:3]):
        exec(cell, namespace)
    _, gave_way = namespace["replay"](
        namespace["Paged"](16_384), namespace["draw_requests"](200), 16_384
    )
    words = f"gives way {len(gave_way):,} times, with {sum(gave_way):,} tokens computed again"
    assert words in prose("02")


@pytest.mark.parametrize(
    "num_seqs, words",
    [(8, "8 sequences pass it at about 14,000 tokens"), (64, "64 below 2,000")],
)
def test_the_gather_passes_the_weights_where_lesson_05_says(num_seqs, words):
    crossing = 15 * 2**30 / (num_seqs * 144 * 2**10)
    said = int(words.split()[-2 if "tokens" in words else -1].replace(",", ""))
    assert words in prose("05")
    assert crossing < said if "below" in words else round(crossing, -3) == said
