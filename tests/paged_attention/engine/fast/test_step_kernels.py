"""The kernels between a step's products, against the same in plain PyTorch, in float64."""

import pytest
import torch

from paged_attention.engine.fast.layers import step_kernels
from paged_attention.validate import KERNEL_DTYPES
from rotation import EPSILON, rotate

TARGETS = ["fast", "checked"] + ["gpu"] * torch.cuda.is_available()
dtypes = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=str)
# early: 1 begins early, which only a GPU can do
STARTS = [("fast", 0), ("checked", 0)] + [("gpu", 0), ("gpu", 1)] * torch.cuda.is_available()
starts = pytest.mark.parametrize("target, early", STARTS)
targets = pytest.mark.parametrize("target", TARGETS)


def device_of(target):
    return "cuda" if target == "gpu" else "cpu"


def random(*shape, dtype, target, seed=0):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(device_of(target), dtype)


def close(actual, expected, dtype, times=4):
    error = (actual.double() - expected.double()).abs()
    assert (error <= times * torch.finfo(dtype).eps * (1 + expected.double().abs())).all()


def norm(x, weight, epsilon):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight.double()


@starts
@dtypes
@pytest.mark.parametrize("hidden_size", [8, 128, 1032, 8216])
@pytest.mark.parametrize("adds", [True, False])
def test_add_norm(target, dtype, hidden_size, adds, early):
    residual, x = (random(3, hidden_size, dtype=dtype, target=target, seed=s) for s in (1, 2))
    weight = random(hidden_size, dtype=dtype, target=target, seed=3)
    total = residual + x if adds else residual.clone()
    out = torch.empty_like(x)
    added, number = x if adds else None, KERNEL_DTYPES.index(dtype)
    step_kernels(target).add_norm(
        out, residual, added, weight, 3, hidden_size, 1e-6, early, number
    )
    assert torch.equal(residual, total)
    close(out, norm(total, weight, 1e-6), dtype)


@starts
@dtypes
@pytest.mark.parametrize("size", [8, 24, 3080])
def test_gate(target, dtype, size, early):
    gate_up = random(5, 2 * size, dtype=dtype, target=target)
    out = torch.empty(5, size, dtype=dtype, device=gate_up.device)
    step_kernels(target).gate(out, gate_up, 5, size, early, KERNEL_DTYPES.index(dtype))
    gate, up = gate_up.double().chunk(2, -1)
    close(out, gate * torch.sigmoid(gate) * up, dtype)


def rotated(heads, turns):
    """heads: (num_tokens, num_heads, head_size); turns: (num_tokens, head_size / 2, 2)."""
    first, second = heads.double().chunk(2, -1)
    cosine, sine = turns.double().unbind(-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


@targets
@dtypes
@pytest.mark.parametrize("head_size", [10, 32, 64, 80, 256])
@pytest.mark.parametrize("heads", [(4, 2), (3, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("norms", [True, False])
def test_rotate(target, dtype, head_size, heads, norms):
    """Keys and values go to their slots and nowhere else. A slot of -1 writes nowhere."""
    num_q_heads, num_kv_heads = heads
    positions, slots = torch.tensor([[0, 5, 2, 7], [6, -1, 1, 3]], device=device_of(target))
    make = dict(dtype=dtype, target=target)
    qkv = random(4, num_q_heads + 2 * num_kv_heads, head_size, **make)
    weights = [random(head_size, **make, seed=seed) if norms else None for seed in (1, 2)]
    angles = torch.rand(8, head_size // 2, device=qkv.device)
    turns = torch.stack([angles.cos(), angles.sin()], -1)
    caches = torch.full((2, 8, num_kv_heads, head_size), torch.nan).to(qkv)
    q, k, v = qkv.clone().split([num_q_heads, num_kv_heads, num_kv_heads], 1)
    if norms:
        q, k = (norm(rows, own, EPSILON) for rows, own in zip((q, k), weights))
    rotate(target, qkv, caches, weights, turns, positions, slots)
    close(qkv[:, :num_q_heads], rotated(q, turns[positions]), dtype, times=8)
    written, there = [6, 1, 3], [0, 2, 3]
    close(caches[0][written], rotated(k, turns[positions])[there], dtype, times=8)
    assert torch.equal(caches[1][written], v[there])
    assert caches[:, [0, 2, 4, 5, 7]].isnan().all()
