"""Lesson 05."""

import copy
import math
from collections import defaultdict
from itertools import accumulate, pairwise
from types import SimpleNamespace

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from paged_attention.block_manager import OutOfBlocksError
from paged_attention.slots import slot_mapping
from paged_attention.validate import check_paged_attention, check_scheduled

# 5.1


def cumulative_by_accumulate(query_lens):
    return torch.tensor(list(accumulate(query_lens, initial=0)), dtype=torch.int32)


def cumulative_by_padding(query_lens):
    return pad(torch.cumsum(torch.tensor(query_lens), dim=0), (1, 0)).int()


def cumulative_by_loop(query_lens):
    starts = torch.zeros(len(query_lens) + 1, dtype=torch.int32)
    for index, length in enumerate(query_lens):
        starts[index + 1] = starts[index] + length
    return starts


def cumulative_by_triangle(query_lens):
    count = len(query_lens)
    return (torch.ones(count + 1, count).tril(-1).double() @ torch.tensor(query_lens).double()).to(torch.int32)


def starts_only(query_lens):
    total, starts = 0, []
    for length in query_lens:
        starts.append(total)
        total += length
    return torch.IntTensor(starts)


def ends_only(query_lens):
    return torch.tensor(query_lens).cumsum(0, dtype=torch.int32)


def default_dtype(query_lens):
    return torch.cat([torch.tensor([0]), torch.tensor(query_lens).cumsum(0)])


def borders_in_pairs(query_lens):
    starts = cumulative_by_accumulate(query_lens)
    return torch.stack([starts[:-1], starts[1:]], dim=1)


def borders_of_the_longest(query_lens):
    return max(query_lens) * torch.arange(len(query_lens) + 1, dtype=torch.int32)


def loop_from_the_second(query_lens):
    starts = torch.zeros(len(query_lens) + 1, dtype=torch.int32)
    for index in range(1, len(query_lens)):
        starts[index + 1] = starts[index] + query_lens[index]
    return starts


def in_numpy(query_lens):
    return cumulative_by_accumulate(query_lens).numpy()


def filled_floats(query_lens):
    starts = torch.zeros(len(query_lens) + 1)
    starts[1:] = torch.tensor(query_lens).cumsum(0)
    return starts


# 5.2


def append_on_a_copy_first(self, scheduled):
    check_scheduled(scheduled)
    trial = copy.deepcopy(self)
    for manager in (trial, self):
        for seq_id, num_tokens in scheduled:
            for _ in range(num_tokens):
                manager.append_token(seq_id)


def append_with_simulated_counts(self, scheduled):
    check_scheduled(scheduled)
    manager, users, needed = self.block_manager, {}, 0
    for seq_id, num_tokens in scheduled:
        length = self.get(seq_id).length
        room = -length % self.block_size
        if room:
            block = self.blocks_of(seq_id)[-1]
            users.setdefault(block, manager.get_ref_count(block))
            if users[block] > 1:
                needed, users[block] = needed + 1, users[block] - 1
        self.blocks_for(length + num_tokens)
        needed += math.ceil(max(num_tokens - room, 0) / self.block_size)
    if needed > manager.get_num_free_blocks():
        raise OutOfBlocksError("no room")
    for seq_id, num_tokens in scheduled:
        while num_tokens:
            self.append_token(seq_id)
            num_tokens -= 1


def append_counting_writers(self, scheduled):
    check_scheduled(scheduled)
    writers, fresh = defaultdict(list), 0
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        fresh += self.blocks_for(length + num_tokens) - len(blocks)
        if len(blocks) * self.block_size > length:
            writers[blocks[-1]].append(seq_id)
    copies = 0
    for block, names in writers.items():
        everyone_writes = len(names) == self.block_manager.get_ref_count(block)
        shared = self.block_manager.get_ref_count(block) > 1
        copies += (len(names) - everyone_writes) if shared else 0
    if fresh + copies > self.block_manager.get_num_free_blocks():
        raise OutOfBlocksError(f"{fresh} + {copies} blocks are needed")
    [self.append_token(seq_id) for seq_id, num_tokens in scheduled for _ in range(num_tokens)]


def append_unless_the_count_is_of_users(self, scheduled):
    check_scheduled(scheduled)
    need, shared = 0, set()
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        need += self.blocks_for(length + num_tokens) - len(blocks)
        if length % self.block_size and blocks[-1] not in shared:
            shared.add(blocks[-1])
            need += self.block_manager.get_ref_count(blocks[-1]) - 1
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_copies_by_token(self, scheduled):
    check_scheduled(scheduled)
    need, writers = 0, defaultdict(int)
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        need += self.blocks_for(length + num_tokens) - len(blocks)
        for _ in range(num_tokens):
            if length % self.block_size:
                writers[blocks[-1]] += 1
    need += sum(min(count, self.block_manager.get_ref_count(block) - 1) for block, count in writers.items())
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_lone_writers_free(self, scheduled):
    check_scheduled(scheduled)
    need, writers = 0, defaultdict(list)
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        need += self.blocks_for(length + num_tokens) - len(blocks)
        if length % self.block_size:
            writers[blocks[-1]].append(seq_id)
    for block, names in writers.items():
        if len(names) >= 2:
            everyone = len(names) == self.block_manager.get_ref_count(block)
            need += len(names) - everyone
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_no_check(self, scheduled):
    need, users = 0, {}
    for seq_id, num_tokens in scheduled:
        length, blocks = self.get(seq_id).length, self.blocks_of(seq_id)
        need += self.blocks_for(length + num_tokens) - len(blocks)
        if length % self.block_size:
            users.setdefault(blocks[-1], self.block_manager.get_ref_count(blocks[-1]))
            need += users[blocks[-1]] > 1
            users[blocks[-1]] -= 1
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_until_it_fails(self, scheduled):
    queue = [seq_id for seq_id, num_tokens in scheduled for _ in range(num_tokens)]
    while queue:
        self.append_token(queue.pop(0))


def append_looking_at_every_last_block(self, scheduled):
    check_scheduled(scheduled)
    need, writers = 0, defaultdict(int)
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        need += self.blocks_for(length + num_tokens) - len(blocks)
        if self.block_manager.get_ref_count(blocks[-1]) > 1 and length % self.block_size:
            writers[blocks[-1]] += 1
    need += sum(min(count, self.block_manager.get_ref_count(block) - 1) for block, count in writers.items())
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_a_value_error(self, scheduled):
    try:
        append_counting_writers(self, scheduled)
    except MemoryError:
        raise ValueError("not enough blocks") from None


def append_and_put_lengths_back(self, scheduled):
    before = [(self.get(seq_id), self.get(seq_id).length) for seq_id, _ in scheduled]
    try:
        append_until_it_fails(self, scheduled)
    except Exception:
        for sequence, length in before:
            sequence.length = length
        raise


def append_and_put_all_back(self, scheduled):
    check_scheduled(scheduled)
    saved = copy.deepcopy(self.__dict__)
    try:
        append_until_it_fails(self, scheduled)
    except Exception:
        self.__dict__ = saved
        raise


def append_with_the_new_tokens_alone(self, scheduled):
    check_scheduled(scheduled)
    need = sum(self.blocks_for(num_tokens) for _, num_tokens in scheduled)
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_a_copy_for_each_sharer(self, scheduled):
    check_scheduled(scheduled)
    need = 0
    for seq_id, num_tokens in scheduled:
        blocks = self.blocks_of(seq_id)
        need += self.blocks_for(self.get(seq_id).length + num_tokens) - len(blocks)
        need += sum(self.block_manager.get_ref_count(block) > 1 for block in blocks)
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_without_copies(self, scheduled):
    free = self.block_manager.get_num_free_blocks()
    for seq_id, num_tokens in scheduled:
        free -= self.blocks_for(self.get(seq_id).length + num_tokens) - len(self.blocks_of(seq_id))
    if free < 0:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


def append_with_every_copy(self, scheduled):
    need = 0
    for seq_id, num_tokens in scheduled:
        blocks, length = self.blocks_of(seq_id), self.get(seq_id).length
        need += self.blocks_for(length + num_tokens) - len(blocks)
        if length % self.block_size and self.block_manager.get_ref_count(blocks[-1]) != 1:
            need += 1
    if self.block_manager.get_num_free_blocks() < need:
        raise OutOfBlocksError("the batch does not fit")
    append_until_it_fails(self, scheduled)


# 5.3


def metadata_by_loops(manager, scheduled):
    check_scheduled(scheduled, manager)
    starts, kv_lens, table, slots = [0], [], [], []
    for seq_id, num_tokens in scheduled:
        blocks, length = manager.blocks_of(seq_id), manager.get(seq_id).length
        starts.append(starts[-1] + num_tokens)
        kv_lens.append(length)
        table.append(blocks + [-1] * (manager.max_blocks_per_seq - len(blocks)))
        for position in range(length - num_tokens, length):
            slots.append(blocks[position // manager.block_size] * manager.block_size + position % manager.block_size)
    device = manager.block_table.device
    return SimpleNamespace(cu_seqlens_q=torch.tensor(starts, dtype=torch.int32, device=device),
                           seq_lens_kv=torch.tensor(kv_lens, dtype=torch.int32, device=device),
                           block_table=torch.tensor(table, dtype=torch.int32, device=device),
                           slot_mapping=torch.tensor(slots, dtype=torch.int64, device=device))


def metadata_without_loops(manager, scheduled):
    check_scheduled(scheduled, manager)
    ids, lens = zip(*scheduled, strict=True)
    query_lens = torch.tensor(lens)
    kv_lens = torch.tensor([manager.get(seq_id).length for seq_id in ids])
    table = manager.table.cpu[[manager.get(seq_id).row for seq_id in ids]]
    starts = pad(query_lens.cumsum(0), (1, 0))
    owner = torch.arange(len(ids)).repeat_interleave(query_lens)
    position = torch.arange(int(starts[-1])) - starts[owner] + (kv_lens - query_lens)[owner]
    block = table[owner, position // manager.block_size].long()
    tensors = dict(cu_seqlens_q=starts.int(), seq_lens_kv=kv_lens.int(), block_table=table,
                   slot_mapping=block * manager.block_size + position % manager.block_size)
    return SimpleNamespace(**{name: tensor.to(manager.block_table.device) for name, tensor in tensors.items()})


def metadata_from_all_slots(manager, scheduled):
    check_scheduled(scheduled, manager)
    offsets = torch.arange(manager.block_size)
    rows = [manager.get(seq_id).row for seq_id, _ in scheduled]
    slots = []
    for row, (seq_id, num_tokens) in zip(rows, scheduled, strict=True):
        every = (manager.table.cpu[row].long()[:, None] * manager.block_size + offsets).flatten()
        slots.append(every[: manager.get(seq_id).length][-num_tokens:])
    where = manager.block_table.device
    return SimpleNamespace(cu_seqlens_q=cumulative_by_accumulate([num_tokens for _, num_tokens in scheduled]).to(where),
                           seq_lens_kv=torch.IntTensor([manager.get(seq_id).length for seq_id, _ in scheduled]).to(where),
                           block_table=manager.block_table.index_select(0, torch.tensor(rows, device=where)),
                           slot_mapping=torch.cat(slots).to(where))


def metadata_sequence_by_sequence(manager, scheduled):
    check_scheduled(scheduled, manager)
    device, slots = manager.block_table.device, []
    for seq_id, num_tokens in scheduled:
        length = manager.get(seq_id).length
        slots.append(slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length, device=device)[-num_tokens:],
                                  manager.block_size))
    return SimpleNamespace(
        cu_seqlens_q=cumulative_by_loop([num_tokens for _, num_tokens in scheduled]).to(device),
        seq_lens_kv=torch.tensor([manager.get(seq_id).length for seq_id, _ in scheduled]).int().to(device),
        block_table=torch.stack([manager.get_block_table_for_seq(seq_id) for seq_id, _ in scheduled]),
        slot_mapping=torch.cat(slots))


def metadata_on_the_cpu(manager, scheduled):
    result = metadata_sequence_by_sequence(manager, scheduled)
    result.cu_seqlens_q = cumulative_by_loop([num_tokens for _, num_tokens in scheduled])
    result.seq_lens_kv = torch.IntTensor([manager.get(seq_id).length for seq_id, _ in scheduled])
    return result


def metadata_of_two_devices(manager, scheduled):
    result, slots = metadata_sequence_by_sequence(manager, scheduled), []
    for seq_id, num_tokens in scheduled:
        end = manager.get(seq_id).length
        row = manager.get_block_table_for_seq(seq_id)
        slots.append(slot_mapping(row, torch.arange(end - num_tokens, end), manager.block_size))
    result.slot_mapping = torch.cat(slots)
    return result


def metadata_with_a_row_number(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.slot_mapping = torch.cat([slot_mapping(
        manager.get(seq_id).row, torch.arange(manager.get(seq_id).length)[-num_tokens:], manager.block_size)
        for seq_id, num_tokens in scheduled])
    return result


def metadata_with_places_in_the_batch(manager, scheduled):
    result, first, slots = metadata_by_loops(manager, scheduled), 0, []
    for seq_id, num_tokens in scheduled:
        row = manager.get_block_table_for_seq(seq_id)
        slots.append(slot_mapping(row, first + torch.arange(num_tokens), manager.block_size))
        first += num_tokens
    result.slot_mapping = torch.cat(slots)
    return result


def metadata_with_one_slot_each(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.slot_mapping = result.slot_mapping[result.cu_seqlens_q[1:].long() - 1]
    return result


def metadata_with_a_list_of_slots(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.slot_mapping = result.slot_mapping.split([num_tokens for _, num_tokens in scheduled])
    result.slot_mapping = [*result.slot_mapping]
    return result


def metadata_with_ragged_rows(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.block_table = torch.IntTensor([manager.blocks_of(seq_id) for seq_id, _ in scheduled])
    return result


def metadata_with_python_integers(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.block_table = torch.tensor(result.block_table.tolist())
    return result


def metadata_padded_with_zeros(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    table = torch.zeros(len(scheduled), manager.max_blocks_per_seq, dtype=torch.int32)
    for row, (seq_id, _) in zip(table, scheduled, strict=True):
        for index, block in enumerate(manager.blocks_of(seq_id)):
            row[index] = block
    result.block_table = table
    return result


def metadata_with_old_lengths(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.seq_lens_kv = result.seq_lens_kv - result.cu_seqlens_q.diff()
    return result


def metadata_with_rows_by_id(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    result.block_table = manager.block_table[torch.tensor([seq_id for seq_id, _ in scheduled])]
    return result


def metadata_with_a_sliced_table(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    if len(scheduled) == 1:
        result.block_table = manager.get_block_table_for_seq(scheduled[0][0]).unsqueeze(0)
    return result


def metadata_in_a_tuple(manager, scheduled):
    result = metadata_by_loops(manager, scheduled)
    return result.cu_seqlens_q, result.seq_lens_kv, result.block_table, result.slot_mapping


def metadata_shadowing_a_function(manager, scheduled):
    slot_mapping = torch.cat([slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(num), 4)  # noqa: F821
                              for seq_id, num in scheduled])
    return slot_mapping


def metadata_that_appends(manager, scheduled):
    for seq_id, num_tokens in scheduled:
        for _ in range(num_tokens):
            manager.append_token(seq_id)
    return metadata_by_loops(manager, scheduled)


# 5.4


def visible_by_tril(q_len, kv_len):
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(diagonal=kv_len - q_len)


def visible_by_lists(q_len, kv_len):
    return torch.tensor([[key <= kv_len - q_len + query for key in range(kv_len)] for query in range(q_len)])


def visible_as_last_rows(q_len, kv_len):
    return ~torch.full((kv_len, kv_len), True).triu(1)[-q_len:]


def visible_from_the_right(q_len, kv_len):
    seen = torch.zeros(q_len, kv_len, dtype=torch.bool)
    for query in range(q_len):
        seen[query, : kv_len - (q_len - 1 - query)] = True
    return seen


def visible_without_offset(q_len, kv_len):
    return torch.arange(q_len)[:, None] >= torch.arange(kv_len)


def visible_for_prompts_only(q_len, kv_len):
    seen = torch.ones(q_len, kv_len, dtype=torch.bool)
    return seen.tril() if q_len == kv_len else seen


def visible_in_floats(q_len, kv_len):
    return torch.tril(torch.ones((q_len, kv_len)), diagonal=kv_len - q_len)


def visible_square(q_len, kv_len):
    return torch.arange(q_len)[:, None] >= torch.arange(q_len)


def visible_with_the_past_last(q_len, kv_len):
    seen = torch.ones(q_len, kv_len, dtype=torch.bool)
    seen[:, :q_len] = seen[:, :q_len].tril()
    return seen


def visible_in_lists(q_len, kv_len):
    return [[key <= kv_len - q_len + query for key in range(kv_len)] for query in range(q_len)]


def visible_with_keys_first(q_len, kv_len):
    return torch.ones((kv_len, q_len), dtype=torch.bool).tril(diagonal=kv_len - q_len)


def visible_upper_triangle(q_len, kv_len):
    return torch.ones((q_len, kv_len), dtype=torch.bool).triu(kv_len - q_len)


def visible_moved_the_other_way(q_len, kv_len):
    return torch.arange(kv_len) + kv_len - q_len <= torch.arange(q_len)[:, None]


# 5.5


def attention_by_sdpa(q, k_cache, v_cache, metadata):
    check_paged_attention(q, k_cache, v_cache, metadata)
    outputs, size = [], k_cache.shape[1]
    for (begin, end), kv_len, row in zip(pairwise(metadata.cu_seqlens_q.tolist()), metadata.seq_lens_kv.tolist(),
                                         metadata.block_table, strict=True):
        place = torch.arange(kv_len)
        k, v = (cache[row[place // size].long(), place % size].transpose(0, 1)[None] for cache in (k_cache, v_cache))
        o = scaled_dot_product_attention(q[begin:end].transpose(0, 1)[None], k, v,
                                         attn_mask=visible_by_tril(end - begin, kv_len), enable_gqa=True)
        outputs.append(o[0].transpose(0, 1))
    return torch.cat(outputs)


def attention_token_by_token(q, k_cache, v_cache, metadata):
    check_paged_attention(q, k_cache, v_cache, metadata)
    out, group = torch.empty(q.shape, dtype=torch.float64), q.shape[1] // k_cache.shape[2]
    starts = metadata.cu_seqlens_q.tolist()
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        blocks = metadata.block_table[s].tolist()
        slots = [blocks[i // k_cache.shape[1]] * k_cache.shape[1] + i % k_cache.shape[1] for i in range(kv_len)]
        k, v = (cache.flatten(0, 1)[slots].double() for cache in (k_cache, v_cache))
        for row in range(starts[s], starts[s + 1]):
            seen = kv_len - (starts[s + 1] - 1 - row)
            for head in range(q.shape[1]):
                scores = k[:seen, head // group] @ q[row, head].double() / math.sqrt(q.shape[2])
                out[row, head] = torch.softmax(scores, 0) @ v[:seen, head // group]
    return out.to(q.dtype)


def attention_with_grouped_heads(q, k_cache, v_cache, metadata):
    check_paged_attention(q, k_cache, v_cache, metadata)
    num_kv_heads, outputs = k_cache.shape[2], torch.zeros_like(q)
    for s in range(metadata.seq_lens_kv.numel()):
        begin, end = metadata.cu_seqlens_q[s].item(), metadata.cu_seqlens_q[s + 1].item()
        kv_len = metadata.seq_lens_kv[s].item()
        blocks = metadata.block_table[s][metadata.block_table[s] >= 0].long()
        k = k_cache.index_select(0, blocks).reshape(-1, num_kv_heads, q.shape[2])[:kv_len]
        v = v_cache.index_select(0, blocks).reshape(-1, num_kv_heads, q.shape[2])[:kv_len]
        grouped = q[begin:end].unflatten(1, (num_kv_heads, -1))
        scores = torch.einsum("qngd,knd->ngqk", grouped, k) * q.shape[2] ** -0.5
        scores = scores + torch.zeros(end - begin, kv_len).masked_fill(~visible_by_lists(end - begin, kv_len), -torch.inf)
        outputs[begin:end] = torch.einsum("ngqk,knd->qngd", scores.softmax(-1), v).flatten(1, 2)
    return outputs


def attention_with_is_causal(q, k_cache, v_cache, metadata):
    """As the source text has it."""
    return _sdpa_loop(q, k_cache, v_cache, metadata, lambda q_len, kv_len: {"is_causal": q_len == kv_len})


def attention_always_is_causal(q, k_cache, v_cache, metadata):
    return _sdpa_loop(q, k_cache, v_cache, metadata, lambda q_len, kv_len: {"is_causal": True})


def attention_with_repeated_heads(q, k_cache, v_cache, metadata):
    times = q.shape[1] // k_cache.shape[2]
    return attention_by_sdpa(q, torch.cat([k_cache] * times, dim=2), torch.cat([v_cache] * times, dim=2), metadata)


def attention_without_scale(q, k_cache, v_cache, metadata):
    return _sdpa_loop(q, k_cache, v_cache, metadata,
                      lambda q_len, kv_len: {"attn_mask": visible_by_tril(q_len, kv_len), "scale": 1.0})


def attention_inverted(q, k_cache, v_cache, metadata):
    def options(q_len, kv_len):
        seen = visible_by_tril(q_len, kv_len)
        return {"attn_mask": torch.zeros(q_len, kv_len).masked_fill(seen, -torch.inf)}
    return _sdpa_loop(q, k_cache, v_cache, metadata, options)


def attention_that_masks_with_zero(q, k_cache, v_cache, metadata):
    return _by_hand(q, k_cache, v_cache, metadata, lambda scores, seen: scores.where(seen, 0.0).softmax(-1))


def attention_that_masks_late(q, k_cache, v_cache, metadata):
    return _by_hand(q, k_cache, v_cache, metadata, lambda scores, seen: scores.softmax(-1).masked_fill(~seen, 0.0))


def attention_by_plain_exp(q, k_cache, v_cache, metadata):
    def weights(scores, seen):
        powers = scores.exp() * seen
        return powers / powers.sum(-1, keepdim=True)
    return _by_hand(q, k_cache, v_cache, metadata, weights)


def attention_heads_first(q, k_cache, v_cache, metadata):
    outputs, right = [], attention_by_sdpa(q, k_cache, v_cache, metadata)
    for begin, end in pairwise(metadata.cu_seqlens_q.tolist()):
        outputs.append(right[begin:end].permute(1, 0, 2))
    return torch.cat(outputs, dim=0)


def attention_in_double(q, k_cache, v_cache, metadata):
    return attention_by_sdpa(q.double(), k_cache.double(), v_cache.double(), metadata)


def attention_with_a_masked_tail(q, k_cache, v_cache, metadata):
    """The tail stays, and its scores are minus infinity."""
    check_paged_attention(q, k_cache, v_cache, metadata)
    outputs, starts = torch.zeros_like(q), metadata.cu_seqlens_q.tolist()
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        blocks = metadata.block_table[s, : math.ceil(kv_len / k_cache.shape[1])].long()
        k, v = (cache[blocks].flatten(0, 1).repeat_interleave(q.shape[1] // cache.shape[2], 1)
                for cache in (k_cache, v_cache))
        q_len = starts[s + 1] - starts[s]
        scores = torch.einsum("qhd,khd->hqk", q[starts[s] : starts[s + 1]], k) / math.sqrt(q.shape[2])
        place = torch.arange(len(k))
        scores[:, place > torch.arange(kv_len - q_len, kv_len)[:, None]] = -torch.inf
        outputs[starts[s] : starts[s + 1]] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return outputs


def attention_that_scales_q(q, k_cache, v_cache, metadata):
    q.mul_(q.shape[2] ** -0.5)
    return attention_without_scale(q, k_cache, v_cache, metadata)


def _by_hand(q, k_cache, v_cache, metadata, weights):
    check_paged_attention(q, k_cache, v_cache, metadata)
    outputs, starts = torch.zeros_like(q), metadata.cu_seqlens_q.tolist()
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        blocks = metadata.block_table[s, : math.ceil(kv_len / k_cache.shape[1])].long()
        k, v = (cache[blocks].flatten(0, 1)[:kv_len].repeat_interleave(q.shape[1] // cache.shape[2], 1)
                for cache in (k_cache, v_cache))
        q_len = starts[s + 1] - starts[s]
        scores = torch.einsum("qhd,khd->hqk", q[starts[s] : starts[s + 1]], k) / math.sqrt(q.shape[2])
        outputs[starts[s] : starts[s + 1]] = torch.einsum("hqk,khd->qhd", weights(scores, visible_by_tril(q_len, kv_len)), v)
    return outputs


def attention_over_new_keys(q, k_cache, v_cache, metadata):
    check_paged_attention(q, k_cache, v_cache, metadata)
    outputs = torch.zeros_like(q)
    for begin, end in pairwise(metadata.cu_seqlens_q.tolist()):
        slots = metadata.slot_mapping[begin:end]
        k, v = (cache.flatten(0, 1)[slots].transpose(0, 1)[None] for cache in (k_cache, v_cache))
        o = scaled_dot_product_attention(q[begin:end].transpose(0, 1)[None], k, v, is_causal=True, enable_gqa=True)
        outputs[begin:end] = o[0].transpose(0, 1)
    return outputs


def _gathered_loop(q, k_cache, v_cache, metadata, attend, blocks_of=lambda kv_len, size: math.ceil(kv_len / size)):
    """The outputs of attend(q, k, v) of each sequence; k and v have a head for each query head."""
    check_paged_attention(q, k_cache, v_cache, metadata)
    outputs = []
    for s, (begin, end) in enumerate(pairwise(metadata.cu_seqlens_q.tolist())):
        kv_len = int(metadata.seq_lens_kv[s])
        rows = metadata.block_table[s][: blocks_of(kv_len, k_cache.shape[1])].long()
        k, v = (cache[rows].flatten(0, 1)[:kv_len].repeat_interleave(q.shape[1] // cache.shape[2], 1)
                for cache in (k_cache, v_cache))
        outputs.append(attend(q[begin:end], k, v))
    return outputs


def _attended(q, k, v):
    seen = visible_by_tril(len(q), len(k))
    return scaled_dot_product_attention(*(x.movedim(1, 0) for x in (q, k, v)), attn_mask=seen).movedim(0, 1)


def attention_of_full_blocks(*batch):
    return torch.cat(_gathered_loop(*batch, _attended, blocks_of=lambda kv_len, size: kv_len // size))


def attention_with_heads_in_place(*batch):
    return torch.cat(_gathered_loop(*batch, scaled_dot_product_attention))


def attention_of_keys_alone(*batch):
    return torch.cat(_gathered_loop(*batch, lambda q, k, v: _attended(q, k, k)))


def attention_scaled_by_heads(*batch):
    def attend(q, k, v):
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[1] ** 0.5
        weights = scores.masked_fill(~visible_by_tril(len(q), len(k)), -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v)
    return torch.cat(_gathered_loop(*batch, attend))


def attention_in_a_list(*batch):
    return _gathered_loop(*batch, _attended)


def attention_with_merged_heads(*batch):
    return torch.cat(_gathered_loop(*batch, _attended)).flatten(start_dim=1)


def attention_in_float(q, k_cache, v_cache, metadata):
    return attention_by_sdpa(q.to(torch.float32), k_cache.to(torch.float32), v_cache.to(torch.float32), metadata)


def attention_that_cleans_the_pool(q, k_cache, v_cache, metadata):
    for cache in (k_cache, v_cache):
        cache[cache.isnan()] = 0
    return attention_by_sdpa(q, k_cache, v_cache, metadata)


def attention_scrambled(q, k_cache, v_cache, metadata):
    outputs, right = [], attention_by_sdpa(q, k_cache, v_cache, metadata)
    for begin, end in pairwise(metadata.cu_seqlens_q.tolist()):
        by_head = right[begin:end].permute(1, 0, 2).contiguous()
        outputs.append(by_head.view(end - begin, q.shape[1], q.shape[2]))
    return torch.cat(outputs)


def _sdpa_loop(q, k_cache, v_cache, metadata, options):
    outputs, starts = [], metadata.cu_seqlens_q.tolist()
    for s, kv_len in enumerate(metadata.seq_lens_kv.tolist()):
        blocks = metadata.block_table[s, : math.ceil(kv_len / k_cache.shape[1])].long()
        k, v = (cache[blocks].reshape(-1, *cache.shape[2:])[:kv_len].movedim(0, 1)[None] for cache in (k_cache, v_cache))
        mine = q[starts[s] : starts[s + 1]].movedim(0, 1)[None]
        o = scaled_dot_product_attention(mine, k, v, enable_gqa=True, **options(mine.shape[2], kv_len))
        outputs.append(o[0].movedim(0, 1))
    return torch.cat(outputs)


# 5.6


def bytes_by_product(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return math.prod([2, context_len, num_layers, num_kv_heads, head_size, bytes_per_number])


def bytes_by_shape(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return torch.Size([num_layers, 2, context_len, num_kv_heads, head_size]).numel() * bytes_per_number


def bytes_by_layers(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    key = value = num_kv_heads * head_size * bytes_per_number
    return sum((key + value) * context_len for _ in range(num_layers))


def bytes_in_float(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2.0 * context_len * num_layers * num_kv_heads * head_size * bytes_per_number


def bytes_three_times(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    read = write = read_again = bytes_by_product(context_len, num_layers, num_kv_heads, head_size, bytes_per_number)
    return read + write + read_again


def bytes_of_blocks(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return bytes_by_product(math.ceil(context_len / 16) * 16, num_layers, num_kv_heads, head_size, bytes_per_number)


def bytes_of_the_past(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return bytes_by_product(context_len - 1, num_layers, num_kv_heads, head_size, bytes_per_number)


def bytes_in_16_bits(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2 * context_len * num_layers * num_kv_heads * head_size * 2


def bytes_without_head_size(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2 * context_len * num_layers * num_kv_heads * bytes_per_number


def bytes_as_a_pair(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    keys = context_len * num_layers * num_kv_heads * head_size * bytes_per_number
    return [keys, keys]


def bytes_printed(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    print(2 * context_len * num_layers * num_kv_heads * head_size * bytes_per_number)


def bytes_of_keys(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return math.prod([context_len, num_layers, num_kv_heads, head_size, bytes_per_number])


def bytes_of_one_layer(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return 2 * context_len * (num_kv_heads * head_size) * bytes_per_number


# 5.7


def divergence_by_loops(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            for ours, theirs in zip(expected[layer][position].tolist(), actual[layer][position].tolist(), strict=True):
                if math.isnan(theirs) or abs(ours - theirs) > tolerance:
                    return layer, position
    return None


def divergence_in_one_tensor(expected, actual, tolerance):
    difference = (torch.stack(expected) - torch.stack(actual)).abs().nan_to_num(nan=torch.inf).amax(-1)
    places = torch.nonzero(difference > tolerance)
    return tuple(places[0].tolist()) if len(places) else None


def divergence_by_isclose(expected, actual, tolerance):
    for layer, pair in enumerate(zip(expected, actual, strict=True)):
        close = torch.isclose(*pair, rtol=0.0, atol=tolerance).all(1)
        if not close.all():
            return layer, close.int().argmin().item()
    return None


def divergence_in_a_list(expected, actual, tolerance):
    found = divergence_by_loops(expected, actual, tolerance)
    return list(found) if found is not None else None


def divergence_in_tensors(expected, actual, tolerance):
    difference = (torch.stack(expected) - torch.stack(actual)).abs().nan_to_num(nan=torch.inf).amax(-1)
    places = torch.nonzero(difference > tolerance)
    return (places[0][0], places[0][1]) if len(places) else None


def divergence_in_place(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        ours -= theirs
        for position, row in enumerate(ours.abs()):
            if row.max() > tolerance or row.isnan().any():
                return layer, position
    return None


def divergence_by_allclose(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            if not torch.allclose(expected[layer][position], actual[layer][position], atol=tolerance):
                return layer, position
    return None


def divergence_by_norm(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            if not torch.linalg.vector_norm(expected[layer][position] - actual[layer][position]) <= tolerance:
                return layer, position
    return None


def divergence_by_strict_less(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            if not (expected[layer][position] - actual[layer][position]).abs().max() < tolerance:
                return layer, position
    return None


def divergence_one_sided(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            if ((expected[layer][position] - actual[layer][position]) > tolerance).any():
                return layer, position
    return None


def divergence_of_everything(expected, actual, tolerance):
    for layer in range(len(expected)):
        for position in range(len(expected[layer])):
            if torch.all((expected[layer][position] - actual[layer][position]).abs() > tolerance):
                return layer, position
    return None


def divergence_unless_greater(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if any(abs(x - y) > tolerance for x, y in zip(a.tolist(), b.tolist(), strict=True)):
                return layer, position
    return None


def divergence_without_tolerance(expected, actual, tolerance):
    places = torch.nonzero((torch.stack(expected) != torch.stack(actual)).any(-1))
    return tuple(places[0].tolist()) if len(places) else None


def divergence_at_the_largest(expected, actual, tolerance):
    for layer in range(len(expected)):
        off = (expected[layer] - actual[layer]).abs().max(dim=1).values
        if not bool((off <= tolerance).all()):
            return layer, off.argmax().item()


def divergence_over_the_wrong_dimension(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        wrong = torch.logical_not((ours - theirs).abs() <= tolerance).any(dim=0)
        if wrong.any():
            return layer, wrong.tolist().index(True)


def divergence_that_returns_in_the_loop(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        for position in range(len(ours)):
            if not torch.allclose(ours[position], theirs[position], rtol=0, atol=tolerance):
                return layer, position
        return None


def divergence_in_three_numbers(expected, actual, tolerance):
    difference = (torch.stack(expected) - torch.stack(actual)).abs().nan_to_num(nan=torch.inf)
    places = torch.nonzero(difference > tolerance)
    return tuple(places[0].tolist()) if len(places) else None


def divergence_of_something_always(expected, actual, tolerance):
    difference = (torch.stack(expected) - torch.stack(actual)).abs().amax(-1)
    return tuple(torch.nonzero(~(difference <= tolerance))[0].tolist())


def divergence_or_minus_one(expected, actual, tolerance):
    found = divergence_by_loops(expected, actual, tolerance)
    return (-1, -1) if found is None else found


def divergence_with_nan_at_zero(expected, actual, tolerance):
    for layer, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if torch.isnan(theirs).any():
            return layer, 0
        rows = torch.nonzero(((ours - theirs).abs() > tolerance).any(-1))
        if len(rows):
            return layer, int(rows[0])


def divergence_without_nan(expected, actual, tolerance):
    return divergence_by_loops(expected, [torch.nan_to_num(output, nan=0.0) for output in actual], tolerance)


def divergence_by_position(expected, actual, tolerance):
    for position in range(len(expected[0])):
        for layer in range(len(expected)):
            if not torch.allclose(expected[layer][position], actual[layer][position], rtol=0, atol=tolerance):
                return layer, position
    return None


# 5.8


def merge_by_reshape(o):
    num_tokens, num_heads, head_size = o.shape
    return o.reshape(num_tokens, num_heads * head_size)


def merge_by_cat(o):
    return torch.cat([o[:, head] for head in range(o.shape[1])], dim=-1)


def merge_by_rows(o):
    return torch.stack([token.flatten() for token in o])


def merge_by_view(o):
    return o.contiguous().view(o.size(0), -1)


def merge_by_permute(o):
    num_tokens, num_heads, head_size = o.shape
    return o.permute(1, 0, 2).flatten().view(num_tokens, num_heads * head_size)


def merge_by_sum(o):
    merged = torch.zeros(o.shape[0], o.shape[2])
    for head in range(o.shape[1]):
        merged += o[:, head]
    return merged


def merge_by_stack(o):
    return torch.stack([o[:, head] for head in range(o.shape[1])], dim=-1).flatten(1)


def merge_into_one(o):
    return o.reshape(-1)


def merge_downwards(o):
    return torch.cat([o[:, head] for head in range(o.shape[1])], dim=0)


def merge_in_float(o):
    return o.float().flatten(1)


def merge_after_transposing_o(o):
    o.transpose_(0, 1)
    return o.contiguous().view(o.shape[1], -1)


def merge_by_view_alone(o):
    return o.view(o.size(0), -1)


RIGHT_ANSWERS = {
    "5.1": [cumulative_by_accumulate, cumulative_by_padding, cumulative_by_loop, cumulative_by_triangle],
    "5.2": [append_on_a_copy_first, append_with_simulated_counts, append_counting_writers],
    "5.3": [metadata_by_loops, metadata_without_loops, metadata_from_all_slots, metadata_sequence_by_sequence],
    "5.4": [visible_by_tril, visible_by_lists, visible_as_last_rows, visible_from_the_right],
    "5.5": [attention_by_sdpa, attention_token_by_token, attention_with_grouped_heads],
    "5.6": [bytes_by_product, bytes_by_shape, bytes_by_layers],
    "5.7": [divergence_by_loops, divergence_in_one_tensor, divergence_by_isclose],
    "5.8": [merge_by_reshape, merge_by_cat, merge_by_rows, merge_by_view],
}

WRONG_ANSWERS = {
    "5.1": {"no-total": [starts_only], "no-leading-zero": [ends_only], "sums-int64": [default_dtype],
            "sums-float": [filled_floats], "pairs": [borders_in_pairs],
            "borders-of-a-rectangle": [borders_of_the_longest], "first-length-lost": [loop_from_the_second],
            "not-a-tensor": [in_numpy]},
    "5.2": {"leak-on-failed-append": [append_until_it_fails], "ignores-copy-on-write": [append_without_copies],
            "counts-every-copy": [append_with_every_copy],
            "counts-users-not-writers": [append_unless_the_count_is_of_users],
            "copy-counted-per-token": [append_with_copies_by_token],
            "lone-writer-forgotten": [append_with_lone_writers_free], "check-deleted": [append_with_no_check],
            "no-last-block": [append_looking_at_every_last_block], "other-error": [append_with_a_value_error],
            "lengths-put-back": [append_and_put_lengths_back], "pool-replaced": [append_and_put_all_back],
            "ignores-room-in-last-block": [append_with_the_new_tokens_alone],
            "copy-for-each-sharer": [append_with_a_copy_for_each_sharer]},
    "5.3": {"table-int64": [metadata_with_python_integers], "zero-is-a-block": [metadata_padded_with_zeros],
            "lengths-before-append": [metadata_with_old_lengths], "sequence-ids-as-rows": [metadata_with_rows_by_id],
            "view-of-the-table": [metadata_with_a_sliced_table], "not-a-batch-metadata": [metadata_in_a_tuple],
            "slot-mapping-shadowed": [metadata_shadowing_a_function], "appends-itself": [metadata_that_appends],
            "row-number-for-block-ids": [metadata_with_a_row_number],
            "places-in-the-batch": [metadata_with_places_in_the_batch], "one-slot-each": [metadata_with_one_slot_each],
            "list-for-a-tensor": [metadata_with_a_list_of_slots], "rows-without-padding": [metadata_with_ragged_rows],
            "stays-on-the-cpu": [metadata_on_the_cpu], "two-devices": [metadata_of_two_devices]},
    "5.4": {"top-left-aligned": [visible_without_offset], "chunk-not-causal": [visible_for_prompts_only],
            "not-boolean": [visible_in_floats], "future-not-past": [visible_upper_triangle],
            "offset-reversed": [visible_moved_the_other_way], "new-keys-only": [visible_square],
            "past-behind": [visible_with_the_past_last], "list-of-lists": [visible_in_lists],
            "keys-as-rows": [visible_with_keys_first]},
    "5.5": {"chunk-not-causal": [attention_with_is_causal], "top-left-aligned": [attention_always_is_causal],
            "wrong-head-mapping": [attention_with_repeated_heads], "missing-scale": [attention_without_scale],
            "heads-scrambled": [attention_scrambled], "mask-inverted": [attention_inverted],
            "masked-with-zero": [attention_that_masks_with_zero], "masked-after-softmax": [attention_that_masks_late],
            "softmax-overflows": [attention_by_plain_exp], "not-transposed-back": [attention_heads_first],
            "other-dtype": [attention_in_double, attention_in_float], "nan-in-the-tail": [attention_with_a_masked_tail],
            "arguments-changed": [attention_that_scales_q, attention_that_cleans_the_pool],
            "only-the-new-keys": [attention_over_new_keys], "last-block-lost": [attention_of_full_blocks],
            "heads-as-tokens": [attention_with_heads_in_place], "one-cache-for-both": [attention_of_keys_alone],
            "scaled-by-another-size": [attention_scaled_by_heads], "list-of-outputs": [attention_in_a_list],
            "heads-merged": [attention_with_merged_heads]},
    "5.6": {"keys-only": [bytes_of_keys], "layers-forgotten": [bytes_of_one_layer], "float-bytes": [bytes_in_float],
            "all-three-movements": [bytes_three_times], "whole-blocks": [bytes_of_blocks],
            "new-token-left-out": [bytes_of_the_past], "two-bytes-fixed": [bytes_in_16_bits],
            "head-size-forgotten": [bytes_without_head_size], "nothing-returned": [bytes_printed],
            "pair-not-sum": [bytes_as_a_pair]},
    "5.7": {"nan-unnoticed": [divergence_unless_greater], "exact-comparison": [divergence_without_tolerance],
            "positions-before-layers": [divergence_by_position], "list-for-tuple": [divergence_in_a_list],
            "tensors-for-ints": [divergence_in_tensors], "inputs-changed": [divergence_in_place],
            "relative-tolerance": [divergence_by_allclose], "row-sum-or-norm": [divergence_by_norm],
            "tolerance-itself": [divergence_by_strict_less], "sign-forgotten": [divergence_one_sided],
            "all-numbers-must-differ": [divergence_of_everything],
            "largest-not-first": [divergence_at_the_largest],
            "columns-for-positions": [divergence_over_the_wrong_dimension],
            "only-the-first-layer": [divergence_that_returns_in_the_loop], "number-too": [divergence_in_three_numbers],
            "agreement-raises": [divergence_of_something_always], "minus-one-for-none": [divergence_or_minus_one],
            "nan-at-the-front": [divergence_with_nan_at_zero], "nan-replaced": [divergence_without_nan]},
    "5.8": {"heads-scrambled": [merge_by_permute], "heads-summed": [merge_by_sum], "heads-interleaved": [merge_by_stack],
            "one-row": [merge_into_one], "heads-below-each-other": [merge_downwards], "dtype-changed": [merge_in_float],
            "view-of-any-layout": [merge_by_view_alone], "o-changed": [merge_after_transposing_o]},
}
