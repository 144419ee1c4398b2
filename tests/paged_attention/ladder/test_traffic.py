"""How many bytes a decode step reads."""

import pytest

from paged_attention.traffic import kv_bytes


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
