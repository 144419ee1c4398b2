"""Lesson 00."""


def blocks_by_negative_floor(num_tokens, block_size):
    return -(-num_tokens // block_size)


def blocks_by_remainder(num_tokens, block_size):
    full, rest = divmod(num_tokens, block_size)
    return full + (1 if rest else 0)


def blocks_by_last_token(num_tokens, block_size):
    if num_tokens == 0:
        return 0
    return (num_tokens - 1) // block_size + 1


RIGHT_ANSWERS = {"0.1": [blocks_by_negative_floor, blocks_by_remainder, blocks_by_last_token]}
