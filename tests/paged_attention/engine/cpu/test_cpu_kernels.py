"""What step.cpp computes, beside PyTorch in float64, on sizes that fill no register."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paged_attention.engine.cpu.layers import MOST_ROWS, NarrowWeight
from paged_attention.engine.cpu.library import bits_of, cpu_library
from poison import POISONS

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = torch.finfo(torch.float32).eps


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(
    num_rows=st.integers(1, MOST_ROWS),
    num_features=st.integers(1, 11),
    size=st.integers(1, 70),
    bits=st.sampled_from([8, 16, 32]),
    seed=st.integers(0, 2**16),
)
def test_a_product_is_that_of_float64(num_rows, num_features, size, bits, seed):
    x = numbers(num_rows, size, seed=seed)
    weight, scales = numbers(num_features, size, seed=seed + 1), None
    used = weight.double()
    if bits == 8:
        narrow = NarrowWeight.of(weight)
        weight, scales = narrow.numbers, narrow.scales
        steps = (used - weight * scales.double()[:, None]).abs() / scales[:, None]
        assert steps.max() <= 0.5 + 1e-4  # each weight is rounded to the nearest
        used = weight * scales.double()[:, None]
    elif bits == 16:
        weight = weight.bfloat16()
        used = weight.double()
    y = torch.full((num_rows, num_features), torch.nan)
    sizes = num_rows, num_features, size, bits_of(weight)
    cpu_library()("product", y, x, weight, scales, *sizes)
    most = x.double().abs() @ used.abs().T  # what rounding may be a part of
    assert ((y - x.double() @ used.T).abs() <= size * EXACT * most).all()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_a_value_is_rounded_into_the_pool_as_pytorch_rounds(poison):
    """Halfway between two it takes the even one; NaN and infinity stay what they are."""
    value = torch.cat(
        [numbers(10, seed=3), torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 0, poison])]
    )
    head = len(value)
    qkv = torch.cat([torch.ones(2 * head), value]).repeat(2)
    pool = torch.zeros(2, 3, head, dtype=torch.bfloat16)
    turns = torch.tensor([1.0, 0.0]).repeat(head // 2 * 4)
    positions, slots = torch.tensor([0, 3]), torch.tensor([2, 0])
    sizes = 2, 1, 1, head, 1e-6, bits_of(pool)
    cpu_library()("rotate", qkv, *pool, None, None, turns, positions, slots, *sizes)
    expected = torch.zeros(3, head, dtype=torch.bfloat16)
    expected[[2, 0]] = value.bfloat16()
    torch.testing.assert_close(pool[1], expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("clang++"), reason="clang++ is not installed")
def test_clang_builds_them_too_with_openmp_or_without(tmp_path):
    code = """if True:
        import torch
        from paged_attention.engine.cpu.library import cpu_library
        y, x, weight = torch.zeros(1, 3), torch.ones(1, 20), torch.full((3, 20), 2.0)
        cpu_library()("product", y, x, weight, None, 1, 3, 20, 32)
        print(y.tolist())"""
    own = os.environ | {"CXX": "clang++", "LESSONS_BUILD_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
    assert ran.stdout == "[[40.0, 40.0, 40.0]]\n", ran.stderr
