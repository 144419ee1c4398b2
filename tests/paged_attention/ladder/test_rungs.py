"""What the rungs of the ladder are made for, and how many bytes a decode step reads."""

import pytest

from decode_calls import shape
from paged_attention.ladder.decode import FP8, RUNGS, rung_texts
from paged_attention.ladder.kv_bytes import kv_bytes
from paged_attention.ladder.rungs import num_warps
from paged_attention.prefill.rungs import PREFILL_RUNGS, prefill_texts

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
    "head_size, kv_dtype, warps",
    [(64, None, 8), (128, None, 8), (256, None, 4), (128, FP8, 8), (256, FP8, 8)],
)
def test_a_block_has_as_many_warps_as_have_room(head_size, kv_dtype, warps):
    assert num_warps(shape(head_size=head_size, kv_dtype=kv_dtype)) == warps


@pytest.mark.parametrize(
    "context_lens, num_kv_heads, head_size, bytes_per_number, expected",
    [
        ([1], 1, 1, 1, 2),  # one number in the key, one in the value
        ([3, 0, 5], 2, 64, 2, 4096),  # 8 tokens of 2 * 2 * 64 numbers
        ([3, 0, 5], 2, 64, 1, 2048),
        ([], 8, 128, 2, 0),
    ],
)
def test_each_key_and_value_is_read_once(
    context_lens, num_kv_heads, head_size, bytes_per_number, expected
):
    assert kv_bytes(context_lens, num_kv_heads, head_size, bytes_per_number) == expected
