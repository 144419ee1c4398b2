"""Lesson 05, as a second learner wrote it."""

import torch

from paged_attention.attention import share_heads
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.metadata import BatchMetadata, cumulative_lengths, visible_keys
from paged_attention.slots import slot_mapping
from paged_attention.softmax_state import NO_KEY
from paged_attention.validate import check_paged_attention, check_scheduled

# 5.1


def sums_before_each(query_lens):
    return torch.tensor([0] + [sum(query_lens[:i]) for i in range(len(query_lens))], dtype=torch.int32)


def sums_of_the_neighbours(query_lens):
    starts = torch.zeros(len(query_lens) + 1, dtype=torch.int32)
    for i in range(len(query_lens)):
        starts[i + 1] = starts[i] + query_lens[i - 1]
    return starts


def ends_of_the_batch(query_lens):
    return torch.tensor([0, sum(query_lens)]).int()


# 5.2


def append_as_on_paper(self, scheduled):
    """Right: goes through the batch token by token, with the free blocks and the users of each block on paper."""
    check_scheduled(scheduled)
    free, users = self.block_manager.get_num_free_blocks(), {}
    for seq_id, num_tokens in scheduled:
        length, block_ids = self.get(seq_id).length, self.blocks_of(seq_id)
        self.blocks_for(length + num_tokens)
        for position in range(length, length + num_tokens):
            if position % self.block_size == 0:
                free -= 1
            elif position == length:
                last = block_ids[-1]
                users.setdefault(last, self.block_manager.get_ref_count(last))
                if users[last] > 1:
                    users[last] -= 1
                    free -= 1
    if free < 0:
        raise OutOfBlocksError(f"{-free} blocks are missing")
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_counting_all_blocks(self, scheduled):
    check_scheduled(scheduled)
    needed = 0
    for seq_id, num_tokens in scheduled:
        needed += self.blocks_for(self.get(seq_id).length + num_tokens)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError("not enough")
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_a_block_for_each_token(self, scheduled):
    check_scheduled(scheduled)
    wanted = sum(num_tokens for _, num_tokens in scheduled)
    if wanted > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError("too few")
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_and_count_back(self, scheduled):
    check_scheduled(scheduled)
    done = []
    try:
        for seq_id, num_tokens in scheduled:
            for _ in range(num_tokens):
                self.append_token(seq_id)
                done.append(seq_id)
    except Exception:
        for seq_id in done:
            self.get(seq_id).length -= 1
        raise


def append_until_the_list_is_empty(self, scheduled):
    append_needs(self, scheduled)
    while scheduled:
        seq_id, num_tokens = scheduled.pop(0)
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_the_longest_first(self, scheduled):
    check_scheduled(scheduled)
    scheduled.sort(key=lambda pair: pair[1], reverse=True)
    append_needs(self, scheduled)
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_needs(self, scheduled):
    """Raises where the batch does not fit."""
    check_scheduled(scheduled)
    needed, writers = 0, {}
    for seq_id, num_tokens in scheduled:
        length = self.get(seq_id).length
        needed += self.blocks_for(length + num_tokens) - self.blocks_for(length)
        if length % self.block_size:
            writers.setdefault(self.blocks_of(seq_id)[-1], []).append(seq_id)
    for block_id, mine in writers.items():
        needed += min(len(mine), self.block_manager.get_ref_count(block_id) - 1)
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError("it does not fit")


# 5.3


def metadata_by_place_in_the_batch(manager, scheduled):
    check_scheduled(scheduled, manager)
    device, slots, lengths = manager.block_table.device, [], []
    for i, (seq_id, num_tokens) in enumerate(scheduled):
        length = manager.get(seq_id).length
        positions = torch.arange(length - num_tokens, length, device=device)
        slots.append(slot_mapping(manager.block_table[i], positions, manager.block_size))
        lengths.append(length)
    return BatchMetadata(
        cumulative_lengths([num_tokens for _, num_tokens in scheduled]).to(device),
        torch.tensor(lengths, dtype=torch.int32, device=device), manager.block_table[list(range(len(scheduled)))],
        torch.cat(slots))


def metadata_by_hand(manager, scheduled, queries=cumulative_lengths, keys=None, in_order=True):
    check_scheduled(scheduled, manager)
    device, size, slots, lengths, rows = manager.block_table.device, manager.block_size, [], [], []
    for seq_id, num_tokens in scheduled:
        sequence = manager.get(seq_id)
        lengths.append(sequence.length)
        rows.append(sequence.row)
        blocks = manager.blocks_of(seq_id)
        for position in range(sequence.length - num_tokens, sequence.length):
            slots.append(blocks[position // size] * size + position % size)
    first = queries([num_tokens for _, num_tokens in scheduled]).to(device)
    second = (keys or torch.IntTensor)(lengths).to(device)
    if not in_order:
        first, second = second, first
    return BatchMetadata(first, second, manager.block_table[rows], torch.tensor(slots, device=device))


def metadata_in_another_order(manager, scheduled):
    return metadata_by_hand(manager, scheduled, in_order=False)


def metadata_with_query_lengths(manager, scheduled):
    return metadata_by_hand(manager, scheduled, queries=torch.IntTensor)


def metadata_with_summed_keys(manager, scheduled):
    return metadata_by_hand(manager, scheduled, keys=lambda lengths: torch.IntTensor(lengths).cumsum(0, dtype=torch.int32))


def metadata_with_blocks_for_keys(manager, scheduled):
    size = manager.block_size
    return metadata_by_hand(manager, scheduled, keys=lambda lengths: torch.IntTensor([-(-n // size) for n in lengths]))


# 5.4


def old_keys_alone(q_len, kv_len):
    return torch.arange(kv_len).repeat(q_len, 1) < kv_len - q_len


# 5.5


def attend_along_the_pool(q, k_cache, v_cache, metadata):
    check_paged_attention(q, k_cache, v_cache, metadata)
    starts, o, at, block_size = metadata.cu_seqlens_q.tolist(), torch.zeros_like(q), 0, k_cache.shape[1]
    for s, length in enumerate(metadata.seq_lens_kv.tolist()):
        begin, end = starts[s], starts[s + 1]
        k, v = (share_heads(cache.flatten(0, 1)[at : at + length], q.shape[1]).transpose(0, 1)
                for cache in (k_cache, v_cache))
        at += -(-length // block_size) * block_size
        scores = q[begin:end].transpose(0, 1) @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~visible_keys(end - begin, length), NO_KEY).softmax(-1)
        o[begin:end] = (weights @ v).transpose(0, 1)
    return o


# 5.6


def bytes_of_the_new_token(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    keys = num_kv_heads * head_size * bytes_per_number
    return num_layers * (keys + keys)


def bytes_with_one_more(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    per_token = 2 * num_layers * num_kv_heads * head_size * bytes_per_number
    return per_token + context_len * per_token


def bytes_of_all_steps(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    total = 0
    for tokens in range(1, context_len + 1):
        total += 2 * tokens * num_layers * num_kv_heads * head_size * bytes_per_number
    return total


RIGHT_ANSWERS = {"5.2": [append_as_on_paper], "5.3": [metadata_by_hand]}

WRONG_ANSWERS = {
    "5.1": {
        "zero-twice": [sums_before_each],
        "one-length-too-early": [sums_of_the_neighbours],
        "ends-alone": [ends_of_the_batch],
    },
    "5.2": {
        "counts-blocks-it-has": [append_counting_all_blocks],
        "a-block-for-each-token": [append_a_block_for_each_token],
        "lengths-put-back": [append_and_count_back],
        "scheduled-changed": [append_until_the_list_is_empty, append_the_longest_first],
    },
    "5.3": {
        "first-rows": [metadata_by_place_in_the_batch],
        "fields-swapped": [metadata_in_another_order],
        "queries-not-summed": [metadata_with_query_lengths],
        "key-lengths-summed": [metadata_with_summed_keys],
        "blocks-for-key-lengths": [metadata_with_blocks_for_keys],
    },
    "5.4": {"past-alone": [old_keys_alone]},
    "5.5": {"pool-read-in-order": [attend_along_the_pool]},
    "5.6": {
        "one-token": [bytes_of_the_new_token],
        "one-token-too-many": [bytes_with_one_more],
        "all-steps-together": [bytes_of_all_steps],
    },
}
