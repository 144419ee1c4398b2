"""What the runtime reports becomes an error in words: what happened, the learner's line, the
thread, and what to look at. What kernels show by themselves is in the other files.
"""

import pickle

import pytest
import torch

from lessons_lib import KernelError
from lessons_lib.cuda_on_cpu.report_messages import explain
from lessons_lib.cuda_on_cpu.reports import parse

TEXT = """__global__ void k(const float* x, float* out) {
  __shared__ float scores[64];
  scores[threadIdx.x] = x[threadIdx.x];
  float sum = scores[63 - threadIdx.x];
  total += sum;
  __shared__ float tile[ROWS][8 + 1];
  out[threadIdx.x] = tile[1][2];
}
constexpr int ROWS = 4;
__device__ void share(int i) { weights[i] = weight; sum += weights[i]; }
"""
TENSORS = {
    "k_cache": torch.zeros(8, 4, 1, 16),
    "block_table": torch.zeros(3, 4, dtype=torch.int32),
    "out": torch.zeros(6),
    "x": torch.zeros(4, 8)[:, ::2],
    "one": torch.zeros(()),
    "row": torch.zeros(1, 8),
}
THREAD = "kernel k<float>; block 1 2 0; thread 37 0 0; linear 37"
OTHER = "other_linear 3; other_thread 3 0 0"
READ, WRITE = "access read", "access write"
OTHER_READ, OTHER_WRITE = "other_access read", "other_access write"


def at(line: int, other: int | None = None) -> str:
    others = f"; other_line {other}; other_file your code" if other else ""
    return f"line {line}; file your code{others}"


def memory(name: str, byte: int, size: int, kind: str = "shared", wide: int = 4) -> str:
    """The keys of an access to `wide` bytes at `byte` of a variable or tensor of `size` bytes,
    of 4 bytes an element.
    """
    return f"memory {kind}; name {name}; byte {byte}; size {wide}; bytes {size}; element 4"


SCORES = memory("scores", 12, 256)
CACHE = memory("k_cache", -44, 2048, "tensor")
ABSENT = "what __shfl_down_sync; mask ffffffff; lane 5; text absent; lanes_missing 4294901760"
# What the runtime writes, each key in a line of its own, and what a learner reads first.
REPORTS = {
    "race": (
        f"kind race; {READ}; {OTHER_WRITE}; {at(4, 3)}; {THREAD}; {SCORES}; {OTHER}",
        "Thread 37 reads scores[3], which thread 3 wrote, and no __syncthreads() lies between "
        "the two.",
    ),
    "missing-syncwarp": (
        f"kind race; {WRITE}; {OTHER_READ}; {at(3, 4)}; {THREAD}; {SCORES}; other_linear 40; "
        "other_thread 40 0 0",
        "Thread 37 writes scores[3], which thread 40 of the same warp read, and neither "
        "__syncwarp() nor",
    ),
    "non-atomic-update": (
        f"kind race; both_update 1; {READ}; {OTHER_WRITE}; {at(5, 5)}; {THREAD}; {OTHER}; "
        + memory("total", 0, 4),
        "Thread 37 and thread 3 both update total, and nothing keeps them apart.",
    ),
    "race-between-blocks": (
        f"kind race; {WRITE}; {OTHER_WRITE}; other_block 0 2 0; other_linear 37; {at(7)}; "
        f"{THREAD}; {memory('out', 8, 24, 'tensor')}",
        "Thread 37 of block (1, 2) writes out[2], which block (0, 2) wrote in the same ",
    ),
    "divergent-barrier": (
        f"kind divergent-barrier; waiting 120; returned 8; {at(3)}; {THREAD}; {OTHER}",
        "120 threads wait at __syncthreads(), thread 37 among them, and 8 have returned from "
        "the kernel, thread 3 among them.",
    ),
    "absent-lane": (
        f"kind absent-lane; {ABSENT}; other_what __syncthreads; {at(3, 4)}; {THREAD}; {OTHER}",
        "Lane 5 (thread 37) calls __shfl_down_sync with the mask 0xffffffff, and waits for "
        "lanes 16 to 31. Thread 3 waits at __syncthreads instead.",
    ),
    "shared-out-of-bounds": (
        f"kind shared-out-of-bounds; {WRITE}; {at(3)}; {THREAD}; {memory('scores', 256, 256)}",
        "Thread 37 writes scores[64], but scores has the elements 0 to 63.",
    ),
    "dynamic-shared-too-small": (
        f"kind shared-out-of-bounds; {WRITE}; {at(3)}; {THREAD}; "
        + memory("smem", 256, 256, "dynamic"),
        "Thread 37 writes smem[64], which ends at byte 260 of the dynamic shared memory, but "
        "the launch gave 256 bytes.",
    ),
    "shared-uninitialised": (
        f"kind shared-uninitialised; {READ}; {at(4)}; {THREAD}; {SCORES}",
        "Thread 37 reads scores[3] before any thread of the block has written it.",
    ),
    "block-table": (
        f"kind out-of-bounds; {READ}; {at(4)}; {THREAD}; {CACHE}; table 0 7 block_table; "
        "table 36 -1 block_table",
        "block_table[2, 1] holds -1, which is no block of k_cache (blocks 0 to 7), and thread "
        "37 reads k_cache[-1, 3, 0, 5].",
    ),
    "out-of-bounds": (
        f"kind out-of-bounds; {READ}; {at(4)}; {THREAD}; "
        f"{memory('k_cache', 2048, 2048, 'tensor')}; table 36 7 block_table",
        "Thread 37 reads k_cache[8, 0, 0, 0], outside of the tensor: k_cache has the shape "
        "(8, 4, 1, 16).",
    ),
    "write-to-input": (
        f"kind write-to-input; {WRITE}; {at(3)}; {THREAD}; {memory('x', 40, 120, 'tensor')}",
        "Thread 37 writes x[1, 1], but x is an input (const).",
    ),
    "output-unwritten": (
        f"kind output-unwritten; missing 12; launches 1; {memory('out', 12, 24, 'tensor')}",
        "out[3] was never written, nor were 2 other elements of out.",
    ),
    "output-read": (
        f"kind output-read; {READ}; {at(7)}; {THREAD}; {memory('out', 8, 24, 'tensor')}",
        "Thread 37 reads out[2] before it was written.",
    ),
    "misaligned": (
        f"kind misaligned; {READ}; {at(4)}; {THREAD}; {memory('out', 4, 24, 'tensor', 16)}",
        "Thread 37 reads out[1] and what follows as 16 bytes at once, but their address is no "
        "multiple of 16.",
    ),
    "no-address": (
        f"kind no-address; {WRITE}; size 4; address 0x10; {at(7)}; {THREAD}",
        "Thread 37 writes memory through the address 0x10, next to a null pointer.",
    ),
    "no-end": (
        f"kind no-end; steps 100000000; {at(4)}; {THREAD}",
        "Thread 37 was still running after 100000000 steps.",
    ),
    "assertion": (
        f"kind assertion; text i < n && n > 0; {at(3)}; {THREAD}",
        "The assertion `i < n && n > 0` does not hold for thread 37.",
    ),
    "bad-launch": (
        "kind bad-launch; kernel k<float>; text more than 1024 threads in a block; "
        f"grid 2 1 1; threads 2048 1 1; shared_bytes 64; {at(7)}",
        "k<float> cannot be launched: more than 1024 threads in a block.",
    ),
}


def explained(report: str, texts: dict[str, str]) -> KernelError:
    return explain(parse(report.replace("; ", "\n")), texts, TENSORS)


def error(kind: str, changes: dict[str, str] | None = None) -> KernelError:
    """The error for a report, with some of its words replaced by others."""
    report, _ = REPORTS[kind]
    for old, new in (changes or {}).items():
        assert old in report
        report = report.replace(old, new, 1)
    return explained(report, {"your code": TEXT})


@pytest.mark.parametrize("kind", REPORTS)
def test_each_kind_says_what_happened_and_where(kind):
    found = error(kind)
    first, *others = str(found).split("\n")
    assert (found.kind, first[: len(REPORTS[kind][1])]) == (kind, REPORTS[kind][1])
    assert "None" not in str(found).replace("that is None", "") and len(others) <= 4
    if kind == "output-unwritten":
        assert (found.line, found.thread, found.name) == (None, None, "out")
    else:
        line = TEXT.split("\n")[found.line - 1].strip()
        assert (found.source, found.kernel) == ("your code", "k<float>")
        assert others[0].startswith(f"    your code, line {found.line}: {line}")
    if kind not in ("output-unwritten", "bad-launch"):
        assert (found.block, found.thread) == ((1, 2, 0), (37, 0, 0))
        assert others[-1].endswith("(k<float>, block (1, 2), thread 37)")
    again = pickle.loads(pickle.dumps(found))  # errors travel between processes
    assert (type(again), str(again), vars(again)) == (KernelError, str(found), vars(found))
    assert again._render_traceback_() == [f"KernelError: {found}"]


def test_both_lines_of_a_race_are_shown_with_their_threads():
    assert str(error("race")).split("\n")[1:3] == [
        "    your code, line 4: float sum = scores[63 - threadIdx.x];    (thread 37)",
        "    your code, line 3: scores[threadIdx.x] = x[threadIdx.x];    (thread 3)",
    ]


@pytest.mark.parametrize(
    "base, changes, kind",
    [
        # an update is one only where both do it, in a line that is part of one
        ("non-atomic-update", {at(5, 5): at(5, 4)}, "race"),
        ("non-atomic-update", {at(5, 5): at(3, 3)}, "race"),
        ("non-atomic-update", {"both_update 1": "both_update 0"}, "race"),
        # nor one of what is only read there
        ("non-atomic-update", {"name total": "name sum"}, "race"),
        ("non-atomic-update", {"name total": "name weights", at(5, 5): at(10, 10)}, "race"),
        ("non-atomic-update", {OTHER: f"{OTHER}; other_block 0 0 0"}, "non-atomic-update"),
        ("non-atomic-update", {"other_linear 3": "other_linear 33"}, "non-atomic-update"),
        # before the first byte, more memory would not help
        ("dynamic-shared-too-small", {"byte 256": "byte -4"}, "shared-out-of-bounds"),
        # the table is blamed only when its entry led there
        ("block-table", {"byte -44": "byte -300"}, "out-of-bounds"),
        ("block-table", {"36 -1 block": "36 8 block"}, "out-of-bounds"),
        ("block-table", {"36 -1 block_table": "36 -1 other"}, "out-of-bounds"),
        ("block-table", {"byte -44": "byte -42"}, "block-table"),  # the middle of a number
        ("block-table", {"byte -44": f"byte {2**34 - 44}"}, "block-table"),  # unsigned
        ("block-table", {"36 -1": "36 8", "byte -44": "byte 2048"}, "block-table"),
        ("block-table", {"36 -1": "36 -2", "byte -44": "byte -512"}, "block-table"),
    ],
)
def test_what_was_reported_decides_the_kind(base, changes, kind):
    assert error(base, changes).kind == kind


WIDE = {"size 4": "size 16"}
ROW = {"k_cache; byte 2048": "row; byte 24", "bytes 2048": "bytes 32", "36 7": "36 0"}
ONE = {"k_cache; byte 2048": "one; byte 0", "bytes 2048": "bytes 4", "36 7": "36 -1"}
PADDING = "A row is filled with -1 after its sequence's last block."
FAR = "does the calculation fit into an int"
WAITING = "waiting 120; returned 8; "


@pytest.mark.parametrize(
    "base, changes, words",
    [
        ("block-table", {}, PADDING),
        ("block-table", {"byte -44": "byte -300"}, "reads k_cache[-2, 3, 0, 5], outside"),
        ("block-table", {"byte -44": f"byte {2**34 - 44}"}, "37 reads k_cache[-1, 3, 0, 5]"),
        (
            "out-of-bounds",
            {"byte 2048": "byte 2036"} | WIDE,
            "[7, 3, 0, 13] and the 3 after it",
        ),
        ("out-of-bounds", ROW | WIDE, "reads row[0, 6] and the 3 after it"),
        ("out-of-bounds", ONE | WIDE, "reads one and the 3"),
        ("out-of-bounds", {"byte 2048": f"byte {4 * 2**30 + 4}"}, FAR),
        ("out-of-bounds", {"byte 2048": f"byte {-4 * 2**30 - 4}"}, FAR),
        ("shared-out-of-bounds", {"bytes 256": "bytes 4"}, "is one element long"),
        (
            "shared-out-of-bounds",
            {at(3): at(7), memory("scores", 256, 256): memory("tile", 144, 144)},
            "writes tile[4][0], but tile is tile[4][9]",
        ),
        ("dynamic-shared-too-small", {"bytes 256": "bytes 0"}, "but the launch gave none."),
        ("dynamic-shared-too-small", {"bytes 256": "bytes 1"}, "but the launch gave 1 byte."),
        (
            "absent-lane",
            {"text absent": "text caller is not in the mask"},
            "out lane 5 itself",
        ),
        ("absent-lane", {"other_what __syncthreads; ": ""}, "waits for lanes 16 to 31.\n"),
        ("absent-lane", {"lanes_missing 4294901760": "lanes_missing 13"}, "lanes 0, 2 to 3."),
        (
            "divergent-barrier",
            {WAITING: "waiting 1; returned 2; "},
            "Thread 37 waits at __syncthreads(), and 2 have returned from the kernel, thr",
        ),
        (
            "divergent-barrier",
            {WAITING: "waiting 2; returned 1; "},
            "2 threads wait at __syncthreads(), thread 37 among them, and thread 3 has ",
        ),
        (
            "output-unwritten",
            {memory("out", 12, 24, "tensor"): memory("one", 0, 4, "tensor"), "12": "4"},
            "one was never written.",
        ),
        ("no-address", {"0x10": "0xfffff"}, "the address 0xfffff, next to a null pointer."),
        ("no-address", {"0x10": "0x100000"}, "a pointer that leads to no tensor"),
        ("no-address", {"0x10": "(nil)"}, "through a null pointer"),
        ("non-atomic-update", {OTHER: "other_block 0 2 0"}, "a thread of block (0, 2) both"),
        ("bad-launch", {"grid 2 1 1; threads 2048 1 1; ": ""}, "It was asked for 64 bytes."),
        (
            "no-end",
            {"kind no-end": "kind something-new; text more"},
            "failed: something-new. m",
        ),
        ("race", {at(4, 3): "pc 0x10 /no/such.so"}, "Thread 37 reads scores[3]"),
        ("race", {"block 1 2 0": "block 0 0 2"}, "block (0, 0, 2), thread 37)"),
    ],
)
def test_words_for_what_was_reported(base, changes, words):
    assert words in str(error(base, changes))


@pytest.mark.parametrize(
    "base, changes, words",
    [
        ("out-of-bounds", {"byte 2048": f"byte {4 * 2**30}"}, FAR),
        ("out-of-bounds", {"byte 2048": f"byte {-4 * 2**30}"}, FAR),
        ("block-table", {"36 -1": "36 8", "byte -44": "byte 2048"}, PADDING),
        ("output-read", WIDE, "and the"),
        ("bad-launch", {"grid 2 1 1; threads 2048 1 1; shared_bytes 64; ": ""}, "asked"),
    ],
)
def test_words_that_would_mislead_are_left_out(base, changes, words):
    assert words not in str(error(base, changes))


def test_a_library_may_be_in_a_folder_with_a_space_in_its_name():
    report = parse("kind race\npc 0x10 /a folder/of ours.so\nblock 1 2 3")
    assert report.pc == (16, "/a folder/of ours.so") and report.block == (1, 2, 3)


UPDATE = [
    "x += v;",
    "total[0] = total[0] + v;",
    "if (s > best) best = s;",
    "count++;  // one",
    "bins[x[i]] += 1;",
    "largest = max(largest, x[threadIdx.x]);",
    "int place = *count;\n*count = place + 1;",
    "if (v > best)\n\nbest = v;",
    "old = total;\n\n\ntotal = old + 1;",  # up to three lines
]
NO_UPDATE = [
    "sums[t] += sums[t + d];",
    "if (t < s) a[t] = a[t] + a[t + s];",
    "out[i] = tile[0];",
    "",
    "float x = s;\ns = s * 2;",
    "float x = other;\ns = x;",
    "all = max(all, value);\nvalue = all;",
    "scores[t] = x;\n__syncthreads();",
    "old = total;\n\n\n\ntotal = old + 1;",
    "old = total;\nif (lane == 0)\n  total = old + 1;",
    "old = total;\nif (lane == 0) total = old + 1;",
    "old = total;\nif (lane > 0) return;\ntotal = old + 1;",
]


@pytest.mark.parametrize("lines", UPDATE + NO_UPDATE)
def test_a_race_of_lines_that_update_is_told_as_an_update(lines):
    place = f"line 1; file a; other_line {1 + lines.count(chr(10))}; other_file a"
    report, _ = REPORTS["non-atomic-update"]
    found = explained(report.replace(at(5, 5), place), {"a": lines})
    assert found.kind == ("non-atomic-update" if lines in UPDATE else "race")


def test_two_texts_have_no_update_in_common():
    report, _ = REPORTS["non-atomic-update"]
    place = "line 1; file a; other_line 2; other_file b"
    texts = {"a": "old = total;", "b": "\ntotal = old + 1;"}
    assert explained(report.replace(at(5, 5), place), texts).kind == "race"
