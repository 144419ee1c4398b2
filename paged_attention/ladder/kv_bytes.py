"""How many bytes a decode step has to move (lesson 07)."""


def kv_bytes(
    context_lens: list[int], num_kv_heads: int, head_size: int, bytes_per_number: int
) -> int:
    """Counts the fewest bytes of keys and values that a decode step of one layer reads.

    That is each of them once.

    context_lens: how many tokens each sequence attends to, the new one included; 0 or more.
    bytes_per_number: of the caches; 2 for float16 and bfloat16.
    """
    # BEGIN SOLUTION 7.1
    numbers_of_a_token = 2 * num_kv_heads * head_size  # a key and a value for each KV head
    return sum(context_lens) * numbers_of_a_token * bytes_per_number
    # END SOLUTION
