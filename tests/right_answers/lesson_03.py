"""Lesson 03."""

import math
import random

import torch
import torch.nn.functional as F

from paged_attention.attention import share_heads
from paged_attention.slots import slot_mapping, write_kv
from paged_attention.softmax_state import SoftmaxState
from paged_attention.validate import check_prefill

# 3.1, also used for 3.4 where they take block by block.


def plain_by_loops(q, k, v, length):
    o = torch.zeros(q.shape)
    block_size, group, root = q.shape[1], q.shape[2] // k.shape[2], math.sqrt(q.shape[3])
    for token in range(length):
        for head in range(q.shape[2]):
            query = q[token // block_size, token % block_size, head].double()
            keys = [k[i // block_size, i % block_size, head // group].double() for i in range(token + 1)]
            weights = torch.tensor([float(query.dot(key)) / root for key in keys], dtype=torch.float64).softmax(0)
            values = [v[i // block_size, i % block_size, head // group] for i in range(token + 1)]
            o[token // block_size, token % block_size, head] = sum(w * value.double() for w, value in zip(weights, values))
    return o


def plain_by_einsum(q, k, v, length):
    num_kv_heads = k.shape[2]
    queries = q.flatten(0, 1)[:length].unflatten(1, (num_kv_heads, -1))  # (length, num_kv_heads, group, head_size)
    keys, values = k.flatten(0, 1)[:length], v.flatten(0, 1)[:length]
    scores = torch.einsum("qhgd,khd->hgqk", queries, keys) * q.shape[-1] ** -0.5
    token = torch.arange(length)
    scores = torch.where(token[:, None] >= token, scores, torch.tensor(float("-inf")))
    out = torch.einsum("hgqk,khd->qhgd", scores.softmax(-1), values).flatten(1, 2)
    return F.pad(out, (0, 0, 0, 0, 0, q.shape[0] * q.shape[1] - length)).reshape(q.shape)


def plain_by_sdpa(q, k, v, length):
    if length == 0:
        return torch.zeros_like(q)
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    rows = [x.reshape(-1, *x.shape[2:])[:length].permute(1, 0, 2).unsqueeze(0) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*rows, is_causal=True)[0].permute(1, 0, 2)
    behind = out.new_zeros(q.shape[0] * q.shape[1] - length, *q.shape[2:])
    return torch.cat([out, behind]).view_as(q)


def plain_with_zeroed_ends(q, k, v, length):
    """The whole last block is computed, with 0 instead of what is behind the last token."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    behind = (torch.arange(num_blocks * block_size) >= length).view(num_blocks, block_size, 1, 1)
    q, k, v = (torch.where(behind, torch.zeros(()), x) for x in (q, k, v))
    return plain_with_an_added_mask(q, k, v, length)


def plain_with_an_added_mask(q, k, v, length):
    """The whole last block is computed, and what is behind the last token set to 0 at the end only."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    total = num_blocks * block_size
    q_rows, k_rows, v_rows = (x.reshape(total, num_q_heads, head_size).transpose(0, 1) for x in (q / head_size**0.5, k, v))
    mask = torch.triu(torch.full((total, total), float("-inf")), diagonal=1)
    out = torch.exp(torch.log_softmax(torch.baddbmm(mask, q_rows, k_rows.mT), dim=-1)) @ v_rows
    out[:, length:] = 0
    return out.transpose(0, 1).reshape(q.shape)


def plain_in_half_a_scale_each(q, k, v, length):
    """The scale is given to q and k by half; heads in a loop."""
    o = torch.zeros_like(q)
    scale, group = q.shape[-1] ** -0.25, q.shape[2] // k.shape[2]
    hidden = torch.ones(length, length).tril() == 0
    for head in range(q.shape[2]):
        query, key = q[:, :, head].flatten(0, 1)[:length] * scale, k[:, :, head // group].flatten(0, 1)[:length] * scale
        scores = query @ key.T
        scores[hidden] = -math.inf
        result = F.softmax(scores, dim=1) @ v[:, :, head // group].flatten(0, 1)[:length]
        for token, row in enumerate(result):
            o[token // q.shape[1], token % q.shape[1], head] = row
    return o


# Wrong in other words than the bank's.


def plain_by_sdpa_over_all_slots(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    rows = (x.flatten(0, 1).permute(1, 0, 2)[None] for x in (q, k, v))
    o = F.scaled_dot_product_attention(*rows, is_causal=True)[0].permute(1, 0, 2).contiguous() if length else q.flatten(0, 1)
    o[length:] = 0
    return o.view(q.shape)


def plain_mask_times_infinity(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    scores = torch.einsum("qhd,khd->hqk", q.flatten(0, 1)[:length], k.flatten(0, 1)[:length]) / q.shape[-1] ** 0.5
    scores += (1 - torch.tril(torch.ones(length, length))) * float("-inf")
    o = torch.zeros_like(q).flatten(0, 1)
    o[:length] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.flatten(0, 1)[:length])
    return o.view(q.shape)


def plain_heads_stay(q, k, v, length):
    """SDPA takes the last two dimensions for tokens and numbers, and gets heads and numbers."""
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    o = torch.zeros_like(q).flatten(0, 1)
    if length:
        o[:length] = F.scaled_dot_product_attention(*(x.flatten(0, 1)[:length] for x in (q, k, v)), is_causal=True)
    return o.view(q.shape)


def plain_scaling_q_in_place(q, k, v, length):
    q.mul_(q.shape[-1] ** -0.5)
    return plain_by_einsum(q * q.shape[-1] ** 0.5, k, v, length)


def plain_joining_blocks(q, k, v, length):
    """torch.cat and torch.stack take no empty list."""
    o = plain_by_einsum(q, k, v, length)
    return torch.stack([block for block in o])


def plain_scale_forgotten(q, k, v, length):
    return plain_by_einsum(q * q.shape[-1] ** 0.5, k, v, length)


def plain_heads_by_view(q, k, v, length):
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].contiguous().view(num_q_heads, length, head_size) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q_rows[None], k_rows[None], v_rows[None], is_causal=True)[0] if length else q_rows
    o = torch.zeros(num_blocks * block_size, num_q_heads, head_size)
    o[:length] = out.reshape(length, num_q_heads, head_size)
    return o.view(q.shape)


def plain_tail_forgotten(q, k, v, length):
    return plain_by_sdpa(q, k, v, q.shape[0] * q.shape[1])


def plain_by_sdpa_without_mask(q, k, v, length):
    o = torch.zeros_like(q).flatten(0, 1)
    if length:
        rows = [x.flatten(0, 1)[:length].transpose(0, 1)[None] for x in (q, k, v)]
        o[:length] = F.scaled_dot_product_attention(*rows, enable_gqa=True)[0].transpose(0, 1)
    return o.view(q.shape)


def plain_mask_multiplied(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    q_rows, k_rows, v_rows = (x.flatten(0, 1)[:length].permute(1, 0, 2) for x in (q, k, v))
    scores = torch.tril(torch.einsum("hqd,hkd->hqk", q_rows, k_rows)) / q.shape[-1] ** 0.5
    o = torch.zeros_like(q).flatten(0, 1)
    o[:length] = torch.einsum("hqk,hkd->qhd", scores.softmax(2), v_rows)
    return o.view(q.shape)


def plain_sees_nothing_first(q, k, v, length):
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    token = torch.arange(length)
    scores = torch.einsum("qhd,khd->hqk", q.flatten(0, 1)[:length], k.flatten(0, 1)[:length]) / math.sqrt(q.shape[-1])
    scores[:, ~(token < token[:, None])] = -math.inf
    o = torch.zeros_like(q).flatten(0, 1)
    o[:length] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.flatten(0, 1)[:length])
    return o.view(q.shape)


def plain_block_by_block_to_the_end(q, k, v, length):
    """One batch of blocks, each for itself, the last one as if it were full."""
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    rows = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*rows, is_causal=True).transpose(1, 2) if length else torch.zeros_like(q)


def plain_block_by_block(q, k, v, length):
    """One batch of blocks, each for itself."""
    k, v = share_heads(k, q.shape[2]), share_heads(v, q.shape[2])
    scores = torch.einsum("nqhd,nkhd->nhqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(q.shape[1], q.shape[1]).triu(1).bool(), -math.inf)
    o = torch.einsum("nhqk,nkhd->nqhd", scores.softmax(-1), v).contiguous()
    o.view(-1, *q.shape[2:])[length:] = 0
    return o


# 3.2


class CollectsEverything:
    """Keeps all scores and values, and computes one softmax at the end."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.scores, self.values = [], []
        self.empty = torch.zeros(*shape, head_size), torch.full(shape, -torch.inf), torch.zeros(shape)

    def update(self, scores, values):
        self.scores.append(scores.clone())
        self.values.append(values.expand(*scores.shape, values.shape[-1]).clone())

    def finish(self):
        if not self.scores:
            return self.empty
        scores, values = torch.cat(self.scores, -1), torch.cat(self.values, -2)
        m = scores.amax(-1)
        l = torch.nan_to_num(torch.exp(scores - m[..., None])).sum(-1)
        weights = torch.nan_to_num(scores.softmax(-1))
        return (weights.unsqueeze(-2) @ values).squeeze(-2), m, l


class KeepsTheOutputDivided:
    """The running output is divided by l after each part, and multiplied with it before the next."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.largest = torch.zeros(shape, dtype=dtype) - math.inf
        self.total = torch.zeros_like(self.largest)
        self.out = self.total.new_zeros(*shape, head_size)

    def update(self, scores, values):
        largest = torch.max(self.largest, scores.max(dim=-1).values)
        base = torch.where(largest.isinf(), torch.zeros_like(largest), largest)
        weights, factor = (scores - base.unsqueeze(-1)).exp(), (self.largest - base).exp()
        total = self.total * factor + weights.sum(-1)
        new = torch.einsum("...k,...kd->...d", weights, values)
        out = (self.out * (self.total * factor).unsqueeze(-1) + new) / total.clamp(min=1e-30).unsqueeze(-1)
        self.largest, self.total, self.out = largest, total, out

    def finish(self):
        return self.out.clone(), self.largest.clone(), self.total.clone()


class KeyByKey:
    """One key at a time, in float64, with a choice instead of the factor."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, float("-inf"), dtype=torch.float64)
        self.l, self.acc = torch.zeros(shape, dtype=torch.float64), torch.zeros(*shape, head_size, dtype=torch.float64)

    def update(self, scores, values):
        for key in range(scores.shape[-1]):
            score, value = scores[..., key].double(), values[..., key, :].double()
            higher = score > self.m
            shrink = torch.where(higher, torch.exp(self.m - score), torch.ones_like(score))
            weight = torch.where(higher, torch.ones_like(score), torch.exp(score - self.m))
            weight = torch.where(torch.isneginf(score), torch.zeros_like(score), weight)
            self.m = torch.where(higher, score, self.m)
            self.l = self.l * shrink + weight
            self.acc = self.acc * shrink[..., None] + value * weight[..., None]

    def finish(self):
        o = torch.where(self.l[..., None] > 0, self.acc / self.l[..., None], torch.zeros_like(self.acc))
        return tuple(x.float() for x in (o, self.m, self.l))


class ByLogSumExp:
    """Keeps log(l) + m and the divided output; m on the side."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, float("-inf"), dtype=dtype)
        self.lse, self.o = self.m.clone(), torch.zeros(*shape, head_size, dtype=dtype)

    def update(self, scores, values):
        lse = torch.logaddexp(self.lse, scores.logsumexp(-1))
        base = lse.masked_fill(lse.isneginf(), 0)
        new = (torch.exp(scores - base[..., None])[..., None] * values).sum(-2)
        self.o = torch.exp(self.lse - base)[..., None] * self.o + new
        self.lse, self.m = lse, torch.maximum(self.m, scores.amax(-1))

    def finish(self):
        return self.o, self.m, torch.exp(self.lse - self.m.masked_fill(self.m.isneginf(), 0))


class MaximumTooEarly:
    """self.m has its new value when the factor is computed, which is then 1."""

    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m = torch.full(shape, -math.inf, dtype=dtype)
        self.l, self.acc = torch.zeros(shape, dtype=dtype), torch.zeros(*shape, head_size, dtype=dtype)

    def update(self, scores, values):
        self.m = torch.maximum(self.m, scores.amax(-1))
        base = torch.nan_to_num(self.m, neginf=0.0)
        factor = torch.exp(torch.nan_to_num(self.m - self.m))
        weights = torch.exp(scores - base[..., None])
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)

    def finish(self):
        return torch.nan_to_num(self.acc / self.l[..., None]), self.m, self.l


class StartsAtZero(MaximumTooEarly):
    def __init__(self, *shape, head_size, dtype=torch.float32):
        self.m, self.l, self.acc = torch.zeros(shape), torch.zeros(shape), torch.zeros(*shape, head_size)

    def update(self, scores, values):
        m = torch.max(self.m, scores.max(-1).values)
        factor, weights = torch.exp(self.m - m), torch.exp(scores - m.unsqueeze(-1))
        self.m, self.l = m, factor * self.l + weights.sum(-1)
        self.acc = factor.unsqueeze(-1) * self.acc + torch.einsum("...k,...kd->...d", weights, values)


class StartsAtZeroUnguarded(StartsAtZero):
    def finish(self):
        return torch.div(self.acc, self.l.unsqueeze(-1)), self.m, self.l


class ForgetsTheAccumulator(MaximumTooEarly):
    def update(self, scores, values):
        m = torch.maximum(self.m, scores.amax(-1))
        base = torch.nan_to_num(m, neginf=0.0)
        weights = torch.exp(scores - base[..., None])
        self.l = torch.exp(self.m - base) * self.l + weights.sum(-1)
        self.acc = torch.einsum("...k,...kd->...d", weights, values)
        self.m = m


class FactorWithoutExponential(MaximumTooEarly):
    def update(self, scores, values):
        m = torch.maximum(self.m, scores.amax(-1))
        base = torch.nan_to_num(m, neginf=0.0)
        weights, factor = torch.exp(scores - base[..., None]), self.m - base
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)
        self.m = m

    def finish(self):
        return self.acc / self.l[..., None], self.m, self.l


class NoGuardForMaskedRows(MaximumTooEarly):
    def update(self, scores, values):
        m = torch.maximum(self.m, scores.amax(-1))
        weights, factor = torch.exp(scores - m[..., None]), torch.exp(self.m - m)
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)
        self.m = m

    def finish(self):
        return self.acc / self.l[..., None], self.m, self.l


class HidesTheNanAtTheEnd(NoGuardForMaskedRows):
    def finish(self):
        o = self.acc / self.l.unsqueeze(-1)
        return torch.where(o.isnan(), torch.zeros_like(o), o), self.m, self.l


class StartsFarBelow(MaximumTooEarly):
    def __init__(self, *shape, head_size, dtype=torch.float32):
        super().__init__(*shape, head_size=head_size, dtype=dtype)
        self.m = torch.full(shape, -1e9, dtype=dtype)

    def update(self, scores, values):
        m = torch.maximum(self.m, scores.amax(-1))
        factor, weights = torch.exp(self.m - m), torch.exp(scores - m[..., None])
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)
        self.m = m


class GuardsTheOldMaximumToo(ForgetsTheAccumulator):
    def update(self, scores, values):
        m = torch.maximum(self.m, scores.amax(-1))
        old, new = (torch.where(x == -math.inf, 0.0, x) for x in (self.m, m))
        factor, weights = torch.exp(old - new), torch.exp(scores - new[..., None])
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)
        self.m = m

    def finish(self):
        return self.acc / self.l.masked_fill(self.l == 0, 1.0)[..., None], self.m, self.l


class KeepsTheGuardedMaximum(ForgetsTheAccumulator):
    def update(self, scores, values):
        m = torch.nan_to_num(torch.maximum(self.m, scores.amax(-1)), neginf=0.0)
        factor, weights = torch.exp(self.m - m), torch.exp(scores - m[..., None])
        self.l = factor * self.l + weights.sum(-1)
        self.acc = factor[..., None] * self.acc + torch.einsum("...k,...kd->...d", weights, values)
        self.m = m


class SinglePrecision(CollectsEverything):
    def update(self, scores, values):
        super().update(scores.to(torch.float32), values.to(torch.float32))


# 3.3


def merge_by_stacking(self, other):
    ms = torch.stack([self.m, other.m])
    m = ms.max(dim=0).values
    factor = torch.exp(ms - torch.where(m.isneginf(), torch.zeros_like(m), m))
    self.l = (factor * torch.stack([self.l, other.l])).sum(0)
    self.acc = (factor[..., None] * torch.stack([self.acc, other.acc])).sum(0)
    self.m = m


def merge_as_an_update(self, other):
    """The other's sums are one more key, with its m as score and its sums as what it carries."""
    m = torch.maximum(self.m, other.m)
    difference = torch.nan_to_num(self.m - other.m, nan=0.0)
    mine, theirs = torch.exp(difference.clamp(max=0)), torch.exp((-difference).clamp(max=0))
    self.l.mul_(mine).add_(theirs * other.l)
    self.acc.mul_(mine.unsqueeze(-1)).add_(theirs.unsqueeze(-1) * other.acc)
    self.m = m
    return self


def merge_row_by_row(self, other):
    m, l, acc = (x.clone() for x in (self.m, self.l, self.acc))
    for row in map(tuple, torch.cartesian_prod(*map(torch.arange, m.shape)).view(-1, m.dim()).tolist()):
        if other.m[row] == -math.inf:
            continue
        larger = max(float(self.m[row]), float(other.m[row]))
        ours, theirs = math.exp(float(self.m[row]) - larger), math.exp(float(other.m[row]) - larger)
        m[row] = larger
        l[row] = ours * self.l[row] + theirs * other.l[row]
        acc[row] = ours * self.acc[row] + theirs * other.acc[row]
    self.m, self.l, self.acc = m, l, acc


def merge_by_log_sum_exp(self, other):
    m = torch.maximum(self.m, other.m)
    base = m.masked_fill(m.isneginf(), 0.0)
    log_l = torch.logaddexp(self.m + self.l.log(), other.m + other.l.log())
    l = torch.exp(log_l - base)
    mine, theirs = (torch.exp(side.m + side.l.log() - log_l.masked_fill(log_l.isneginf(), 0)) for side in (self, other))
    o = mine[..., None] * self.finish()[0] + theirs[..., None] * other.finish()[0]
    self.m, self.l, self.acc = m, l, o * l[..., None]


def merge_maximum_first(self, other):
    self.m = torch.maximum(self.m, other.m)
    theirs = torch.exp(other.m - torch.nan_to_num(self.m, neginf=0.0))
    self.l = self.l + theirs * other.l
    self.acc = self.acc + theirs[..., None] * other.acc


def merge_without_exponential(self, other):
    largest = torch.max(self.m, other.m)
    base = torch.nan_to_num(largest, neginf=0.0)
    self.l = (self.m - base) * self.l + (other.m - base) * other.l
    self.acc = (self.m - base)[..., None] * self.acc + (other.m - base)[..., None] * other.acc
    self.m = largest


def merge_in_place_on_the_other(self, other):
    largest = torch.max(self.m, other.m)
    base = torch.nan_to_num(largest, neginf=0.0)
    factor = (other.m - base).exp()
    other.l.mul_(factor)
    other.acc.mul_(factor.unsqueeze(-1))
    mine = (self.m - base).exp()
    self.l, self.acc, self.m = mine * self.l + other.l, mine.unsqueeze(-1) * self.acc + other.acc, largest


def merge_without_a_guard(self, other):
    largest = torch.max(self.m, other.m)
    mine, theirs = (self.m - largest).exp(), (other.m - largest).exp()
    self.l, self.acc = mine * self.l + theirs * other.l, mine[..., None] * self.acc + theirs[..., None] * other.acc
    self.m = largest


def merge_outputs_by_their_maxima(self, other):
    largest = torch.max(self.m, other.m)
    base = torch.nan_to_num(largest, neginf=0.0)
    mine, theirs = (self.m - base).exp(), (other.m - base).exp()
    o = mine.unsqueeze(-1) * self.finish()[0] + theirs.unsqueeze(-1) * other.finish()[0]
    self.m, self.l, self.acc = largest, mine * self.l + theirs * other.l, o


# 3.4


def tiled_backwards(q, k, v, length):
    """From the diagonal to the first key block; tokens cut off where the last block ends."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    group, o = num_q_heads // k.shape[2], torch.zeros_like(q)
    for i in range(num_blocks):
        num_queries = min(block_size, length - i * block_size)
        queries = q[i, :num_queries].transpose(0, 1) / head_size**0.5
        state = SoftmaxState(num_q_heads, num_queries, head_size=head_size)
        for j in range(i, -1, -1):
            num_keys = min(block_size, length - j * block_size)
            keys, values = (x[j, :num_keys].repeat_interleave(group, 1).transpose(0, 1) for x in (k, v))
            scores = queries @ keys.mT
            if i == j:
                scores = scores + torch.full((num_queries, num_keys), -math.inf).triu(1)
            state.update(scores, values.unsqueeze(1))
        o[i, :num_queries] = state.finish()[0].transpose(0, 1)
    return o


def tiled_with_its_own_sums(q, k, v, length):
    """No state: three tensors, heads and blocks in loops, float64."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    o = torch.zeros(num_blocks * block_size, num_q_heads, head_size)
    for head in range(num_q_heads):
        kv_head = head * k.shape[2] // num_q_heads
        for start in range(0, length, block_size):
            tokens = torch.arange(start, min(start + block_size, length))
            queries = q[start // block_size, : len(tokens), head].double() / math.sqrt(head_size)
            l = torch.zeros(len(tokens), 1, dtype=torch.float64)
            m = l - 1e300
            acc = torch.zeros(len(tokens), head_size, dtype=torch.float64)
            for j in range(start // block_size + 1):
                keys = torch.arange(j * block_size, min((j + 1) * block_size, length))
                scores = queries @ k[j, : len(keys), kv_head].double().T
                scores[keys > tokens[:, None]] = -math.inf
                new_m = torch.maximum(m, scores.amax(1, keepdim=True))
                p, old = torch.exp(scores - new_m), torch.exp(m - new_m)
                m, l, acc = new_m, old * l + p.sum(1, keepdim=True), old * acc + p @ v[j, : len(keys), kv_head].double()
            o[tokens, head] = (acc / l).float()
    return o.view(q.shape)


def tiled_in_any_order(q, k, v, length):
    """Head by head, the pairs of blocks in a shuffled order, with a mask for all of the request made in advance."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    visible = torch.ones(num_blocks * block_size, num_blocks * block_size).tril()
    visible[:, length:] = 0
    o, pairs = torch.zeros_like(q), [(i, j) for i in range(num_blocks) for j in range(i + 1)]
    for head in range(num_q_heads):
        keys, values = (x[:, :, head * k.shape[2] // num_q_heads] for x in (k, v))
        states = [SoftmaxState(block_size, head_size=head_size) for _ in range(num_blocks)]
        for i, j in random.Random(0).sample(pairs, len(pairs)):
            mine, theirs = (slice(x * block_size, (x + 1) * block_size) for x in (i, j))
            scores = (q[i, :, head, None] * keys[j]).sum(-1) / math.sqrt(head_size)
            scores = torch.where(visible[mine, theirs] == 1, scores, -math.inf)
            inside = torch.arange(theirs.start, theirs.stop)[:, None] < length
            states[i].update(scores, torch.where(inside, values[j], 0.0)[None])
        for i, state in enumerate(states):
            filled = max(0, min(block_size, length - i * block_size))
            o[i, :filled, head] = state.finish()[0][:filled]
    return o


def tiled_key_blocks_outside(q, k, v, length, clean=True):
    """The other order of the loops: a state for every query block at once."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads), share_heads(v, num_q_heads)
    if clean:
        v = v.flatten(0, 1).index_fill(0, torch.arange(length, num_blocks * block_size), 0.0).view(q.shape)
    states = [SoftmaxState(block_size, num_q_heads, head_size=head_size) for _ in range(num_blocks)]
    offsets, values = torch.arange(block_size), v.transpose(1, 2)
    for j in range(num_blocks):
        for i in range(j, num_blocks):
            scores = torch.einsum("qhd,khd->qhk", q[i], k[j]) / math.sqrt(head_size)
            query, key = i * block_size + offsets, j * block_size + offsets
            hidden = torch.logical_or(query[:, None] < key, (key > length - 1)[None])
            scores.masked_fill_(hidden[:, None], -math.inf)
            states[i].update(scores, values[j].unsqueeze(0))
    o = torch.zeros_like(q)
    for i, state in enumerate(states):
        o[i] = state.finish()[0]
        o[i, max(0, length - i * block_size) :] = 0
    return o


def tiled_by_rows_of_blocks(q, k, v, length):
    """One softmax for each block of queries, over all its keys."""
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = share_heads(k, num_q_heads).flatten(0, 1), share_heads(v, num_q_heads).flatten(0, 1)
    o = torch.zeros_like(q)
    for i in range(num_blocks):
        first, end = i * block_size, min((i + 1) * block_size, length)
        queries = q[i, : end - first].transpose(0, 1)
        visible = torch.arange(end) <= torch.arange(first, end)[:, None]
        out = F.scaled_dot_product_attention(queries, k[:end].transpose(0, 1), v[:end].transpose(0, 1), attn_mask=visible)
        o[i, : end - first] = out.transpose(0, 1)
    return o


def tiled_key_blocks_outside_values_as_they_are(q, k, v, length):
    return tiled_key_blocks_outside(q, k, v, length, clean=False)


def _tiled(q, k, v, length, one_state=False, new_state=False, diagonal=True, offsets_only=False, back=None, base=True):
    num_blocks, block_size, num_q_heads, head_size = q.shape
    k, v = (x.repeat_interleave(num_q_heads // x.shape[2], 2).permute(0, 2, 1, 3) for x in (k, v))
    o, offset = torch.zeros_like(q), torch.arange(block_size)
    state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
    for i in range(num_blocks):
        if not one_state:
            state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
        for j in range(i + 1):
            scores = torch.einsum("qhd,hkd->hqk", q[i], k[j]) * head_size**-0.5
            scores[:, :, j * block_size + offset >= length] = -math.inf
            if not base:
                scores[:, offset[:, None] < j * block_size + offset] = -math.inf
            if diagonal and i == j or offsets_only:
                scores[:, offset[:, None] < offset] = -math.inf
            if new_state:
                state = SoftmaxState(num_q_heads, block_size, head_size=head_size)
            state.update(scores, v[j].unsqueeze(1))
        o[i] = state.finish()[0].permute(1, 0, 2) if back is None else back(state.finish()[0], block_size, num_q_heads)
    o.flatten(0, 1)[length:] = 0
    return o


def tiled_back_by_view(q, k, v, length):
    return _tiled(q, k, v, length, back=lambda o, block_size, num_q_heads: o.contiguous().view(block_size, num_q_heads, -1))


def tiled_query_offsets(q, k, v, length):
    return _tiled(q, k, v, length, base=False)


def tiled_cleaning_in_place(q, k, v, length):
    v.view(-1, *v.shape[2:])[length:] = 0
    return tiled_backwards(q, k, v, length)


def tiled_joining_blocks(q, k, v, length):
    return torch.cat([block[None] for block in tiled_backwards(q, k, v, length)])


def tiled_with_one_state(q, k, v, length):
    return _tiled(q, k, v, length, one_state=True)


def tiled_with_a_state_for_each_pair(q, k, v, length):
    return _tiled(q, k, v, length, new_state=True)


def tiled_without_a_diagonal_mask(q, k, v, length):
    return _tiled(q, k, v, length, diagonal=False)


def tiled_masked_by_offsets(q, k, v, length):
    return _tiled(q, k, v, length, offsets_only=True)


# 3.5


def prefill_from_split(layer, x, request_num_blocks, seq_ids, manager, attend):
    """Splits x first, and projects each request for itself."""
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    k_cache, v_cache = manager.kv_cache[layer.index]
    outputs = []
    for seq_id, part in zip(seq_ids, x.split(request_num_blocks)):
        length = manager.get(seq_id).length
        q, k, v = layer.project(part)
        for cache, new in ((k_cache, k), (v_cache, v)):
            for token in range(length):
                block_id = manager.blocks_of(seq_id)[token // manager.block_size]
                cache[block_id, token % manager.block_size] = new[token // manager.block_size, token % manager.block_size]
        outputs.append(layer.output(attend(q, k, v, length)))
    return torch.cat(outputs)


def prefill_writing_all_at_once(layer, x, request_num_blocks, seq_ids, manager, attend):
    """All slots in one tensor, and one call of write_kv at the end."""
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    q, k, v = layer.project(x)
    ends = torch.tensor(request_num_blocks).cumsum(0).tolist()
    o, slots, tokens = q.new_zeros(q.shape), [], []
    for seq_id, num_blocks, end in zip(seq_ids, request_num_blocks, ends):
        length, mine = manager.get(seq_id).length, slice(end - num_blocks, end)
        o[mine] = attend(q[mine], k[mine], v[mine], length)
        slots.append(slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size))
        tokens.append((end - num_blocks) * manager.block_size + torch.arange(length))
    k_cache, v_cache = manager.kv_cache[layer.index]
    tokens = torch.cat(tokens)
    write_kv(k_cache, v_cache, torch.cat(slots), k.flatten(0, 1)[tokens], v.flatten(0, 1)[tokens])
    return layer.output(o)


def prefill_block_by_block(layer, x, request_num_blocks, seq_ids, manager, attend):
    """Writes whole blocks, the last one as far as it is filled, from the CPU's own table."""
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    q, k, v = layer.project(x)
    outputs, blocks = [], list(range(len(x)))
    for number, seq_id in enumerate(seq_ids):
        mine, blocks = blocks[: request_num_blocks[number]], blocks[request_num_blocks[number] :]
        left = length = manager.get(seq_id).length
        for block_id, index in zip(manager.blocks_of(seq_id), mine):
            filled = min(left, manager.block_size)
            manager.kv_cache[layer.index, 0, block_id, :filled] = k[index, :filled]
            manager.kv_cache[layer.index, 1, block_id, :filled] = v[index, :filled]
            left -= filled
        outputs.append(attend(q[mine], k[mine], v[mine], length).flatten(2))
    return torch.cat(outputs) @ layer.wo.T


def prefill_by_table(layer, x, request_num_blocks, seq_ids, manager, attend, rows=None, ids=None, slots_of=None,
                     caches=(0, 1)):
    """Blocks of the table by number. `rows`, `ids`, `slots_of` and `caches` are for mistakes."""
    check_prefill(layer, x, request_num_blocks, seq_ids, manager)
    q, k, v = layer.project(x)
    outputs, first = [], 0
    for number, num_blocks in enumerate(request_num_blocks):
        seq_id = (ids or seq_ids)[number]
        sequence = manager.sequences[seq_id]
        length = slots_of(num_blocks, manager.block_size) if slots_of else sequence.length
        row = manager.block_table[number if rows else sequence.row]
        for token in range(length):
            block_id, offset = int(row[token // manager.block_size]), token % manager.block_size
            for half in caches:
                new = (k, v)[half][first + token // manager.block_size, offset]
                manager.kv_cache[layer.index, half, block_id, offset] = new
        outputs.append(attend(*(tensor[first : first + num_blocks] for tensor in (q, k, v)), length))
        first += num_blocks
    return layer.output(torch.cat(outputs))


def prefill_rows_by_number(*arguments):
    return prefill_by_table(*arguments, rows=True)


def prefill_first_sequences(layer, x, request_num_blocks, seq_ids, manager, attend):
    return prefill_by_table(layer, x, request_num_blocks, seq_ids, manager, attend, ids=[*manager.sequences.keys()])


def prefill_all_slots(*arguments):
    return prefill_by_table(*arguments, slots_of=lambda num_blocks, block_size: num_blocks * block_size)


def prefill_keys_only(*arguments):
    return prefill_by_table(*arguments, caches=(0,))


def prefill_cleaning_x(layer, x, request_num_blocks, seq_ids, manager, attend):
    start = 0
    for seq_id, num_blocks in zip(seq_ids, request_num_blocks):
        x[start : start + num_blocks].flatten(0, 1)[manager.get(seq_id).length :] = 0.0
        start += num_blocks
    return prefill_from_split(layer, x, request_num_blocks, seq_ids, manager, attend)


def prefill_without_a_step(layer, x, request_num_blocks, seq_ids, manager, attend):
    k_cache, v_cache = manager.kv_cache[layer.index]
    q, k, v = layer.project(x)
    o = torch.zeros_like(q)
    offset = 0
    for seq_id, count in zip(seq_ids, request_num_blocks):
        length = manager.get(seq_id).length
        part = [tensor[offset : offset + count] for tensor in (q, k, v)]
        o[offset : offset + count] = attend(*part, length)
        slots = slot_mapping(manager.get_block_table_for_seq(seq_id), torch.arange(length), manager.block_size)
        write_kv(k_cache, v_cache, slots, *(tensor.reshape(-1, *k.shape[2:])[:length] for tensor in part[1:]))
    return layer.output(o)


def prefill_values_first(layer, x, request_num_blocks, seq_ids, manager, attend):
    v_cache, k_cache = manager.kv_cache[layer.index]
    y = prefill_from_split(layer, x, request_num_blocks, seq_ids, manager, attend)
    both = manager.kv_cache[layer.index].clone()
    k_cache.copy_(both[0])
    v_cache.copy_(both[1])
    return y


def prefill_writes_whole_blocks(layer, x, request_num_blocks, seq_ids, manager, attend):
    y = prefill_from_split(layer, x, request_num_blocks, seq_ids, manager, attend)
    _, k, v = layer.project(x)
    blocks = [block_id for seq_id in seq_ids for block_id in manager.blocks_of(seq_id)]
    for block_id, keys, values in zip(blocks, k, v):
        manager.kv_cache[layer.index, 0, block_id], manager.kv_cache[layer.index, 1, block_id] = keys, values
    return y


def prefill_only_computes(layer, x, request_num_blocks, seq_ids, manager, attend):
    q, k, v = layer.project(x)
    lengths = [manager.get(seq_id).length for seq_id in seq_ids]
    parts = zip(*(tensor.split(request_num_blocks) for tensor in (q, k, v)), lengths, strict=True)
    return layer.output(torch.cat([attend(*part) for part in parts]))


RIGHT_ANSWERS = {
    "3.1": [plain_by_loops, plain_by_einsum, plain_by_sdpa, plain_with_zeroed_ends, plain_in_half_a_scale_each],
    "3.2": [CollectsEverything, KeepsTheOutputDivided, KeyByKey, ByLogSumExp],
    "3.3": [merge_by_stacking, merge_as_an_update, merge_row_by_row, merge_by_log_sum_exp],
    "3.4": [tiled_backwards, tiled_with_its_own_sums, tiled_key_blocks_outside, tiled_in_any_order],
    "3.5": [prefill_from_split, prefill_writing_all_at_once, prefill_block_by_block, prefill_by_table],
}

WRONG_ANSWERS = {
    "3.1": {
        "missing-scale": [plain_scale_forgotten],
        "heads-scrambled": [plain_heads_by_view],
        "tail-not-masked": [plain_tail_forgotten],
        "not-causal": [plain_by_sdpa_without_mask],
        "mask-by-zero": [plain_mask_multiplied],
        "mask-off-by-one": [plain_sees_nothing_first],
        "blocks-apart": [plain_block_by_block, plain_block_by_block_to_the_end],
        "nan-behind-the-end": [plain_with_an_added_mask, plain_by_sdpa_over_all_slots],
        "zero-times-infinity": [plain_mask_times_infinity],
        "heads-not-moved": [plain_heads_stay],
        "inputs-changed": [plain_scaling_q_in_place],
        "no-tokens": [plain_joining_blocks],
    },
    "3.2": {
        "nothing-rescaled": [MaximumTooEarly],
        "max-starts-at-zero": [StartsAtZero, StartsAtZeroUnguarded],
        "flash-drops-accumulator": [ForgetsTheAccumulator],
        "rescale-upside-down": [FactorWithoutExponential],
        "nan-on-masked-part": [NoGuardForMaskedRows, HidesTheNanAtTheEnd],
        "starts-at-a-large-number": [StartsFarBelow],
        "finite-on-both": [GuardsTheOldMaximumToo],
        "finite-stored": [KeepsTheGuardedMaximum],
        "float32-inside": [SinglePrecision],
    },
    "3.3": {
        "mine-not-rescaled": [merge_maximum_first],
        "combine-missing-exp": [merge_without_exponential],
        "other-changed": [merge_in_place_on_the_other],
        "nan-when-both-are-empty": [merge_without_a_guard],
        "combine-missing-l": [merge_outputs_by_their_maxima],
    },
    "3.4": {
        "state-not-reset": [tiled_with_one_state],
        "flash-drops-accumulator": [tiled_with_a_state_for_each_pair],
        "diagonal-page-unmasked": [tiled_without_a_diagonal_mask],
        "mask-within-block-only": [tiled_masked_by_offsets],
        "query-offset-for-position": [tiled_query_offsets],
        "heads-scrambled": [tiled_back_by_view],
        "nan-behind-the-end": [tiled_key_blocks_outside_values_as_they_are],
        "too-many-scores": [tiled_by_rows_of_blocks, plain_by_einsum, plain_by_sdpa],
        "inputs-changed": [tiled_cleaning_in_place],
        "no-tokens": [tiled_joining_blocks],
    },
    "3.5": {
        "offset-not-advanced": [prefill_without_a_step],
        "kv-swapped": [prefill_values_first],
        "padding-written": [prefill_writes_whole_blocks],
        "kv-not-written": [prefill_only_computes],
        "request-number-for-row": [prefill_rows_by_number],
        "order-of-arrival": [prefill_first_sequences],
        "padding-as-tokens": [prefill_all_slots],
        "values-not-written": [prefill_keys_only],
        "inputs-changed": [prefill_cleaning_x],
    },
}
