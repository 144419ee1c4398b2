"""What the rungs of the ladder are made for, and what their calls take."""

from types import SimpleNamespace

import pytest
import torch

from decode_calls import (
    BFLOAT,
    CACHE,
    FLOAT,
    HALF,
    LENS,
    TABLE,
    Q,
    at_an_odd_place,
    shape,
)
from paged_attention import rungs
from paged_attention.ladder import (
    FP8,
    RUNGS,
    Shape,
    num_multiprocessors,
    rung_library,
    rung_texts,
    shape_text,
    shared_bytes,
)
from paged_attention.rungs import (
    check_card,
    check_decode_call,
    check_heads,
    check_shape,
    num_warps,
)

CPU = torch.device("cpu")
SCALES = torch.ones(2)


def test_a_shape_is_written_into_its_file(monkeypatch):
    text = shape_text(Shape(BFLOAT, 256, 5, 32, shared_bytes=1234))
    for line in (
        "using Number = __nv_bfloat16;",
        "using KvNumber = __nv_bfloat16;",
        "constexpr int head_size = 256;",
        "constexpr int queries_per_kv_head = 5;",
        "constexpr int block_size = 32;",
        "constexpr int shared_bytes = 1234;",
    ):
        assert line in text
    monkeypatch.setattr(
        "paged_attention.rungs.read_kernel",
        lambda _: text.replace("int head_size", "int size"),
    )
    with pytest.raises(ValueError, match="head_size"):
        shape_text(Shape(HALF, 64, 1, 16))


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.title)
def test_a_rung_knows_its_files(rung):
    assert (
        RUNGS[rung.number] is rung
        and rung.files[-1] == rung.file
        and "ladder/shape.cuh" in rung.files
    )
    assert rung.file.startswith(f"ladder/{rung.number}_")
    texts = rung_texts(rung.number, Shape(HALF, 128, 4, 16))
    assert list(texts) == list(rung.files)
    assert all(len(text.splitlines()) <= 300 for text in texts.values())


@pytest.mark.parametrize(
    "number, made_for",
    [
        *((number, shape()) for number in (0, 7, 9)),
        *((number, shape(FLOAT)) for number in (0, 3)),
        (4, shape(BFLOAT)),
        (8, shape(kv_dtype=FP8)),
        (9, shape(kv_dtype=FP8)),
        (8, shape(head_size=256, kv_dtype=FP8)),
        *((7, shape(head_size=size)) for size in (64, 256)),
        *((7, shape(queries=count)) for count in (1, 16)),
        (7, shape(block_size=1)),
        (7, shape(kv_dtype=HALF)),
    ],
)
def test_shapes_that_the_rungs_are_made_for(number, made_for):
    check_shape(number, made_for)


@pytest.mark.parametrize(
    "number, not_made_for, error, words",
    [
        (-1, shape(), ValueError, "number must be .* 0 to 9, not -1"),
        (10, shape(), ValueError, "number must be .* 0 to 9, not 10"),
        (
            4,
            shape(FLOAT),
            TypeError,
            "dtype must be torch.float16 or torch.bfloat16 for rung 4",
        ),
        (3, shape(FP8), TypeError, "dtype must be torch.float32 or torch.float16 or .*rung 3"),
        (8, shape(BFLOAT, kv_dtype=FP8), TypeError, "dtype must be torch.float16 for rung 8"),
        (9, shape(BFLOAT, kv_dtype=FP8), TypeError, "dtype must be torch.float16 for rung 9"),
        (8, shape(), TypeError, "kv_dtype must be torch.float8_e4m3fn for rung 8"),
        (7, shape(kv_dtype=FP8), TypeError, "kv_dtype must be torch.float16 for rung 7"),
        (9, shape(kv_dtype=BFLOAT), TypeError, "kv_dtype must be torch.float16 for rung 9"),
        (8, shape(head_size=64, kv_dtype=FP8), ValueError, "must be 128 or 256 for rung 8"),
        (9, shape(head_size=64, kv_dtype=FP8), ValueError, "must be 128 or 256 for rung 9"),
        (7, shape(head_size=65), ValueError, "must be 64 or 128 or 256 for rung 7, not 65"),
        (7, shape(queries=0), ValueError, "1 to 16 query heads, not 0"),
        (7, shape(queries=17), ValueError, "1 to 16 query heads, not 17"),
        (7, shape(block_size=0), ValueError, "block_size must be positive, not 0"),
    ],
)
def test_shapes_that_they_are_not_made_for(number, not_made_for, error, words):
    with pytest.raises(error, match=words):
        check_shape(number, not_made_for)


def test_without_a_dtype_of_their_own_caches_have_that_of_q():
    assert Shape(HALF, 64, 1, 16) == Shape(HALF, 64, 1, 16, None, 232_448)
    assert (shape().cache_dtype, shape(kv_dtype=FP8).cache_dtype) == (HALF, FP8)


def test_heads_must_be_shared_evenly():
    for heads in ((1, 1), (8, 2), (2, 2)):
        check_heads(*heads)
    for num_q_heads, num_kv_heads in ((7, 2), (0, 2), (-2, 2), (2, 0), (2, -2), (1, 2)):
        with pytest.raises(ValueError, match=f"{num_kv_heads} KV heads, not {num_q_heads}"):
            check_heads(num_q_heads, num_kv_heads)


@pytest.mark.parametrize(
    "dtype, kv_dtype, number, kv_number",
    [
        (FLOAT, None, "float", "float"),
        (HALF, FP8, "__half", "Fp8"),
        (HALF, None, "__half", "__half"),
    ],
)
def test_types_are_written_as_the_kernels_name_them(dtype, kv_dtype, number, kv_number):
    text = shape_text(shape(dtype, kv_dtype=kv_dtype))
    assert f"using Number = {number};" in text and f"using KvNumber = {kv_number};" in text


def test_a_rung_is_compiled_from_its_texts_for_a_target(monkeypatch):
    built = []
    monkeypatch.setattr(
        rungs, "build_cuda", lambda *texts, **words: built.append((texts, words))
    )
    made_for = shape(queries=3)
    rung_library.__wrapped__(5, made_for, "checked")
    texts = rung_texts(5, made_for)
    names = dict(names=tuple(texts), target="checked", name="ladder_5")
    assert built == [(tuple(texts.values()), names)]
    assert "constexpr int queries_per_kv_head = 3;" in texts["ladder/shape.cuh"]
    with pytest.raises(ValueError, match="head_size"):
        rung_library.__wrapped__(5, shape(head_size=65), "fast")
    with pytest.raises(TypeError, match="kv_dtype"):
        rung_library.__wrapped__(5, shape(kv_dtype=FP8), "fast")


def test_a_card_is_asked_only_for_the_gpu(monkeypatch):
    def lack(number, kv_dtype):
        return "lacks 8 bits" if kv_dtype == FP8 else "lacks it" if number == 4 else ""

    monkeypatch.setattr(rungs, "choose_target", lambda target: target or "gpu")
    monkeypatch.setattr(rungs, "lack_of_card", lack)
    check_card(4, "fast")
    check_card(3, "gpu")
    check_card(3, None)
    with pytest.raises(ValueError, match="^rung 4 lacks it$"):
        check_card(4, "gpu")
    with pytest.raises(ValueError, match="^rung 4 lacks it$"):
        rung_library.__wrapped__(4, shape(), None)
    with pytest.raises(ValueError, match="^rung 9 with a cache of 8 bits lacks 8 bits$"):
        rung_library.__wrapped__(9, shape(kv_dtype=FP8), "gpu")


def test_what_a_gpu_has(monkeypatch):
    has = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=99_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: has)
    assert (num_multiprocessors(torch.device("cuda")), num_multiprocessors(CPU)) == (132, 4)
    assert (shared_bytes(torch.device("cuda")), shared_bytes(CPU)) == (99_000, 232_448)


@pytest.mark.parametrize(
    "head_size, kv_dtype, warps",
    [(64, None, 8), (128, None, 8), (256, None, 4), (128, FP8, 8), (256, FP8, 8)],
)
def test_a_block_has_as_many_warps_as_have_room(head_size, kv_dtype, warps):
    assert num_warps(shape(head_size=head_size, kv_dtype=kv_dtype)) == warps


CALL = dict(
    q=Q,
    out=Q.clone(),
    k_cache=CACHE,
    v_cache=CACHE,
    block_table=TABLE,
    k_scales=None,
    v_scales=None,
)


def checked(number=7, made_for=None, longest=16, **changes):
    check_decode_call(number, made_for or shape(), 2, 8, 2, longest, **CALL | changes)


@pytest.mark.parametrize("number", range(10))
def test_from_rung_2_on_numbers_begin_at_multiples_of_16_bytes(number):
    for name in ("q", "out", "k_cache", "v_cache"):
        changes = {name: at_an_odd_place(CALL[name])}
        if number < 2:
            checked(number, **changes)
        else:
            with pytest.raises(ValueError, match=f"{name} must begin"):
                checked(number, **changes)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        (dict(out=Q[:1]), ValueError, "out must have the shape"),
        (dict(q=Q[:, :4], out=Q[:, :4]), ValueError, "q must have the shape"),
        (dict(v_cache=CACHE[:2]), ValueError, "v_cache must have the shape"),
        (dict(v_cache=CACHE.bfloat16()), TypeError, "v_cache must be torch.float16"),
        (dict(k_cache=CACHE.bfloat16()), TypeError, "k_cache must be torch.float16"),
        (dict(k_cache=CACHE[:, :8]), ValueError, "k_cache must have the shape"),
        (dict(block_table=TABLE[:1]), ValueError, "block_table must have the shape"),
        (dict(longest=17), ValueError, "longest context of 17 tokens needs 2"),
        (dict(k_scales=SCALES), ValueError, "rung 7 for torch.float16"),
        (dict(v_scales=SCALES), ValueError, "rung 7 for torch.float16"),
        (dict(block_table=TABLE.to("meta")), ValueError, "block_table must be on q's|device"),
        (dict(context_lens=LENS.to("meta")), ValueError, "device"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(changes, error, words):
    checked()
    with pytest.raises(error, match=words):
        checked(**changes)


def test_a_cache_of_8_bits_comes_with_its_factors():
    cache = CACHE.to(FP8)
    right = dict(k_cache=cache, v_cache=cache, k_scales=SCALES, v_scales=SCALES)
    checked(9, shape(kv_dtype=FP8), **right)
    for name in ("k_scales", "v_scales"):
        for wrong, error, words in (
            (None, TypeError, "tensor"),
            (SCALES[:1], ValueError, r"\(2,\)"),
            (SCALES.half(), TypeError, "float32"),
            (torch.ones(4)[::2], ValueError, "contiguous"),
            (SCALES.to("meta"), ValueError, "device"),
        ):
            with pytest.raises(error, match=f"{name}.*{words}"):
                checked(9, shape(kv_dtype=FP8), **right | {name: wrong})


def test_without_a_longest_context_a_table_may_be_empty():
    check_decode_call(7, shape(), 2, 8, 2, **CALL | dict(block_table=TABLE[:, :0]))
