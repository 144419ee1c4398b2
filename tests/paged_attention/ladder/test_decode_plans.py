"""How a batch of decodes is planned, what a rung is told, and what is refused.

The kernels are stand-ins.
"""

import math

import pytest
import torch

from decode_calls import CACHE, FLOAT, HALF, LENS, TABLE, Q, at_an_odd_place
from int32 import integers
from paged_attention import ladder
from paged_attention.ladder import FP8, PagedDecode, Shape, attn_paged_fast
from paged_attention.self_planned import MOST_SEQS, SelfPlannedDecode
from paged_attention.work_plan import BUSY, best_plan, choose_heads_at_once, choose_plan
from paged_attention.work_plan import plan_work as plan_of_rows
from unsaid import unsaid

CPU = torch.device("cpu")


class Library:
    """Keeps the arguments of each launch of each of its kernels."""

    def __init__(self):
        self.launches, self.asked = [], []

    def __getattr__(self, name):
        def launch(**arguments):
            self.launches.append((name, arguments))

        def prepare(**arguments):
            return lambda **changes: launch(**arguments | changes)

        launch.prepare = prepare
        return launch


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """A stand-in for every rung. `asked` has what it was compiled for."""
    made = Library()

    def compiled(*words):
        made.asked.append(words)
        return made

    monkeypatch.setattr(ladder, "rung_library", compiled)
    return made


GOOD = dict(num_q_heads=8, num_kv_heads=2, head_size=128, block_size=16, dtype=HALF)
SCALES = torch.ones(2)
BAD_PLANS = {
    "no such rung": (dict(number=10), ValueError, ["number", "0 to 9", "10"]),
    "head size": (dict(head_size=96), ValueError, ["head_size", "64 or 128 or 256", "96"]),
    "fp8 head size": (
        dict(number=8, head_size=64, kv_dtype=FP8),
        ValueError,
        ["head_size", "128 or 256", "64"],
    ),
    "many queries": (dict(num_q_heads=34), ValueError, ["1 to 16", "17"]),
    "no queries": (dict(num_q_heads=0), ValueError, ["num_q_heads", "2 KV heads", "0"]),
    "heads that do not divide": (
        dict(num_q_heads=7),
        ValueError,
        ["num_q_heads", "multiple", "7"],
    ),
    "float": (dict(dtype=FLOAT), TypeError, ["dtype", "float16 or torch.bfloat16", "float32"]),
    "an fp8 cache": (dict(kv_dtype=FP8), TypeError, ["kv_dtype", "float16", "float8"]),
    "no fp8 cache": (dict(number=8), TypeError, ["kv_dtype", "float8", "float16"]),
    "blocks of no token": (dict(block_size=0), ValueError, ["block_size", "0"]),
    "int64 lengths": (dict(context_lens=LENS.long()), TypeError, ["context_lens", "int32"]),
    "strides": (
        dict(context_lens=LENS.repeat(2)[::2]),
        ValueError,
        ["context_lens", "contig"],
    ),
    "no sequence": (dict(context_lens=LENS[:0]), ValueError, ["context_lens", "at least one"]),
    "a negative length": (
        dict(context_lens=LENS - 5),
        ValueError,
        ["context_lens", "-1", "sequence 1"],
    ),
    "splits": (dict(number=6, num_splits=0), ValueError, ["num_splits", "0"]),
    "three heads at once": (
        dict(num_q_heads=6, num_kv_heads=3, heads_at_once=3),
        ValueError,
        ["heads_at_once", "8 warps"],
    ),
    "heads that are not there": (
        dict(heads_at_once=4),
        ValueError,
        ["heads_at_once", "2 KV heads", "4"],
    ),
    "no blocks": (dict(num_blocks=0), ValueError, ["num_blocks", "0"]),
}


@pytest.mark.parametrize("changes, error, words", BAD_PLANS.values(), ids=BAD_PLANS)
def test_what_a_rung_is_not_made_for_is_refused(changes, error, words):
    with pytest.raises(error) as caught:
        PagedDecode(**dict(number=7, context_lens=LENS) | GOOD | changes)
    assert all(word in str(caught.value) for word in words), caught.value


def of_blocks(num_blocks):
    """A cache of very many blocks that are all the same one; a block has 32 rows."""
    return CACHE[:1].expand(num_blocks, -1, -1, -1)


BAD_CALLS = {
    "other sequences": (7, dict(q=Q[:1]), ValueError, ["q", "(2, 8, 128)", "(1, 8, 128)"]),
    "q's dtype": (7, dict(q=Q.float()), TypeError, ["q", "float16", "float32"]),
    "heads": (
        7,
        dict(k_cache=CACHE[:, :, :1]),
        ValueError,
        ["k_cache", "(num_blocks, 16, 2, 128)"],
    ),
    "block size": (7, dict(v_cache=CACHE[:, :8]), ValueError, ["v_cache", "(3, 16, 2, 128)"]),
    "cache's dtype": (
        7,
        dict(k_cache=CACHE.to(FP8)),
        TypeError,
        ["k_cache", "float16", "float8"],
    ),
    "a short table": (
        7,
        dict(block_table=TABLE[:, :0]),
        ValueError,
        ["block_table", "0 entries", "5 tokens", "1"],
    ),
    "int64 table": (7, dict(block_table=TABLE.long()), TypeError, ["block_table", "int32"]),
    "scales without a use": (7, dict(k_scales=SCALES), ValueError, ["k_scales", "rung 8"]),
    "missing scales": (8, dict(), TypeError, ["k_scales", "tensor", "NoneType"]),
    "scales without an fp8 cache": (
        9,
        dict(v_scales=SCALES),
        ValueError,
        ["v_scales", "rung 9 for torch.float16"],
    ),
    "scales of others": (
        8,
        dict(k_scales=SCALES, v_scales=SCALES[:1]),
        ValueError,
        ["v_scales", "(2,)", "(1,)"],
    ),
    "elsewhere": (7, dict(q=Q.to("meta")), ValueError, ["q", "meta", "cpu"]),
    "q with strides": (
        7,
        dict(q=Q.transpose(1, 2).contiguous().transpose(1, 2)),
        ValueError,
        ["q", "q.contiguous()"],
    ),
    "caches with strides": (
        7,
        dict(v_cache=CACHE.repeat(1, 1, 1, 2)[..., :128]),
        ValueError,
        ["v_cache", "contiguous"],
    ),
    "q at an odd place": (
        7,
        dict(q=at_an_odd_place(Q)),
        ValueError,
        ["q must begin", "16 bytes"],
    ),
    "q with an odd distance": (
        7,
        dict(q=torch.zeros(2, 1028).half()[:, :1024].view(2, 8, 128)),
        ValueError,
        ["q must begin", "16 bytes"],
    ),
    "k_cache at an odd place": (
        7,
        dict(k_cache=at_an_odd_place(CACHE)),
        ValueError,
        ["k_cache must begin", "16 bytes"],
    ),
    "v_cache at an odd place": (
        7,
        dict(v_cache=at_an_odd_place(CACHE)),
        ValueError,
        ["v_cache must begin", "16 bytes"],
    ),
    "out at an odd place": (
        2,
        dict(out=at_an_odd_place(Q)),
        ValueError,
        ["out must begin", "16 bytes"],
    ),
    "a cache of 2³¹ rows": (
        7,
        dict(k_cache=of_blocks(2**26), v_cache=of_blocks(2**26)),
        ValueError,
        ["2147483648 rows"],
    ),
    "a cache of almost 2³¹ rows": (
        7,
        dict(k_cache=of_blocks(2**26 - 1), v_cache=of_blocks(2**26 - 1)),
        ValueError,
        ["k_cache must be contiguous"],
    ),
    "an output of another dtype": (7, dict(out=Q.float()), TypeError, ["out", "float16"]),
}


@pytest.mark.parametrize("number, changes, error, words", BAD_CALLS.values(), ids=BAD_CALLS)
def test_tensors_that_do_not_fit_the_plan_are_refused(number, changes, error, words):
    kv_dtype = FP8 if number == 8 else None
    decode = PagedDecode(number, LENS, **GOOD, kv_dtype=kv_dtype)
    cache = CACHE.to(kv_dtype or HALF)
    with pytest.raises(error) as caught:
        decode(**dict(q=Q, k_cache=cache, v_cache=cache, block_table=TABLE) | changes)
    assert all(word in str(caught.value) for word in words), caught.value


def planned(number, lens=LENS, **changes):
    kv_dtype = dict(kv_dtype=FP8) if number == 8 else {}
    return PagedDecode(number, lens, **GOOD | kv_dtype | changes)


def call(number, decode, **changes):
    cache = CACHE.to(FP8) if number == 8 else CACHE
    scales = dict(k_scales=SCALES, v_scales=SCALES + 1) if number == 8 else {}
    tensors = dict(q=Q, k_cache=cache, v_cache=cache, block_table=TABLE) | scales | changes
    return decode(**tensors), tensors


@pytest.mark.parametrize("number", range(10))
def test_a_kernel_is_told_what_it_computes(library, number):
    decode = planned(number)
    library.launches.clear()
    out, tensors = call(number, decode)
    ((name, told),) = library.launches
    assert name == {8: "paged_attention_fp8", 9: "paged_attention_planned"}.get(
        number, "paged_attention"
    )
    tensors |= dict(out=out, context_lens=LENS)
    assert all(told.pop(name) is tensor for name, tensor in tensors.items())
    if number == 9:
        assert told.pop("k_scales") is None and told.pop("v_scales") is None
    assert all(told.pop(name) is what for name, what in decode.workspace.items())
    assert told == dict(
        scores=None,
        q_stride=8 * 128,
        num_seqs=2,
        num_q_heads=8,
        num_kv_heads=2,
        head_size=128,
        block_size=16,
        max_blocks_per_seq=1,
        max_context_len=5,
        dtype=1,
        scale=1 / math.sqrt(128),
    )
    assert (out.shape, out.dtype) == (Q.shape, HALF)


def test_a_factor_and_an_output_may_be_given(library):
    mine = torch.empty_like(Q)
    out, _ = call(3, planned(3), scale=0.0, out=mine)
    assert out is mine and library.launches[-1][1]["scale"] == 0.0


@pytest.mark.parametrize("target", [None, "checked"])
def test_a_rung_is_compiled_for_the_shape_and_the_target(library, target):
    made = planned(7, target=target)
    expected = Shape(HALF, 128, 4, 16, None, 232_448)
    assert library.asked == [(7, expected, target or "fast")]
    assert repr(made.shape) == repr(expected)  # whole numbers
    mine = Library()
    assert planned(7, library=mine).library is mine and len(library.asked) == 1


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("longest, lies_outside", [(11_776, False), (11_777, True)])
def test_scores_that_shared_memory_cannot_hold_have_room(number, longest, lies_outside):
    scores = planned(number, integers(5, longest)).scores
    if lies_outside and number <= 2:
        assert (scores.shape, scores.dtype) == ((2, 8, longest), torch.float32)
    else:
        assert scores is None


@pytest.mark.parametrize("lengths, num_splits", [((16,), 1), ((5, 16 * 40), 2), ((4_000,), 2)])
def test_splits_are_chosen_for_the_longest_context(monkeypatch, lengths, num_splits):
    asked = []

    def choose(*words):
        asked.append(words)
        return num_splits

    monkeypatch.setattr(ladder, "choose_num_splits", choose)
    work = planned(6, integers(*lengths)).workspace
    assert asked == [(len(lengths) * 2, -(-max(lengths) // 16), 4)]
    shape = (num_splits, len(lengths), 8)
    assert {name: getattr(part, "shape", part) for name, part in work.items()} == dict(
        part_o=(*shape, 128), part_m=shape, part_l=shape, num_splits=num_splits
    )
    assert {work[name].dtype for name in ("part_o", "part_m", "part_l")} == {torch.float32}


@pytest.mark.parametrize("num_splits", [1, 3])
def test_splits_may_be_given(num_splits):
    assert planned(6, num_splits=num_splits).workspace["num_splits"] == num_splits


LONG = integers(300, 0, 1_000, 17)
LONG_LENS = LONG.tolist()


@pytest.mark.parametrize("number, busy", [(7, BUSY), (8, 1.0)])
@pytest.mark.parametrize("num_kv_heads", [2, 8])
def test_work_is_divided_as_the_plan_says(number, busy, num_kv_heads):
    work = planned(number, LONG, num_kv_heads=num_kv_heads).workspace
    heads, plan = choose_plan(LONG_LENS, num_kv_heads, 8, 4, busy)
    assert (work["heads_at_once"], work["num_blocks"]) == (heads, plan.num_blocks)
    assert work["items"][:-1].tolist() == plan.items.tolist()
    assert not work["items"][-1].any() and work["items"].dtype == torch.int32


@pytest.mark.parametrize("number, busy", [(7, BUSY), (8, 1.0)])
def test_heads_at_once_may_be_given(number, busy):
    lens = integers(*range(0, 1_300, 100))
    work = planned(number, lens, heads_at_once=1).workspace
    plan = best_plan(lens.tolist(), 2, 1, 4, busy)
    assert work["heads_at_once"] == 1 and work["items"][:-1].tolist() == plan.items.tolist()


@pytest.mark.parametrize("num_blocks", [1, 3, 40])
def test_blocks_may_be_given(num_blocks):
    heads = choose_heads_at_once(LONG_LENS, 2, 8, 4)
    work = planned(7, LONG, num_blocks=num_blocks).workspace
    plan = plan_of_rows(LONG_LENS, 2, num_blocks, heads)
    assert work["heads_at_once"] == heads and work["num_blocks"] == plan.num_blocks
    assert work["items"][:-1].tolist() == plan.items.tolist()
    both = planned(7, LONG, num_blocks=num_blocks, heads_at_once=1).workspace
    plan = plan_of_rows(LONG_LENS, 2, num_blocks, 1)
    assert both["heads_at_once"] == 1 and both["items"][:-1].tolist() == plan.items.tolist()


@pytest.mark.parametrize(
    "changes, expected",
    [
        (dict(num_blocks=1), (2, 1, 9, 32, 4)),
        (dict(num_blocks=1, heads_at_once=1), (1, 1, 9, 32, 4)),
        (dict(num_blocks=1, num_q_heads=18, heads_at_once=1), (1, 2, 9, 32, 4)),
        (dict(num_blocks=1, num_q_heads=16, heads_at_once=1), (1, 1, 9, 32, 4)),
        (dict(num_blocks=1, head_size=64, heads_at_once=1), (1, 1, 5, 32, 4)),
        (dict(num_blocks=4, heads_at_once=1), None),
    ],
)
def test_there_is_room_for_the_state_of_every_part(changes, expected):
    lens = integers(1_000, 700)
    work = planned(7, lens, **changes).workspace
    if expected is None:
        parts = plan_of_rows(lens.tolist(), 2, 4, 1).num_parts
        assert parts > 1
        expected = (parts, 1, 9, 32, 4)
    if changes == dict(num_blocks=1):
        expected = (choose_heads_at_once(lens.tolist(), 2, 8, 4), *expected[1:])
    assert work["parts"].shape == expected and work["parts"].dtype == torch.float32
    assert work["arrived"].tolist() == [0] * expected[0]
    assert work["arrived"].dtype == torch.int32


def test_heads_at_once_are_one_or_more():
    planned(7, heads_at_once=2)
    for none in (0, -1):
        with pytest.raises(ValueError, match=f"heads_at_once must.*, not {none}"):
            planned(7, heads_at_once=none)


@pytest.mark.parametrize("heads_at_once, head_size", [(16, 64), (8, 256)])
def test_heads_at_once_are_no_more_than_the_warps(heads_at_once, head_size):
    sizes = dict(num_q_heads=16, num_kv_heads=16, head_size=head_size)
    with pytest.raises(ValueError, match="heads_at_once must divide the 16 KV heads"):
        planned(7, heads_at_once=heads_at_once, **sizes)
    planned(7, heads_at_once=heads_at_once // 2, **sizes)


def test_rung_9_has_the_buffers_of_an_object_that_plans_itself(library):
    decode = planned(9, num_blocks=3)
    name, told = library.launches[0]
    assert name == "plan_work" and told["context_lens"] is LENS and told["num_blocks"] == 3
    own = SelfPlannedDecode(2, **GOOD, device="cpu", library=library, num_blocks=3)
    expected = {name: buffer.shape for name, buffer in own.buffers.items()}
    shapes = {name: getattr(part, "shape", part) for name, part in decode.workspace.items()}
    assert shapes == expected | {"num_blocks": 3}
    assert planned(9, head_size=128, kv_dtype=FP8).shape.cache_dtype == FP8


def test_more_sequences_than_the_device_plans_for_go_to_rung_7_or_8(library):
    many = MOST_SEQS + 1
    q, lens = Q[:1].expand(many, -1, -1).contiguous(), LENS[:1].repeat(many)
    table = TABLE[:1].repeat(many, 1)
    out = attn_paged_fast(q, CACHE, CACHE, table, lens, scale=0.5, target="checked")
    assert library.asked[-1][0::2] == (7, "checked") and out.shape == q.shape
    assert library.launches[-1][1]["scale"] == 0.5
    cache = CACHE.to(FP8)
    attn_paged_fast(q, cache, cache, table, lens, SCALES, SCALES + 1)
    name, told = library.launches[-1]
    assert name == "paged_attention_fp8" and library.asked[-1][0::2] == (8, "fast")
    assert told["k_scales"] is SCALES and torch.equal(told["v_scales"], SCALES + 1)
    for wrong in (table + 3, table - 1):
        with pytest.raises(ValueError, match="block_table, row 0"):
            attn_paged_fast(q, CACHE, CACHE, wrong, lens)
    with pytest.raises(TypeError, match="k_cache"):
        attn_paged_fast(q, CACHE.float(), CACHE.float(), table, lens)


@pytest.mark.parametrize("q, error", [(3, TypeError), (torch.tensor(3.0), ValueError)])
def test_queries_without_a_length_are_refused_each_time(q, error):
    for _ in range(2):
        with pytest.raises(error, match="q must"):
            attn_paged_fast(q, CACHE, CACHE, TABLE, LENS)


class Kept:
    """A stand-in for the object that the function keeps."""

    def __init__(self, fits):
        self.fits, self.done = fits, []

    def table_fits(self, *words):
        self.done.append(words)
        return self.fits

    def plan(self, context_lens):
        self.done.append(context_lens)

    def __call__(self, *tensors):
        return tensors


@pytest.mark.parametrize("num_seqs, room", [(1, 1), (2, 2), (3, 4), (5, 8), (4096, 4096)])
def test_the_function_keeps_an_object_for_the_next_power_of_two(monkeypatch, num_seqs, room):
    asked, kept = [], Kept(True)
    monkeypatch.setattr(
        ladder, "kept_decode", lambda *words, **model: asked.append((words, model)) or kept
    )
    monkeypatch.setattr(ladder, "place_of", lambda device: f"place of {device}")
    q, lens, table = (
        each[:1].repeat(num_seqs, *[1] * (each.dim() - 1)) for each in (Q, LENS, TABLE)
    )
    given = attn_paged_fast(q, CACHE, CACHE, table, lens, SCALES, SCALES, 0.5, "checked")
    assert asked == [
        (("place of cpu", room), GOOD | dict(kv_dtype=HALF, device=CPU, target="checked"))
    ]
    assert [id(each) for each in kept.done[0][:2]] == [id(table), id(lens)]
    assert kept.done[0][2:] == (3, 16) and kept.done[1] is lens
    wanted = (q, CACHE, CACHE, table, SCALES, SCALES, 0.5)
    assert all(got is each for got, each in zip(given, wanted, strict=True))


def test_an_entry_that_does_not_fit_is_named(monkeypatch):
    monkeypatch.setattr(ladder, "kept_decode", lambda *_, **__: Kept(False))
    with pytest.raises(ValueError, match=r"block_table, row 1, holds 3 \(entry 0\)"):
        attn_paged_fast(Q, CACHE, CACHE, integers(0, 3).reshape(2, 1), LENS)
    with pytest.raises(ValueError, match="q is empty"):
        attn_paged_fast(Q[:0], CACHE, CACHE, TABLE[:0], LENS[:0])


def test_tensors_that_look_like_earlier_ones_are_not_checked_again(monkeypatch):
    seen = []
    monkeypatch.setattr(ladder, "check_decode_tensors", lambda *given: seen.append(given))
    monkeypatch.setattr(ladder, "_checked", set())
    for rows in (1, 1, 2, 1):
        ladder._check_once(Q[:rows], None)
    assert [len(given[0]) for given in seen] == [1, 2]
    for rows in range(ladder.MOST_CHECKED + 1):
        ladder._check_once(Q[0, 0, :rows])
    assert len(ladder._checked) <= ladder.MOST_CHECKED
    num_seen = len(seen)
    ladder._check_once(Q[:1], None)  # forgotten meanwhile
    assert len(seen) == num_seen + 1


@pytest.mark.parametrize("number", [0, 6, 7, 8, 9])
def test_tensors_are_made_where_the_batch_is_and_in_32_bits(library, number):
    lens, table = integers(12_000, 5), torch.zeros(2, 750, dtype=torch.int32)
    with unsaid():
        decode = planned(number, lens)
        out, _ = call(number, decode, block_table=table)
    told = library.launches[-1][1]
    tensors = {name: each for name, each in told.items() if isinstance(each, torch.Tensor)}
    assert {each.device for each in tensors.values()} == {CPU} and out.dtype == HALF
    floats = {"scores", "part_o", "part_m", "part_l", "parts"} & {*tensors}
    assert floats and {tensors[name].dtype for name in floats} == {FLOAT}
