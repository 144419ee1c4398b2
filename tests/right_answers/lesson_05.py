"""Lesson 05."""

import copy
import math
from collections import defaultdict
from itertools import accumulate, pairwise
from types import SimpleNamespace

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from paged_attention.block_manager import OutOfBlocksError
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
    return SimpleNamespace(cu_seqlens_q=torch.tensor(starts, dtype=torch.int32),
                           seq_lens_kv=torch.tensor(kv_lens, dtype=torch.int32),
                           block_table=torch.tensor(table, dtype=torch.int32),
                           slot_mapping=torch.tensor(slots, dtype=torch.int64))


def metadata_without_loops(manager, scheduled):
    check_scheduled(scheduled, manager)
    ids, lens = zip(*scheduled, strict=True)
    query_lens = torch.tensor(lens)
    kv_lens = torch.tensor([manager.get(seq_id).length for seq_id in ids])
    table = torch.stack([manager.get_block_table_for_seq(seq_id) for seq_id in ids])
    starts = pad(query_lens.cumsum(0), (1, 0))
    owner = torch.arange(len(ids)).repeat_interleave(query_lens)
    position = torch.arange(int(starts[-1])) - starts[owner] + (kv_lens - query_lens)[owner]
    block = table[owner, position // manager.block_size].long()
    return SimpleNamespace(cu_seqlens_q=starts.int(), seq_lens_kv=kv_lens.int(), block_table=table,
                           slot_mapping=block * manager.block_size + position % manager.block_size)


def metadata_from_all_slots(manager, scheduled):
    check_scheduled(scheduled, manager)
    offsets = torch.arange(manager.block_size)
    rows = [manager.get(seq_id).row for seq_id, _ in scheduled]
    slots = []
    for row, (seq_id, num_tokens) in zip(rows, scheduled, strict=True):
        every = (manager.table.cpu[row].long()[:, None] * manager.block_size + offsets).flatten()
        slots.append(every[: manager.get(seq_id).length][-num_tokens:])
    return SimpleNamespace(cu_seqlens_q=cumulative_by_accumulate([num_tokens for _, num_tokens in scheduled]),
                           seq_lens_kv=torch.IntTensor([manager.get(seq_id).length for seq_id, _ in scheduled]),
                           block_table=manager.block_table.index_select(0, torch.tensor(rows)),
                           slot_mapping=torch.cat(slots))


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


def merge_by_view_alone(o):
    return o.view(o.size(0), -1)


RIGHT_ANSWERS = {
    "5.1": [cumulative_by_accumulate, cumulative_by_padding, cumulative_by_loop, cumulative_by_triangle],
    "5.2": [append_on_a_copy_first, append_with_simulated_counts, append_counting_writers],
    "5.3": [metadata_by_loops, metadata_without_loops, metadata_from_all_slots],
    "5.4": [visible_by_tril, visible_by_lists, visible_as_last_rows, visible_from_the_right],
    "5.5": [attention_by_sdpa, attention_token_by_token, attention_with_grouped_heads],
    "5.6": [bytes_by_product, bytes_by_shape, bytes_by_layers],
    "5.7": [divergence_by_loops, divergence_in_one_tensor, divergence_by_isclose],
    "5.8": [merge_by_reshape, merge_by_cat, merge_by_rows, merge_by_view],
}

WRONG_ANSWERS = {
    "5.1": {"no-total": [starts_only], "no-leading-zero": [ends_only], "sums-int64": [default_dtype],
            "sums-float": [filled_floats]},
    "5.2": {"leak-on-failed-append": [append_until_it_fails], "ignores-copy-on-write": [append_without_copies],
            "counts-every-copy": [append_with_every_copy],
            "counts-users-not-writers": [append_unless_the_count_is_of_users],
            "copy-counted-per-token": [append_with_copies_by_token],
            "lone-writer-forgotten": [append_with_lone_writers_free], "check-deleted": [append_with_no_check]},
    "5.3": {"table-int64": [metadata_with_python_integers], "zero-is-a-block": [metadata_padded_with_zeros],
            "lengths-before-append": [metadata_with_old_lengths], "sequence-ids-as-rows": [metadata_with_rows_by_id],
            "view-of-the-table": [metadata_with_a_sliced_table], "not-a-batch-metadata": [metadata_in_a_tuple],
            "slot-mapping-shadowed": [metadata_shadowing_a_function], "appends-itself": [metadata_that_appends]},
    "5.4": {"top-left-aligned": [visible_without_offset], "chunk-not-causal": [visible_for_prompts_only],
            "not-boolean": [visible_in_floats], "future-not-past": [visible_upper_triangle],
            "offset-reversed": [visible_moved_the_other_way]},
    "5.5": {"chunk-not-causal": [attention_with_is_causal], "top-left-aligned": [attention_always_is_causal],
            "wrong-head-mapping": [attention_with_repeated_heads], "missing-scale": [attention_without_scale],
            "heads-scrambled": [attention_scrambled], "mask-inverted": [attention_inverted],
            "masked-with-zero": [attention_that_masks_with_zero], "masked-after-softmax": [attention_that_masks_late],
            "softmax-overflows": [attention_by_plain_exp], "not-transposed-back": [attention_heads_first],
            "other-dtype": [attention_in_double], "nan-in-the-tail": [attention_with_a_masked_tail],
            "arguments-changed": [attention_that_scales_q]},
    "5.6": {"keys-only": [bytes_of_keys], "layers-forgotten": [bytes_of_one_layer], "float-bytes": [bytes_in_float]},
    "5.7": {"nan-unnoticed": [divergence_unless_greater], "exact-comparison": [divergence_without_tolerance],
            "positions-before-layers": [divergence_by_position], "list-for-tuple": [divergence_in_a_list],
            "tensors-for-ints": [divergence_in_tensors], "inputs-changed": [divergence_in_place],
            "relative-tolerance": [divergence_by_allclose], "row-sum-or-norm": [divergence_by_norm],
            "tolerance-itself": [divergence_by_strict_less], "sign-forgotten": [divergence_one_sided],
            "all-numbers-must-differ": [divergence_of_everything]},
    "5.8": {"heads-scrambled": [merge_by_permute], "heads-summed": [merge_by_sum], "heads-interleaved": [merge_by_stack],
            "one-row": [merge_into_one], "heads-below-each-other": [merge_downwards], "dtype-changed": [merge_in_float],
            "view-of-any-layout": [merge_by_view_alone]},
}
