"""How a batch of prompts is planned, what a kernel is told, and what is refused.

The kernels are stand-ins.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decode_calls import BFLOAT, HALF, MODEL, at_an_odd_place, shape
from int32 import integers
from paged_attention import prefill
from paged_attention.ladder import Shape
from paged_attention.prefill import (
    PagedPrefill,
    attn_paged_prefill,
    check_prefill_shape,
    tile_sizes,
)
from paged_attention.prefill_plan import plan_all_tiles, plan_needed_tiles
from prefill_batch import metadata_of
from unsaid import unsaid


class Kernel:
    """Keeps what it is prepared with, and the arguments of each launch."""

    def __init__(self):
        self.prepared, self.launches = [], []

    def prepare(self, **arguments):
        self.prepared.append(arguments)

        def launch(**changes):
            self.launches.append(arguments | changes)

        return launch


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    """A stand-in for every rung. `asked` has what it was compiled for."""
    made = Kernel()
    made.asked = []

    def library(*words):
        made.asked.append(words)
        return SimpleNamespace(paged_prefill=made)

    monkeypatch.setattr(prefill, "prefill_library", library)
    return made


def planned(number, **changes):
    """A plan for two sequences of 3 and 4 queries, with 5 and 4 keys."""
    lengths = METADATA.cu_seqlens_q, METADATA.seq_lens_kv
    return PagedPrefill(number, *lengths, **MODEL | changes)


LENS = ((3, 5), (4, 4))
TABLE = torch.tensor([[0], [1]], dtype=torch.int32)
METADATA = metadata_of(LENS, TABLE)
Q = torch.zeros(7, 8, 128).half()
CACHE = torch.zeros(3, 16, 2, 128).half()


BAD = {
    "q that is no tensor": (dict(q=3), TypeError, ["q", "tensor", "int"]),
    "q's dimensions": (dict(q=Q[0]), ValueError, ["q", "(8, 128)"]),
    "float": (dict(q=Q.float(), k_cache=CACHE.float()), TypeError, ["q", "float32"]),
    "caches of another dtype": (
        dict(k_cache=CACHE.float()),
        TypeError,
        ["k_cache", "float32"],
    ),
    "v_cache's dtype": (dict(v_cache=CACHE.bfloat16()), TypeError, ["v_cache", "bfloat16"]),
    "v_cache's shape": (dict(v_cache=CACHE[:2]), ValueError, ["v_cache", "(2, 16, 2, 128)"]),
    "head size": (
        dict(q=Q[..., :96], k_cache=CACHE[..., :96]),
        ValueError,
        ["head_size", "64 or 128 or 256", "96"],
    ),
    "another head size": (dict(q=Q[..., :64]), ValueError, ["k_cache", "64", "128"]),
    "heads": (dict(q=Q[:, :7]), ValueError, ["q", "2 KV heads", "7"]),
    "no heads": (dict(q=Q[:, :0]), ValueError, ["q", "2 KV heads", "0"]),
    "many queries": (dict(q=Q.repeat(1, 5, 1)), ValueError, ["1 to 16", "20"]),
    "small blocks": (dict(k_cache=CACHE[:, :4]), ValueError, ["block_size", "8 to 64", "4"]),
    "large blocks": (dict(k_cache=CACHE.repeat(1, 5, 1, 1)), ValueError, ["block_size", "80"]),
    "no such rung": (dict(number=6), ValueError, ["number", "0 to 5", "6"]),
    "int64 starts": (
        dict(cu_seqlens_q=METADATA.cu_seqlens_q.long()),
        TypeError,
        ["cu_seqlens_q", "int64"],
    ),
    "few starts": (dict(cu_seqlens_q=integers(0, 7)), ValueError, ["cu_seqlens_q", "(3,)"]),
    "not from 0": (dict(cu_seqlens_q=integers(1, 3, 7)), ValueError, ["cu_seqlens_q", "1"]),
    "descending starts": (
        dict(cu_seqlens_q=integers(0, 8, 7)),
        ValueError,
        ["cu_seqlens_q", "ascend", "after 8", "7", "sequence 1"],
    ),
    "starts that end early": (
        dict(cu_seqlens_q=integers(0, 3, 6)),
        ValueError,
        ["cu_seqlens_q", "7 tokens", "6"],
    ),
    "more queries than keys": (
        dict(seq_lens_kv=integers(5, 3)),
        ValueError,
        ["seq_lens_kv", "sequence 1", "3 keys", "4 queries"],
    ),
    "a negative length": (
        dict(seq_lens_kv=integers(-1, 4)),
        ValueError,
        ["seq_lens_kv", "-1"],
    ),
    "int64 lengths": (
        dict(seq_lens_kv=METADATA.seq_lens_kv.long()),
        TypeError,
        ["seq_lens_kv", "int64"],
    ),
    "lengths elsewhere": (
        dict(cu_seqlens_q=METADATA.cu_seqlens_q.to("meta")),
        ValueError,
        ["cu_seqlens_q", "meta"],
    ),
    "q elsewhere": (dict(q=Q.to("meta")), ValueError, ["q's device", "meta"]),
    "a short table": (
        dict(seq_lens_kv=integers(5, 17)),
        ValueError,
        ["seq_lens_kv", "sequence 1", "17 keys", "2 blocks", "1 entries"],
    ),
    "int64 table": (dict(block_table=TABLE.long()), TypeError, ["block_table", "int64"]),
    "rows of the table": (dict(block_table=TABLE[:1]), ValueError, ["block_table", "(1, 1)"]),
    "a block that is not there": (
        dict(block_table=TABLE + 2),
        ValueError,
        ["block_table", "row 1", "holds 3", "0 to 2"],
    ),
    "a block before the first": (
        dict(block_table=TABLE - 1),
        ValueError,
        ["block_table", "row 0", "holds -1"],
    ),
    "a table with strides": (
        dict(block_table=TABLE.repeat(1, 2)[:, :1]),
        ValueError,
        ["block_table", "contiguous"],
    ),
    "caches with strides": (
        dict(v_cache=CACHE.repeat(1, 1, 1, 2)[..., :128]),
        ValueError,
        ["v_cache", "contiguous"],
    ),
    "q with strides": (
        dict(q=Q.transpose(1, 2).contiguous().transpose(1, 2)),
        ValueError,
        ["q", "q.contiguous()"],
    ),
    "q at an odd place": (dict(q=at_an_odd_place(Q)), ValueError, ["q must begin", "16"]),
    "k_cache at an odd place": (
        dict(k_cache=at_an_odd_place(CACHE)),
        ValueError,
        ["k_cache must begin", "16"],
    ),
    "a cache of 2³¹ rows": (
        dict(k_cache=CACHE[:1].expand(2**26, -1, -1, -1)),
        ValueError,
        ["2147483648 rows"],
    ),
    "an infinite scale": (dict(scale=math.inf), ValueError, ["scale", "inf"]),
}


@pytest.mark.parametrize("changes, error, words", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused(changes, error, words):
    arguments = dict(q=Q, k_cache=CACHE, v_cache=CACHE) | changes
    if arguments["k_cache"].shape != CACHE.shape:
        arguments["v_cache"] = arguments["k_cache"]  # both have this shape
    fields = {name: arguments.pop(name) for name in vars(METADATA) if name in arguments}
    metadata = replace(METADATA, **fields)
    with pytest.raises(error) as caught:
        attn_paged_prefill(metadata=metadata, **arguments)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "number, made_for",
    [
        *((number, shape()) for number in range(6)),
        *((4, shape(block_size=size)) for size in (8, 9, 63, 64)),
        *((5, shape(block_size=size)) for size in (8, 16, 32, 64)),
        *((4, shape(queries=count)) for count in (1, 16)),
        *((4, shape(head_size=size)) for size in (64, 256)),
        (4, shape(dtype=BFLOAT)),
        (4, shape(kv_dtype=HALF)),
    ],
)
def test_shapes_that_the_rungs_are_made_for(number, made_for):
    check_prefill_shape(number, made_for)


@pytest.mark.parametrize(
    "number, not_made_for, error, words",
    [
        (-1, shape(), ValueError, "number must be .* 0 to 5, not -1"),
        (6, shape(), ValueError, "number must be .* 0 to 5, not 6"),
        (4, shape(dtype=torch.float32), TypeError, "dtype must be torch.float16 or .*32"),
        (4, shape(kv_dtype=BFLOAT), TypeError, "kv_dtype must be torch.float16, as q's"),
        (4, shape(head_size=65), ValueError, "head_size must be 64 or 128 or 256, not 65"),
        (4, shape(block_size=7), ValueError, "block_size must be 8 to 64, not 7"),
        (4, shape(block_size=65), ValueError, "block_size must be 8 to 64, not 65"),
        (5, shape(block_size=24), ValueError, "must be 8, 16, 32 or 64 for rung 5, not 24"),
        (4, shape(queries=0), ValueError, "1 to 16 query heads, not 0"),
        (4, shape(queries=17), ValueError, "1 to 16 query heads, not 17"),
    ],
)
def test_shapes_that_they_are_not_made_for(number, not_made_for, error, words):
    with pytest.raises(error, match=words):
        check_prefill_shape(number, not_made_for)


@pytest.mark.parametrize("heads", [(8, 0), (0, 2), (7, 2), (-2, 2), (8, -2)])
def test_heads_that_cannot_be_shared_are_refused(heads):
    num_q_heads, num_kv_heads = heads
    with pytest.raises(ValueError, match="num_q_heads must be a multiple of"):
        planned(4, num_q_heads=num_q_heads, num_kv_heads=num_kv_heads)


def test_one_head_of_each_is_enough():
    assert planned(4, num_q_heads=1, num_kv_heads=1).shape.queries_per_kv_head == 1


@pytest.mark.parametrize("most_tiles", [0, -1])
def test_an_item_has_a_tile_at_least(most_tiles):
    with pytest.raises(ValueError, match=f"most_tiles must be positive, not {most_tiles}"):
        planned(4, most_tiles=most_tiles)
    planned(4, most_tiles=1)


@pytest.mark.parametrize("target", [None, "fast", "checked"])
def test_a_rung_is_compiled_for_the_shape_and_the_target(kernel, target):
    made = planned(2, target=target)
    expected = Shape(HALF, 128, 4, 16, shared_bytes=232_448)
    assert kernel.asked == [(2, expected, target or "fast")] and made.shape == expected


def test_on_a_gpu_it_is_compiled_for_the_gpu(kernel, monkeypatch):
    monkeypatch.setattr(prefill, "shared_bytes", lambda device: 1_000)
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    none = np.zeros(0, np.int64)
    PagedPrefill(4, None, on_gpu, **MODEL, lengths=(none, none))
    assert kernel.asked == [(4, Shape(HALF, 128, 4, 16, shared_bytes=1_000), "gpu")]


def test_a_library_of_ones_own_is_taken_as_it_is(kernel):
    mine = SimpleNamespace(paged_prefill=Kernel())
    planned(4, library=mine)(Q, CACHE, CACHE, TABLE)
    assert len(mine.paged_prefill.launches) == 1 and not kernel.asked


TOLD = dict(
    q_stride=8 * 128,
    num_tokens=7,
    num_seqs=2,
    num_q_heads=8,
    num_kv_heads=2,
    max_blocks_per_seq=1,
    scale=1 / math.sqrt(128),
)
OF_PLAN = {  # each rung's sizes of tiles, and what else it is told as a number
    0: {},
    1: dict(num_items=2, planned_rows=32, planned_keys=32),
    2: dict(num_items=2, planned_rows=128, planned_keys=64),
    3: dict(num_items=2, planned_rows=128, planned_keys=64),
    4: dict(num_items=2, planned_rows=128, planned_keys=64, num_cut_tiles=0),
    5: dict(
        num_items=2,
        planned_rows=128,
        planned_keys=128,
        num_cut_tiles=0,
        num_slots=4,
        num_blocks=3,
    ),
}
NOT_CUT = dict(cut_tiles=None, part_o=None, part_ml=None)


@pytest.mark.parametrize("number", OF_PLAN)
def test_a_kernel_is_told_what_it_computes(kernel, number):
    out = planned(number)(Q, CACHE, CACHE, TABLE)
    (told,) = kernel.launches
    tensors = dict(
        q=Q,
        k_cache=CACHE,
        v_cache=CACHE,
        block_table=TABLE,
        out=out,
        cu_seqlens_q=METADATA.cu_seqlens_q,
        seq_lens_kv=METADATA.seq_lens_kv,
    )
    assert all(told.pop(name) is tensor for name, tensor in tensors.items())
    if number:
        items = told.pop("items")
        assert items.dtype == torch.int32
        assert sorted(items.tolist()) == [[0, 0, 0, 1, -1], [1, 0, 0, 1, -1]]
    assert told == TOLD | OF_PLAN[number] | (NOT_CUT if number >= 4 else {})
    assert (out.shape, out.dtype) == (Q.shape, HALF)


def test_what_is_cut_has_room_for_its_parts(kernel):
    lengths = metadata_of(((3, 300), (4, 4)), TABLE)
    table = torch.zeros(2, 19, dtype=torch.int32)
    made = PagedPrefill(4, lengths.cu_seqlens_q, lengths.seq_lens_kv, **MODEL, most_tiles=2)
    made(Q, CACHE, CACHE, table)
    (told,) = kernel.launches
    assert (told["num_items"], told["num_cut_tiles"], told["max_blocks_per_seq"]) == (4, 1, 19)
    assert told["cut_tiles"].tolist() == [[0, 0, 0, 3]]
    assert (told["cut_tiles"].dtype, told["part_o"].dtype) == (torch.int32, torch.float32)
    assert told["part_o"].shape == (3, 2, 128, 128) and told["part_ml"].shape == (3, 2, 128, 2)


@pytest.mark.parametrize(
    "number, head_size, heads, num_slots",
    [(3, 128, 4, None), (4, 64, 4, 8), (4, 128, 4, 8), (4, 256, 4, 4), (5, 128, 4, 4)],
)
def test_a_plan_is_for_the_blocks_that_run_at_once(number, head_size, heads, num_slots):
    """4 multiprocessors, and two blocks of each if the heads are small."""
    lens = ((40, 4_000), (100, 700))
    lengths = metadata_of(lens, TABLE)
    made = PagedPrefill(
        number,
        lengths.cu_seqlens_q,
        lengths.seq_lens_kv,
        **MODEL | dict(head_size=head_size),
    )
    sizes = tile_sizes(number, made.shape)
    q_lens, kv_lens = np.array(lens).T
    if num_slots is None:
        expected = plan_all_tiles(q_lens, kv_lens, heads, sizes)
    else:
        expected = plan_needed_tiles(q_lens, kv_lens, heads, sizes, 2, num_slots)
    assert made.plan.items.tolist() == expected.items.tolist()


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_rungs_have_a_tile_for_each_head(number):
    lengths = metadata_of(((33, 40), (3, 5)), TABLE)
    made = PagedPrefill(number, lengths.cu_seqlens_q, lengths.seq_lens_kv, **MODEL)
    rows = tile_sizes(number, made.shape).rows
    assert [item[:2] for item in made.plan.items.tolist()] == [
        *([0, row] for row in range(0, 33, rows)),
        [1, 0],
    ]


@pytest.mark.parametrize("number", range(6))
def test_without_queries_nothing_is_planned_and_nothing_launched(kernel, number):
    lengths = metadata_of(((0, 5), (0, 0)), TABLE)
    made = PagedPrefill(number, lengths.cu_seqlens_q, lengths.seq_lens_kv, **MODEL)
    out = made(Q[:0], CACHE, CACHE, TABLE)
    assert out.shape == (0, 8, 128) and not kernel.prepared and made.plan is None


def test_lengths_that_the_caller_has_are_not_read_from_the_device():
    unread = torch.empty(3, dtype=torch.int32, device="meta")
    made = PagedPrefill(
        4, unread, unread[1:], **MODEL, lengths=(np.array([3, 4]), np.array([5, 70]))
    )
    assert (made.num_tokens, made.most_keys) == (7, 70)
    assert made.plan.items[:, 3].tolist() == [2, 1]


def test_a_table_must_have_room_for_the_longest_context():
    lengths = metadata_of(((3, 17), (4, 4)), TABLE)
    made = PagedPrefill(4, lengths.cu_seqlens_q, lengths.seq_lens_kv, **MODEL)
    with pytest.raises(ValueError, match="block_table has 1 entries in a row"):
        made(Q, CACHE, CACHE, TABLE)


@pytest.mark.parametrize(
    "scale, told, factor",
    [(None, 1 / math.sqrt(128), 1), (2.5, 2.5, 1), (-2.5, 2.5, -1), (0.0, 1.0, 0)],
)
def test_a_factor_that_is_not_positive_changes_q_instead(kernel, scale, told, factor):
    q = torch.randn(Q.shape).half()
    made = planned(4)
    for count in (1, 2):
        out = torch.empty_like(q)
        assert made(q, CACHE, CACHE, TABLE, scale, out) is out
        launch = kernel.launches[-1]
        assert launch["scale"] == told and torch.equal(launch["q"], factor * q)
        assert launch["out"] is out and len(kernel.launches) == count
    assert len(kernel.prepared) == (1 if factor == 1 else 2)


def test_tensors_like_those_before_are_launched_without_preparing_again(kernel):
    made = planned(4)
    made(Q, CACHE, CACHE, TABLE)
    others = dict(q=Q + 1, k_cache=CACHE + 1, v_cache=CACHE + 2, block_table=TABLE.clone())
    out = made(**others)
    assert len(kernel.prepared) == 1
    assert all(kernel.launches[-1][name] is tensor for name, tensor in others.items())
    assert kernel.launches[-1]["out"] is out


def test_other_tensors_than_those_before_are_prepared_and_checked(kernel):
    made = planned(4)
    made(Q, CACHE, CACHE, TABLE)
    wide = torch.zeros(7, 8 * 128 + 8).half()[:, : 8 * 128].unflatten(1, (8, 128))
    made(wide, CACHE, CACHE, TABLE)
    assert kernel.launches[-1]["q_stride"] == 8 * 128 + 8
    made(wide, CACHE, CACHE, TABLE, 0.5)
    assert kernel.launches[-1]["scale"] == 0.5 and len(kernel.prepared) == 3
    with pytest.raises(TypeError, match="v_cache must be torch.float16"):
        made(wide, CACHE, CACHE.float(), TABLE, 0.5)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "out"])
def test_after_right_tensors_a_wrong_address_is_still_refused(kernel, name):
    made = planned(4)
    right = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE, out=Q.clone())
    made(**right)
    with pytest.raises(ValueError, match=f"{name} must begin"):
        made(**right | {name: at_an_odd_place(right[name])})
    assert len(kernel.launches) == 1


@pytest.mark.parametrize("name", ["block_table", "k_cache", "v_cache", "out", "seq_lens_kv"])
def test_every_tensor_is_where_q_is(name):
    made = planned(4)
    tensors = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE, out=Q.clone())
    if name == "seq_lens_kv":
        made.seq_lens_kv = made.seq_lens_kv.to("meta")
    else:
        tensors[name] = tensors[name].to("meta")
    with pytest.raises(ValueError, match=f"{name}.*device"):
        made(**tensors)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(out=Q[:6]), ValueError, "out must have the shape"),
        (dict(out=Q.float()), TypeError, "out must be torch.float16"),
        (dict(k_cache=CACHE[:, :8]), ValueError, "k_cache must have the shape"),
        (dict(k_cache=CACHE[:, :, :1]), ValueError, "k_cache must have the shape"),
        (dict(block_table=TABLE[:1]), ValueError, "block_table must have the shape"),
        (dict(block_table=TABLE.long()), TypeError, "block_table must be torch.int32"),
        (dict(scale=math.nan), ValueError, "scale must be a finite number, not nan"),
        (dict(q=Q[:, :4]), ValueError, "q must have the shape"),
        (dict(q=Q.bfloat16()), TypeError, "q must be torch.float16"),
    ],
)
def test_what_does_not_fit_the_plan_is_refused(kernel, changes, error, words):
    with pytest.raises(error, match=words):
        planned(4)(**dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE) | changes)
    assert not kernel.prepared


def test_tensors_are_made_where_the_batch_is_and_in_32_bits(kernel):
    lengths = metadata_of(((3, 300), (4, 4)), TABLE)
    table = torch.zeros(2, 19, dtype=torch.int32)
    with unsaid():
        made = PagedPrefill(
            4, lengths.cu_seqlens_q, lengths.seq_lens_kv, **MODEL, most_tiles=2
        )
        out = made(Q, CACHE, CACHE, table)
    told = kernel.launches[0]
    assert {told[name].dtype for name in ("part_o", "part_ml")} == {torch.float32}
    assert {told[name].device.type for name in ("part_o", "part_ml", "items")} == {"cpu"}
    assert (out.dtype, out.device.type) == (HALF, "cpu")


def test_without_sequences_a_table_needs_no_entries():
    none = torch.zeros(0, dtype=torch.int32)
    made = PagedPrefill(4, torch.zeros(1, dtype=torch.int32), none, **MODEL)
    assert made(Q[:0], CACHE, CACHE, none.reshape(0, 0)).shape == (0, 8, 128)
