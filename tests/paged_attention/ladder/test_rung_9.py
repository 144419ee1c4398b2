"""What rung 9 plans for, what it is told and what it refuses. Its kernels are stand-ins."""

import math
from types import SimpleNamespace

import pytest
import torch

from decode_calls import (
    BFLOAT,
    CACHE,
    FLOAT,
    HALF,
    LENS,
    MODEL,
    TABLE,
    Q,
    at_an_odd_place,
    shape,
)
from paged_attention import self_planned
from paged_attention.ladder import FP8, Shape
from paged_attention.self_planned import (
    MOST_BLOCKS,
    MOST_SEQS,
    SelfPlannedDecode,
    kept_decode,
    make_buffers,
    place_of,
)
from unsaid import unsaid

CPU = torch.device("cpu")
SCALES = torch.ones(2)


class Library:
    """Keeps what each of its kernels is prepared with, and the arguments of each launch.

    wrong: the numbers that `check_table` finds.
    """

    def __init__(self):
        self.prepared, self.launches, self.wrong = [], [], []

    def __getattr__(self, name):
        def prepare(**arguments):
            self.prepared.append(name)

            def launch(**changes):
                told = arguments | changes
                self.launches.append((name, told))
                if name == "check_table" and self.wrong:
                    told["num_wrong"] += self.wrong.pop()

            return launch

        return SimpleNamespace(prepare=prepare)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """A stand-in for rung 9. `asked` has what it was compiled for."""
    made, asked = Library(), []

    def compiled(*words):
        asked.append(words)
        return made

    monkeypatch.setattr(self_planned, "rung_library", compiled)
    made.asked = asked
    return made


def own(max_num_seqs=4, **changes):
    return SelfPlannedDecode(max_num_seqs, **dict(device="cpu") | MODEL | changes)


@pytest.mark.parametrize("target", [None, "checked"])
def test_rung_9_is_compiled_for_the_shape_and_the_target(library, target):
    made = own(target=target)
    expected = Shape(HALF, 128, 4, 16, None, 232_448)
    assert library.asked == [(9, expected, target or "fast")]
    assert repr(made.shape) == repr(expected)  # whole numbers
    mine = Library()
    assert own(library=mine).library is mine and len(library.asked) == 1


def test_rung_9_takes_as_many_sequences_and_blocks_as_it_has_room_for(monkeypatch):
    for changes in (dict(max_num_seqs=1), dict(max_num_seqs=MOST_SEQS), dict(num_blocks=1)):
        own(**changes)
    own(2).plan(LENS)
    assert own(num_blocks=MOST_BLOCKS).num_blocks == 256
    with pytest.raises(ValueError, match="num_blocks must be 1 to 256, not 0"):
        own(num_blocks=0)
    for multiprocessors, num_blocks in ((132, 132), (300, 256)):
        monkeypatch.setattr(
            self_planned, "num_multiprocessors", lambda _, n=multiprocessors: n
        )
        assert own().num_blocks == num_blocks


@pytest.mark.parametrize(
    "changes, busy",
    [
        (dict(num_blocks=10), 8),
        (dict(num_blocks=4), 3),
        (dict(num_blocks=1), 1),
        (dict(num_blocks=10, kv_dtype=FP8), 10),
    ],
)
def test_a_plan_is_for_as_many_blocks_as_keep_the_memory_busy(library, changes, busy):
    decode = own(**changes)
    decode.plan(LENS)
    decode.plan(LENS[:1])
    assert library.prepared == ["plan_work"] and decode.num_seqs == 1
    first, second = (told for _, told in library.launches)
    assert first["context_lens"] is LENS and second["context_lens"].tolist() == [5]
    assert {
        name: first[name] for name in ("num_seqs", "num_kv_heads", "num_blocks", "busy")
    } == (dict(num_seqs=2, num_kv_heads=2, num_blocks=changes["num_blocks"], busy=busy))
    assert second["num_seqs"] == 1
    assert first["items"] is decode.buffers["items"]
    assert first["header"] is decode.buffers["header"]


@pytest.mark.parametrize(
    "num_kv_heads, head_size, queries, most_heads, state",
    [
        (8, 128, 1, 8, (1, 9, 32, 4)),
        (2, 128, 8, 2, (1, 9, 32, 4)),
        (12, 64, 9, 2, (2, 5, 32, 4)),
        (4, 256, 16, 4, (2, 17, 32, 4)),
        (3, 128, 4, 1, (1, 9, 32, 4)),
    ],
)
def test_buffers_have_room_for_every_plan(num_kv_heads, head_size, queries, most_heads, state):
    made_for = shape(head_size=head_size, queries=queries)
    buffers = make_buffers(7, num_kv_heads, 5, made_for, CPU)
    assert {name: (each.shape, each.dtype) for name, each in buffers.items()} == dict(
        items=((5 + 7 * num_kv_heads + 1, 8), torch.int32),
        header=((2 + 7,), torch.int32),
        parts=((10 * most_heads, *state), FLOAT),
        arrived=((10,), torch.int32),
    )
    assert not buffers["arrived"].any()
    elsewhere = make_buffers(7, num_kv_heads, 5, made_for, torch.device("meta"))
    assert all(each.is_meta for each in elsewhere.values())


def test_a_table_fits_if_the_kernel_counts_no_wrong_entry(library):
    decode = own()
    library.wrong = [0, 3, 0]
    found = [decode.table_fits(TABLE, LENS, 3, 16)]
    table = TABLE.repeat(2, 2)
    found += [decode.table_fits(table, LENS.repeat(2), 5, 16) for _ in range(2)]
    assert found == [True, False, True] and library.prepared == ["check_table"]
    told = library.launches[1][1]
    assert told.pop("block_table") is table and told.pop("context_lens").tolist() == [5, 4] * 2
    assert told.pop("num_wrong").dtype == torch.int32
    assert told == dict(num_seqs=4, max_blocks_per_seq=2, num_blocks=5)


RIGHT = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE)


def test_rung_9_is_told_what_it_computes(library):
    decode = own()
    decode.plan(LENS)
    out = decode(**RIGHT)
    name, told = library.launches[-1]
    assert name == "paged_attention_planned" and (out.shape, out.dtype) == (Q.shape, HALF)
    tensors = RIGHT | dict(out=out) | decode.buffers
    assert all(told.pop(name) is tensor for name, tensor in tensors.items())
    assert told == dict(
        k_scales=None,
        v_scales=None,
        context_lens=None,
        scores=None,
        q_stride=8 * 128,
        num_seqs=2,
        num_q_heads=8,
        num_kv_heads=2,
        head_size=128,
        block_size=16,
        max_blocks_per_seq=1,
        max_context_len=0,
        num_blocks=4,
        dtype=1,
        scale=1 / math.sqrt(128),
    )


def test_tensors_like_those_before_are_launched_without_preparing_again(library):
    decode, mine = own(), torch.empty_like(Q)
    decode.plan(LENS)
    decode(**RIGHT)
    others = {name: tensor.clone() for name, tensor in RIGHT.items()} | dict(out=mine)
    assert decode(**others, scale=0.0) is mine
    told = library.launches[-1][1]
    assert all(told[name] is tensor for name, tensor in others.items()) and told["scale"] == 0
    assert library.prepared == ["plan_work", "paged_attention_planned"]
    wide = TABLE.repeat(1, 2)
    decode(**RIGHT | dict(block_table=wide))
    assert library.launches[-1][1]["max_blocks_per_seq"] == 2 and len(library.prepared) == 3
    decode(**RIGHT | dict(block_table=wide))
    assert len(library.prepared) == 3


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "out"])
def test_after_right_tensors_a_wrong_address_is_still_refused(library, name):
    decode = own()
    decode.plan(LENS)
    right = RIGHT | dict(out=torch.zeros_like(Q))
    decode(**right)
    num_launches = len(library.launches)
    with pytest.raises(ValueError, match=f"{name} must begin"):
        decode(**right | {name: at_an_odd_place(right[name])})
    assert len(library.launches) == num_launches


def test_all_tensors_are_where_the_buffers_are():
    decode = own()
    decode.plan(LENS)
    with pytest.raises(ValueError, match="q must be on items's device, cpu, not on meta"):
        decode(**{name: tensor.to("meta") for name, tensor in RIGHT.items()})


def test_the_last_few_objects_are_kept_and_no_two_places_share_one():
    model = MODEL | dict(device="cpu")
    first = kept_decode(1, 4, **model)
    assert kept_decode(1, 4, **model) is first and first.max_num_seqs == 4
    others = [kept_decode(place, 4, **model) for place in (2, 3, 4)]
    assert kept_decode(1, 4, **model) is first and first not in others
    for place in (5, 6, 7, 8):
        kept_decode(place, 4, **model)
    assert kept_decode(1, 4, **model) is not first
    kept_decode.cache_clear()


def test_a_place_is_a_stream_or_a_thread(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77)
    )
    monkeypatch.setattr(self_planned.threading, "get_ident", lambda: 88)
    assert (place_of(torch.device("cuda")), place_of(CPU)) == (77, 88)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(max_num_seqs=0), ValueError, ["max_num_seqs", "4096", "0"]),
        (dict(max_num_seqs=MOST_SEQS + 1), ValueError, ["max_num_seqs", "4096", "4097"]),
        (dict(num_blocks=MOST_BLOCKS + 1), ValueError, ["num_blocks", "256", "257"]),
        (dict(num_q_heads=7), ValueError, ["num_q_heads", "2 KV heads", "7"]),
        (dict(head_size=96), ValueError, ["head_size", "rung 9", "96"]),
        (dict(head_size=64, kv_dtype=FP8), ValueError, ["head_size", "128 or", "64"]),
        (dict(dtype=BFLOAT, kv_dtype=FP8), TypeError, ["dtype", "float16", "bfloat16"]),
        (dict(kv_dtype=BFLOAT), TypeError, ["kv_dtype", "float16", "bfloat16"]),
        (dict(dtype=torch.float32), TypeError, ["dtype", "float32"]),
    ],
)
def test_what_it_is_not_made_for_is_refused(changes, error, words):
    with pytest.raises(error) as caught:
        SelfPlannedDecode(**dict(max_num_seqs=4, device="cpu") | MODEL | changes)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "lens, error, words",
    [
        (LENS.repeat(3), ValueError, ["context_lens", "1 to 4", "6"]),
        (LENS[:0], ValueError, ["context_lens", "1 to 4", "0"]),
        (LENS.long(), TypeError, ["context_lens", "int32", "int64"]),
        (LENS[None], ValueError, ["context_lens", "(num_seqs,)"]),
        (LENS.repeat(2)[::2], ValueError, ["context_lens", "contiguous"]),
        (LENS.to("meta"), ValueError, ["context_lens", "meta"]),
        ([5, 4], TypeError, ["context_lens", "list"]),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lens, error, words):
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    with pytest.raises(error) as caught:
        decode.plan(lens)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(q=Q[:1]), ValueError, ["q", "(2, 8, 128)"]),
        (dict(q=Q.float()), TypeError, ["q", "float16"]),
        (dict(k_cache=CACHE[:, :, :1]), ValueError, ["k_cache", "(num_blocks, 16, 2, 128)"]),
        (dict(block_table=TABLE.long()), TypeError, ["block_table", "int32"]),
        (dict(k_scales=torch.ones(2)), ValueError, ["k_scales", "rung 9"]),
        (dict(out=Q[:1]), ValueError, ["out", "(2, 8, 128)"]),
        (dict(k_cache=at_an_odd_place(CACHE)), ValueError, ["k_cache must begin", "16"]),
        (dict(q=at_an_odd_place(Q)), ValueError, ["q must begin", "16"]),
        (dict(q=Q.to("meta")), ValueError, ["meta"]),
        (dict(block_table=[[0], [0]]), TypeError, ["block_table", "list"]),
    ],
)
def test_tensors_that_do_not_fit_are_refused_after_right_ones_too(changes, error, words):
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    right = dict(q=Q, k_cache=CACHE, v_cache=CACHE, block_table=TABLE)
    with pytest.raises(RuntimeError, match="call plan"):
        decode(**right)
    decode.plan(LENS)
    for _ in range(2):
        with pytest.raises(error) as caught:
            decode(**right | changes)
        assert all(word in str(caught.value) for word in words), caught.value
        decode(**right)


def test_another_number_of_sequences_needs_other_tensors():
    decode = SelfPlannedDecode(4, **MODEL, device="cpu")
    decode.plan(LENS)
    decode(Q, CACHE, CACHE, TABLE)
    decode.plan(LENS[:1])
    with pytest.raises(ValueError, match=r"q must have the shape \(1, 8, 128\)"):
        decode(Q, CACHE, CACHE, TABLE)


def test_tensors_are_made_where_the_buffers_are(library):
    with unsaid():
        decode = own()
        assert decode.table_fits(TABLE, LENS, 3, 16)
        decode.plan(LENS)
        out = decode(**RIGHT)
    told = library.launches[-1][1] | library.launches[0][1]
    assert all(each.device == CPU for each in told.values() if isinstance(each, torch.Tensor))
    assert (out.dtype, out.device) == (HALF, CPU)
    assert decode.buffers["parts"].dtype == torch.float32


def test_an_address_is_refused_by_its_distance_from_16_alone(monkeypatch):
    decode = own()
    decode.plan(LENS)
    right = RIGHT | dict(out=torch.zeros_like(Q))
    decode(**right)
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda tensor: 8 * 15)
    with pytest.raises(ValueError, match="q must begin"):
        decode(**right)
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda tensor: 16 * 17)
    decode(**right)
