"""Calls of the ladder's rungs, and small tensors that fit them: 2 sequences, 8 heads on 2."""

import torch

from dense_attention import decode_attention
from int32 import integers
from paged_attention.ladder.decode import FP8, PagedDecode, Shape
from rounding import assert_within_rounding

HALF = torch.float16
BFLOAT = torch.bfloat16
FLOAT = torch.float32
FAR = 2**31 - 1  # a block that no pool has
POISONED = 10_000  # the caches' own numbers are smaller

MODEL = dict(num_q_heads=8, num_kv_heads=2, head_size=128, block_size=16, dtype=HALF)
LENS = integers(5, 4)
Q = torch.zeros(2, 8, 128).half()
CACHE = torch.zeros(3, 16, 2, 128).half()
TABLE = torch.zeros(2, 1, dtype=torch.int32)


def at_an_odd_place(tensor):
    """The same numbers, 8 bytes past a multiple of 16."""
    place = (
        torch.empty(tensor.numel() + 4, dtype=tensor.dtype)[4:]
        .view(tensor.shape)
        .copy_(tensor)
    )
    assert place.data_ptr() % 16 == 8 and place.is_contiguous()
    return place


def shape(dtype=HALF, head_size=128, queries=4, block_size=16, kv_dtype=None, **others):
    return Shape(dtype, head_size, queries, block_size, kv_dtype, **others)


def name_of(batch):
    dtype = str(batch.dtype).removeprefix("torch.")
    heads = f"{batch.num_q_heads}:{batch.num_kv_heads}"
    return f"{dtype}-{batch.head_size}-{heads}-{batch.block_size}"


def fp8(tensors):
    """The caches in 8 bits with their scales, and the tensors for dense attention."""
    caches, exact = {}, {}
    for name in ("k", "v"):
        cache = tensors[f"{name}_cache"].float()
        scales = (
            cache.where(cache.abs() < POISONED, 0.0).abs().amax((0, 1, 3)).clamp(min=1e-3)
            / torch.finfo(FP8).max
        )
        caches[f"{name}_cache"] = (cache / scales[:, None]).to(FP8)
        exact[f"{name}_cache"] = caches[f"{name}_cache"].double() * scales[:, None]
        caches[f"{name}_scales"] = scales
    return tensors | caches, tensors | exact


def prepared(number, batch, target, library=None, tensors=None, **how):
    """A PagedDecode, the arguments of its call, and the tensors for dense attention."""
    exact = tensors = tensors or batch.tensors(target)
    if number == 8:
        tensors, exact = fp8(tensors)
    decode = PagedDecode(
        number,
        tensors["context_lens"],
        **batch.model,
        kv_dtype=FP8 if number == 8 else None,
        target=target,
        library=library,
        **how,
    )
    return (
        decode,
        {name: tensor for name, tensor in tensors.items() if name != "context_lens"},
        exact,
    )


def assert_right(out, exact, expected=None):
    expected = decode_attention(**exact) if expected is None else expected
    assert_within_rounding(out, exact["q"], expected)


def check(number, batch, target, **how):
    decode, arguments, exact = prepared(number, batch, target, **how)
    out = decode(**arguments)
    assert_right(out, exact)
    # every bit the same, whichever block comes last
    assert torch.equal(decode(**arguments), out)
    if "arrived" in decode.workspace:
        assert not decode.workspace["arrived"].any()
