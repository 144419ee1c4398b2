"""Calls that are prepared once and made often: checked once, and what changes reaches the
kernel.
"""

import pytest
import torch

from cuda_text import device_of, each_target, error_of, launcher
from lessons_lib import build_cuda

SCALED_SUM = """
struct Sum {
  const float *a, *b;
  int n;
};
__global__ void scaled_sum_kernel(Sum sum, float* out, float factor) {
  int i = threadIdx.x;
  if (i < sum.n) out[i] = factor * (sum.a[i] + (sum.b ? sum.b[i] : 0.0f));
}
""" + launcher(
    "scaled_sum(Sum sum, float* out, float factor, int threads)",
    threads="threads",
    arguments="sum, out, factor",
)


def numbers(target, first):
    return torch.arange(first, first + 4.0, device=device_of(target))


def prepared(target, **changes):
    library = build_cuda(SCALED_SUM, target=target)
    arguments = dict(a=numbers(target, 0), b=None, n=4, factor=1.0, threads=32)
    arguments |= dict(out=torch.zeros_like(arguments["a"])) | changes
    return library.scaled_sum.prepare(**arguments), arguments


@each_target
def test_what_does_not_fit_is_refused_when_it_is_prepared(target):
    with pytest.raises(TypeError, match=r"scaled_sum: a takes a tensor of torch.float32"):
        prepared(target, a=numbers(target, 0).double())
    with pytest.raises(TypeError, match="unknown argument c"):
        prepared(target, c=1)
    with pytest.raises(TypeError, match="missing argument"):
        build_cuda(SCALED_SUM, target=target).scaled_sum.prepare()


def test_on_the_cpu_each_call_is_checked_and_watched():
    call, given = prepared("checked")
    with pytest.raises(TypeError, match="b takes a tensor"):
        call(b=given["a"].int())
    found = error_of(call, b=given["a"][:2].clone())
    assert found.kind == "out-of-bounds"
    library = build_cuda(SCALED_SUM, target="checked")
    call = library.scaled_sum.prepare(**given)
    with library.trace("out") as accesses:
        call()
    assert [access.index for access in accesses] == [(0,), (1,), (2,), (3,)]
