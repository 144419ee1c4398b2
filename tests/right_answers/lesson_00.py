"""Lesson 00."""

import math

import torch


def blocks_by_negative_floor(num_tokens, block_size):
    return -(-num_tokens // block_size)


def blocks_by_remainder(num_tokens, block_size):
    full, rest = divmod(num_tokens, block_size)
    return full + (1 if rest else 0)


def blocks_by_last_token(num_tokens, block_size):
    if num_tokens == 0:
        return 0
    return (num_tokens - 1) // block_size + 1


def blocks_by_taking_away(num_tokens, block_size):
    return 0 if num_tokens <= 0 else 1 + blocks_by_taking_away(num_tokens - block_size, block_size)


RIGHT_ANSWERS = {"0.1": [blocks_by_negative_floor, blocks_by_remainder, blocks_by_last_token, blocks_by_taking_away]}


def rounded_half_up(num_tokens, block_size):
    return int((num_tokens + block_size / 2) / block_size)


def remainder_as_float(num_tokens, block_size):
    return num_tokens / block_size // 1 + (num_tokens % block_size > 0)


def room_of_the_blocks(num_tokens, block_size):
    return num_tokens + -num_tokens % block_size


def room_left(num_tokens, block_size):
    rest = num_tokens % block_size
    return block_size - rest if rest else 0


def quotient_and_rest(num_tokens, block_size):
    return sum(divmod(num_tokens, block_size))


def only_full_blocks_returned(num_tokens, block_size):
    full, rest = divmod(num_tokens, block_size)
    if not rest:
        return full


def nothing_for_no_tokens(num_tokens, block_size):
    if num_tokens:
        return (num_tokens + block_size - 1) // block_size


def inner_sign_only(num_tokens, block_size):
    return (-num_tokens) // block_size


def rounded_up_by_torch(num_tokens, block_size):
    return torch.tensor(num_tokens).div(block_size).ceil().long()


def sizes_in_tokens(num_tokens, block_size):
    return math.ceil(block_size / num_tokens) if num_tokens > 0 else 0


def another_block_for_two_or_more(num_tokens, block_size):
    return num_tokens // block_size + 1 if num_tokens % block_size > 1 else num_tokens // block_size


def block_ends_inside(num_tokens, block_size):
    return len(range(block_size, num_tokens, block_size))


def rounded_up_from_one_less(num_tokens, block_size):
    return (num_tokens - 1) // block_size


def one_block_or_one_more(num_tokens, block_size):
    if num_tokens <= block_size:
        return 1
    return 1 + num_tokens // block_size


def numbers_of_the_blocks(num_tokens, block_size):
    return list(range(-(-num_tokens // block_size)))


def starts_of_the_blocks(num_tokens, block_size):
    return [start for start in range(0, num_tokens, block_size)]


WRONG_ANSWERS = {"0.1": {
    "one-token-left-over": [another_block_for_two_or_more],
    "one-block-too-few": [block_ends_inside, rounded_up_from_one_less],
    "only-one-full-block-right": [one_block_or_one_more],
    "blocks-listed": [numbers_of_the_blocks, starts_of_the_blocks],
    "returns-on-one-way-only": [only_full_blocks_returned, nothing_for_no_tokens],
    "negative": [inner_sign_only],
    "tensor-not-int": [rounded_up_by_torch],
    "arguments-swapped": [sizes_in_tokens],
    "rounds-to-nearest": [rounded_half_up],
    "float-not-int": [remainder_as_float],
    "places-not-blocks": [room_of_the_blocks],
    "empty-places": [room_left],
    "adds-the-rest": [quotient_and_rest],
}}
