"""Faults of order and of shares, planted in the ladder's kernels: a result may be right all
the same, but checked mode finds them.
"""

import pytest

from decode_calls import HALF, assert_right, check, prepared
from lessons_lib.cuda.library import KernelError, build_cuda
from paged_attention.ladder.decode import Shape, rung_texts
from paged_batch import Batch

# Likely faults, by rung and file: (what it does, old text, new text). Barriers that are
# missing are in test_kernel_barriers.py. What changes numbers fails test_ladder.py by itself.
FAULTS = {
    (5, "attend_staged.cuh"): [
        ("a wait that is one group short", "wait<num_stages - 1>", "wait<num_stages>"),
        (
            "an empty group that is not closed",
            "    copies.close_group();",
            "    if (tile < end) copies.close_group();",
        ),
    ],
    (7, "balanced.cuh"): [
        ("a wait too short, in rung 7", "wait<num_stages - 1>", "wait<num_stages>"),
        ("the count before the parts", "__threadfence();  // the parts", "// the parts"),
        (
            "a count that is not set back",
            "if (shared.is_last) work.arrived",
            "if (false) work.arrived",
        ),
        (
            "a count that is not atomic",
            "atomicAdd(&work.arrived[item.first_part], 1)",
            "work.arrived[item.first_part]++",
        ),
    ],
    (6, "6_split_kv.cu"): [
        (
            "splits that overlap",
            "num_tiles * (split + 1) / num_splits",
            "num_tiles * (split + 1) / num_splits + 1",
        ),
    ],
    (9, "9_plans_itself.cu"): [
        ("no zeros for an empty context", "i < num_empty", "i < 0"),
        ("heads of the last plan", "= header.heads_at_once", "= 1"),
        ("blocks without work that look for it", "if (!has_work) return", "if (false) return"),
    ],
    (9, "plan.cuh"): [
        (
            "parts of two rows in one place",
            "item.first_part = 2 * first_block",
            "item.first_part = first_block",
        ),
        ("a part too few", "- first_block + 1", "- first_block"),
    ],
    (9, "plan_share.cuh"): [
        ("a row's end in the next block", "rows.with(share.end - 1)", "rows.with(share.end)"),
        (
            "own rows before the parts",
            "if (n >= num_parts()) return first_row + is_first_cut + n - num_parts();",
            "if (n > 0) return first_row + n;",
        ),
    ],
}
CASES = [(*place, *fault) for place, faults in FAULTS.items() for fault in faults]
FAULTY = Batch((100, 0, 33, 300, 1), 8, 2, 128, 16, HALF)
# Rung 9 chooses for itself what to cut: here two rows, of which a block has a part each.
CUT = Batch((100, 0, 33, 2000, 2000, 1), 8, 2, 128, 16, HALF)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "number, file, fault, there, instead", CASES, ids=[case[2] for case in CASES]
)
def test_a_fault_is_found(number, file, fault, there, instead):
    texts = rung_texts(number, Shape(HALF, 128, 4, 16))
    assert there in texts[f"ladder/{file}"], (
        "the kernel has changed; this fault has to change with it"
    )
    texts[f"ladder/{file}"] = texts[f"ladder/{file}"].replace(there, instead)
    library = build_cuda(
        *texts.values(), names=tuple(texts), target="checked", name="ladder_fault"
    )
    how = {"num_splits": 3} if number == 6 else {"num_blocks": 5} if number >= 7 else {}
    batch = CUT if number == 9 else FAULTY
    with pytest.raises((KernelError, AssertionError)):
        decode, arguments, exact = prepared(number, batch, "checked", library, **how)
        for _ in range(2):
            assert_right(decode(**arguments), exact)


@pytest.mark.slow
def test_without_a_fault_the_batch_that_is_cut_is_right():
    check(9, CUT, "checked", num_blocks=5)
