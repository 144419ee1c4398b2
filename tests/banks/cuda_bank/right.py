"""The right kernels: how each is called, and what PyTorch makes of the same arguments."""

import functools
import operator

import torch

from cuda_bank import Right, blank, integers, numbers

_HALF = torch.float16
_INT = torch.int32
_LONG = torch.int64


def _pair(*shape: int, out: tuple[int, ...] | None = None, dtype=torch.float32, **more):
    """Arguments `x` and `out`, of the same shape if nothing else is said, and copies of
    `more`.
    """

    def arguments():
        others = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in more.items()
        }
        return {
            "x": numbers(*shape, dtype=dtype),
            "out": blank(*(shape if out is None else out), dtype=dtype),
            **others,
        }

    return arguments


def _grid_stride(n: int):
    return Right(
        "right_grid_stride",
        lambda: {"n": n, "a": 3.0, "x": numbers(n), "y": numbers(n + 1)[:n]},
        lambda given: {"y": 3.0 * given["x"] + given["y"]},
    )


def _of_all_blocks(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part / part.sum() for part in x.split(128)])


def _block_sum(threads: int):
    def expected(given):
        x = given["x"]
        return {
            "out": (
                (x - x.mean(1, keepdim=True))
                * torch.rsqrt(x.var(1, unbiased=False, keepdim=True) + 1e-5)
            )
        }

    return Right("right_block_sum", _pair(2, threads, blocks=2, threads=threads), expected)


def _tiles(given):
    return {"out": given["x"].view(-1, 64).sum(0).cumsum(0)}


def _compacted(given):
    rows = [
        torch.cat([row[row > 0], torch.zeros(int((row <= 0).sum()))]) for row in given["x"]
    ]
    return {"out": torch.stack(rows), "out_counts": (given["x"] > 0).sum(1, dtype=_INT)}


def _votes_arguments():
    x = numbers(4, 32)
    x[1], x[2] = x[1].abs(), -x[2].abs()
    outputs = {f"out_{name}": blank(4, 32, dtype=torch.bool) for name in ("all", "any")}
    return {
        "x": x,
        **outputs,
        "out_first": blank(4, 32, dtype=_INT),
        "out_company": blank(4, 32, dtype=_INT),
        "rows": 4,
    }


def _votes(given):
    positive = given["x"] > 0
    first = torch.where(positive.any(1), positive.int().argmax(1), -1)
    company = positive[:, :20].sum(1, keepdim=True) * (torch.arange(32) < 20)
    return {
        "out_all": positive.all(1, keepdim=True).expand(4, 32),
        "out_any": positive.any(1, keepdim=True).expand(4, 32),
        "out_first": first[:, None].expand(4, 32).int(),
        "out_company": company.int(),
    }


def _weighted(given):
    weights = given["scores"].softmax(0)
    return {"out": weights @ given["values"].float()}


def _template_arguments():
    outputs = {f"out_{name}": blank(70) for name in ("x", "y", "again")}
    return {
        "x": numbers(70, dtype=_HALF),
        "y": numbers(70, dtype=torch.bfloat16),
        **outputs,
        "n": 70,
    }


def _struct(view):
    def arguments():
        x = view(numbers(6, 10))
        rows, columns = x.shape
        return {
            "x": x,
            "out": blank(rows, columns),
            "row_stride": x.stride(0),
            "column_stride": x.stride(1),
            "rows": rows,
            "columns": columns,
            "factor": -2.0,
        }

    return Right("right_struct", arguments, lambda given: {"out": given["x"] * -2.0})


def _smooth(x):
    return torch.nn.functional.conv1d(
        x[None, None], torch.tensor([[[0.25, 0.5, 0.25]]]), padding=1
    )[0, 0]


def _of_half_warps(given):
    lower, upper = given["x"].split(16)
    return {"out": 6 * torch.cat([lower.flip(0), upper.sum().expand(16)])}


def _largest(given):
    x = given["x"]
    return {"largest": x.max()[None], "last_positive": (x > 0).nonzero().max()[None].int()}


def _paged_copy(axis: int):
    """The pool's halves of keys and values beside each other in one allocation: as a whole
    (0), or block by block (1).
    """

    def arguments():
        pool = numbers(*((2, 3) if axis == 0 else (3, 2)), 4, 24, dtype=_HALF)
        k_cache, v_cache = pool.unbind(axis)
        return {
            "keys": numbers(4, 24, dtype=_HALF),
            "values": -numbers(4, 24, dtype=_HALF),
            "k_cache": k_cache,
            "v_cache": v_cache,
            "slot_mapping": integers(9, -1, 2, 3, dtype=_LONG),
            "num_tokens": 4,
            "block_size": 4,
            "block_stride": k_cache.stride(0),
            "row_size": 24,
        }

    def expected(given):
        result = {}
        for new, cache in (("keys", "k_cache"), ("values", "v_cache")):
            result[cache] = given[cache].clone()
            for token, slot in enumerate(given["slot_mapping"].tolist()):
                if slot >= 0:
                    result[cache][slot // 4, slot % 4] = given[new][token]
        return result

    return Right("right_paged_copy", arguments, expected)


def _gather_arguments():
    table = integers([3, 0, -1], [5, 1, 4], [-1, -1, -1])
    lengths = integers(8, 9, 0)
    return {
        "k_cache": numbers(6, 4, 32),
        "block_table": table,
        "context_lens": lengths,
        "out": blank(3, 32),
        "num_seqs": 3,
        "max_blocks": 3,
        "block_size": 4,
        "head_size": 32,
    }


def _gathered(given):
    rows = []
    for blocks, length in zip(
        given["block_table"], given["context_lens"].tolist(), strict=True
    ):
        rows.append(
            given["k_cache"][blocks.clamp(min=0)].flatten(0, 1)[:length].mean(0)
            if length
            else torch.zeros(32)
        )
    return {"out": torch.stack(rows)}


def _rotated(given):
    return {
        "out": torch.stack(
            [
                row.roll(-turns)
                for row, turns in zip(given["x"], given["rounds"].tolist(), strict=True)
            ]
        )
    }


def _integers_arguments():
    slots = numbers(64, dtype=_LONG) * 50
    return {
        "slots": slots,
        "out_blocks": blank(64, dtype=_LONG),
        "out_offsets": blank(64, dtype=_INT),
        "out_codes": blank(64, dtype=torch.uint8),
        "out_fours": blank(64, dtype=torch.uint8),
        "n": 64,
        "block_size": 16,
    }


def _integers(given):
    slots = given["slots"]
    return {
        "out_blocks": slots // 16,
        "out_offsets": (slots % 16).int(),
        "out_codes": slots.clamp(max=255).to(torch.uint8),
        "out_fours": torch.arange(64, dtype=torch.uint8),
    }


def _conversions(given):
    x = given["x"]
    half, bfloat16 = x.to(_HALF), x.to(torch.bfloat16)
    back = torch.stack(
        [half[1::2].float(), bfloat16[::2].float() + half[1::2].float()], 1
    ).flatten()
    return {"out_half": half, "out_bfloat16": bfloat16, "out_back": back}


def _stencil(given):
    weights = torch.tensor([[[0.1, 0.2, 0.4, 0.2, 0.1]]])
    return {
        "out": torch.nn.functional.conv1d(given["x"][None, None], weights, padding=2)[0, 0]
    }


def _atomics(given):
    values = given["x"].tolist()
    bits_and, bits_or = -1, 0
    for value in values:
        bits_and, bits_or = bits_and & ~value, bits_or | value
    total = sum(values)
    return {
        "out": integers(total, -total, max(0, *values), min(0, *values), 7, bits_and, bits_or),
        "sum": torch.tensor([total / 2], dtype=torch.float64),
    }


def _centred(given):
    x = given["x"] - given["x"].mean(1, keepdim=True)
    return {"out": x / x.abs().amax(1, keepdim=True)}


def _tile_votes(given):
    tiles = given["x"].view(-1, 16)
    lanes = torch.arange(16)
    ballot = ((tiles > 3).int() << lanes).sum(1)
    signs = (tiles > 6).any(1).int() + 2 * (tiles > 0).all(1).int()
    bits = [functools.reduce(operator.or_, tile) for tile in tiles.tolist()]
    products = [functools.reduce(lambda a, b: a * b % 1009, tile) for tile in tiles.tolist()]
    each = torch.stack(
        [ballot, signs, torch.tensor(bits) + 100 * tiles.amin(1), torch.tensor(products)], 1
    )
    moved = torch.stack(
        [
            tiles[:, (lanes - 3).where(lanes >= 3, lanes)],
            tiles[:, lanes ^ 5],
            tiles[:, [2] * 16],
        ],
        2,
    )
    return {"out": each.repeat_interleave(16, 0).int().flatten(), "out_moved": moved.flatten()}


def _aggregated(given):
    count = int((given["x"] > 0).sum())
    return {"count": integers(count), "taken": (torch.arange(96) < count).int()}


RIGHT = [
    _grid_stride(500),
    _grid_stride(1),
    _grid_stride(0),
    Right(
        "right_tree_sum",
        lambda: {"x": 3 + numbers(300), "out": blank(300), "n": 300},
        lambda given: {"out": _of_all_blocks(given["x"])},
    ),
    Right(
        "right_warp_down",
        _pair(6, 32, out=(6,), rows=6),
        lambda given: {"out": given["x"].sum(1)},
    ),
    Right(
        "right_warp_xor", _pair(7, 32, rows=7), lambda given: {"out": given["x"].softmax(1)}
    ),
    _block_sum(256),
    _block_sum(32),
    _block_sum(48),
    _block_sum(1),
    Right("right_double_buffer", _pair(320, out=(64,), tiles=5), _tiles),
    Right(
        "right_transpose",
        _pair(20, 37, out=(37, 20), rows=20, columns=37),
        lambda given: {"out": given["x"].T},
    ),
    Right(
        "right_histogram",
        lambda: {
            "x": numbers(500, dtype=torch.uint8) ** 2,
            "counts": integers(*range(50)),
            "n": 500,
            "bins": 50,
        },
        lambda given: {"counts": given["counts"] + given["x"].bincount(minlength=50).int()},
    ),
    Right(
        "right_scan",
        _pair(2, 128, dtype=_INT, blocks=2),
        lambda given: {"out": given["x"].cumsum(1, dtype=_INT)},
    ),
    Right(
        "right_warp_slices", _pair(8, 32, rows=8), lambda given: {"out": given["x"].flip(1)}
    ),
    Right(
        "right_blocks_leave",
        _pair(2, 64, num_seqs=2, lengths=integers(0, 50)),
        lambda given: {
            "out": (
                torch.cat(
                    [torch.zeros(64), 2 * given["x"][1, :50].flip(0), torch.zeros(14)]
                ).view(2, 64)
            )
        },
    ),
    Right(
        "right_compaction", _pair(3, 64, blocks=3, out_counts=blank(3, dtype=_INT)), _compacted
    ),
    Right("right_votes", _votes_arguments, _votes),
    Right(
        "right_vector_loads",
        lambda: {
            "query": numbers(64),
            "keys": numbers(40, 64, dtype=_HALF),
            "out": blank(40),
            "rows": 40,
        },
        lambda given: {"out": given["keys"].float() @ given["query"]},
    ),
    Right(
        "right_two_parts",
        lambda: {
            "scores": numbers(21),
            "values": numbers(21, 64, dtype=_HALF),
            "out": blank(64),
            "tokens": 21,
            "head_size": 64,
        },
        _weighted,
    ),
    Right(
        "right_template",
        _template_arguments,
        lambda given: {
            "out_x": 2 * given["x"].float(),
            "out_y": 3 * given["y"].float(),
            "out_again": 1.5 * given["y"].float(),
        },
    ),
    _struct(lambda x: x),
    _struct(lambda x: x.T),
    _struct(lambda x: x[1::2, 2:7]),
    _struct(lambda x: x[:1].expand(4, 10)),
    Right(
        "right_two_kernels",
        lambda: {"x": numbers(100), "scratch": blank(100), "out": blank(100), "n": 100},
        lambda given: {"scratch": _smooth(given["x"]), "out": _smooth(_smooth(given["x"]))},
    ),
    Right(
        "right_maximum",
        lambda: {
            "x": numbers(100),
            "largest": torch.tensor([-1e30]),
            "last_positive": integers(-1),
            "n": 100,
        },
        _largest,
    ),
    _paged_copy(0),
    _paged_copy(1),
    Right("right_paged_gather", _gather_arguments, _gathered),
    Right(
        "right_uniform_barriers", _pair(3, 96, blocks=3, rounds=integers(2, 0, 5)), _rotated
    ),
    Right(
        "right_same_word",
        _pair(3, 64, blocks=3, scale=torch.tensor([0.5])),
        lambda given: {"out": (given["x"] - given["x"][:, :1]) * 0.5},
    ),
    Right("right_integers", _integers_arguments, _integers),
    Right(
        "right_conversions",
        lambda: {
            "x": numbers(100),
            "out_half": blank(100, dtype=_HALF),
            "out_bfloat16": blank(100, dtype=torch.bfloat16),
            "out_back": blank(100),
            "pairs": 50,
        },
        _conversions,
    ),
    Right(
        "right_matmul",
        lambda: {
            "a": numbers(13, 21),
            "b": numbers(21, 10),
            "out": blank(13, 10),
            "rows": 13,
            "inner": 21,
            "columns": 10,
        },
        lambda given: {"out": given["a"] @ given["b"]},
    ),
    Right(
        "right_blocks_3d",
        _pair(5, 4, 7, out=(7, 4, 5), size_x=5, size_y=4, size_z=7),
        lambda given: {"out": given["x"].permute(2, 1, 0)},
    ),
    Right(
        "right_large_shared", _pair(15000, n=15000), lambda given: {"out": given["x"].flip(0)}
    ),
    Right("right_fallback", _pair(15000, n=15000), lambda given: {"out": given["x"].flip(0)}),
    Right("right_fallback", _pair(80000, n=80000), lambda given: {"out": given["x"].flip(0)}),
    Right(
        "right_last_block",
        _pair(4, 64, out=(1,), parts=blank(4), finished=integers(0), blocks=4),
        lambda given: {
            "parts": given["x"].sum(1),
            "finished": integers(4),
            "out": given["x"].sum()[None],
        },
    ),
    Right("right_half_warps", _pair(32), _of_half_warps),
    Right(
        "right_padded_struct",
        lambda: {"x": numbers(128), "out": blank(1, dtype=_INT)},
        lambda given: {"out": given["x"].argmax()[None].int()},
    ),
    Right(
        "right_memory_functions",
        _pair(40, out=(64,), n=40),
        lambda given: {"out": torch.cat([given["x"], torch.zeros(24)]).flip(0)},
    ),
    Right(
        "right_active_mask",
        lambda: {"x": numbers(64), "count": integers(0)},
        lambda given: {"count": (given["x"] > 0).sum(dtype=_INT)[None]},
    ),
    Right("right_stencil", _pair(150, n=150), _stencil),
    Right(
        "right_atomics",
        lambda: {
            "x": numbers(96, dtype=_INT),
            "out": blank(7, dtype=_INT),
            "sum": torch.zeros(1, dtype=torch.float64),
        },
        _atomics,
    ),
    Right("right_tiles", _pair(10, 32, rows=10), _centred),
    Right(
        "right_tile_slices",
        _pair(3, 128, blocks=3),
        lambda given: {"out": given["x"].view(-1, 8).flip(1).view(3, 128)},
    ),
    Right(
        "right_group_sum",
        _pair(2, 64, out=(2,), out_fours=blank(2, 16), blocks=2, threads=64),
        lambda given: {
            "out": given["x"].sum(1),
            "out_fours": given["x"].view(2, 16, 4).sum(2),
        },
    ),
    Right(
        "right_tile_votes",
        _pair(128, out=(512,), dtype=_INT, out_moved=blank(384, dtype=_INT), blocks=2),
        _tile_votes,
    ),
    Right(
        "right_aggregated_append",
        lambda: {"x": numbers(96), "count": integers(0), "taken": torch.zeros(96, dtype=_INT)},
        _aggregated,
    ),
    Right(
        "right_launch_function",
        _pair(50, n=50, factor=0.5),
        lambda given: {"out": -1.5 * given["x"].flip(0)},
    ),
    Right(
        "right_tickets",
        _pair(7, 100, next_row=integers(0), rows=7, columns=100),
        lambda given: {"next_row": integers(10), "out": -given["x"]},
    ),
]
