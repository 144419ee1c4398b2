"""Lesson 04, as a second learner wrote it."""

import math

import torch

from paged_attention.attention import share_heads
from paged_attention.decode import block_attention, combine_result, dispatch, own_token, past_blocks, write_new_tokens
from paged_attention.softmax_state import NO_KEY, finite

# 4.1


def dispatch_by_a_left_search(q, counts):
    ends = torch.cumsum(counts, 0)
    return torch.stack([q[int(torch.searchsorted(ends, torch.tensor(row)))] for row in range(int(ends[-1]))]) \
        if int(ends[-1]) else q[:0]


def dispatch_by_the_first_count(q, counts):
    return torch.repeat_interleave(q, counts[0], dim=0)


def dispatch_joining_queries(q, counts):
    return torch.cat([q[i] for i, count in enumerate(counts.tolist()) for _ in range(count)])


def dispatch_stacking(q, counts):
    return torch.stack([query for query, count in zip(q, counts.tolist()) for _ in range(count)])


# 4.2


def attend(q, k, v, num_valid, root=None, largest=None):
    """Right; `root`: what the scores are divided by, `largest`: what is subtracted and returned, from scores and m."""
    k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
    real = torch.arange(k.shape[1])[None] < num_valid[:, None]
    scores = (q[:, None] * k).sum(-1).transpose(1, 2) / (root or math.sqrt(q.shape[-1]))
    scores = scores.masked_fill(~real[:, None], NO_KEY)
    m = scores.amax(-1)
    m = largest(m) if largest else m
    p = torch.exp(scores - finite(m)[..., None])
    l = p.sum(-1)
    o = (p[..., None] * v.masked_fill(~real[..., None, None], 0).transpose(1, 2)).sum(-2)
    return torch.where(l[..., None] > 0, o / l[..., None], torch.zeros_like(o)), m, l


def attend_by_the_number_of_heads(q, k, v, num_valid):
    return attend(q, k, v, num_valid, root=q.shape[-2] ** 0.5)


def attend_by_the_block_size(q, k, v, num_valid):
    return attend(q, k, v, num_valid, root=math.sqrt(k.shape[1]))


def attend_with_the_longest(q, k, v, num_valid):
    longest = int(num_valid.max()) if len(num_valid) else 0
    return attend(q, k, v, torch.full_like(num_valid, longest))


def attend_with_the_largest_of_all(q, k, v, num_valid):
    return attend(q, k, v, num_valid, largest=lambda m: m.max().expand_as(m) if m.numel() else m)


def attend_and_say_one(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return o, m, l / l.clamp(min=1e-9)


def attend_and_count(q, k, v, num_valid):
    o, m, _ = attend(q, k, v, num_valid)
    return o, m, num_valid.float().unsqueeze(1).repeat(1, q.shape[1])


def attend_with_log_sums(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return o, m, torch.log(l) + m


def attend_with_sums_of_scores(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return o, m, l * finite(m).exp()


def attend_keeping_dimensions(q, k, v, num_valid):
    o, m, l = attend(q, k, v, num_valid)
    return o, m.unsqueeze(-1), l.unsqueeze(-1)


def attend_to_slices(q, k, v, num_valid):
    """A block without a token has no maximum."""
    parts = []
    for query, keys, values, count in zip(q, k, v, num_valid.tolist()):
        keys, values = (share_heads(x[:count], q.shape[1]) for x in (keys, values))
        scores = torch.einsum("hd,thd->ht", query, keys) / math.sqrt(q.shape[-1])
        m = scores.max(-1).values
        p = torch.exp(scores - m[:, None])
        parts.append((torch.einsum("ht,thd->hd", p, values) / p.sum(-1)[:, None], m, p.sum(-1)))
    return tuple(map(torch.stack, zip(*parts)))


def attend_block_by_block(q, k, v, num_valid):
    """Where there is no block, zip gives nothing."""
    parts = [attend(*(x[i : i + 1] for x in (q, k, v, num_valid))) for i in range(len(q))]
    return tuple(map(torch.cat, zip(*parts)))


def attend_after_cleaning_values(q, k, v, num_valid):
    for block, count in enumerate(num_valid.tolist()):
        v[block, count:] = 0
    return attend(q, k, v, num_valid)


# 4.3


def shares(weight, o):
    """The weighted mean of o, 0 where the weights add up to nothing."""
    total = weight.sum(0)
    return torch.where(total[..., None] > 0, (weight[..., None] * o).sum(0) / total[..., None], torch.zeros_like(o[0]))


def combine_by_differences(o, m, l):
    m_all = m.amax(0)
    weight = (m - finite(m_all)) * l
    return shares(weight, o), m_all, weight.sum(0)


def combine_by_softmax(o, m, l):
    weight = torch.softmax(m, 0).nan_to_num(0.0)
    return (weight[..., None] * o).sum(0), m.amax(0), (weight * l).sum(0)


def combine_walking(o, m, l):
    (o_all, *o), (m_all, *m), (l_all, *l) = o, m, l
    for o_new, m_new, l_new in zip(o, m, l):
        largest = torch.maximum(m_all, m_new)
        old, new = torch.exp(m_all - finite(largest)), torch.exp(m_new - finite(largest))
        m_all, l_all = largest, old * l_all + new * l_new
        o_all = torch.where(l_all[..., None] > 0, (old[..., None] * o_all + new[..., None] * o_new) / l_all[..., None],
                            torch.zeros(()))
    return o_all, m_all, l_all


def combine_with_inverse_factors(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(finite(m_all) - m) * l
    return ((weight[..., None] * o).sum(0) / weight.sum(0)[..., None]).nan_to_num(0.0), m_all, weight.sum(0)


def combine_dividing_late(o, m, l):
    weight, m_all = torch.exp(m) * l, m.amax(0)
    return shares(weight, o), m_all, torch.where(weight.sum(0) > 0, weight.sum(0) / m_all.exp(), torch.zeros(()))


def combine_weights_as_they_are(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(m - finite(m_all)) * l
    return (weight * o).sum(0) / weight.sum(0), m_all, weight.sum(0)


def combine_sum_as_it_is(o, m, l):
    m_all = m.amax(0)
    weight = torch.exp(m - finite(m_all)) * l
    total = weight.sum(0)
    return (weight.unsqueeze(-1) * o).sum(0) / torch.where(total == 0, torch.ones_like(total), total), m_all, total


def combine_full_parts(o, m, l):
    kept = [part for part in range(len(m)) if not (m[part] == NO_KEY).any()]
    if not kept:
        return torch.zeros_like(o[0]), torch.full_like(m[0], NO_KEY), torch.zeros_like(l[0])
    return combine_result(o[kept], m[kept], l[kept])


def combine_in_place(o, m, l):
    m_all = m.amax(0)
    m -= finite(m_all)
    m.exp_()
    weight = m * l
    return shares(weight, o), m_all, weight.sum(0)


# 4.4


def decode(layer, x, seq_ids, manager, own=None, start_of=None, skip_first=False, ids=None, values=None, join=None):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(ids or seq_ids, manager)
    parts = block_attention(dispatch(q, counts), k_cache[block_ids], v_cache[block_ids], num_valid)
    last, rows, begin = own_token(q, k, v), [], 0
    for i, count in enumerate(counts.tolist()):
        first, begin = start_of(i) if start_of else begin, begin + count
        mine = own(last, i) if own else [part[i : i + 1] for part in last]
        if skip_first and count == 0:
            rows.append(torch.zeros_like(q[0]))
            continue
        both = [torch.cat([part[first : first + count], new]) for part, new in zip(parts, mine)]
        rows.append(join(*both) if join else combine_result(*both)[0])
    write_new_tokens(k_cache, v_cache, ids or seq_ids, manager, k, k if values == "keys" else v)
    return layer.output(torch.stack(rows))


def decode_from_part_i(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, start_of=lambda i: i)


def decode_with_all_own_parts(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, own=lambda last, i: last)


def decode_with_the_first_own_part(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, own=lambda last, i: [part[:1] for part in last])


def decode_with_an_index(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, own=lambda last, i: [part[i] for part in last])


def decode_by_seq_id(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, own=lambda last, i: [part[seq_ids[i] : seq_ids[i] + 1] for part in last])


def decode_only_where_there_is_a_past(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, skip_first=True)


def decode_in_sorted_order(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, ids=sorted(seq_ids))


def decode_writing_keys_twice(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, values="keys")


def decode_adding_parts(layer, x, seq_ids, manager):
    return decode(layer, x, seq_ids, manager, join=lambda o, m, l: o.sum(0))


def decode_as_one_request(layer, x, seq_ids, manager):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    block_ids, num_valid, counts = past_blocks(seq_ids, manager)
    parts = block_attention(dispatch(q, counts), k_cache[block_ids], v_cache[block_ids], num_valid)
    o, _, _ = combine_result(*map(torch.cat, zip(parts, own_token(q, k, v))))
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(o.expand(len(x), -1, -1))


def decode_all_from_the_pool(layer, x, seq_ids, manager):
    """The new token's slot counts with the others, and is written at the end."""
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    rows = []
    for i, seq_id in enumerate(seq_ids):
        length, blocks = manager.get(seq_id).length, manager.blocks_of(seq_id)
        num_valid = torch.tensor([min(manager.block_size, length - j * manager.block_size) for j in range(len(blocks))])
        parts = block_attention(q[i].expand(len(blocks), -1, -1), k_cache[blocks], v_cache[blocks], num_valid)
        rows.append(combine_result(*parts)[0])
    write_new_tokens(k_cache, v_cache, seq_ids, manager, k, v)
    return layer.output(torch.stack(rows))


# 4.5


def segments(o, m, l, counts, owner=None, maxima=None, spread=True, weigh=None):
    num_seqs = len(counts)
    owner = torch.repeat_interleave(torch.arange(num_seqs), counts) if owner is None else owner
    if maxima is None:
        maxima = torch.full((num_seqs, m.shape[1]), NO_KEY).index_reduce(0, owner, m, "amax")
    largest = finite(maxima)[owner] if spread else finite(maxima)
    weight = weigh(m - largest, l) if weigh else torch.exp(m - largest) * l
    total = torch.zeros(num_seqs, m.shape[1]).index_add(0, owner, weight)
    acc = torch.zeros(num_seqs, *o.shape[1:]).index_add(0, owner, weight[..., None] * o)
    return torch.where(total[..., None] > 0, acc / total[..., None], torch.zeros(())), maxima, total


def segments_searched(o, m, l, counts):
    return segments(o, m, l, counts, owner=torch.searchsorted(torch.cumsum(counts, 0), torch.arange(len(o))))


def reduced(m, counts, start, index=None, **more):
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    index = owner[:, None].expand(-1, m.shape[1]) if index is None else index(owner)
    return torch.full((len(counts), m.shape[1]), start).scatter_reduce(0, index, m, "amax", **more)


def segments_from_ten(o, m, l, counts):
    return segments(o, m, l, counts, maxima=reduced(m, counts, 10.0))


def segments_without_self(o, m, l, counts):
    return segments(o, m, l, counts, maxima=reduced(m, counts, 0.0, include_self=False))


def segments_with_a_column(o, m, l, counts):
    return segments(o, m, l, counts, maxima=reduced(m, counts, NO_KEY, index=lambda owner: owner.unsqueeze(1)))


def segments_with_owners(o, m, l, counts):
    return segments(o, m, l, counts, maxima=reduced(m, counts, NO_KEY, index=lambda owner: owner))


def segments_minus_maxima(o, m, l, counts):
    return segments(o, m, l, counts, spread=False)


def segments_by_differences(o, m, l, counts):
    return segments(o, m, l, counts, weigh=lambda difference, l: difference * l)


def segments_by_sums(o, m, l, counts):
    return segments(o, m, l, counts, weigh=lambda difference, l: l)


def segments_of_sums(o, m, l, counts):
    """o is taken for the undivided sum."""
    _, maxima, total = segments(o, m, l, counts)
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    acc = torch.zeros(len(counts), *o.shape[1:]).index_add(0, owner, torch.exp(m - finite(maxima)[owner])[..., None] * o)
    return torch.where(total[..., None] > 0, acc / total[..., None], torch.zeros(())), maxima, total


def segments_under_one_maximum(o, m, l, counts):
    largest = m.amax(0) if len(m) else torch.full(m.shape[1:], NO_KEY)
    return segments(o, m, l, counts, maxima=largest.expand(len(counts), -1))


def segments_to_the_last_owner(o, m, l, counts):
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    num_seqs = int(owner.max()) + 1 if len(owner) else 0
    return segments(o, m, l, counts[:num_seqs])


def segments_by_splitting(o, m, l, counts):
    """combine_result() takes no empty piece."""
    pieces = zip(*(part.split(counts.tolist()) for part in (o, m, l)))
    return tuple(map(torch.stack, zip(*(combine_result(*piece) for piece in pieces))))


def segments_in_place(o, m, l, counts):
    maxima = reduced(m, counts, NO_KEY)
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    l *= torch.exp(m - finite(maxima)[owner])
    return segments(o, m, l, counts, maxima=maxima, weigh=lambda difference, l: l)


# 4.6


def bytes_by(gather, paged):
    def answer(context_lens, block_size, num_kv_heads, head_size, bytes_per_number):
        token = 2 * num_kv_heads * head_size * bytes_per_number
        slots = [math.ceil(length / block_size) * block_size for length in context_lens]
        return tuple(sum(map(numbers, slots, context_lens)) * token for numbers in (gather, paged))
    return answer


def bytes_of_the_longest(context_lens, *sizes):
    return bytes_by(lambda slots, tokens: 2 * slots + tokens, lambda slots, tokens: tokens)(
        [max([0, *context_lens])] * len(context_lens), *sizes)


def bytes_with_the_new_token(context_lens, *sizes):
    return bytes_by(lambda slots, tokens: 2 * slots + tokens, lambda slots, tokens: tokens)(
        [length + 1 for length in context_lens], *sizes)


def bytes_of_the_first(context_lens, *sizes):
    return bytes_by(lambda slots, tokens: 2 * slots + tokens, lambda slots, tokens: tokens)([context_lens[0]], *sizes)


def bytes_padded_to_max(context_lens, *sizes):
    longest = max(context_lens)
    return bytes_by(lambda slots, tokens: 2 * slots + tokens, lambda slots, tokens: tokens)(
        [min(longest, length) for length in context_lens], *sizes)


def bytes_with_a_quotient(context_lens, *sizes):
    gather, paged = bytes_by(lambda slots, tokens: 2 * slots + tokens, lambda slots, tokens: tokens)(context_lens, *sizes)
    return gather, paged / 1


tokens_put_into_the_copy = bytes_by(lambda slots, tokens: slots + 2 * tokens, lambda slots, tokens: tokens)


RIGHT_ANSWERS = {"4.2": [attend], "4.4": [decode], "4.5": [segments]}

WRONG_ANSWERS = {
    "4.1": {
        "boundary-off-by-one": [dispatch_by_a_left_search],
        "first-count-for-all": [dispatch_by_the_first_count],
        "joined-along-the-heads": [dispatch_joining_queries],
        "joins-nothing": [dispatch_stacking],
    },
    "4.2": {
        "scaled-by-another-size": [attend_by_the_number_of_heads, attend_by_the_block_size],
        "one-count-for-all": [attend_with_the_longest],
        "one-max-for-all": [attend_with_the_largest_of_all],
        "l-of-softmax": [attend_and_say_one],
        "l-counts-tokens": [attend_and_count],
        "l-as-logarithm": [attend_with_log_sums],
        "max-not-subtracted": [attend_with_sums_of_scores],
        "extra-dimension": [attend_keeping_dimensions],
        "nothing-to-reduce": [attend_to_slices, attend_block_by_block],
        "inputs-changed": [attend_after_cleaning_values],
    },
    "4.3": {
        "combine-missing-exp": [combine_by_differences],
        "combine-missing-l": [combine_by_softmax, combine_walking],
        "weights-upside-down": [combine_with_inverse_factors],
        "max-not-subtracted": [combine_dividing_late],
        "weight-without-dimension": [combine_weights_as_they_are, combine_sum_as_it_is],
        "one-empty-row-drops-the-part": [combine_full_parts],
        "inputs-changed": [combine_in_place],
    },
    "4.4": {
        "request-index-as-offset": [decode_from_part_i],
        "own-part-of-others": [decode_with_all_own_parts, decode_with_the_first_own_part],
        "own-part-without-dimension": [decode_with_an_index],
        "own-token-missing": [decode_by_seq_id],
        "first-tokens-left-at-zero": [decode_only_where_there_is_a_past],
        "order-of-the-ids": [decode_in_sorted_order],
        "keys-for-values": [decode_writing_keys_twice],
        "outputs-added": [decode_adding_parts],
        "parts-of-others": [decode_as_one_request],
        "unwritten-slot-read": [decode_all_from_the_pool],
    },
    "4.5": {
        "boundary-off-by-one": [segments_searched],
        "max-starts-at-ten": [segments_from_ten],
        "start-left-in-m": [segments_without_self],
        "owner-not-expanded": [segments_with_a_column, segments_with_owners],
        "maxima-not-spread": [segments_minus_maxima],
        "combine-missing-exp": [segments_by_differences],
        "weights-missing-m": [segments_by_sums],
        "o-taken-as-undivided": [segments_of_sums],
        "one-max-for-all": [segments_under_one_maximum],
        "last-requests-dropped": [segments_to_the_last_owner],
        "empty-request-raises": [segments_by_splitting],
        "inputs-changed": [segments_in_place],
    },
    "4.6": {
        "padded-to-longest": [bytes_of_the_longest],
        "tokens-written": [tokens_put_into_the_copy],
        "new-token-counted": [bytes_with_the_new_token],
        "first-request-only": [bytes_of_the_first],
        "no-requests": [bytes_padded_to_max],
        "floats-not-ints": [bytes_with_a_quotient],
    },
}
