"""What the runtime reports becomes an error in words: what happened, the learner's line, the
thread, and what to look at.
"""

import copy
import ctypes
import itertools
import os
import pickle
import shutil
import subprocess

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lessons_lib import KernelError
from lessons_lib.cuda_on_cpu.elements import (
    inner_sizes,
    shared_element,
    tensor_element,
    tensor_index,
)
from lessons_lib.cuda_on_cpu.report_messages import explain, lanes, position
from lessons_lib.cuda_on_cpu.reports import parse, updates_in_two_lines, updates_itself
from lessons_lib.cuda_on_cpu.source_lines import (
    SourceLine,
    look_up,
    offset_in_library,
    source_line,
)

TEXT = """__global__ void k(const float* x, float* out) {
  __shared__ float scores[64];
  scores[threadIdx.x] = x[threadIdx.x];
  float sum = scores[63 - threadIdx.x];
  total += sum;
  __shared__ float tile[ROWS][8 + 1];
  out[threadIdx.x] = tile[1][2];
}
constexpr int ROWS = 4;
"""
TENSORS = {
    "k_cache": torch.zeros(8, 4, 1, 16),
    "block_table": torch.zeros(3, 4, dtype=torch.int32),
    "out": torch.zeros(6),
    "x": torch.zeros(4, 8)[:, ::2],
    "one": torch.zeros(()),
    "row": torch.zeros(1, 8),
}
THREAD = "kernel k<float>\nblock 1 2 0\nthread 37 0 0\nlinear 37\n"
OTHER = "other_linear 3\nother_thread 3 0 0\n"


def error(report: str) -> KernelError:
    return explain(parse(report), {"your code": TEXT}, TENSORS)


def here(line: int, other: int | None = None) -> str:
    return f"line {line}\nfile your code\n" + (
        f"other_line {other}\nother_file your code\n" if other else ""
    )


def memory(name: str, byte: int, size: int, memory: str = "shared") -> str:
    """The keys of an access to 4 bytes at `byte` of a variable or tensor of `size` bytes, of 4
    bytes an element.
    """
    return f"memory {memory}\nname {name}\nbyte {byte}\nsize 4\nbytes {size}\nelement 4\n"


SCORES = memory("scores", 12, 256)
REPORTS = {
    "race": (
        "kind race\naccess read\nother_access write\n" + here(4, 3) + THREAD + SCORES + OTHER
    ),
    "missing-syncwarp": (
        "kind race\naccess write\nother_access read\n"
        + here(3, 4)
        + THREAD
        + SCORES
        + "other_linear 40\nother_thread 40 0 0\n"
    ),
    "non-atomic-update": (
        "kind race\naccess read\nother_access write\nboth_update 1\n"
        + here(5, 5)
        + THREAD
        + OTHER
        + memory("total", 0, 4)
    ),
    "race-between-blocks": (
        "kind race\naccess write\nother_access write\nother_block 0 2 0\nother_linear 37\n"
        + here(7)
        + THREAD
        + memory("out", 8, 24, "tensor")
    ),
    "divergent-barrier": (
        "kind divergent-barrier\nwaiting 120\nreturned 8\n" + here(3) + THREAD + OTHER
    ),
    "absent-lane": (
        "kind absent-lane\nwhat __shfl_down_sync\nmask ffffffff\nlane 5\ntext absent\n"
        "lanes_missing 4294901760\nother_what __syncthreads\n" + here(3, 4) + THREAD + OTHER
    ),
    "shared-out-of-bounds": (
        "kind shared-out-of-bounds\naccess write\n"
        + here(3)
        + THREAD
        + memory("scores", 256, 256)
    ),
    "dynamic-shared-too-small": (
        "kind shared-out-of-bounds\naccess write\n"
        + here(3)
        + THREAD
        + memory("smem", 256, 256, "dynamic")
    ),
    "shared-uninitialised": (
        "kind shared-uninitialised\naccess read\n" + here(4) + THREAD + SCORES
    ),
    "block-table": (
        "kind out-of-bounds\naccess read\n"
        + here(4)
        + THREAD
        + memory("k_cache", -44, 2048, "tensor")
        + "table 0 7 block_table\ntable 36 -1 block_table\n"
    ),
    "out-of-bounds": (
        "kind out-of-bounds\naccess read\n"
        + here(4)
        + THREAD
        + memory("k_cache", 2048, 2048, "tensor")
        + "table 36 7 block_table\n"
    ),
    "write-to-input": (
        "kind write-to-input\naccess write\n"
        + here(3)
        + THREAD
        + memory("x", 40, 120, "tensor")
    ),
    "output-unwritten": (
        "kind output-unwritten\nmissing 12\nlaunches 1\n" + memory("out", 12, 24, "tensor")
    ),
    "output-read": (
        "kind output-read\naccess read\n" + here(7) + THREAD + memory("out", 8, 24, "tensor")
    ),
    "no-address": "kind no-address\naccess write\nsize 4\naddress 0x10\n" + here(7) + THREAD,
    "no-end": "kind no-end\nsteps 100000000\n" + here(4) + THREAD,
    "assertion": "kind assertion\ntext i < n && n > 0\n" + here(3) + THREAD,
    "bad-launch": (
        "kind bad-launch\nkernel k<float>\ntext more than 1024 threads in a block\n"
        "grid 2 1 1\nthreads 2048 1 1\nshared_bytes 64\n" + here(7)
    ),
}
SENTENCES = {
    "race": (
        "Thread 37 reads scores[3], which thread 3 wrote, and no __syncthreads() "
        "lies between the two."
    ),
    "missing-syncwarp": (
        "Thread 37 writes scores[3], which thread 40 of the same warp read, "
        "and neither __syncwarp() nor"
    ),
    "non-atomic-update": (
        "Thread 37 and thread 3 both update total, and nothing keeps them apart."
    ),
    "race-between-blocks": (
        "Thread 37 of block (1, 2) writes out[2], which block (0, 2) wrote in the same launch."
    ),
    "divergent-barrier": (
        "120 threads wait at __syncthreads(), thread 37 among them, "
        "and 8 have returned from the kernel,"
    ),
    "absent-lane": (
        "Lane 5 (thread 37) calls __shfl_down_sync with the mask 0xffffffff, "
        "and waits for lanes 16 to 31."
    ),
    "shared-out-of-bounds": (
        "Thread 37 writes scores[64], but scores has the elements 0 to 63."
    ),
    "dynamic-shared-too-small": (
        "Thread 37 writes smem[64], "
        "which ends at byte 260 of the dynamic shared memory, but the"
    ),
    "shared-uninitialised": (
        "Thread 37 reads scores[3] before any thread of the block has written it."
    ),
    "block-table": (
        "block_table[2, 1] holds -1, which is no block of k_cache (blocks 0 to 7), "
        "and thread 37 reads k_cache[-1, 3, 0, 5]."
    ),
    "out-of-bounds": (
        "Thread 37 reads k_cache[8, 0, 0, 0], outside of the tensor: "
        "k_cache has the shape (8, 4, 1, 16)."
    ),
    "write-to-input": "Thread 37 writes x[1, 1], but x is an input (const).",
    "output-unwritten": "out[3] was never written, nor were 2 other elements of out.",
    "output-read": "Thread 37 reads out[2] before it was written.",
    "no-address": "Thread 37 writes memory through the address 0x10, next to a null pointer.",
    "no-end": "Thread 37 was still running after 100000000 steps.",
    "assertion": "The assertion `i < n && n > 0` does not hold for thread 37.",
    "bad-launch": "k<float> cannot be launched: more than 1024 threads in a block.",
}


@pytest.mark.parametrize("kind", REPORTS)
def test_each_kind_says_what_happened_and_where(kind):
    found = error(REPORTS[kind])
    assert (found.kind, str(found).split("\n")[0][: len(SENTENCES[kind])]) == (
        kind,
        SENTENCES[kind],
    )
    if kind == "output-unwritten":
        assert (found.line, found.thread, found.name) == (None, None, "out")
    else:
        line = TEXT.split("\n")[found.line - 1].strip()
        assert (
            found.source == "your code"
            and f"\n    your code, line {found.line}: {line}" in str(found)
        )
        assert found.kernel == "k<float>"
    if kind not in ("output-unwritten", "bad-launch"):
        assert (found.block, found.thread) == ((1, 2, 0), (37, 0, 0))
        assert str(found).endswith("(k<float>, block (1, 2), thread 37)")
    assert (
        "None" not in str(found).replace("that is None", "")
        and len(str(found).split("\n")) <= 5
    )


@pytest.mark.parametrize("kind", REPORTS)
def test_errors_travel_between_processes(kind):
    found = error(REPORTS[kind])
    again = pickle.loads(pickle.dumps(found))
    assert (
        type(again) is KernelError and str(again) == str(found) and vars(again) == vars(found)
    )
    assert again._render_traceback_() == [f"KernelError: {found}"]


def test_both_lines_of_a_race_are_shown_with_their_threads():
    assert str(error(REPORTS["race"])).split("\n")[1:3] == [
        "    your code, line 4: float sum = scores[63 - threadIdx.x];    (thread 37)",
        "    your code, line 3: scores[threadIdx.x] = x[threadIdx.x];    (thread 3)",
    ]


@pytest.mark.parametrize(
    "change, kind",
    [
        # another line, not part of an update
        ((here(5, 5), here(5, 4)), "race"),
        (("both_update 1", "both_update 0"), "race"),
        (("other_linear 3\n", "other_linear 3\nother_block 0 0 0\n"), "non-atomic-update"),
        (("other_linear 3\n", "other_linear 33\n"), "non-atomic-update"),
        ((here(5, 5), here(3, 3)), "race"),  # no update
    ],
)
def test_an_update_counts_as_one_only_where_both_do_it(change, kind):
    assert error(REPORTS["non-atomic-update"].replace(*change)).kind == kind


def test_a_negative_byte_of_dynamic_memory_is_out_of_bounds():
    assert (
        error(REPORTS["dynamic-shared-too-small"].replace("byte 256", "byte -4")).kind
        == "shared-out-of-bounds"
    )
    none = error(
        REPORTS["dynamic-shared-too-small"]
        .replace("bytes 256", "bytes 0")
        .replace("byte 256", "byte 0")
    )
    assert (
        "smem[0], which ends at byte 4 of the dynamic shared memory, but the launch gave none."
        in str(none)
    )


@pytest.mark.parametrize(
    "change, kind, words",
    [
        # not the block that the table named
        (("byte -44", "byte -300"), "out-of-bounds", "k_cache[-2, 3, 0, 5], outside"),
        (("36 -1 block", "36 8 block"), "out-of-bounds", "k_cache[-1, 3, 0, 5]"),
        (("36 -1 block_table", "36 -1 other"), "out-of-bounds", "k_cache[-1, 3, 0, 5]"),
        # the second half of a number
        (("byte -44", "byte -42"), "block-table", "block_table[2, 1] holds -1"),
        # the index was unsigned
        (("byte -44", f"byte {2**34 - 44}"), "block-table", "reads k_cache[-1, 3, 0, 5]"),
    ],
)
def test_a_table_entry_is_blamed_only_when_it_led_there(change, kind, words):
    found = error(REPORTS["block-table"].replace(*change))
    assert found.kind == kind and words in str(found)


@pytest.mark.parametrize(
    "name, byte, table, words",
    [
        ("k_cache", 2036, "36 7 block_table", "reads k_cache[7, 3, 0, 13] and the 3 after it"),
        ("row", 24, "36 0 block_table", "reads row[0, 6] and the 3 after it"),
        ("one", 0, "36 -1 block_table", "reads one and the 3"),
    ],
)
def test_a_wide_access_at_the_end_of_a_block_that_is_there_is_no_fault_of_the_table(
    name, byte, table, words
):
    report = (
        "kind out-of-bounds\naccess read\n"
        + here(4)
        + THREAD
        + memory(name, byte, 32, "tensor").replace("size 4", "size 16")
    )
    found = error(f"{report}table {table}\n")
    assert found.kind == "out-of-bounds" and words in str(found)


def test_words_for_what_is_not_usual():
    assert "is one element long" in str(
        error(REPORTS["shared-out-of-bounds"].replace("bytes 256", "bytes 4"))
    )
    assert "asks for the value of lane 9, which does not take part" in str(
        error(REPORTS["absent-lane"].replace("text absent", "text source lane\nsource 9"))
    )
    assert "which leaves out lane 5 itself" in str(
        error(REPORTS["absent-lane"].replace("text absent", "text caller is not in the mask"))
    )
    assert "Thread 37 waits at one __syncthreads() and thread 3 at another." in str(
        error(
            REPORTS["divergent-barrier"]
            .replace("waiting 120\nreturned 8\n", "")
            .replace(here(3), here(3, 4))
        )
    )
    assert "The function launched no kernel." in str(
        error(REPORTS["output-unwritten"].replace("launches 1", "launches 0"))
    )
    one = error(
        "kind output-unwritten\nmissing 4\nlaunches 1\n" + memory("one", 0, 4, "tensor")
    )
    assert str(one).startswith("one was never written.")
    assert "a pointer that leads to no tensor" in str(
        error(REPORTS["no-address"].replace("0x10", "0x7f0000000000"))
    )
    for null in ("0", "0x0", "(nil)"):
        assert "through a null pointer" in str(
            error(REPORTS["no-address"].replace("0x10", null))
        )
    assert str(error("kind bad-launch\nkernel k\ntext too much")).startswith(
        "The launch of k failed: too much."
    )
    assert str(error("kind bad-launch\ntext it allows no more")) == "it allows no more."
    assert "Thread 37 reads k_cache[7, 3, 0, 13] and the 3 after it, outside" in str(
        error(REPORTS["out-of-bounds"].replace("byte 2048\nsize 4", "byte 2036\nsize 16"))
    )
    assert (
        str(error("kind something-new\ntext more")) == "The kernel failed: something-new. more"
    )
    assert "has the elements 0 to 1." in str(
        error(REPORTS["shared-out-of-bounds"].replace("bytes 256", "bytes 8"))
    )
    assert "k_cache[8, 0, 0, 0] and the 1 after it" in str(
        error(REPORTS["out-of-bounds"].replace("size 4", "size 8"))
    )
    assert "and the" not in str(error(REPORTS["output-read"].replace("size 4", "size 16")))
    rows = error(
        "kind shared-out-of-bounds\naccess read\n"
        + here(7)
        + THREAD
        + memory("tile", 144, 144)
    )
    assert "reads tile[4][0], but tile is tile[4][9]" in str(rows)


@pytest.mark.parametrize(
    "index, is_far",
    [
        (2**30, False),
        (2**30 + 1, True),
        (-(2**30), False),
        (-(2**30) - 1, True),
        (8 * 64, False),
    ],
)
def test_an_index_that_is_far_away_may_have_run_over(index, is_far):
    found = str(error(REPORTS["out-of-bounds"].replace("byte 2048", f"byte {4 * index}")))
    assert ("does the calculation fit into an int" in found) == is_far


@pytest.mark.parametrize(
    "number, words", [(1, "gave 1 byte."), (2, "gave 2 bytes."), (0, "gave none.")]
)
def test_bytes_are_counted_in_words(number, words):
    assert words in str(
        error(REPORTS["dynamic-shared-too-small"].replace("bytes 256", f"bytes {number}"))
    )


@pytest.mark.parametrize(
    "waiting, returned, words",
    [
        (
            1,
            2,
            (
                "Thread 37 waits at __syncthreads(), "
                "and 2 have returned from the kernel, thread 3 among them."
            ),
        ),
        (
            2,
            1,
            (
                "2 threads wait at __syncthreads(), thread 37 among them, "
                "and thread 3 has returned from the kernel."
            ),
        ),
        (
            3,
            3,
            (
                "3 threads wait at __syncthreads(), thread 37 among them, "
                "and 3 have returned from the kernel, thread 3 among them."
            ),
        ),
    ],
)
def test_one_thread_is_no_several(waiting, returned, words):
    report = REPORTS["divergent-barrier"].replace(
        "waiting 120\nreturned 8", f"waiting {waiting}\nreturned {returned}"
    )
    assert str(error(report)).split("\n")[0] == words


def test_where_the_absent_lane_is_is_said_if_it_waits():
    assert "waits for lanes 16 to 31. Thread 3 waits at __syncthreads instead.\n" in str(
        error(REPORTS["absent-lane"])
    )
    assert "waits for lanes 16 to 31.\n" in str(
        error(REPORTS["absent-lane"].replace("other_what __syncthreads\n", ""))
    )


def test_a_row_of_a_table_ends_in_padding():
    padding = "A row is filled with -1 after its sequence's last block."
    assert padding in str(error(REPORTS["block-table"]))
    for value, byte in ((8, 2048), (-2, -512)):
        found = error(
            REPORTS["block-table"]
            .replace("36 -1", f"36 {value}")
            .replace("byte -44", f"byte {byte}")
        )
        assert (
            found.kind == "block-table"
            and f"holds {value}, which is no block" in str(found)
            and padding not in str(found)
        )


def test_how_many_elements_were_not_written():
    def says(missing):
        return str(
            error(REPORTS["output-unwritten"].replace("missing 12", f"missing {missing}"))
        ).split("\n")[0]

    assert says(4) == "out[3] was never written."
    assert says(8) == "out[3] was never written, nor was 1 other element of out."
    assert says(12) == "out[3] was never written, nor were 2 other elements of out."


@pytest.mark.parametrize(
    "address, near",
    [("0x1", True), ("0xfffff", True), ("0x100000", False), ("0x1fffff", False)],
)
def test_a_small_address_is_next_to_a_null_pointer(address, near):
    words = (
        f"writes memory through the address {address}, next to a null pointer."
        if near
        else "a pointer that leads to no tensor"
    )
    assert words in str(error(REPORTS["no-address"].replace("0x10", address)))


def test_of_what_a_wide_access_and_a_launch_asked_for():
    found = error(
        "kind misaligned\naccess read\n"
        + here(4)
        + THREAD
        + memory("out", 4, 24, "tensor").replace("size 4", "size 16")
    )
    assert str(found).startswith(
        "Thread 37 reads out[1] and what follows as 16 bytes at once, "
        "but their address is no multiple of 16."
    )
    asked = "The launch asks for (2, 1, 1) blocks of (2048, 1, 1) threads"
    assert f"{asked} and 64 bytes of dynamic shared memory." in str(
        error(REPORTS["bad-launch"])
    )
    assert f"{asked}." in str(
        error(REPORTS["bad-launch"].replace("shared_bytes 64", "shared_bytes 0"))
    )
    assert "It was asked for 64 bytes." in str(
        error("kind bad-launch\ntext too much\nshared_bytes 64")
    )
    assert "asked" not in str(error("kind bad-launch\ntext too much\nshared_bytes 0"))


def test_an_update_from_two_blocks_names_both():
    report = REPORTS["non-atomic-update"].replace(OTHER, "other_block 0 2 0\n")
    assert str(error(report)).startswith(
        "Thread 37 of block (1, 2) and a thread of block (0, 2) both update total"
    )


@pytest.mark.parametrize(
    "one, other, kind",
    [
        (0, 31, "missing-syncwarp"),
        (31, 32, "race"),
        (32, 63, "missing-syncwarp"),
        (63, 64, "race"),
        (64, 95, "missing-syncwarp"),
        (32, 31, "race"),
        (96, 64, "race"),
    ],
)
def test_a_warp_has_32_lanes(one, other, kind):
    report = (
        REPORTS["race"]
        .replace("linear 37\n", f"linear {one}\n", 1)
        .replace("other_linear 3\n", f"other_linear {other}\n")
    )
    assert error(report).kind == kind


@pytest.mark.parametrize(
    "gap, source, kind",
    [
        (1, "a", "non-atomic-update"),
        (3, "a", "non-atomic-update"),
        (4, "a", "race"),
        (1, "b", "race"),
    ],
)
def test_an_update_in_two_lines_has_them_close_together(gap, source, kind):
    texts = {
        "a": "\n".join(["", "", "old = total;", *[""] * (gap - 1), "total = old + 1;"]),
        "b": "\n".join(["", "", "", "total = old + 1;"]),
    }
    lines = f"line 3\nfile a\nother_line {3 + gap}\nother_file {source}\n"
    report = parse(
        "kind race\naccess read\nother_access write\nboth_update 1\n"
        + lines
        + THREAD
        + OTHER
        + memory("total", 0, 4)
    )
    assert explain(report, texts, TENSORS).kind == kind


def test_a_report_has_what_the_runtime_wrote():
    report = parse(
        "kind race\npc 0x10 /a folder/of ours.so\ntable 8 -1 block_table\n\nblock 1 2 3\n"
        "size 4\nname x"
    )
    assert (report.kind, report.pc, report.tables) == (
        "race",
        (16, "/a folder/of ours.so"),
        ((8, -1, "block_table"),),
    )
    assert (
        report.block,
        report.size,
        report.name,
        report.thread,
        report.here,
        report.there,
    ) == ((1, 2, 3), 4, "x", None, None, None)
    assert copy.copy(report) == report and not hasattr(report, "__len__")
    assert parse("").kind == "unknown" and parse("") == parse("\n")


def test_an_error_without_a_line_still_says_the_rest():
    found = error(REPORTS["race"].replace(here(4, 3), "pc 0x10 /no/such/library.so\n"))
    assert found.line is None and "Thread 37 reads scores[3]" in str(found)


@pytest.mark.parametrize(
    "index, words",
    [
        ((5, 0, 0), "5"),
        ((5, 1, 0), "(5, 1)"),
        ((0, 0, 2), "(0, 0, 2)"),
        ((0, 0, 0), "0"),
    ],
)
def test_positions_show_the_dimensions_in_use(index, words):
    assert position(index) == words


def test_lanes_of_a_mask():
    assert [lanes(mask) for mask in (1, 1 << 31, 0b1101, 0xFFFFFFFF)] == [
        "lane 0",
        "lane 31",
        "lanes 0, 2 to 3",
        "lanes 0 to 31",
    ]


@pytest.mark.parametrize(
    "line, update",
    [
        ("x += v;", True),
        ("total[0] = total[0] + v;", True),
        ("if (s > best) best = s;", True),
        ("count++;  // one", True),
        ("++*count;", True),
        ("bins[x[i]] += 1;", True),
        ("*total -= x[i];", True),
        ("p->n += 1;", True),
        ("largest = max(largest, x[threadIdx.x]);", True),
        ("sums[t] += sums[t + d];", False),
        ("if (t < s) a[t] = a[t] + a[t + s];", False),
        ("out[i] = tile[0];", False),
        ("tile[i] = tile[i + 1];", False),
        ("sum[lane] = v;", False),
        ("if (a == b) f(a);", False),
        ("", False),
    ],
)
def test_lines_that_update(line, update):
    assert updates_itself(line) == update


def test_updates_in_two_lines():
    assert updates_in_two_lines("int place = *count;", "*count = place + 1;")
    assert updates_in_two_lines("if (v > best)", "best = v;")
    assert not updates_in_two_lines("float x = s;", "s = s * 2;")
    assert not updates_in_two_lines("float x = other;", "s = x;")
    assert not updates_in_two_lines("all = max(all, value);", "value = all;")
    assert not updates_in_two_lines("scores[t] = x;", "__syncthreads();")


@st.composite
def layouts(draw):
    """Shape and strides of a tensor without overlap, its dimensions in any order, with gaps or
    without.
    """
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    strides, stride = [0] * len(shape), draw(st.integers(1, 3))
    for dimension in draw(st.permutations(range(len(shape)))):
        strides[dimension] = stride
        stride = stride * shape[dimension] + draw(st.integers(0, 3))
    return shape, strides


@given(layouts())
def test_each_element_of_a_tensor_is_found(layout):
    shape, strides = layout
    for index in itertools.product(*map(range, shape)):
        assert (
            tensor_index(
                shape, strides, sum(i * s for i, s in zip(index, strides, strict=True))
            )
            == index
        )


@given(layouts(), st.integers(-1000, 1000))
def test_an_index_outside_leads_to_the_same_place(layout, element):
    shape, strides = layout
    index = tensor_index(shape, strides, element)
    if index is not None:
        assert sum(i * s for i, s in zip(index, strides, strict=True)) == element
        assert all(0 <= i < size for i, size in zip(index[1:], shape[1:], strict=True))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(-200, 200))
def test_every_place_around_a_contiguous_tensor_has_an_index(shape, element):
    assert tensor_index(shape, torch.zeros(shape).stride(), element) is not None


def test_elements_have_names():
    assert tensor_element("x", torch.zeros(2, 3), 13) == "byte 13 of x"
    assert tensor_element("x", torch.zeros(2, 6)[:, ::2], 4) == "byte 4 of x"
    assert (
        tensor_element("x", torch.zeros(()), 0) == "x"
        and tensor_element("x", torch.zeros(()), 4) == "x[1]"
    )
    assert tensor_element("x", torch.zeros(0, 3), 4) == "x[0, 1]"
    assert shared_element("s", 0, 4, 4) == "s" and shared_element("s", 4, 4, 4) == "s[1]"
    assert (
        shared_element("s", 0, 4, 8) == "s[0]"
        and shared_element("s", 2, 4, 4) == "byte 2 of s"
    )
    assert shared_element("s", 14, 4, 64) == "byte 14 of s (in s[3])"
    assert shared_element("tile", 37 * 4, 4, 4 * 9 * 4, (9,)) == "tile[4][1]"
    assert shared_element("tile", -4, 4, 4 * 9 * 4, (9,)) == "tile[-1][8]"
    assert (
        shared_element("cube", 4 * (12 * 1 + 4 * 2 + 3), 4, 4 * 24, (3, 4)) == "cube[1][2][3]"
    )
    assert tensor_element("x", torch.zeros(3).expand(2, 3), 4) == "x[0, 1]"


def test_the_sizes_of_a_shared_array_are_read_from_its_declaration():
    assert inner_sizes("tile", {"a": "", "your code": TEXT}, "your code", 7) == (9,)
    assert inner_sizes("scores", {"your code": TEXT}, "your code", 7) == ()
    text = (
        "__shared__ float a[2][N];\n"
        "#define N 5\n"
        "__shared__ float a[2][M], b[3][4][N];\n"
        "x = a[1][1];"
    )
    assert (
        inner_sizes("a", {"t": text}, "t", 1) == (5,)
        and inner_sizes("a", {"t": text}, "t", 4) == ()
    )
    assert inner_sizes("b", {"t": text}, "t", 4) == (4, 5)


def test_a_file_of_the_compiler_is_matched_with_the_longest_name():
    texts = {"a.cu": "1\n2", "kernels/a.cu": "3\n  4"}
    assert source_line(texts, "/folder/kernels/a.cu", 2) == SourceLine("kernels/a.cu", 2, "4")
    assert source_line(texts, "/folder/a.cu", 1) == SourceLine("a.cu", 1, "1")
    assert (
        source_line(texts, "/folder/b.cu", 1) is None and source_line(texts, None, 1) is None
    )
    assert source_line({"z.cu": "1", "a/z.cu": "2"}, "/folder/a/z.cu", 1).source == "a/z.cu"
    behind = source_line(texts, "a.cu", 9)
    assert behind == SourceLine("a.cu", 9, "") and str(behind) == "a.cu, line 9"


def tool(name: str):
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("addr2line", marks=tool("addr2line")),
        pytest.param("llvm-symbolizer", marks=tool("llvm-symbolizer")),
    ],
)
def test_a_place_in_the_code_has_a_line(tmp_path, monkeypatch, name):
    text = (
        "static inline int twice(int* x) {\n"
        "  return *x * 2;\n"
        "}\n"
        "int f(int* x) {\n"
        "  return twice(x);\n"
        "}\n"
    )
    (tmp_path / "code.cpp").write_text(f'#line 1 "your code"\n{text}')
    library = tmp_path / "library.so"
    subprocess.run(
        [
            "c++",
            "-shared",
            "-fPIC",
            "-O1",
            "-g",
            "-gdwarf-4",
            "-o",
            library,
            tmp_path / "code.cpp",
        ],
        check=True,
    )
    symbols = subprocess.run(
        ["nm", library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (start,) = [int(line.split()[0], 16) for line in symbols if line.endswith("_Z1fPi")]
    monkeypatch.setattr(
        "lessons_lib.cuda_on_cpu.source_lines.shutil.which",
        lambda tool: tool if tool == name else None,
    )
    found = look_up(str(library), [start + 1, 1, start + 1], {"your code": text})
    assert found[1] is None and found[0] == found[2] and found[0].number in (2, 4, 5)
    monkeypatch.setattr("lessons_lib.cuda_on_cpu.source_lines.shutil.which", lambda tool: None)
    assert look_up(str(library), [start + 1, 1], {"your code": text}) == [None, None]


ADDR2LINE = (
    "0x0f\n/usr/include/math.h:7\n/folder/your code:2 (discriminator 3)\n"
    "/folder/your code:5\n0x1f\n??:0\n"
)
ATOS = (
    (
        "sqrt (in libm.so) (math.h:7)\nf(float*) (in library.so) (your code:2)\n"
        "k() (in library.so) (your code:5)\n"
    ),
    "0x1f (in library.so) + 12\n",
)


@pytest.mark.parametrize(
    "name, answers",
    [("addr2line", [ADDR2LINE]), ("llvm-symbolizer", [ADDR2LINE]), ("atos", ATOS)],
)
def test_each_tool_is_asked_for_the_instruction_before_and_its_innermost_line_of_ours_counts(
    tmp_path, monkeypatch, name, answers
):
    tool = tmp_path / name
    (tmp_path / "0xf").write_text(answers[0])
    (tmp_path / "0x1f").write_text(answers[-1])
    tool.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *0xf*) cat {tmp_path}/0xf;; *0x1f*) cat {tmp_path}/0x1f;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(
        "lessons_lib.cuda_on_cpu.source_lines.shutil.which",
        lambda other: str(tool) if other == name else None,
    )
    found = look_up("library.so", [0x10, 0x20], {"your code": "1\n  2\n3\n4\n5"})
    assert found == [SourceLine("your code", 2, "2"), None]


def test_a_tool_that_fails_or_says_what_is_no_text_leaves_the_line_out(tmp_path, monkeypatch):
    tool = tmp_path / "addr2line"
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for script, expected in (
        ("printf '0x0f\\n/\\377/your code:1\\n'", SourceLine("your code", 1, "1")),
        ("exit 1", None),
        ("echo your code:1", None),
        ("echo 0x0f; echo 0x1f", None),
    ):
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        assert look_up("library.so", [0x10], {"your code": "1"}) == [expected]
    tool.write_text("#!/bin/sh\necho 0x0f; echo '/folder/part: two.cu:1'\n")
    assert look_up("library.so", [0x10], {"part: two.cu": "1"}) == [
        SourceLine("part: two.cu", 1, "1")
    ]
    tool.write_text("#!/no/such/shell\n")
    assert look_up("library.so", [0x10], {"your code": "1"}) == [None]


def test_an_address_of_this_process_has_a_library(tmp_path):
    (tmp_path / "code.cpp").write_text(
        'extern "C" { int first() { return 1; } int second() { return 2; } }'
    )
    library = tmp_path / "here.so"
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-o", library, tmp_path / "code.cpp"], check=True
    )
    elsewhere = bytes(tmp_path) + b"/th\xffre.so"
    shutil.copy(library, elsewhere)
    for path, name in (
        (str(library), str(library)),
        (elsewhere, elsewhere.decode(errors="replace")),
    ):
        code = ctypes.CDLL(os.fsdecode(path))
        places = [
            offset_in_library(ctypes.cast(function, ctypes.c_void_p).value)
            for function in (code.first, code.second)
        ]
        symbols = subprocess.run(
            ["nm", library], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert places == [
            (
                name,
                int(
                    next(line for line in symbols if line.endswith(f" T {function}")).split()[
                        0
                    ],
                    16,
                ),
            )
            for function in ("first", "second")
        ]
    assert offset_in_library(0) is None
