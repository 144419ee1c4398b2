"""Lesson 04, as a third learner wrote it."""

import math

import torch

from paged_attention.attention import share_heads
from paged_attention.decode import block_attention, combine_result, own_token, past_blocks, write_new_tokens
from paged_attention.softmax_state import NO_KEY, finite

# 4.1


def dispatch_as_a_list(q, request_num_blocks):
    rows = []
    for query, count in zip(q, request_num_blocks.tolist()):
        rows += [query] * count
    return rows


def dispatch_counting_down(q, request_num_blocks):
    rows = [q[:0]]
    for i in range(len(q)):
        while request_num_blocks[i] > 0:
            rows.append(q[i : i + 1])
            request_num_blocks[i] -= 1
    return torch.cat(rows)


def dispatch_side_by_side(q, request_num_blocks):
    return q.unsqueeze(1).expand(-1, int(request_num_blocks.max()), -1, -1)


def dispatch_by_ends(q, request_num_blocks):
    ends = torch.cumsum(request_num_blocks, 0)
    return q[torch.arange(len(q)).repeat_interleave(ends)]


def dispatch_dividing_by_the_longest(q, request_num_blocks):
    row = torch.arange(int(request_num_blocks.sum()))
    return q[torch.div(row, int(request_num_blocks.max()), rounding_mode="floor")]


def dispatch_to_flat_rows(q, request_num_blocks):
    rows = torch.repeat_interleave(q, request_num_blocks, dim=0)
    return rows.view(len(rows), q.shape[1] * q.shape[2])


def dispatch_to_rows_of_a_guessed_size(q, request_num_blocks):
    rows = torch.repeat_interleave(q, request_num_blocks, dim=0)
    return rows.reshape(rows.shape[0], -1)


# 4.2


def attend(q, k, v, num_valid, from_the_end=False, shared_maximum=False):
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    slot = torch.arange(k.shape[1])
    counts = slot >= k.shape[1] - num_valid[:, None] if from_the_end else slot < num_valid[:, None]
    scores = (q[:, None] * k).sum(-1).transpose(1, 2) / math.sqrt(q.shape[-1])
    scores = torch.where(counts[:, None], scores, torch.tensor(NO_KEY))
    m = scores.max(-1).values
    if shared_maximum:
        m = m.max(-1, keepdim=True).values.repeat(1, q.shape[1])
    p = torch.exp(scores - finite(m).unsqueeze(-1))
    l = p.sum(-1)
    o = torch.einsum("bht,bthd->bhd", p, torch.where(counts[..., None, None], v, 0.0))
    return o / torch.where(l > 0, l, 1.0)[..., None], m, l


def attend_to_the_last_slots(q, k, v, num_valid):
    return attend(q, k, v, num_valid, from_the_end=True)


def attend_under_one_maximum_for_a_block(q, k, v, num_valid):
    return attend(q, k, v, num_valid, shared_maximum=True)


def attend_and_reshape(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    share_of_each = torch.einsum("bhd->bdh", o)
    return share_of_each.reshape(q.shape), m, l


def attend_under_one_maximum(q, k, v, num_valid):
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    behind = torch.arange(k.shape[1])[None] >= num_valid[:, None]
    scores = torch.einsum("bhd,bthd->bht", q, k) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(behind[:, None], NO_KEY)
    m = torch.ones(q.shape[:2]) * scores.max()
    p = torch.exp(scores - finite(m)[..., None])
    l = p.sum(-1)
    o = torch.einsum("bht,bthd->bhd", p, v.masked_fill(behind[..., None, None], 0.0))
    return o / torch.where(l == 0, 1.0, l)[..., None], m, l


def attend_and_return_o(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return o


def attend_and_average(q, k, v, num_valid):
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    counts = torch.arange(k.shape[1]) < num_valid[:, None]
    _, m, l = attend(q, k, v, num_valid)
    scores = torch.einsum("bhd,bthd->bth", q, k) / math.sqrt(q.shape[-1])
    p = torch.exp(scores.masked_fill(~counts[..., None], NO_KEY) - finite(m)[:, None])
    return (p[..., None] * v.masked_fill(~counts[..., None, None], 0.0)).mean(1), m, l


def attend_and_average_over_the_valid(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return torch.einsum("bhd,bh,b->bhd", o, l, 1 / num_valid.float().clamp(min=1)), m, l


def attend_to_what_all_blocks_have(q, k, v, num_valid):
    end = int(num_valid.min()) if len(num_valid) else 0
    return attend(q, k[:, :end], v[:, :end], num_valid)


def attend_to_at_least_a_slot_of_each(q, k, v, num_valid):
    end = 1
    if len(num_valid):
        end = max(1, num_valid.min().item())
    return attend(q, k[:, :end], v[:, :end], torch.minimum(num_valid, torch.tensor(end)))


# 4.3


def combine_by_softmax(o, m, l):
    """Right: the shares are a softmax of m + log l."""
    shares = torch.softmax(m + l.log(), 0).nan_to_num()
    m_all = m.amax(0)
    return (shares.unsqueeze(-1) * o).sum(0), m_all, (torch.exp(m - finite(m_all)) * l).sum(0)


def combine_with_finite_twice(o, m, l):
    largest = m.max(0).values
    w = (finite(m) - finite(largest)).exp() * l
    total = w.sum(0)
    return torch.einsum("p...,p...d->...d", w, o) / torch.where(total > 0, total, 1.0)[..., None], largest, total


def combine_by_plain_sums(o, m, l):
    largest = m.max(0).values
    w = (m - finite(largest)).exp() * l
    total = l.sum(0)
    return (w[..., None] * o).sum(0) / torch.where(total > 0, total, 1.0)[..., None], largest, total


def combine_softmax_times_l(o, m, l):
    w = torch.softmax(m, 0).nan_to_num() * l
    return (w[..., None] * o).sum(0) / w.sum(0).clamp_min(1e-9)[..., None], m.amax(0), w.sum(0)


def combine_by_differences_alone(o, m, l):
    w = m - m.amax(0)
    return (w[..., None] * o).sum(0) / w.sum(0)[..., None], m.amax(0), w.sum(0)


def combine_and_return_o(o, m, l):
    return combine_result(o, m, l)[0]


def combine_from_the_smallest(o, m, l):
    smallest = m.min(0).values
    w = (m - finite(smallest)).exp() * l
    total = w.sum(0)
    return (w[..., None] * o).sum(0) / torch.where(total > 0, total, 1.0)[..., None], smallest, total


def combine_keeping_the_dimension(o, m, l):
    largest = m.amax(0, keepdim=True)
    w = torch.exp(m - finite(largest)) * l
    total = w.sum(0, keepdim=True)
    return (w[..., None] * o).sum(0, keepdim=True) / total.masked_fill(total == 0, 1.0)[..., None], largest, total


def combine_to_a_logarithm(o, m, l):
    largest = finite(m.amax(0))
    w = torch.exp(m - largest) * l
    total = w.sum(0)
    return (w[..., None] * o).sum(0) / torch.where(total > 0, total, 1.0)[..., None], largest + total.log(), total


def combine_all_alike(o, m, l):
    w = torch.ones_like(l)
    return (w[..., None] * o).sum(0) / w.sum(0)[..., None], m.amax(0), w.sum(0)


def combine_over_the_last_dimension(o, m, l):
    largest = m.max(dim=-1, keepdim=True).values
    w = l * (m - finite(largest)).exp()
    total = w.sum(dim=0)
    o_all = torch.einsum("p...,p...d->...d", w, o) / torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return o_all, largest, total


def weights_of(m, l):
    return torch.exp(m - finite(m.max(0).values)) * l


def combine_by_weights_as_shares(o, m, l):
    shares = weights_of(m, l)
    return torch.einsum("p...,p...d->...d", shares, o), m.amax(0), torch.full_like(l[0], 1.0)


def combine_by_the_number_of_parts(o, m, l):
    w = weights_of(m, l)
    o_all = torch.zeros_like(o[0])
    for part in range(len(o)):
        o_all += w[part].unsqueeze(-1) * o[part] / len(o)
    return o_all, m.amax(0), w.sum(0)


def combine_by_the_mean(o, m, l):
    w = weights_of(m, l)
    return torch.mean(o * w.unsqueeze(-1), 0) / w.sum(0).clamp_min(1e-9).unsqueeze(-1), m.amax(0), w.sum(0)


def combine_with_the_largest_l(o, m, l):
    o_all, m_all, _ = combine_by_softmax(o, m, l)
    return o_all, m_all, l.max(dim=0).values


def combine_choosing_a_part(o, m, l):
    m_all, part = m.max(dim=0)
    index = part[None, ..., None].expand(1, *o.shape[1:])
    return torch.gather(o, 0, index).squeeze(0), m_all, torch.gather(l, 0, part[None]).squeeze(0)


# 4.4


def decode_from_the_first_part(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(seq_ids, manager)
    parts = block_attention(q.repeat_interleave(counts, 0), k_cache[block_ids], v_cache[block_ids], num_valid)
    own, ends, rows = own_token(q, k, v), counts.cumsum(0).tolist(), []
    for i, end in enumerate(ends):
        rows.append(combine_result(*(torch.cat([past[:end], new[i : i + 1]]) for past, new in zip(parts, own)))[0])
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(torch.stack(rows))


def decode_step_by_step(layer, x, seq_ids, manager, look_up=list, write_to=list, keys_alone=False,
                        passes_over=False, adds_x=False):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(look_up(seq_ids), manager)
    keys, values = k_cache[block_ids], (k_cache if keys_alone else v_cache)[block_ids]
    parts = block_attention(q.repeat_interleave(counts, 0), keys, values, num_valid)
    own, rows, start = own_token(q, k, v), [], 0
    for i, count in enumerate(counts.tolist()):
        if passes_over and count == 0:
            continue
        mine = [torch.cat([past[start : start + count], new[i : i + 1]]) for past, new in zip(parts, own)]
        rows.append(combine_result(*mine)[0])
        start += count
    write_new_tokens(k_cache, v_cache, write_to(seq_ids), manager, k, v)
    y = layer.output(torch.stack(rows))
    return x + y if adds_x else y


def decode_blocks_of_sorted_ids(*batch):
    return decode_step_by_step(*batch, look_up=sorted)


def decode_and_write_sorted(*batch):
    return decode_step_by_step(*batch, write_to=sorted)


def decode_with_keys_for_both(*batch):
    return decode_step_by_step(*batch, keys_alone=True)


def decode_without_first_tokens(*batch):
    return decode_step_by_step(*batch, passes_over=True)


def decode_plus_x(*batch):
    return decode_step_by_step(*batch, adds_x=True)


# 4.5


def segments_as_a_rectangle(o, m, l, request_num_blocks):
    """Right: the parts in a rectangle, filled up with parts that saw no key."""
    num_seqs, longest = len(request_num_blocks), max([1, *request_num_blocks.tolist()])
    owner = torch.arange(num_seqs).repeat_interleave(request_num_blocks)
    turn = torch.arange(len(m)) - (request_num_blocks.cumsum(0) - request_num_blocks)[owner]
    places = (longest, num_seqs, m.shape[1])
    o_all, m_all, l_all = torch.zeros(*places, o.shape[-1]), torch.full(places, NO_KEY), torch.zeros(places)
    o_all[turn, owner], m_all[turn, owner], l_all[turn, owner] = o, m, l
    return combine_result(o_all, m_all, l_all)


def segments(o, m, l, request_num_blocks, factor=lambda m, mine: torch.exp(m - mine), weighed=True, plain=False,
             reduce="amax"):
    request = torch.arange(len(request_num_blocks)).repeat_interleave(request_num_blocks)
    shape = (len(request_num_blocks), m.shape[1])
    largest = torch.full(shape, NO_KEY).scatter_reduce(0, request[:, None].repeat(1, m.shape[1]), m, reduce)
    w = factor(m, finite(largest)[request]) * l
    total = torch.zeros(shape).index_add(0, request, l if plain else w)
    out = torch.zeros(*shape, o.shape[-1]).index_add(0, request, w.unsqueeze(-1) * o if weighed else o)
    return out / torch.where(total > 0, total, 1.0).unsqueeze(-1), largest, total


def segments_with_finite_twice(*parts):
    return segments(*parts, factor=lambda m, mine: torch.exp(finite(m) - mine))


def segments_by_plain_sums(*parts):
    return segments(*parts, plain=True)


def segments_unweighed(*parts):
    return segments(*parts, weighed=False)


def segments_of_added_maxima(*parts):
    return segments(*parts, reduce="sum")


def segments_numbered_by_last_rows(o, m, l, request_num_blocks):
    last_rows = torch.cumsum(request_num_blocks, dim=0) - 1
    owner = torch.repeat_interleave(last_rows, request_num_blocks)
    shape = (len(request_num_blocks), m.shape[1])
    largest = torch.full(shape, NO_KEY).scatter_reduce_(0, owner.unsqueeze(1).repeat(1, m.shape[1]), m, reduce="amax")
    w = l * (m - finite(largest).index_select(0, owner)).exp()
    total = torch.zeros(shape).index_add_(0, owner, w)
    out = torch.zeros(*shape, o.shape[-1]).index_add_(0, owner, o * w.unsqueeze(-1))
    return out / torch.where(total > 0, total, 1.0).unsqueeze(-1), largest, total


def segments_by_running_sums(o, m, l, request_num_blocks):
    largest = torch.zeros(m.shape[1])
    if m.shape[0]:
        largest = m.max(0).values
    w = l * (m - finite(largest)).exp()
    end = request_num_blocks.cumsum(0)
    start = end - request_num_blocks
    total = torch.zeros(len(m) + 1, m.shape[1])
    out = torch.zeros(len(m) + 1, *o.shape[1:])
    total[1:], out[1:] = w.cumsum(0), (w.unsqueeze(-1) * o).cumsum(0)
    total, out = total[end] - total[start], out[end] - out[start]
    return out / total.clamp(min=1e-30).unsqueeze(-1), largest.repeat(len(end), 1), total


# 4.6


def bytes_with_blocks_as_tokens(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    token, copied, read = 2 * num_kv_heads * head_size * bytes_per_number, 0, 0
    for length in context_lens:
        copied += math.ceil(length / block_size) * token
        read += length * token
    return copied + copied + read, read


def bytes_of_an_average_request(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    token = num_kv_heads * head_size * bytes_per_number * 2
    num_seqs = len(context_lens) or 1
    blocks = sum(math.ceil(length / block_size) for length in context_lens) / num_seqs
    tokens = sum(context_lens) / num_seqs
    return (blocks * block_size * 2 + tokens) * token, tokens * token


def bytes_for_each_request(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
    gather, paged = 0, 0
    for length in context_lens:
        read = length * num_kv_heads * head_size * bytes_per_number * 2
        whole = math.ceil(length / block_size) * block_size * num_kv_heads * head_size * bytes_per_number * 2
        gather, paged = gather + whole + whole + read, paged + read
    return gather // len(context_lens), paged // len(context_lens)


RIGHT_ANSWERS = {
    "4.2": [attend],
    "4.3": [combine_by_softmax],
    "4.4": [decode_step_by_step],
    "4.5": [segments_as_a_rectangle, segments],
}

WRONG_ANSWERS = {
    "4.1": {
        "list-of-queries": [dispatch_as_a_list],
        "inputs-changed": [dispatch_counting_down],
        "in-a-rectangle": [dispatch_side_by_side],
        "ends-for-counts": [dispatch_by_ends],
        "longest-until-full": [dispatch_dividing_by_the_longest],
        "heads-flattened": [dispatch_to_flat_rows, dispatch_to_rows_of_a_guessed_size],
    },
    "4.2": {
        "first-slots-hidden": [attend_to_the_last_slots],
        "averaged-over-slots": [attend_and_average, attend_and_average_over_the_valid],
        "one-count-for-all": [attend_to_what_all_blocks_have, attend_to_at_least_a_slot_of_each],
        "one-max-for-all-heads": [attend_under_one_maximum_for_a_block],
        "output-alone": [attend_and_return_o],
        "heads-scrambled": [attend_and_reshape],
        "one-max-for-all": [attend_under_one_maximum],
    },
    "4.3": {
        "maximum-over-heads": [combine_over_the_last_dimension],
        "weights-taken-for-shares": [combine_by_weights_as_shares],
        "averaged-over-parts": [combine_by_the_number_of_parts, combine_by_the_mean],
        "largest-l": [combine_with_the_largest_l],
        "largest-part-alone": [combine_choosing_a_part],
        "finite-on-all": [combine_with_finite_twice],
        "divided-by-plain-l": [combine_by_plain_sums],
        "l-of-a-softmax-of-m": [combine_softmax_times_l],
        "combine-missing-exp": [combine_by_differences_alone],
        "output-alone": [combine_and_return_o],
        "smallest-maximum": [combine_from_the_smallest],
        "one-part-left": [combine_keeping_the_dimension],
        "m-as-logarithm": [combine_to_a_logarithm],
        "plain-average": [combine_all_alike],
    },
    "4.4": {
        "parts-of-others": [decode_from_the_first_part],
        "order-of-the-ids": [decode_blocks_of_sorted_ids, decode_and_write_sorted],
        "one-cache-for-both": [decode_with_keys_for_both],
        "first-tokens-passed-over": [decode_without_first_tokens],
        "input-added": [decode_plus_x],
    },
    "4.5": {
        "rows-for-owners": [segments_numbered_by_last_rows],
        "one-max-for-all": [segments_by_running_sums],
        "finite-on-all": [segments_with_finite_twice],
        "divided-by-plain-l": [segments_by_plain_sums],
        "outputs-without-weights": [segments_unweighed],
        "maxima-added": [segments_of_added_maxima],
    },
    "4.6": {
        "blocks-for-slots": [bytes_with_blocks_as_tokens],
        "divided-by-requests": [bytes_of_an_average_request, bytes_for_each_request],
    },
}
