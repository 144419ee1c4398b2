"""Faults planted in the ladder's kernels: checked mode finds them, or the results are wrong.
So test_ladder.py can fail.
"""

import pytest

from decode_calls import HALF, assert_right, check, prepared
from lessons_lib.cuda.library import KernelError, build_cuda
from paged_attention.ladder.decode import FP8, Shape, rung_texts
from paged_batch import Batch

# Likely faults, by rung and file: (what it does, old text, new text). Barriers that are
# missing are in test_kernel_barriers.py.
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
        ("a tile too many", "for (; tile < num_tiles(item)", "for (; tile <= num_tiles(item)"),
        (
            "tiles that start anew in each item",
            "    tile -= num_tiles(item);\n    WorkItem",
            "    tile = phase;\n    WorkItem",
        ),
        ("parts of one row only", "part(item.first_part + number)", "part(item.first_part)"),
        (
            "queries that stay",
            "queries = load_queries(query_row(params, next",
            "load_queries(query_row(params, next",
        ),
    ],
    (4, "tile.cuh"): [
        ("tokens past the end", "r < num_tokens ?", "true ?"),
        (
            "a maximum of some lanes",
            "distance = 4; distance < 32",
            "distance = 4; distance < 16",
        ),
        ("sums that are not rescaled", "state.acc[t][d][i] *= rescale[i % 2]", "(void)0"),
        ("values turned about", "0x7632", "0x5410"),
    ],
    (4, "tile_state.cuh"): [
        ("states merged without their weight", "theirs[i] * its_l[i]", "its_l[i]"),
    ],
    (6, "combine_parts.cuh"): [
        ("parts without their weight", "* part_l[part];", ";"),
        (
            "the largest of the first part",
            "split < num_splits; ++split)\n    m_all",
            "split < 1; ++split) m_all",
        ),
    ],
    (6, "6_split_kv.cu"): [
        (
            "splits that overlap",
            "num_tiles * (split + 1) / num_splits",
            "num_tiles * (split + 1) / num_splits + 1",
        ),
    ],
    (8, "balanced.cuh"): [
        ("a scale of another head", "scales[item.kv_head + head]", "scales[0]"),
    ],
    (8, "fp8.cuh"): [
        ("8 bits with another exponent", "256.0f", "128.0f"),
    ],
    (2, "next_rows.cuh"): [
        (
            "tokens that are not there",
            "there[i] = token[i] < num_tokens",
            "there[i] = token[i] <= num_tokens",
        ),
    ],
    (3, "softmax_state.cuh"): [
        ("a state that is not rescaled", "sum *= rescale", "sum *= 1.0f"),
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
        (
            "sequences by their place among those with tokens",
            "seq = seq_of[row / rows.groups]",
            "seq = row / rows.groups",
        ),
        (
            "tiles that end past the context",
            "* tile_size, context_lens[seq]);",
            "* tile_size, 1 << 30);",
        ),
        (
            "later items that nobody finds",
            "n + 1 < share.num_items()",
            "n + 2 < share.num_items()",
        ),
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
    texts = rung_texts(number, Shape(HALF, 128, 4, 16, FP8 if number == 8 else None))
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
        if number == 8:
            arguments["v_scales"][1] *= 3
            exact["v_cache"][:, :, 1] *= 3
        for _ in range(2):
            assert_right(decode(**arguments), exact)


@pytest.mark.slow
def test_without_a_fault_the_batch_that_is_cut_is_right():
    check(9, CUT, "checked", num_blocks=5)
