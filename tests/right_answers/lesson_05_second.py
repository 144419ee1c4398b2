"""Lesson 05, as a second learner wrote it."""

import torch

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.metadata import BatchMetadata, cumulative_lengths
from paged_attention.slots import slot_mapping
from paged_attention.validate import check_scheduled

# 5.1


def sums_before_each(query_lens):
    return torch.tensor([0] + [sum(query_lens[:i]) for i in range(len(query_lens))], dtype=torch.int32)


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


# 5.4


def old_keys_alone(q_len, kv_len):
    return torch.arange(kv_len).repeat(q_len, 1) < kv_len - q_len


# 5.6


def bytes_of_the_new_token(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    keys = num_kv_heads * head_size * bytes_per_number
    return num_layers * (keys + keys)


RIGHT_ANSWERS = {"5.2": [append_as_on_paper]}

WRONG_ANSWERS = {
    "5.1": {"zero-twice": [sums_before_each]},
    "5.2": {"counts-blocks-it-has": [append_counting_all_blocks]},
    "5.3": {"first-rows": [metadata_by_place_in_the_batch]},
    "5.4": {"past-alone": [old_keys_alone]},
    "5.6": {"one-token": [bytes_of_the_new_token]},
}
