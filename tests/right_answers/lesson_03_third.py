"""Lesson 03, as a third learner wrote it."""

import math

import torch

from paged_attention.attention import share_heads
from paged_attention.slots import slot_mapping, write_kv
from paged_attention.softmax_state import NO_KEY, SoftmaxState, finite
from paged_attention.validate import check_prefill

# 3.1


def rows_of(x, length):
    return x.flatten(0, 1)[:length].permute(1, 0, 2)


def weighed(q, k, length):
    scores = torch.einsum("hqd,hkd->hqk", rows_of(q, length), rows_of(share_heads(k, q.shape[2]), length))
    seen = torch.ones(length, length).tril().bool()
    return scores.div(math.sqrt(q.shape[-1])).masked_fill(~seen, NO_KEY).softmax(-1)


def plain_flat(q, k, v, length):
    out = torch.zeros(q.shape[0] * q.shape[1], *q.shape[2:])
    out[:length] = (weighed(q, k, length) @ rows_of(share_heads(v, q.shape[2]), length)).permute(1, 0, 2)
    return out


def plain_padded_by_heads(q, k, v, length):
    o = weighed(q, k, length) @ rows_of(share_heads(v, q.shape[2]), length)
    return torch.nn.functional.pad(o, (0, 0, 0, q.shape[0] * q.shape[1] - length)).reshape(q.shape)


def plain_in_a_copy_of_q(q, k, v, length):
    o = torch.clone(q)
    o.flatten(0, 1)[:length] = plain_flat(q, k, v, length)[:length]
    return o


def plain_by_the_remainder(q, k, v, length):
    full = (len(q) - 1) * q.shape[1] if len(q) else 0
    return plain_flat(q, k, v, full + length % q.shape[1]).view(q.shape)


def plain_with_zeroed_values(q, k, v, length):
    v = v.clone()
    v.flatten(0, 1)[length:] = 0
    everything = q.shape[0] * q.shape[1]
    o = weighed(q, k, everything) @ rows_of(share_heads(v, q.shape[2]), everything)
    return torch.nan_to_num(o).transpose(0, 1).reshape(q.shape)


def plain_with_heads_by_the_remainder(q, k, v, length):
    heads = torch.arange(q.shape[2]) % k.shape[2]
    return plain_flat(q, k[:, :, heads], v[:, :, heads], length).view(q.shape)


# 3.2


class Kept:
    """Right: all parts are kept, and everything is computed anew."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.scores, self.values = [torch.zeros(*shape, 0, dtype=dtype)], [torch.zeros(*shape, 0, head_size, dtype=dtype)]
        self.count()

    def update(self, scores, values):
        self.scores.append(scores.clone())
        self.values.append(values.expand(*scores.shape, values.shape[-1]).clone())
        self.count()

    def count(self):
        scores = torch.cat(self.scores, -1)
        lowest = torch.full((*scores.shape[:-1], 1), NO_KEY, dtype=scores.dtype)
        self.m = torch.cat([scores, lowest], -1).amax(-1)
        p = torch.exp(scores - finite(self.m)[..., None])
        self.l, self.acc = p.sum(-1), (p[..., None] * torch.cat(self.values, -2)).sum(-2)

    def finish(self):
        return self.acc / torch.where(self.l > 0, self.l, 1.0)[..., None], self.m, self.l


class State:
    """Right, for mistakes to change."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m, self.l = torch.full(shape, NO_KEY, dtype=dtype), torch.full(shape, 0.0, dtype=dtype)
        self.acc = torch.full((*shape, head_size), 0.0, dtype=dtype)

    def update(self, scores, values):
        before, self.m = self.m, torch.maximum(self.m, scores.max(-1).values)
        shrink = torch.exp(before - finite(self.m))
        self.add(shrink, self.powers(scores), values)

    def powers(self, scores):
        return torch.exp(scores - finite(self.m).unsqueeze(-1))

    def add(self, shrink, p, values):
        self.l = self.l * shrink + p.sum(-1)
        self.acc = self.acc * shrink.unsqueeze(-1) + torch.einsum("...k,...kd->...d", p, values)

    def finish(self):
        return torch.where(self.l.unsqueeze(-1) > 0, self.acc / self.l.unsqueeze(-1), 0.0), self.m, self.l


class ShrinksBoth(State):
    def add(self, shrink, p, values):
        self.l = (self.l + p.sum(-1)) * shrink
        self.acc = (self.acc + torch.einsum("...k,...kd->...d", p, values)) * shrink.unsqueeze(-1)


class SoftmaxPowers(State):
    def powers(self, scores):
        return scores.softmax(-1)


class OneAtFirst(State):
    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=dtype)
        self.l += 1


class SqueezedProduct(State):
    def add(self, shrink, p, values):
        self.l = self.l * shrink + p.sum(-1)
        self.acc = self.acc * shrink.unsqueeze(-1) + p @ values.squeeze()


class ShapeArgument(State):
    def __init__(self, shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, NO_KEY, dtype=dtype)
        self.l = torch.zeros(shape, dtype=dtype)
        self.acc = torch.zeros(*shape, head_size, dtype=dtype)


class CountArgument(State):
    def __init__(self, rows, *, head_size, dtype=torch.float32):
        super().__init__(*[rows], head_size=head_size, dtype=dtype)


# 3.3


def merge_by_logarithms(self, other):
    """Right: l by way of the logarithms of both sums."""
    total = torch.logaddexp(self.m + self.l.log(), other.m + other.l.log())
    m = torch.maximum(self.m, other.m)
    self.acc = sum(torch.exp(state.m - finite(m))[..., None] * state.acc for state in (self, other))
    self.l, self.m = torch.exp(total - finite(m)), m


def _shares(self, other):
    m = torch.maximum(self.m, other.m)
    return m, torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m))


def merge_outputs(self, other):
    m, a, b = _shares(self, other)
    o, _, l = other.finish()
    self.m, self.l, self.acc = m, a * self.l + b * l, a[..., None] * self.acc + b[..., None] * o


def merge_as_if_finished(self, other):
    m, a, b = _shares(self, other)
    a, b = a * self.l, b * other.l
    self.m, self.l, self.acc = m, a + b, a[..., None] * self.acc + b[..., None] * other.acc


def merge_and_divide(self, other):
    m, a, b = _shares(self, other)
    self.m, self.l = m, a * self.l + b * other.l
    self.acc = (a[..., None] * self.acc + b[..., None] * other.acc) / self.l[..., None]


def merge_by_one_if(self, other):
    low, high = (self, other) if bool((other.m > self.m).all()) else (other, self)
    shrink = torch.exp(low.m - finite(high.m))
    self.l, self.acc = shrink * low.l + high.l, shrink[..., None] * low.acc + high.acc
    self.m = high.m.clone()


def merge_without_their_values(self, other):
    m, a, b = _shares(self, other)
    self.m, self.l, self.acc = m, a * self.l + b * other.l, self.acc * a[..., None]


def merge_with_a_soft_maximum(self, other):
    m = torch.maximum(self.m, other.m)
    a, b = (torch.where(state.m == NO_KEY, 0.0, torch.exp(state.m - m)) for state in (self, other))
    self.l, self.acc = self.l * a + other.l * b, self.acc * a.unsqueeze(-1) + other.acc * b.unsqueeze(-1)
    self.m = torch.stack([self.m, other.m]).logsumexp(0)


# 3.4


def tiled(q, k, v, length, past_the_end=True, heads_first=lambda x: x.transpose(0, 1)):
    num_blocks, size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads).clone()
    v.flatten(0, 1)[length:] = 0
    out = torch.zeros_like(q)
    for i in range(num_blocks):
        state = SoftmaxState(num_q_heads, size, head_size=head_size)
        for j in range(i + 1):
            key, query = torch.arange(j * size, j * size + size), torch.arange(i * size, i * size + size)[:, None]
            scores = q[i].transpose(0, 1) @ k[j].permute(1, 2, 0) * head_size**-0.5
            hidden = (key > query) | (key >= length) if past_the_end else key > query
            state.update(torch.where(hidden, torch.tensor(NO_KEY), scores), heads_first(v[j])[:, None])
        o, _, l = state.finish()
        out[i] = torch.where(l[..., None] > 0, o, 0.0).transpose(0, 1)
    if past_the_end:
        out.flatten(0, 1)[length:] = 0
    return out


def tiled_with_zeroed_values(q, k, v, length):
    return tiled(q, k, v, length, past_the_end=False)


def tiled_values_reshaped(q, k, v, length):
    return tiled(q, k, v, length, heads_first=lambda x: x.reshape(x.shape[1], x.shape[0], x.shape[2]))


def tiled_by_the_remainder(q, k, v, length):
    return tiled(q, k, v, (len(q) - 1) * q.shape[1] + length % q.shape[1]) if len(q) else q.clone()


def tiled_in_a_copy_of_q(q, k, v, length):
    o = q.clone()
    o.flatten(0, 1)[:length] = tiled(q, k, v, length).flatten(0, 1)[:length]
    return o


# 3.5


def prefill(layer, x, request_num_blocks, seq_ids, manager, attend, ends=False, adds=True, slots=slot_mapping):
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    q, k, v = layer.project(x)
    o, at = q.new_zeros(q.shape), 0
    for seq_id, count in zip(seq_ids, request_num_blocks):
        length, mine = manager.get(seq_id).length, slice(at, at + count)
        if ends and length == 0:
            break
        o[mine] = attend(q[mine], k[mine], v[mine], length)
        places = slots(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size)
        write_kv(*manager.kv_cache[layer.index], places, k[mine].flatten(0, 1)[:length], v[mine].flatten(0, 1)[:length])
        at = at + count if adds else count
    return layer.output(o)


def prefill_until_nothing(layer, x, request_num_blocks, seq_ids, manager, attend):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, ends=True)


def prefill_from_the_last_count(layer, x, request_num_blocks, seq_ids, manager, attend):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, adds=False)


def prefill_at_positions(layer, x, request_num_blocks, seq_ids, manager, attend):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, slots=lambda row, positions, size: positions)


def prefill_plus_x(layer, x, *batch):
    y = prefill(layer, x, *batch)
    return y + x


def prefill_in_one_row(*batch):
    y = prefill(*batch)
    return y.reshape(-1, y.shape[-1])


def prefill_unchecked(layer, x, request_num_blocks, seq_ids, manager, attend):
    outputs, blocks = [], iter(x)
    for seq_id, count in zip(seq_ids, request_num_blocks):
        length = manager.get(seq_id).length
        q, k, v = layer.project(torch.stack([next(blocks) for _ in range(count)]) if count else x[:0])
        outputs.append(layer.output(attend(q, k, v, length)))
        places = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size)
        write_kv(*manager.kv_cache[layer.index], places, k.flatten(0, 1)[:length], v.flatten(0, 1)[:length])
    return torch.cat(outputs)


def prefill_unchecked_at_once(layer, x, request_num_blocks, seq_ids, manager, attend):
    """Without the check, and all is written in the end: write_kv refuses a sequence that is named twice."""
    q, k, v = layer.project(x)
    o, places, tokens, end = torch.zeros_like(q), [], [], 0
    for seq_id, count in zip(seq_ids, request_num_blocks):
        length, begin, end = manager.get(seq_id).length, end, end + count
        o[begin:end] = attend(q[begin:end], k[begin:end], v[begin:end], length)
        positions = torch.arange(length)
        places.append(slot_mapping(manager.get_block_table_for_seq(seq_id), positions, manager.block_size))
        tokens.append(positions + begin * manager.block_size)
    tokens = torch.cat(tokens)
    write_kv(*manager.kv_cache[layer.index], torch.cat(places), k.flatten(0, 1)[tokens], v.flatten(0, 1)[tokens])
    return layer.output(o)


def prefill_with_shared_heads(layer, x, request_num_blocks, seq_ids, manager, attend):
    q, k, v = layer.project(x)
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    outputs = []
    batch = zip(seq_ids, q.split(request_num_blocks), k.split(request_num_blocks), v.split(request_num_blocks))
    for seq_id, q_mine, k_mine, v_mine in batch:
        length = manager.get(seq_id).length
        outputs.append(attend(q_mine, k_mine, v_mine, length))
        places = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size)
        write_kv(*manager.kv_cache[layer.index], places, k_mine.flatten(0, 1)[:length], v_mine.flatten(0, 1)[:length])
    return layer.output(torch.cat(outputs))


def prefill_writing(keys=lambda q, k: k, stops=False):
    """Right, with other keys written, or with an end of the writing after the first request."""
    def forward(layer, x, request_num_blocks, seq_ids, manager, attend):
        check_prefill(layer, x, request_num_blocks, seq_ids, manager)
        parts = [projected.split(request_num_blocks) for projected in layer.project(x)]
        outputs = []
        for number, (seq_id, q, k, v) in enumerate(zip(seq_ids, *parts)):
            length = manager.get(seq_id).length
            outputs.append(attend(q, k, v, length))
            if stops and number:
                continue
            places = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size)
            write_kv(*manager.kv_cache[layer.index], places, keys(q, k).flatten(0, 1)[:length], v.flatten(0, 1)[:length])
        return layer.output(torch.cat(outputs))
    return forward


RIGHT_ANSWERS = {"3.2": [Kept, State], "3.3": [merge_by_logarithms], "3.4": [tiled], "3.5": [prefill]}

WRONG_ANSWERS = {
    "3.1": {
        "blocks-not-restored": [plain_flat],
        "output-scrambled": [plain_padded_by_heads],
        "tail-of-q-left": [plain_in_a_copy_of_q],
        "full-last-block-emptied": [plain_by_the_remainder],
        "tail-output-not-zero": [plain_with_zeroed_values],
        "wrong-head-mapping": [plain_with_heads_by_the_remainder],
    },
    "3.2": {
        "everything-rescaled": [ShrinksBoth],
        "softmax-of-each-part": [SoftmaxPowers],
        "l-starts-at-one": [OneAtFirst],
        "weights-as-a-matrix": [SqueezedProduct],
        "one-argument-for-the-rows": [ShapeArgument, CountArgument],
    },
    "3.3": {
        "outputs-for-acc": [merge_outputs],
        "acc-times-l": [merge_as_if_finished],
        "divided-in-merge": [merge_and_divide],
        "one-comparison-for-all-rows": [merge_by_one_if],
        "accumulator-forgotten": [merge_without_their_values],
        "logarithm-for-the-maximum": [merge_with_a_soft_maximum],
    },
    "3.4": {
        "tail-not-masked": [tiled_with_zeroed_values],
        "heads-scrambled": [tiled_values_reshaped],
        "full-last-block-emptied": [tiled_by_the_remainder],
        "tail-of-q-left": [tiled_in_a_copy_of_q],
    },
    "3.5": {
        "stops-at-no-tokens": [prefill_until_nothing],
        "offset-not-added-up": [prefill_from_the_last_count],
        "positions-as-slots": [prefill_at_positions],
        "input-added": [prefill_plus_x],
        "blocks-flattened": [prefill_in_one_row],
        "shared-heads-written": [prefill_with_shared_heads],
        "queries-for-keys": [prefill_writing(lambda q, k: q[..., : k.shape[-2], :]), prefill_writing(lambda q, k: q)],
        "only-first-request-written": [prefill_writing(stops=True)],
        "check-deleted": [prefill_unchecked, prefill_unchecked_at_once],
    },
}
