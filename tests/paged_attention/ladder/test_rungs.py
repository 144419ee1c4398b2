"""What the rungs of the ladder are made for, and what their calls take."""

import pytest

from decode_calls import BFLOAT, FLOAT, HALF, shape
from paged_attention.ladder import FP8, RUNGS, Shape, rung_texts, shape_text
from paged_attention.prefill import PREFILL_RUNGS, prefill_texts
from paged_attention.rungs import num_warps


def test_a_shape_is_written_into_its_file():
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


LADDERS = [(RUNGS, rung_texts, "ladder"), (PREFILL_RUNGS, prefill_texts, "prefill")]


@pytest.mark.parametrize("rungs, texts_of, folder", LADDERS, ids=["ladder", "prefill"])
def test_a_rung_knows_its_files(rungs, texts_of, folder):
    for number, rung in enumerate(rungs):
        assert rung.number == number and rung.file.startswith(f"{folder}/{number}_")
        assert rung.file == rung.files[-1] and "ladder/shape.cuh" in rung.files
        texts = texts_of(number, shape())
        assert list(texts) == list(rung.files)
        assert all(len(text.splitlines()) <= 300 for text in texts.values())


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


@pytest.mark.parametrize(
    "head_size, kv_dtype, warps",
    [(64, None, 8), (128, None, 8), (256, None, 4), (128, FP8, 8), (256, FP8, 8)],
)
def test_a_block_has_as_many_warps_as_have_room(head_size, kv_dtype, warps):
    assert num_warps(shape(head_size=head_size, kv_dtype=kv_dtype)) == warps
