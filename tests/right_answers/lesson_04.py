"""Lesson 04."""

import math

import torch
import torch.nn.functional as F

from paged_attention.decode import (
    block_attention,
    combine_result,
    combine_segments,
    dispatch,
    own_token,
    past_blocks,
    write_new_tokens,
)
from paged_attention.slots import slot_mapping, write_kv
from paged_attention.softmax_state import SoftmaxState


def dispatch_by_index(q, request_num_blocks):
    return q[torch.arange(len(q)).repeat_interleave(request_num_blocks)]


def dispatch_by_cat(q, request_num_blocks):
    return torch.cat([q[i].expand(count, -1, -1) for i, count in enumerate(request_num_blocks.tolist())])


def dispatch_by_search(q, request_num_blocks):
    ends = request_num_blocks.cumsum(0)
    return q[torch.searchsorted(ends, torch.arange(int(ends[-1])), right=True)]


def dispatch_row_by_row(q, request_num_blocks):
    out = q.new_empty(int(request_num_blocks.sum()), *q.shape[1:])
    row = 0
    for i in range(len(q)):
        for _ in range(int(request_num_blocks[i])):
            out[row] = q[i]
            row += 1
    return out


def repeat_and_cut(q, request_num_blocks):
    total = int(request_num_blocks.sum())
    return q.repeat(total, 1, 1)[:total]


def padded_by_expand(q, request_num_blocks):
    longest = max(request_num_blocks.tolist())
    return q[:, None].expand(-1, longest, -1, -1).flatten(0, 1)


def empty_ones_with_max(q, request_num_blocks):
    return torch.cat([q[i : i + 1].repeat(max(1, int(count)), 1, 1) for i, count in enumerate(request_num_blocks)])


def attention_in_loops(q, k, v, num_valid):
    group = q.shape[1] // k.shape[2]
    o, m, l = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf), torch.zeros(q.shape[:2])
    for n in range(len(q)):
        count = int(num_valid[n])
        for h in range(q.shape[1] if count else 0):
            scores = k[n, :count, h // group] @ q[n, h] / math.sqrt(q.shape[2])
            weights = (scores - scores.max()).exp()
            m[n, h], l[n, h] = scores.max(), weights.sum()
            o[n, h] = weights @ v[n, :count, h // group] / weights.sum()
    return o, m, l


def attention_in_groups(q, k, v, num_valid):
    num_kv_heads, head_size = k.shape[2:]
    grouped = q.double().reshape(len(q), num_kv_heads, q.shape[1] // num_kv_heads, head_size) * head_size**-0.5
    valid = torch.arange(k.shape[1])[None] < num_valid[:, None]
    scores = torch.einsum("nkgd,ntkd->nkgt", grouped, k.double())
    scores = torch.where(valid[:, None, None], scores, -torch.inf)
    m = scores.max(-1).values
    weights = torch.nan_to_num((scores - m[..., None]).exp())
    l = weights.sum(-1)
    clean = torch.where(valid[..., None, None], v.double(), 0.0)
    o = torch.nan_to_num(torch.einsum("nkgt,ntkd->nkgd", weights, clean) / l[..., None])
    return o.reshape(q.shape).float(), m.reshape(q.shape[:2]).float(), l.reshape(q.shape[:2]).float()


def attention_by_the_state(q, k, v, num_valid):
    group = q.shape[1] // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v))
    values = values.masked_fill((torch.arange(k.shape[1]) >= num_valid[:, None])[:, None, :, None], 0.0)
    state = SoftmaxState(*q.shape[:2], head_size=q.shape[2])
    for t in range(k.shape[1]):
        scores = (keys[:, :, t] * q).sum(-1) / math.sqrt(q.shape[2])
        state.update(scores.masked_fill(num_valid[:, None] <= t, -math.inf)[..., None], values[:, :, t : t + 1])
    return state.finish()


def attention_by_logsumexp(q, k, v, num_valid):
    """PyTorch's own attention for o; m and l from the scores."""
    group = q.shape[1] // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v))  # (blocks, heads, slots, head_size)
    seen = (torch.arange(k.shape[1]) < num_valid[:, None])[:, None, None]
    some = (num_valid > 0)[:, None]
    keys, values = (x.masked_fill(~seen.mT, 0.0) for x in (keys, values))
    scores = (q[:, :, None] @ keys.mT / math.sqrt(q.shape[2])).masked_fill(~seen, -math.inf).squeeze(2)
    o = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen | ~some[..., None, None]).squeeze(2)
    m = scores.amax(-1)
    l = torch.where(some, torch.exp(torch.logsumexp(scores, -1) - m), 0.0)
    return torch.where(some[..., None], o, 0.0), m, l


def multiplies_values_by_the_mask(q, k, v, num_valid):
    valid = torch.arange(k.shape[1])[None] < num_valid[:, None]
    group = q.shape[1] // k.shape[2]
    keys = k.repeat_interleave(group, 2)
    values = v.repeat_interleave(group, 2) * valid[..., None, None]
    scores = torch.where(valid[:, None], (q[:, None] * keys).sum(-1).transpose(1, 2) / math.sqrt(q.shape[2]), -math.inf)
    m = scores.max(-1)[0]
    weights = torch.where(valid[:, None], (scores - m[..., None]).exp(), 0.0)
    l = weights.sum(-1)
    o = (weights[:, :, None] @ values.transpose(1, 2)).squeeze(2)
    return torch.where(l[..., None] > 0, o / l[..., None], torch.zeros_like(o)), m, l


def cleans_up_at_the_end(q, k, v, num_valid):
    o, m, l = multiplies_values_by_the_mask(q, k, v, num_valid)
    return torch.nan_to_num(o), m, l


def adds_the_mask(q, k, v, num_valid):
    valid = (torch.arange(k.shape[1])[None] < num_valid[:, None])[:, None]
    keys, values = (x.repeat_interleave(q.shape[1] // k.shape[2], 2).transpose(1, 2) for x in (k, v))
    scores = torch.einsum("nhd,nhtd->nht", q, keys) / math.sqrt(q.shape[2]) + torch.log(valid.float())
    m = scores.max(-1)[0]
    weights = (scores - torch.where(m == -math.inf, 0.0, m)[..., None]).exp()
    l = weights.sum(-1)
    o = torch.einsum("nht,nhtd->nhd", weights, torch.where(valid[..., None], values, 0.0))
    return o / torch.where(l == 0, 1.0, l)[..., None], m, l


def fills_with_a_billion(q, k, v, num_valid):
    group, total, size = q.shape[1] // k.shape[2], len(q), k.shape[1]
    keys, values = (x.repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("nhd,nthd->nht", q, keys) / math.sqrt(q.shape[2])
    valid = torch.arange(size).expand(total, size) < num_valid[:, None]
    scores[~valid[:, None].expand_as(scores)] = -1e9
    m = scores.max(-1).values
    weights = (scores - m[..., None]).exp()
    l = weights.sum(-1)
    return torch.einsum("nht,nthd->nhd", weights, values.masked_fill(~valid[..., None, None], 0.0)) / l[..., None], m, l


def without_scale_in_loops(q, k, v, num_valid):
    return attention_in_loops(q * math.sqrt(q.shape[2]), k, v, num_valid)


def heads_by_remainder(q, k, v, num_valid):
    heads = [h % k.shape[2] for h in range(q.shape[1])]
    return attention_in_groups(q, k[:, :, heads], v[:, :, heads], num_valid)


def every_slot_in_groups(q, k, v, num_valid):
    return attention_in_groups(q, k, v, torch.full_like(num_valid, k.shape[1]))


def softmax_for_weights(q, k, v, num_valid):
    o, m, l = attention_in_loops(q, k, v, num_valid)
    return o, m, torch.where(l > 0, 1.0, l)


def combine_by_logsumexp(o, m, l):
    """In float32: l.log() loses a little beside an m of 500."""
    total = torch.logsumexp(m + l.log(), 0)
    share = torch.nan_to_num((m + l.log() - total).exp())
    m_all = m.max(0)[0]
    return torch.einsum("p...,p...d->...d", share, o), m_all, torch.nan_to_num((total - m_all).exp())


def combine_one_by_one(o, m, l):
    """Lesson 03's merge, part by part."""
    states = []
    for i in range(len(m)):
        state = SoftmaxState(*m.shape[1:], head_size=o.shape[-1])
        state.m, state.l, state.acc = m[i], l[i], o[i] * l[i][..., None]
        states.append(state)
    first, *others = states
    for other in others:
        first.merge(other)
    return first.finish()


def combine_as_softmax(o, m, l):
    weights = torch.softmax(m.double() + torch.log(l.double()), dim=0).nan_to_num()
    m_all, _ = m.max(dim=0)
    l_all = torch.where(l > 0, torch.exp((m - m_all).double()) * l.double(), 0.0).sum(0)
    return (weights.unsqueeze(-1) * o).sum(0).float(), m_all, l_all.float()


def combine_in_pairs(o, m, l):
    while len(m) > 1:
        half = len(m) // 2
        a, b = (slice(0, half), slice(half, 2 * half))
        top = torch.maximum(m[a], m[b])
        safe = torch.where(torch.isinf(top), torch.zeros_like(top), top)
        wa, wb = torch.exp(m[a] - safe) * l[a], torch.exp(m[b] - safe) * l[b]
        total = wa + wb
        mean = (wa.unsqueeze(-1) * o[a] + wb.unsqueeze(-1) * o[b]) / torch.where(total > 0, total, 1.0).unsqueeze(-1)
        rest = slice(2 * half, None)
        o, m, l = (torch.cat(pair) for pair in ((mean, o[rest]), (top, m[rest]), (total, l[rest])))
    return o[0], m[0], l[0]


def seed_without_exp(o, m, l):
    """As in the source text."""
    m_new = m.amax(0, keepdim=True)
    m_new = torch.where(torch.isinf(m_new), 0.0, m_new)
    l_new = torch.sum(torch.exp(m - m_new) * l, dim=0, keepdim=True)
    safe = torch.where(l_new == 0, 1.0, l_new)
    return torch.sum((m - m_new).unsqueeze(-1) * (l / safe).unsqueeze(-1) * o, dim=0), m.amax(0), l_new[0]


def exp_of_m_alone(o, m, l):
    top = m.max(dim=0).values
    scale = (m - top.nan_to_num(neginf=0.0)).exp()
    total = scale.sum(dim=0)
    return torch.einsum("p...,p...d->...d", scale, o) / total.clamp(min=1e-9)[..., None], top, total


def mean_of_the_parts(o, m, l):
    _, top, total = combine_one_by_one(o, m, l)
    return sum(o) / len(o), top, total


def running_with_old_sums(o, m, l):
    top, total, acc = torch.full_like(m[0], -math.inf), 0.0, 0.0
    for part_o, part_m, part_l in zip(o, m, l, strict=True):
        top = torch.maximum(top, part_m)
        weight = torch.nan_to_num((part_m - top).exp()) * part_l
        total, acc = total + weight, acc + weight.unsqueeze(-1) * part_o
    return acc / torch.where(total == 0, 1.0, total).unsqueeze(-1), top, total


def decode_by_gather(layer, x, seq_ids, manager):
    """Writes first, then gathers each sequence's tokens and hands them to PyTorch's own attention."""
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    rows = []
    for i, seq_id in enumerate(seq_ids):
        length, blocks = manager.get(seq_id).length, manager.blocks_of(seq_id)
        keys, values = (cache[blocks].flatten(0, 1)[:length].transpose(0, 1)[None] for cache in (k_cache, v_cache))
        rows.append(F.scaled_dot_product_attention(q[i][None, :, None], keys, values, enable_gqa=True)[0, :, 0])
    return layer.output(torch.stack(rows))


def decode_by_walking(layer, x, seq_ids, manager):
    """Block by block with lesson 03's state, and no part is kept."""
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    group, outputs = q.shape[1] // k.shape[1], []
    for i, seq_id in enumerate(seq_ids):
        state, left = SoftmaxState(q.shape[1], head_size=q.shape[2]), manager.get(seq_id).length - 1
        for block_id in manager.blocks_of(seq_id):
            count = min(left, manager.block_size)
            left -= count
            if count > 0:
                keys, values = (cache[block_id, :count].repeat_interleave(group, 1) for cache in (k_cache, v_cache))
                state.update(torch.einsum("hd,thd->ht", q[i], keys) / math.sqrt(q.shape[2]), values.transpose(0, 1))
        own_k, own_v = k[i].repeat_interleave(group, 0), v[i].repeat_interleave(group, 0)
        state.update((q[i] * own_k).sum(-1, keepdim=True) / math.sqrt(q.shape[2]), own_v[:, None])
        outputs.append(state.finish()[0])
        slot = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.tensor([manager.get(seq_id).length - 1]),
                            manager.block_size)
        write_kv(k_cache, v_cache, slot, k[i : i + 1], v[i : i + 1])
    return layer.output(torch.stack(outputs))


def decode_by_segments(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(seq_ids, manager)
    past = combine_segments(*block_attention(dispatch(q, counts), k_cache[block_ids], v_cache[block_ids], num_valid), counts)
    both = [torch.stack([a, b]) for a, b in zip(past, own_token(q, k, v), strict=True)]
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(combine_result(*both)[0])


def decode_with_split(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(seq_ids, manager)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    parts = block_attention(dispatch(q, counts), k_cache[block_ids], v_cache[block_ids], num_valid)
    outputs = []
    columns = [part.split(counts.tolist()) for part in parts]
    for *past, last_o, last_m, last_l in zip(*columns, *own_token(q, k, v), strict=True):
        rows = [torch.cat([part, last[None]]) for part, last in zip(past, (last_o, last_m, last_l), strict=True)]
        outputs.append(combine_result(*rows)[0])
    return torch.stack(outputs).flatten(1) @ layer.wo.T


def _by_gather(layer, x, seq_ids, manager, rows=None, past_only=False, write=True):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    outputs = []
    for i, seq_id in enumerate(seq_ids):
        past = manager.get(seq_id).length - 1
        blocks = (rows or manager.blocks_of)(seq_id)[: -(-past // manager.block_size)]
        keys, values = (torch.cat([cache[blocks].flatten(0, 1)[:past], *([] if past_only else [new[i : i + 1]])])
                        for cache, new in ((k_cache, k), (v_cache, v)))
        keys, values = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
        outputs.append(F.scaled_dot_product_attention(q[i][None, :, None], keys, values, enable_gqa=True)[0, :, 0])
    if write:
        write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(torch.stack(outputs))


def gathers_and_never_writes(layer, x, seq_ids, manager):
    return _by_gather(layer, x, seq_ids, manager, write=False)


def gathers_neighbours(layer, x, seq_ids, manager):
    def rows(seq_id):
        blocks = manager.blocks_of(seq_id)
        return list(range(blocks[0], blocks[0] + len(blocks)))
    return _by_gather(layer, x, seq_ids, manager, rows)


def sees_its_own_value_alone(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    _, k, v = layer.project(x)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(v.repeat_interleave(layer.num_q_heads // layer.num_kv_heads, dim=1))


def writes_value_as_key(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    _, k, v = layer.project(x)
    y = _by_gather(layer, x, seq_ids, manager, write=False)
    write_new_tokens(k_cache, v_cache, seq_ids, manager, v, k)
    return y


def writes_through_all_layers(layer, x, seq_ids, manager):
    _, k, v = layer.project(x)
    y = _by_gather(layer, x, seq_ids, manager, write=False)
    for i, seq_id in enumerate(seq_ids):
        block, offset = divmod(manager.get(seq_id).length - 1, manager.block_size)
        manager.kv_cache[:, 0, manager.blocks_of(seq_id)[block], offset] = k[i]
        manager.kv_cache[:, 1, manager.blocks_of(seq_id)[block], offset] = v[i]
    return y


def sets_nan_in_the_pool_to_zero(layer, x, seq_ids, manager):
    y = decode_by_walking(layer, x, seq_ids, manager)
    manager.kv_cache[manager.kv_cache.isnan()] = 0.0
    return y


def appends_once_more(layer, x, seq_ids, manager):
    y = decode_by_walking(layer, x, seq_ids, manager)
    for seq_id in seq_ids:
        manager.append_token(seq_id)
    return y


def adds_two_attentions(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    parts = block_attention(dispatch(q, (where := past_blocks(seq_ids, manager))[2]), k_cache[where[0]], v_cache[where[0]],
                            where[1])
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(combine_segments(*parts, where[2])[0] + own_token(q, k, v)[0])


def segments_in_a_loop(o, m, l, request_num_blocks):
    outs = []
    for part_o, part_m, part_l in zip(*(x.split(request_num_blocks.tolist()) for x in (o, m, l)), strict=True):
        if len(part_m):
            outs.append(combine_result(part_o, part_m, part_l))
        else:
            outs.append((o.new_zeros(o.shape[1:]), m.new_full(m.shape[1:], -math.inf), l.new_zeros(l.shape[1:])))
    return tuple(torch.stack(column) for column in zip(*outs, strict=True))


def segments_by_padding(o, m, l, request_num_blocks):
    num_seqs, longest = len(request_num_blocks), max(1, int(request_num_blocks.max()))
    inside = torch.arange(longest) < request_num_blocks[:, None]
    padded = (o.new_zeros(num_seqs, longest, *o.shape[1:]), m.new_full((num_seqs, longest, m.shape[1]), -math.inf),
              l.new_zeros(num_seqs, longest, l.shape[1]))
    for full, rows in zip(padded, (o, m, l), strict=True):
        full[inside] = rows
    return combine_result(*(full.transpose(0, 1) for full in padded))


def segments_by_matrix(o, m, l, request_num_blocks):
    """A matrix of which row belongs to which request, in float64."""
    owner = torch.repeat_interleave(torch.arange(len(request_num_blocks)), request_num_blocks)
    belongs = torch.arange(len(request_num_blocks))[:, None] == owner  # (num_seqs, total_blocks)
    seen = torch.where(belongs[..., None], m.double(), -math.inf)
    m_all = torch.cat([seen, torch.full((len(seen), 1, m.shape[1]), -math.inf, dtype=torch.double)], 1).amax(1)
    base = torch.where(torch.isinf(m_all), 0.0, m_all)
    weight = torch.where(belongs[..., None], (m - base[:, None]).exp() * l, 0.0)  # (num_seqs, total_blocks, heads)
    l_all = weight.sum(1)
    o_all = torch.einsum("snh,nhd->shd", weight, o.double()) / torch.where(l_all > 0, l_all, 1.0)[..., None]
    return o_all.float(), m_all.float(), l_all.float()


def segments_by_reduce(o, m, l, request_num_blocks):
    top = torch.segment_reduce(m, "max", lengths=request_num_blocks, axis=0, initial=-math.inf)
    rows = top.nan_to_num(neginf=0.0).repeat_interleave(request_num_blocks, dim=0)
    weight = (m - rows).exp() * l
    total = torch.segment_reduce(weight, "sum", lengths=request_num_blocks, axis=0, initial=0)
    summed = torch.segment_reduce(weight[..., None] * o, "sum", lengths=request_num_blocks, axis=0, initial=0)
    return summed / total.where(total > 0, torch.ones_like(total))[..., None], top, total


def padded_with_zero_maxima(o, m, l, request_num_blocks):
    """A row of zeros stands in front of each request, and takes part in the maximum."""
    outs = []
    for part_o, part_m, part_l in zip(*(x.split(request_num_blocks.tolist()) for x in (o, m, l)), strict=True):
        nothing = part_m.new_zeros(1, m.shape[1])
        outs.append(combine_result(torch.cat([part_o.new_zeros(1, *o.shape[1:]), part_o]), torch.cat([nothing, part_m]),
                                   torch.cat([nothing, part_l])))
    return tuple(torch.stack(column) for column in zip(*outs, strict=True))


def loop_that_skips_empty_ones(o, m, l, request_num_blocks):
    kept = [count for count in request_num_blocks.tolist() if count]
    if not kept:
        return o, m, l
    rows = zip(*(x.split(kept) for x in (o, m, l)), strict=True)
    return tuple(torch.stack(column) for column in zip(*(combine_result(*parts) for parts in rows), strict=True))


def bytes_in_a_loop(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    gather = paged = 0
    for length in context_lens:
        blocks, rest = divmod(length, block_size)
        blocks += rest > 0
        token = num_kv_heads * head_size * bytes_per_number
        gather += 2 * (2 * blocks * block_size * token) + 2 * length * token
        paged += 2 * length * token
    return gather, paged


def bytes_with_ceil(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    slots = sum(math.ceil(length / block_size) for length in context_lens) * block_size
    tokens = sum(context_lens)
    bytes_each = 2 * num_kv_heads * head_size * bytes_per_number
    return [(2 * slots + tokens) * bytes_each, tokens * bytes_each]


def bytes_with_tensors(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    lengths = torch.tensor(context_lens, dtype=torch.int64)
    slots = (lengths + block_size - 1) // block_size * block_size
    keys, copies = (int(x.sum()) * num_kv_heads * head_size * bytes_per_number for x in (lengths, slots))
    return 4 * copies + 2 * keys, 2 * keys


def three_times_the_tokens(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    _, paged = bytes_in_a_loop(context_lens, block_size, num_kv_heads, head_size, bytes_per_number)
    return paged * 3, paged


def without_the_values(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    gather, paged = bytes_with_ceil(context_lens, block_size, num_kv_heads, head_size, bytes_per_number)
    return gather / 2, paged / 2


RIGHT_ANSWERS = {
    "4.1": [dispatch_by_index, dispatch_by_cat, dispatch_by_search, dispatch_row_by_row],
    "4.2": [attention_in_loops, attention_in_groups, attention_by_the_state, attention_by_logsumexp],
    "4.3": [combine_by_logsumexp, combine_one_by_one, combine_as_softmax, combine_in_pairs],
    "4.4": [decode_by_gather, decode_by_walking, decode_by_segments, decode_with_split],
    "4.5": [segments_by_padding, segments_by_matrix, segments_by_reduce],
    "4.6": [bytes_in_a_loop, bytes_with_ceil, bytes_with_tensors],
}
WRONG_ANSWERS = {
    "4.1": {"repeat-not-interleave": [repeat_and_cut], "padded-to-longest": [padded_by_expand],
            "empty-request-kept": [empty_ones_with_max]},
    "4.2": {"missing-scale": [without_scale_in_loops], "wrong-head-mapping": [heads_by_remainder],
            "tail-not-masked": [every_slot_in_groups], "l-of-softmax": [softmax_for_weights],
            "half-a-mask": [multiplies_values_by_the_mask], "nan-hidden": [cleans_up_at_the_end],
            "mask-added": [adds_the_mask], "mask-is-finite": [fills_with_a_billion]},
    "4.3": {"combine-missing-exp": [seed_without_exp], "combine-missing-l": [exp_of_m_alone],
            "plain-average": [mean_of_the_parts], "running-sum-not-rescaled": [running_with_old_sums]},
    "4.4": {"kv-not-written": [gathers_and_never_writes], "pages-assumed-contiguous": [gathers_neighbours],
            "own-token-only": [sees_its_own_value_alone], "kv-swapped": [writes_value_as_key],
            "written-to-every-layer": [writes_through_all_layers], "pool-overwritten": [sets_nan_in_the_pool_to_zero],
            "length-changed": [appends_once_more], "outputs-added": [adds_two_attentions]},
    "4.5": {"loop-over-requests": [segments_in_a_loop], "max-starts-at-zero": [padded_with_zero_maxima], "empty-request-dropped": [loop_that_skips_empty_ones]},
    "4.6": {"tokens-copied": [three_times_the_tokens], "keys-only": [without_the_values]},
}
