"""Lesson 03, as a second learner wrote it."""

import math

import torch

from paged_attention.attention import plain_attention, share_heads
from paged_attention.slots import slot_mapping, write_kv
from paged_attention.softmax_state import NO_KEY, SoftmaxState, finite

# 3.1


def plain(q, k, v, length, root=None, hidden=None):
    """All scores at once, for the tokens alone; `root`: what scores are divided by, `hidden`: a mask."""
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].transpose(0, 1) for x in (q, k, v))
    scores = q_rows @ k_rows.transpose(1, 2) / (root or q.shape[-1] ** 0.5)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1) if hidden is None else hidden
    o = torch.zeros_like(q)
    o.flatten(0, 1)[:length] = (scores.masked_fill(hidden, NO_KEY).softmax(-1) @ v_rows).transpose(0, 1)
    return o


def plain_root_of_heads(q, k, v, length):
    return plain(q, k, v, length, root=math.sqrt(q.shape[2]))


def plain_root_of_block_size(q, k, v, length):
    return plain(q, k, v, length, root=q.shape[1] ** 0.5)


def plain_root_of_length(q, k, v, length):
    return plain(q, k, v, length, root=math.sqrt(length or 1))


def plain_weights_divided(q, k, v, length):
    return plain(q, k, v, length, root=1.0) / q.shape[-1] ** 0.5


def plain_by_block_numbers(q, k, v, length):
    block = torch.arange(length) // q.shape[1]
    return plain(q, k, v, length, hidden=block[None, :] > block[:, None])


def plain_keys_times_queries(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    o = torch.zeros_like(q)
    scores = torch.einsum("ihd,jhd->hij", k.flatten(0, 1)[:length], q.flatten(0, 1)[:length]) / math.sqrt(q.shape[3])
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), NO_KEY)
    o.flatten(0, 1)[:length] = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v.flatten(0, 1)[:length])
    return o


def plain_flat_heads(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].flatten(1) for x in (q, k, v))
    scores = (q_rows @ k_rows.T / math.sqrt(q.shape[-1])).masked_fill(torch.ones(length, length).triu(1).bool(), NO_KEY)
    o = torch.zeros_like(q)
    o.flatten(0, 1)[:length] = (scores.softmax(-1) @ v_rows).unflatten(1, q.shape[2:])
    return o


def plain_tokens_in_the_shape_of_q(q, k, v, length):
    rows = plain(q, k, v, length).flatten(0, 1)[:length]
    return rows.contiguous().view(q.shape)


def plain_all_queries(q, k, v, length, rows_too=False):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    q_rows, k_rows, v_rows = (x.flatten(0, 1).transpose(0, 1).clone() for x in (q, k, v))
    v_rows[:, length:] = 0
    scores = q_rows @ k_rows.transpose(1, 2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), NO_KEY)
    scores[:, :, length:] = NO_KEY
    if rows_too:
        scores[:, length:] = NO_KEY
    return (scores.softmax(-1) @ v_rows).transpose(0, 1).reshape(q.shape)


def plain_all_queries_hidden_rows(q, k, v, length):
    return plain_all_queries(q, k, v, length, rows_too=True)


def plain_nan_to_num(q, k, v, length):
    o = torch.nan_to_num(plain(q, k, v, q.shape[0] * q.shape[1]))
    o.flatten(0, 1)[length:] = 0
    return o


def plain_loop_without_itself(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    o, q_rows, k_rows, v_rows = torch.zeros_like(q), *(x.flatten(0, 1) for x in (q, k, v))
    for i in range(length):
        weights = ((q_rows[i] * k_rows[:i]).sum(-1) / q.shape[-1] ** 0.5).softmax(0)
        o.flatten(0, 1)[i] = (weights[..., None] * v_rows[:i]).sum(0)
    return o


def plain_scaled_before_and_inside(q, k, v, length):
    return plain(q / math.sqrt(q.shape[-1]), k, v, length)


# 3.2


class State:
    """Right, in a form of which each class below changes a line."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, NO_KEY, dtype=dtype)
        self.l = torch.zeros(shape, dtype=dtype)
        self.acc = torch.zeros(*shape, head_size, dtype=dtype)

    def update(self, scores, values):
        new = torch.maximum(self.m, scores.max(-1).values)
        factor = self.factor(new)
        p = torch.exp(scores - finite(new).unsqueeze(-1))
        self.l = self.l * factor + self.row_sums(p)
        self.acc = self.rescaled(factor) + self.weighted(p, values)
        self.m = new

    def factor(self, new):
        return torch.exp(self.m - finite(new))

    def row_sums(self, p):
        return p.sum(-1)

    def rescaled(self, factor):
        return factor.unsqueeze(-1) * self.acc

    def weighted(self, p, values):
        return (p.unsqueeze(-2) @ values).squeeze(-2)

    def finish(self):
        l = self.l.unsqueeze(-1)
        return torch.where(l > 0, self.acc / l, torch.zeros_like(self.acc)), self.m, self.l


class FactorTurnedRound(State):
    def factor(self, new):
        return torch.exp(finite(new) - finite(self.m))


class FactorTurnedRoundAtFirstInfinite(State):
    def factor(self, new):
        return torch.exp(finite(new) - self.m)


class WeightsTimesValues(State):
    def weighted(self, p, values):
        return p @ values


class WeightsTimesOneRowsValues(State):
    def weighted(self, p, values):
        return p @ values.squeeze(-3)


class FactorAsItIs(State):
    def rescaled(self, factor):
        return factor * self.acc


class MaximumAsItIs(State):
    def update(self, scores, values):
        new = torch.maximum(self.m, scores.amax(-1))
        torch.exp(scores - finite(new))
        super().update(scores, values)


class DividesByTheSumAsItIs(State):
    def finish(self):
        return self.acc / self.l.clamp(min=1e-30), self.m, self.l


class SumsEverything(State):
    def row_sums(self, p):
        return p.sum()


class ReturnsWhenHidden(State):
    def update(self, scores, values):
        if torch.isinf(scores.amax(-1)).any():
            return
        super().update(scores, values)


class KeepsDimensions(State):
    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=dtype)
        self.m, self.l = self.m[..., None], self.l[..., None]

    def update(self, scores, values):
        new = torch.maximum(self.m, scores.amax(-1, keepdim=True))
        factor, p = torch.exp(self.m - finite(new)), torch.exp(scores - finite(new))
        self.l = factor * self.l + p.sum(-1, keepdim=True)
        self.acc = factor * self.acc + (p.unsqueeze(-2) @ values).squeeze(-2)
        self.m = new

    def finish(self):
        return torch.where(self.l > 0, self.acc / self.l, torch.zeros(())), self.m, self.l


class SumFirst(State):
    def finish(self):
        o, m, l = super().finish()
        return o, l, m


class LogSumExp(State):
    def finish(self):
        o, m, l = super().finish()
        return o, m, torch.log(l) + m


class FloatsAfterEachStep(State):
    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size)

    def update(self, scores, values):
        new = torch.maximum(self.m, scores.amax(-1)).float()
        factor, p = torch.exp(self.m - finite(new)), torch.exp(scores - finite(new).unsqueeze(-1)).float()
        self.l = factor * self.l + p.sum(-1)
        self.acc = factor.unsqueeze(-1) * self.acc + (p.unsqueeze(-1) * values.float()).sum(-2)
        self.m = new


# 3.3


def merged(self, other, mine, theirs, m):
    self.l = mine * self.l + theirs * other.l
    self.acc = mine.unsqueeze(-1) * self.acc + theirs.unsqueeze(-1) * other.acc
    self.m = m


def merge_right(self, other):
    m = torch.maximum(self.m, other.m)
    merged(self, other, torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m)), m)


def merge_growing(self, other):
    m = torch.maximum(self.m, other.m)
    merged(self, other, torch.exp(finite(m) - finite(self.m)), torch.exp(finite(m) - finite(other.m)), m)


def merge_finite_everywhere(self, other):
    m = torch.maximum(self.m, other.m)
    merged(self, other, torch.exp(finite(self.m) - finite(m)), torch.exp(finite(other.m) - finite(m)), m)


def merge_to_my_maximum(self, other):
    merged(self, other, torch.ones_like(self.m), torch.exp(other.m - finite(self.m)), self.m)


def merge_with_the_largest_of_all(self, other):
    m = torch.maximum(self.m.max(), other.m.max()).expand_as(self.m)
    merged(self, other, torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m)), m)


def merge_unless_something_is_empty(self, other):
    if torch.isinf(other.m).any():
        return
    merge_right(self, other)


def merge_sum_as_a_value(self, other):
    self.update(other.m.unsqueeze(-1), other.acc.unsqueeze(-2))


def merge_output_as_a_value(self, other):
    o, m, _ = other.finish()
    self.update(m.unsqueeze(-1), o.unsqueeze(-2))


def merge_factors_as_they_are(self, other):
    m = torch.maximum(self.m, other.m)
    mine, theirs = torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m))
    self.l = mine * self.l + theirs * other.l
    self.acc = mine * self.acc + theirs * other.acc
    self.m = m


def merge_taking_over(self, other):
    if torch.isinf(self.m).all():
        self.m, self.l, self.acc = other.m, other.l, other.acc
        return
    m = torch.maximum(self.m, other.m)
    mine, theirs = torch.exp(self.m - finite(m)), torch.exp(other.m - finite(m))
    self.l.mul_(mine).add_(theirs * other.l)
    self.acc.mul_(mine[..., None]).add_(theirs[..., None] * other.acc)
    self.m.copy_(m)


def merge_taking_copies(self, other):
    """Right: a state without a key becomes a copy of the other, and all others are merged in place."""
    if torch.isinf(self.m).all():
        self.m, self.l, self.acc = other.m.clone(), other.l.clone(), other.acc.clone()
        return
    merge_taking_over(self, other)


# 3.4


def tiled(q, k, v, length, root=None, hide=None, real=None, key_blocks=None, values=None):
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    o, slots = torch.zeros_like(q), torch.arange(block_size)
    real = real or (lambda position: position < length)
    hide = hide or (lambda query, key: key[None, :] > query[:, None])
    for i in range(num_blocks):
        query = i * block_size + slots
        state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
        for j in key_blocks(i) if key_blocks else range(i + 1):
            key = j * block_size + slots
            scores = torch.einsum("qhd,khd->hqk", q[i], k[j]) / (root or math.sqrt(head_size))
            value = v[j].masked_fill(~real(key)[:, None, None], 0).transpose(0, 1)
            scores = scores.masked_fill(hide(query, key) | ~real(key), NO_KEY)
            state.update(scores, values(value) if values else value[:, None])
        o[i] = state.finish()[0].transpose(0, 1).masked_fill(~real(query)[:, None, None], 0)
    return o


def tiled_multiplied(q, k, v, length):
    return tiled(q, k, v, length, root=q.shape[-1] ** -0.5)


def tiled_root_of_heads(q, k, v, length):
    return tiled(q, k, v, length, root=q.shape[2] ** 0.5)


def tiled_mask_turned(q, k, v, length):
    return tiled(q, k, v, length, hide=lambda query, key: key[:, None] > query[None, :])


def tiled_key_slots(q, k, v, length):
    """Keys are known by their slot in the block, in both masks."""
    size = q.shape[1]
    v = v.masked_fill((torch.arange(size) >= length)[:, None, None], 0)
    return tiled_with_values_as_they_are(
        q, k, v, length, lambda query, key: (key % size > query[:, None]) | (key % size >= length))


def tiled_with_values_as_they_are(q, k, v, length, hide):
    o = tiled(q, k, v, q.shape[0] * q.shape[1], hide=hide)
    o.flatten(0, 1)[length:] = 0
    return o


def tiled_up_to_the_length(q, k, v, length):
    return tiled(q, k, v, length, real=lambda position: position <= length)


def tiled_nan_to_num(q, k, v, length):
    return torch.nan_to_num(tiled_with_values_as_they_are(
        q, k, v, length, lambda query, key: (key > query[:, None]) | (key >= length)))


def tiled_from_mine_on(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i: range(i, len(q)))


def tiled_full_key_blocks(q, k, v, length):
    return tiled(q, k, v, length, key_blocks=lambda i: [j for j in range(i + 1) if (j + 1) * q.shape[1] <= length])


def tiled_values_as_keys_come(q, k, v, length):
    return tiled(q, k, v, length, values=lambda value: value)


# 3.5


def prefill(layer, x, request_num_blocks, seq_ids, manager, attend, row=None, first=0, known_as=None):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    o, start = torch.zeros_like(q), 0
    for i, (seq_id, num_blocks) in enumerate(zip(seq_ids, request_num_blocks)):
        seq_id, mine = known_as(i) if known_as else seq_id, slice(start, start + num_blocks)
        length, start = manager.get(seq_id).length, start + num_blocks
        o[mine] = attend(q[mine], k[mine], v[mine], length)
        table = manager.get_block_table_for_seq(row or seq_id)
        slots = slot_mapping(table, torch.arange(first, first + length), manager.block_size)
        write_kv(k_cache, v_cache, slots, k[mine].flatten(0, 1)[:length], v[mine].flatten(0, 1)[:length])
    return layer.output(o)


def prefill_one_based(layer, x, request_num_blocks, seq_ids, manager, attend=plain_attention):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, first=1)


def prefill_row_outside_the_loop(layer, x, request_num_blocks, seq_ids, manager, attend=plain_attention):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, row=seq_ids[0])


def prefill_by_place(layer, x, request_num_blocks, seq_ids, manager, attend=plain_attention):
    return prefill(layer, x, request_num_blocks, seq_ids, manager, attend, known_as=lambda i: i)


def prefill_and_append(layer, x, request_num_blocks, seq_ids, manager, attend=plain_attention):
    y = prefill(layer, x, request_num_blocks, seq_ids, manager, attend)
    manager.append_tokens([(seq_id, 1) for seq_id in seq_ids])
    return y


RIGHT_ANSWERS = {"3.2": [State], "3.3": [merge_taking_copies], "3.4": [tiled]}

WRONG_ANSWERS = {
    "3.1": {
        "scaled-by-another-size": [plain_root_of_heads, plain_root_of_block_size, plain_root_of_length],
        "output-scaled": [plain_weights_divided],
        "scale-without-root": [plain_scaled_before_and_inside],
        "mask-of-blocks": [plain_by_block_numbers],
        "mask-off-by-one": [plain_loop_without_itself],
        "scores-transposed": [plain_keys_times_queries],
        "heads-joined": [plain_flat_heads],
        "tail-missing": [plain_tokens_in_the_shape_of_q],
        "tail-output-not-zero": [plain_all_queries],
        "tail-rows-all-hidden": [plain_all_queries_hidden_rows],
        "nan-hidden": [plain_nan_to_num],
    },
    "3.2": {
        "factor-grows": [FactorTurnedRound],
        "rescale-upside-down": [FactorTurnedRoundAtFirstInfinite],
        "weights-as-a-matrix": [WeightsTimesValues, WeightsTimesOneRowsValues],
        "row-number-without-dimension": [FactorAsItIs, MaximumAsItIs, DividesByTheSumAsItIs],
        "sum-over-all-rows": [SumsEverything],
        "one-hidden-row-skips-all": [ReturnsWhenHidden],
        "extra-dimension": [KeepsDimensions],
        "l-and-m-swapped": [SumFirst],
        "l-as-logarithm": [LogSumExp],
        "float32-inside": [FloatsAfterEachStep],
    },
    "3.3": {
        "rescale-upside-down": [merge_growing],
        "finite-on-all": [merge_finite_everywhere],
        "maximum-stays-mine": [merge_to_my_maximum],
        "one-maximum-for-all-rows": [merge_with_the_largest_of_all],
        "one-empty-row-skips-all": [merge_unless_something_is_empty],
        "l-counts-one-key": [merge_sum_as_a_value],
        "combine-missing-l": [merge_output_as_a_value],
        "row-number-without-dimension": [merge_factors_as_they_are],
        "tensors-shared": [merge_taking_over],
    },
    "3.4": {
        "scale-upside-down": [tiled_multiplied],
        "scaled-by-another-size": [tiled_root_of_heads],
        "diagonal-mask-transposed": [tiled_mask_turned],
        "key-offset-for-position": [tiled_key_slots],
        "tail-off-by-one": [tiled_up_to_the_length],
        "nan-hidden": [tiled_nan_to_num],
        "flash-drops-accumulator": [tiled_from_mine_on],
        "last-block-skipped": [tiled_full_key_blocks],
        "values-without-a-dimension": [tiled_values_as_keys_come],
    },
    "3.5": {
        "positions-from-one": [prefill_one_based],
        "one-row-for-all": [prefill_row_outside_the_loop],
        "request-number-as-seq-id": [prefill_by_place],
        "sequences-changed": [prefill_and_append],
    },
}
