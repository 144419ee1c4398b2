"""The product of a few rows, in parts, against the same in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.fast import FastParts, fast_engine
from paged_attention.engine.fast.few_rows import MOST_ROWS, choose_share
from paged_attention.engine.fast.layers import step_kernels
from paged_attention.tiny_qwen3.tasks import encode
from paged_attention.tiny_qwen3.wider import with_head_size
from paged_attention.validate import KERNEL_DTYPES
from test_step_kernels import TARGETS, close, norm, random

targets = pytest.mark.parametrize("target", TARGETS)
dtypes = pytest.mark.parametrize("dtype", KERNEL_DTYPES[1:], ids=str)


def multiplied(target, x, weight, share):
    """The parts, (depth / share, num_rows, num_columns), which are NaN before."""
    sizes = depth, num_rows, num_columns = x.shape[1], len(x), len(weight)
    parts = torch.full((depth // share, *sizes[1:]), torch.nan, device=x.device)
    step_kernels(target).multiply_few_rows(
        parts, x, weight, num_rows, num_columns, depth, share, KERNEL_DTYPES.index(x.dtype)
    )
    return parts


@targets
@dtypes
@pytest.mark.parametrize(
    ("num_rows", "num_columns", "depth", "share"),
    [(1, 32, 128, 128), (16, 64, 256, 128), (17, 32, 384, 384), (64, 96, 512, 256)],
)
def test_each_part_is_the_product_of_a_share(
    target, dtype, num_rows, num_columns, depth, share
):
    # what lies after the last row is never read
    x = random(num_rows + 1, depth, dtype=dtype, target=target, seed=1)
    x[num_rows:] = torch.nan
    weight = random(num_columns, depth, dtype=dtype, target=target, seed=2)
    parts = multiplied(target, x[:num_rows], weight, share)
    for part, rows, columns in zip(
        parts, x[:num_rows].double().split(share, 1), weight.double().split(share, 1)
    ):
        exact = rows @ columns.T
        assert (part.double() - exact).abs().max() <= 1e-5 * share


@targets
@dtypes
def test_add_norm_adds_the_parts_up(target, dtype):
    residual = random(3, 40, dtype=dtype, target=target, seed=1)
    weight = random(40, dtype=dtype, target=target, seed=2)
    parts = random(5, 3, 40, dtype=torch.float32, target=target, seed=3)
    exact = residual.double() + parts.double().sum(0)
    out = torch.empty_like(residual)
    step_kernels(target).add_norm(
        out, residual, None, parts, weight, 5, 3, 40, 1e-6, KERNEL_DTYPES.index(dtype)
    )
    close(residual, exact, dtype, times=1)
    close(out, norm(residual, weight, 1e-6), dtype)


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * torch.cuda.is_available())
@dtypes
def test_a_step_in_parts_is_the_same_step(device, dtype):
    """Of a model that is too small for it: the shares are given."""
    model = with_head_size(load_model(dtype=dtype, device=device), 64)
    prompts = [encode(text) for text in ("?ab>", "a1b2?a>", "Szebra>", "Cq7b4mxy>")]
    logits = []
    for divides in (False, True):
        engine = fast_engine(model, FastParts(sampling=False, ahead=False, graphs=False))
        layer = engine.runner.fused.layers[0]
        weights = (layer.w_out, layer.w_down) if divides else ()
        engine.runner.fused.shares = {weight.shape: 128 for weight in weights}
        seen = []
        engine.postprocess = lambda scheduled, rows, seen=seen, next=engine.postprocess: (
            seen.append(rows.float().clone()),
            next(scheduled, rows),
        )[1]
        outputs = [request.output for request in engine.generate(prompts)]
        assert all(outputs)
        logits.append(torch.cat(seen))
    spread = logits[0].abs().max()
    assert (logits[0] - logits[1]).abs().max() <= 8 * torch.finfo(dtype).eps * spread
    assert not torch.equal(*logits)  # it was another way


SHARED_BYTES = 232_448  # of a Hopper card


@settings(max_examples=300)
@given(
    num_columns=st.integers(1, 300).map(lambda n: 16 * n),
    depth=st.integers(1, 200).map(lambda n: 64 * n),
    num_multiprocessors=st.integers(8, 200),
)
def test_a_share_divides_the_depth_and_fits(num_columns, depth, num_multiprocessors):
    share = choose_share(num_columns, depth, num_multiprocessors, SHARED_BYTES)
    if share is not None:
        num_blocks = num_columns // 32 * (depth // share)
        assert num_columns % 32 == depth % share == share % 128 == 0
        assert num_multiprocessors // 2 <= num_blocks <= num_multiprocessors
        assert 2 * (MOST_ROWS + 32) * share <= SHARED_BYTES


def test_the_shares_of_a_small_model_and_of_a_large_one():
    """The products of Qwen3-0.6B that are added to the residual, and one of a larger model."""
    assert choose_share(1024, 2048, 132, SHARED_BYTES) == 512
    assert choose_share(1024, 3072, 132, SHARED_BYTES) == 768
    assert choose_share(4096, 12288, 132, SHARED_BYTES) is None
