"""Calls that are prepared once and made often: checked once, and what changes reaches the
kernel.
"""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from lessons_lib import KernelError, build_cuda
from lessons_lib.cuda_arguments import bind
from lessons_lib.cuda_calls import CallOnGpu
from lessons_lib.cuda_prepared import PreparedOnGpu
from lessons_lib.cuda_signatures import functions
from lessons_lib.inline import build_library
from poison import needs_gpu

TARGETS = ["fast", "checked", pytest.param("gpu", marks=needs_gpu)]
on_each_target = pytest.mark.parametrize("target", TARGETS)
SCALED_SUM = """
struct Sum {
  const float *a, *b;
  int n;
};
__global__ void scaled_sum_kernel(Sum sum, float* out, float factor) {
  int i = threadIdx.x;
  if (i < sum.n) out[i] = factor * (sum.a[i] + (sum.b ? sum.b[i] : 0.0f));
}
extern "C" int scaled_sum(Sum sum, float* out, float factor, int threads,
                          cudaStream_t stream) {
  scaled_sum_kernel<<<1, threads, 0, stream>>>(sum, out, factor);
  return cudaGetLastError();
}
"""


def numbers(target, first):
    return torch.arange(first, first + 4.0, device="cuda" if target == "gpu" else "cpu")


def prepared(target, **changes):
    library = build_cuda(SCALED_SUM, target=target)
    arguments = dict(a=numbers(target, 0), b=None, n=4, factor=1.0, threads=32)
    arguments |= dict(out=torch.zeros_like(arguments["a"])) | changes
    return library.scaled_sum.prepare(**arguments), arguments


@on_each_target
def test_it_launches_with_what_was_given_and_what_changes_stays(target):
    call, given = prepared(target)
    call()
    assert given["out"].tolist() == [0, 1, 2, 3]
    b = numbers(target, 10)
    call(b=b, factor=2.0)
    assert given["out"].tolist() == [20, 24, 28, 32]
    other = torch.zeros_like(given["out"])
    call(out=other)
    assert other.tolist() == [20, 24, 28, 32]
    call(b=None, factor=3)
    assert other.tolist() == [0, 3, 6, 9]


@on_each_target
def test_what_does_not_fit_is_refused_when_it_is_prepared(target):
    with pytest.raises(TypeError, match=r"scaled_sum: a takes a tensor of torch.float32"):
        prepared(target, a=numbers(target, 0).double())
    with pytest.raises(TypeError, match="unknown argument c"):
        prepared(target, c=1)
    with pytest.raises(TypeError, match="missing argument"):
        build_cuda(SCALED_SUM, target=target).scaled_sum.prepare()


@on_each_target
def test_a_launch_that_fails_raises_and_the_next_one_is_right(target):
    call, given = prepared(target)
    with pytest.raises(KernelError, match="scaled_sum"):
        call(threads=5000)
    call(threads=32)
    assert given["out"].tolist() == [0, 1, 2, 3]


def test_on_the_cpu_each_call_is_checked_and_watched():
    call, given = prepared("checked")
    with pytest.raises(TypeError, match="b takes a tensor"):
        call(b=given["a"].int())
    with pytest.raises(KernelError) as caught:
        call(b=given["a"][:2].clone())
    assert caught.value.kind == "out-of-bounds"
    library = build_cuda(SCALED_SUM, target="checked")
    call = library.scaled_sum.prepare(**given)
    with library.trace("out") as accesses:
        call()
    assert [access.index for access in accesses] == [(0,), (1,), (2,), (3,)]


# What the GPU's calls do is tried on any machine, with a C library that writes down what it
# gets.
NOTED = """
#include <cstdint>
struct Params { const float* a; int64_t stride; float scale; };
static int code = 0, forgotten = 0;
static double noted[8];
extern "C" int note(Params params, const int* b, int n, void* stream) {
  double values[] = {double(uintptr_t(params.a)), double(params.stride), params.scale,
                     double(uintptr_t(b)), double(n), double(uintptr_t(stream))};
  for (int i = 0; i < 6; ++i) noted[i] = values[i];
  return n;
}
extern "C" int lessons_lib_last_error() { ++forgotten; return 0; }
extern "C" const char* lessons_lib_error_text(int code) { return "some reason"; }
extern "C" double noted_at(int i) { return noted[i]; }
"""
DECLARED = """
struct Params { const float* a; int64_t stride; float scale; };
extern "C" int note(Params params, const int* b, int n, cudaStream_t stream);
"""


@pytest.fixture
def noting(monkeypatch):
    """A prepared call of `note`, and what it noted."""
    library = build_library(NOTED, name="noted")
    library.noted_at.restype = ctypes.c_double
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    streams = iter(range(100, 200))
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=next(streams))
    )
    function = functions({"": DECLARED})["note"]

    def prepare(**values):
        run = CallOnGpu(library, {"": DECLARED})
        call = PreparedOnGpu(run, function, bind(function, (), values), None)
        return call, lambda: [library.noted_at(i) for i in range(6)]

    return prepare


def test_a_gpu_gets_addresses_numbers_and_the_stream_of_now(noting):
    a, b = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    call, noted = noting(a=a, stride=2**40, scale=0.5, b=None, n=0)
    call()
    assert noted() == [a.data_ptr(), 2**40, 0.5, 0, 0, 100]
    call(b=b, scale=2)
    assert noted() == [a.data_ptr(), 2**40, 2, b.data_ptr(), 0, 101]
    call(a=None)
    assert noted() == [0, 2**40, 2, b.data_ptr(), 0, 102]


def test_two_prepared_calls_of_a_function_are_apart(noting):
    one, noted = noting(a=None, stride=1, scale=0, b=None, n=0)
    other, _ = noting(a=None, stride=2, scale=0, b=None, n=0)
    one()
    assert noted()[1] == 1
    other(stride=3)
    one()
    assert noted()[1] == 1


def test_an_error_of_a_gpu_has_its_reason(noting):
    call, _ = noting(a=None, stride=1, scale=0, b=None, n=0)
    with pytest.raises(KernelError, match="note returned 9: some reason"):
        call(n=9)
    with pytest.raises(KernelError, match="launched before"):
        call(n=700)
    with pytest.raises(KeyError, match="m"):
        call(m=1)
