"""Lesson 05, as further learners wrote it."""

from collections import Counter

import torch

from paged_attention.attention import share_heads
from paged_attention.block_manager import OutOfBlocksError
from paged_attention.metadata import BatchMetadata, cumulative_lengths, visible_keys
from paged_attention.slots import slot_mapping
from paged_attention.softmax_state import NO_KEY
from paged_attention.validate import check_paged_attention, check_scheduled

# 5.1


def sums_to_the_last_of_each(query_lens):
    out = [0]
    for n in query_lens:
        out.append(out[-1] + n - 1)
    return torch.tensor(out, dtype=torch.int32)


def sums_with_a_length_of_0(query_lens):
    query_lens.append(0)
    return torch.tensor([sum(query_lens[:i]) for i in range(len(query_lens))], dtype=torch.int32)


# 5.2


def append_counting_users_in_the_loop(self, scheduled):
    check_scheduled(scheduled)
    needed = 0
    for seq_id, num_tokens in scheduled:
        length, block_ids = self.get(seq_id).length, self.blocks_of(seq_id)
        needed += self.blocks_for(length + num_tokens) - len(block_ids)
        if length % self.block_size:
            needed += self.block_manager.get_ref_count(block_ids[-1]) - 1
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError("too few")
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


def append_but_the_last(self, scheduled):
    check_scheduled(scheduled)
    needed, writers = 0, Counter()
    for seq_id, num_tokens in scheduled:
        length, block_ids = self.get(seq_id).length, self.blocks_of(seq_id)
        needed += self.blocks_for(length + num_tokens) - len(block_ids)
        if length % self.block_size:
            writers[block_ids[-1]] += 1
    needed += sum(min(count, self.block_manager.get_ref_count(block_id) - 1) for block_id, count in writers.items())
    if needed > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError("too few")
    for seq_id, num_tokens in scheduled:
        for _ in range(1, num_tokens):
            self.append_token(seq_id)


def append_or_print(self, scheduled):
    check_scheduled(scheduled)
    needed = 0
    for seq_id, num_tokens in scheduled:
        needed += self.blocks_for(self.get(seq_id).length + num_tokens) - self.blocks_for(self.get(seq_id).length)
    if needed <= self.block_manager.get_num_free_blocks():
        for seq_id, num_tokens in scheduled:
            for _ in range(num_tokens):
                self.append_token(seq_id)
    else:
        print("no room")


def append_asserting_room(self, scheduled):
    check_scheduled(scheduled)
    needed = sum(self.blocks_for(self.get(seq_id).length + num_tokens) - len(self.blocks_of(seq_id))
                 for seq_id, num_tokens in scheduled)
    assert needed <= self.block_manager.get_num_free_blocks()
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            self.append_token(seq_id)


# 5.3


def metadata_from_positions_in_a_list(manager, scheduled):
    check_scheduled(scheduled, manager)
    table = manager.block_table[[manager.get(seq_id).row for seq_id, _ in scheduled]]
    lengths = [manager.get(seq_id).length for seq_id, _ in scheduled]
    slots = torch.cat([slot_mapping(table[s], list(range(lengths[s] - num_tokens, lengths[s])), manager.block_size)
                       for s, (_, num_tokens) in enumerate(scheduled)])
    return BatchMetadata(cumulative_lengths([num_tokens for _, num_tokens in scheduled]),
                         torch.tensor(lengths, dtype=torch.int32), table, slots)


def metadata_from_a_piece_of_the_table(manager, scheduled):
    check_scheduled(scheduled, manager)
    table = manager.block_table[manager.get(scheduled[0][0]).row : manager.get(scheduled[-1][0]).row + 1]
    lengths = [manager.get(seq_id).length for seq_id, _ in scheduled]
    slots = torch.cat([
        slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length - num_tokens, length), manager.block_size)
        for (seq_id, num_tokens), length in zip(scheduled, lengths, strict=True)])
    return BatchMetadata(cumulative_lengths([num_tokens for _, num_tokens in scheduled]),
                         torch.tensor(lengths, dtype=torch.int32), table, slots)


# 5.4


def triangle_upside_down(q_len, kv_len):
    return torch.ones(q_len, kv_len, dtype=torch.bool).flip(0).tril(kv_len - q_len).flip(0)


def triangle_from_the_last_query(q_len, kv_len):
    return torch.tensor([[key < kv_len - row for key in range(kv_len)] for row in range(q_len)])


# 5.5


def attend_by(place, result=lambda o, metadata: o):
    """place: where in the result a sequence's outputs go, and which of them."""
    def attend(q, k_cache, v_cache, metadata):
        check_paged_attention(q, k_cache, v_cache, metadata)
        starts, o = metadata.cu_seqlens_q.tolist(), torch.zeros_like(q)
        for s, length in enumerate(metadata.seq_lens_kv.tolist()):
            begin, end = starts[s], starts[s + 1]
            block_ids = metadata.block_table[s, : -(-length // k_cache.shape[1])].long()
            k, v = (share_heads(cache[block_ids].flatten(0, 1)[:length], q.shape[1]) for cache in (k_cache, v_cache))
            scores = torch.einsum("qhd,khd->hqk", q[begin:end], k) * q.shape[-1] ** -0.5
            weights = scores.masked_fill(~visible_keys(end - begin, length), NO_KEY).softmax(-1)
            place(o, s, begin, end, torch.einsum("hqk,khd->qhd", weights, v))
        return result(o, metadata)
    return attend


def into_row_s(o, s, begin, end, outputs):
    o[s] = outputs[-1]


def into_its_rows(o, s, begin, end, outputs):
    o[begin:end] = outputs


# 5.6


def bytes_of_the_squared_context(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len**2 * num_layers * num_kv_heads * head_size * bytes_per_number


def bytes_from_bits(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2 * context_len * num_layers * num_kv_heads * head_size * bytes_per_number // 8


def bytes_from_bits_of_each(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2 * context_len * num_layers * num_kv_heads * head_size * (bytes_per_number / 8)


# 5.8


def heads_by_strides(o):
    return torch.as_strided(o, (len(o), o.shape[1] * o.shape[2]), (o.shape[1] * o.shape[2], 1))


def heads_by_its_first_stride(o):
    return torch.as_strided(o, (len(o), o.shape[1] * o.shape[2]), (o.stride(0), 1))


def heads_of_other_sizes(o):
    n, h, d = o.shape
    return o.reshape(h, n, d).transpose(0, 1).reshape(n, -1)


def heads_in_columns(o):
    return o.reshape(-1, len(o)).T


def heads_there_and_back(o):
    o = o.permute(1, 0, 2).contiguous().permute(1, 0, 2)
    return o.view(o.shape[0], -1)


RIGHT_ANSWERS = {"5.5": [attend_by(into_its_rows)]}

WRONG_ANSWERS = {
    "5.1": {"each-one-too-short": [sums_to_the_last_of_each], "list-changed": [sums_with_a_length_of_0]},
    "5.2": {
        "all-users-for-each-writer": [append_counting_users_in_the_loop],
        "one-token-too-few": [append_but_the_last],
        "error-not-raised": [append_or_print],
        "other-error": [append_asserting_room],
    },
    "5.3": {"positions-not-a-tensor": [metadata_from_positions_in_a_list],
            "rows-between": [metadata_from_a_piece_of_the_table]},
    "5.4": {"queries-reversed": [triangle_upside_down, triangle_from_the_last_query]},
    "5.5": {"one-output-each": [
        attend_by(into_row_s),
        attend_by(into_its_rows, lambda o, metadata: o[: len(metadata.seq_lens_kv)])]},
    "5.6": {"pairs-of-tokens": [bytes_of_the_squared_context],
            "bytes-taken-for-bits": [bytes_from_bits, bytes_from_bits_of_each]},
    "5.8": {
        "heads-assumed-adjacent": [heads_by_strides, heads_by_its_first_stride],
        "taken-for-heads-first": [heads_of_other_sizes],
        "one-number-of-each-piece": [heads_in_columns],
        "view-of-any-layout": [heads_there_and_back],
    },
}
