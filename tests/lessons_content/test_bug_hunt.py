"""The bug hunt: what the learner is given, and that the first fault that is left is the one
which shows.
"""

import random
import re

import pytest

from lessons_content.mistakes.edits import Edit
from lessons_lib import checks
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.source.lesson import given_kernel
from paged_attention.attention.bug_hunt import CASES, expected_output, hunt

OURS = read_kernel("bug_hunt.cu")
GIVEN = given_kernel("bug_hunt.cu", "6.8")
# What to change in the given text for each fault, in hunting order.
REPAIRS = {
    "no-dynamic-smem": (
        "128, 0, stream",
        "128, (p.head_size + 128 + p.max_context_len) * sizeof(float), stream",
    ),
    "missing-barrier": (
        "// From here on, each thread reads all that the others found.",
        "__syncthreads();",
    ),
    "shared-alias": (
        "extern __shared__ float largest[];",
        "float* largest = query + p.head_size;",
    ),
    "wrong-layout": (
        "((block_id * p.num_kv_heads + kv_head) * p.block_size + token % p.block_size)",
        "((block_id * p.block_size + token % p.block_size) * p.num_kv_heads + kv_head)",
    ),
    "wrong-head-mapping": (
        "max(1, int(blockDim.y) / p.num_kv_heads)",
        "(p.num_q_heads / p.num_kv_heads)",
    ),
    "wrong-table-stride": (
        "sequence * p.num_q_heads + token",
        "sequence * p.max_blocks_per_seq + token",
    ),
    "empty-context-unwritten": ("if (context_len == 0) return;", ""),
    "fixed-score-buffer": (
        "__shared__ float scores[256];",
        "float* scores = largest + blockDim.x;",
    ),
}
FAULTS = list(REPAIRS)

# The case at which hunt() stops when only the faults before this one are repaired, and a word
# of what it prints.
STOPS = {
    "no-dynamic-smem": (1, "dynamic shared memory"),
    "missing-barrier": (1, "__syncthreads()"),
    "shared-alias": (1, "nan"),
    "wrong-layout": (2, "k_cache[1, 0, 1]"),
    "wrong-head-mapping": (3, "[0, 1], [0, 2]"),
    "wrong-table-stride": (4, "block_table[0, 2] holds -1"),
    "empty-context-unwritten": (5, "out[0, 0, 0] was never written"),
    "fixed-score-buffer": (6, "scores[256]"),
}


def repaired(*faults: str) -> str:
    """The given text without these faults."""
    text = GIVEN
    for fault in faults:
        edit = Edit(*REPAIRS[fault], everywhere=False, is_optional=False, place=fault)
        (text,) = edit.texts(text)
    return text


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number, fault", list(enumerate(FAULTS)))
def test_the_hunt_stops_where_the_next_fault_shows(number, fault, capsys):
    hunt(repaired(*FAULTS[:number]))
    shown = capsys.readouterr().out
    stop, words = STOPS[fault]
    assert f"\n{stop}. {CASES[stop - 1].title}: " in f"\n{shown}" and words in shown
    assert shown.count(": as the reference\n") == stop - 1


def test_what_is_wrong_comes_with_the_keys_that_were_read(capsys):
    hunt(repaired(*FAULTS[:3]))
    first, found = capsys.readouterr().out.split("\n2. ")
    title, _, wrong, begins, *rest = found.splitlines()
    assert title == f"{CASES[1].title}: wrong numbers"
    assert wrong == "Wrong rows of out, as [sequence, head]: [0, 0], [0, 1]"
    expected = expected_output(**CASES[1].tensors())[0, 0, :3].tolist()
    assert begins.startswith("out[0, 0] begins with ")
    assert begins.endswith("has " + ", ".join(f"{number:.3f}" for number in expected))
    assert rest == [
        "For it, these keys were read: k_cache[1, 0, 0], k_cache[1, 0, 1], k_cache[1, 1, 0]",
        "The block table is [[1]], with 4 tokens in a block",
    ]


@pytest.mark.parametrize(("factor", "is_right"), [("1.00002f", True), ("1.001f", False)])
def test_numbers_are_compared_with_a_tolerance(factor, is_right, capsys):
    assert OURS.count("out[d] = o;") == 1
    hunt(OURS.replace("out[d] = o;", f"out[d] = {factor} * o;"))
    are_right = capsys.readouterr().out.count(": as the reference\n")
    assert (are_right == len(CASES)) == is_right


def test_what_does_not_compile_is_said(capsys):
    hunt("int f() { return }")
    assert capsys.readouterr().out.startswith("It does not compile.\n\n")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_of_any_faults_the_first_one_is_named(seed):
    """In whatever order they are repaired."""
    left = [fault for fault in FAULTS if fault in random.Random(seed).sample(FAULTS, 3)]
    result = checks.run("6.8", repaired(*(fault for fault in FAULTS if fault not in left)))
    assert result.mistake == left[0], (left, result.message)


def test_what_was_given_is_not_an_attempt():
    for text in (GIVEN, "// my kernel\n" + GIVEN.replace("  ", "    ") + "\n\n"):
        assert checks.run("6.8", text).mistake == checks.NOT_ATTEMPTED


def test_the_given_text_hides_what_it_should():
    assert len(FAULTS) == 8
    assert not re.search('SOLUTION|STUB|#include "|fault', GIVEN)


# The cases


def test_the_blocks_that_the_lesson_names_stay_the_same():
    tables = [case.tensors()["block_table"].tolist() for case in CASES[:5]]
    assert tables == [[[0]], [[1]], [[3, 2]], [[0, -1, -1], [3, 1, -1]], [[-1], [1]]]
