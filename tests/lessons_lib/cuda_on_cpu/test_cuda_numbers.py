"""The conversions of 16-bit floats on the CPU give what PyTorch gives: with the compiler's
half type and without one.
"""

import ctypes
import hashlib

import pytest
import torch

from lessons_lib import build_library
from lessons_lib.cuda.builds import CUDA_ON_CPU

CONVERSIONS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" void half_to_float(const __half* from, float* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = __half2float(from[i]);
}
extern "C" void float_to_half(const float* from, __half* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = __float2half(from[i]);
}
extern "C" void bfloat16_to_float(const __nv_bfloat16* from, float* to, int n) {
    for (int i = 0; i < n; ++i) to[i] = __bfloat162float(from[i]);
}
extern "C" void float_to_bfloat16(const float* from, __nv_bfloat16* to, int n) {
    for (int i = 0; i < n; ++i) to[i] = __float2bfloat16(from[i]);
}
"""


@pytest.fixture(scope="module", params=["", "#define CUDA_ON_CPU_PORTABLE_HALF\n"])
def conversions(request):
    """With the compiler's half type, and without one."""
    # a change of the headers makes a new build
    headers = "".join(path.read_text() for path in sorted(CUDA_ON_CPU.glob("*.h")))
    changed = f"// {hashlib.sha256(headers.encode()).hexdigest()}\n"
    flags = ("-std=c++17", "-O2", f"-I{CUDA_ON_CPU / 'include'}")
    return build_library(request.param + changed + CONVERSIONS, flags=flags)


both_types = pytest.mark.parametrize(
    "name, dtype", [("half", torch.float16), ("bfloat16", torch.bfloat16)]
)


def converted(function, numbers, dtype):
    to = torch.empty(len(numbers), dtype=dtype)
    function(ctypes.c_void_p(numbers.data_ptr()), ctypes.c_void_p(to.data_ptr()), len(numbers))
    return to


def assert_equal(actual, expected):
    assert torch.equal(actual.isnan(), expected.isnan())
    # so that -0 is not 0
    bits = torch.int32 if expected.dtype == torch.float32 else torch.int16
    assert torch.equal(
        actual[~actual.isnan()].view(bits), expected[~expected.isnan()].view(bits)
    )


@both_types
def test_every_number_of_16_bits_becomes_the_float_that_it_is(conversions, name, dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    assert_equal(
        converted(getattr(conversions, f"{name}_to_float"), every, torch.float32),
        every.float(),
    )


@both_types
def test_floats_round_to_the_nearest_and_ties_to_even(conversions, name, dtype):
    """All 16-bit numbers, the middles between two, the floats next to those, random floats."""
    every = (
        torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    )
    middle = (every[:-1].double() + every[1:].double()).div(2).float()
    beside = [
        torch.nextafter(middle, torch.full_like(middle, end))
        for end in (-torch.inf, torch.inf)
    ]
    any_bits = torch.randint(
        -(2**31), 2**31, (200_000,), generator=torch.Generator().manual_seed(0)
    ).to(torch.int32)
    floats = torch.cat([every, middle, *beside, any_bits.view(torch.float32)])
    assert_equal(
        converted(getattr(conversions, f"float_to_{name}"), floats, dtype), floats.to(dtype)
    )
