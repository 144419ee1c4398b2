"""The faulty kernels: how each is called, and what the error has to say."""

import torch

from cuda_bank import Faulty, blank, integers, numbers

_HALF, _INT = torch.float16, torch.int32


def _pair(length: int, out: int | None = None, **more):
    """Arguments `x` of `length` numbers and `out`, of as many or of `out` elements."""
    return lambda: {"x": numbers(length), "out": blank(length if out is None else out), **more}


def _counted(length: int, out: int = 1):
    """Arguments `x`, positive and negative numbers by turns, and integers `out`."""
    return lambda: {"x": _both_signs(length), "out": blank(out, dtype=_INT)}


def _both_signs(length: int) -> torch.Tensor:
    """Positive and negative numbers by turns."""
    return torch.arange(1.0, length + 1) * torch.where(torch.arange(length) % 2 == 0, 1, -1)


def _pool(
    table: list[list[int]],
    dtype=torch.float32,
    context_lens=None,
    out_rows: int | None = None,
    **more,
):
    """A pool of 6 blocks with a block table that may name others."""
    lengths = {} if context_lens is None else {"context_lens": integers(*context_lens)}
    return lambda: {
        "k_cache": numbers(6, 4, 64, dtype=dtype),
        "block_table": integers(*table),
        **lengths,
        "out": blank(out_rows or len(table), 64),
        "block_size": 4,
        "head_size": 64,
        **more,
    }


def _slots():
    """Three new keys, the last without a slot, and a pool for them."""
    return {
        "keys": numbers(3, 16),
        "slot_mapping": integers(5, 2, -1, dtype=torch.int64),
        "k_cache": torch.zeros(2, 4, 16),
        "num_tokens": 3,
        "head_size": 16,
    }


def _halves(length: int, **more):
    return lambda: {
        "x": numbers(length, dtype=_HALF),
        "out": blank(length, dtype=_HALF),
        **more,
    }


_RACES = [
    Faulty("race_reverse", "race", _pair(256, blocks=2), name="tile"),
    Faulty("race_neighbour", "race", _pair(96), name="tile"),
    Faulty(
        "race_refill",
        "race",
        lambda: {"x": numbers(128), "y": numbers(128), "out": blank(128)},
        name="tile",
    ),
    Faulty("race_back_edge", "race", _pair(192, 64, n=192), name="tile"),
    Faulty("race_reduction_tail", "race", _pair(128), name="sums"),
    Faulty("race_warp_sums", "race", _pair(256, 2, blocks=2), name="warp_sums"),
    Faulty("race_helper", "race", _pair(96), name="slot"),
    Faulty("race_halves", "race", _halves(96, threads=96), name="halves"),
    Faulty("race_float4", "race", _pair(256), name="tile"),
    Faulty("race_half2", "race", _halves(256), name="pairs"),
    Faulty("race_reset", "race", _counted(128), name="counter"),
    Faulty("race_late_reset", "race", _counted(128), name="counter"),
    Faulty("race_early_result", "race", _counted(128), name="counter"),
    Faulty("race_in_global", "race", lambda: {"x": numbers(128)}, name="x"),
    Faulty(
        "race_same_place",
        "race",
        lambda: {
            "x": torch.arange(128.0) % 64,
            "maximum": 63.0,
            "out": blank(128, dtype=_INT),
        },
        name="place",
    ),
    Faulty("missing_syncwarp_reverse", "missing-syncwarp", _pair(64), name="rows"),
    Faulty(
        "missing_syncwarp_refill", "missing-syncwarp", _pair(256, 64, rows=4), name="slices"
    ),
    Faulty("missing_syncwarp_count", "missing-syncwarp", _counted(64, 64), name="counts"),
    Faulty("missing_syncwarp_volatile", "missing-syncwarp", _pair(32, 1), name="sums"),
    Faulty("missing_tile_sync", "missing-syncwarp", _pair(64), name="slices"),
    Faulty("missing_tile_sync_small", "missing-syncwarp", _pair(64), name="numbers"),
    Faulty("non_atomic_counter", "non-atomic-update", _counted(128), name="counter"),
    Faulty(
        "non_atomic_histogram",
        "non-atomic-update",
        lambda: {"x": numbers(200, dtype=_INT), "out": blank(8, dtype=_INT), "n": 200},
        name="bins",
    ),
    Faulty(
        "non_atomic_maximum",
        "non-atomic-update",
        lambda: {"x": torch.arange(64, dtype=_INT), "out": blank(1, dtype=_INT)},
        name="largest",
    ),
    Faulty(
        "non_atomic_append",
        "non-atomic-update",
        lambda: {
            "x": _both_signs(64),
            "kept": torch.zeros(64),
            "count": torch.zeros(1, dtype=_INT),
        },
        name="count",
    ),
    Faulty(
        "non_atomic_sum",
        "non-atomic-update",
        lambda: {"x": numbers(60), "total": torch.zeros(1), "n": 60},
        name="total",
    ),
    Faulty(
        "non_atomic_blocks",
        "non-atomic-update",
        lambda: {"x": numbers(96), "total": torch.zeros(1), "blocks": 3},
        name="total",
    ),
    Faulty("between_blocks_halo", "race-between-blocks", _pair(150, n=150), name="out"),
    Faulty(
        "between_blocks_relay",
        "race-between-blocks",
        lambda: {"x": numbers(96), "sums": torch.zeros(3), "out": blank(3), "blocks": 3},
        name="sums",
    ),
    Faulty(
        "between_blocks_no_barrier",
        "race-between-blocks",
        lambda: {
            "x": numbers(4 * 64),
            "parts": blank(4),
            "finished": integers(0),
            "out": blank(1),
            "blocks": 4,
        },
        name="parts",
    ),
    Faulty(
        "between_blocks_in_place",
        "race-between-blocks",
        lambda: {"x": numbers(128), "n": 128},
        name="x",
    ),
]

_BARRIERS_AND_LANES = [
    Faulty("divergent_branch", "divergent-barrier", _pair(64, count=48)),
    Faulty("divergent_else", "divergent-barrier", _pair(64)),
    Faulty("divergent_loop", "divergent-barrier", _pair(100, 64, n=100)),
    Faulty("divergent_return", "divergent-barrier", _pair(100, n=100), block=(1, 0, 0)),
    Faulty("divergent_helper", "divergent-barrier", _pair(64)),
    Faulty("divergent_block_sync", "divergent-barrier", _pair(64, n=50)),
    Faulty("divergent_tile_block", "divergent-barrier", _pair(64, 1)),
    Faulty("absent_lane_branch", "absent-lane", _pair(32)),
    Faulty("absent_lane_source", "absent-lane", _pair(32), thread=(15, 0, 0)),
    Faulty("absent_lane_caller", "absent-lane", _pair(32)),
    Faulty(
        "absent_lane_returned",
        "absent-lane",
        lambda: {"x": numbers(40), "total": torch.zeros(1), "n": 40},
    ),
    Faulty("absent_lane_partial", "absent-lane", _pair(48, threads=48)),
    Faulty("absent_lane_ballot", "absent-lane", _counted(32, 32)),
    Faulty("absent_lane_syncwarp", "absent-lane", _pair(32)),
    Faulty("absent_lane_tile", "absent-lane", _pair(64, n=40)),
    Faulty("absent_lane_reduce", "absent-lane", _pair(64)),
]

_SHARED = [
    Faulty(
        "shared_bounds_long", "shared-out-of-bounds", _pair(64), thread=(0, 0, 0), name="tile"
    ),
    Faulty(
        "shared_bounds_memset",
        "shared-out-of-bounds",
        lambda: {"out": blank(64, dtype=_INT), "n": 64},
        name="counters",
    ),
    Faulty(
        "shared_bounds_negative",
        "shared-out-of-bounds",
        _pair(64),
        thread=(0, 0, 0),
        name="tile",
    ),
    Faulty(
        "shared_bounds_row", "shared-out-of-bounds", _pair(64), thread=(7, 7, 0), name="tile"
    ),
    Faulty(
        "shared_bounds_next_array",
        "shared-out-of-bounds",
        _pair(16, 17),
        thread=(16, 0, 0),
        name="weights",
    ),
    Faulty(
        "shared_bounds_scores",
        "shared-out-of-bounds",
        _pair(40, 1, context_len=40),
        name="scores",
    ),
    Faulty(
        "shared_uninitialised_tail",
        "shared-uninitialised",
        _pair(40, 1, n=40),
        thread=(0, 0, 0),
        name="tile",
    ),
    Faulty(
        "shared_uninitialised_sums", "shared-uninitialised", _pair(100, 64, n=100), name="sums"
    ),
    Faulty(
        "shared_uninitialised_counter", "shared-uninitialised", _counted(64), name="counter"
    ),
    Faulty(
        "shared_uninitialised_halves",
        "shared-uninitialised",
        _halves(64, threads=64),
        name="halves",
    ),
    Faulty("dynamic_shared_none", "dynamic-shared-too-small", _pair(64, threads=64)),
    Faulty("dynamic_shared_elements", "dynamic-shared-too-small", _pair(64, threads=64)),
    Faulty("dynamic_shared_two_parts", "dynamic-shared-too-small", _pair(64, threads=64)),
]

_TENSORS = [
    Faulty(
        "table_padding",
        "block-table",
        _pool([[2, -1], [4, 1]], num_seqs=2, max_blocks=2),
        block=(0, 0, 0),
        name="k_cache",
    ),
    Faulty(
        "table_beyond_pool",
        "block-table",
        _pool([[5, 0], [3, 6]], _HALF, [8, 5], num_seqs=2, max_blocks=2),
        block=(1, 0, 0),
        name="k_cache",
    ),
    Faulty(
        "table_beyond_pool",
        "block-table",
        _pool([[5, 1000], [3, 2]], _HALF, [8, 5], num_seqs=2, max_blocks=2),
        block=(0, 0, 0),
        name="k_cache",
    ),
    Faulty(
        "table_stride",
        "block-table",
        _pool([[5, 0, -1], [3, 1, 4]], torch.float32, [6, 9], num_seqs=2, num_heads=2),
        block=(1, 0, 0),
        name="k_cache",
    ),
    Faulty(
        "bounds_table_row",
        "out-of-bounds",
        _pool([[5, 0, 3]], context_len=13),
        name="block_table",
    ),
    Faulty("bounds_slot", "out-of-bounds", _slots, block=(2, 0, 0), name="k_cache"),
    Faulty(
        "bounds_no_guard",
        "out-of-bounds",
        lambda: {"a": numbers(100), "b": numbers(100), "out": blank(100), "n": 100},
        block=(1, 0, 0),
    ),
    Faulty(
        "bounds_one_past",
        "out-of-bounds",
        _pair(50, n=50),
        block=(1, 0, 0),
        thread=(17, 0, 0),
        name="x",
    ),
    Faulty(
        "bounds_before_start",
        "out-of-bounds",
        lambda: {"x": numbers(80)[20:70], "out": blank(50), "n": 50},
        block=(0, 0, 0),
        thread=(0, 0, 0),
        name="x",
    ),
    Faulty("bounds_output_end", "out-of-bounds", _pair(50, n=50), name="out"),
    Faulty("bounds_float4", "out-of-bounds", _pair(62, n=62), thread=(15, 0, 0), name="x"),
    Faulty(
        "bounds_overflow",
        "out-of-bounds no-address",
        _pair(64, 32, row=1000, row_length=3_000_000),
    ),
    Faulty("write_to_input_cast", "write-to-input", _pair(50, scale=2.0, n=50), name="x"),
    Faulty("write_to_input_launcher", "write-to-input", _pair(64, n=64), name="x"),
    Faulty(
        "write_to_input_atomic",
        "write-to-input",
        lambda: {"block_table": integers(3, 0, 2, 1), "out": blank(4, dtype=_INT), "n": 4},
        name="block_table",
    ),
    Faulty("output_unwritten_tail", "output-unwritten", _pair(100, n=100), name="out"),
    Faulty(
        "output_unwritten_empty",
        "output-unwritten",
        lambda: {
            "values": numbers(3, 5, 8),
            "context_lens": integers(2, 0, 5),
            "out": blank(3, 8),
            "num_seqs": 3,
            "max_context": 5,
            "head_size": 8,
        },
        name="out",
    ),
    Faulty("output_read_sum", "output-read", _pair(150, 50, n=50), name="out"),
    Faulty(
        "output_read_atomic",
        "output-read",
        lambda: {"x": numbers(50, dtype=_INT), "out": blank(8, dtype=_INT), "n": 50},
        name="out",
    ),
    Faulty(
        "misaligned_float4",
        "misaligned",
        lambda: {"x": numbers(24), "sums": torch.zeros(16), "row_length": 6},
        name="x",
    ),
    Faulty(
        "host_access_length",
        "host-access",
        lambda: {"x": numbers(64), "length": integers(64), "out": blank(64)},
        name="length",
    ),
    Faulty("no_address_null", "no-address", _pair(50, bias=None, n=50)),
    Faulty("no_address_host", "no-address", _pair(64, n=64)),
]

_ENDS_AND_LAUNCHES = [
    Faulty(
        "no_end_while",
        "no-end",
        lambda: {"x": integers(6, 1, 0, 27), "out": blank(4, dtype=_INT), "n": 4},
        thread=(2, 0, 0),
    ),
    Faulty("no_end_barriers", "no-end", _pair(64)),
    Faulty("no_end_step", "no-end", _pair(50, 32, n=50, step=0)),
    Faulty("no_end_wait", "no-end", _pair(64), thread=(0, 0, 0)),
    Faulty("no_end_empty", "no-end", _pair(64)),
    Faulty(
        "division_by_zero",
        "division-by-zero",
        lambda: {
            "sums": integers(6, 0, 5),
            "counts": integers(2, 0, 1),
            "out": blank(3, dtype=_INT),
            "n": 3,
        },
        thread=(1, 0, 0),
    ),
    Faulty(
        "stack_overflow",
        "stack-overflow",
        lambda: {"next": integers(0, 0, 3, 2), "out": blank(4, dtype=_INT), "n": 3},
        thread=(2, 0, 0),
    ),
    Faulty("assertion_slot", "assertion", _slots, block=(2, 0, 0)),
    Faulty(
        "assertion_helper",
        "assertion",
        lambda: {"x": torch.tensor([1.0, 4.0, -1.0]), "out": blank(3), "n": 3},
        thread=(2, 0, 0),
    ),
    Faulty("bad_launch_threads", "bad-launch", _pair(100, n=100)),
    Faulty("bad_launch_no_blocks", "bad-launch", _pair(100, n=100)),
    Faulty("bad_launch_too_much", "bad-launch", _pair(64, n=64)),
    Faulty("bad_launch_attribute", "bad-launch", _pair(15000, n=15000)),
    Faulty("bad_launch_refused", "bad-launch", _pair(80000, n=80000)),
    Faulty("bad_launch_function", "bad-launch", _pair(1025, n=1025)),
    Faulty(
        "bad_launch_swallowed",
        "bad-launch",
        lambda: {"x": numbers(1025), "y": numbers(1025), "n": 1025},
    ),
]

FAULTY = [*_RACES, *_BARRIERS_AND_LANES, *_SHARED, *_TENSORS, *_ENDS_AND_LAUNCHES]
